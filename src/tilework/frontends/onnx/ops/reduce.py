"""Reductions.  The axes are an attribute first, an operand from version 13 or 18 on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tilework import dtypes
from tilework.frontends.onnx.call import axis_of, place_of
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, full

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call
    from tilework.tensor.tensor import Tensor

Fold = Callable[["Tensor", tuple[int, ...], bool], "Tensor"]


def _axes(call: Call, x: Tensor, given: Array | None) -> tuple[int, ...] | None:
    """Return the axes to fold, or None where the operator does nothing."""
    listed = call.integers("axes", None)
    if given is not None:
        listed = tuple(int(axis) for axis in given.reshape(-1))
    if not listed:
        return None if call.integer("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    return tuple(sorted({place_of(call, axis, x.ndim) for axis in listed}))


def _largest(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if _is_empty(x, axes):
        least = -math.inf if x.dtype.is_float else x.dtype.minimum
        return _identity(x, axes, keep, least)
    return x.max(axes, keepdim=keep)


def _least(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if _is_empty(x, axes):
        largest = math.inf if x.dtype.is_float else x.dtype.maximum
        return _identity(x, axes, keep, largest)
    return x.min(axes, keepdim=keep)


def _is_empty(x: Tensor, axes: tuple[int, ...]) -> bool:
    return any(x.shape[axis] == 0 for axis in axes)


def _identity(x: Tensor, axes: tuple[int, ...], keep: bool, value: float) -> Tensor:
    kept = tuple(
        1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes
    )
    return full(kept, value, x.dtype, x.device)


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.sum(axes, keepdim=keep).cast(x.dtype)


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if x.dtype.is_float:
        return x.mean(axes, keepdim=keep)
    count = math.prod(x.shape[axis] for axis in axes)
    return x.sum(axes, keepdim=keep).div(count, rounding_mode="trunc").cast(x.dtype)


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if _is_empty(x, axes):
        return _identity(x, axes, keep, -math.inf)
    if not x.dtype.is_float:
        return x.cast(dtypes.float64).logsumexp(axes, keepdim=keep).cast(x.dtype)
    return x.logsumexp(axes, keepdim=keep)


_FOLDS: dict[str, Fold] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _largest,
    "ReduceMin": _least,
    "ReduceProd": lambda x, axes, keep: x.prod(axes, keepdim=keep).cast(x.dtype),
    "ReduceL1": lambda x, axes, keep: _sum(x.abs(), axes, keep),
    "ReduceL2": lambda x, axes, keep: _root(_sum(x * x, axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: _sum(x, axes, keep).log().cast(x.dtype),
    "ReduceLogSumExp": _log_sum_exp,
}


#: Those that do something to each element besides folding.
_CHANGING: Final = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum")


def _root(x: Tensor) -> Tensor:
    return x.sqrt() if x.dtype.is_float else x.cast(dtypes.float64).sqrt().cast(x.dtype)


def _register(name: str, fold: Fold) -> None:
    @onnx_op(name, host=(1,))
    def rule(call: Call, x: Tensor, axes: Array | None = None) -> Tensor:
        wanted = _axes(call, x, axes)
        if wanted is None:
            # Nothing is folded, but each element is still squared, its logarithm taken, ....
            return fold(x.unsqueeze(-1), (x.ndim,), False) if name in _CHANGING else x
        if x.dtype.is_bool:
            return fold(x.cast(dtypes.uint8), wanted, bool(call.integer("keepdims", 1))).cast(
                dtypes.bool_
            )
        return fold(x, wanted, bool(call.integer("keepdims", 1)))


for _name, _fold in _FOLDS.items():
    _register(_name, _fold)


@onnx_op("ArgMax", "ArgMin")
def arg_extremum(call: Call, x: Tensor) -> Tensor:
    """The place of the extremum along an axis, the first one or the last one."""
    axis = axis_of(call, max(x.ndim, 1), 0)
    keep = bool(call.integer("keepdims", 1))
    is_last = bool(call.integer("select_last_index", 0))
    x = x.flip(axis) if is_last else x
    found = (
        x.argmax(axis, keepdim=keep) if call.node.op == "ArgMax" else x.argmin(axis, keepdim=keep)
    )
    found = found.cast(dtypes.int64)
    return (x.shape[axis] - 1) - found if is_last else found
