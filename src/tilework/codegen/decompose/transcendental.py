"""Which construction computes which function, by dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilework.codegen.decompose import error_function, exponential, hyperbolic, inverse, logarithm, trigonometric
from tilework.codegen.decompose.builder import Value

Unary = Callable[[Value[Any]], Value[Any]]

FLOAT32: dict[str, Unary] = {
    "exp2": exponential.exp2,
    "exp": exponential.exp,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "tanh": hyperbolic.tanh,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "erf": error_function.erf,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "sin_limited": trigonometric.sin_limited,
    "cos_limited": trigonometric.cos_limited,
    "asin": inverse.asin,
    "acos": inverse.acos,
    "atan": inverse.atan,
    "asinh": inverse.asinh,
    "acosh": inverse.acosh,
    "atanh": inverse.atanh,
    "log2": logarithm.log2,
    "log": logarithm.log,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
}
