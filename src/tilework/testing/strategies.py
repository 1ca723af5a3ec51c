"""Random graphs and values for property tests, from a `random.Random` that hypothesis supplies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.base.errors import DTypeError, InternalError, ShapeError
from tilework.dtypes import ALL, DType, bool_, encode, index
from tilework.ir.build import const_bits, const_index
from tilework.ir.interpret import Value, evaluate
from tilework.ir.interpret.scalars import scalar_from_bits
from tilework.ir.node import Node
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import math, memory, tensor
from tilework.ir.pattern import Pat, Rule, Var
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from random import Random

    from tilework.ir.node import OpDef

#: Number of elements of the arrays that graphs work on.
LENGTH = 24
Bindings = dict[Node, Value]


def interesting_bits(random: Random, dtype: DType) -> int:
    """A bit pattern: often zero, one, an extreme, a special or its neighbour."""
    if random.random() < 0.4:
        return random.getrandbits(dtype.bits)
    if dtype.is_float:
        top = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
        one = encode(1.0, dtype)
        plain = random.choice(
            [0, 1, one, one + 1, one - 1, encode(2.0, dtype), encode(0.5, dtype), top, top - 1,
             top | 1 << (dtype.mantissa_bits - 1), 1 << dtype.mantissa_bits,
             encode(random.choice([3.0, 7.0, 1e4, 1.5]), dtype)]
        )  # fmt: skip
        return plain | random.getrandbits(1) << (dtype.bits - 1)
    small = random.choice([0, 1, 2, 3, 7, 8, 10, dtype.maximum, dtype.minimum, dtype.bits - 1])
    return (small * random.choice([1, 1, -1])) & ((1 << dtype.bits) - 1)


def random_value(random: Random, dtype: DType, shape: tuple[int, ...] = (LENGTH,)) -> Value:
    """An array of interesting elements."""
    count = 1
    for size in shape:
        count *= size
    bits = [interesting_bits(random, dtype) for _ in range(count)]
    return Value(shape, dtype, [scalar_from_bits(b, dtype) for b in bits])


def leaf(random: Random, dtype: DType, bindings: Bindings, shape: Any = (LENGTH,)) -> Node:
    """A new array that `bindings` gives a value; integers sometimes have known bounds."""
    attrs = memory.BufferAttrs(len(bindings), shape, dtype, "CPU")
    node = memory.BUFFER(attrs=attrs)
    bindings[node] = random_value(random, dtype, shape)
    if dtype.is_integer and random.random() < 0.3:
        mask = random.choice([1, 3, 7, 31])
        return math.AND(node, const_bits(mask, dtype, shape))
    return node


def literal(random: Random, dtype: DType, shape: Any = (LENGTH,)) -> Node:
    """A CONST."""
    return const_bits(interesting_bits(random, dtype), dtype, shape)


class PatternGraphs:
    """Random nodes that match the pattern of a rule."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.bindings: Bindings = {}

    def instance(self, rule: Rule) -> Node | None:
        """A node that the pattern of `rule` matches, or None if the types chosen do not fit."""
        try:
            return self._build(rule.pattern, self.random.choice(ALL), {})
        except (DTypeError, ShapeError):
            return None

    def _build(self, pattern: Pat | Var, dtype: DType, names: dict[str, Node]) -> Node:
        if pattern.name is not None and pattern.name in names:
            return names[pattern.name]
        if isinstance(pattern, Var):
            node = self._variable(pattern, dtype)
        else:
            op = self.random.choice(pattern.ops)
            attrs = None
            if op is math.CAST or op is math.BITCAST:
                # `dtype` is what comes out; what goes in is drawn anew.
                attrs = math.CastAttrs(dtype)
                dtype = self.random.choice(ALL)
            node = op(*self._operands(op, pattern, dtype, names), attrs=attrs)
        if pattern.name is not None:
            names[pattern.name] = node
        return node

    def _operands(
        self, op: OpDef, pattern: Pat, dtype: DType, names: dict[str, Node]
    ) -> list[Node]:
        found: list[Node] = []
        for position, operand in enumerate(pattern.operands):
            is_condition = op is math.WHERE and position == 0
            found.append(self._build(operand, bool_ if is_condition else dtype, names))
        return found

    def _variable(self, pattern: Var, dtype: DType) -> Node:
        if pattern.ops == (math.CONST,) or (not pattern.ops and self.random.random() < 0.1):
            return literal(self.random, dtype)
        if not pattern.ops and self.bindings and self.random.random() < 0.1:
            known = [node for node in self.bindings if node.dtype is dtype]
            if known:
                return self.random.choice(known)
        return leaf(self.random, dtype, self.bindings)


def same_bits(a: Value, b: Value) -> bool:
    """Are two values equal to the bit, any NaN counting as any other?"""
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    pairs = zip(a.bits(), b.bits(), a.elements, b.elements, strict=True)
    return all(p == q or (x != x and y != y) for p, q, x, y in pairs)


def assert_same_meaning(before: Node, after: Node, bindings: Bindings) -> None:
    """Raise InternalError unless the interpreter gives both nodes the same value."""
    expected, found = evaluate(before, bindings), evaluate(after, bindings)
    if not same_bits(expected, found):
        raise InternalError(
            "judge: two graphs differ",
            got=f"{before!r} is {expected.elements}, {after!r} is {found.elements}",
        )


# --- index arithmetic ----------------------------------------------------------------------------


class IndexGraphs:
    """Random index expressions, built twice: simplified, and as a function of Python integers."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sizes = [random.choice([1, 2, 3, 4, 6, 8]) for _ in range(2)]
        self.variable = index_ops.VARIABLE(
            attrs=index_ops.VariableAttrs("n", random.randint(0, 3), random.randint(3, 6))
        )
        attrs = [index_ops.RangeAttrs(number) for number in range(3)]
        sizes = [const_index(size) for size in self.sizes]
        self.ranges = [
            index_ops.RANGE(size, attrs=at)
            for at, size in zip(attrs, (*sizes, self.variable), strict=True)
        ]

    def environments(self) -> list[dict[Node, int]]:
        """Every value of every range and of the variable."""
        found: list[dict[Node, int]] = []
        low, high = self.variable.attrs.minimum, self.variable.attrs.maximum
        for n in range(low, high + 1):
            for i in range(self.sizes[0]):
                for j in range(self.sizes[1]):
                    places = range(n)
                    found.extend(
                        dict(zip((self.variable, *self.ranges), (n, i, j, k), strict=True))
                        for k in places
                    )
        return found

    def expression(self, depth: int) -> tuple[Node, Any]:
        """A simplified node, and the function of an environment that it must equal."""
        random = self.random
        if depth == 0 or random.random() < 0.15:
            if random.random() < 0.3:
                number = random.choice([0, 1, 2, 3, 4, 5, 8, 12, -1, -3])
                return const_index(number), lambda env: number
            leaf_ = random.choice([*self.ranges, self.variable])
            return leaf_, lambda env: env[leaf_]
        kind = random.choice(["add", "add", "sub", "scale", "mul", "idiv", "mod", "min", "max"])
        x, f = self.expression(depth - 1)
        if kind in ("idiv", "mod"):
            return self._divided(kind, x, f)
        if kind == "scale":
            factor = random.choice([2, 3, 4, 6, 8, -1, -2])
            return simplify.scale(x, factor), lambda env: f(env) * factor
        y, g = self.expression(depth - 1)
        build, apply = _INDEX_OPS[kind]
        return build(x, y), lambda env: apply(f(env), g(env))

    def _divided(self, kind: str, x: Node, f: Any) -> tuple[Node, Any]:
        if self.random.random() < 0.2:
            divisor, g = simplify.add(self.variable, const_index(1)), self._successor
        else:
            number = self.random.choice([1, 2, 3, 4, 6, 8, 12, -2])
            divisor, g = const_index(number), lambda env: number
        if kind == "idiv":
            return simplify.idiv(x, divisor), lambda env: f(env) // g(env)
        return simplify.mod(x, divisor), lambda env: f(env) % g(env)

    def _successor(self, env: dict[Node, int]) -> int:
        return env[self.variable] + 1

    def condition(self, depth: int) -> tuple[Node, Any]:
        """A simplified comparison of two expressions, and the function that it must equal."""
        x, f = self.expression(depth)
        y, g = self.expression(depth)
        build, apply = self.random.choice(_CONDITIONS)
        return build(x, y), lambda env: apply(f(env), g(env))


_INDEX_OPS: dict[str, tuple[Any, Any]] = {
    "add": (simplify.add, lambda x, y: x + y),
    "sub": (simplify.sub, lambda x, y: x - y),
    "mul": (simplify.mul, lambda x, y: x * y),
    "min": (simplify.minimum, min),
    "max": (simplify.maximum, max),
}
_CONDITIONS: list[tuple[Any, Any]] = [
    (simplify.less, lambda x, y: x < y),
    (simplify.at_least, lambda x, y: x >= y),
    (simplify.equal, lambda x, y: x == y),
]


def index_bindings(env: dict[Node, int]) -> dict[Node, Value | int]:
    """An environment as bindings of the interpreter."""
    return {node: Value.scalar(number, index) for node, number in env.items()}


# --- movement ------------------------------------------------------------------------------------


def random_view(random: Random, x: Node) -> Node:
    """x under a random movement op."""
    shape = x.shape
    kind = random.choice(["reshape", "permute", "expand", "pad", "shrink", "flip"])
    if kind == "reshape":
        total = 1
        for size in shape:
            total *= size
        options = [(total,), (1, total), (total, 1)]
        options += [(k, total // k) for k in (2, 3, 4) if total and total % k == 0]
        return tensor.RESHAPE(x, attrs=tensor.ShapeAttrs(random.choice(options)))
    if kind == "permute":
        axes = list(range(len(shape)))
        random.shuffle(axes)
        return tensor.PERMUTE(x, attrs=tensor.AxesAttrs(tuple(axes)))
    if kind == "expand":
        grown = tuple([random.choice([1, 2, 3]) if size == 1 else size for size in shape])
        return tensor.EXPAND(x, attrs=tensor.ShapeAttrs(grown))
    if kind == "pad":
        pads = tuple([(random.choice([0, 0, 1]), random.choice([0, 0, 2])) for _ in shape])
        return tensor.PAD(x, attrs=tensor.PadAttrs(pads))
    if kind == "shrink":
        bounds = []
        for size in shape:
            start = random.randint(0, size)
            bounds.append((start, random.randint(start, size), random.choice([1, 1, 2, 3])))
        return tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(tuple(bounds)))
    chosen = tuple([axis for axis in range(len(shape)) if random.random() < 0.5])
    return tensor.FLIP(x, attrs=tensor.AxesAttrs(chosen))
