"""What a model takes and gives: checks of a call's inputs, and which of them must be numbers.

An input that decides a shape, a branch or a count has to be known while the graph is traced.  Such
inputs are found by walking backwards from the operands that rules want on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework.base.errors import DTypeError, ShapeError, UnsupportedError, UserError
from tilework.base.text import nearest, plural
from tilework.frontends.onnx.element_types import dtype_of_array, numpy_dtype
from tilework.frontends.onnx.expand import has_definition
from tilework.frontends.onnx.graph import Graph, Model, Node, ValueInfo
from tilework.frontends.onnx.host import find_host_rule
from tilework.frontends.onnx.registry import find_rule
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.frontends.onnx.values import Array

_CONTROL = {"If": (0,), "Loop": (0, 1)}
#: Inputs with more elements are never part of a signature.
HOST_INPUT_LIMIT = 64


def unsupported_nodes(model: Model) -> tuple[Node, ...]:
    """Return every node for which there is no rule, in file order, subgraphs included."""
    return tuple(
        node
        for node in model.all_nodes()
        if node.key not in model.functions
        # An overload is one of the model's own functions, whatever else has the name.
        and (
            node.overload
            or (find_rule(node.domain, node.op, node.version) is None and not has_definition(node))
        )
    )


#: Where ONNX Runtime puts operators whose operands are laid out for one kind of processor.
_BLOCKED = "com.microsoft.nchwc"


def check_supported(model: Model) -> None:
    """Refuse a model that uses operators without a rule.

    Raises:
        UnsupportedError: lists all of them: name, domain, version and the nodes.
    """
    rows: dict[tuple[str, str, int], list[str]] = {}
    for node in unsupported_nodes(model):
        rows.setdefault((node.op, node.domain, node.version), []).append(node.name)
    if not rows:
        return
    lines = []
    for (op, domain, version), names in sorted(rows.items()):
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        lines.append(f"{op} (domain {domain or 'ai.onnx'}, version {version}): {shown}")
    is_blocked = any(domain == _BLOCKED for _, domain, _ in rows)
    raise UnsupportedError(
        f"onnx: the model uses {plural(len(rows), 'operator')} that tilework does not have",
        got="\n    ".join(["", *lines]),
        try_="the model before ONNX Runtime laid its channels out for one processor: save it with "
        "ORT_ENABLE_EXTENDED, not ORT_ENABLE_ALL"
        if is_blocked
        else None,
    )


def host_inputs(model: Model) -> frozenset[str]:
    """Return the graph inputs whose values decide shapes, branches or counts."""
    wanted: set[str] = set()
    _collect(model.graph, wanted)
    return frozenset(wanted & {info.name for info in model.graph.inputs})


def _collect(graph: Graph, wanted: set[str]) -> None:
    for node in reversed(graph.nodes):
        for inner in node.subgraphs():
            _collect(inner, wanted)
        rule = find_rule(node.domain, node.op, node.version)
        positions = set(_CONTROL.get(node.op, ())) | set(rule.host if rule else ())
        wanted.update(name for place, name in enumerate(node.inputs) if place in positions and name)
        passes_on = find_host_rule(node.domain, node.op) is not None
        if passes_on and wanted.intersection(node.outputs):
            wanted.update(name for name in node.inputs if name)


def check_names(
    given: Mapping[str, Any], inputs: tuple[ValueInfo, ...], optional: set[str]
) -> None:
    """Refuse unknown and missing inputs.

    Raises:
        UserError: names them.
    """
    known = [info.name for info in inputs]
    expected = ", ".join(str(info) for info in inputs if info.name not in optional)
    for name in given:
        if name not in known:
            close = nearest(name, known)
            raise UserError(
                f"onnx: the model has no input {name!r}",
                expected=expected,
                try_=None if close is None else f"`{close}`",
            )
    missing = [name for name in known if name not in given and name not in optional]
    if missing:
        raise UserError("onnx: inputs are missing", got=", ".join(missing), expected=expected)


def as_input(value: Any, info: ValueInfo, device: str | None) -> Tensor | Array:
    """Turn what the caller gave into a tensor or an array, and check it against the model.

    Raises:
        DTypeError: the element type is not the declared one.
        ShapeError: the rank or a fixed size is not the declared one.
    """
    if isinstance(value, Tensor):
        _check_dtype(value.dtype, info)
        check_shape(value.shape, info)
        return value if device is None else value.to(device)
    wants = None if info.dtype is None else numpy_dtype(info.dtype)
    is_plain = isinstance(value, (bool, int, float, list, tuple))
    array = np.asarray(value, wants) if is_plain else np.asarray(value)
    if array.dtype.byteorder not in "=|":
        array = array.astype(array.dtype.newbyteorder("="))
    dtype = dtype_of_array(array)
    if dtype is None:
        raise DTypeError(
            f"onnx: input {info.name!r} has an element type that tilework lacks",
            got=str(array.dtype),
            expected=str(info),
        )
    _check_dtype(dtype, info)
    check_shape(array.shape, info)
    return array


def _check_dtype(dtype: DType, info: ValueInfo) -> None:
    if info.dtype is not None and dtype is not info.dtype:
        raise DTypeError(
            f"onnx: input {info.name!r} has the wrong dtype",
            got=dtype.name,
            expected=str(info),
            try_=f'`.astype("{info.dtype.name}")` or `.cast(dtypes.{info.dtype.name})`',
        )


def check_shape(shape: tuple[int, ...], info: ValueInfo) -> None:
    """Refuse a shape whose rank or fixed sizes differ from the declared ones.

    Raises:
        ShapeError: says which.
    """
    if info.shape is None:
        return
    fits = len(shape) == len(info.shape) and all(
        not isinstance(wanted, int) or wanted == size
        for size, wanted in zip(shape, info.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"onnx: input {info.name!r} has the wrong shape", got=shape, expected=str(info)
        )
