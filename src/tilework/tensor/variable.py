"""Sizes and positions that are given at run time: one compiled program serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Union

from tilework.base.errors import BoundsError, DTypeError, UserError
from tilework.engine.capture import note_variable_read
from tilework.ir.build import const_index
from tilework.ir.ops.index import VARIABLE, VariableAttrs
from tilework.ir.ops.math import CONST
from tilework.ir.symbolic import dims, simplify
from tilework.ir.symbolic.bounds import bounds
from tilework.tensor.version import merge_bindings

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.types import Dim

#: What stands for a size in the public API.
Size = Union[int, "Variable"]


class Variable:
    """An integer between two bounds, or arithmetic on such integers.

    Args:
        name: tells variables apart; two of one name are the same variable.
        minimum: the least value.
        maximum: the greatest value, included.

    Example:
        >>> n = Variable("n", 1, 8).bind(3)
        >>> int(n), n.maximum
        (3, 8)
    """

    __slots__ = ("bindings", "node")

    def __init__(self, name: str, minimum: int, maximum: int) -> None:
        if minimum > maximum:
            raise BoundsError(
                f"variable {name}: the bounds leave no value", got=f"{minimum} to {maximum}"
            )
        self.node: Node = VARIABLE(attrs=VariableAttrs(name, minimum, maximum))
        self.bindings: Mapping[str, int] | None = None

    @classmethod
    def of(cls, node: Node, bindings: Mapping[str, int] | None) -> Variable:
        """Wrap an integer node."""
        made = cls.__new__(cls)
        made.node = node
        made.bindings = bindings
        return made

    def bind(self, value: int) -> Variable:
        """This variable with a value.

        Raises:
            BoundsError: the value lies outside of the bounds.
            DTypeError: it is no integer.
            UserError: this is arithmetic, not a plain variable.
        """
        if self.node.op is not VARIABLE:
            raise UserError("bind: only a plain variable can get a value", got=repr(self))
        attrs = self.node.attrs
        if not hasattr(type(value), "__index__"):
            raise DTypeError(
                f"bind: the value of {attrs.name} is no integer",
                got=f"{value!r} of type {type(value).__name__}",
                expected="an integer",
            )
        number = value.__index__()
        if not attrs.minimum <= number <= attrs.maximum:
            raise BoundsError(
                f"bind: the value of {attrs.name} lies outside of its bounds",
                got=value,
                expected=f"{attrs.minimum} to {attrs.maximum}",
            )
        return Variable.of(self.node, {attrs.name: number})

    @property
    def minimum(self) -> int:
        """The least value that it can have."""
        return bounds(self.node)[0]

    @property
    def maximum(self) -> int:
        """The greatest value that it can have."""
        return bounds(self.node)[1]

    @property
    def vmin(self) -> int:
        """Another name for `minimum`."""
        return self.minimum

    @property
    def vmax(self) -> int:
        """Another name for `maximum`."""
        return self.maximum

    @property
    def name(self) -> str:
        """The name of a plain variable."""
        return str(self.node.attrs.name) if self.node.op is VARIABLE else repr(self.node)

    def unbind(self) -> tuple[Variable, int]:
        """The variable without its value, and the value."""
        return Variable.of(self.node, None), int(self)

    @property
    def val(self) -> int:
        """The value that is bound."""
        return int(self)

    def __int__(self) -> int:
        return self._read()

    def __index__(self) -> int:
        return self._read()

    def _read(self) -> int:
        """The number, for Python code: a capture that sees it holds for this value alone."""
        for name in self.bindings or ():
            note_variable_read(name)
        return evaluate(self.node, self.bindings)

    def __add__(self, other: Size) -> Size:
        return self._with(dims.add, self, other)

    def __radd__(self, other: int) -> Size:
        return self._with(dims.add, other, self)

    def __sub__(self, other: Size) -> Size:
        return self._with(dims.sub, self, other)

    def __rsub__(self, other: int) -> Size:
        return self._with(dims.sub, other, self)

    def __mul__(self, other: Size) -> Size:
        return self._with(dims.mul, self, other)

    def __rmul__(self, other: int) -> Size:
        return self._with(dims.mul, other, self)

    def __floordiv__(self, other: Size) -> Size:
        return self._with(dims.floordiv, self, other)

    def __neg__(self) -> Size:
        return self * -1

    def _with(self, function: Callable[[Dim, Dim], Dim], a: Size, b: Size) -> Size:
        found = merge_bindings((bindings_of(a), bindings_of(b)), "variable")
        return as_size(function(as_dim(a), as_dim(b)), found)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Variable):
            return self.node is other.node
        if isinstance(other, int) and self.bindings is not None:
            return self._read() == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.node)

    def __repr__(self) -> str:
        """Name or formula, and the value if it has one."""
        value = f"={int(self)}" if self.bindings is not None else ""
        if self.node.op is VARIABLE:
            attrs = self.node.attrs
            return f"Variable({attrs.name}{value} in {attrs.minimum}..{attrs.maximum})"
        return f"Variable({format_dim(self.node)}{value})"


def as_dim(size: object) -> Dim:
    """A size of the public API as the IR has it.

    Raises:
        DTypeError: it is neither an integer nor a variable.
    """
    if type(size) is int:
        return size
    if isinstance(size, Variable):
        number = simplify.value_of(size.node)
        return size.node if number is None else number
    index = getattr(type(size), "__index__", None)
    if index is None or isinstance(size, bool):
        raise DTypeError(
            "shape: a size must be an integer", got=f"{size!r} of type {type(size).__name__}",
            expected="an int or a Variable",
        )  # fmt: skip
    return int(index(size))


def as_size(size: Dim, bindings: Mapping[str, int] | None) -> Size:
    """A size of the IR as the public API shows it."""
    return size if isinstance(size, int) else Variable.of(size, bindings)


def bindings_of(size: object) -> Mapping[str, int] | None:
    """The values bound inside a size."""
    return size.bindings if isinstance(size, Variable) else None


def evaluate(size: Dim, bindings: Mapping[str, int] | None) -> int:
    """The number that a size is.

    Raises:
        UserError: a variable in it has no value.
    """
    if isinstance(size, int):
        return size
    values = dict(bindings or {})
    mapping: dict[Node, Node] = {}
    for node in _variables(size):
        if node.attrs.name not in values:
            raise UserError(
                f"the variable {node.attrs.name} has no value here",
                try_=f"Variable({node.attrs.name!r}, ...).bind(value)",
            )
        mapping[node] = const_index(values[node.attrs.name])
    (result,) = simplify.substitute([size], mapping)
    if result.op is not CONST:
        raise UserError("a size can't be computed", got=format_dim(size))
    return bounds(result)[0]


def _variables(node: Node) -> list[Node]:
    found: dict[Node, None] = {}
    stack = [node]
    while stack:
        top = stack.pop()
        if top.op is VARIABLE:
            found[top] = None
        stack.extend(top.src)
    return list(found)


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "idiv": "//", "mod": "%"}


def format_dim(size: Dim) -> str:
    """A size as text."""
    if isinstance(size, int):
        return str(size)
    if size.op is VARIABLE:
        return str(size.attrs.name)
    number = simplify.value_of(size)
    if number is not None:
        return str(number)
    sign = _SIGNS.get(size.op.name)
    if sign is not None:
        return f"({format_dim(size.src[0])} {sign} {format_dim(size.src[1])})"
    return f"{size.op.name}({', '.join(format_dim(source) for source in size.src)})"


def format_shape(shape: tuple[Dim, ...]) -> str:
    """A shape as text."""
    inner = ", ".join(format_dim(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
