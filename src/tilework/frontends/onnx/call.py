"""One operator call, as its rule sees it: attributes, outputs asked for, and the evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from tilework.base.errors import ModelFileError, ShapeError

if TYPE_CHECKING:
    from tilework.frontends.onnx.evaluate import Evaluator, Scope
    from tilework.frontends.onnx.graph import Graph, Node
    from tilework.frontends.onnx.values import Value
    from tilework.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
MISSING: Any = object()
T = TypeVar("T")


class Call:
    """A node being evaluated."""

    __slots__ = ("_attributes", "_evaluator", "_operands", "_scope", "asked", "node")

    def __init__(
        self, node: Node, evaluator: Evaluator, scope: Scope, operands: Sequence[Value]
    ) -> None:
        self.node = node
        self._evaluator = evaluator
        self._scope = scope
        self._operands = operands
        self._attributes = scope.attributes_of(node)
        #: The names of attributes that the rule has asked for.
        self.asked: set[str] = set()

    @property
    def version(self) -> int:
        """The opset version of the node's domain."""
        return self.node.version

    @property
    def device(self) -> str | None:
        """The device that new tensors go to."""
        return self._evaluator.device

    # --- attributes ---

    @property
    def attributes(self) -> Mapping[str, Any]:
        """All attributes of the node, those of an enclosing function filled in."""
        return self._attributes

    def attribute(self, name: str, default: Any = MISSING) -> Any:
        """Return an attribute as it stands.

        Raises:
            ModelFileError: it is absent and has no default.
        """
        self.asked.add(name)
        found = self._attributes.get(name, default)
        if found is MISSING:
            raise ModelFileError(
                f"onnx: node {self.node} lacks the attribute {name!r}",
                got=", ".join(sorted(self._attributes)) or "no attributes",
            )
        return found

    def integer(self, name: str, default: int = MISSING) -> int:
        """Return an integer attribute."""
        return int(self.attribute(name, default))

    def number(self, name: str, default: float = MISSING) -> float:
        """Return a float attribute."""
        return float(self.attribute(name, default))

    def text(self, name: str, default: str = MISSING) -> str:
        """Return a string attribute."""
        return str(self.attribute(name, default))

    @overload
    def integers(self, name: str) -> tuple[int, ...]: ...
    @overload
    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]: ...
    @overload
    def integers(self, name: str, default: None) -> tuple[int, ...] | None: ...
    def integers(self, name: str, default: Any = MISSING) -> tuple[int, ...] | None:
        """Return an attribute that lists integers."""
        found = self.attribute(name, default)
        return None if found is None else tuple(int(value) for value in found)

    def has(self, name: str) -> bool:
        """Whether the node gives the attribute."""
        self.asked.add(name)
        return name in self._attributes

    # --- operands and outputs ---

    def wants(self, output: int) -> bool:
        """Whether anything reads the output at this position."""
        return output < len(self.node.outputs) and bool(self.node.outputs[output])

    @property
    def output_count(self) -> int:
        """How many outputs the node lists."""
        return len(self.node.outputs)

    def known(self, operand: int) -> Array | None:
        """Return an operand's array if it is known on the host, else None."""
        return self._evaluator.known(self._operands, operand)

    def read(self, tensor: Tensor) -> Array:
        """Bring a tensor's values to the host; the run then depends on data."""
        return self._evaluator.read(tensor, self.node)

    def once(self, key: str, make: Callable[[], T], *operands: int) -> T:
        """Return what `make` computes, kept with the model if all `operands` are constants."""
        return self._evaluator.once(self.node, key, make, [self._operands[i] for i in operands])

    # --- subgraphs ---

    def run(self, graph: Graph, inputs: Sequence[Value] = ()) -> list[Value]:
        """Evaluate a subgraph, which sees the names around it."""
        return self._evaluator.run_subgraph(graph, inputs, self._scope)

    # --- meanings that the rules on tensors and on host values share ---

    def slices(
        self,
        shape: Sequence[int],
        starts: Array | None = None,
        ends: Array | None = None,
        axes: Array | None = None,
        steps: Array | None = None,
    ) -> tuple[slice, ...]:
        """Return Python slices for Slice, whose bounds are clamped to the axis."""
        if starts is None or ends is None:  # before version 10 they are attributes
            starts = np.array(self.integers("starts"), np.int64)
            ends = np.array(self.integers("ends"), np.int64)
            listed = self.integers("axes", None)
            axes = None if listed is None else np.array(listed, np.int64)
        wanted = range(len(starts)) if axes is None else [int(axis) for axis in axes]
        strides = [1] * len(starts) if steps is None else [int(step) for step in steps]
        found = [slice(None)] * len(shape)
        places = [place_of(self, axis, len(shape)) for axis in wanted]
        if len(set(places)) < len(places) or 0 in strides:
            raise ModelFileError(
                f"onnx: {self.node} cuts an axis twice, or in steps of 0",
                got=f"axes {places}, steps {strides}",
            )
        for axis, start, end, step in zip(places, starts, ends, strides, strict=True):
            found[axis] = _clamped(int(start), int(end), step, shape[axis])
        return tuple(found)

    def split_sizes(self, shape: Sequence[int], given: Array | None) -> tuple[int, list[int]]:
        """Return the axis and the sizes of Split's parts.

        Raises:
            ShapeError: the sizes do not add up to the axis.
        """
        axis = axis_of(self, len(shape), 0)
        size = shape[axis]
        if given is not None:
            parts = [int(part) for part in given]
        elif self.has("split"):
            parts = list(self.integers("split"))
        else:
            count = self.integer("num_outputs", self.output_count)
            chunk = -(-size // count)
            parts = [max(0, min(chunk, size - index * chunk)) for index in range(count)]
        if sum(parts) != size:
            raise ShapeError(
                f"onnx: {self.node} splits axis {axis} into parts that do not add up",
                got=f"parts {parts}",
                expected=f"a sum of {size}",
            )
        if len(parts) != len(self.node.outputs):
            raise ShapeError(
                f"onnx: {self.node} splits axis {axis} into more or fewer parts than it names",
                got=f"{len(parts)} parts",
                expected=f"{len(self.node.outputs)}, its outputs",
            )
        return axis, parts


def axis_of(call: Call, rank: int, default: int = MISSING) -> int:
    """Return the attribute `axis`, counted from the front.

    Raises:
        ModelFileError: there is no such axis among `rank` of them.
    """
    return place_of(call, call.integer("axis", default), rank)


def split_of(call: Call, rank: int, default: int) -> int:
    """Return the attribute `axis` where it parts axes, so that it may be behind the last one.

    Raises:
        ModelFileError: it is outside.
    """
    axis = call.integer("axis", default)
    return rank if axis == rank else place_of(call, axis, rank)


def place_of(call: Call, axis: int, rank: int) -> int:
    """Return an axis counted from the front.

    Raises:
        ModelFileError: there is no such axis among `rank` of them.
    """
    if not -rank <= axis < rank:
        raise ModelFileError(
            f"onnx: {call.node} names an axis that its operand does not have",
            got=f"axis {axis}",
            expected=f"one in [{-rank}, {rank})",
        )
    return axis % rank


def _clamped(start: int, end: int, step: int, size: int) -> slice:
    start += size if start < 0 else 0
    end += size if end < 0 else 0
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
        return slice(start, max(start, end), step)
    start, end = min(max(start, -1), size - 1), min(max(end, -1), size - 1)
    if start <= end:
        return slice(0, 0, 1)
    return slice(start, None if end < 0 else end, step)
