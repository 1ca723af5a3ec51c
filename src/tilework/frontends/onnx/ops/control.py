"""Control flow.  Conditions and counts must be known on the host, or are read there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilework.frontends.onnx.ops.shape import taken
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, HostValue, Value, as_device_value
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call
    from tilework.frontends.onnx.graph import Graph, ValueInfo


def _array(call: Call, value: Value) -> Array:
    if isinstance(value, HostValue):
        return value.array
    return call.read(as_device_value(value, call.device))


@onnx_op("If", raw=True)
def if_(call: Call, condition: Value) -> tuple[Value, ...]:
    """Evaluate the branch that the condition chooses; the other one costs nothing."""
    chosen = "then_branch" if bool(_array(call, condition).reshape(-1)[0]) else "else_branch"
    return tuple(call.run(call.attribute(chosen)))


@onnx_op("Loop", raw=True)
def loop(call: Call, count: Value = None, condition: Value = None, *state: Value) -> Any:
    """Unroll the body, as long as the condition holds and the count is not reached."""
    body: Graph = call.attribute("body")
    limit = None if count is None else int(_array(call, count).item())
    goes_on = True if condition is None else bool(_array(call, condition).item())
    carried = list(state)
    scans: list[list[Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
    step = 0
    while goes_on and (limit is None or step < limit):
        inputs = [HostValue(np.array(step, np.int64)), HostValue(np.array(goes_on)), *carried]
        keeps_on, *results = call.run(body, inputs)
        carried = results[: len(carried)]
        for scan, value in zip(scans, results[len(carried) :], strict=True):
            scan.append(value)
        goes_on = bool(_array(call, keeps_on).item())
        step += 1
    declared = body.outputs[1 + len(carried) :]
    return (*carried, *(_stacked(call, *each, 0) for each in zip(scans, declared, strict=True)))


def _stacked(call: Call, parts: list[Value], declared: ValueInfo, axis: int) -> Value:
    """The results of all steps along a new axis; of no step what the body's output declares."""
    if parts and all(isinstance(part, HostValue) for part in parts):
        arrays = [part.array for part in parts if isinstance(part, HostValue)]
        return HostValue(np.stack(arrays, axis))
    if not parts:
        sizes = [size if isinstance(size, int) else 0 for size in declared.shape or ()]
        sizes.insert(axis % (len(sizes) + 1), 0)
        return Tensor.zeros(*sizes, dtype=declared.dtype, device=call.device)
    tensors = [as_device_value(part, call.device) for part in parts]
    return Tensor.stack(*tensors, dim=axis)


@onnx_op("Scan", since=9, raw=True)
def scan_(call: Call, *operands: Value) -> Any:
    """Unroll the body over the scanned axis."""
    body: Graph = call.attribute("body")
    scanned = call.integer("num_scan_inputs")
    carried = list(operands[: len(operands) - scanned])
    sources = [as_device_value(value, call.device) for value in operands[len(carried) :]]
    axes = call.integers("scan_input_axes", (0,) * scanned)
    backwards = call.integers("scan_input_directions", (0,) * scanned)
    results = len(body.outputs) - len(carried)
    out_axes = call.integers("scan_output_axes", (0,) * results)
    out_backwards = call.integers("scan_output_directions", (0,) * results)
    length = sources[0].shape[axes[0] % sources[0].ndim]
    scans: list[list[Value]] = [[] for _ in range(results)]
    for step in range(length):
        rows: list[Value] = [
            _row(source, axis, length - 1 - step if is_back else step)
            for source, axis, is_back in zip(sources, axes, backwards, strict=True)
        ]
        outputs = call.run(body, [*carried, *rows])
        carried = outputs[: len(carried)]
        for scan, value in zip(scans, outputs[len(carried) :], strict=True):
            scan.append(value)
    ordered = [
        scan[::-1] if is_back else scan for scan, is_back in zip(scans, out_backwards, strict=True)
    ]
    declared = body.outputs[len(carried) :]
    stacked = [_stacked(call, *each) for each in zip(ordered, declared, out_axes, strict=True)]
    return (*carried, *stacked)


@onnx_op("Scan", since=8, raw=True)
def scan_batched(call: Call, lengths: Value, *operands: Value) -> Any:
    """Version 8: every operand has a batch axis first, and lengths may differ."""
    body: Graph = call.attribute("body")
    scanned = call.integer("num_scan_inputs")
    backwards = call.integers("directions", (0,) * scanned)
    tensors = [as_device_value(value, call.device) for value in operands]
    states = len(tensors) - scanned
    rows: list[list[Value]] = []
    for batch in range(tensors[0].shape[0]):
        own = [tensor[batch] for tensor in tensors]
        length = own[states].shape[0]
        if lengths is not None:
            length = int(_array(call, lengths)[batch])
        carried: list[Value] = list(own[:states])
        scans: list[list[Value]] = [[] for _ in range(len(body.outputs) - states)]
        for step in range(length):
            place = [length - 1 - step if is_back else step for is_back in backwards]
            inputs = [source[at] for source, at in zip(own[states:], place, strict=True)]
            outputs = call.run(body, [*carried, *inputs])
            carried = outputs[:states]
            for scan, value in zip(scans, outputs[states:], strict=True):
                scan.append(value)
        declared = body.outputs[states:]
        kept = [_stacked(call, *each, 0) for each in zip(scans, declared, strict=True)]
        rows.append([*carried, *kept])
    columns = [list(column) for column in zip(*rows, strict=True)]
    return tuple(_stacked(call, *each, 0) for each in zip(columns, body.outputs, strict=True))


def _row(source: Tensor, axis: int, step: int) -> Tensor:
    axis %= source.ndim
    return taken(source, axis, np.array([step])).squeeze(axis)
