"""Integer expressions over variables, as plain data that is evaluated at each run.

Trip counts and sizes that depend on VARIABLEs are needed where no graph is: in caches on disk and
in exported files.  An `Expression` is a list of steps for a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tilework.base.errors import InternalError, ModelFileError
from tilework.base.records import dataclass
from tilework.dtypes import decode
from tilework.ir.node import Node, toposort
from tilework.ir.ops.index import BIND, VARIABLE
from tilework.ir.ops.math import CAST, CONST

Step = tuple[str, int | str]


def _idiv(x: int, y: int) -> int:
    return x // y if y else 0


def _mod(x: int, y: int) -> int:
    return x % y if y else 0


_BINARY: Final[dict[str, Callable[[int, int], int]]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "idiv": _idiv,
    "mod": _mod,
    "cdiv": _idiv,  # proven to be of values that are not negative
    "cmod": _mod,
    "maximum": max,
    "minimum": min,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "shl": lambda x, y: x << y if y < 64 else 0,
    "shr": lambda x, y: x >> y,
    "lt": lambda x, y: int(x < y),
    "le": lambda x, y: int(x <= y),
    "eq": lambda x, y: int(x == y),
    "ne": lambda x, y: int(x != y),
}
_MAX_STEPS: Final = 10_000
_SIGNS: Final = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
FUNCTIONS: Final[Mapping[str, Callable[..., int]]] = {
    **{f"op_{name}": function for name, function in _BINARY.items()},
    "op_neg": lambda x: -x,
    "op_abs": abs,
    "op_where": lambda condition, yes, no: yes if condition else no,
}
"""What the text of an expression calls, by name."""


@dataclass(frozen=True, slots=True)
class Expression:
    """Steps: ("const", n), ("variable", name), ("neg"/"abs"/"where"/a binary op, 0)."""

    steps: tuple[Step, ...]

    @property
    def constant(self) -> int | None:
        """Its value if it depends on nothing."""
        if len(self.steps) == 1 and self.steps[0][0] == "const":
            return int(self.steps[0][1])
        return None

    @property
    def variables(self) -> frozenset[str]:
        """The names that it reads."""
        return frozenset(str(name) for kind, name in self.steps if kind == "variable")

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return its value for these variables."""
        stack: list[int] = []
        for kind, argument in self.steps:
            if kind == "const":
                stack.append(int(argument))
            elif kind == "variable":
                stack.append(values[str(argument)])
            elif kind == "neg":
                stack.append(-stack.pop())
            elif kind == "abs":
                stack.append(abs(stack.pop()))
            elif kind == "where":
                no, yes = stack.pop(), stack.pop()
                stack.append(yes if stack.pop() else no)
            else:
                y = stack.pop()
                stack.append(_BINARY[kind](stack.pop(), y))
        return stack[-1]

    def as_text(self, values: Mapping[str, str]) -> str:
        """Return it as Python text that gives what `evaluate` gives.

        Args:
            values: what stands for each variable.  The text may also call `FUNCTIONS`.
        """
        stack: list[str] = []
        for kind, argument in self.steps:
            if kind == "const":
                stack.append(str(int(argument)))
            elif kind == "variable":
                stack.append(values[str(argument)])
            elif kind in ("neg", "abs"):
                stack.append(f"op_{kind}({stack.pop()})")
            elif kind == "where":
                no, yes = stack.pop(), stack.pop()
                stack.append(f"op_where({stack.pop()}, {yes}, {no})")
            else:
                y, x = stack.pop(), stack.pop()
                if kind in ("idiv", "cdiv") and y.isdecimal() and int(y):
                    stack.append(f"({x} // {y})")
                elif kind in _SIGNS:
                    stack.append(f"({x} {_SIGNS[kind]} {y})")
                else:
                    stack.append(f"op_{kind}({x}, {y})")
        return stack[-1]

    def to_plain(self) -> list[list[int | str]]:
        """Return it as lists of numbers and text."""
        return [list(step) for step in self.steps]


def constant(value: int) -> Expression:
    """The expression that is always `value`."""
    return Expression((("const", value),))


def from_plain(plain: object) -> Expression:
    """Rebuild what `to_plain` gave.

    Raises: ModelFileError when it is not an expression.
    """
    if not isinstance(plain, list) or not 0 < len(plain) <= _MAX_STEPS:
        raise ModelFileError("expression: not a list of steps", got=repr(plain)[:80])
    steps: list[Step] = []
    depth = 0
    for item in plain:
        kind, argument = item if isinstance(item, list) and len(item) == 2 else ("", 0)
        kind = kind if isinstance(kind, str) else ""
        is_number = isinstance(argument, int) and not isinstance(argument, bool)
        if (kind == "const" and is_number) or (kind == "variable" and isinstance(argument, str)):
            depth += 1
        elif kind in _BINARY:
            depth -= 1 if depth >= 2 else _MAX_STEPS * 2
        elif kind == "where":
            depth -= 2 if depth >= 3 else _MAX_STEPS * 2
        elif kind not in ("neg", "abs") or depth < 1:
            depth = -_MAX_STEPS * 2
        if depth < 1:
            raise ModelFileError("expression: malformed step", got=repr(item)[:80])
        steps.append((kind, argument))
    if depth != 1:
        raise ModelFileError("expression: it leaves more than one value", got=f"{depth} values")
    return Expression(tuple(steps))


def from_size(size: int | Node) -> Expression:
    """Return a size as an expression.

    Raises: InternalError when a node is no arithmetic on variables.
    """
    if isinstance(size, int):
        return constant(size)
    order = toposort(size)
    if len(order) > _MAX_STEPS:
        raise InternalError(
            "expression: a size is too large to evaluate", got=f"{len(order)} nodes"
        )
    steps: list[Step] = []
    # Sources first, on an explicit stack, so that depth does not matter.
    stack: list[tuple[Node, bool]] = [(size, False)]
    while stack:
        node, is_done = stack.pop()
        if node.op is CONST:
            steps.append(("const", int(decode(node.attrs.bits, node.attrs.dtype))))
        elif node.op is VARIABLE:
            steps.append(("variable", node.attrs.name))
        elif node.op is BIND or node.op is CAST:
            stack.append((node.src[0], False))
        elif is_done:
            steps.append((node.op.name, 0))
        elif node.op.name in _BINARY or node.op.name in ("neg", "abs", "where"):
            stack.append((node, True))
            stack.extend((source, False) for source in reversed(node.src))
        else:
            raise InternalError("expression: this is not arithmetic on sizes", got=repr(node))
        if len(steps) > _MAX_STEPS:
            raise InternalError("expression: a size is too large to evaluate")
    return Expression(tuple(steps))
