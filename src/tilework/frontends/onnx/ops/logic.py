"""Comparisons, boolean and bitwise operators, tests for NaN and infinity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilework.frontends.onnx.ops.math import legacy_broadcast
from tilework.frontends.onnx.registry import onnx_op

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call
    from tilework.tensor.tensor import Tensor

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Equal": lambda a, b: a == b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "And": lambda a, b: a & b,
    "Or": lambda a, b: a | b,
    "Xor": lambda a, b: a ^ b,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
}


def _register(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @onnx_op(name)
    def rule(call: Call, a: Tensor, b: Tensor) -> Tensor:
        return function(a, legacy_broadcast(call, a, b))


for _name, _function in _BINARY.items():
    _register(_name, _function)


@onnx_op("Not")
def logical_not(call: Call, x: Tensor) -> Tensor:
    return x.logical_not()


@onnx_op("BitwiseNot")
def bitwise_not(call: Call, x: Tensor) -> Tensor:
    return x.bitwise_not()


@onnx_op("IsNaN")
def is_nan(call: Call, x: Tensor) -> Tensor:
    return x.isnan()


@onnx_op("IsInf")
def is_inf(call: Call, x: Tensor) -> Tensor:
    """Infinities of the signs that the attributes ask for."""
    positive = bool(call.integer("detect_positive", 1))
    negative = bool(call.integer("detect_negative", 1))
    if positive and negative:
        return x.isinf()
    if positive:
        return x == float("inf")
    return x == float("-inf") if negative else x.isinf() & x.isnan()


@onnx_op("Where")
def where(call: Call, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return condition.where(a, b)
