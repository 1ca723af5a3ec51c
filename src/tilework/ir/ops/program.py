"""What holds kernels: CALL, LINEAR and PROGRAM over buffers, and reports of faults."""

from __future__ import annotations

from typing import Any

from tilework.base.records import dataclass
from tilework.dtypes import bool_
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.stage import IN_KERNEL, Stage
from tilework.ir.types import Type, make_type


def _nothing(src: tuple[Node, ...], attrs: Any) -> Type:
    return make_type((), bool_)


CALL: OpDef = define_op(
    "call",
    operands=("body", "*arguments"),
    infer=_nothing,
    stages=Stage.TENSOR | Stage.SCHEDULE,
    doc="Run `body`, whose PARAM(i) is the i-th argument.",
    pure=False,
)
LINEAR: OpDef = define_op(
    "linear",
    operands=("*calls",),
    infer=_nothing,
    stages=Stage.SCHEDULE | Stage.LINEAR,
    doc="In order: CALLs, COPYs and PROGRAMs over buffers; inside a kernel its statements.",
    pure=False,
)


@dataclass(frozen=True, slots=True)
class ProgramAttrs(Attrs):
    """Compiled code: its entry point, what it needs, and where the code is."""

    entry: str
    key: bytes
    scratch_bytes: int


PROGRAM: OpDef = define_op(
    "program",
    operands=("tasks", "*variables"),
    attrs=ProgramAttrs,
    infer=_nothing,
    stages=Stage.SCHEDULE,
    doc="A kernel as machine code; `tasks` is the trip count of its THREAD range.",
    pure=False,
)


@dataclass(frozen=True, slots=True)
class FaultAttrs(Attrs):
    """The number that the fault word gets, which the engine maps to a message."""

    code: int


FAULT_IF: OpDef = define_op(
    "fault_if",
    operands=("condition",),
    attrs=FaultAttrs,
    infer=_nothing,
    stages=IN_KERNEL,
    doc="Set the fault word where the condition holds; the next readback or wait raises.",
    pure=False,
)
