"""Operators that index: gather, scatter, top-k, one-hot, unique."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework import dtypes
from tilework.base.errors import IndexingError, ModelFileError, UnsupportedError
from tilework.frontends.onnx.call import axis_of
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, full, tensor_of
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.frontends.onnx.call import Call


#: A place that is outside of every tensor.
_NOWHERE = 1 << 62


def wrapped(index: Tensor, size: int) -> Tensor:
    """Count negative indices from the end."""
    index = index.cast(dtypes.int64)
    return (index < 0).where(index + size, index)


def _check(call: Call, known: Array | None, size: int) -> None:
    if known is not None and known.size:
        low, high = int(known.min()), int(known.max())
        if low < -size or high >= size:
            raise IndexingError(
                f"onnx: {call.node} reads outside the axis",
                got=f"index {low if low < -size else high} of an axis of {size}",
                expected=f"each index in [-{size}, {size})",
            )


@onnx_op("Gather")
def gather(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """Take slices along one axis; the indices' shape stands in the axis' place."""
    axis = axis_of(call, x.ndim, 0)
    known = call.known(1)
    _check(call, known, x.shape[axis])
    before = (slice(None),) * axis
    if known is not None and known.ndim == 0:
        return x[(*before, int(known))]
    return x[(*before, indices)]


@onnx_op("GatherElements")
def gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = axis_of(call, x.ndim, 0)
    _check(call, call.known(1), x.shape[axis])
    return x.gather(axis, indices.cast(dtypes.int64))


def _flat_places(call: Call, indices: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """Turn index tuples (the last axis) over `sizes` into places in the flattened axes.

    Also returns which tuples lie inside, unless the host knows that all of them do: a part that is
    outside of its own axis could name a place inside of all.
    """
    known = call.known(1)
    place: Tensor | None = None
    inside: Tensor | None = None
    for position, size in enumerate(sizes):
        _check(call, None if known is None else known[..., position], size)
        index = indices[..., position]
        part = wrapped(index, size) * math.prod(sizes[position + 1 :])
        place = part if place is None else place + part
        if known is None:
            fits = (index >= -size) & (index < size)
            inside = fits if inside is None else inside & fits
    assert place is not None
    return place, inside


def _reported(place: Tensor, inside: Tensor | None) -> Tensor:
    """The places, with one that no tensor has where a tuple lay outside, so that it is reported."""
    return place if inside is None else inside.where(place, _NOWHERE)


@onnx_op("GatherND")
def gather_nd(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """Take what index tuples name, batch by batch over the first `batch_dims` axes."""
    batch = call.integer("batch_dims", 0)
    depth = indices.shape[-1]
    outer = math.prod(x.shape[:batch])
    named = x.shape[batch : batch + depth]
    inner = x.shape[batch + depth :]
    rows = indices.shape[batch:-1]
    place, inside = _flat_places(call, indices, named)
    place = place.reshape((outer, -1))
    if outer > 1:
        offset = Tensor.arange(outer, device=call.device).cast(dtypes.int64) * math.prod(named)
        place = place + offset.reshape((outer, 1))
    flat = x.reshape((outer * math.prod(named), *inner))
    is_inside = None if inside is None else inside.reshape((-1,))
    found = flat[_reported(place.reshape((-1,)), is_inside)]
    return found.reshape((*x.shape[:batch], *rows, *inner))


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scattered(call: Call, x: Tensor, axis: int, index: Tensor, updates: Tensor) -> Tensor:
    reduction = call.text("reduction", "none")
    if reduction == "none":
        return x.scatter(axis, index, updates)
    if reduction not in _REDUCTIONS:
        raise UnsupportedError(f"onnx: {call.node} has no reduction {reduction!r}")
    return x.scatter_reduce(axis, index, updates, reduce=_REDUCTIONS[reduction])


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = axis_of(call, x.ndim, 0)
    _check(call, call.known(1), x.shape[axis])
    return _scattered(call, x, axis, indices.cast(dtypes.int64), updates)


@onnx_op("ScatterND")
def scatter_nd(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Write slices at index tuples."""
    depth = indices.shape[-1]
    named, inner = x.shape[:depth], x.shape[depth:]
    width = math.prod(inner)
    place, inside = _flat_places(call, indices, named)
    steps = Tensor.arange(width, device=call.device).cast(dtypes.int64).reshape((1, width))
    is_inside = None if inside is None else inside.reshape((-1, 1))
    place = _reported(place.reshape((-1, 1)) * width + steps, is_inside).reshape((-1,))
    flat = _scattered(call, x.reshape((-1,)), 0, place, updates.reshape((-1,)))
    return flat.reshape(x.shape)


@onnx_op("TensorScatter")
def tensor_scatter(
    call: Call, past: Tensor, update: Tensor, starts: Tensor | None = None
) -> Tensor:
    """Write `update` into a cache, each batch entry from its own start on."""
    axis = axis_of(call, past.ndim, -2)
    length, size = update.shape[axis], past.shape[axis]
    batch = past.shape[0]
    begin = full((batch,), 0, dtypes.int64, call.device) if starts is None else starts
    lines = [1] * past.ndim
    lines[0], lines[axis] = batch, length
    steps = Tensor.arange(length, device=call.device).cast(dtypes.int64).reshape((1, length))
    place = begin.cast(dtypes.int64).reshape((batch, 1)) + steps
    if call.text("mode", "linear") == "circular":
        place = place % size
    return past.scatter(axis, place.reshape(tuple(lines)).expand(update.shape), update)


@onnx_op("TopK")
def top_k_by_attribute(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
    return _top_k(call, x, call.integer("k"))


@onnx_op("TopK", since=10, host=(1,))
def top_k(call: Call, x: Tensor, k: Array) -> tuple[Tensor, Tensor]:
    return _top_k(call, x, int(k.item()))


def _top_k(call: Call, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The k largest or smallest; of equal values the one with the lower index comes first."""
    axis = axis_of(call, x.ndim, -1)
    if not 0 <= count <= x.shape[axis]:
        raise ModelFileError(
            f"onnx: {call.node} asks for a number of elements that its axis does not have",
            got=count,
            expected=f"0 to {x.shape[axis]}",
        )
    values, places = x.sort(axis, descending=bool(call.integer("largest", 1)))
    kept = (*([slice(None)] * axis), slice(0, count))
    return values[kept], places[kept].cast(dtypes.int64)


@onnx_op("OneHot", host=(1,))
def one_hot(call: Call, indices: Tensor, depth: Array, values: Tensor) -> Tensor:
    """Put values[1] where the index is and values[0] elsewhere; outside, values[0] throughout."""
    count = int(depth.reshape(-1)[0])
    if count <= 0:
        raise ModelFileError(f"onnx: {call.node} has no class", got=f"a depth of {count}")
    axis = axis_of(call, indices.ndim + 1, -1)
    lines = tuple(count if dim == axis else 1 for dim in range(indices.ndim + 1))
    classes = Tensor.arange(count, device=call.device).cast(dtypes.int64).reshape(lines)
    chosen = wrapped(indices, count).unsqueeze(axis) == classes
    return chosen.where(values[1], values[0])


# --- sizes that depend on data: these read the values on the host ---------------------------------


@onnx_op("NonZero")
def non_zero(call: Call, x: Tensor) -> Array:
    """Index tuples of what is not zero; their number is data."""
    return np.array(np.nonzero(np.atleast_1d(call.read(x))), np.int64)


@onnx_op("Compress", host=(1,))
def compress(call: Call, x: Tensor, condition: Array) -> Tensor:
    places = np.nonzero(condition)[0].astype(np.int64)
    if not call.has("axis"):
        return x.reshape((-1,))[tensor_of(places, call.device)]
    axis = axis_of(call, x.ndim)
    return x[(*([slice(None)] * axis), tensor_of(places, call.device))]


@onnx_op("Unique", host=(0,))
def unique(call: Call, x: Array) -> tuple[Array, ...]:
    axis: Any = call.attribute("axis", None)
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not call.integer("sorted", 1):
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts = first[order], counts[order]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        inverse = back[inverse]
    return (
        np.asarray(values),
        first.astype(np.int64),
        inverse.astype(np.int64),
        counts.astype(np.int64),
    )
