"""What a capture has found out: all that a replay needs to know (`captured.Captured` uses it)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tilework.base.records import dataclass
from tilework.tensor.core import TensorBase
from tilework.tensor.signature import TensorSpec, Tree, VariableSpec
from tilework.tensor.version import Storage

if TYPE_CHECKING:
    import weakref

    from tilework.engine.captured_program import CapturedProgram
    from tilework.engine.guards import Guards
    from tilework.ir.ops.multi import Layout
    from tilework.runtime.buffer import Buffer
    from tilework.tensor.version import Chain


@dataclass(slots=True)
class Held:
    """A storage that the program reads or writes at its place: number `slot` of the held buffers.

    `buffer` is what the program knows; another one means that somebody wrote, or that the contents
    are lost.
    """

    storage: Storage
    slot: int
    buffer: Buffer | None
    is_written: bool
    needs_gradient: bool
    part: int = 0  # over several devices: of which one it is the part


@dataclass(frozen=True, slots=True)
class Output:
    """Where one returned tensor comes from.

    `kind`: "made" (number of a program's output), "argument" (number of a tensor argument,
    returned as it is), "view" (of the storage of an argument), "seen" (a view of an argument as
    it is seen), "object" (always the same tensor), "storage" (a view of always the same storage),
    "value" (always the same version).
    """

    kind: str
    number: int
    what: Any
    chain: Chain
    type: Any
    variables: tuple[str, ...]


@dataclass(slots=True)
class Made:
    """How the results of one output of the program look."""

    device: str
    shape: tuple[Any, ...]
    dtype: Any
    needs_gradient: bool
    variables: tuple[str, ...]
    first: int = 0  # the output of the program that it is, or its first part is
    layout: Layout | None = None


class Wish(NamedTuple):
    """What `requires_grad` was of a tensor of which the function asked for it.

    The tensor is an argument (its number), or one that the function holds (a weak reference).
    """

    argument: int | None
    held: weakref.ref[TensorBase]
    value: bool | None


@dataclass(slots=True)
class Recipe:
    """Everything that a capture has found out; see `Captured`."""

    tree: Tree
    tensors: list[TensorSpec]
    variables: list[VariableSpec]
    values: list[Any]
    pinned: dict[str, int]
    frozen: dict[str, int]
    fixed_sources: list[tuple[int, Storage]]
    num_inputs: int
    program: CapturedProgram
    guards: Guards
    places: list[tuple[TensorBase, Storage, Chain]]  # where the tensors that `guards` reached are
    held: list[Held]
    outputs: list[Output]
    made: list[Made]
    result: Tree
    result_values: list[Any]
    ambient: tuple[Any, ...]
    orphans: list[Any]  # weak references to storages that the capture left behind
    tensor_type: type[TensorBase]
    #: Tensors whose `grad` a call sets: the result is a tuple then, of that of the function and the
    #: gradients.
    gradients: list[TensorBase]
    wishes: list[Wish]
