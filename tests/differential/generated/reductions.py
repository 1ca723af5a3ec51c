"""Reductions, running totals, orders and norms over axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from tests.differential.generated.judge import Bound, Op, composed, summed
from tests.differential.generated.operands import FLOATS, INTEGERS, SIGNED, a_shape, an_operand

_WORDS = (*SIGNED, "uint8")
_REAL = ("float32", "float64")


def some_axes(draw: Any, ndim: int) -> tuple[int, ...] | None:
    """Axes to reduce over, counted from either end; None for all."""
    if not ndim or draw(st.integers(0, 4)) == 0:
        return None
    axes = draw(st.sets(st.integers(0, ndim - 1), min_size=1))
    return tuple(axis - ndim if draw(st.booleans()) else axis for axis in sorted(axes))


def over_axes(kinds: Any, fills: str, least: int = 0, zero: bool = True, **options: Any) -> Any:
    """An operand and the axes of a reduction."""

    def draw(draw: Any) -> Any:
        shape = draw(a_shape(zero=zero))
        axes = some_axes(draw, len(shape))
        keepdim = draw(st.booleans())
        operand = draw(an_operand(draw(st.sampled_from(kinds)), shape,
                                  draw(st.sampled_from(fills.split()))))  # fmt: skip
        more = {key: draw(st.sampled_from(list(v))) for key, v in options.items()}
        return (operand,), {"axis": axes, "keepdim": keepdim, **more}

    return draw


def over_axis(kinds: Any, fills: str, zero: bool = True, **options: Any) -> Any:
    """An operand and one axis."""

    def draw(draw: Any) -> Any:
        shape = draw(a_shape(least=1, zero=zero))
        axis = draw(st.integers(-len(shape), len(shape) - 1))
        operand = draw(an_operand(draw(st.sampled_from(kinds)), shape,
                                  draw(st.sampled_from(fills.split()))))  # fmt: skip
        more = {key: draw(st.sampled_from(list(v))) for key, v in options.items()}
        return (operand,), {"axis": axis, **more}

    return draw


def _all(x: torch.Tensor, axis: Any) -> Any:
    return tuple(range(x.ndim)) if axis is None else axis


def _torch_reduce(name: str) -> Any:
    function = getattr(torch, name)

    def call(x: torch.Tensor, axis: Any, keepdim: bool, **options: Any) -> torch.Tensor:
        if not x.ndim:
            return function(x.reshape(1), dim=0, **options)  # type: ignore[no-any-return]
        return function(x, dim=_all(x, axis), keepdim=keepdim, **options)  # type: ignore[no-any-return]

    return call


def _one_by_one(name: str) -> Any:
    """Of functions that take one axis."""
    function = getattr(torch, name)

    def call(x: torch.Tensor, axis: Any, keepdim: bool) -> torch.Tensor:
        places = sorted({one % x.ndim for one in _all(x, axis)}, reverse=True) if x.ndim else []
        for place in places:
            x = function(x, dim=place, keepdim=True)
        if not x.ndim:
            return function(x, dim=0)  # type: ignore[no-any-return]
        return x if keepdim else x.squeeze(tuple(places)) if places else x

    return call


def _ours(name: str) -> Any:
    return lambda x, axis, keepdim, **options: getattr(x, name)(axis, keepdim=keepdim, **options)


def _numpy_arg(name: str) -> Any:
    """The first of equals, and NaN before all, as NumPy has it."""

    def call(x: Any, axis: Any, keepdim: bool) -> Any:
        wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
        return getattr(np, name)(wide, axis=axis, keepdims=keepdim).astype(np.int64)

    return call


def _sums() -> list[Op]:
    numbers = (*FLOATS, *_WORDS)
    plain = "normal ties"
    ops = [
        Op("sum", _ours("sum"), _torch_reduce("sum"),
           over_axes((*numbers, "bool"), "normal ties special wide"), summed(), widens=True),
        Op("mean", _ours("mean"), _torch_reduce("mean"), over_axes(FLOATS, "normal ties special"),
           summed()),
        Op("prod", _ours("prod"), _one_by_one("prod"), over_axes(numbers, "ties nonzero"),
           Bound(own=64), widens=True, has_gradient=False),
        Op("nansum", _ours("nansum"), _torch_reduce("nansum"), over_axes(FLOATS, "holes"),
           summed()),
        Op("nanmean", _ours("nanmean"), _torch_reduce("nanmean"), over_axes(FLOATS, "holes"),
           summed()),
        Op("logsumexp", _ours("logsumexp"), _torch_reduce("logsumexp"),
           over_axes(FLOATS, "normal ties special", zero=False), composed(4)),
        Op("count_nonzero", lambda x, axis, keepdim: x.count_nonzero(axis),
           lambda x, axis, keepdim: torch.count_nonzero(x, axis), over_axes(numbers, "ties"),
           has_gradient=False),
    ]  # fmt: skip
    spread = over_axes(FLOATS, plain, correction=(0, 1))
    ops += [Op(name, _ours(name), _torch_reduce(name), spread, composed(8), gradient_bound=256)
            for name in ("var", "std")]  # fmt: skip
    lengths = over_axes(FLOATS, "nonzero", zero=False)
    ops += [Op(f"norm_{order}", lambda x, axis, keepdim, p=order: x.norm(p, axis, keepdim),
               lambda x, axis, keepdim, p=order: torch.linalg.vector_norm(
                   x, p, dim=None if not x.ndim else _all(x, axis), keepdim=keepdim),
               lengths, composed(8), has_gradient=order != 0)
            for order in (1.0, 2.0, 3.0, float("inf"), -float("inf"), 0.0)]  # fmt: skip
    return ops


def _extremes() -> list[Op]:
    fills = "normal ties special holes extreme"
    ops = [Op(name, _ours(name), _torch_reduce(name),
              over_axes((*FLOATS, *_WORDS), fills, zero=False), is_native=True)
           for name in ("amax", "amin")]  # fmt: skip
    truths = over_axes(("bool", *SIGNED, "float32"), "ties")
    ops += [Op(name, _ours(name), _one_by_one(name), truths, has_gradient=False)
            for name in ("any", "all")]  # fmt: skip
    kinds = (*FLOATS, *INTEGERS)
    for name in ("argmax", "argmin"):
        oracle = _numpy_arg(name)
        draw = over_axis(kinds, fills, zero=False, keepdim=(False, True))
        ops.append(Op(name, _ours(name), oracle, draw, has_gradient=False, numpy=oracle))
    for name in ("max", "min"):
        ops.append(Op(f"{name}_of_all", lambda x, name=name: getattr(x, name)(),
                      lambda x, name=name: getattr(torch, f"a{name}")(x),
                      _plain(FLOATS, "normal ties"), is_native=True))  # fmt: skip
    ops.append(Op("aminmax", lambda x, axis, keepdim: x.aminmax(dim=axis, keepdim=keepdim),
                  lambda x, axis, keepdim: tuple(torch.aminmax(x, dim=axis, keepdim=keepdim)),
                  over_axis(FLOATS, "normal ties", zero=False, keepdim=(False, True)),
                  is_native=True, has_gradient=False))  # fmt: skip
    return ops


def _plain(kinds: Any, fills: str) -> Any:
    def draw(draw: Any) -> Any:
        shape = draw(a_shape(zero=False))
        return (draw(an_operand(draw(st.sampled_from(kinds)), shape,
                                draw(st.sampled_from(fills.split())))),), {}  # fmt: skip

    return draw


def _along(name: str, **fixed: Any) -> Any:
    return lambda x, axis, **options: getattr(x, name)(axis, **fixed, **options)


def _torch_along(name: str) -> Any:
    return lambda x, axis, **options: getattr(torch, name)(x, dim=axis, **options)


def _scans() -> list[Op]:
    numbers = (*FLOATS, *_WORDS)
    return [
        Op("cumsum", _along("cumsum"), _torch_along("cumsum"),
           over_axis((*numbers, "bool"), "normal ties wide"), summed(), widens=True),
        Op("cumprod", _along("cumprod"), _torch_along("cumprod"),
           over_axis(("float32", "float64", *_WORDS), "nonzero ties"), Bound(own=64), widens=True,
           has_gradient=False),
        Op("cumprod_gradient", _along("cumprod"), _torch_along("cumprod"),
           over_axis(_REAL, "unit ties"), Bound(own=64), gradient_bound=512),
        Op("cummax", _along("cummax"), lambda x, axis: tuple(torch.cummax(x, axis)),
           over_axis((*numbers,), "normal ties holes", zero=False), is_native=True,
           has_gradient=False),
        Op("cummin", _along("cummin"), lambda x, axis: tuple(torch.cummin(x, axis)),
           over_axis((*numbers,), "normal ties holes", zero=False), is_native=True,
           has_gradient=False),
        Op("logcumsumexp", _along("logcumsumexp"), _torch_along("logcumsumexp"),
           over_axis(_REAL, "normal ties"), composed(8)),
        Op("diff", lambda x, axis, n: x.diff(n, axis), lambda x, axis, n: torch.diff(x, n, axis),
           over_axis(numbers, "normal ties", n=(0, 1, 2)), composed(4)),
    ]  # fmt: skip


def _numpy_sort(x: Any, axis: int, descending: bool) -> Any:
    """Stable, NaN last when rising and first when falling."""
    wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    if not descending:
        order = np.argsort(wide, axis=axis, kind="stable")
    else:
        mirrored = np.argsort(np.flip(wide, axis), axis=axis, kind="stable")
        order = np.flip(wide.shape[axis] - 1 - mirrored, axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


def _numpy_argsort(x: Any, axis: int, descending: bool) -> Any:
    return _numpy_sort(x, axis, descending)[1]


def _orders() -> list[Op]:
    kinds = (*FLOATS, *INTEGERS, "bool")
    fills = "normal ties special holes extreme wide"
    fall = (False, True)
    return [
        Op("sort", lambda x, axis, descending: x.sort(axis, descending), _numpy_sort,
           over_axis(kinds, fills, descending=fall), has_gradient=False, numpy=_numpy_sort),
        Op("sort_gradient", lambda x, axis, descending: x.sort(axis, descending),
           lambda x, axis, descending: tuple(
               torch.sort(x, dim=axis, descending=descending, stable=True)),
           over_axis(FLOATS, "normal ties", descending=fall), is_native=True),
        Op("argsort", lambda x, axis, descending: x.argsort(axis, descending),
           _numpy_argsort, over_axis(kinds, fills, descending=fall), has_gradient=False,
           numpy=_numpy_argsort),
        Op("topk", lambda x, axis, k, largest: x.topk(min(k, x.shape[axis]), axis, largest)[0],
           lambda x, axis, k, largest: torch.topk(x, min(k, x.shape[axis]), axis, largest)[0],
           over_axis(FLOATS, "normal ties", k=(1, 2, 5), largest=fall, zero=False),
           is_native=True, has_gradient=False),
        Op("median", lambda x, axis, keepdim: x.median(axis, keepdim)[0],
           lambda x, axis, keepdim: torch.median(x, axis, keepdim)[0],
           over_axis(("float32", "float64", *_WORDS), "normal ties holes", zero=False,
                     keepdim=fall), is_native=True, has_gradient=False),
        Op("kthvalue", lambda x, axis, keepdim: x.kthvalue(1, axis, keepdim)[0],
           lambda x, axis, keepdim: torch.kthvalue(x, 1, axis, keepdim)[0],
           over_axis(_REAL, "normal ties", zero=False, keepdim=fall), is_native=True,
           has_gradient=False),
        Op("quantile", lambda x, axis, q, interpolation: x.quantile(
               q, axis, interpolation=interpolation),
           lambda x, axis, q, interpolation: torch.quantile(
               x, q, axis, interpolation=interpolation),
           over_axis(_REAL, "normal ties", zero=False, q=(0.0, 0.25, 0.5, 0.9, 1.0),
                     interpolation=("linear", "lower", "higher", "nearest", "midpoint")),
           composed(8), has_gradient=False),
        Op("unique", lambda x, axis: x.unique(return_inverse=True, return_counts=True),
           lambda x, axis: torch.unique(x, return_inverse=True, return_counts=True),
           over_axis(("float32", "int32", "int64", "uint8", "bool"), "ties"), has_gradient=False),
    ]  # fmt: skip


def _layernorm(x: torch.Tensor, axis: int) -> torch.Tensor:
    moved = x.movedim(axis, -1)
    return torch.nn.functional.layer_norm(moved, moved.shape[-1:]).movedim(-1, axis)


def _rows() -> list[Op]:
    return [
        Op("softmax", _along("softmax"), _torch_along("softmax"), over_axis(
            FLOATS, "normal ties"), Bound(own=4, largest=1)),
        Op("log_softmax", _along("log_softmax"), _torch_along("log_softmax"),
           over_axis(FLOATS, "normal ties"), composed(4)),
        Op("softmin", _along("softmin"), lambda x, axis: torch.nn.functional.softmin(x, axis),
           over_axis(FLOATS, "normal ties"), Bound(own=4, largest=1)),
        # Where all elements are equal, the rounding of their mean is divided by sqrt(1e-5).
        Op("layernorm", lambda x, axis: x.layernorm(axis), _layernorm,
           over_axis(("float32", "float64"), "normal", zero=False), Bound(16, 320),
           gradient_bound=1024),
        # Computed in float32, of which that is little.
        Op("layernorm of narrow floats", lambda x, axis: x.layernorm(axis), _layernorm,
           over_axis(("float16", "bfloat16"), "normal", zero=False), composed(16),
           gradient_bound=1024),
        Op("normalize", lambda x, axis: x.normalize(dim=axis),
           lambda x, axis: torch.nn.functional.normalize(x, dim=axis),
           over_axis(FLOATS, "nonzero"), composed(8)),
        Op("rms_norm", lambda x, axis: x.rms_norm(axis),
           lambda x, axis: x * torch.rsqrt((x * x).mean(axis, keepdim=True) + 1e-5),
           over_axis(FLOATS, "normal", zero=False), composed(8), gradient_bound=256),
        Op("glu", lambda x, axis: x[_even(x, axis)].glu(axis),
           lambda x, axis: torch.nn.functional.glu(x[_even(x, axis)], axis),
           over_axis(_REAL, "normal"), composed(8)),
        Op("var_mean", lambda x, axis: x.var_mean(axis, correction=0),
           lambda x, axis: torch.var_mean(x, axis, correction=0),
           over_axis(_REAL, "normal"), composed(8), gradient_bound=256),
    ]  # fmt: skip


def _even(x: Any, axis: int) -> Any:
    place = axis % x.ndim
    return (*(slice(None),) * place, slice(0, x.shape[place] // 2 * 2))


def families() -> dict[str, list[Op]]:
    """The operations of this module."""
    return {
        "reductions": _sums() + _extremes(),
        "along an axis": _scans() + _orders() + _rows(),
    }
