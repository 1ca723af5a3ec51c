"""Integers that a program is generic over: ranges, variables, and launch coordinates."""

from __future__ import annotations

from enum import Enum
from typing import Any

from tilework.base.errors import DTypeError
from tilework.base.records import dataclass
from tilework.dtypes import index, uint64
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.stage import EVERYWHERE, IN_KERNEL, Stage
from tilework.ir.types import Type, make_type


class Unit(Enum):
    """What runs through the values of a RANGE.

    LOOP: a serial loop.  THREAD: the tasks of a launch (CPU: chunks handed to the pool; GPU: the
    grid's blocks; Hexagon: its hardware threads).  WARP and LOCAL: units inside a task that share
    its TILE memory (GPU warps and threads).  LANE: elements of a vector register (CPU vectors, HVX;
    on a GPU the elements of one wide access).  UNROLL: copies side by side in registers.  MATRIX:
    rows, columns or steps of one matrix register.
    """

    LOOP = "loop"
    THREAD = "thread"
    WARP = "warp"
    LOCAL = "local"
    LANE = "lane"
    UNROLL = "unroll"
    MATRIX = "matrix"


@dataclass(frozen=True, slots=True)
class RangeAttrs(Attrs):
    """A range's number, unique in its kernel, and the unit that it is mapped to."""

    number: int
    unit: Unit = Unit.LOOP


def _infer_range(src: tuple[Node, ...], attrs: RangeAttrs) -> Type:
    if not src[0].type.dtype.is_integer or src[0].type.shape != ():
        raise DTypeError("range: the size must be an integer scalar", got=f"{src[0].type}")
    return make_type((), index)


RANGE: OpDef = define_op(
    "range",
    operands=("size",),
    attrs=RangeAttrs,
    infer=_infer_range,
    stages=IN_KERNEL,
    doc="An integer that runs through 0 .. size - 1.",
)


def _infer_task(src: tuple[Node, ...], attrs: Any) -> Type:
    if src[1].type.memory is None or src[1].type.dtype is not uint64:
        raise DTypeError("task_in_order: needs words of 64 bits in memory", got=f"{src[1].type}")
    return make_type((), index)


TASK_IN_ORDER: OpDef = define_op(
    "task_in_order",
    operands=("task", "words"),
    infer=_infer_task,
    stages=Stage.TILED | Stage.LOWERED | Stage.LINEAR,
    doc=(
        "A number for each of a launch's tasks, the values of `task`, in the order in which their "
        "blocks start: what the first word held, which each block raises by one. All threads of "
        "the block come here together."
    ),
)


@dataclass(frozen=True, slots=True)
class VariableAttrs(Attrs):
    """A named size or position with its inclusive bounds."""

    name: str
    minimum: int
    maximum: int


def _infer_variable(src: tuple[Node, ...], attrs: Any) -> Type:
    return make_type((), index)


VARIABLE: OpDef = define_op(
    "variable",
    operands=(),
    attrs=VariableAttrs,
    infer=_infer_variable,
    stages=EVERYWHERE,
    doc="An integer bound at run time, between `minimum` and `maximum`, both included.",
)
BIND: OpDef = define_op(
    "bind",
    operands=("variable", "value"),
    infer=_infer_variable,
    stages=Stage.TENSOR | Stage.SCHEDULE,
    doc="A variable with the value (a CONST) that it has in this call.",
)


@dataclass(frozen=True, slots=True)
class LanesAttrs(Attrs):
    """Number of lanes."""

    lanes: int


LANES: OpDef = define_op(
    "lanes",
    operands=(),
    attrs=LanesAttrs,
    infer=lambda src, attrs: make_type((attrs.lanes,), index),
    stages=Stage.LOWERED | Stage.LINEAR,
    doc="The vector 0, 1, 2, ...",
)
