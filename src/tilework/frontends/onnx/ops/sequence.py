"""Sequences and optional values: lists of values while the graph is traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilework.base.errors import IndexingError, UnsupportedError
from tilework.frontends.onnx.call import axis_of
from tilework.frontends.onnx.ops.shape import cut
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import HostValue, Value, as_device_value
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call


def _items(call: Call, value: Value) -> list[Any]:
    if not isinstance(value, list):
        raise UnsupportedError(f"onnx: {call.node} needs a sequence")
    return value


def _position(call: Call, value: Value, count: int, *, may_end: bool = False) -> int:
    if isinstance(value, HostValue):
        place = int(value.array.item())
    else:
        place = int(call.read(as_device_value(value, call.device)).item())
    wrapped = place + count if place < 0 else place
    if not 0 <= wrapped < count + may_end:
        raise IndexingError(
            f"onnx: {call.node} reaches outside the sequence",
            got=f"position {place} of {count}",
        )
    return wrapped


@onnx_op("SequenceEmpty", raw=True)
def sequence_empty(call: Call) -> tuple[Any, ...]:
    return ([],)


@onnx_op("SequenceConstruct", raw=True)
def sequence_construct(call: Call, *values: Value) -> tuple[Any, ...]:
    return (list(values),)


@onnx_op("SequenceAt", raw=True)
def sequence_at(call: Call, sequence: Value, position: Value) -> tuple[Any, ...]:
    items = _items(call, sequence)
    return (items[_position(call, position, len(items))],)


@onnx_op("SequenceLength", raw=True)
def sequence_length(call: Call, sequence: Value) -> Any:
    return np.array(len(_items(call, sequence)), np.int64)


@onnx_op("SequenceInsert", raw=True)
def sequence_insert(
    call: Call, sequence: Value, value: Value, position: Value = None
) -> tuple[Any, ...]:
    items = list(_items(call, sequence))
    place = len(items)
    if position is not None:
        place = _position(call, position, len(items), may_end=True)
    items.insert(place, value)
    return (items,)


@onnx_op("SequenceErase", raw=True)
def sequence_erase(call: Call, sequence: Value, position: Value = None) -> tuple[Any, ...]:
    items = list(_items(call, sequence))
    place = len(items) - 1
    if position is not None:
        place = _position(call, position, len(items))
    del items[place]
    return (items,)


@onnx_op("SequenceMap", raw=True)
def sequence_map(call: Call, sequence: Value, *others: Value) -> tuple[Any, ...]:
    columns: list[list[Any]] = []
    for index, item in enumerate(_items(call, sequence)):
        extra = [other[index] if isinstance(other, list) else other for other in others]
        results = call.run(call.attribute("body"), [item, *extra])
        columns = columns or [[] for _ in results]
        for column, result in zip(columns, results, strict=True):
            column.append(result)
    return tuple(columns) or tuple([] for _ in range(call.output_count))


@onnx_op("ConcatFromSequence", raw=True)
def concat_from_sequence(call: Call, sequence: Value) -> Tensor:
    parts = [as_device_value(item, call.device) for item in _items(call, sequence)]
    axis = call.integer("axis")
    if call.integer("new_axis", 0):
        return Tensor.stack(*parts, dim=axis)
    return parts[0] if len(parts) == 1 else parts[0].cat(*parts[1:], dim=axis)


@onnx_op("SplitToSequence", raw=True)
def split_to_sequence(call: Call, value: Value, split: Value = None) -> tuple[Any, ...]:
    x = as_device_value(value, call.device)
    axis = axis_of(call, x.ndim, 0)
    size = x.shape[axis]
    keep = bool(call.integer("keepdims", 1)) or split is not None
    sizes = [1] * size
    if split is not None:
        given = split.array if isinstance(split, HostValue) else None
        if given is None:
            given = call.read(as_device_value(split, call.device))
        if given.ndim:
            sizes = [int(part) for part in given]
        else:
            step = int(given)
            sizes = [min(step, size - start) for start in range(0, size, step)]
    parts, start = [], 0
    for part in sizes:
        piece = cut(x, axis, start, start + part)
        parts.append(piece if keep else piece.squeeze(axis))
        start += part
    return (parts,)


# --- optional values --------------------------------------------------------------------------


@onnx_op("Optional", raw=True)
def optional(call: Call, value: Value = None) -> tuple[Value]:
    return (value,)


@onnx_op("OptionalHasElement", raw=True)
def optional_has_element(call: Call, value: Value = None) -> Any:
    return np.array(value is not None)


@onnx_op("OptionalGetElement", raw=True)
def optional_get_element(call: Call, value: Value) -> tuple[Value]:
    if value is None:
        raise UnsupportedError(f"onnx: {call.node} opens an optional value that is empty")
    return (value,)


@onnx_op("Identity", raw=True)
def identity(call: Call, value: Value) -> tuple[Value]:
    return (value,)
