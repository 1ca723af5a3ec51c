"""What the standard says of a node: its attributes, its outputs, the element types that it takes.

Attributes and outputs are checked when a model is opened, element types while it is traced, when
all of them are known.  Operators of other domains, and those that a model defines itself, are left
to their rules.

Some files take more liberties than they may, and mean only one thing: those are read.  Every float
is taken where a narrow one is, any integers say sizes, axes and places, an integer is a float
attribute's value, and operands may have what a later version of the operator allows.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework import dtypes
from tilework.base.errors import ModelFileError
from tilework.base.records import dataclass
from tilework.frontends.onnx.element_types import dtype_of_array
from tilework.frontends.onnx.functions import check_functions
from tilework.frontends.onnx.graph import Graph, Model, Node, Reference, ValueInfo
from tilework.frontends.onnx.load import import_onnx
from tilework.frontends.onnx.values import HostValue, Value
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.dtypes import DType

#: The standard's names of element types; 4-bit integers are held in bytes.
_BY_NAME: dict[str, DType] = {
    "tensor(float)": dtypes.float32,
    "tensor(double)": dtypes.float64,
    "tensor(float16)": dtypes.float16,
    "tensor(bfloat16)": dtypes.bfloat16,
    "tensor(float8e4m3fn)": dtypes.fp8e4m3,
    "tensor(float8e5m2)": dtypes.fp8e5m2,
    "tensor(bool)": dtypes.bool_,
    "tensor(int4)": dtypes.int8,
    "tensor(uint4)": dtypes.uint8,
    **{
        f"tensor({sign}int{bits})": dtypes.by_name(f"{sign}int{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}
_INTEGERS = frozenset(dtype for dtype in _BY_NAME.values() if dtype.is_integer)
_NARROW = frozenset({dtypes.float16, dtypes.bfloat16})
_PLACES = frozenset({dtypes.int32, dtypes.int64})

# What records hold for each kind of attribute, and for each of its items.
_KINDS: dict[str, tuple[type | tuple[type, ...], type | tuple[type, ...] | None]] = {
    "FLOAT": ((float, int), None),
    "INT": (int, None),
    "STRING": (str, None),
    "TENSOR": (np.ndarray, None),
    "SPARSE_TENSOR": (np.ndarray, None),
    "GRAPH": (Graph, None),
    "TYPE_PROTO": (ValueInfo, None),
    "FLOATS": (tuple, (float, int)),
    "INTS": (tuple, int),
    "STRINGS": (tuple, str),
    "TENSORS": (tuple, np.ndarray),
    "GRAPHS": (tuple, Graph),
}

_DIRECTIONS = ("forward", "reverse", "bidirectional")
_REDUCTIONS = ("none", "add", "mul", "max", "min")
_LOSSES = ("none", "sum", "mean")
_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
#: Which words an attribute may be, by its name alone or by operator and name.
_WORDS: dict[str, tuple[str, ...]] = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "BitShift.direction": ("LEFT", "RIGHT"),
    "DepthToSpace.mode": ("DCR", "CRD"),
    "GRU.direction": _DIRECTIONS,
    "LSTM.direction": _DIRECTIONS,
    "RNN.direction": _DIRECTIONS,
    "Gelu.approximate": ("none", "tanh"),
    "GridSample.mode": ("bilinear", "linear", "nearest", "bicubic", "cubic"),
    "GridSample.padding_mode": ("zeros", "border", "reflection"),
    "NegativeLogLikelihoodLoss.reduction": _LOSSES,
    "Pad.mode": ("constant", "reflect", "edge", "wrap"),
    "Resize.coordinate_transformation_mode": _COORDINATES,
    "Resize.keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "Resize.mode": ("nearest", "linear", "cubic"),
    "Resize.nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "RoiAlign.coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    "RoiAlign.mode": ("avg", "max"),
    "ScatterElements.reduction": _REDUCTIONS,
    "ScatterND.reduction": _REDUCTIONS,
    "SoftmaxCrossEntropyLoss.reduction": _LOSSES,
    "Upsample.mode": ("nearest", "linear", "bilinear"),
}


@functools.lru_cache(maxsize=4096)
def _schema(op: str, version: int | None) -> Any:
    """The operator's schema at an opset, or its newest one; None where there is none."""
    onnx = import_onnx()
    try:
        if version is None:
            return onnx.defs.get_schema(op, "")
        return onnx.defs.get_schema(op, version, "")
    except onnx.defs.SchemaError:
        return None


# --- attributes and outputs ----------------------------------------------------------------------


def check_nodes(model: Model) -> None:
    """Refuse nodes whose attributes or outputs their operators do not have.

    Raises:
        ModelFileError: names the node, and what its operator takes.
    """
    check_functions(model)
    for node in model.all_nodes():
        if node.domain or node.key in model.functions:
            continue
        schema = _schema(node.op, node.version)
        if schema is not None and not schema.deprecated:
            _check_attributes(node, schema.attributes)
            _check_outputs(node, schema.max_output)
            _check_bodies(node)


def _check_bodies(node: Node) -> None:
    """Refuse branches and bodies that give or take another number of values than their node."""
    for name, body in node.attributes.items():
        if not isinstance(body, Graph) or node.op not in ("If", "Loop", "Scan"):
            continue
        wanted = [len(node.outputs) + (node.op == "Loop")]
        given = [len(body.outputs)]
        # Scan's first version has lengths before what the body takes.
        if node.op == "Loop" or (node.op == "Scan" and node.version >= 9):
            wanted.append(max(len(node.inputs), 2))
            given.append(len(body.inputs))
        # A node may leave out its last results; a body never lacks one.
        if given[0] < wanted[0] or given[1:] != wanted[1:]:
            raise ModelFileError(
                f"onnx: {node} has a graph {name!r} that does not fit it",
                got=f"outputs and inputs {given}",
                expected=str(wanted),
            )
    branches = {len(graph.outputs) for graph in node.subgraphs()}
    if node.op == "If" and len(branches) > 1:
        raise ModelFileError(
            f"onnx: the branches of {node} give different numbers of values",
            got=" and ".join(map(str, sorted(branches))),
        )


def _check_attributes(node: Node, known: Mapping[str, Any]) -> None:
    for name, value in node.attributes.items():
        if name not in known and not name.startswith("__"):
            raise ModelFileError(
                f"onnx: {node} has an attribute that its operator does not take",
                got=name,
                expected=", ".join(sorted(known)) or "no attributes",
            )
        if name in known and not isinstance(value, Reference):
            _check_kind(node, name, value, known[name].type.name)
            _check_word(node, name, value)
    lacking = [name for name, row in known.items() if row.required and name not in node.attributes]
    if lacking:
        raise ModelFileError(f"onnx: {node} lacks the attribute {lacking[0]!r}")


def _check_kind(node: Node, name: str, value: object, kind: str) -> None:
    whole, item = _KINDS.get(kind, (object, None))
    items = value if isinstance(value, tuple) and item is not None else ()
    if not isinstance(value, whole) or not all(isinstance(part, item or object) for part in items):
        raise ModelFileError(
            f"onnx: {node} has an attribute {name!r} of another kind than its operator takes",
            got=repr(value),
            expected=kind,
        )


def _check_word(node: Node, name: str, value: object) -> None:
    words = _WORDS.get(name) or _WORDS.get(f"{node.op}.{name}")
    # The first versions of the format wrote some of them in capitals.
    if words is not None and value not in words and str(value).lower() not in words:
        raise ModelFileError(
            f"onnx: {node} has an attribute {name!r} with a word that its operator does not know",
            got=repr(value),
            expected=" or ".join(words),
        )


def _check_outputs(node: Node, most: int) -> None:
    if len(node.outputs) > most:
        raise ModelFileError(
            f"onnx: {node} lists more outputs than its operator gives",
            got=str(len(node.outputs)),
            expected=f"at most {most}",
        )


# --- element types -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Operand:
    """Which dtypes an operand may have, and the letter that it shares with others or ""."""

    name: str
    dtypes: frozenset[DType]
    letter: str


@dataclass(frozen=True, slots=True)
class _Signature:
    """What an operator takes at one version; `is_open` if the last operand may be repeated."""

    operands: tuple[_Operand, ...]
    is_open: bool

    def fault(self, given: Sequence[DType | None]) -> tuple[str, str] | None:
        """Return what is wrong with these dtypes and what was expected, or None."""
        letters: dict[str, DType] = {}
        for place, dtype in enumerate(given):
            if place >= len(self.operands) and not self.is_open:
                return None
            operand = self.operands[min(place, len(self.operands) - 1)]
            if dtype is None or not operand.dtypes:
                continue
            if dtype not in operand.dtypes:
                expected = ", ".join(sorted({one.name for one in operand.dtypes}))
                return f"{operand.name} is {dtype.name}", f"one of {expected}"
            known = letters.setdefault(operand.letter, dtype) if operand.letter else dtype
            if known is not dtype:
                return f"{operand.name} is {dtype.name}", f"{known.name}, as the one before"
        return None


@functools.lru_cache(maxsize=4096)
def _signatures(op: str, version: int) -> tuple[_Signature, ...]:
    found = []
    for schema in (_schema(op, version), _schema(op, None)):
        if schema is not None and schema.inputs:
            operands = tuple(_operand(row) for row in schema.inputs)
            found.append(_Signature(operands, schema.inputs[-1].option.name == "Variadic"))
    return tuple(found)


def _operand(row: Any) -> _Operand:
    allowed = {_BY_NAME[name] for name in row.types if name in _BY_NAME}
    if allowed & {dtypes.float16, dtypes.float32}:
        allowed |= _NARROW
    is_place = bool(allowed) and allowed <= _PLACES
    is_letter = row.is_homogeneous and "(" not in row.type_str and not is_place
    return _Operand(
        row.name,
        _INTEGERS if is_place else frozenset(allowed),
        row.type_str if is_letter else "",
    )


def _dtype(value: Value) -> DType | None:
    if isinstance(value, HostValue):
        return dtype_of_array(value.array)
    return value.dtype if isinstance(value, Tensor) else None


def check_types(node: Node, operands: Sequence[Value]) -> None:
    """Refuse operands whose element types an operator of the standard does not take.

    Raises:
        ModelFileError: names the node, the operand and the element types.
    """
    signatures = () if node.domain else _signatures(node.op, node.version)
    if not signatures:
        return
    given = [_dtype(value) for value in operands]
    faults = [signature.fault(given) for signature in signatures]
    if all(fault is not None for fault in faults) and faults[0] is not None:
        got, expected = faults[0]
        raise ModelFileError(
            f"onnx: {node} is given element types that its operator does not take",
            got=got,
            expected=expected,
        )
