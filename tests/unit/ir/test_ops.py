"""The op table: every row is complete, and has a meaning in the interpreter."""

import dataclasses
from typing import Any

import pytest

from tilework.base.errors import DTypeError, InternalError, ShapeError
from tilework.dtypes import bool_, float32, int32
from tilework.ir.build import const
from tilework.ir.interpret import kernels, linear, movement, steps, tensors
from tilework.ir.node import Attrs, OpDef
from tilework.ir.ops import OPS, define_op, math, memory, program
from tilework.ir.stage import Stage

ROWS = [pytest.param(op, id=name) for name, op in OPS.items()]
#: Ops that hold whole kernels or calls; nothing inside a kernel or graph has their meaning.
ABOVE_KERNELS = {"call", "linear", "program", "buffer_view"}
X = const(1.0, float32, (3,))


@pytest.mark.parametrize("op", ROWS)
def test_every_row_says_what_it_does(op: OpDef) -> None:
    assert op.doc.endswith(".")
    assert op.stages
    assert op.name == op.name.lower()
    assert op.attrs is None or issubclass(op.attrs, Attrs)


@pytest.mark.parametrize("op", ROWS)
def test_attributes_are_frozen_and_documented(op: OpDef) -> None:
    if op.attrs is not None:
        kind: Any = op.attrs
        assert kind.__doc__
        assert kind.__dataclass_params__.frozen
        assert dataclasses.fields(kind)


@pytest.mark.parametrize("op", ROWS)
def test_every_op_has_a_meaning_in_the_interpreter(op: OpDef) -> None:
    covered = (
        tensors.COVERED | tensors.LEAVES | movement.MOVEMENT
        | kernels.COVERED | linear.COVERED | steps.COVERED
    )  # fmt: skip
    assert op.elementwise or op in covered or op.name in ABOVE_KERNELS


def test_a_name_is_defined_once() -> None:
    with pytest.raises(InternalError, match="add is defined twice"):
        define_op("add", operands=(), infer=lambda s, a: X.type, stages=Stage.TENSOR, doc="Twice.")


def test_operands_of_different_shapes_are_refused_by_name() -> None:
    with pytest.raises(ShapeError, match="mul: operands differ in shape"):
        math.MUL(X, const(1.0, float32, (4,)))


def test_operands_of_different_dtypes_are_refused_by_name() -> None:
    with pytest.raises(DTypeError, match="add: operands differ in dtype"):
        math.ADD(X, const(1, int32, (3,)))


def test_float_functions_refuse_integers() -> None:
    with pytest.raises(DTypeError, match="sqrt: needs a float"):
        math.SQRT(const(1, int32))
    with pytest.raises(DTypeError, match="xor: needs integers"):
        math.XOR(X, X)


def test_comparisons_give_bool() -> None:
    assert math.LT(X, X).dtype is bool_


def test_the_contents_of_a_buffer_mix_with_other_values() -> None:
    buffer = memory.BUFFER(attrs=memory.BufferAttrs(1, (3,), float32, "CPU"))
    total = math.ADD(buffer, X)
    assert total.type is X.type
    assert math.ADD(buffer, buffer).type.memory is None


def test_effects_are_not_pure() -> None:
    impure = {op.name for op in OPS.values() if not op.pure}
    assert {"store", "sink", "fault_if", "call", "end"} <= impure
    assert math.ADD.pure
    assert memory.LOAD.pure
    assert not program.FAULT_IF.pure
