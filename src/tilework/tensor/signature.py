"""The arguments of a captured function: which are tensors, and what must stay the same.

`flatten` takes tensors out of positional and keyword arguments, lists, tuples and dictionaries;
`rebuild` puts others in their place.  A `TensorSpec` is what a replay checks of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from tilework.base.forks import new_lock
from tilework.base.records import dataclass
from tilework.engine.guards import same_value
from tilework.ir.ops.tensor import RESHAPE
from tilework.ir.types import make_type
from tilework.schedule.parts import longest_part
from tilework.tensor.conversion import packed_module
from tilework.tensor.core import TensorBase
from tilework.tensor.variable import Variable, format_shape
from tilework.tensor.version import Chain

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Type
    from tilework.runtime.buffer import Buffer

_MOST_PARTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Leaf:
    """A place in nested containers: `tensors[number]`, `variables[number]` or another value."""

    kind: str  # "tensor", "variable", "value"
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A list, tuple, named tuple or dictionary of places."""

    kind: type
    keys: tuple[Any, ...] | None
    items: tuple[Leaf | Branch, ...]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PackedPlace:
    """The kind of a branch that stands for a tensor of a packed dtype: its bytes are the item."""

    dtype: DType
    shape: tuple[int, ...]

    @staticmethod
    def of(dtype: DType, shape: tuple[int, ...]) -> PackedPlace:
        """The one instance, so that places compare by identity as types do."""
        with _places_lock:
            found = _places.get((dtype, shape))
            if found is None:
                found = _places[dtype, shape] = PackedPlace(dtype, shape)
            return found

    def __call__(self, items: Sequence[Any]) -> Any:
        """The tensor over bytes."""
        return packed_module().made(items[0], self.dtype, self.shape)


_places: Final[WeakValueDictionary[tuple[DType, tuple[int, ...]], PackedPlace]] = (
    WeakValueDictionary()
)
_places_lock: Final = new_lock()
Tree = Leaf | Branch


@dataclass(slots=True)
class Flat:
    """Arguments taken apart."""

    tree: Tree
    tensors: list[TensorBase]
    variables: list[Variable]
    values: list[Any]


def flatten(value: Any, name: str) -> Flat:
    """Take tensors, variables and other values out of nested containers."""
    flat = Flat(Leaf("value", 0, name), [], [], [])
    flat.tree = _flatten(value, name, flat)
    return flat


def _flatten(value: Any, name: str, flat: Flat) -> Tree:
    if isinstance(value, TensorBase):
        if value.dtype.is_packed:
            place: Any = PackedPlace.of(value.dtype, value._sizes())
            return Branch(place, None, (_flatten(value._packed[0], name, flat),))
        flat.tensors.append(value)
        return Leaf("tensor", len(flat.tensors) - 1, name)
    if isinstance(value, Variable):
        flat.variables.append(value)
        return Leaf("variable", len(flat.variables) - 1, name)
    if isinstance(value, list | tuple):
        items = [_flatten(item, f"{name}[{i}]", flat) for i, item in enumerate(value)]
        return Branch(type(value), None, tuple(items))
    if type(value) is dict:
        items = [_flatten(item, f"{name}[{key!r}]", flat) for key, item in value.items()]
        return Branch(dict, tuple(value), tuple(items))
    flat.values.append(value)
    return Leaf("value", len(flat.values) - 1, name)


def flatten_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Flat:
    """Take a call's arguments apart: positional ones first, then keywords by name."""
    flat = Flat(Leaf("value", 0, "arguments"), [], [], [])
    items = [_flatten(item, f"argument {index}", flat) for index, item in enumerate(args)]
    names = sorted(kwargs)
    items += [_flatten(kwargs[name], f"argument {name}", flat) for name in names]
    flat.tree = Branch(tuple, tuple(names), tuple(items))
    return flat


def rebuild(tree: Tree, tensor_at: Callable[[int], Any], values: Sequence[Any]) -> Any:
    """Put tensors and values back into containers of the same kinds."""
    if isinstance(tree, Leaf):
        return tensor_at(tree.number) if tree.kind == "tensor" else values[tree.number]
    items = [rebuild(item, tensor_at, values) for item in tree.items]
    if tree.keys is not None:
        return dict(zip(tree.keys, items, strict=True))
    if hasattr(tree.kind, "_fields"):
        return tree.kind(*items)
    return tree.kind(items)


def first_difference(old: Tree, new: Tree) -> str | None:
    """Return where two calls are built differently, or None."""
    if isinstance(old, Leaf) or isinstance(new, Leaf):
        same = isinstance(old, Leaf) and isinstance(new, Leaf) and old.kind == new.kind
        return None if same else (old.name if isinstance(old, Leaf) else _name_of(new))
    if old.kind is not new.kind or old.keys != new.keys or len(old.items) != len(new.items):
        return "the number, names or containers of the arguments"
    for a, b in zip(old.items, new.items, strict=True):
        found = first_difference(a, b)
        if found is not None:
            return found
    return None


def _name_of(tree: Tree) -> str:
    return tree.name if isinstance(tree, Leaf) else "the containers of the arguments"


@dataclass(frozen=True, slots=True)
class Part:
    """The contiguous part of its base that a view shows, and the rest of its movement ops."""

    offset_bytes: int
    size_bytes: int
    is_whole: bool
    type: Type
    rest: Chain

    def within(self, buffer: Buffer) -> Buffer:
        """Return the part of a base's buffer."""
        return buffer if self.is_whole else buffer.view(self.offset_bytes, self.size_bytes)


_parts: Final[dict[tuple[Type, Chain], tuple[Part | None]]] = {}  # bounded by _MOST_PARTS


def part_of(base: Type, chain: Chain) -> Part | None:
    """Return the part that `chain` shows of a realized base; None where none is fixed."""
    key = (base, chain)
    known = _parts.get(key)
    if known is not None:
        return known[0]
    found = longest_part(base.shape, chain)
    part: Part | None = None
    if found is not None:
        taken, layout = found
        whole = longest_part(base.shape, ())
        part = Part(
            layout.offset * base.dtype.itemsize,
            layout.count * base.dtype.itemsize,
            whole is not None and layout.count == whole[1].count,
            make_type(layout.shape, base.dtype, base.memory),
            chain[taken:],
        )
    if len(_parts) >= _MOST_PARTS:
        _parts.clear()
    _parts[key] = (part,)
    return part


def is_alike(one: Type, other: Type) -> bool:
    """Whether shape and dtype are the same; where the value is held does not count."""
    return one is other or (one.dtype is other.dtype and one.shape == other.shape)


def rest_of(outer: Chain, inner: Chain) -> Chain | None:
    """Return the movement ops that `outer` has after `inner`, or None; see `joined`."""
    count = len(inner)
    if outer[:count] == inner:
        return outer[count:]
    if inner[-1][0] is RESHAPE and outer[: count - 1] == inner[:-1] and len(outer) >= count:
        return outer[count - 1 :] if outer[count - 1][0] is RESHAPE else None
    return None


def joined(chain: Chain, rest: Chain) -> Chain:
    """Return `rest` after `chain`, where one RESHAPE takes the place of two."""
    if rest and chain and rest[0][0] is RESHAPE and chain[-1][0] is RESHAPE:
        chain = chain[:-1]
    return chain + rest


class TensorSpec:
    """What a replay checks of one tensor argument.

    Where `is_movable`, any contiguous part of any base will do, and `base` and `chain` describe
    the part instead of the storage.
    """

    __slots__ = (
        "base", "chain", "device", "is_movable", "layout", "name", "needs_gradient", "part", "seen",
        "source", "sources", "type", "variables",
    )  # fmt: skip

    def __init__(self, tensor: TensorBase, name: str) -> None:
        version = tensor._storage.version
        self.name = name
        self.type: Type = tensor._type
        self.base: Type = version.node.type
        self.chain: Chain = tensor._chain
        self.seen: Chain = tensor._chain
        self.device: str = version.device
        self.needs_gradient: bool = version.needs_gradient
        self.variables = _names(tensor._bindings, version.bindings)
        #: Over several devices: which part each holds.
        self.layout = version.layout
        is_alone = not self.variables and self.layout is None
        self.part = part_of(self.base, self.chain) if is_alone else None
        self.is_movable = False
        self.source = -1  # which of the program's inputs it is
        self.sources: tuple[int, ...] = ()  # and over several devices its parts

    def settle(self, sources: tuple[int, ...], is_movable: bool) -> None:
        """Note which inputs it is, and whether the place in its base may change."""
        self.source, self.sources = sources[0], sources
        self.is_movable = is_movable
        if is_movable and self.part is not None:
            self.base, self.chain = self.part.type, self.part.rest

    def find(self, tensor: TensorBase) -> Buffer | None:
        """Return the buffer of a realized tensor like the captured one; None if it differs."""
        version = tensor._storage.version
        buffer = version.buffer
        if version.device != self.device or not is_alike(tensor._type, self.type):
            return None
        if self.layout is not None and version.layout != self.layout:
            return None
        chain = tensor._chain
        base = version.node.type
        if base is self.base and chain == self.chain:
            return buffer
        if not self.is_movable or buffer is None or tensor._bindings or version.bindings:
            return None
        part = part_of(base, chain)
        if part is None or part.rest != self.chain or self.part is None:
            return None
        return part.within(buffer) if part.size_bytes == self.part.size_bytes else None

    def difference(self, tensor: TensorBase) -> tuple[str, object, object] | None:
        """Return (field, what it is, what it was) for the first field that differs, or None."""
        version = tensor._storage.version
        base, chain = version.node.type, tensor._chain
        if self.is_movable and (part := part_of(base, chain)) is not None:
            chain = part.rest
            if part.size_bytes == (self.part.size_bytes if self.part is not None else -1):
                base = self.base
        pairs: tuple[tuple[str, object, object], ...] = (
            ("dtype", tensor.dtype.name, self.type.dtype.name),
            ("shape", format_shape(tensor._dims), format_shape(self.type.shape)),
            ("device", version.device, self.device),
            ("layout over devices", version.layout, self.layout),
            ("base shape", format_shape(base.shape), format_shape(self.base.shape)),
            ("view", _chain_text(chain), _chain_text(self.chain)),
            ("variables", _names(tensor._bindings, version.bindings), self.variables),
        )
        for field, now, then in pairs:
            if now != then:
                return field, now, then
        return ("view", chain, self.chain) if chain != self.chain else None


def _names(*bindings: Mapping[str, int] | None) -> tuple[str, ...]:
    found: set[str] = set()
    for row in bindings:
        found.update(row or ())
    return tuple(sorted(found))


def _chain_text(chain: Chain) -> str:
    return " of ".join(f"{op.name}{attrs if attrs is not None else ''}" for op, attrs in chain) or (
        "the whole tensor"
    )


@dataclass(frozen=True, slots=True)
class VariableSpec:
    """What a replay checks of a variable argument: the variable, not its value."""

    name: str
    node: Node
    names: tuple[str, ...]

    def difference(self, value: Variable) -> tuple[str, object, object] | None:
        """Return the field that differs, or None."""
        if value.node is not self.node:
            return "variable", value, self.node.attrs
        names = _names(value.bindings)
        return None if names == self.names else ("bound variables", names, self.names)


def variable_spec(value: Variable, name: str) -> VariableSpec:
    """Describe a variable argument."""
    return VariableSpec(name, value.node, _names(value.bindings))


def value_difference(now: Any, then: Any) -> tuple[str, object, object] | None:
    """Compare arguments that are neither tensors nor variables."""
    return None if same_value(now, then) else ("value", now, then)
