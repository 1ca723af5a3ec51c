"""A digest of a node's structure: the same in every process, computed once per node on demand.

Keys of caches on disk use it; the in-process hash may depend on the hash seed.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from tilework.base.hashing import blake2b
from tilework.base.records import fields, is_dataclass
from tilework.dtypes import DType
from tilework.ir.node import Node, OpDef, facts_of

#: Types whose values are told apart by their text.
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
        waiting: list[Node] = []
        parts = [node.op.name.encode()]
        for source in node.src:
            _feed_node(parts, source, waiting)
        if node.attrs is None:
            parts.append(_NONE)
        elif not waiting:
            _feed(parts, node.attrs, waiting)
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        facts.digest = blake2b(b"".join(parts), digest_size=16).digest()
    return facts_of(root).digest or b""


def _feed_node(parts: list[bytes], node: Node, waiting: list[Node]) -> None:
    """Append the digest of a node, or have it wait to get one."""
    facts = node.facts
    found = None if facts is None else facts.digest
    if found is None:
        waiting.append(node)
    else:
        parts.append(found)


def _feed(parts: list[bytes], value: Any, waiting: list[Node]) -> None:
    """Append what an attribute holds; nodes in it (symbolic sizes) may have to wait."""
    kind = type(value)
    if kind in _PLAIN:
        parts.append(f"{kind.__name__}:{value!r};".encode())
    elif kind is tuple:
        parts.append(b"T%d" % len(value))
        for item in value:
            _feed(parts, item, waiting)
    elif isinstance(value, DType | OpDef):
        parts.append(f"D{value.name}".encode())
    elif isinstance(value, Node):
        parts.append(b"N")
        _feed_node(parts, value, waiting)
    elif isinstance(value, Enum):
        parts.append(f"E{kind.__name__}.{value.name}".encode())
    else:
        parts.append(f"A{kind.__name__}".encode())
        for name in _field_names(kind):
            _feed(parts, getattr(value, name), waiting)


def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass.  Raises: TypeError for any other type."""
    names = _names.get(kind)
    if names is None:
        if not is_dataclass(kind):
            raise TypeError(f"an attribute of type {kind.__name__} has no digest")
        names = _names[kind] = tuple(row.name for row in fields(kind))
    return names
