"""Ops of the TENSOR stage: leaves, movement, reductions, scans, gathers, writes."""

from __future__ import annotations

from enum import Enum

from tilework.base.errors import BoundsError, DTypeError, ShapeError
from tilework.base.records import dataclass
from tilework.dtypes import DType, index
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.stage import Stage
from tilework.ir.symbolic import dims
from tilework.ir.types import Dim, Shape, Type, make_type

_T = Stage.TENSOR


class Fold(Enum):
    """How a reduction combines two values; `identity` values are in ir/fold.py."""

    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True)
class IotaAttrs(Attrs):
    """Shape of the result, the axis that counts, and the dtype."""

    shape: Shape
    axis: int
    dtype: DType


def _infer_iota(src: tuple[Node, ...], attrs: IotaAttrs) -> Type:
    return make_type(attrs.shape, attrs.dtype)


IOTA: OpDef = define_op(
    "iota",
    operands=(),
    attrs=IotaAttrs,
    infer=_infer_iota,
    stages=_T,
    doc="Each element holds its position along `axis`.",
)


@dataclass(frozen=True, slots=True)
class ShapeAttrs(Attrs):
    """The shape of the result."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class AxesAttrs(Attrs):
    """Axes: for PERMUTE source axis of each result axis, for FLIP the mirrored ones, ascending."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PadAttrs(Attrs):
    """Zeros before and after each axis; none is negative."""

    pads: tuple[tuple[Dim, Dim], ...]


@dataclass(frozen=True, slots=True)
class ShrinkAttrs(Attrs):
    """What is kept of each axis: elements start, start + step, ... before stop; step >= 1."""

    bounds: tuple[tuple[Dim, Dim, int], ...]


@dataclass(frozen=True, slots=True)
class WindowAttrs(Attrs):
    """A window slid along `axis`: `count` positions, `size` taps; strides in elements."""

    axis: int
    count: Dim
    size: int
    stride: int
    dilation: int


def _infer_reshape(src: tuple[Node, ...], attrs: ShapeAttrs) -> Type:
    old, new = dims.product(src[0].type.shape), dims.product(attrs.shape)
    if isinstance(old, int) and isinstance(new, int) and old != new:
        raise ShapeError(
            "reshape: the number of elements changes",
            got=f"{src[0].type.shape} to {attrs.shape}",
            expected=f"a shape of {old} elements",
        )
    return make_type(attrs.shape, src[0].type.dtype)


def _infer_permute(src: tuple[Node, ...], attrs: AxesAttrs) -> Type:
    shape = src[0].type.shape
    if sorted(attrs.axes) != list(range(len(shape))):
        raise ShapeError(
            "permute: not a permutation of the axes",
            got=f"axes {attrs.axes} for shape {shape}",
            expected=f"each of 0..{len(shape) - 1} once",
        )
    return make_type(tuple([shape[axis] for axis in attrs.axes]), src[0].type.dtype)


def _infer_expand(src: tuple[Node, ...], attrs: ShapeAttrs) -> Type:
    shape = src[0].type.shape
    fits = len(shape) == len(attrs.shape) and all(
        old is new or old == new or old == 1 for old, new in zip(shape, attrs.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            "expand: only axes of size 1 can grow",
            got=f"{shape} to {attrs.shape}",
            expected="the same rank, each size kept or grown from 1",
        )
    return make_type(attrs.shape, src[0].type.dtype)


def _infer_pad(src: tuple[Node, ...], attrs: PadAttrs) -> Type:
    shape = src[0].type.shape
    if len(attrs.pads) != len(shape) or any(
        isinstance(n, int) and n < 0 for pair in attrs.pads for n in pair
    ):
        raise ShapeError(
            "pad: needs two counts of at least 0 for each axis",
            got=f"{attrs.pads} for shape {shape}",
        )
    return make_type(
        tuple(
            [
                dims.add(dims.add(size, low), high)
                for size, (low, high) in zip(shape, attrs.pads, strict=True)
            ]
        ),
        src[0].type.dtype,
    )


def shrunk_size(start: Dim, stop: Dim, step: int) -> Dim:
    """How many elements start, start + step, ... lie before stop."""
    length = dims.sub(stop, start)
    return length if step == 1 else dims.floordiv(dims.add(length, step - 1), step)


def _infer_shrink(src: tuple[Node, ...], attrs: ShrinkAttrs) -> Type:
    shape = src[0].type.shape
    if len(attrs.bounds) != len(shape):
        raise ShapeError("shrink: needs bounds for each axis", got=f"{attrs.bounds} for {shape}")
    sizes: list[Dim] = []
    for axis, (size, (start, stop, step)) in enumerate(zip(shape, attrs.bounds, strict=True)):
        is_outside = step < 1
        if isinstance(start, int) and isinstance(stop, int) and isinstance(size, int):
            is_outside = is_outside or not 0 <= start <= stop <= size
        if is_outside:
            raise BoundsError(
                f"shrink: bounds of axis {axis} lie outside",
                got=f"[{start}, {stop}) by {step} of {size}",
                expected="0 <= start <= stop <= size, step >= 1",
            )
        sizes.append(shrunk_size(start, stop, step))
    return make_type(tuple(sizes), src[0].type.dtype)


def _infer_flip(src: tuple[Node, ...], attrs: AxesAttrs) -> Type:
    return src[0].type


def _infer_window(src: tuple[Node, ...], attrs: WindowAttrs) -> Type:
    shape = src[0].type.shape
    size = shape[attrs.axis]
    if attrs.count != 0 and isinstance(attrs.count, int) and isinstance(size, int):
        reach = (attrs.count - 1) * attrs.stride + (attrs.size - 1) * attrs.dilation
    else:
        reach = -1
    if isinstance(size, int) and reach >= size:
        raise ShapeError(
            "window: the last position reaches past the end",
            got=f"reach {reach + 1} on axis {attrs.axis} of {shape}",
        )
    before, after = shape[: attrs.axis], shape[attrs.axis + 1 :]
    return make_type((*before, attrs.count, attrs.size, *after), src[0].type.dtype)


def _infer_unwindow(src: tuple[Node, ...], attrs: WindowAttrs) -> Type:
    shape = src[0].type.shape
    before, after = shape[: attrs.axis], shape[attrs.axis + 2 :]
    return make_type((*before, attrs.count, attrs.size, *after), src[0].type.dtype)


RESHAPE: OpDef = define_op(
    "reshape",
    operands=("x",),
    attrs=ShapeAttrs,
    infer=_infer_reshape,
    stages=_T,
    doc="The elements of x in row-major order under another shape.",
)
PERMUTE: OpDef = define_op(
    "permute",
    operands=("x",),
    attrs=AxesAttrs,
    infer=_infer_permute,
    stages=_T,
    doc="Axis i of the result is axis axes[i] of x.",
)
EXPAND: OpDef = define_op(
    "expand",
    operands=("x",),
    attrs=ShapeAttrs,
    infer=_infer_expand,
    stages=_T,
    doc="Axes of size 1 repeated to the sizes of `shape`.",
)
PAD: OpDef = define_op(
    "pad",
    operands=("x",),
    attrs=PadAttrs,
    infer=_infer_pad,
    stages=_T,
    doc="x with zeros (False) around it.",
)
SHRINK: OpDef = define_op(
    "shrink",
    operands=("x",),
    attrs=ShrinkAttrs,
    infer=_infer_shrink,
    stages=_T,
    doc="The elements start, start + step, ... before stop of each axis.",
)
FLIP: OpDef = define_op(
    "flip",
    operands=("x",),
    attrs=AxesAttrs,
    infer=_infer_flip,
    stages=_T,
    doc="x mirrored along `axes`.",
)
WINDOW: OpDef = define_op(
    "window",
    operands=("x",),
    attrs=WindowAttrs,
    infer=_infer_window,
    stages=_T,
    doc="Axis `axis` becomes (count, size): element (o, k) is x at o * stride + k * dilation.",
)
UNWINDOW: OpDef = define_op(
    "unwindow",
    operands=("x",),
    attrs=WindowAttrs,
    infer=_infer_unwindow,
    stages=_T,
    doc=(
        "Axes (axis, axis + 1) = (positions, taps) of x become (count, size): element (i, k) is "
        "x at ((i - k * dilation) / stride, k) where that is a whole number within x, else 0. "
        "Summed over k it is the adjoint of WINDOW."
    ),
)


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Attrs):
    """What REDUCE folds, over which axes (ascending, unique; () once ranges bind)."""

    fold: Fold
    axes: tuple[int, ...] = ()


def _infer_reduce(src: tuple[Node, ...], attrs: ReduceAttrs) -> Type:
    x = src[0].type
    if not attrs.axes:
        return x
    ndim = len(x.shape)
    if outside := [axis for axis in attrs.axes if not 0 <= axis < ndim]:
        raise ShapeError(
            f"reduce: axis {outside[0]} is out of range",
            got=f"shape {x.shape}, axes {attrs.axes}",
            expected=f"each axis in [0, {ndim})",
        )
    kept = tuple([size for axis, size in enumerate(x.shape) if axis not in attrs.axes])
    return make_type(kept, x.dtype)


REDUCE: OpDef = define_op(
    "reduce",
    operands=("x", "*ranges"),
    attrs=ReduceAttrs,
    infer=_infer_reduce,
    stages=Stage.TENSOR | Stage.KERNEL | Stage.TILED | Stage.LOWERED,
    doc=(
        "Fold `x` along `axes` (TENSOR; they leave the shape) or over `ranges` (later stages). "
        "Over nothing it gives the identity of the fold. The order is the plan's choice, the same "
        "for any number of threads; ADD of a product accumulates by fused multiply-add. MAX and "
        "MIN return NaN if a value is NaN."
    ),
)


@dataclass(frozen=True, slots=True)
class ScanAttrs(Attrs):
    """Running fold along `axis`; `exclusive` starts with the identity, `reverse` at the end."""

    fold: Fold
    axis: int
    exclusive: bool = False
    reverse: bool = False


SCAN: OpDef = define_op(
    "scan",
    operands=("x", "*ranges"),
    attrs=ScanAttrs,
    infer=lambda src, attrs: src[0].type,
    stages=_T | Stage.KERNEL | Stage.TILED | Stage.LOWERED,
    doc=(
        "Element i is the fold of the elements up to i (before i if exclusive) along `axis`; in a "
        "kernel along `ranges`, which stay unbound and run in ascending order."
    ),
)


@dataclass(frozen=True, slots=True)
class SortAttrs(Attrs):
    """Stable sort along `axis`; NaN counts as greater than every number.

    Of the sorted positions those from `first` on are given, `count` of them (-1: all the rest);
    with `values` the elements there instead.
    """

    axis: int
    descending: bool
    first: int = 0
    count: int = -1
    values: bool = False


def _infer_sort(src: tuple[Node, ...], attrs: SortAttrs) -> Type:
    shape = src[0].type.shape
    dtype = src[0].type.dtype if attrs.values else index
    if attrs.count < 0:
        return make_type(shape, dtype)
    return make_type((*shape[: attrs.axis], attrs.count, *shape[attrs.axis + 1 :]), dtype)


SORT: OpDef = define_op(
    "sort",
    operands=("x",),
    attrs=SortAttrs,
    infer=_infer_sort,
    stages=_T,
    doc=(
        "The positions (int64) that sort x along `axis`, stable; NaN last (first if descending). "
        "With a `count`, so many of them from `first` on; with `values` the elements themselves."
    ),
)


@dataclass(frozen=True, slots=True)
class GatherAttrs(Attrs):
    """GATHER and SCATTER: the first axis indexed, and for SCATTER how updates combine."""

    axis: int
    fold: Fold | None = None


def _check_indices(op: str, indices: tuple[Node, ...]) -> Shape:
    shape = indices[0].type.shape
    for node in indices:
        if not node.type.dtype.is_integer or node.type.shape != shape:
            raise DTypeError(
                f"{op}: indices must be integer tensors of one shape",
                got=", ".join(str(n.type) for n in indices),
            )
    return shape


def _infer_gather(src: tuple[Node, ...], attrs: GatherAttrs) -> Type:
    x, indices = src[0], src[1:]
    shape = _check_indices("gather", indices)
    before = x.type.shape[: attrs.axis]
    after = x.type.shape[attrs.axis + len(indices) :]
    return make_type((*before, *shape, *after), x.type.dtype)


def _infer_scatter(src: tuple[Node, ...], attrs: GatherAttrs) -> Type:
    x, updates, indices = src[0], src[1], src[2:]
    shape = _check_indices("scatter", indices)
    before = x.type.shape[: attrs.axis]
    after = x.type.shape[attrs.axis + len(indices) :]
    if updates.type.shape != (*before, *shape, *after) or updates.type.dtype is not x.type.dtype:
        raise ShapeError(
            "scatter: the updates do not fit",
            got=f"{updates.type} into {x.type} at indices of shape {shape}",
            expected=f"shape {(*before, *shape, *after)}",
        )
    return x.type


GATHER: OpDef = define_op(
    "gather",
    operands=("x", "*indices"),
    attrs=GatherAttrs,
    infer=_infer_gather,
    stages=_T,
    doc=(
        "Axes axis..axis+n of x are replaced by the shape of the n indices: the result at "
        "(a, i, b) is x at (a, indices[i], b). An index outside reads 0 and sets the fault word."
    ),
)
SCATTER: OpDef = define_op(
    "scatter",
    operands=("x", "updates", "*indices"),
    attrs=GatherAttrs,
    infer=_infer_scatter,
    stages=_T,
    doc=(
        "x with updates written where GATHER would have read them, in the order of the indices: "
        "replaced (the last wins) or folded into what is there. An index outside writes nothing "
        "and sets the fault word."
    ),
)
CONTIGUOUS: OpDef = define_op(
    "contiguous",
    operands=("x",),
    infer=lambda src, attrs: src[0].type,
    stages=_T,
    doc="x, materialised in row-major order.",
)
DETACH: OpDef = define_op(
    "detach",
    operands=("x",),
    infer=lambda src, attrs: src[0].type,
    stages=_T,
    doc="x, through which no gradient flows.",
)


@dataclass(frozen=True, slots=True)
class DeviceAttrs(Attrs):
    """The device that COPY brings x to."""

    device: str


COPY: OpDef = define_op(
    "copy",
    operands=("x",),
    attrs=DeviceAttrs,
    infer=lambda src, attrs: src[0].type,
    stages=_T | Stage.SCHEDULE,
    doc="x on another device.",
)
