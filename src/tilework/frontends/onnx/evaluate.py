"""Apply the operator rules to a graph.

What is known on the host stays there: an operator whose operands are all small host values is
computed by `host.py`, so shapes, axes and counts are numbers by the time a rule asks for them.
Everything else becomes tensors, lazily; nothing runs until the caller realizes the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tilework.base.errors import ModelFileError, TileworkError, UnsupportedError
from tilework.base.forks import new_rlock
from tilework.engine.capture import is_capturing
from tilework.frontends.onnx import ops as _families  # importing them fills the table  # noqa: F401
from tilework.frontends.onnx.call import Call
from tilework.frontends.onnx.element_types import dtype_of_array
from tilework.frontends.onnx.expand import definition_of
from tilework.frontends.onnx.graph import Function, Graph, Model, Node, Reference
from tilework.frontends.onnx.host import HOST_LIMIT, find_host_rule
from tilework.frontends.onnx.registry import OpRule, find_rule
from tilework.frontends.onnx.standard import check_types
from tilework.frontends.onnx.values import HostValue, Value, as_device_value
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.frontends.onnx.values import Array

T = TypeVar("T")

# Folding these would only store what one number and a shape say, or freeze a random draw.
_NEVER_FOLDED = frozenset({
    "Expand", "Tile", "ConstantOfShape", "Range", "EyeLike", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout",
})  # fmt: skip

# Folding these would store bytes as floats; products of what they give are computed in bytes.
_WIDENING = frozenset({"DequantizeLinear"})


class DataDependentError(UnsupportedError):
    """A rule needs values that only a run of the device gives, where that is not allowed."""


class Scope:
    """Names and their values: those of one graph, then those of the graph around it."""

    __slots__ = ("_attributes", "_parent", "values")

    def __init__(
        self,
        values: dict[str, Value],
        parent: Scope | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.values = values
        self._parent = parent
        self._attributes = attributes

    def find(self, name: str) -> Value:
        """Return the value of a name; the loader has proved that it exists."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope._parent
        raise KeyError(name)

    def attributes_of(self, node: Node) -> Mapping[str, Any]:
        """Return the node's attributes, with references to the function's own filled in."""
        if not any(isinstance(value, Reference) for value in node.attributes.values()):
            return node.attributes
        given = self._function_attributes()
        return {
            name: given[value.name] if isinstance(value, Reference) else value
            for name, value in node.attributes.items()
            if not isinstance(value, Reference) or value.name in given
        }

    def _function_attributes(self) -> Mapping[str, Any]:
        scope: Scope | None = self
        while scope is not None:
            if scope._attributes is not None:
                return scope._attributes
            scope = scope._parent
        return {}


def last_uses(graph: Graph) -> dict[int, tuple[str, ...]]:
    """Return which names of the graph are read for the last time by which node."""
    kept = {info.name for info in graph.outputs}
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        names = set(node.inputs).union(*(inner.free_names() for inner in node.subgraphs()))
        for name in (*names, *node.outputs):
            last[name] = index
    dead: dict[int, list[str]] = {}
    for name, index in last.items():
        if name not in kept:
            dead.setdefault(index, []).append(name)
    return {index: tuple(names) for index, names in dead.items()}


def _is_bytes(value: Value) -> bool:
    """Does a constant hold integers of a byte or less?"""
    if not isinstance(value, (HostValue, Tensor)):
        return False
    dtype = dtype_of_array(value.array) if isinstance(value, HostValue) else value.dtype
    return dtype is not None and dtype.is_integer and dtype.itemsize == 1


class Program:
    """A model made ready: constants as values, folded once, and the order in which values die.

    Args:
        model: the model.
        device: where its tensors live; None is the default device.
    """

    def __init__(self, model: Model, device: str | None) -> None:
        self.model = model
        self.device = device
        self._constants: dict[int, dict[str, Value]] = {}
        self._last_uses: dict[int, dict[int, tuple[str, ...]]] = {}
        self._memo: dict[tuple[int, str], Any] = {}
        self._folded: dict[str, Value] | None = None
        self._constant_ids: frozenset[int] = frozenset()
        self.folded_nodes: frozenset[int] = frozenset()
        self.has_constants = False
        self._lock = new_rlock()

    def constants(self, graph: Graph) -> dict[str, Value]:
        """Return the graph's initialisers as values, made once."""
        with self._lock:
            found = self._constants.get(id(graph))
            if found is None:
                found = {name: HostValue(array) for name, array in graph.constants.items()}
                self._constants[id(graph)] = found
            return found

    def dead_after(self, graph: Graph) -> dict[int, tuple[str, ...]]:
        """Return `last_uses` of the graph, computed once."""
        found = self._last_uses.get(id(graph))
        if found is None:
            found = self._last_uses[id(graph)] = last_uses(graph)
        return found

    def remember(self, node: Node, key: str, make: Callable[[], T]) -> T:
        """Return what `make` gave the first time for this node and key."""
        with self._lock:
            place = (id(node), key)
            if place in self._memo:
                found: T = self._memo[place]
                return found
            made = make()
            if not is_capturing():  # what a capture makes belongs to it
                self._memo[place] = made
            return made

    def folded(self) -> dict[str, Value]:
        """Return every value of the graph that depends on constants alone, computed once.

        Results that later nodes read are realized together, so that no call computes them again.
        """
        with self._lock:
            if self._folded is None:
                self._folded = self._fold()
                self._constant_ids = frozenset(id(value) for value in self._folded.values())
            return self._folded

    def is_constant(self, value: Value) -> bool:
        """Whether `value` is one of the folded constants."""
        return id(value) in self._constant_ids

    def _fold(self) -> dict[str, Value]:
        graph = self.model.graph
        known: dict[str, Value] = dict(self.constants(graph))
        evaluator = Evaluator(self, may_read=True)
        scope = Scope(known)
        rest: set[str] = {info.name for info in graph.outputs}
        done: set[int] = set()
        for node in graph.nodes:
            if self._is_foldable(node, known):
                evaluator.run_node(node, scope)
                done.add(id(node))
            else:
                rest.update(node.inputs)
                rest.update(*(inner.free_names() for inner in node.subgraphs()))
        self.folded_nodes = frozenset(done)
        stored = {name: value for name, value in known.items() if name in rest}
        fresh = [value for value in stored.values() if isinstance(value, Tensor)]
        if fresh:
            Tensor.realize(*fresh)
        return stored

    def _is_foldable(self, node: Node, known: Mapping[str, Value]) -> bool:
        if node.domain or any(True for _ in node.subgraphs()):
            return False
        if not node.inputs and not node.op.startswith("Constant"):
            return False
        if node.op in _NEVER_FOLDED and find_host_rule("", node.op) is None:
            return False
        operands = [known.get(name) for name in node.inputs if name]
        if not all(isinstance(value, (HostValue, Tensor)) for value in operands):
            return False
        if node.op in _WIDENING and _is_bytes(operands[0]):
            return False
        return node.op not in _NEVER_FOLDED or all(
            isinstance(value, HostValue) and value.array.size <= HOST_LIMIT for value in operands
        )


class Evaluator:
    """One evaluation of a program.

    Args:
        program: the model and its constants.
        may_read: whether a rule may bring values from the device; a capture may not.
    """

    def __init__(self, program: Program, *, may_read: bool) -> None:
        self._program = program
        self._may_read = may_read
        self.device = program.device

    def run(self, inputs: Mapping[str, Value]) -> list[Value]:
        """Evaluate the model's graph and return its outputs in order.

        An input that replaces an initialiser makes what was folded from it void.
        """
        graph = self._program.model.graph
        if graph.constants.keys() & inputs.keys():
            return self._run(graph, Scope({**self._program.constants(graph), **inputs}))
        known = self._program.folded()
        return self._run(graph, Scope({**known, **inputs}), skip=self._program.folded_nodes)

    def run_subgraph(self, graph: Graph, inputs: Sequence[Value], outer: Scope) -> list[Value]:
        """Evaluate a branch or a body."""
        values = dict(self._program.constants(graph))
        values.update(zip((info.name for info in graph.inputs), inputs, strict=False))
        return self._run(graph, Scope(values, outer))

    def _run(self, graph: Graph, scope: Scope, skip: frozenset[int] = frozenset()) -> list[Value]:
        dead = self._program.dead_after(graph)
        for index, node in enumerate(graph.nodes):
            if id(node) not in skip:
                self.run_node(node, scope)
            for name in dead.get(index, ()):
                scope.values.pop(name, None)
        return [scope.find(info.name) for info in graph.outputs]

    def run_node(self, node: Node, scope: Scope) -> None:
        """Evaluate one node and bind its outputs in the scope."""
        operands = [scope.find(name) if name else None for name in node.inputs]
        try:
            results = self._apply(node, scope, operands)
        except TileworkError as error:
            if not getattr(error, "__notes__", None):
                error.add_note(f"in the ONNX node {node}, which gives {', '.join(node.outputs)}")
            raise
        except (ValueError, IndexError, ZeroDivisionError, OverflowError) as error:
            # Sizes, axes and counts that do not fit are found where they are used.
            raise ModelFileError(
                f"onnx: {node} cannot be computed from what it is given", got=str(error)
            ) from error
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                scope.values[name] = value

    def _apply(self, node: Node, scope: Scope, operands: list[Value]) -> list[Value]:
        call = Call(node, self, scope, operands)
        rule = find_rule(node.domain, node.op, node.version)
        function = self._program.model.functions.get(node.key)
        if function is None:
            if rule is not None:
                rule.check(operands, node)
            check_types(node, operands)
        known = self._known_operands(operands)
        host_rule = None if known is None else find_host_rule(node.domain, node.op)
        if known is not None and host_rule is not None:
            result = host_rule(call, *known)
            if result is not None:
                return _as_values(result)
        if function is not None:
            return self._run_function(function, call, operands)
        if rule is None:
            function = definition_of(node, call.attributes, operands)
            if function is not None:
                return self._run_function(function, call, operands)
            raise UnsupportedError(f"onnx: there is no rule for {node}")
        results = _as_values(rule.function(call, *self._operands(rule, call, operands)))
        if node.domain:
            _check_asked(call)
        return results

    def _operands(self, rule: OpRule, call: Call, operands: list[Value]) -> list[Any]:
        if rule.raw:
            return list(operands)
        return [
            None
            if value is None
            else self._array(value, call.node)
            if position in rule.host
            else as_device_value(value, self.device)
            for position, value in enumerate(operands)
        ]

    def _array(self, value: Value, node: Node) -> Array:
        if isinstance(value, HostValue):
            return value.array
        return self.read(as_device_value(value, self.device), node)

    @staticmethod
    def _known_operands(operands: Iterable[Value]) -> list[Array | None] | None:
        arrays: list[Array | None] = []
        size = 0
        for value in operands:
            if value is None:
                arrays.append(None)
            elif isinstance(value, HostValue):
                arrays.append(value.array)
                size += value.array.size
            else:
                return None
        return arrays if size <= HOST_LIMIT else None

    def _run_function(
        self, function: Function, call: Call, operands: Sequence[Value]
    ) -> list[Value]:
        padded = [*operands, *[None] * (len(function.inputs) - len(operands))]
        values: dict[str, Value] = dict(zip(function.inputs, padded, strict=False))
        attributes = {**function.defaults, **call.attributes}
        scope = Scope(values, None, attributes)
        for node in function.nodes:
            self.run_node(node, scope)
        # A definition leaves out outputs that the node does not ask for.
        return [scope.values.get(name) for name in function.outputs]

    # --- what a call asks for ---

    def known(self, operands: Sequence[Value], index: int) -> Array | None:
        """Return the array of an operand that is known on the host."""
        value = operands[index] if index < len(operands) else None
        return value.array if isinstance(value, HostValue) else None

    def read(self, tensor: Tensor, node: Node) -> Array:
        """Bring a tensor to the host.

        Raises:
            DataDependentError: not here; the shapes of this graph depend on its data.
        """
        if not self._may_read:
            raise DataDependentError(f"onnx: {node} needs values that only a run gives")
        return np.asarray(tensor.numpy())

    def once(self, node: Node, key: str, make: Callable[[], T], operands: Sequence[Value]) -> T:
        """Return `make()`, remembered with the program if the operands are its constants."""
        if all(value is None or self._program.is_constant(value) for value in operands):
            return self._program.remember(node, key, make)
        return make()


def _check_asked(call: Call) -> None:
    """Refuse a node with attributes that its rule has not looked at: they could mean anything.

    Those of the standard's operators have been checked when the model was opened.
    """
    rest = sorted(call.node.attributes.keys() - call.asked)
    if rest:
        raise UnsupportedError(
            f"onnx: {call.node} has attributes that tilework does not know", got=", ".join(rest)
        )


def _as_values(result: Any) -> list[Value]:
    if isinstance(result, tuple):
        return [_as_value(item) for item in result]
    return [_as_value(result)]


def _as_value(item: Any) -> Value:
    if isinstance(item, (np.ndarray, np.generic)):
        return HostValue(np.asarray(item))
    found: Value = item
    return found
