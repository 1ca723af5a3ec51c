"""`OnnxRunner`: a model as a function from named tensors to named tensors."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilework.base.errors import UnsupportedError
from tilework.base.forks import new_rlock
from tilework.engine.device import Device
from tilework.engine.footprint import Peak, measure_peaks
from tilework.frontends.onnx.evaluate import DataDependentError, Evaluator, Program
from tilework.frontends.onnx.graph import ValueInfo
from tilework.frontends.onnx.load import Source, load_model
from tilework.frontends.onnx.signature import (
    HOST_INPUT_LIMIT,
    as_input,
    check_names,
    check_supported,
    host_inputs,
)
from tilework.frontends.onnx.standard import check_nodes
from tilework.frontends.onnx.values import HostValue, Value, as_device_value
from tilework.tensor.exported import export
from tilework.tensor.jit import Jit, jit
from tilework.tensor.tensor import Tensor

Key = tuple[Any, ...]
Result: TypeAlias = Tensor | list[Any] | None
#: Signatures (shapes and dtypes of a call) that keep a capture; the oldest unused one goes.
CAPTURE_LIMIT = 16


class _Trace:
    """The graph for one signature: captured if its shapes do not depend on data."""

    def __init__(self, program: Program, names: list[str], constants: dict[str, Value]) -> None:
        self._program = program
        self.names = names
        self._constants = constants
        self.captured: Jit[..., Any] = jit(self._capture)
        self._is_dynamic = False
        # Outputs that are known once the shapes are (a Shape, a constant), by position.
        self._known: dict[int, Value] = {}

    def step_times(self, tensors: list[Tensor]) -> list[tuple[str, float]]:
        """Run the captured program once more and return each step with its seconds."""
        captured = self.captured.captured
        if captured is None:
            return []
        _, buffers, values = captured.bind(tuple(tensors), {})
        program = captured.recipe.program
        return program.time(buffers, program.make_outputs(), values)

    def peaks(self, tensors: list[Tensor]) -> list[Peak]:
        """Run the captured program once more; see `measure_peaks`."""
        captured = self.captured.captured
        if captured is None:
            return []
        _, buffers, values = captured.bind(tuple(tensors), {})
        return measure_peaks(captured.recipe.program, buffers, values)

    def __call__(self, tensors: list[Tensor]) -> Sequence[Value]:
        if not self._is_dynamic:
            try:
                self._make_constants(tensors)
                results: tuple[Tensor, ...] = self.captured(*tensors)
            except DataDependentError:
                self._is_dynamic = True
            else:
                if not self._known:
                    return results
                found = iter(results)
                count = len(self._program.model.graph.outputs)
                return [
                    self._known[place] if place in self._known else next(found)
                    for place in range(count)
                ]
        return self._evaluate(tensors, may_read=True)

    def _make_constants(self, tensors: list[Tensor]) -> None:
        """Trace once outside a capture, so that the constants' tensors outlive every capture."""
        if not self._program.has_constants:
            self._evaluate(tensors, may_read=False)
            self._program.has_constants = True

    def _evaluate(self, tensors: list[Tensor], *, may_read: bool) -> list[Value]:
        inputs: dict[str, Value] = dict(self._constants)
        inputs.update(zip(self.names, tensors, strict=True))
        return Evaluator(self._program, may_read=may_read).run(inputs)

    def _capture(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        outputs = self._evaluate(list(tensors), may_read=False)
        if any(isinstance(value, list) or value is None for value in outputs):
            raise DataDependentError("onnx: an output is a sequence")
        self._known = {
            place: value for place, value in enumerate(outputs) if isinstance(value, HostValue)
        }
        given = {id(tensor) for tensor in tensors}
        rest = [value for value in outputs if isinstance(value, Tensor)]
        # An output that is an input becomes a value of its own.
        fresh = tuple(value.clone() if id(value) in given else value for value in rest)
        if fresh:
            Tensor.realize(*fresh)
        return fresh


class _Ready:
    """What the last call was given, so that one like it needs no other checks.

    `_kinds` has for each input that became a tensor (name, its Type and device, None) or (name,
    None, its dtype and shape); `_fixed` has for each other one, which decides shapes or branches,
    its name, dtype, shape and bytes.
    """

    def __init__(self, trace: _Trace, given: Mapping[str, Any], device: str | None) -> None:
        self.trace = trace
        self._device = device
        self._kinds: list[tuple[str, Any, Any]] = []
        for name in trace.names:
            value = given[name]
            if type(value) is Tensor:
                self._kinds.append((name, (value._type, value.device), None))
            else:
                self._kinds.append((name, None, (value.dtype, value.shape)))
        self._fixed: list[tuple[str, np.dtype[Any], tuple[int, ...], bytes]] = [
            (name, value.dtype, value.shape, value.tobytes())
            for name, value in given.items()
            if name not in trace.names
        ]

    @staticmethod
    def can_be(trace: _Trace, given: Mapping[str, Any]) -> bool:
        """Whether every input of a call was a tensor or an array, and those it fixed arrays."""
        return all(
            type(value) is np.ndarray or (type(value) is Tensor and name in trace.names)
            for name, value in given.items()
        )

    def tensors(self, given: Mapping[str, Any]) -> list[Tensor] | None:
        """The tensors of a call like the last one, or None."""
        if len(given) != len(self._kinds) + len(self._fixed):
            return None
        for name, dtype, shape, content in self._fixed:
            value = given.get(name)
            if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
                return None
            if value.tobytes() != content:
                return None
        found: list[Tensor] = []
        for name, seen, made in self._kinds:
            value = given.get(name)
            if type(value) is Tensor:
                if seen is None or value._type is not seen[0] or value.device != seen[1]:
                    return None
                found.append(value)
            elif type(value) is np.ndarray and made is not None:
                if value.dtype != made[0] or value.shape != made[1]:
                    return None
                found.append(Tensor(value, self._device))
            else:
                return None
        return found


class OnnxRunner:
    """A model that is read once and called with any shapes that it takes.

    Each new combination of shapes is traced and captured once; the last 16 are kept.  Weights
    become tensors once, and what depends on them alone is computed once.

    Args:
        source: a path (weights may lie in files beside it) or the bytes of a model file.
        device: where to run; None is the default device.

    Raises:
        UnsupportedError: the package `onnx` is missing, or the model uses operators or element
            types that tilework does not have; all of them are listed.
        ModelFileError: the file cannot be read or contradicts itself.

    Example:
        >>> runner = OnnxRunner("mnist.onnx")  # doctest: +SKIP
        >>> runner({"image": image})["scores"].numpy()  # doctest: +SKIP
    """

    def __init__(self, source: Source, device: str | None = None) -> None:
        self.model = load_model(source)
        check_supported(self.model)
        check_nodes(self.model)
        self._program = Program(self.model, device)
        self._defaults = set(self.model.graph.constants)
        self._on_host = host_inputs(self.model)
        self._traces: OrderedDict[Key, _Trace] = OrderedDict()
        self._ready: _Ready | None = None
        self._names = [info.name for info in self.outputs]
        self._lock = new_rlock()

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, row)) for row in (self.inputs, self.outputs))
        return f"<OnnxRunner ({inputs}) -> ({outputs})>"

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """Name, dtype and shape of each input that a call must give."""
        return tuple(info for info in self.model.graph.inputs if info.name not in self._defaults)

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """Name, and declared dtype and shape, of each output."""
        return self.model.graph.outputs

    @property
    def metadata(self) -> Mapping[str, str]:
        """The key-value pairs that the file carries."""
        return self.model.metadata

    @property
    def input_types(self) -> dict[str, ValueInfo]:
        """The inputs by name."""
        return {info.name: info for info in self.inputs}

    def __call__(self, inputs: Mapping[str, Any] | None = None, **named: Any) -> dict[str, Result]:
        """Run the model.

        Args:
            inputs: tensors, NumPy arrays or plain numbers by input name.
            named: the same, for names that are Python identifiers.

        Returns:
            Tensors by output name (a list for an output that is a sequence).

        Raises:
            UserError: an input is missing or unknown.
            DTypeError: an input's element type is not the declared one.
            ShapeError: an input's rank or a fixed size is not the declared one.
        """
        given = inputs if inputs and not named else {**(inputs or {}), **named}
        with self._lock:
            ready = self._ready
            found = None if ready is None else ready.tensors(given)
            if ready is not None and found is not None:
                results = ready.trace(found)
            else:
                self._ready = None
                trace, tensors = self._open(given)
                results = trace(tensors)
                if _Ready.can_be(trace, given) and all(
                    not isinstance(given[name], Tensor) or given[name] is tensor
                    for name, tensor in zip(trace.names, tensors, strict=True)
                ):
                    self._ready = _Ready(trace, given, self._device)
        return {
            name: value if type(value) is Tensor else self._result(value)
            for name, value in zip(self._names, results, strict=True)
        }

    def _open(self, given: Mapping[str, Any]) -> tuple[_Trace, list[Tensor]]:
        """Return the trace for these inputs, and those of them that are tensors."""
        check_names(given, self.model.graph.inputs, self._defaults)
        tensors: dict[str, Tensor] = {}
        constants: dict[str, Value] = {}
        key: list[Any] = []
        for info in self.model.graph.inputs:
            if info.name in given:
                part = self._bind(info, given[info.name], tensors, constants)
                key.append((info.name, *part))
        trace = self._trace(tuple(key), list(tensors), constants)
        return trace, list(tensors.values())

    def place(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs as tensors on the device; those that decide shapes stay as they are."""
        check_names(inputs, self.model.graph.inputs, self._defaults)
        tensors: dict[str, Tensor] = {}
        for info in self.model.graph.inputs:
            if info.name in inputs:
                self._bind(info, inputs[info.name], tensors, {})
        if tensors:
            Tensor.realize(*tensors.values())
        return {**inputs, **tensors}

    def wait(self) -> None:
        """Return when the device has done all that was asked of it."""
        Device[self.device].synchronize()

    def export(
        self,
        inputs: Mapping[str, Any],
        path: str | os.PathLike[str],
        *,
        portable: bool = False,
        key: bytes | None = None,
    ) -> None:
        """Compile the model for these inputs, and write it to one file.

        The file is called with the inputs that are tensors, in the model's order or by name; it
        gives a tuple of the outputs, without those that are known once the shapes are.

        Args:
            inputs: as for a call; what decides shapes is fixed in the file.
            path: where to write.
            portable: write graphs that are compiled on loading; see `tilework.export`.
            key: signs the file.

        Raises:
            UnsupportedError: the shapes depend on data, so there is no captured program.
        """
        with self._lock:
            trace, tensors = self._open(inputs)
            trace(tensors)
            if trace.captured.captured is None:
                raise UnsupportedError(
                    "onnx: the model cannot be exported, since its shapes depend on its data"
                )
            export(trace.captured, path, names=trace.names, portable=portable, key=key)

    def step_times(self, inputs: Mapping[str, Any]) -> list[tuple[str, float]]:
        """Run the model and return each kernel or copy with its seconds.

        Empty where the shapes depend on data, so that there is no captured program.
        """
        with self._lock:
            trace, tensors = self._open(inputs)
            trace(tensors)
            return trace.step_times(tensors)

    def peaks(self, inputs: Mapping[str, Any]) -> list[Peak]:
        """Run the model and return how much memory it was planned to take, and took, by device.

        Empty where the shapes depend on data, so that there is no captured program.
        """
        with self._lock:
            trace, tensors = self._open(inputs)
            trace(tensors)
            return trace.peaks(tensors)

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Trace the model for inputs without running it.

        Raises:
            TileworkError: what a call with these inputs would raise before anything runs.
        """
        check_names(inputs, self.model.graph.inputs, self._defaults)
        tensors: dict[str, Tensor] = {}
        constants: dict[str, Value] = {}
        for info in self.model.graph.inputs:
            if info.name in inputs:
                self._bind(info, inputs[info.name], tensors, constants)
        try:
            Evaluator(self._program, may_read=False).run({**constants, **tensors})
        except DataDependentError:
            return  # the shapes beyond this point are known to a run alone

    def prepare(self) -> None:
        """Move the weights to the device and compute what depends on them alone."""
        self._program.folded()

    def _bind(
        self,
        info: ValueInfo,
        value: Any,
        tensors: dict[str, Tensor],
        constants: dict[str, Value],
    ) -> tuple[Any, ...]:
        if isinstance(value, (list, tuple)) and info.kind == "sequence":
            items = [HostValue(np.asarray(item)) for item in value]
            constants[info.name] = list(items)
            return tuple((item.array.shape, item.array.tobytes()) for item in items)
        if value is None and info.kind == "optional":
            constants[info.name] = None
            return ()
        found = as_input(value, info, self._program.device)
        if info.name in self._on_host and int(np.prod(found.shape)) <= HOST_INPUT_LIMIT:
            array = found.numpy() if isinstance(found, Tensor) else found
            constants[info.name] = HostValue(np.array(array))
            return tuple(found.shape), array.tobytes()
        if not isinstance(found, Tensor):
            found = Tensor(np.ascontiguousarray(found).reshape(found.shape), device=self._device)
        tensors[info.name] = found
        return tuple(found.shape), found.dtype.name

    @property
    def _device(self) -> str | None:
        return self._program.device

    @property
    def device(self) -> str:
        """The canonical name of the device that the model runs on."""
        return Device.canonicalize(self._device)

    def _trace(self, key: Key, names: list[str], constants: dict[str, Value]) -> _Trace:
        trace = self._traces.get(key)
        if trace is None:
            self._program.folded()
            trace = self._traces[key] = _Trace(self._program, names, constants)
            while len(self._traces) > CAPTURE_LIMIT:
                self._traces.popitem(last=False)
        self._traces.move_to_end(key)
        return trace

    def _result(self, value: Value) -> Result:
        if value is None:
            return None
        if isinstance(value, list):
            return [self._result(item) for item in value]
        return as_device_value(value, self._device)
