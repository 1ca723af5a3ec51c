"""Read a model file into the records of `graph.py`.

Real files bend the specification; what is survived here on purpose: sizes of -1 or 0 for "any",
constants with dims [0] and no data, imported operator sets that no node uses, subgraph outputs
without a type, and declared output shapes that are wrong (they are only ever shown).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.engine.export_file import MAGIC
from tilework.frontends.onnx.element_types import BY_NUMBER, FOUR_BITS, NAMES
from tilework.frontends.onnx.graph import (
    Dim,
    Function,
    FunctionKey,
    Graph,
    Model,
    Node,
    Reference,
    ValueInfo,
)
from tilework.frontends.onnx.registry import canonical_domain

Source = str | os.PathLike[str] | bytes | bytearray | memoryview

# AttributeProto.AttributeType
_FLOAT, _INT, _STRING, _TENSOR, _GRAPH = 1, 2, 3, 4, 5
_FLOATS, _INTS, _STRINGS, _TENSORS, _GRAPHS = 6, 7, 8, 9, 10
_SPARSE, _TYPE = 11, 13


def import_onnx() -> Any:
    """Import the `onnx` package.

    Raises:
        UnsupportedError: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise UnsupportedError(
            "onnx: reading models needs the package `onnx`",
            got=str(error),
            try_="pip install 'tilework[onnx]'",
        ) from error


def load_model(source: Source) -> Model:
    """Read a model from a path, or from the bytes of a file.

    Args:
        source: a path (weights may lie in files beside it) or the file's contents.

    Raises:
        ModelFileError: the file is missing, malformed or contradicts itself.
        UnsupportedError: a constant has an element type that tilework lacks.
    """
    onnx = import_onnx()
    proto = _read_proto(onnx, source)
    if not proto.HasField("graph"):
        raise ModelFileError("onnx: the file holds no graph", got=_describe(source))
    opsets = {canonical_domain(row.domain): row.version for row in proto.opset_import}
    opsets.setdefault("", 1)
    _check_opset(onnx, opsets, "the file")
    reader = _Reader(opsets)
    functions: dict[FunctionKey, Function] = {}
    for function in proto.functions:
        record = read_function(function, opsets)
        if record.key in functions:
            raise ModelFileError("onnx: a function is defined twice", got=str(record))
        functions[record.key] = record
    return Model(
        graph=reader.graph(proto.graph, frozenset()),
        opsets=opsets,
        functions=functions,
        metadata={row.key: row.value for row in proto.metadata_props},
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        ir_version=proto.ir_version,
    )


def _check_opset(onnx: Any, opsets: Mapping[str, int], what: str) -> None:
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= opsets.get("", 1) <= newest:
        raise UnsupportedError(
            f"onnx: {what} is of an operator set that nobody knows here",
            got=opsets[""],
            expected=f"1 to {newest}, the newest of the installed onnx package",
            try_="export it for an older one, or update onnx",
        )


def _describe(source: Source) -> str:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return f"{len(source)} bytes"
    return os.fspath(source)


def _read_proto(onnx: Any, source: Source) -> Any:
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    try:
        if isinstance(source, (bytes, bytearray, memoryview)):
            return onnx.load_from_string(bytes(source))
        path = Path(source)
        return onnx.load(os.fspath(path))
    except FileNotFoundError as error:
        missing = error.filename or _describe(source)
        raise ModelFileError("onnx: there is no such file", got=missing) from error
    except OSError as error:
        raise ModelFileError(f"onnx: cannot read {_describe(source)}", got=str(error)) from error
    except (decode_error, ValueError, onnx.checker.ValidationError) as error:
        raise ModelFileError(
            f"onnx: {_describe(source)} is not a model file that can be read",
            got=str(error).splitlines()[0] if str(error) else type(error).__name__,
            expected="a serialised onnx.ModelProto",
            try_="tilework.load(path), since this is an export" if _is_export(source) else None,
        ) from error


def _is_export(source: Source) -> bool:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[: len(MAGIC)]) == MAGIC
    with Path(source).open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def array_of(tensor: Any, what: str) -> np.ndarray[Any, Any]:
    """Return a TensorProto's values as a host array.

    Raises:
        UnsupportedError: the element type has no dtype here.
        ModelFileError: the data does not fit the dims.
    """
    number = tensor.data_type
    if number not in BY_NUMBER and number != 8:
        raise UnsupportedError(
            f"onnx: {what} has element type {NAMES.get(number, number)}",
            expected=", ".join(sorted({dtype.name for dtype in BY_NUMBER.values()})),
        )
    if any(size < 0 for size in tensor.dims):
        raise ModelFileError(f"onnx: {what} is malformed", got=f"dims {list(tensor.dims)}")
    helper = importlib.import_module("onnx.numpy_helper")
    try:
        array = np.asarray(helper.to_array(tensor))
    except (ValueError, TypeError, OSError, _checker_error()) as error:
        raise ModelFileError(
            f"onnx: {what} is malformed", got=f"dims {list(tensor.dims)}; {error}"
        ) from error
    if number in FOUR_BITS:
        array = array.astype(np.int8 if FOUR_BITS[number][0] else np.uint8)
    return array


def _checker_error() -> type[Exception]:
    """What the package raises for weights in a file beside the model's that cannot be read."""
    found: type[Exception] = import_onnx().checker.ValidationError
    return found


def _sparse_array(sparse: Any, what: str) -> np.ndarray[Any, Any]:
    values = array_of(sparse.values, what)
    indices = array_of(sparse.indices, what)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


class _Reader:
    """Turns protocol buffers into records, for one table of opset versions."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = opsets

    def graph(self, proto: Any, outer: frozenset[str]) -> Graph:
        _check_text(
            proto.name, *(row.name for row in (*proto.input, *proto.output, *proto.initializer))
        )
        constants = {
            tensor.name: array_of(tensor, f"initialiser {tensor.name!r}")
            for tensor in proto.initializer
        }
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            constants[name] = _sparse_array(sparse, f"initialiser {name!r}")
        inputs = tuple(_value_info(info) for info in proto.input)
        _check_once(
            [*(info.name for info in inputs), *_results(proto.node)],
            [*(constants.keys() - {info.name for info in inputs}), *_results(proto.node)],
        )
        known = outer | {info.name for info in inputs} | constants.keys()
        nodes = self.nodes(proto.node, known)
        produced = known.union(*(node.outputs for node in nodes))
        outputs = tuple(_value_info(info) for info in proto.output)
        lost = [info.name for info in outputs if info.name not in produced]
        if lost:
            raise ModelFileError(
                f"onnx: graph {proto.name!r} lists an output that nothing computes", got=lost[0]
            )
        return Graph(proto.name, inputs, outputs, nodes, constants)

    def nodes(self, protos: Any, known: frozenset[str] | set[str]) -> tuple[Node, ...]:
        """Read nodes and put each after the nodes that it reads."""
        makers = {name for proto in protos for name in proto.output if name}
        ready = set(known) | {""}
        scope = frozenset(ready | makers)
        waiting = [self._node(index, proto, scope) for index, proto in enumerate(protos)]
        ordered: list[Node] = []
        while waiting:
            left = []
            for node in waiting:
                if all(name in ready for name in _reads(node)):
                    ordered.append(node)
                    ready.update(node.outputs)
                else:
                    left.append(node)
            if len(left) == len(waiting):
                raise _unreadable(left[0], ready, makers)
            waiting = left
        return tuple(ordered)

    def _node(self, index: int, proto: Any, scope: frozenset[str]) -> Node:
        _check_text(proto.op_type, proto.domain, proto.name, *proto.input, *proto.output)
        _check_text(*(attribute.name for attribute in proto.attribute))
        domain = canonical_domain(proto.domain)
        name = proto.name or f"{proto.op_type}_{index}"
        attributes = {
            attribute.name: self._attribute(attribute, name, scope) for attribute in proto.attribute
        }
        return Node(
            op=proto.op_type,
            domain=domain,
            version=self._opsets.get(domain, 1),
            name=name,
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            attributes=attributes,
            overload=proto.overload,
        )

    def _attribute(self, proto: Any, node: str, scope: frozenset[str]) -> Any:
        what = f"attribute {proto.name!r} of node {node!r}"
        if proto.ref_attr_name:
            return Reference(proto.ref_attr_name)
        readers: dict[int, Any] = {
            _FLOAT: lambda: float(proto.f),
            _INT: lambda: int(proto.i),
            _STRING: lambda: proto.s.decode("utf-8", "replace"),
            _TENSOR: lambda: array_of(proto.t, what),
            _GRAPH: lambda: self.graph(proto.g, scope),
            _FLOATS: lambda: tuple(float(value) for value in proto.floats),
            _INTS: lambda: tuple(int(value) for value in proto.ints),
            _STRINGS: lambda: tuple(value.decode("utf-8", "replace") for value in proto.strings),
            _TENSORS: lambda: tuple(array_of(tensor, what) for tensor in proto.tensors),
            _GRAPHS: lambda: tuple(self.graph(graph, scope) for graph in proto.graphs),
            _SPARSE: lambda: _sparse_array(proto.sparse_tensor, what),
            _TYPE: lambda: _value_info(proto, type_proto=proto.tp),
        }
        reader = readers.get(proto.type or _guess_type(proto))
        if reader is None:
            raise ModelFileError(f"onnx: {what} has an unknown type", got=proto.type)
        return reader()


def _check_text(*names: str | bytes) -> None:
    """Refuse names that are not UTF-8, which the package hands over as bytes."""
    for name in names:
        if isinstance(name, bytes):
            raise ModelFileError("onnx: a name in the file is not text", got=repr(name))


def _results(protos: Any) -> list[str]:
    return [name for proto in protos for name in proto.output if name]


def _check_once(*groups: list[str]) -> None:
    """Refuse names of one graph that two of its inputs, constants or nodes give."""
    for names in groups:
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ModelFileError("onnx: a name stands for several values", got=", ".join(twice))


def _guess_type(proto: Any) -> int:
    # Files of the first format version do not write the attribute's type.
    fields = (
        (_FLOAT, "f"), (_INT, "i"), (_STRING, "s"), (_TENSOR, "t"), (_GRAPH, "g"),
    )  # fmt: skip
    for number, name in fields:
        if proto.HasField(name):
            return number
    if proto.floats:
        return _FLOATS
    return _STRINGS if proto.strings else _INTS


def _reads(node: Node) -> set[str]:
    names = set(node.inputs)
    for inner in node.subgraphs():
        names |= inner.free_names()
    return names


def _unreadable(node: Node, ready: set[str], makers: set[str]) -> ModelFileError:
    missing = sorted(name for name in _reads(node) if name not in ready)
    unmade = [name for name in missing if name not in makers]
    if unmade:
        return ModelFileError(
            f"onnx: node {node} reads a value that nothing computes", got=unmade[0]
        )
    return ModelFileError(f"onnx: node {node} depends on itself", got=", ".join(missing))


def read_function(proto: Any, opsets: Mapping[str, int]) -> Function:
    """Read an operator that is defined by a graph (a FunctionProto).

    Args:
        proto: the definition.
        opsets: the versions of the domains that the definition itself does not import.

    Raises:
        ModelFileError: the definition contradicts itself.
        UnsupportedError: it is written for an operator set that nobody knows here.
    """
    own = {canonical_domain(row.domain): row.version for row in proto.opset_import}
    _check_opset(import_onnx(), own, f"function {proto.name!r}")
    reader = _Reader({**opsets, **own})
    known = frozenset(proto.input)
    _check_once([*proto.input, *_results(proto.node)])
    defaults = {
        row.name: reader._attribute(row, proto.name, known) for row in proto.attribute_proto
    }
    return Function(
        name=proto.name,
        domain=canonical_domain(proto.domain),
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        defaults=defaults,
        nodes=reader.nodes(proto.node, known),
        overload=proto.overload,
    )


def _value_info(info: Any, type_proto: Any = None) -> ValueInfo:
    described = info.type if type_proto is None else type_proto
    kind = "tensor"
    # Sequences and optionals wrap what they hold; one level is all that files use.
    for wrapper in ("optional_type", "sequence_type"):
        if described.HasField(wrapper):
            kind = wrapper.removesuffix("_type")
            described = getattr(described, wrapper).elem_type
    if not described.HasField("tensor_type"):
        return ValueInfo(info.name, kind=kind)
    tensor = described.tensor_type
    dtype = BY_NUMBER.get(tensor.elem_type)
    if not tensor.HasField("shape"):
        return ValueInfo(info.name, dtype, None, kind)
    return ValueInfo(info.name, dtype, tuple(_dim(dim) for dim in tensor.shape.dim), kind)


def _dim(dim: Any) -> Dim:
    if dim.HasField("dim_value"):
        # -1 and 0 are what exporters write for a size that they do not know.
        return int(dim.dim_value) if dim.dim_value > 0 else None
    return str(dim.dim_param) or None
