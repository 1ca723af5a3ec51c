"""Models of a few nodes, made in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tilework.frontends.onnx.runner import OnnxRunner

Array = np.ndarray[Any, Any]
NUMBERS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "bool": TensorProto.BOOL,
}


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    """One node."""
    return helper.make_node(op, inputs, outputs, name=f"{op}_{outputs[0]}", **attributes)


def value(name: str, dtype: str = "float32", shape: Sequence[Any] | None = None) -> Any:
    """A declared input or output."""
    return helper.make_tensor_value_info(name, NUMBERS[dtype], shape)


def untyped(name: str) -> Any:
    """An output without a type."""
    return helper.make_empty_tensor_value_info(name)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Array] | None = None,
    opset: int = 18,
    domains: Sequence[str] = (),
) -> bytes:
    """The bytes of a model file."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        list(inputs),
        [untyped(item) if isinstance(item, str) else item for item in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in domains)]
    made = helper.make_model(graph, opset_imports=opsets)
    made.ir_version = 8
    text: bytes = made.SerializeToString()
    return text


def run_node(
    op: str,
    operands: Mapping[str, Array],
    outputs: int = 1,
    constants: Mapping[str, Array] | None = None,
    opset: int = 18,
    **attributes: Any,
) -> list[Array]:
    """Run one node on operands in order; `constants` are further operands that are initialisers."""
    names = [*operands, *(constants or {})]
    results = [f"out{place}" for place in range(outputs)]
    infos = [value(name, str(array.dtype), array.shape) for name, array in operands.items()]
    text = model([node(op, names, results, **attributes)], infos, results, constants, opset)
    found = OnnxRunner(text)(operands)
    return [found[name].numpy() for name in results]  # type: ignore[union-attr]


def agrees(
    operator: str,
    operands: Sequence[Array | None],
    *,
    outputs: int = 1,
    constants: Sequence[int] = (),
    domain: str = "com.microsoft",
    standard: int = 18,
    tolerance: float = 1e-4,
    steps: int = 0,
    **attributes: Any,
) -> list[Array]:
    """Run one node here and in ONNX Runtime, and compare; returns what was found.

    Args:
        operator: its name.
        operands: its inputs; None for those that are left out.
        outputs: how many it gives.
        constants: the numbers of those inputs that are initialisers.
        domain: its operator set.
        standard: the version of the standard's operators.
        tolerance: relative, for floats; a tenth of it is absolute.
        steps: by how much integers may differ.
        **attributes: the node's.
    """
    names = ["" if array is None else f"x{at}" for at, array in enumerate(operands)]
    given = {name: array for name, array in zip(names, operands, strict=True) if array is not None}
    fixed = {f"x{at}": given.pop(f"x{at}") for at in constants if operands[at] is not None}
    results = [f"y{at}" for at in range(outputs)]
    infos = [value(name, str(array.dtype), array.shape) for name, array in given.items()]
    nodes = [node(operator, names, results, domain=domain, **attributes)]
    text = model(nodes, infos, results, fixed, standard, ["com.microsoft"])
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    found = OnnxRunner(text)(given)
    arrays: list[Array] = [found[name].numpy() for name in results]  # type: ignore[union-attr]
    for ours, theirs in zip(arrays, session.run(None, given), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        if ours.dtype.kind in "iu":
            assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= steps
        else:
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance / 10)
    return arrays


def checked(text: bytes) -> bytes:
    """The same bytes, after ONNX's own checker has accepted them."""
    onnx.checker.check_model(onnx.load_from_string(text))
    return text
