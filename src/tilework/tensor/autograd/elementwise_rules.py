"""Gradients of elementwise ops.

In each, `g` is the gradient of the value.  Where a formula would give NaN for a value that no
gradient reaches, the argument is replaced, so that 0 * infinity does not arise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilework.ir.ops import math as ops
from tilework.tensor.autograd.table import Step, gradient_of, no_gradient

if TYPE_CHECKING:
    from tilework.tensor.tensor import Tensor

Gradients = tuple["Tensor | None", ...]

no_gradient(
    "integers: the value does not change with a small change of the operands",
    ops.IDIV, ops.MOD, ops.AND, ops.OR, ops.XOR, ops.SHL, ops.SHR,
)  # fmt: skip
no_gradient("a comparison gives bool", ops.LT, ops.LE, ops.EQ, ops.NE)
no_gradient("a staircase: 0 wherever it is defined", ops.FLOOR, ops.CEIL, ops.TRUNC, ops.ROUND)
no_gradient("bits have no slope", ops.BITCAST)
no_gradient("a literal has no sources", ops.CONST)


@gradient_of(ops.ADD)
def _add(step: Step, g: Tensor) -> Gradients:
    return g, g


@gradient_of(ops.SUB)
def _sub(step: Step, g: Tensor) -> Gradients:
    return g, -g


@gradient_of(ops.MUL)
def _mul(step: Step, g: Tensor) -> Gradients:
    x, y = step.sources
    of_x, of_y = step.wanted  # of a number, and of a network's input, nobody asks
    return g * y if of_x else None, g * x if of_y else None


@gradient_of(ops.MULACC)
def _mulacc(step: Step, g: Tensor) -> Gradients:
    x, y, _ = step.sources
    return g * y, g * x, g


@gradient_of(ops.MAXIMUM)
def _maximum(step: Step, g: Tensor) -> Gradients:
    """Shared equally between equals, as PyTorch does."""
    x, y = step.sources
    half = (x == y).where(g * 0.5, g)
    return (x < y).where(0, half), (y < x).where(0, half)


@gradient_of(ops.MINIMUM)
def _minimum(step: Step, g: Tensor) -> Gradients:
    x, y = step.sources
    half = (x == y).where(g * 0.5, g)
    return (y < x).where(0, half), (x < y).where(0, half)


@gradient_of(ops.FDIV)
def _fdiv(step: Step, g: Tensor) -> Gradients:
    y = step.sources[1]
    part = g / y
    return part, -(part * step.value)


@gradient_of(ops.FMOD)
def _fmod(step: Step, g: Tensor) -> Gradients:
    x, y = step.sources
    return g, -(g * (x / y).trunc())


@gradient_of(ops.POW)
def _pow(step: Step, g: Tensor) -> Gradients:
    dtype = step.value.dtype
    # The next lower power of a narrow float may be beyond it where the gradient is not.
    x, y, value, g = (each._wide() for each in (*step.sources, step.value, g))
    base = g * (y * x.pow(y - 1))
    # 0 ** y is 0 for every y > 0, so it does not change with y.
    is_flat = (x == 0) & (y >= 0)
    exponent = g * (value * is_flat.where(1.0, x).log())
    return (y == 0).where(0, base).cast(dtype), is_flat.where(0, exponent).cast(dtype)


@gradient_of(ops.ATAN2)
def _atan2(step: Step, g: Tensor) -> Gradients:
    x, y = step.sources
    length = x.hypot(y)  # whose square may be beyond the dtype
    length = (length == 0).where(math.inf, length)  # the origin has every angle, and no slope
    return g * (y / length) / length, -(g * (x / length) / length)


@gradient_of(ops.COPYSIGN)
def _copysign(step: Step, g: Tensor) -> Gradients:
    x = step.sources[0]
    is_kept = (x < 0) == (step.value < 0)
    return (x == 0).where(0, is_kept.where(g, -g)), None


@gradient_of(ops.SQRT)
def _sqrt(step: Step, g: Tensor) -> Gradients:
    return (g / (step.value * 2),)


@gradient_of(ops.RECIPROCAL)
def _reciprocal(step: Step, g: Tensor) -> Gradients:
    return (-(g * step.value * step.value),)


@gradient_of(ops.EXP)
def _exp(step: Step, g: Tensor) -> Gradients:
    return (g * step.value,)


@gradient_of(ops.EXP2)
def _exp2(step: Step, g: Tensor) -> Gradients:
    return (g * math.log(2) * step.value,)


@gradient_of(ops.EXPM1)
def _expm1(step: Step, g: Tensor) -> Gradients:
    return (g * (step.value + 1),)


@gradient_of(ops.LOG)
def _log(step: Step, g: Tensor) -> Gradients:
    return (g / step.sources[0],)


@gradient_of(ops.LOG2)
def _log2(step: Step, g: Tensor) -> Gradients:
    return (g / (step.sources[0] * math.log(2)),)


@gradient_of(ops.LOG1P)
def _log1p(step: Step, g: Tensor) -> Gradients:
    return (g / (step.sources[0] + 1),)


@gradient_of(ops.SIN)
def _sin(step: Step, g: Tensor) -> Gradients:
    return (g * step.sources[0].cos(),)


@gradient_of(ops.COS)
def _cos(step: Step, g: Tensor) -> Gradients:
    return (-(g * step.sources[0].sin()),)


@gradient_of(ops.TAN)
def _tan(step: Step, g: Tensor) -> Gradients:
    return (g * step.value * step.value + g,)  # the square alone may be beyond the dtype


@gradient_of(ops.ASIN)
def _asin(step: Step, g: Tensor) -> Gradients:
    x = step.sources[0]
    return (g * ((1 - x) * (1 + x)).rsqrt(),)


@gradient_of(ops.ACOS)
def _acos(step: Step, g: Tensor) -> Gradients:
    x = step.sources[0]
    return (-(g * ((1 - x) * (1 + x)).rsqrt()),)


@gradient_of(ops.ATAN)
def _atan(step: Step, g: Tensor) -> Gradients:
    x = step.sources[0]
    return (g / (x * x + 1),)


@gradient_of(ops.SINH)
def _sinh(step: Step, g: Tensor) -> Gradients:
    return (g * step.sources[0].cosh(),)


@gradient_of(ops.COSH)
def _cosh(step: Step, g: Tensor) -> Gradients:
    return (g * step.sources[0].sinh(),)


@gradient_of(ops.TANH)
def _tanh(step: Step, g: Tensor) -> Gradients:
    return (g * (1 - step.value * step.value),)


@gradient_of(ops.ASINH)
def _asinh(step: Step, g: Tensor) -> Gradients:
    x = step.sources[0]
    return (g / x.hypot(1),)


@gradient_of(ops.ACOSH)
def _acosh(step: Step, g: Tensor) -> Gradients:
    x = step.sources[0]
    return (g * (x - 1).rsqrt() * (x + 1).rsqrt(),)


@gradient_of(ops.ATANH)
def _atanh(step: Step, g: Tensor) -> Gradients:
    x = step.sources[0]
    return (g / ((1 - x) * (1 + x)),)


@gradient_of(ops.ERF)
def _erf(step: Step, g: Tensor) -> Gradients:
    x = step.sources[0]
    return (g * (-(x * x)).exp() * (2 / math.sqrt(math.pi)),)


@gradient_of(ops.NEG)
def _neg(step: Step, g: Tensor) -> Gradients:
    return (-g,)


@gradient_of(ops.ABS)
def _abs(step: Step, g: Tensor) -> Gradients:
    x = step.sources[0]
    return ((x > 0).where(g, (x < 0).where(-g, x * 0)),)


@gradient_of(ops.WHERE)
def _where(step: Step, g: Tensor) -> Gradients:
    condition = step.sources[0]
    _, of_first, of_second = step.wanted
    return (
        None,
        condition.where(g, 0) if of_first else None,
        condition.where(0, g) if of_second else None,
    )


@gradient_of(ops.CAST)
def _cast(step: Step, g: Tensor) -> Gradients:
    """Between floats the gradient is cast back; what passed through integers is a staircase."""
    source = step.sources[0].dtype
    return (g.cast(source) if source.is_float else None,)
