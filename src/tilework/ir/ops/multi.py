"""Ops over several devices: how a value is spread, put together, and spread in another way.

They are written in the TENSOR stage alone.  `schedule.shard` turns them into ordinary expressions
of one device each and COPYs between devices, so that nothing after it knows of them.
"""

from __future__ import annotations

from tilework.base.errors import ShapeError
from tilework.base.records import dataclass
from tilework.ir.node import Attrs, Node
from tilework.ir.ops.define import define_op
from tilework.ir.ops.tensor import Fold
from tilework.ir.stage import Stage
from tilework.ir.types import Dim, Type, make_type

#: The elements from start up to stop of one axis; None is the whole axis.
Interval = tuple[int, int] | None
#: A part of a tensor: an interval of each axis.
Box = tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Layout(Attrs):
    """Which part of a tensor each device holds.

    The boxes together cover the tensor; devices with the same box hold replicas.  An interval that
    is the whole axis is always None, so equal layouts are equal.
    """

    devices: tuple[str, ...]
    boxes: tuple[tuple[tuple[int, int] | None, ...], ...]


def _infer_unshard(src: tuple[Node, ...], attrs: Layout) -> Type:
    if len(src) != len(attrs.devices) or len(attrs.boxes) != len(src):
        raise ShapeError(
            "unshard: needs a part and a box for each device",
            got=f"{len(src)} parts, {len(attrs.boxes)} boxes, {len(attrs.devices)} devices",
        )
    first = src[0].type
    for part in src:
        if part.type.dtype is not first.dtype or len(part.type.shape) != len(first.shape):
            raise ShapeError("unshard: the parts differ in rank or dtype", got=f"{part.type}")
    sizes: list[Dim] = []
    for axis in range(len(first.shape)):
        cuts = [box[axis] for box in attrs.boxes]
        whole = [part.type.shape[axis] for part, cut in zip(src, cuts, strict=True) if cut is None]
        sizes.append(whole[0] if whole else max(cut[1] for cut in cuts if cut is not None))
    for part, box in zip(src, attrs.boxes, strict=True):
        wanted = tuple(
            [size if cut is None else cut[1] - cut[0] for size, cut in zip(sizes, box, strict=True)]
        )
        if part.type.shape != wanted:
            raise ShapeError(
                "unshard: a part does not fit its box",
                got=f"{part.type.shape} for {box}",
                expected=f"{wanted}",
            )
    return make_type(tuple(sizes), first.dtype)


UNSHARD = define_op(
    "unshard",
    operands=("*parts",),
    attrs=Layout,
    infer=_infer_unshard,
    stages=Stage.TENSOR,
    doc="The tensor of which each source is the part that one device holds.",
)
RESHARD = define_op(
    "reshard",
    operands=("x",),
    attrs=Layout,
    infer=lambda src, attrs: make_type(src[0].type.shape, src[0].type.dtype),
    stages=Stage.TENSOR,
    doc="x spread over devices in another way (or over one device, or from one).",
)


@dataclass(frozen=True, slots=True)
class AllReduceAttrs(Attrs):
    """How values are combined, and the device of this result."""

    fold: Fold
    device: str


def _infer_all_reduce(src: tuple[Node, ...], attrs: AllReduceAttrs) -> Type:
    first = src[0].type
    if any(part.type != first for part in src):
        raise ShapeError(
            "allreduce: the values differ in shape or dtype",
            got=", ".join(str(part.type) for part in src),
        )
    return first


ALLREDUCE = define_op(
    "allreduce",
    operands=("*parts",),
    attrs=AllReduceAttrs,
    infer=_infer_all_reduce,
    stages=Stage.TENSOR | Stage.SCHEDULE,
    doc="One value of each of several devices folded element by element, in an order of the"
    " library that does it, on one of them; all of them get the same bits.",
)
