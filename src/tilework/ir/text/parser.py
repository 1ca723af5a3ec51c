"""Parsing of the text that the printer writes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from tilework.base.errors import ModelFileError
from tilework.dtypes import ALL
from tilework.ir.node import make
from tilework.ir.ops import OPS
from tilework.ir.ops.index import Unit
from tilework.ir.ops.tensor import Fold
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from enum import Enum

    from tilework.ir.node import Attrs, Node, OpDef

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?![x\d]))|(?P<bytes>0x[0-9a-f]*)|(?P<node>%\d+)"""
    r"""|(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>[A-Za-z_][\w.]*)|(?P<mark>[=,(){}]))"""
)
_ENUMS: dict[str, type[Enum]] = {kind.__name__: kind for kind in (Fold, Unit, Memory)}
_WORDS: dict[str, Any] = {
    "true": True,
    "false": False,
    "none": None,
    **{dtype.name: dtype for dtype in ALL},
    **{f"{name}.{item.name}": item for name, kind in _ENUMS.items() for item in kind},
}


def parse(text: str) -> Node:
    """The node that `format_node` printed.

    Raises:
        ModelFileError: The text is malformed; the message names the line.
    """
    (root,) = parse_all(text)
    return root


def parse_all(text: str) -> tuple[Node, ...]:
    """The nodes that `format_nodes` printed."""
    nodes: dict[str, Node] = {}
    known: dict[tuple[str, str], Attrs] = {}
    ops = OPS
    number = 0
    for number, line in enumerate(text.splitlines()):
        head, brace, tail = line.partition("{")
        if not brace and ";" in head:
            head = head.partition(";")[0]
        words = head.split()
        if not words:
            continue
        if words[0] == "return":
            return _returned(words[1:], nodes, number)
        try:
            name, equals, op_name = words[:3]
            op = ops[op_name]
            src = tuple([nodes[word] for word in words[3:]])
        except (ValueError, KeyError):
            _malformed(line, number)
        if equals != "=" or name in nodes:
            _malformed(line, number)
        attrs = None
        if brace:
            inside = tail[: tail.rfind("}")]
            attrs = known.get((op_name, inside))
            if attrs is None:
                attrs = _AttrsReader(inside, nodes, line, number).read(op)
                known[op_name, inside] = attrs
        try:
            nodes[name] = make(op, src, attrs)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise ModelFileError(
                f"parse: line {number + 1} is no legal {op_name}", got=line[:200]
            ) from error
    return _malformed("(no line returns anything)", number)


def _returned(words: list[str], nodes: dict[str, Node], number: int) -> tuple[Node, ...]:
    try:
        return tuple([nodes[word] for word in words])
    except KeyError:
        return _malformed(f"return {' '.join(words)}", number)


def _malformed(line: str, number: int) -> NoReturn:
    raise ModelFileError(f"parse: line {number + 1} is malformed", got=line[:200])


class _AttrsReader:
    """Reads `name=value, ...` into the attributes of an op."""

    def __init__(self, text: str, nodes: dict[str, Node], line: str, number: int) -> None:
        self.text = text
        self.nodes = nodes
        self.line = line
        self.number = number
        self.position = 0

    def read(self, op: OpDef) -> Attrs:
        kind: Any = op.attrs
        values: dict[str, Any] = {}
        while self.position < len(self.text):
            what, name = self._next()
            if what != "word" or self._next() != ("mark", "="):
                self._fail()
            values[name] = self._value(*self._next())
            if self.position < len(self.text) and self._next() != ("mark", ","):
                self._fail()
        try:
            attrs: Attrs = kind(**values)
        except TypeError:
            self._fail()
        return attrs

    def _next(self) -> tuple[str, str]:
        match = _TOKEN.match(self.text, self.position)
        if match is None or match.lastgroup is None:
            self._fail()
        self.position = match.end()
        return match.lastgroup, match[match.lastgroup]

    def _value(self, what: str, token: str) -> Any:
        """The value that starts with `token`; nests as deep as the tuples do."""
        if what == "number":
            return int(token)
        if what == "word":
            if token not in _WORDS:
                self._fail()
            return _WORDS[token]
        if what == "mark" and token == "(":
            return self._tuple()
        if what == "node":
            if token not in self.nodes:
                self._fail()
            return self.nodes[token]
        if what == "text":
            return json.loads(token)
        if what == "bytes":
            return bytes.fromhex(token[2:])
        return self._fail()

    def _tuple(self) -> tuple[Any, ...]:
        items: list[Any] = []
        while True:
            what, token = self._next()
            if (what, token) == ("mark", ")"):
                return tuple(items)
            items.append(self._value(what, token))
            what, token = self._next()
            if (what, token) == ("mark", ")"):
                return tuple(items)
            if (what, token) != ("mark", ","):
                self._fail()

    def _fail(self) -> NoReturn:
        _malformed(self.line, self.number)
