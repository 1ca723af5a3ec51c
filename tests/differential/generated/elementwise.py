"""Elementwise operations: one, two and three operands, casts and selections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from tests.differential.generated.judge import EXACT, Bound, Op, composed, ulps
from tests.differential.generated.operands import (
    FLOATS,
    INTEGERS,
    SIGNED,
    a_shape,
    an_operand,
    shapes_that_broadcast,
)  # fmt: skip

from tilework import dtypes

Draw = Callable[..., Any]
_WORDS = (*SIGNED, "uint8")


def drawn(count: int, kinds: Sequence[str], fills: Sequence[str], **options: Any) -> Draw:
    """Operands of one dtype that broadcast; options drawn from lists."""

    def draw(draw: Any) -> Any:
        dtype = draw(st.sampled_from(kinds))
        shapes = draw(shapes_that_broadcast(count))
        fill = draw(st.sampled_from(fills))
        operands = tuple(draw(an_operand(dtype, shape, fill)) for shape in shapes)
        return operands, {key: draw(st.sampled_from(list(v))) for key, v in options.items()}

    return draw


def _unary(
    name: str, theirs: Any = None, fills: str = "normal ties special large", kinds: Any = FLOATS,
    bound: Bound = EXACT, ours: Any = None, numpy: Any = None, **more: Any,
) -> Op:  # fmt: skip
    function = ours or (lambda x, **options: getattr(x, name)(**options))
    options = more.pop("options", {})
    return Op(name, function, theirs or getattr(torch, name), drawn(1, kinds, fills.split(),
              **options), bound, numpy=numpy, **more)  # fmt: skip


_ONE = ulps(1.5)
_TWO = ulps(2.5)


def _functions() -> list[Op]:
    ops = [_unary(name, bound=_ONE, has_signed_zeros=True) for name in
           ("exp", "exp2", "sin", "cos", "tan")]  # fmt: skip
    ops += [_unary(name, bound=_TWO, has_signed_zeros=True) for name in
            ("tanh", "sinh", "cosh", "expm1", "atan", "asinh", "erf")]  # fmt: skip
    ops += [_unary(name, bound=_ONE, fills="positive special", has_signed_zeros=True)
            for name in ("log", "log2", "log10", "sqrt")]  # fmt: skip
    ops += [_unary("rsqrt", bound=_TWO, fills="positive special"),
            _unary("log1p", bound=_TWO, fills="positive special unit", has_signed_zeros=True),
            _unary("reciprocal", bound=_ONE, fills="nonzero special", has_signed_zeros=True),
            _unary("acosh", bound=ulps(4), fills="special"),
            _unary("erfc", bound=composed(4)),
            _unary("logit", bound=composed(16), fills="special"),
            _unary("sinc", bound=composed(8), fills="normal ties special"),
            _unary("lgamma", bound=composed(32), fills="positive ties"),
            _unary("digamma", bound=composed(64), fills="positive", has_gradient=False),
            _unary("erfinv", bound=composed(32), fills="unit"),
            _unary("i0", bound=composed(16), fills="normal"),
            _unary("xlogx", lambda x: torch.special.entr(x), "positive special", bound=_TWO,
                   ours=lambda x: x.entr())]  # fmt: skip
    ops += [_unary(name, bound=ulps(3), fills="unit special", has_signed_zeros=True)
            for name in ("asin", "acos", "atanh")]  # fmt: skip
    return ops


def _activations() -> list[Op]:
    table: dict[str, Any] = {
        "sigmoid": torch.sigmoid, "silu": F.silu, "elu": F.elu, "celu": F.celu, "selu": F.selu,
        "softplus": lambda x: F.softplus(x, threshold=1e30), "mish": F.mish,
        "softsign": F.softsign, "logsigmoid": F.logsigmoid, "hardswish": F.hardswish,
        "hardsigmoid": lambda x: F.relu6(x + 3) / 6, "tanhshrink": F.tanhshrink,
        "leaky_relu": F.leaky_relu,
    }  # fmt: skip
    ops = [_unary(name, theirs, "normal ties", bound=composed(4)) for name, theirs in table.items()]
    exact = {"relu": torch.relu, "relu6": F.relu6, "hardtanh": F.hardtanh,
             "hardshrink": F.hardshrink}  # fmt: skip
    ops += [_unary(name, theirs, is_native=True) for name, theirs in exact.items()]
    ops += [
        _unary("softshrink", F.softshrink, "normal ties", bound=_ONE),
        Op("gelu", lambda x, approximate: x.gelu(approximate), F.gelu,
           drawn(1, FLOATS, ["normal", "ties"], approximate=("tanh", "none")), composed(4)),
        Op("threshold", lambda x, **o: x.threshold(**o), F.threshold,
           drawn(1, FLOATS, ["normal", "ties"], threshold=(0.0, 1.0), value=(-1.0, 20.0)),
           is_native=True),
    ]  # fmt: skip
    return ops


def _exact() -> list[Op]:
    both = (*FLOATS, *_WORDS)
    ops = [_unary(name, is_native=True, has_signed_zeros=True) for name in
           ("floor", "ceil", "trunc", "round", "frac")]  # fmt: skip
    ops += [_unary(name, kinds=both, fills="normal ties special extreme", is_native=True,
                   has_signed_zeros=True) for name in ("abs", "neg", "positive")]  # fmt: skip
    ops += [_unary(name, kinds=both, fills="normal ties special extreme", has_gradient=False)
            for name in ("isnan", "isinf", "isfinite", "signbit", "logical_not")]  # fmt: skip
    ops += [
        _unary("sign", torch.sign, "normal ties extreme", both, is_native=True),
        _unary("square", kinds=both, fills="normal ties extreme", bound=_ONE, is_native=True),
        _unary("bitwise_not", kinds=("bool", *INTEGERS), fills="normal extreme wide",
               numpy=np.bitwise_not),
        _unary("nan_to_num", fills="special large", is_native=True,
               options={"nan": (0.0, 1.5), "posinf": (None, 9.0), "neginf": (None, -9.0)}),
        _unary("clamp", torch.clamp, "normal ties special", FLOATS, is_native=True,
               ours=lambda x, min, max: x.clamp(min, max),
               options={"min": (-1.0, None), "max": (1.0, -2.0, 0.5)}),
        _unary("clip", torch.clamp, "normal extreme", _WORDS, is_native=True,
               ours=lambda x, min, max: x.clip(min, max),
               options={"min": (1, 3, None), "max": (5, 2)}),
    ]  # fmt: skip
    return ops


def _binary(
    name: str, theirs: Any = None, fills: str = "normal ties special", kinds: Any = FLOATS,
    bound: Bound = EXACT, ours: Any = None, **more: Any,
) -> Op:  # fmt: skip
    function = ours or (lambda x, y, **options: getattr(x, name)(y, **options))
    options = more.pop("options", {})
    return Op(name, function, theirs or getattr(torch, name),
              drawn(2, kinds, fills.split(), **options), bound, **more)  # fmt: skip


def _arithmetic() -> list[Op]:
    numbers = (*FLOATS, *INTEGERS)
    wide = "normal ties special extreme wide"
    basic = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    ops = [_binary(name, fills=wide, kinds=numbers, bound=ulps(0.51), numpy=numpy,
                   has_signed_zeros=True) for name, numpy in basic.items()]  # fmt: skip
    ops += [
        _binary("div", fills="nonzero special", bound=ulps(0.51), has_signed_zeros=True),
        _binary("int_div", lambda x, y: torch.div(x, y), "nonzero", _WORDS, ulps(0.51),
                ours=lambda x, y: x / y),
        _binary("floordiv", lambda x, y: torch.floor_divide(x, y), "nonzero", INTEGERS,
                numpy=np.floor_divide),
        _binary("div_trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), "nonzero",
                _WORDS, ours=lambda x, y: x.div(y, rounding_mode="trunc")),
        _binary("remainder", kinds=INTEGERS, fills="nonzero", numpy=np.remainder),
        _binary("fmod", kinds=(*_WORDS, "float32", "float64"), fills="nonzero", numpy=np.fmod,
                is_native=True),
        _binary("mod", torch.remainder, "nonzero", ("float32", "float64"), is_native=True,
                bound=composed(2)),
        _binary("pow", fills="positive special", bound=_TWO),
        _binary("atan2", fills="nonzero special", bound=_TWO, has_signed_zeros=True),
        _binary("hypot", fills="nonzero special", bound=ulps(4)),
        _binary("copysign", is_native=True, has_signed_zeros=True),
        _binary("nextafter", kinds=("float32", "float64"), is_native=True, has_gradient=False),
        _binary("logaddexp", bound=composed(4)), _binary("logaddexp2", bound=composed(4)),
        _binary("xlogy", fills="positive special", bound=composed(4)),
        _binary("ldexp", fills="ties", bound=_ONE, has_gradient=False),
        _binary("heaviside", is_native=True, has_gradient=False),
        _binary("lerp", lambda x, y: torch.lerp(x, y, 0.25), "normal", bound=composed(2),
                ours=lambda x, y: x.lerp(y, 0.25)),
        _binary("prelu_like", lambda x, y: torch.where(x > 0, x, x * y), "normal ties",
                bound=_ONE, ours=lambda x, y: (x > 0).where(x, x * y)),
        _binary("gcd", kinds=SIGNED, fills="normal", has_gradient=False),
        _binary("lcm", kinds=("int32", "int64"), fills="normal", has_gradient=False),
    ]  # fmt: skip
    return ops


def _choices() -> list[Op]:
    numbers = (*FLOATS, *INTEGERS)
    fills = "normal ties special extreme holes"
    compared = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
                "eq": np.equal, "ne": np.not_equal}  # fmt: skip
    ops = [_binary(name, fills=fills, kinds=(*numbers, "bool"), numpy=numpy, has_gradient=False)
           for name, numpy in compared.items()]  # fmt: skip
    ops += [_binary(name, fills=fills, kinds=numbers, numpy=numpy, is_native=True)
            for name, numpy in (("maximum", np.maximum), ("minimum", np.minimum))]  # fmt: skip
    ops += [_binary(name, fills=fills, is_native=True) for name in ("fmax", "fmin")]
    words = ("bool", *INTEGERS)
    ops += [_binary(name, fills="normal extreme wide", kinds=words, numpy=numpy)
            for name, numpy in (("bitwise_and", np.bitwise_and), ("bitwise_or", np.bitwise_or),
                                ("bitwise_xor", np.bitwise_xor))]  # fmt: skip
    ops += [_binary(name, kinds=(*_WORDS, "bool", "float32"), fills="normal ties",
                    has_gradient=False)
            for name in ("logical_and", "logical_or", "logical_xor", "isclose")
            if name != "isclose"]  # fmt: skip
    ops.append(_binary("isclose", fills=fills, kinds=("float32", "float64"), has_gradient=False,
                       options={"equal_nan": (False, True)}))  # fmt: skip
    return ops


def _shift_draw(draw: Any) -> Any:
    dtype = draw(st.sampled_from(_WORDS))
    shapes = draw(shapes_that_broadcast(2))
    x = draw(an_operand(dtype, shapes[0], draw(st.sampled_from(("wide", "extreme")))))
    return (x, draw(an_operand(dtype, shapes[1], "positive"))), {}


def _masked(x: torch.Tensor) -> torch.Tensor:
    """Shifts below the width; beyond it PyTorch's answer depends on the machine."""
    return x % (x.element_size() * 8)


def _where_draw(draw: Any) -> Any:
    dtype = draw(st.sampled_from((*FLOATS, *_WORDS)))
    shapes = draw(shapes_that_broadcast(3))
    fill = draw(st.sampled_from(("normal", "ties", "special", "extreme")))
    operands = (draw(an_operand("bool", shapes[0])), draw(an_operand(dtype, shapes[1], fill)),
                draw(an_operand(dtype, shapes[2], fill)))  # fmt: skip
    return operands, {}


def _bounds_draw(draw: Any) -> Any:
    """PyTorch takes bounds that broadcast to the operand, and not the other way."""
    dtype = draw(st.sampled_from((*FLOATS, "int32")))
    full = draw(a_shape())
    return tuple(draw(an_operand(dtype, full, "normal")) for _ in range(3)), {}


def _three() -> list[Op]:
    return [
        Op("where", lambda c, x, y: c.where(x, y), torch.where, _where_draw, is_native=True,
           has_signed_zeros=True),
        Op("where_nan_branch", lambda c, x, y: (x > 0).where(x.log() * y, x * y),
           lambda c, x, y: torch.where(x > 0, x.log() * y, x * y),
           drawn(3, ("float32", "float64"), ["nonzero"]), composed(4)),
        Op("addcmul", lambda x, y, z, value: x.addcmul(y, z, value=value), torch.addcmul,
           drawn(3, FLOATS, ["normal", "ties"], value=(1, 0.5, -2)), composed(4)),
        Op("addcdiv", lambda x, y, z, value: x.addcdiv(y, z, value=value), torch.addcdiv,
           drawn(3, FLOATS, ["nonzero"], value=(1, 0.5, -2)), composed(4)),
        Op("clamp_tensors", lambda x, y, z: x.clamp(y, z), torch.clamp,
           _bounds_draw, is_native=True),
        Op("lerp_tensor", lambda x, y, z: x.lerp(y, z), torch.lerp,
           drawn(3, FLOATS, ["unit"]), composed(4)),
        Op("lshift", lambda x, y: x << (y % (x.dtype.itemsize * 8)),
           lambda x, y: torch.bitwise_left_shift(x, _masked(y)), _shift_draw),
        Op("rshift", lambda x, y: x >> (y % (x.dtype.itemsize * 8)),
           lambda x, y: torch.bitwise_right_shift(x, _masked(y)), _shift_draw),
    ]  # fmt: skip


# --- casts and mixed dtypes --------------------------------------------------------------------

_TORCH = {name: getattr(torch, name) for name in (*FLOATS, *_WORDS, "bool")}


def _cast_draw(draw: Any) -> Any:
    source = draw(st.sampled_from(tuple(_TORCH)))
    target = draw(st.sampled_from(tuple(_TORCH)))
    fills = ["normal", "ties", "wide" if source not in FLOATS else "normal"]
    if target in FLOATS:
        fills += ["special", "extreme", "large"]
    fill = draw(st.sampled_from(fills))
    if source in FLOATS and target == "uint8":
        fill = "positive"  # what lies outside of the dtype is compared in the table of casts
    return (draw(an_operand(source, draw(a_shape()), fill)),), {"dtype": target}


def _mixed_draw(draw: Any) -> Any:
    kinds = [draw(st.sampled_from(tuple(_TORCH))) for _ in range(2)]
    shapes = draw(shapes_that_broadcast(2))
    if () in shapes:
        shapes = ((), ())  # a scalar beside a longer tensor counts less in PyTorch, not here
    operands = tuple(draw(an_operand(kind, shape, draw(st.sampled_from(("normal", "ties")))))
                     for kind, shape in zip(kinds, shapes, strict=True))  # fmt: skip
    return operands, {}


def _number_draw(draw: Any) -> Any:
    dtype = draw(st.sampled_from((*FLOATS, *_WORDS)))
    number = draw(st.sampled_from((2, -3, 0, 7, True) if dtype not in FLOATS else
                                  (2, -3, 0.5, -1.25, True)))  # fmt: skip
    if dtype == "uint8" and number == -3:
        number = 3
    operand = draw(an_operand(dtype, draw(a_shape()), draw(st.sampled_from(("normal", "ties")))))
    return (operand,), {"number": number}


def _mixed() -> list[Op]:
    return [
        Op("cast", lambda x, dtype: x.cast(dtypes.by_name(dtype)),
           lambda x, dtype: x.to(_TORCH[dtype]), _cast_draw, is_native=True,
           has_signed_zeros=True, has_gradient=False),
        Op("mixed_add", lambda x, y: x + y, torch.add, _mixed_draw, ulps(1), is_native=True,
           has_gradient=False),
        Op("mixed_mul", lambda x, y: x * y, torch.mul, _mixed_draw, ulps(1), is_native=True,
           has_gradient=False),
        Op("mixed_lt", lambda x, y: x < y, torch.lt, _mixed_draw, is_native=True,
           has_gradient=False),
        Op("add_number", lambda x, number: x + number, lambda x, number: x + number, _number_draw,
           ulps(0.51)),
        Op("rsub_number", lambda x, number: (2 * number) - x,
           lambda x, number: (2 * number) - x, _number_draw, ulps(0.51)),
        Op("mul_number", lambda x, number: x * number, lambda x, number: x * number, _number_draw,
           ulps(0.51)),
    ]  # fmt: skip


def families() -> dict[str, list[Op]]:
    """The operations of this module."""
    return {
        "functions": _functions() + _activations(),
        "arithmetic": _exact() + _arithmetic(),
        "choices": _choices() + _three() + _mixed(),
    }
