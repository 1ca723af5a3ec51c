"""Random TENSOR graphs, and running a schedule by the interpreter, call by call."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any
from typing import cast as typed

from tilework.dtypes import bool_, float32, index, int8, int16, int32
from tilework.ir.build import cast, const
from tilework.ir.interpret import Value, compile_kernel, evaluate_all
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import dims
from tilework.schedule.pipeline import build_schedule
from tilework.schedule.schedule import DEFAULT_LIMITS, Limits, Schedule, SlotKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Dim, Shape

POISON = 0xDB


def param(slot: int, shape: Shape, dtype: DType = int32, device: str = "CPU") -> Node:
    return memory.PARAM(attrs=memory.ParamAttrs(slot, shape, dtype, device))


def sizes_of(node: Node) -> tuple[int, ...]:
    """The shape of a node whose extents are numbers."""
    assert all(isinstance(size, int) for size in node.type.shape)
    return typed("tuple[int, ...]", node.type.shape)


def greatest_size(node: Node) -> int:
    """How many elements a node has at most."""
    return dims.greatest(dims.product(node.type.shape))


def to_bytes(value: Value) -> bytes:
    size = value.dtype.itemsize
    return b"".join(bits.to_bytes(size, "little") for bits in value.bits())


def run_schedule(
    schedule: Schedule, inputs: Sequence[bytes], variables: Mapping[str, int] | None = None
) -> tuple[list[bytes], list[int]]:
    """Contents of all slots after the calls have run one after the other, and faults."""
    slots = [bytearray([POISON]) * slot.size_bytes for slot in schedule.slots]
    for slot, given in zip(slots, inputs, strict=False):
        slot[: len(given)] = given
    faults: list[int] = []
    for call in schedule.linear.src:
        views = [view_of(argument, slots, variables) for argument in call.src[1:]]
        body = call.src[0]
        if body.op is tensor.COPY:
            views[0][:] = views[1]
        else:
            faults += compile_kernel(body).run(views, variables or {})
    return [bytes(slot) for slot in slots], faults


def view_of(
    argument: Node, slots: list[bytearray], variables: Mapping[str, int] | None
) -> memoryview:
    offset = 0
    base = argument
    if base.op is memory.BUFFER_VIEW:
        offset = base.attrs.offset_bytes
        base = base.src[0]
    size = greatest_size(argument) * argument.type.dtype.itemsize
    return memoryview(slots[base.attrs.slot])[offset : offset + size]


def random_value(rng: random.Random, shape: tuple[int, ...], dtype: DType) -> Value:
    if dtype is bool_:
        return Value(shape, dtype, [rng.random() < 0.5 for _ in range(prod(shape))])
    numbers = [rng.randrange(-4, 5) for _ in range(prod(shape))]
    return Value(shape, dtype, [float(x) for x in numbers] if dtype.is_float else numbers)


def check(
    outputs: Sequence[Node],
    bindings: Mapping[Node, Value],
    limits: Limits = DEFAULT_LIMITS,
) -> Schedule:
    """Schedule `outputs`, run the schedule, and compare with the meaning of the graph."""
    function = memory.SINK(*outputs)
    schedule = build_schedule(function, limits)
    compare(schedule, outputs, bindings)
    return schedule


def compare(schedule: Schedule, outputs: Sequence[Node], bindings: Mapping[Node, Value]) -> None:
    expected = evaluate_all(list(outputs), dict(bindings))
    by_slot = {node.attrs.slot: value for node, value in bindings.items()}
    count = sum(slot.kind is SlotKind.INPUT for slot in schedule.slots)
    inputs = [to_bytes(by_slot[slot]) if slot in by_slot else b"" for slot in range(count)]
    slots, faults = run_schedule(schedule, inputs)
    assert faults == []
    for number, (slot, value) in enumerate(zip(schedule.outputs, expected, strict=True)):
        got = slots[slot][: len(to_bytes(value))]
        assert got == to_bytes(value), (number, value.elements, decode_all(got, value))
    for slot in range(count):
        if slot not in schedule.outputs:
            assert slots[slot] == inputs[slot], f"input {slot} was changed"


def decode_all(raw: bytes, value: Value) -> list[Any]:
    from tilework.dtypes import decode

    size = value.dtype.itemsize
    return [
        decode(int.from_bytes(raw[at : at + size], "little"), value.dtype)
        for at in range(0, len(raw), size)
    ]


def joined(parts: Sequence[Node], axis: int) -> Node:
    """Each part padded to the whole, and the right one chosen by position."""
    total: Dim = 0
    ends = [total := dims.add(total, part.type.shape[axis]) for part in parts]
    padded = []
    for part, end in zip(parts, ends, strict=True):
        pads: list[tuple[Dim, Dim]] = [(0, 0)] * len(part.type.shape)
        pads[axis] = (dims.sub(end, part.type.shape[axis]), dims.sub(total, end))
        padded.append(tensor.PAD(part, attrs=tensor.PadAttrs(tuple(pads))))
    result = padded[-1]
    position = tensor.IOTA(attrs=tensor.IotaAttrs(result.type.shape, axis, index))
    for part, end in zip(padded[-2::-1], ends[-2::-1], strict=True):
        result = math.WHERE(math.LT(position, spread(end, result.type.shape)), part, result)
    return result


def spread(size: Dim, shape: Shape) -> Node:
    """A size as a value of that shape."""
    if isinstance(size, int):
        return const(size, index, shape)
    ones = tensor.RESHAPE(size, attrs=tensor.ShapeAttrs((1,) * len(shape)))
    return tensor.EXPAND(ones, attrs=tensor.ShapeAttrs(shape))


@dataclass
class Graphs:
    """Makes random graphs of about `depth` ops."""

    rng: random.Random
    most: int = 64
    nodes: list[Node] = field(default_factory=list)
    storages: list[Node] = field(default_factory=list)
    bindings: dict[Node, Value] = field(default_factory=dict)

    def shape(self) -> tuple[int, ...]:
        sizes = (1, 2, 3, 4) if self.rng.random() < 0.9 else (0, 1, 2)
        return tuple(self.rng.choice(sizes) for _ in range(self.rng.randrange(0, 4)))

    def leaf(self) -> Node:
        rng = self.rng
        if rng.random() < 0.75:
            node = param(len(self.bindings), self.shape())
            self.bindings[node] = random_value(rng, sizes_of(node), int32)
            self.storages.append(node)
            return node
        shape = self.shape()
        if shape and rng.random() < 0.6:
            axis = rng.randrange(len(shape))
            return tensor.IOTA(attrs=tensor.IotaAttrs(shape, axis, int32))
        return const(rng.randrange(-3, 4), int32, shape)

    def any(self) -> Node:
        return self.rng.choice(self.nodes[-6:] if self.rng.random() < 0.7 else self.nodes)

    def build(self, depth: int) -> list[Node]:
        rng = self.rng
        self.nodes = [self.leaf() for _ in range(rng.randrange(1, 4))]
        moves = (
            self.elementwise, self.elementwise, self.elementwise, self.move, self.move, self.move,
            self.reduce, self.reduce, self.window, self.gather, self.scatter, self.write,
            self.write, self.scan, self.other, self.product, self.join,
        )  # fmt: skip
        for _ in range(depth):
            made = rng.choice(moves)()
            if made is not None and greatest_size(made) <= self.most:
                self.nodes.append(made)
        count = rng.randrange(1, 4)
        # What replaced an older version is used instead of it, as a tensor would.
        candidates = [n for n in self.nodes if n.op is not memory.PARAM] or self.nodes
        chosen = [rng.choice(candidates[-5:]) for _ in range(count)]
        latest = [s for s in self.storages if s.op is memory.AFTER]
        return chosen + latest

    def same_shape(self, node: Node) -> Node:
        others = [n for n in self.nodes if n.type.shape == node.type.shape]
        return self.rng.choice(others) if others else node

    def elementwise(self) -> Node:
        rng = self.rng
        x = self.any()
        y = self.same_shape(x)
        choice = rng.randrange(6)
        if choice == 0:
            return math.ADD(x, y)
        if choice == 1:
            return math.MUL(x, y)
        if choice == 2:
            return math.MAXIMUM(x, math.NEG(y))
        if choice == 3:
            return math.WHERE(math.LT(x, y), math.SUB(y, x), x)
        if choice == 4:
            return cast(cast(math.MINIMUM(x, const(100, int32, x.type.shape)), int8), int32)
        return math.MOD(x, const(rng.choice((2, 3, 5)), int32, x.type.shape))

    def move(self) -> Node:
        return self.moved(self.any(), injective=False)

    def moved(self, x: Node, *, injective: bool) -> Node:
        rng = self.rng
        shape = sizes_of(x)
        choice = rng.choice(("reshape", "permute", "shrink", "flip", "expand", "pad"))
        if choice == "reshape":
            return tensor.RESHAPE(x, attrs=tensor.ShapeAttrs(self.reshaped(shape)))
        if choice == "permute":
            order = list(range(len(shape)))
            rng.shuffle(order)
            return tensor.PERMUTE(x, attrs=tensor.AxesAttrs(tuple(order)))
        if choice == "shrink":
            bounds = []
            for size in shape:
                start = rng.randrange(0, size + 1) if rng.random() < 0.5 and size else 0
                stop = rng.randrange(start, size + 1) if rng.random() < 0.2 else size
                bounds.append((start, stop, rng.choice((1, 1, 2))))
            return tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(tuple(bounds)))
        if choice == "flip":
            axes = tuple(a for a in range(len(shape)) if rng.random() < 0.5)
            return tensor.FLIP(x, attrs=tensor.AxesAttrs(axes))
        if injective:
            return x
        if choice == "expand":
            wide = tuple(rng.choice((2, 3)) if s == 1 and rng.random() < 0.7 else s for s in shape)
            return tensor.EXPAND(x, attrs=tensor.ShapeAttrs(wide))
        pads = tuple((rng.randrange(0, 3), rng.randrange(0, 2)) for _ in shape)
        return tensor.PAD(x, attrs=tensor.PadAttrs(pads))

    def reshaped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        rng = self.rng
        count = prod(shape)
        if count == 0:
            return (0, *shape[1:]) if rng.random() < 0.5 else (2, 0)
        sizes = []
        while count > 1:
            divisors = [d for d in range(2, count + 1) if count % d == 0]
            size = rng.choice(divisors)
            sizes.append(size)
            count //= size
        if rng.random() < 0.3:
            sizes.insert(rng.randrange(len(sizes) + 1), 1)
        return tuple(sizes)

    def reduce(self) -> Node:
        rng = self.rng
        x = self.any()
        axes = tuple(a for a in range(len(x.type.shape)) if rng.random() < 0.5)
        if not axes:
            return x
        fold = rng.choice((Fold.ADD, Fold.ADD, Fold.MAX, Fold.MIN, Fold.MUL))
        reduced = tensor.REDUCE(x, attrs=tensor.ReduceAttrs(fold, axes))
        if rng.random() < 0.6:
            kept = tuple(1 if a in axes else s for a, s in enumerate(x.type.shape))
            back = tensor.RESHAPE(reduced, attrs=tensor.ShapeAttrs(kept))
            spread = tensor.EXPAND(back, attrs=tensor.ShapeAttrs(x.type.shape))
            return math.SUB(x, spread)
        return reduced

    def product(self) -> Node | None:
        x, y = self.any(), self.any()
        if len(x.type.shape) != 2 or len(y.type.shape) != 2:
            return None
        if x.type.shape[1] != y.type.shape[0]:
            return None
        (m, k), n = x.type.shape, y.type.shape[1]
        wide = tensor.ShapeAttrs((m, k, n))
        left = tensor.EXPAND(tensor.RESHAPE(x, attrs=tensor.ShapeAttrs((m, k, 1))), attrs=wide)
        right = tensor.EXPAND(tensor.RESHAPE(y, attrs=tensor.ShapeAttrs((1, k, n))), attrs=wide)
        return tensor.REDUCE(math.MUL(left, right), attrs=tensor.ReduceAttrs(Fold.ADD, (1,)))

    def join(self) -> Node | None:
        """Values side by side, or stacked along a new axis, as tensors write it."""
        rng = self.rng
        x = self.any()
        parts = [x, *[self.same_shape(x) for _ in range(rng.randrange(1, 3))]]
        if not x.type.shape or rng.random() < 0.5:
            axis = rng.randrange(len(x.type.shape) + 1)
            raised = (*x.type.shape[:axis], 1, *x.type.shape[axis:])
            parts = [tensor.RESHAPE(part, attrs=tensor.ShapeAttrs(raised)) for part in parts]
        else:
            axis = rng.randrange(len(x.type.shape))
        return joined(parts, axis)

    def window(self) -> Node | None:
        rng = self.rng
        x = self.any()
        shape = sizes_of(x)
        axes = [a for a, s in enumerate(shape) if s >= 2]
        if not axes:
            return None
        axis = rng.choice(axes)
        size, stride, dilation = rng.choice((1, 2)), rng.choice((1, 2)), rng.choice((1, 2))
        reach = (size - 1) * dilation + 1
        if reach > shape[axis]:
            return None
        count = (shape[axis] - reach) // stride + 1
        attrs = tensor.WindowAttrs(axis, count, size, stride, dilation)
        made = tensor.WINDOW(x, attrs=attrs)
        if rng.random() < 0.5:
            return made
        back = tensor.WindowAttrs(axis, shape[axis], size, stride, dilation)
        apart = tensor.UNWINDOW(math.ADD(made, made), attrs=back)
        return tensor.REDUCE(apart, attrs=tensor.ReduceAttrs(Fold.ADD, (axis + 1,)))

    def indices(self, size: int) -> Node:
        """An index tensor within [0, size)."""
        source = self.any()
        dtype = self.rng.choice((index, int32, int16))
        wrapped = math.MOD(source, const(size, int32, source.type.shape))
        return cast(wrapped, dtype)

    def gather(self) -> Node | None:
        x = self.any()
        axes = [a for a, s in enumerate(sizes_of(x)) if s >= 1]
        if not axes:
            return None
        axis = self.rng.choice(axes)
        count = 2 if axis + 1 < len(x.type.shape) and self.rng.random() < 0.3 else 1
        first = self.indices(sizes_of(x)[axis])
        found = [first]
        if count == 2:
            if x.type.shape[axis + 1] == 0:
                return None
            other = math.MOD(first, const(sizes_of(x)[axis + 1], first.dtype, first.type.shape))
            found.append(other)
        return tensor.GATHER(x, *found, attrs=tensor.GatherAttrs(axis))

    def scatter(self) -> Node | None:
        rng = self.rng
        x = self.any()
        axes = [a for a, s in enumerate(sizes_of(x)) if s >= 1]
        if not axes:
            return None
        axis = rng.choice(axes)
        where = self.indices(sizes_of(x)[axis])
        gathered = tensor.GATHER(x, where, attrs=tensor.GatherAttrs(axis))
        if prod(sizes_of(gathered)) > self.most:
            return None
        updates = math.ADD(gathered, const(1, int32, gathered.type.shape))
        fold = rng.choice((None, Fold.ADD, Fold.MAX))
        made = tensor.SCATTER(x, updates, where, attrs=tensor.GatherAttrs(axis, fold))
        if x in self.storages and rng.random() < 0.6:
            made = memory.AFTER(x, memory.STORE(x, made))
            self.storages[self.storages.index(x)] = made
        return made

    def scan(self) -> Node | None:
        rng = self.rng
        x = self.any()
        if not x.type.shape:
            return None
        attrs = tensor.ScanAttrs(
            rng.choice((Fold.ADD, Fold.MAX)),
            rng.randrange(len(x.type.shape)),
            rng.random() < 0.4,
            rng.random() < 0.4,
        )
        return tensor.SCAN(x, attrs=attrs)

    def write(self) -> Node | None:
        """A write through a view; later ops may read the new and the old version."""
        rng = self.rng
        if rng.random() < 0.3 or not self.storages:
            value = self.any()
            if value.op in (memory.PARAM, memory.AFTER, tensor.DETACH):
                return None
            old = value
            at = None
        else:
            at = rng.randrange(len(self.storages))
            old = self.storages[at]
        target = old
        for _ in range(rng.randrange(0, 3)):
            target = self.moved(target, injective=True)
        source = self.same_shape(target)
        if source.type.shape != target.type.shape or source.dtype is not target.dtype:
            source = const(7, int32, target.type.shape)
        if rng.random() < 0.5:
            source = math.ADD(source, target)
        if rng.random() < 0.3:
            source = tensor.FLIP(
                source, attrs=tensor.AxesAttrs(tuple(range(len(source.type.shape))))
            )
        made = memory.AFTER(old, memory.STORE(target, source))
        if at is None:
            self.storages.append(made)
        else:
            self.storages[at] = made
        return made

    def other(self) -> Node | None:
        rng = self.rng
        x = self.any()
        choice = rng.randrange(5)
        if choice == 0:
            return tensor.CONTIGUOUS(x)
        if choice == 1:
            return tensor.DETACH(x)
        if choice == 2:
            small = math.MAXIMUM(
                math.MINIMUM(x, const(9, int32, x.type.shape)), const(-9, int32, x.type.shape)
            )
            halves = math.MUL(cast(small, float32), const(0.5, float32, x.type.shape))
            return cast(halves, int32)
        if choice == 3 and x.type.shape:
            narrow = math.BITCAST(x, attrs=math.CastAttrs(int16))
            return cast(narrow, int32)
        shape = sizes_of(x)
        if choice == 4 and shape and shape[-1] % 2 == 0 and shape[-1]:
            narrow = cast(x, int16)
            return math.BITCAST(narrow, attrs=math.CastAttrs(int32))
        return None
