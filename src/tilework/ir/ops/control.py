"""Staging of values in memories, vectors, and the statements of the LINEAR stage."""

from __future__ import annotations

from typing import Any

from tilework.base.errors import DTypeError, ShapeError
from tilework.base.records import dataclass
from tilework.dtypes import DType, bool_
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.ops.index import LanesAttrs
from tilework.ir.ops.tensor import Fold, ScanAttrs
from tilework.ir.stage import Stage
from tilework.ir.types import Memory, Type, make_type

_LATE = Stage.LOWERED | Stage.LINEAR


@dataclass(frozen=True, slots=True)
class StageAttrs(Attrs):
    """Where a value is materialised, and its number, unique in the kernel.

    `memory` GLOBAL splits kernels (the scheduler's STAGEs); TILE and REGISTER stay inside one.
    """

    memory: Memory
    number: int = 0


def _infer_stage(src: tuple[Node, ...], attrs: StageAttrs) -> Type:
    shape = tuple([_size_of(source) for source in src[1:]])
    return make_type(shape or src[0].type.shape, src[0].type.dtype, attrs.memory)


def _size_of(node: Node) -> Any:
    size = node.src[0]
    return size.attrs.bits if size.op.name == "const" else size


STAGE: OpDef = define_op(
    "stage",
    operands=("value", "*ranges"),
    attrs=StageAttrs,
    infer=_infer_stage,
    stages=Stage.TENSOR | Stage.KERNEL | Stage.TILED | Stage.LOWERED,
    doc=(
        "`value` for all values of `ranges`, materialised row-major in a memory at the loop level "
        "of its other ranges; read through INDEX and LOAD."
    ),
)


def _infer_broadcast(src: tuple[Node, ...], attrs: LanesAttrs) -> Type:
    if src[0].type.shape != ():
        raise ShapeError("broadcast: needs a scalar", got=f"{src[0].type}")
    return make_type((attrs.lanes,), src[0].type.dtype)


BROADCAST: OpDef = define_op(
    "broadcast",
    operands=("x",),
    attrs=LanesAttrs,
    infer=_infer_broadcast,
    stages=_LATE,
    doc="A vector whose lanes all hold x.",
)


def _infer_stack(src: tuple[Node, ...], attrs: Any) -> Type:
    first = src[0].type
    if any(node.type is not first for node in src):
        raise DTypeError("stack: operands differ in type", got=", ".join(str(n.type) for n in src))
    return make_type((len(src), *first.shape), first.dtype)


STACK: OpDef = define_op(
    "stack",
    operands=("*lanes",),
    infer=_infer_stack,
    stages=_LATE,
    doc="A vector made of scalars.",
)


@dataclass(frozen=True, slots=True)
class LaneAttrs(Attrs):
    """One lane of a vector."""

    lane: int


EXTRACT: OpDef = define_op(
    "extract",
    operands=("x",),
    attrs=LaneAttrs,
    infer=lambda src, attrs: make_type((), src[0].type.dtype),
    stages=_LATE,
    doc="One lane of a vector as a scalar.",
)


@dataclass(frozen=True, slots=True)
class ShuffleAttrs(Attrs):
    """Lane i of the result is lane `lanes[i]` of x and y one after the other."""

    lanes: tuple[int, ...]


def _infer_shuffle(src: tuple[Node, ...], attrs: ShuffleAttrs) -> Type:
    x, y = src[0].type, src[1].type
    if x is not y or len(x.shape) != 1:
        raise ShapeError("shuffle: needs two vectors of one type", got=f"{x} and {y}")
    return make_type((len(attrs.lanes),), x.dtype)


SHUFFLE: OpDef = define_op(
    "shuffle",
    operands=("x", "y"),
    attrs=ShuffleAttrs,
    infer=_infer_shuffle,
    stages=_LATE,
    doc="Lanes picked from two vectors; register transposes are made of these.",
)


def _infer_compress(src: tuple[Node, ...], attrs: Any) -> Type:
    x, mask = src[0].type, src[1].type
    if len(x.shape) != 1 or mask.shape != x.shape or mask.dtype is not bool_:
        raise DTypeError("compress: needs a vector and a mask of its lanes", got=f"{x}, {mask}")
    return x


COMPRESS: OpDef = define_op(
    "compress",
    operands=("x", "mask"),
    infer=_infer_compress,
    stages=_LATE,
    doc="The lanes of x where the mask holds, moved together in their order; then zeros.",
)


@dataclass(frozen=True, slots=True)
class FoldAttrs(Attrs):
    """How values combine."""

    fold: Fold


FOLD_LANES: OpDef = define_op(
    "fold_lanes",
    operands=("x",),
    attrs=FoldAttrs,
    infer=lambda src, attrs: make_type((), src[0].type.dtype),
    stages=_LATE,
    doc="The lanes of a vector folded to a scalar: halves combined pairwise, a fixed tree.",
)

FOLD_THREADS: OpDef = define_op(
    "fold_threads",
    operands=("x", "*units"),
    attrs=FoldAttrs,
    infer=lambda src, attrs: src[0].type,
    stages=_LATE,
    doc=(
        "x of all threads along WARP or LOCAL `units` folded, for each of them: 32 neighbours by "
        "halves, then their results by halves. All threads of the block come here together."
    ),
)

SCAN_THREADS: OpDef = define_op(
    "scan_threads",
    operands=("x", "local", "lanes?"),
    attrs=ScanAttrs,
    infer=lambda src, attrs: src[0].type,
    stages=Stage.TILED | _LATE,
    doc=(
        "The running fold of x over the LOCAL threads of a block, each of which has as many values "
        "side by side as x has lanes: lanes in order, then 32 neighbours by doubling distances, "
        "then their totals. All threads of the block come here together."
    ),
)


@dataclass(frozen=True, slots=True)
class AccumulateAttrs(Attrs):
    """An accumulator: its number, unique in the kernel, and its fold."""

    number: int
    fold: Fold


ACCUMULATOR: OpDef = define_op(
    "accumulator",
    operands=("initial", "loop?"),
    attrs=AccumulateAttrs,
    infer=lambda src, attrs: src[0].type,
    stages=Stage.LINEAR,
    doc=(
        "A variable: `initial` where this stands, then what ACCUMULATE gave it last; "
        "AFTER(accumulator, accumulate) is its value after the loops. With `loop` it is carried "
        "around that loop and stands inside it."
    ),
)
ACCUMULATE: OpDef = define_op(
    "accumulate",
    operands=("accumulator", "value"),
    infer=lambda src, attrs: src[1].type,
    stages=Stage.LINEAR,
    doc="Give the accumulator its value for the next iteration, or after the loop its result.",
    pure=False,
)


@dataclass(frozen=True, slots=True)
class AllocateAttrs(Attrs):
    """Memory inside a kernel: dtype, number of elements, byte offset in the task's scratch."""

    dtype: DType
    count: int
    memory: Memory
    offset_bytes: int


ALLOCATE: OpDef = define_op(
    "allocate",
    operands=(),
    attrs=AllocateAttrs,
    infer=lambda src, attrs: make_type((), attrs.dtype, attrs.memory),
    stages=_LATE,
    doc="Memory of one task, from a fixed byte offset of its scratch on.",
)
END: OpDef = define_op(
    "end",
    operands=("effect", "*ranges"),
    infer=lambda src, attrs: src[0].type,
    stages=_LATE,
    doc=(
        "LOWERED: the effect (a STORE or SINK of STOREs) for all values of `ranges`, which it "
        "binds. LINEAR, on a RANGE alone: the end of the loop over it."
    ),
    pure=False,
)
IF: OpDef = define_op(
    "if",
    operands=("condition",),
    infer=lambda src, attrs: src[0].type,
    stages=Stage.LINEAR,
    doc="The statements up to ENDIF run only where the scalar condition holds.",
    pure=False,
)
ENDIF: OpDef = define_op(
    "endif",
    operands=("if",),
    infer=lambda src, attrs: src[0].type,
    stages=Stage.LINEAR,
    doc="The end of an IF.",
    pure=False,
)
BARRIER: OpDef = define_op(
    "barrier",
    operands=("*effects",),
    infer=lambda src, attrs: src[0].type,
    stages=_LATE,
    doc="All units of the task reach this point before any goes on.",
    pure=False,
)
