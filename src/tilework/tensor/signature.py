"""The arguments of a captured function: which are tensors, and what must stay the same.

`flatten` takes tensors out of positional and keyword arguments, lists, tuples and dictionaries;
`rebuild` puts others in their place.  A `TensorSpec` is what a replay checks of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tilework.engine.guards import same_value
from tilework.tensor.core import TensorBase
from tilework.tensor.variable import Variable, format_shape
from tilework.tensor.version import Chain

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.types import Type

_CONTAINERS: Final = (list, tuple, dict)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A place in nested containers: `tensors[number]`, `variables[number]` or another value."""

    kind: str  # "tensor", "variable", "value"
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A list, tuple, named tuple or dictionary of places."""

    kind: type
    keys: tuple[Any, ...] | None
    items: tuple[Leaf | Branch, ...]


Tree = Leaf | Branch


@dataclass(slots=True)
class Flat:
    """Arguments taken apart."""

    tree: Tree
    tensors: list[TensorBase]
    variables: list[Variable]
    values: list[Any]


def flatten(value: Any, name: str) -> Flat:
    """Take tensors, variables and other values out of nested containers."""
    flat = Flat(Leaf("value", 0, name), [], [], [])
    flat.tree = _flatten(value, name, flat)
    return flat


def _flatten(value: Any, name: str, flat: Flat) -> Tree:
    if isinstance(value, TensorBase):
        flat.tensors.append(value)
        return Leaf("tensor", len(flat.tensors) - 1, name)
    if isinstance(value, Variable):
        flat.variables.append(value)
        return Leaf("variable", len(flat.variables) - 1, name)
    if isinstance(value, list | tuple):
        items = [_flatten(item, f"{name}[{i}]", flat) for i, item in enumerate(value)]
        return Branch(type(value), None, tuple(items))
    if type(value) is dict:
        items = [_flatten(item, f"{name}[{key!r}]", flat) for key, item in value.items()]
        return Branch(dict, tuple(value), tuple(items))
    flat.values.append(value)
    return Leaf("value", len(flat.values) - 1, name)


def flatten_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Flat:
    """Take a call's arguments apart: positional ones first, then keywords by name."""
    flat = Flat(Leaf("value", 0, "arguments"), [], [], [])
    items = [_flatten(item, f"argument {index}", flat) for index, item in enumerate(args)]
    names = sorted(kwargs)
    items += [_flatten(kwargs[name], f"argument {name}", flat) for name in names]
    flat.tree = Branch(tuple, tuple(names), tuple(items))
    return flat


def rebuild(tree: Tree, tensor_at: Callable[[int], Any], values: Sequence[Any]) -> Any:
    """Put tensors and values back into containers of the same kinds."""
    if isinstance(tree, Leaf):
        return tensor_at(tree.number) if tree.kind == "tensor" else values[tree.number]
    items = [rebuild(item, tensor_at, values) for item in tree.items]
    if tree.keys is not None:
        return dict(zip(tree.keys, items, strict=True))
    if hasattr(tree.kind, "_fields"):
        return tree.kind(*items)
    return tree.kind(items)


def first_difference(old: Tree, new: Tree) -> str | None:
    """Return where two calls are built differently, or None."""
    if isinstance(old, Leaf) or isinstance(new, Leaf):
        same = isinstance(old, Leaf) and isinstance(new, Leaf) and old.kind == new.kind
        return None if same else (old.name if isinstance(old, Leaf) else _name_of(new))
    if old.kind is not new.kind or old.keys != new.keys or len(old.items) != len(new.items):
        return "the number, names or containers of the arguments"
    for a, b in zip(old.items, new.items, strict=True):
        found = first_difference(a, b)
        if found is not None:
            return found
    return None


def _name_of(tree: Tree) -> str:
    return tree.name if isinstance(tree, Leaf) else "the containers of the arguments"


class TensorSpec:
    """What a replay checks of one tensor argument."""

    __slots__ = ("base", "chain", "device", "name", "requires_grad", "source", "type", "variables")

    def __init__(self, tensor: TensorBase, name: str, source: int) -> None:
        version = tensor._storage.version
        self.name = name
        self.type: Type = tensor._type
        self.base: Type = version.node.type
        self.chain: Chain = tensor._chain
        self.device: str = version.device
        self.variables = _names(tensor._bindings, version.bindings)
        self.source = source  # which of the program's inputs it is

    def difference(self, tensor: TensorBase) -> tuple[str, object, object] | None:
        """Return (field, what it is, what it was) for the first field that differs, or None."""
        version = tensor._storage.version
        pairs: tuple[tuple[str, object, object], ...] = (
            ("dtype", tensor.dtype.name, self.type.dtype.name),
            ("shape", format_shape(tensor._dims), format_shape(self.type.shape)),
            ("device", version.device, self.device),
            ("base shape", format_shape(version.node.type.shape), format_shape(self.base.shape)),
            ("view", _chain_text(tensor._chain), _chain_text(self.chain)),
            ("variables", _names(tensor._bindings, version.bindings), self.variables),
        )
        for field, now, then in pairs:
            if now != then:
                return field, now, then
        if tensor._chain != self.chain:
            return "view", tensor._chain, self.chain
        return None


def _names(*bindings: Mapping[str, int] | None) -> tuple[str, ...]:
    found: set[str] = set()
    for row in bindings:
        found.update(row or ())
    return tuple(sorted(found))


def _chain_text(chain: Chain) -> str:
    return " of ".join(f"{op.name}{attrs if attrs is not None else ''}" for op, attrs in chain) or (
        "the whole tensor"
    )


@dataclass(frozen=True, slots=True)
class VariableSpec:
    """What a replay checks of a variable argument: the variable, not its value."""

    name: str
    node: Node
    names: tuple[str, ...]

    def difference(self, value: Variable) -> tuple[str, object, object] | None:
        """Return the field that differs, or None."""
        if value.node is not self.node:
            return "variable", value, self.node.attrs
        names = _names(value.bindings)
        return None if names == self.names else ("bound variables", names, self.names)


def variable_spec(value: Variable, name: str) -> VariableSpec:
    """Describe a variable argument."""
    return VariableSpec(name, value.node, _names(value.bindings))


def value_difference(now: Any, then: Any) -> tuple[str, object, object] | None:
    """Compare arguments that are neither tensors nor variables."""
    return None if same_value(now, then) else ("value", now, then)
