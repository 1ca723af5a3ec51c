"""Products, convolutions, pooling, resampling, losses, linear algebra and transforms."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from tests.differential.generated.judge import Bound, Op, composed, summed
from tests.differential.generated.operands import FLOATS, SIGNED, Operand, Shape, an_operand

from tilework import Tensor

_REAL = ("float32", "float64")
_WORDS = (*SIGNED, "uint8")
_LETTERS = "abcdef"


def _operand(draw: Any, dtype: str, shape: Shape, fill: str = "") -> Operand:
    fill = fill or draw(st.sampled_from(("normal", "ties")))
    return draw(an_operand(dtype, shape, fill))  # type: ignore[no-any-return]


def _size(draw: Any, most: int = 9) -> int:
    return draw(st.sampled_from([n for n in (0, 1, 2, 3, 5, 8, 17, 33) if n <= most]))  # type: ignore[no-any-return]


# --- products ----------------------------------------------------------------------------------


def _matmul(draw: Any) -> Any:
    dtype = draw(st.sampled_from((*FLOATS, *FLOATS, *_WORDS)))
    m, k, n = (_size(draw, 33) for _ in range(3))
    batch = draw(st.sampled_from(((), (2,), (1,), (2, 3), (2, 1))))
    other = tuple(draw(st.sampled_from((size, 1))) for size in batch)
    first = draw(st.sampled_from(((k,), (m, k), (*batch, m, k))))
    second = draw(st.sampled_from(((k,), (k, n), (*other, k, n))))
    return (_operand(draw, dtype, first), _operand(draw, dtype, second)), {}


def _einsum(draw: Any) -> Any:
    dtype = draw(st.sampled_from(FLOATS))
    sizes = {letter: draw(st.integers(1, 4)) for letter in _LETTERS}
    letters = st.sampled_from(_LETTERS)
    a_term = st.one_of(
        *[st.lists(letters, max_size=3, unique=unique) for unique in (True, True, False)]
    )
    terms = ["".join(draw(a_term)) for _ in range(draw(st.integers(1, 3)))]
    used = sorted(set("".join(terms)))
    kept = draw(st.lists(st.sampled_from(used), unique=True, max_size=4)) if used else []
    operands = tuple(_operand(draw, dtype, tuple(sizes[letter] for letter in term))
                     for term in terms)  # fmt: skip
    arrow = "->" + "".join(kept)
    return operands, {"formula": ",".join(terms) + arrow}


def _tensordot(draw: Any) -> Any:
    dtype = draw(st.sampled_from(FLOATS))
    dims = draw(st.integers(0, 2))
    shared = tuple(draw(st.integers(1, 4)) for _ in range(dims))
    left = tuple(draw(st.integers(1, 4)) for _ in range(draw(st.integers(0, 2))))
    right = tuple(draw(st.integers(1, 4)) for _ in range(draw(st.integers(0, 2))))
    return (_operand(draw, dtype, left + shared), _operand(draw, dtype, shared + right)), {
        "dims": dims
    }


def _linear(draw: Any) -> Any:
    dtype = draw(st.sampled_from(FLOATS))
    rows, inner, outer = (draw(st.integers(1, 17)) for _ in range(3))
    operands = (_operand(draw, dtype, (rows, inner)), _operand(draw, dtype, (outer, inner)),
                _operand(draw, dtype, (outer,)))  # fmt: skip
    return operands, {}


def _attention(draw: Any) -> Any:
    dtype = draw(st.sampled_from(FLOATS))
    heads, rows, keys, width = (draw(st.integers(1, 5)) for _ in range(4))
    causal = draw(st.booleans())
    shape = (2, heads, rows, width)
    other = (2, heads, keys, width)
    operands = (_operand(draw, dtype, shape), _operand(draw, dtype, other),
                _operand(draw, dtype, other))  # fmt: skip
    return operands, {"is_causal": causal}


def _products() -> list[Op]:
    return [
        Op("matmul", lambda x, y: x.matmul(y), torch.matmul, _matmul, summed(4), widens=True),
        Op("einsum", lambda *x, formula: Tensor.einsum(formula, *x),
           lambda *x, formula: torch.einsum(formula, *x), _einsum, summed(16)),
        Op("tensordot", lambda x, y, dims: x.tensordot(y, dims), torch.tensordot, _tensordot,
           summed(4)),
        Op("linear", lambda x, w, b: x.linear(w.transpose(0, 1), b), F.linear, _linear, summed(4)),
        Op("attention", lambda q, k, v, is_causal: q.scaled_dot_product_attention(
            k, v, is_causal=is_causal), lambda q, k, v, is_causal: F.scaled_dot_product_attention(
            q, k, v, is_causal=is_causal), _attention, composed(16), gradient_bound=512),
    ]  # fmt: skip


# --- convolutions and pooling -------------------------------------------------------------------


def _conv(count: int, transposed: bool) -> Any:
    def draw(draw: Any) -> Any:
        dtype = draw(st.sampled_from(FLOATS))
        groups = draw(st.sampled_from((1, 1, 2)))
        inner, outer = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
        taps = tuple(draw(st.integers(1, 3)) for _ in range(count))
        dilation = tuple(draw(st.integers(1, 2)) for _ in range(count))
        stride = tuple(draw(st.integers(1, 3)) for _ in range(count))
        padding = tuple(draw(st.integers(0, 2)) for _ in range(count))
        sizes = tuple(
            max((t - 1) * d + 1 - 2 * p, 1) + draw(st.integers(0, 4))
            for t, d, p in zip(taps, dilation, padding, strict=True)
        )
        options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation,
                                   "groups": groups}  # fmt: skip
        weight = (outer, inner // groups, *taps)
        if transposed:
            weight = (inner, outer // groups, *taps)
            sizes = tuple(max(size, 2 + 2 * p) for size, p in zip(sizes, padding, strict=True))
            options["output_padding"] = tuple(
                draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
            )
        operands = (_operand(draw, dtype, (draw(st.integers(1, 2)), inner, *sizes)),
                    _operand(draw, dtype, weight), _operand(draw, dtype, (outer,)))  # fmt: skip
        return operands, options

    return draw


def _pool(count: int, maximum: bool) -> Any:
    def draw(draw: Any) -> Any:
        dtype = draw(st.sampled_from(("float32", "float64", "float16")))
        taps = tuple(draw(st.integers(1, 3)) for _ in range(count))
        options: dict[str, Any] = {
            "kernel_size": taps,
            "stride": tuple(draw(st.integers(1, 3)) for _ in range(count)),
            "padding": tuple(draw(st.integers(0, tap // 2)) for tap in taps),
            "ceil_mode": draw(st.booleans()),
        }
        spread = (1,) * count
        if maximum:
            spread = tuple(draw(st.integers(1, 2)) for _ in range(count))
            options["dilation"] = spread
        else:
            options["count_include_pad"] = draw(st.booleans())
        sizes = tuple((t - 1) * d + 1 + draw(st.integers(0, 4))
                      for t, d in zip(taps, spread, strict=True))  # fmt: skip
        fill = draw(st.sampled_from(("normal", "ties")))
        return (_operand(draw, dtype, (2, 2, *sizes), fill),), options

    return draw


def _pool_op(count: int, name: str) -> Op:
    own, other = f"{name}_pool{count}d", getattr(F, f"{name}_pool{count}d")
    return Op(own, lambda x, **o: getattr(x, own)(**o), lambda x, **o: other(x, **o),
              _pool(count, name == "max"), summed(4) if name == "avg" else Bound(),
              is_native=name == "max")  # fmt: skip


def _conv_op(count: int, transposed: bool) -> Op:
    name = f"conv_transpose{count}d" if transposed else f"conv{count}d"
    other = getattr(F, name)
    return Op(
        name, lambda x, w, b, **o: getattr(x, name)(w, b, **o),
        lambda x, w, b, **o: other(x, w, b, **o), _conv(count, transposed), summed(4),
    )  # fmt: skip


def _resized(draw: Any) -> Any:
    count = draw(st.integers(1, 2))
    sizes = tuple(draw(st.integers(1, 6)) for _ in range(count))
    modes = {1: ("nearest", "linear", "nearest-exact"),
             2: ("nearest", "bilinear", "bicubic", "nearest-exact", "area")}[count]  # fmt: skip
    mode = draw(st.sampled_from(modes))
    options = {"size": tuple(draw(st.integers(1, 9)) for _ in range(count)), "mode": mode}
    if "linear" in mode or "cubic" in mode:
        options["align_corners"] = draw(st.booleans())
    return (_operand(draw, draw(st.sampled_from(_REAL)), (2, 2, *sizes), "normal"),), options


def _windows() -> list[Op]:
    ops = [_conv_op(count, transposed) for count in (1, 2, 3) for transposed in (False, True)]
    ops += [_pool_op(count, name) for count in (1, 2, 3) for name in ("max", "avg")]
    ops.append(Op("interpolate", lambda x, **o: x.interpolate(**o),
                  lambda x, **o: F.interpolate(x, **o), _resized, composed(32),
                  gradient_bound=256))  # fmt: skip
    return ops


# --- losses ------------------------------------------------------------------------------------


def _pair(draw: Any) -> Any:
    shape = (draw(st.integers(1, 5)), draw(st.integers(1, 7)))
    dtype = draw(st.sampled_from(FLOATS))
    return (_operand(draw, dtype, shape, "normal"), _operand(draw, dtype, shape, "normal")), {
        "reduction": draw(st.sampled_from(("mean", "sum", "none")))
    }


def _units(draw: Any) -> Any:
    (x, y), options = _pair(draw)
    y = _operand(draw, x.dtype, x.shape, "unit")
    return (x, y), options


def _classes(draw: Any) -> Any:
    rows, classes = draw(st.integers(1, 5)), draw(st.integers(2, 7))
    target = [draw(st.integers(0, classes - 1)) for _ in range(rows)]
    if rows > 1 and draw(st.booleans()):
        target[0] = -100
    operand = _operand(draw, draw(st.sampled_from(FLOATS)), (rows, classes), "normal")
    return (operand,), {
        "target": target, "reduction": draw(st.sampled_from(("mean", "sum", "none"))),
        "label_smoothing": draw(st.sampled_from((0.0, 0.1))),
    }  # fmt: skip


def _cross_entropy(x: Any, target: list[int], reduction: str, label_smoothing: float) -> Any:
    return x.cross_entropy(Tensor(target, dtype="int64"), reduction,
                           label_smoothing=label_smoothing)  # fmt: skip


def _losses() -> list[Op]:
    table: dict[str, Any] = {
        "mse_loss": F.mse_loss, "l1_loss": F.l1_loss, "smooth_l1_loss": F.smooth_l1_loss,
        "huber_loss": F.huber_loss,
    }  # fmt: skip
    ops = [Op(name, lambda x, y, reduction, name=name: getattr(x, name)(y, reduction=reduction),
              theirs, _pair, composed(8)) for name, theirs in table.items()]  # fmt: skip
    ops += [
        Op("bce_logits", lambda x, y, reduction: x.binary_crossentropy_logits(
               y.abs(), reduction), lambda x, y, reduction: F.binary_cross_entropy_with_logits(
               x, y.abs(), reduction=reduction), _units, composed(8)),
        Op("cross_entropy", _cross_entropy, lambda x, target, **o: F.cross_entropy(
               x, torch.tensor(target), **o), _classes, composed(8)),
        Op("kl_div", lambda x, y, reduction: x.log_softmax(-1).kl_div(
               y.softmax(-1), reduction=reduction), lambda x, y, reduction: F.kl_div(
               x.log_softmax(-1), y.softmax(-1), reduction=reduction), _pair, composed(16)),
        Op("cosine_similarity", lambda x, y, reduction: x.cosine_similarity(y),
           lambda x, y, reduction: F.cosine_similarity(x, y), _pair, composed(16),
           gradient_bound=1024),
    ]  # fmt: skip
    return ops


# --- matrices and transforms --------------------------------------------------------------------


def _square(draw: Any) -> Any:
    size = draw(st.integers(1, 6))
    batch = draw(st.sampled_from(((), (2,), (0,), (2, 3))))
    return (_operand(draw, draw(st.sampled_from(_REAL)), (*batch, size, size), "unit"),), {}


def _systems(draw: Any) -> Any:
    (x,), _ = _square(draw)
    columns = draw(st.integers(1, 4))
    return (x, _operand(draw, x.dtype, (*x.shape[:-1], columns), "normal")), {}


def _steady(x: Any) -> Any:
    """A matrix far from singular: its diagonal is heavy."""
    size = x.shape[-1]
    if isinstance(x, torch.Tensor):
        return x + 2 * size * torch.eye(size, dtype=x.dtype)
    return x + Tensor.eye(size, dtype=x.dtype) * (2 * size)


def _definite(x: Any) -> Any:
    flipped = x.transpose(-1, -2)
    return _steady(x @ flipped)


def _signal(draw: Any) -> Any:
    rows, length = draw(st.integers(1, 3)), draw(st.integers(1, 16))
    operand = _operand(draw, draw(st.sampled_from(_REAL)), (rows, length), "normal")
    return (operand,), {
        "n": draw(st.sampled_from((None, 4, 7, 12))),
        "norm": draw(st.sampled_from(("backward", "ortho", "forward"))),
    }


def _matrices() -> list[Op]:
    bound, gradients = composed(128), 1024.0
    return [
        Op("inv", lambda x: _steady(x).inv(), lambda x: torch.linalg.inv(_steady(x)), _square,
           bound, gradient_bound=gradients),
        Op("det", lambda x: _steady(x).det(), lambda x: torch.linalg.det(_steady(x)), _square,
           bound, gradient_bound=gradients),
        Op("cholesky", lambda x: _definite(x).cholesky(),
           lambda x: torch.linalg.cholesky(_definite(x)), _square, bound,
           gradient_bound=gradients),
        Op("solve", lambda x, y: _steady(x).solve(y),
           lambda x, y: torch.linalg.solve(_steady(x), y), _systems, bound,
           gradient_bound=gradients),
        Op("svdvals", lambda x: x.svd()[1], lambda x: torch.linalg.svdvals(x), _square, bound,
           has_gradient=False),
        Op("matrix_exp", lambda x: x.matrix_exp(), torch.linalg.matrix_exp, _square, bound,
           has_gradient=False),
        Op("matrix_power", lambda x: x.matrix_power(3), lambda x: torch.linalg.matrix_power(x, 3),
           _square, composed(32), gradient_bound=256),
        Op("rfft", lambda x, n, norm: x.rfft(n, norm=norm),
           lambda x, n, norm: torch.fft.rfft(x, n, norm=norm), _signal, composed(32),
           gradient_bound=256),
        Op("fft_round", lambda x, n, norm: x.rfft(n, norm=norm).irfft(n or x.shape[-1], norm=norm),
           lambda x, n, norm: torch.fft.irfft(torch.fft.rfft(x, n, norm=norm), n or x.shape[-1],
                                              norm=norm), _signal, composed(32),
           gradient_bound=256),
    ]  # fmt: skip


def families() -> dict[str, list[Op]]:
    """The operations of this module."""
    return {"products": _products(), "windows": _windows(), "losses": _losses(),
            "matrices": _matrices()}  # fmt: skip
