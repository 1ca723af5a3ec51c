"""A digest of a node's structure: the same in every process, computed once per node on demand.

Keys of caches on disk use it; the in-process hash may depend on the hash seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tilework.dtypes import DType
from tilework.ir.node import Node, OpDef, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable


#: Types whose values hold no nodes and are told apart by their text.
_PLAIN: Final = frozenset({int, bool, str, bytes, type(None)})
_NONE: Final = b"NoneType:None;"
_names: Final[dict[type, tuple[str, ...]]] = {}  # bounded by the number of types of attributes


def digest(root: Node) -> bytes:
    """Sixteen bytes that identify the structure of `root` (BLAKE2b of ops, sources, attributes)."""
    stack = [root]
    while stack:
        node = stack[-1]
        facts = facts_of(node)
        if facts.digest is not None:
            stack.pop()
            continue
        children = node.src if node.attrs is None else _children(node)
        waiting = [child for child in children if _known(child) is None]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        state = hashlib.blake2b(digest_size=16)
        state.update(node.op.name.encode())
        for source in node.src:
            state.update(_known(source) or b"")
        if node.attrs is None:
            state.update(_NONE)
        else:
            _feed(state, node.attrs)
        facts.digest = state.digest()
    return _known(root) or b""


def _known(node: Node) -> bytes | None:
    return None if node.facts is None else node.facts.digest


def _children(node: Node) -> list[Node]:
    found = list(node.src)
    _nodes_in(node.attrs, found)
    return found


def _nodes_in(value: Any, found: list[Node]) -> None:
    """Append the nodes inside an attribute value (symbolic sizes) to `found`."""
    if type(value) in _PLAIN:
        return
    if isinstance(value, Node):
        found.append(value)
    elif isinstance(value, tuple):
        for item in value:
            if type(item) not in _PLAIN:
                _nodes_in(item, found)
    else:
        for name in _field_names(type(value)):
            _nodes_in(getattr(value, name), found)


def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass; none of any other type."""
    names = _names.get(kind)
    if names is None:
        names = tuple(row.name for row in fields(kind)) if is_dataclass(kind) else ()
        _names[kind] = names
    return names


def _feed(state: Any, value: Any) -> None:
    if type(value) in _PLAIN:
        state.update(f"{type(value).__name__}:{value!r};".encode())
    elif isinstance(value, Node):
        state.update(b"N" + (_known(value) or b""))
    elif isinstance(value, tuple):
        _feed_all(state, b"T%d" % len(value), value)
    elif isinstance(value, Enum):
        state.update(f"E{type(value).__name__}.{value.name}".encode())
    elif isinstance(value, DType | OpDef):
        state.update(f"D{value.name}".encode())
    elif is_dataclass(value):
        kind = type(value)
        names = [getattr(value, name) for name in _field_names(kind)]
        _feed_all(state, f"A{kind.__name__}".encode(), names)
    elif value is None or isinstance(value, bool | int | str | bytes):
        state.update(f"{type(value).__name__}:{value!r};".encode())
    else:
        raise TypeError(f"an attribute of type {type(value).__name__} has no digest")


def _feed_all(state: Any, head: bytes, values: Iterable[Any]) -> None:
    state.update(head)
    for value in values:
        _feed(state, value)
