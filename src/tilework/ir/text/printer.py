"""Printing of nodes as lines of text that the parser reads back."""

from __future__ import annotations

import json
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from tilework.base.errors import InternalError
from tilework.base.records import fields
from tilework.dtypes import DType, decode
from tilework.ir.node import Node
from tilework.ir.ops import math

if TYPE_CHECKING:
    from tilework.ir.node import Attrs


def format_node(root: Node, *, annotate: bool = False) -> str:
    """The graph below `root` as text.

    Args:
        root: What to print.
        annotate: Add the type of each node, for readers; the parser skips it.

    Example:
        >>> from tilework.ir.build import const_index
        >>> print(format_node(const_index(3)))
        %0 = const {bits=3, dtype=int64, shape=()}
        return %0
    """
    return format_nodes((root,), annotate=annotate)


def format_nodes(roots: tuple[Node, ...], *, annotate: bool = False) -> str:
    """Several graphs as one text, shared nodes printed once."""
    order, names = _ordered(roots)
    texts: dict[Attrs, str] = {}
    lines: list[str] = []
    for node in order:
        line = f"{names[node]} = {node.op.name}"
        if node.src:
            line = f"{line} {' '.join([names[source] for source in node.src])}"
        attrs = node.attrs
        if attrs is not None:
            text = texts.get(attrs)
            if text is None:
                text = texts[attrs] = _format_attrs(attrs, names)
            line = f"{line} {text}"
        lines.append(f"{line} ; {_annotation(node, names)}" if annotate else line)
    lines.append(f"return {' '.join([names[root] for root in roots])}")
    return "\n".join(lines)


def _ordered(roots: tuple[Node, ...]) -> tuple[list[Node], dict[Node, str]]:
    """All nodes, those in attributes too, each after what it refers to; and their names."""
    order: list[Node] = []
    names: dict[Node, str] = {}
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        if node in names:
            stack.pop()
            continue
        children = node.src
        if node.attrs is not None:
            inside = nodes_in_attrs(node.attrs)
            if inside:
                children = (*inside, *children)
        waiting = [child for child in children if child not in names]
        if waiting:
            waiting.reverse()
            stack.extend(waiting)
            continue
        stack.pop()
        names[node] = f"%{len(order)}"
        order.append(node)
    return order, names


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple([field.name for field in fields(kind)])


@cache
def _sized_fields(kind: type[Any]) -> tuple[str, ...]:
    """The fields that can hold sizes, which may be nodes."""
    return tuple(
        [
            field.name
            for field in fields(kind)
            if "Dim" in str(field.type) or "Shape" in str(field.type)
        ]
    )


def nodes_in_attrs(attrs: Attrs) -> tuple[Node, ...]:
    """The symbolic sizes in attributes, in order."""
    found: list[Node] = []
    kind: Any = type(attrs)
    for name in _sized_fields(kind):
        _collect(getattr(attrs, name), found)
    return tuple(found)


def _collect(value: Any, found: list[Node]) -> None:
    if isinstance(value, Node):
        found.append(value)
    elif isinstance(value, tuple):
        for item in value:
            if not isinstance(item, int):
                _collect(item, found)


def _format_attrs(attrs: Attrs, names: dict[Node, str]) -> str:
    kind: Any = type(attrs)
    parts = [f"{name}={_format_value(getattr(attrs, name), names)}" for name in _field_names(kind)]
    return f"{{{', '.join(parts)}}}"


def _format_value(value: Any, names: dict[Node, str]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Node):
        return names[value]
    if isinstance(value, tuple):
        inner = ", ".join([_format_value(item, names) for item in value])
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, DType):
        return value.name
    return _format_rare(value)


def _format_rare(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    raise InternalError("print: an attribute has no text", got=type(value).__name__)


def _annotation(node: Node, names: dict[Node, str]) -> str:
    """The type of a node, and of a literal its value."""
    sizes = [str(size) if isinstance(size, int) else names.get(size, "?") for size in node.shape]
    memory = f"@{node.type.memory.value}" if node.type.memory is not None else ""
    kind = f"{node.dtype.name}[{','.join(sizes)}]{memory}"
    if node.op is math.CONST:
        return f"{kind} = {decode(node.attrs.bits, node.attrs.dtype)}"
    return kind
