"""The meaning of the TENSOR stage: a graph of arrays, evaluated one node after the other."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from tilework.base.errors import AliasError, InternalError, UnsupportedError
from tilework.dtypes import index
from tilework.ir.fold import combine
from tilework.ir.interpret import folds
from tilework.ir.interpret.movement import MOVEMENT, positions
from tilework.ir.interpret.scalars import (
    bitcast_scalars,
    cast_function,
    scalar_from_bits,
    scalar_function,
    zero,
)
from tilework.ir.interpret.value import Value, strides_of
from tilework.ir.node import toposort_above
from tilework.ir.ops import control, math, memory, multi, tensor
from tilework.ir.ops import index as index_ops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tilework.ir.node import Node, OpDef
    from tilework.ir.types import Dim

Binding = Value | int


def evaluate(
    node: Node, bindings: Mapping[Node, Binding], faults: list[str] | None = None
) -> Value:
    """The value of a TENSOR node.

    Args:
        node: The root of the graph.
        bindings: Values of the leaves (BUFFER, PARAM, VARIABLE); any other node may be given too.
        faults: Gets a line for each GATHER or SCATTER whose indices lie outside.

    Returns:
        The value; of a float reduction the one that folds in ascending order.

    Raises:
        UnsupportedError: An op has no meaning in the TENSOR stage, or a leaf has no value.
    """
    return evaluate_all([node], bindings, faults)[0]


def evaluate_all(
    nodes: Sequence[Node], bindings: Mapping[Node, Binding], faults: list[str] | None = None
) -> list[Value]:
    """The values of several nodes, shared parts evaluated once."""
    state = _Evaluation(bindings, [] if faults is None else faults)
    return [state.value(node) for node in nodes]


class _Evaluation:
    """Values of the nodes met so far."""

    def __init__(self, bindings: Mapping[Node, Binding], faults: list[str]) -> None:
        self.values: dict[Node, Value] = {
            node: bound if isinstance(bound, Value) else Value.scalar(bound, index)
            for node, bound in bindings.items()
        }
        self.faults = faults

    def value(self, root: Node) -> Value:
        if root not in self.values:
            for node in toposort_above([root], self.values):
                if node not in self.values:
                    self.values[node] = self._compute(node)
        return self.values[root]

    def size(self, dim: Dim) -> int:
        """The number that a size stands for."""
        return dim if isinstance(dim, int) else int(self.value(dim).item())

    def shape(self, node: Node) -> tuple[int, ...]:
        return tuple([self.size(dim) for dim in node.type.shape])

    def _compute(self, node: Node) -> Value:
        op = node.op
        if op in MOVEMENT:
            return self._move(node)
        if op is math.CONST:
            shape = self.shape(node)
            literal = scalar_from_bits(node.attrs.bits, node.attrs.dtype)
            return Value(shape, node.attrs.dtype, [literal] * prod(shape))
        sources = [self.values[source] for source in node.src]
        if op.elementwise:
            columns = [source.elements for source in sources]
            elements = list(map(scalar_function(node), *columns))
            return Value(sources[0].shape, node.type.dtype, elements)
        if op in _SAME:
            return sources[0]
        if op not in _CASES:
            raise UnsupportedError(
                f"{op.name}: has no value in the TENSOR stage", got=repr(node),
                try_="bind BUFFER, PARAM and VARIABLE nodes to values",
            )  # fmt: skip
        return _CASES[op](self, node, sources)

    def _move(self, node: Node) -> Value:
        source = self.values[node.src[0]]
        shape = self.shape(node)
        places = positions(node.op, node.attrs, source.shape, shape, self.size)
        nothing = zero(source.dtype)
        held = source.elements
        return Value(shape, source.dtype, [nothing if at is None else held[at] for at in places])

    def places_in(self, view: Node, base: Node) -> list[int]:
        """The positions in `base` of the elements of `view`, a chain of movement ops over it."""
        chain: list[Node] = []
        while view is not base:
            if view.op not in MOVEMENT:
                raise InternalError("store: the target is no view of the stored value", got=view)
            chain.append(view)
            view = view.src[0]
        shape = self.shape(base)
        places: list[int] = list(range(prod(shape)))
        for step in reversed(chain):
            new = self.shape(step)
            moved = positions(step.op, step.attrs, shape, new, self.size)
            if None in moved:
                raise AliasError("store: a written view holds elements that are not stored")
            places = [places[at] for at in moved if at is not None]
            shape = new
        return places


def _iota(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    shape = state.shape(node)
    convert = cast_function(index, node.attrs.dtype)
    counts = [convert(at) for at in range(shape[node.attrs.axis])]
    inner = prod(shape[node.attrs.axis + 1 :])
    outer = prod(shape[: node.attrs.axis])
    line = [count for count in counts for _ in range(inner)]
    return Value(shape, node.attrs.dtype, line * outer)


def _bitcast(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    source = sources[0]
    elements = bitcast_scalars(source.elements, source.dtype, node.attrs.dtype)
    return Value(state.shape(node), node.attrs.dtype, elements)


def _lines(shape: tuple[int, ...], axes: Iterable[int]) -> list[list[int]]:
    """For each position along the other axes, the positions of the elements along `axes`."""
    axes = tuple(axes)
    strides = strides_of(shape)

    def offsets(chosen: list[int]) -> list[int]:
        found = [0]
        for axis in chosen:
            steps = [at * strides[axis] for at in range(shape[axis])]
            found = [base + step for base in found for step in steps]
        return found

    inner = offsets(list(axes))
    outer = offsets([axis for axis in range(len(shape)) if axis not in axes])
    return [[base + at for at in inner] for base in outer]


def _reduce(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    source, fold, dtype = sources[0], node.attrs.fold, node.type.dtype
    lines = _lines(source.shape, node.attrs.axes)
    if folds.is_fused(node.src[0], fold):
        left, right = (state.values[operand].elements for operand in node.src[0].src)
        elements = [
            folds.fold_products(dtype, [left[at] for at in line], [right[at] for at in line])
            for line in lines
        ]
    else:
        held = source.elements
        elements = [folds.fold_all(fold, dtype, [held[at] for at in line]) for line in lines]
    return Value(state.shape(node), dtype, elements)


def _scan(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    source, attrs = sources[0], node.attrs
    elements: list[Any] = [None] * len(source.elements)
    for places in _lines(source.shape, (attrs.axis,)):
        line = places[::-1] if attrs.reverse else places
        held = [source.elements[at] for at in line]
        found = folds.running(attrs.fold, source.dtype, held, exclusive=attrs.exclusive)
        for at, element in zip(line, found, strict=True):
            elements[at] = element
    return Value(source.shape, source.dtype, elements)


def _sort(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    source, attrs = sources[0], node.attrs
    shape = state.shape(node)
    elements: list[Any] = [None] * prod(shape)
    stop = attrs.first + attrs.count if attrs.count >= 0 else None
    targets = _lines(shape, (attrs.axis,))
    for line, target in zip(_lines(source.shape, (attrs.axis,)), targets, strict=True):
        held = [source.elements[at] for at in line]
        order = folds.sorting_positions(held, descending=attrs.descending)
        for at, position in zip(target, order[attrs.first : stop], strict=True):
            elements[at] = held[position] if attrs.values else position
    return Value(shape, node.type.dtype, elements)


def _gather_places(
    state: _Evaluation, node: Node, x: Value, indices: list[Value]
) -> list[int | None]:
    """Positions in x that GATHER reads, in order; None where an index lies outside."""
    axis, count = node.attrs.axis, len(indices)
    strides = strides_of(x.shape)
    sizes = x.shape[axis : axis + count]
    middle: list[int | None] = []
    for place in zip(*[value.elements for value in indices], strict=True):
        inside = all(0 <= at < size for at, size in zip(place, sizes, strict=True))
        steps = zip(place, strides[axis : axis + count], strict=True)
        middle.append(sum(at * stride for at, stride in steps) if inside else None)
    if None in middle:
        state.faults.append(f"{node.op.name}: an index lies outside of the shape {x.shape}")
    before = [at * prod(x.shape[axis:]) for at in range(prod(x.shape[:axis]))]
    after = range(prod(x.shape[axis + count :]))
    return [
        None if at is None else start + at + end
        for start in before
        for at in middle
        for end in after
    ]


def _gather(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    x = sources[0]
    nothing = zero(x.dtype)
    places = _gather_places(state, node, x, sources[1:])
    elements = [nothing if at is None else x.elements[at] for at in places]
    return Value(state.shape(node), x.dtype, elements)


def _scatter(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    x, updates = sources[0], sources[1]
    elements = list(x.elements)
    fold = node.attrs.fold
    combine = None if fold is None else folds.fold_function(fold, x.dtype)
    places = _gather_places(state, node, x, sources[2:])
    for at, element in zip(places, updates.elements, strict=True):
        if at is not None:
            elements[at] = element if combine is None else combine(elements[at], element)
    return Value(x.shape, x.dtype, elements)


def _store(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    return sources[1]


def _after(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    """The first source with the STOREs into views of it done, in order."""
    base, current = node.src[0], sources[0]
    elements = list(current.elements)
    for effect, written in zip(node.src[1:], sources[1:], strict=True):
        if effect.op is not memory.STORE:
            continue
        gate = state.values[effect.src[2]].elements if len(effect.src) > 2 else None
        for number, at in enumerate(state.places_in(effect.src[0], base)):
            if gate is None or gate[number if len(gate) > 1 else 0]:
                elements[at] = written.elements[number]
    return Value(current.shape, current.dtype, elements)


def _bind(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    return sources[1]


def _unshard(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    """Each part at its place; replicas are equal, so any of them counts."""
    shape = state.shape(node)
    strides = strides_of(shape)
    elements: list[Any] = [None] * prod(shape)
    for part, box in zip(sources, node.attrs.boxes, strict=True):
        places = [0]
        for axis, cut in enumerate(box):
            start, stop = (0, shape[axis]) if cut is None else cut
            steps = [at * strides[axis] for at in range(start, stop)]
            places = [base + step for base in places for step in steps]
        for at, element in zip(places, part.elements, strict=True):
            elements[at] = element
    return Value(shape, node.type.dtype, elements)


def _all_reduce(state: _Evaluation, node: Node, sources: list[Value]) -> Value:
    """Folded in the order of the devices, which is one of those that are allowed."""
    total = sources[0]
    step = scalar_function(combine(node.attrs.fold, node.src[0], node.src[0]))
    for other in sources[1:]:
        elements = list(map(step, total.elements, other.elements))
        total = Value(total.shape, total.dtype, elements)
    return total


_SAME = frozenset(
    [
        tensor.CONTIGUOUS, tensor.DETACH, tensor.COPY, multi.RESHARD, control.STAGE, memory.SINK,
    ]
)  # fmt: skip
_CASES: dict[OpDef, Callable[[_Evaluation, Node, list[Value]], Value]] = {
    tensor.IOTA: _iota,
    math.BITCAST: _bitcast,
    tensor.REDUCE: _reduce,
    tensor.SCAN: _scan,
    tensor.SORT: _sort,
    tensor.GATHER: _gather,
    tensor.SCATTER: _scatter,
    memory.STORE: _store,
    memory.AFTER: _after,
    index_ops.BIND: _bind,
    multi.UNSHARD: _unshard,
    multi.ALLREDUCE: _all_reduce,
}
#: Ops whose meaning in the TENSOR stage is given here; leaves are bound by the caller.
COVERED = frozenset([*_CASES, *_SAME, *MOVEMENT, math.CONST])
LEAVES = frozenset([memory.BUFFER, memory.PARAM, index_ops.VARIABLE])
