"""Operators without a rule of their own that the ONNX standard defines by other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework.frontends.onnx.element_types import BY_NUMBER, dtype_of_array
from tilework.frontends.onnx.graph import Function, Graph, Node
from tilework.frontends.onnx.load import import_onnx, read_function
from tilework.frontends.onnx.values import HostValue, Value

if TYPE_CHECKING:
    from tilework.dtypes import DType


def _schema(node: Node) -> Any:
    onnx = import_onnx()
    try:
        return onnx.defs.get_schema(node.op, node.version, node.domain)
    except onnx.defs.SchemaError:
        return None


def has_definition(node: Node) -> bool:
    """Whether the standard defines the operator by a graph of others."""
    schema = _schema(node)
    if schema is None or any(isinstance(value, Graph) for value in node.attributes.values()):
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def definition_of(
    node: Node, attributes: Mapping[str, Any], operands: Sequence[Value]
) -> Function | None:
    """Return the graph that defines the operator for operands of these types, or None."""
    schema = _schema(node)
    if schema is None:
        return None
    onnx = import_onnx()
    if schema.has_function:
        found = schema.function_body
    elif schema.has_context_dependent_function:
        types = [_type_of(onnx, value).SerializeToString() for value in operands]
        text = schema.get_context_dependent_function(_proto_of(onnx, node, attributes), types)
        found = onnx.FunctionProto()
        found.ParseFromString(text)
    else:
        return None
    if not found.node:
        return None
    # Bodies name the opset that they were written for only sometimes.
    return read_function(found, {"": node.version})


def _number_of(dtype: DType | None) -> int:
    return next((number for number, known in BY_NUMBER.items() if known is dtype), 1)


def _type_of(onnx: Any, value: Value) -> Any:
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list):
        item = _type_of(onnx, value[0] if value else None)
        return onnx.helper.make_sequence_type_proto(item)
    dtype = dtype_of_array(value.array) if isinstance(value, HostValue) else value.dtype
    return onnx.helper.make_tensor_type_proto(_number_of(dtype), list(value.shape))


def _proto_of(onnx: Any, node: Node, attributes: Mapping[str, Any]) -> bytes:
    plain = {
        name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in attributes.items()
    }
    proto = onnx.helper.make_node(
        node.op, list(node.inputs), list(node.outputs), domain=node.domain, **plain
    )
    text: bytes = proto.SerializeToString()
    return text
