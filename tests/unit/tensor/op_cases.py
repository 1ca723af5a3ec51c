"""Cases that compare an operation with PyTorch: forward values and gradients.

Each case is a name, a function of tensors, the same in PyTorch, and arrays to call it with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from tilework import Tensor, dtypes

Array = Any


class Case(NamedTuple):
    """One comparison; `tolerance` is relative to the largest magnitude of the result."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: tuple[Array, ...]
    has_gradient: bool = True
    tolerance: float = 2e-5


def floats(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    """Numbers of float32 that repeat."""
    generator = np.random.default_rng(seed)
    return (generator.random(shape) * (high - low) + low).astype(np.float32)


def integers(*shape: int, low: int = -9, high: int = 9, seed: int = 0, dtype: Any = None) -> Array:
    """Integers that repeat."""
    generator = np.random.default_rng(seed)
    return generator.integers(low, high, shape).astype(dtype or np.int32)


nan, inf = float("nan"), float("inf")
X = floats(3, 5)
Y = floats(3, 5, seed=1)
POSITIVE = floats(3, 5, seed=2, low=0.1, high=3.0)
UNIT = floats(3, 5, seed=3, low=-0.95, high=0.95)
EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -3.0, 3.0, 6.0, 88.0, -88.0, 100.0, -100.0], np.float32
)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 3e38, 1e-40], np.float32)
WHOLE = integers(3, 5)
OTHER = integers(3, 5, seed=1)
OTHER[0, 0] = 3
DIVISORS = np.where(OTHER == 0, 2, OTHER).astype(np.int32)


def _unary(name: str, theirs: Any = None, *inputs: Array, **options: Any) -> list[Case]:
    function = theirs or getattr(torch, name)
    return [
        Case(f"{name}-{number}", lambda x: getattr(x, name)(), function, (values,), **options)
        for number, values in enumerate(inputs or (X, EDGES))
    ]


def elementwise() -> list[Case]:
    """Functions of each element."""
    cases: list[Case] = []
    for name in (
        "exp",
        "sin",
        "cos",
        "tanh",
        "erf",
        "abs",
        "neg",
        "square",
        "floor",
        "ceil",
        "trunc",
        "round",
        "atan",
        "asinh",
        "sinh",
        "cosh",
        "expm1",
        "exp2",
    ):
        cases += _unary(name, None, X, floats(2, 3, seed=9, low=-5, high=5))
    for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"):
        cases += _unary(name, None, POSITIVE)
    for name in ("asin", "acos", "atanh", "tan"):
        cases += _unary(name, None, UNIT)
    cases += _unary("acosh", None, POSITIVE + 1)
    for name, theirs in {
        "relu": torch.relu,
        "relu6": F.relu6,
        "sigmoid": torch.sigmoid,
        "silu": F.silu,
        "elu": F.elu,
        "celu": F.celu,
        "selu": F.selu,
        "softplus": F.softplus,
        "hardswish": F.hardswish,
        "hardsigmoid": F.hardsigmoid,
        "mish": F.mish,
        "leaky_relu": F.leaky_relu,
        "softsign": F.softsign,
        "logsigmoid": F.logsigmoid,
        "hardtanh": F.hardtanh,
        "tanhshrink": F.tanhshrink,
        "hardshrink": F.hardshrink,
        "softshrink": F.softshrink,
        "gelu": lambda x: F.gelu(x, approximate="tanh"),
    }.items():
        cases += _unary(name, theirs, X, EDGES)
    cases.append(Case("gelu-none", lambda x: x.gelu("none"), F.gelu, (X,)))
    for name in ("isnan", "isinf", "isfinite", "sign"):
        wanted = np.where(np.isnan(SPECIAL), 1, SPECIAL) if name == "sign" else SPECIAL
        cases += _unary(name, None, wanted.astype(np.float32), has_gradient=False)
    cases += _unary("relu", torch.relu, SPECIAL, has_gradient=False)
    cases.append(Case("nan_to_num", lambda x: x.nan_to_num(), torch.nan_to_num, (SPECIAL,), False))
    return cases


def binary() -> list[Case]:
    """Operations of two operands."""
    both = (X, Y)
    row, column = floats(1, 5, seed=4), floats(3, 1, seed=5)
    cases = [
        Case("add", lambda x, y: x + y, lambda x, y: x + y, both),
        Case("add-broadcast", lambda x, y: x + y, lambda x, y: x + y, (row, column)),
        Case("sub", lambda x, y: x - y, lambda x, y: x - y, both),
        Case("rsub", lambda x: 2 - x, lambda x: 2 - x, (X,)),
        Case("mul", lambda x, y: x * y, lambda x, y: x * y, (X, row)),
        Case("div", lambda x, y: x / y, lambda x, y: x / y, (X, POSITIVE)),
        Case("rdiv", lambda x: 2 / x, lambda x: 2 / x, (POSITIVE,)),
        Case("floordiv", lambda x, y: x // y, lambda x, y: x // y, both, False),
        Case(
            "div-trunc",
            lambda x, y: x.div(y, rounding_mode="trunc"),
            lambda x, y: torch.div(x, y, rounding_mode="trunc"),
            both,
            False,
        ),
        Case("mod", lambda x, y: x % y, lambda x, y: x % y, both, False),
        Case("fmod", lambda x, y: x.fmod(y), torch.fmod, both, False),
        Case("pow", lambda x, y: x**y, lambda x, y: x**y, (POSITIVE, Y)),
        Case("pow-2", lambda x: x**2, lambda x: x**2, (X,)),
        Case("pow-3", lambda x: x**3, lambda x: x**3, (X,)),
        Case("pow-half", lambda x: x**0.5, lambda x: x**0.5, (POSITIVE,)),
        Case("pow-minus-1", lambda x: x**-1, lambda x: x**-1, (POSITIVE,)),
        Case("pow-1.7", lambda x: x**1.7, lambda x: x**1.7, (POSITIVE,)),
        Case("pow-zero", lambda x: x**0, lambda x: x**0, (X,)),
        Case("rpow", lambda x: 2**x, lambda x: 2**x, (X,)),
        Case("rpow-3", lambda x: 3**x, lambda x: 3**x, (X,)),
        Case(
            "pow-of-zero",
            lambda x: x**2.5,
            lambda x: x**2.5,
            (np.array([0.0, 1.0, 4.0], np.float32),),
        ),
        Case("maximum", lambda x, y: x.maximum(y), torch.maximum, both),
        Case("minimum", lambda x, y: x.minimum(y), torch.minimum, both),
        Case(
            "maximum-ties",
            lambda x: x.maximum(1.0),
            lambda x: torch.maximum(x, torch.ones(())),
            (EDGES,),
        ),
        Case("atan2", lambda x, y: x.atan2(y), torch.atan2, both),
        Case("copysign", lambda x, y: x.copysign(y), torch.copysign, both),
        Case("logaddexp", lambda x, y: x.logaddexp(y), torch.logaddexp, both),
        Case("logaddexp-equal", lambda x: x.logaddexp(x), lambda x: torch.logaddexp(x, x), (X,)),
        Case("hypot", lambda x, y: x.hypot(y), torch.hypot, both),
        Case("clamp", lambda x: x.clamp(-1, 1), lambda x: x.clamp(-1, 1), (EDGES,)),
        Case("clamp-min", lambda x: x.clamp(min_=0.5), lambda x: x.clamp(min=0.5), (X,)),
        Case(
            "where", lambda x, y: (x > y).where(x, y), lambda x, y: torch.where(x > y, x, y), both
        ),
        Case(
            "masked_fill",
            lambda x: x.masked_fill(x > 0, 3.0),
            lambda x: x.masked_fill(x > 0, 3.0),
            (X,),
        ),
        Case("lerp", lambda x, y: x.lerp(y, 0.3), lambda x, y: x.lerp(y, 0.3), both),
        Case("isclose", lambda x, y: x.isclose(y), torch.isclose, both, False),
    ]
    cases.extend(_comparison(name) for name in ("eq", "ne", "lt", "le", "gt", "ge"))
    return cases


def _comparison(name: str) -> Case:
    values = np.array([1.0, nan, 2.0, -0.0], np.float32), np.array([1.0, nan, 1.0, 0.0], np.float32)
    return Case(
        name,
        lambda x, y: getattr(x, name)(y),
        lambda x, y: getattr(torch, name)(x, y),
        values,
        False,
    )


def integer() -> list[Case]:
    """Operations on integers and bool."""
    u8 = integers(4, low=0, high=255, dtype=np.uint8)
    mask, other = WHOLE > 0, OTHER > 0
    return [
        Case("int-add", lambda x, y: x + y, lambda x, y: x + y, (WHOLE, OTHER), False),
        Case("int-div", lambda x, y: x / y, lambda x, y: x / y, (WHOLE, DIVISORS), False),
        Case("int-floordiv", lambda x, y: x // y, lambda x, y: x // y, (WHOLE, DIVISORS), False),
        Case(
            "int-trunc",
            lambda x, y: x.div(y, rounding_mode="trunc"),
            lambda x, y: torch.div(x, y, rounding_mode="trunc"),
            (WHOLE, DIVISORS),
            False,
        ),
        Case("int-mod", lambda x, y: x % y, lambda x, y: x % y, (WHOLE, DIVISORS), False),
        Case("int-fmod", lambda x, y: x.fmod(y), torch.fmod, (WHOLE, DIVISORS), False),
        Case(
            "int-pow", lambda x, y: x ** y.abs(), lambda x, y: x ** y.abs(), (WHOLE, OTHER), False
        ),
        Case("int-pow-3", lambda x: x**3, lambda x: x**3, (WHOLE,), False),
        Case("int-and", lambda x, y: x & y, lambda x, y: x & y, (WHOLE, OTHER), False),
        Case("int-or", lambda x, y: x | y, lambda x, y: x | y, (WHOLE, OTHER), False),
        Case("int-xor", lambda x, y: x ^ y, lambda x, y: x ^ y, (WHOLE, OTHER), False),
        Case("int-not", lambda x: ~x, lambda x: ~x, (WHOLE,), False),
        Case("int-shl", lambda x: x << 3, lambda x: x << 3, (WHOLE,), False),
        Case("int-shr", lambda x: x >> 1, lambda x: x >> 1, (WHOLE,), False),
        Case("uint8-add", lambda x: x + 1, lambda x: x + 1, (u8,), False),
        Case("int-float", lambda x, y: x + y, lambda x, y: x + y, (WHOLE, X), False),
        Case("int-scalar", lambda x: x * 1.5, lambda x: x * 1.5, (WHOLE,), False),
        Case("bool-and", lambda x, y: x & y, lambda x, y: x & y, (mask, other), False),
        Case("bool-add", lambda x, y: x + y, lambda x, y: x + y, (mask, other), False),
        Case("bool-mul", lambda x, y: x * y, lambda x, y: x * y, (mask, other), False),
        Case("bool-not", lambda x: ~x, lambda x: ~x, (mask,), False),
        Case("bool-float", lambda x, y: x * y, lambda x, y: x * y, (mask, X), False),
        Case(
            "logical",
            lambda x, y: x.logical_and(y).logical_xor(y.logical_not()),
            lambda x, y: x.logical_and(y).logical_xor(y.logical_not()),
            (WHOLE, OTHER),
            False,
        ),
        Case("to-int", lambda x: x.int(), lambda x: x.int(), (X * 10,), False),
        Case("to-uint8", lambda x: x.cast(dtypes.uint8), lambda x: x.to(torch.uint8), (u8,), False),
    ]


def movement() -> list[Case]:
    """Views and joins."""
    x3 = floats(2, 3, 4)
    return [
        Case("reshape", lambda x: x.reshape(4, -1), lambda x: x.reshape(4, -1), (x3,)),
        Case("permute", lambda x: x.permute(2, 0, 1), lambda x: x.permute(2, 0, 1), (x3,)),
        Case("transpose", lambda x: x.transpose(0, 2), lambda x: x.transpose(0, 2), (x3,)),
        Case("flip", lambda x: x.flip(0, 2), lambda x: x.flip(0, 2), (x3,)),
        Case(
            "expand",
            lambda x: x.unsqueeze(0).expand(3, 2, 3, 4) * 1.5,
            lambda x: x.unsqueeze(0).expand(3, 2, 3, 4) * 1.5,
            (x3,),
        ),
        Case("flatten", lambda x: x.flatten(1), lambda x: x.flatten(1), (x3,)),
        Case(
            "unflatten", lambda x: x.unflatten(2, (2, -1)), lambda x: x.unflatten(2, (2, -1)), (x3,)
        ),
        Case("squeeze", lambda x: x[:1].squeeze(0), lambda x: x[:1].squeeze(0), (x3,)),
        Case("movedim", lambda x: x.movedim(0, -1), lambda x: x.movedim(0, -1), (x3,)),
        Case("diagonal", lambda x: x.diagonal(1, 1, 2), lambda x: x.diagonal(1, 1, 2), (x3,)),
        Case("diagonal-low", lambda x: x.diagonal(-1), lambda x: x.diagonal(-1), (X,)),
        Case("unfold", lambda x: x.unfold(2, 2, 1), lambda x: x.unfold(2, 2, 1), (x3,)),
        Case("unfold-step", lambda x: x.unfold(0, 3, 2), lambda x: x.unfold(0, 3, 2), (floats(8),)),
        Case(
            "pad",
            lambda x: x.pad((1, 2, 0, 1), value=3.0),
            lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
            (x3,),
        ),
        Case("pad-negative", lambda x: x.pad((-1, 2)), lambda x: F.pad(x, (-1, 2)), (x3,)),
        Case(
            "pad-reflect",
            lambda x: x.pad((2, 1), mode="reflect"),
            lambda x: F.pad(x, (2, 1), mode="reflect"),
            (x3,),
        ),
        Case(
            "pad-replicate",
            lambda x: x.pad((2, 1), mode="replicate"),
            lambda x: F.pad(x, (2, 1), mode="replicate"),
            (x3,),
        ),
        Case(
            "pad-circular",
            lambda x: x.pad((2, 1), mode="circular"),
            lambda x: F.pad(x, (2, 1), mode="circular"),
            (x3,),
        ),
        Case("cat", lambda x, y: x.cat(y, y, dim=1), lambda x, y: torch.cat([x, y, y], 1), (X, Y)),
        Case(
            "stack", lambda x, y: x.stack(y, dim=-1), lambda x, y: torch.stack([x, y], -1), (X, Y)
        ),
        Case("split", lambda x: x.split(2, 1)[1], lambda x: x.split(2, 1)[1], (X,)),
        Case("chunk", lambda x: x.chunk(3, -1)[-1], lambda x: x.chunk(3, -1)[-1], (X,)),
        Case("repeat", lambda x: x.repeat(2, 1, 3), lambda x: x.repeat(2, 1, 3), (X,)),
        Case(
            "repeat_interleave",
            lambda x: x.repeat_interleave(2, 1),
            lambda x: x.repeat_interleave(2, 1),
            (X,),
        ),
        Case("roll", lambda x: x.roll((1, -2), (0, 1)), lambda x: x.roll((1, -2), (0, 1)), (X,)),
        Case("roll-all", lambda x: x.roll(4), lambda x: x.roll(4), (X,)),
        Case("tril", lambda x: x.tril(1), lambda x: x.tril(1), (X,)),
        Case("triu", lambda x: x.triu(-1), lambda x: x.triu(-1), (X,)),
        Case("diag", lambda x: x.diag(), lambda x: torch.diag(x), (floats(4),)),
        Case("slice-step", lambda x: x[:, ::2], lambda x: x[:, ::2], (X,)),
        Case("slice-negative", lambda x: x[:, 3::-2], lambda x: x.flip(1)[:, 1::2], (X,)),
        Case("slice-none", lambda x: x[1, None, ..., -1], lambda x: x[1, None, ..., -1], (x3,)),
        Case("slice-empty", lambda x: x[:, 3:1], lambda x: x[:, 3:1], (X,)),
        Case("unbind", lambda x: x.unbind(1)[2], lambda x: x.unbind(1)[2], (X,)),
    ]


def reductions() -> list[Case]:
    """Folds and what is made of them."""
    x3 = floats(2, 3, 4)
    ties = np.array([[1, 3, 3], [2, 2, 2]], np.float32)
    return [
        Case("sum", lambda x: x.sum(), lambda x: x.sum(), (x3,)),
        Case(
            "sum-axes",
            lambda x: x.sum((0, 2), keepdim=True),
            lambda x: x.sum((0, 2), keepdim=True),
            (x3,),
        ),
        Case("sum-int", lambda x: x.sum(0), lambda x: x.sum(0), (WHOLE,), False),
        Case("sum-bool", lambda x: x.sum(), lambda x: x.sum(), (WHOLE > 0,), False),
        Case("mean", lambda x: x.mean(1), lambda x: x.mean(1), (x3,)),
        Case("max", lambda x: x.max(1), lambda x: x.amax(1), (x3,)),
        Case("max-ties", lambda x: x.max(1), lambda x: x.amax(1), (ties,)),
        Case("min", lambda x: x.min(), lambda x: x.amin(), (x3,)),
        Case("prod", lambda x: x.prod(1), lambda x: x.prod(1), (x3,)),
        Case(
            "prod-zeros",
            lambda x: x.prod(1),
            lambda x: x.prod(1),
            (np.array([[0, 2, 3], [0, 0, 5], [1, 2, 3]], np.float32),),
        ),
        Case("any", lambda x: (x > 1).any(1), lambda x: (x > 1).any(1), (X,), False),
        Case("all", lambda x: (x > -1).all(1), lambda x: (x > -1).all(1), (X,), False),
        Case("argmax", lambda x: x.argmax(1), lambda x: x.argmax(1), (X,), False),
        Case("argmin", lambda x: x.argmin(), lambda x: x.argmin(), (X,), False),
        Case("var", lambda x: x.var(1), lambda x: x.var(1), (x3,)),
        Case("var-0", lambda x: x.var(correction=0), lambda x: x.var(correction=0), (x3,)),
        Case("std", lambda x: x.std(-1), lambda x: x.std(-1), (x3,)),
        Case("norm", lambda x: x.norm(dim=1), lambda x: x.norm(dim=1), (x3,)),
        Case("softmax", lambda x: x.softmax(1), lambda x: x.softmax(1), (x3,)),
        Case("log_softmax", lambda x: x.log_softmax(-1), lambda x: x.log_softmax(-1), (x3,)),
        Case("logsumexp", lambda x: x.logsumexp((0, 2)), lambda x: x.logsumexp((0, 2)), (x3,)),
        Case("cumsum", lambda x: x.cumsum(1), lambda x: x.cumsum(1), (x3,)),
        Case("cumsum-int", lambda x: x.cumsum(0), lambda x: x.cumsum(0), (WHOLE,), False),
        Case("cumprod", lambda x: x.cumprod(1), lambda x: x.cumprod(1), (x3,)),
        Case(
            "cumprod-zeros",
            lambda x: x.cumprod(0),
            lambda x: x.cumprod(0),
            (np.array([2, 0, 3, 0, 4], np.float32),),
        ),
        Case("cummax", lambda x: x.cummax(1)[0], lambda x: x.cummax(1)[0], (x3,)),
        Case(
            "cummax-at",
            lambda x: x.cummax(0)[1],
            lambda x: x.cummax(0)[1],
            (np.array([1, 3, 3, 2, 5], np.float32),),
            False,
        ),
        Case("cummin", lambda x: x.cummin(1)[0], lambda x: x.cummin(1)[0], (x3,)),
        Case("logcumsumexp", lambda x: x.logcumsumexp(1), lambda x: x.logcumsumexp(1), (x3,)),
        Case("sort", lambda x: x.sort(1)[0], lambda x: x.sort(1)[0], (x3,)),
        Case(
            "sort-down",
            lambda x: x.sort(-1, descending=True)[1],
            lambda x: torch.sort(x, dim=-1, descending=True, stable=True)[1],
            (ties,),
            False,
        ),
        Case("topk", lambda x: x.topk(2, 1)[0], lambda x: x.topk(2, 1)[0], (x3,)),
        Case("layernorm", lambda x: x.layernorm((1, 2)), lambda x: F.layer_norm(x, (3, 4)), (x3,)),
        Case("rms_norm", lambda x: x.rms_norm(), lambda x: F.rms_norm(x, (4,), eps=1e-5), (x3,)),
        Case("normalize", lambda x: x.normalize(), F.normalize, (x3,)),
        Case("sum-empty", lambda x: x.sum(1), lambda x: x.sum(1), (floats(3, 0),)),
        Case("mean-one", lambda x: x.mean(0), lambda x: x.mean(0), (floats(1),)),
        Case("median", lambda x: x.median(1)[0], lambda x: x.median(1)[0], (x3,)),
    ]


def products() -> list[Case]:
    """Matrix products, einsum, convolution, pooling."""
    a, b = floats(3, 4), floats(4, 5, seed=1)
    batch, right = floats(2, 3, 4), floats(2, 4, 5, seed=1)
    image, weight = floats(2, 4, 6, 7), floats(6, 2, 3, 2, seed=1)
    cases = [
        Case("matmul", lambda x, y: x @ y, lambda x, y: x @ y, (a, b)),
        Case("matmul-batch", lambda x, y: x @ y, lambda x, y: x @ y, (batch, right)),
        Case("matmul-broadcast", lambda x, y: x @ y, lambda x, y: x @ y, (batch, b)),
        Case("matmul-vector", lambda x, y: x @ y, lambda x, y: x @ y, (batch, floats(4))),
        Case("vector-matmul", lambda x, y: x @ y, lambda x, y: x @ y, (floats(4), right)),
        Case("dot", lambda x, y: x.dot(y), lambda x, y: x.dot(y), (floats(4), floats(4, seed=1))),
        Case("outer", lambda x, y: x.outer(y), torch.outer, (floats(3), floats(4, seed=1))),
        Case(
            "linear",
            lambda x, w, c: x.linear(w, c),
            lambda x, w, c: x @ w + c,
            (batch, b, floats(5)),
        ),
        Case(
            "conv2d",
            lambda x, w: x.conv2d(w, groups=2, stride=(2, 1), dilation=(1, 2), padding=1),
            lambda x, w: F.conv2d(x, w, groups=2, stride=(2, 1), dilation=(1, 2), padding=1),
            (image, weight),
        ),
        Case(
            "conv2d-bias",
            lambda x, w, c: x.conv2d(w, c),
            F.conv2d,
            (image, floats(3, 4, 2, 2, seed=2), floats(3)),
        ),
        Case(
            "conv1d",
            lambda x, w: x.conv2d(w, padding=2),
            lambda x, w: F.conv1d(x, w, padding=2),
            (floats(2, 3, 8), floats(4, 3, 3, seed=1)),
        ),
        Case(
            "conv3d",
            lambda x, w: x.conv2d(w),
            F.conv3d,
            (floats(1, 2, 4, 4, 4), floats(3, 2, 2, 2, 2, seed=1)),
        ),
        Case(
            "conv_transpose2d",
            lambda x, w: x.conv_transpose2d(w, groups=2, stride=2, padding=1, output_padding=1),
            lambda x, w: F.conv_transpose2d(x, w, groups=2, stride=2, padding=1, output_padding=1),
            (floats(2, 4, 3, 4), floats(4, 3, 3, 3, seed=1)),
        ),
        Case(
            "conv_transpose2d-dilated",
            lambda x, w: x.conv_transpose2d(w, stride=3, dilation=2),
            lambda x, w: F.conv_transpose2d(x, w, stride=3, dilation=2),
            (floats(1, 2, 3, 3), floats(2, 2, 2, 2, seed=1)),
        ),
        Case(
            "avg_pool",
            lambda x: x.avg_pool2d(3, 2, padding=1),
            lambda x: F.avg_pool2d(x, 3, 2, 1),
            (image,),
        ),
        Case(
            "avg_pool-ceil",
            lambda x: x.avg_pool2d(3, 2, padding=1, ceil_mode=True, count_include_pad=False),
            lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
            (image,),
        ),
        Case(
            "avg_pool-ceil-pad",
            lambda x: x.avg_pool2d(3, 2, padding=1, ceil_mode=True),
            lambda x: F.avg_pool2d(x, 3, 2, 1, True, True),
            (image,),
        ),
        Case(
            "max_pool",
            lambda x: x.max_pool2d(3, 2, padding=1),
            lambda x: F.max_pool2d(x, 3, 2, 1),
            (image,),
        ),
        Case(
            "max_pool-ceil",
            lambda x: x.max_pool2d(2, 2, ceil_mode=True),
            lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
            (image,),
        ),
        Case(
            "max_pool-at",
            lambda x: x.max_pool2d(3, 2, padding=1, return_indices=True)[1],
            lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1],
            (image,),
            False,
        ),
        Case(
            "max_unpool",
            lambda x: _unpool(x),
            lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),  # type: ignore[arg-type]
            (floats(1, 2, 4, 6),),
        ),
        Case(
            "interpolate",
            lambda x: x.interpolate((9, 4)),
            lambda x: F.interpolate(x, (9, 4), mode="bilinear"),
            (image,),
        ),
        Case(
            "interpolate-corners",
            lambda x: x.interpolate((9, 4), align_corners=True),
            lambda x: F.interpolate(x, (9, 4), mode="bilinear", align_corners=True),
            (image,),
        ),
        Case(
            "interpolate-nearest",
            lambda x: x.interpolate((9, 4), mode="nearest"),
            lambda x: F.interpolate(x, (9, 4), mode="nearest"),
            (image,),
        ),
        Case(
            "interpolate-exact",
            lambda x: x.interpolate((9, 4), mode="nearest-exact"),
            lambda x: F.interpolate(x, (9, 4), mode="nearest-exact"),
            (image,),
        ),
    ]
    for formula, shapes in (
        ("ij,jk->ik", ((3, 4), (4, 5))), ("ij->ji", ((3, 4),)), ("ii->i", ((4, 4),)),
        ("ii", ((4, 4),)), ("iij->ij", ((3, 3, 4),)), ("iji->ji", ((3, 4, 3),)),
        ("i,j->ij", ((3,), (4,))), ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
        ("...ij,...jk->...ik", ((2, 3, 4), (2, 4, 5))), ("ij,kj", ((3, 4), (5, 4))),
        ("a,ab,abc->abc", ((2,), (2, 3), (2, 3, 4))), ("i...->...", ((3, 2, 2),)),
        ("ij,ij->", ((3, 4), (3, 4))), ("ijj->i", ((2, 3, 3),)),
    ):  # fmt: skip
        cases.append(_einsum(formula, shapes))
    return cases


def _unpool(x: Tensor) -> Tensor:
    values, places = x.max_pool2d(2, return_indices=True)
    found: Tensor = values.max_unpool2d(places, 2)
    return found


def _einsum(formula: str, shapes: tuple[tuple[int, ...], ...]) -> Case:
    values = tuple(floats(*shape, seed=number) for number, shape in enumerate(shapes))
    return Case(
        f"einsum {formula}",
        lambda *xs: Tensor.einsum(formula, *xs),
        lambda *xs: torch.einsum(formula, *xs),
        values,
    )


def indexing() -> list[Case]:
    """Indices that are tensors, gather, scatter."""
    x3 = floats(4, 5, 3)
    rows = np.array([[0, -1], [2, 1]], np.int64)
    where = np.array([[0, 1, 3, 3, -2]], np.int64)
    at = np.array([[0, 1, 2, 0, 0], [2, 0, 0, 1, 2]], np.int64)
    place = np.array([[0, 1, 2], [2, 2, 0]], np.int64)
    source = floats(2, 5, seed=6)
    wrap = np.where(where < 0, where + 4, where)
    cases = [
        Case("index-tensor", lambda x, i: x[i], lambda x, i: x[i], (x3, rows)),
        Case("index-two", lambda x, i: x[i, :, i], lambda x, i: x[i, :, i], (x3, rows)),
        Case("index-side-by-side", lambda x, i: x[:, i, i], lambda x, i: x[:, i, i], (x3, rows)),
        Case("index-list", lambda x: x[[0, -1, 2]], lambda x: x[[0, -1, 2]], (x3,)),
        Case(
            "index-mixed", lambda x, i: x[1:, i[0], ::2], lambda x, i: x[1:, i[0], ::2], (x3, rows)
        ),
        Case(
            "index-mask",
            lambda x: x[[True, False, True, True]],
            lambda x: x[[True, False, True, True]],
            (x3,),
        ),
        Case("mask", lambda x: x[x.detach() > 0.5], lambda x: x[x.detach() > 0.5], (X,)),
        Case("gather", lambda x, i: x.gather(0, i), lambda x, i: x.gather(0, i), (X, at)),
        Case(
            "index_select",
            lambda x, i: x.index_select(0, i),
            lambda x, i: x.index_select(0, torch.where(i < 0, i + 4, i)),
            (x3, rows[0]),
        ),
        Case(
            "scatter",
            lambda x, i, s: x.scatter(0, i, s),
            lambda x, i, s: x.scatter(0, i, s),
            (X, np.array([[0, 1, 2, 0, 0], [2, 0, 0, 1, 2]], np.int64), source),
        ),
        Case(
            "scatter-number",
            lambda x, i: x.scatter(0, i, 3.0),
            lambda x, i: x.scatter(0, i, 3.0),
            (X, at),
        ),
        Case(
            "scatter-add",
            lambda x, i, s: x.scatter(1, i, s, "add"),
            lambda x, i, s: x.scatter_add(1, i, s),
            (X, place, floats(2, 3, seed=6)),
        ),
        Case("one_hot", lambda i: i.one_hot(4), lambda i: F.one_hot(i, 4).int(), (wrap,), False),
        Case("nonzero", lambda x: (x > 0).nonzero(), lambda x: (x > 0).nonzero(), (X,), False),
    ]
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        cases.extend(_scatter_reduce(reduce, include) for include in (True, False))
    return cases


def _scatter_reduce(reduce: str, include: bool) -> Case:
    place = np.array([[0, 1, 2], [2, 2, 0], [1, 1, 1]], np.int64)
    return Case(
        f"scatter_reduce-{reduce}-{include}",
        lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include),
        lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=include),
        (floats(3, 5, seed=7), place, floats(3, 3, seed=6)),
    )


def losses() -> list[Case]:
    """Losses and attention."""
    logits = floats(6, 4)
    target = np.array([0, 3, 1, 2, -100, 1], np.int64)
    good = np.abs(target) % 4
    probability = floats(6, 4, seed=1, low=0.01, high=0.99)
    weight = floats(4, seed=2, low=0.5, high=2.0)
    q, k, v = floats(2, 3, 5, 4), floats(2, 3, 6, 4, seed=1), floats(2, 3, 6, 4, seed=2)
    mask = floats(5, 6, seed=3) > 0
    mask[2] = False
    return [
        Case("cross_entropy", lambda x, y: x.cross_entropy(y), F.cross_entropy, (logits, target)),
        Case(
            "cross_entropy-smooth",
            lambda x, y: x.cross_entropy(y, label_smoothing=0.1),
            lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
            (logits, target),
        ),
        Case(
            "cross_entropy-soft",
            lambda x, p: x.cross_entropy(p),
            F.cross_entropy,
            (logits, probability),
        ),
        Case(
            "cross_entropy-weight",
            lambda x, y: x.cross_entropy(y, weight=Tensor(weight)),
            lambda x, y: F.cross_entropy(x, y, torch.tensor(weight)),
            (logits, target),
        ),
        Case(
            "cross_entropy-map",
            lambda x, y: x.cross_entropy(y, reduction="none"),
            lambda x, y: F.cross_entropy(x, y, reduction="none"),
            (floats(2, 3, 4), integers(2, 4, low=0, high=3, dtype=np.int64)),
        ),
        Case(
            "sparse",
            lambda x, y: x.sparse_categorical_crossentropy(y),
            F.cross_entropy,
            (logits, good),
        ),
        Case(
            "nll",
            lambda x, y: x.log_softmax(1).nll_loss(y),
            lambda x, y: F.nll_loss(x.log_softmax(1), y),
            (logits, good),
        ),
        Case(
            "bce",
            lambda x, y: x.sigmoid().binary_crossentropy(y),
            lambda x, y: F.binary_cross_entropy(x.sigmoid(), y),
            (logits, probability),
        ),
        Case(
            "bce-logits",
            lambda x, y: x.binary_crossentropy_logits(y),
            F.binary_cross_entropy_with_logits,
            (logits * 30, probability),
        ),
        Case("mse", lambda x, y: x.mse_loss(y), F.mse_loss, (X, Y)),
        Case(
            "l1",
            lambda x, y: x.l1_loss(y, "sum"),
            lambda x, y: F.l1_loss(x, y, reduction="sum"),
            (X, Y),
        ),
        Case("smooth_l1", lambda x, y: x.smooth_l1_loss(y), F.smooth_l1_loss, (X, Y)),
        Case(
            "attention",
            lambda q, k, v: q.scaled_dot_product_attention(k, v),
            F.scaled_dot_product_attention,
            (q, k, v),
        ),
        Case(
            "attention-causal",
            lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            (q, k, v),
        ),
        Case(
            "attention-mask",
            lambda q, k, v, m: q.scaled_dot_product_attention(k, v, m),
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
            (q, k, v, mask),
        ),
        Case(
            "batchnorm",
            lambda x, w, b, m, s: x.batchnorm(w, b, m, s),
            lambda x, w, b, m, s: (x - m[:, None]) * s[:, None] * w[:, None] + b[:, None],
            (floats(2, 3, 4), *[floats(3, seed=n) for n in range(4)]),
        ),
    ]


def all_cases() -> list[Case]:
    """Every case."""
    return [
        *elementwise(), *binary(), *integer(), *movement(), *reductions(), *products(),
        *indexing(), *losses(),
    ]  # fmt: skip
