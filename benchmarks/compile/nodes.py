"""Speed of nodes and rewrites beside tinygrad's UOp, in one process and in turns.

    python benchmarks/compile/nodes.py [--size 20000] [--repeat 7] [--json]

Both sides build the same graph of additions and multiplications of one integer leaf, look every
node of it up again, and rewrite it by the same five rules.  A node of tilework always has its
shape and dtype; tinygrad's UOp is measured bare (its caller has to name the dtype, and there is no
shape) and typed (dtype inferred, shape read).  The time of the loop itself is taken off.  The
figures are medians of the turns; the ratios are what counts on a shared machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat, graph_rewrite

from tilework.dtypes import int32
from tilework.ir.build import const
from tilework.ir.node import Node, make, sweep, toposort
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import math
from tilework.ir.pattern import Pat, RuleSet, Var
from tilework.ir.rewrite import rewrite
from tilework.ir.rules.literals import integer_of
from tilework.ir.stage import Stage
from tilework.ir.text import format_node, parse
from tilework.ir.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Step:
    """One node of the graph: sum or product of the node before and a literal, or of two nodes."""

    is_sum: bool
    literal: int | None
    back: int


def plan_of(size: int) -> list[Step]:
    """A fixed pseudo-random graph: a third of its literals are the neutral one."""
    state = 12345
    steps = []
    for _ in range(size):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        bits = state >> 8
        is_sum = bool(bits & 1)
        neutral = 0 if is_sum else 1
        literal = neutral if bits & 6 == 0 else 2 + (bits >> 3) % 97
        steps.append(Step(is_sum, literal if bits & 8 else None, 1 + (bits >> 10) % 30))
    return steps


class Tilework:
    """The graph and the rules in tilework."""

    name = "tilework"

    def __init__(self) -> None:
        attrs = index_ops.VariableAttrs("x", 0, 100)
        index_leaf = index_ops.VARIABLE(attrs=attrs)
        self.leaf = math.CAST(index_leaf, attrs=math.CastAttrs(int32))
        self.literals = [const(number, int32) for number in range(100)]
        self.rules = _tilework_rules()

    def bare(self, is_sum: bool, src: tuple[Any, Any]) -> Any:
        return make(math.ADD if is_sum else math.MUL, src, None)

    typed = bare  # every node has its type

    def rewrite(self, root: Any) -> Any:
        return rewrite(root, self.rules)

    def count(self, root: Any) -> int:
        return len(toposort(root))

    def forget(self) -> None:
        sweep(force=True)


def _tilework_rules() -> RuleSet:
    rules = RuleSet("benchmark")

    @rules.rule(math.ADD, Var("x"), Var("c", math.CONST))
    def add_zero(x: Node, c: Node) -> Node | None:
        """x + 0  ->  x"""
        return x if c.attrs.bits == 0 else None

    @rules.rule(math.MUL, Var("x"), Var("c", math.CONST))
    def mul_one(x: Node, c: Node) -> Node | None:
        """x * 1  ->  x"""
        return x if c.attrs.bits == 1 else None

    @rules.rule(math.ADD, Pat(math.ADD, Var("x"), Var("c", math.CONST)), Var("d", math.CONST))
    def add_twice(x: Node, c: Node, d: Node) -> Node | None:
        """(x + c) + d  ->  x + (c + d)"""
        return math.ADD(x, const(integer_of(c) + integer_of(d), int32))

    @rules.rule(math.MUL, Pat(math.MUL, Var("x"), Var("c", math.CONST)), Var("d", math.CONST))
    def mul_twice(x: Node, c: Node, d: Node) -> Node | None:
        """(x * c) * d  ->  x * (c * d)"""
        return math.MUL(x, const(integer_of(c) * integer_of(d), int32))

    @rules.rule(math.MUL, Var("x"), Var("c", math.CONST))
    def mul_by_power_of_two(x: Node, c: Node) -> Node | None:
        """x * 2**k  ->  x << k"""
        value = integer_of(c)
        if value <= 1 or value & (value - 1):
            return None
        return math.SHL(x, const(value.bit_length() - 1, int32))

    return rules


def _literal(number: int) -> Any:
    return UOp(Ops.CONST, dtypes.int32, (), (number + 2**31) % 2**32 - 2**31)


def _add_twice(x: Any, c: Any, d: Any) -> Any:
    return UOp(Ops.ADD, dtypes.int32, (x, _literal(c.arg + d.arg)))


def _mul_twice(x: Any, c: Any, d: Any) -> Any:
    return UOp(Ops.MUL, dtypes.int32, (x, _literal(c.arg * d.arg)))


def _shift(x: Any, c: Any) -> Any:
    value = c.arg
    if value <= 1 or value & (value - 1):
        return None
    return UOp(Ops.SHL, dtypes.int32, (x, _literal(value.bit_length() - 1)))


class Tinygrad:
    """The same in tinygrad."""

    name = "tinygrad"

    def __init__(self) -> None:
        self.leaf = UOp(Ops.DEFINE_VAR, dtypes.int32, (), ("x", 0, 100)) if hasattr(
            Ops, "DEFINE_VAR"
        ) else UOp.variable("x", 0, 100)  # fmt: skip
        self.literals = [_literal(number) for number in range(100)]
        x, c, d = UPat.var("x"), UPat.cvar("c"), UPat.cvar("d")
        self.matcher = PatternMatcher(
            [
                (UPat(Ops.ADD, src=(x, c)), lambda x, c: x if c.arg == 0 else None),
                (UPat(Ops.MUL, src=(x, c)), lambda x, c: x if c.arg == 1 else None),
                (
                    UPat(Ops.ADD, src=(UPat(Ops.ADD, src=(x, c)), d)),
                    _add_twice,
                ),
                (
                    UPat(Ops.MUL, src=(UPat(Ops.MUL, src=(x, c)), d)),
                    _mul_twice,
                ),
                (UPat(Ops.MUL, src=(x, c)), _shift),
            ]
        )

    def bare(self, is_sum: bool, src: tuple[Any, Any]) -> Any:
        return UOp(Ops.ADD if is_sum else Ops.MUL, dtypes.int32, src)

    def typed(self, is_sum: bool, src: tuple[Any, Any]) -> Any:
        node = UOp(Ops.ADD if is_sum else Ops.MUL, src=src)
        _ = node.shape
        return node

    def rewrite(self, root: Any) -> Any:
        return graph_rewrite(root, self.matcher)

    def count(self, root: Any) -> int:
        return len(root.toposort())

    def forget(self) -> None:
        gc.collect()


def build(side: Any, create: Callable[..., Any], plan: list[Step]) -> list[Any]:
    """All nodes of the graph, made by `create`."""
    nodes = [side.leaf]
    literals = side.literals
    for step in plan:
        last = nodes[-1]
        if step.literal is None:
            other = nodes[max(0, len(nodes) - step.back)]
        else:
            other = literals[step.literal]
        nodes.append(create(step.is_sum, (last, other)))
    return nodes


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        result = function()
        return time.perf_counter() - start, result
    finally:
        gc.enable()


def turn(side: Any, plan: list[Step], found: dict[str, list[float]]) -> int:
    """One turn of one side: microseconds a node for each measure; returns the nodes left."""
    loop, _ = timed(lambda: build(side, lambda is_sum, src: side.leaf, plan))
    root = side.leaf
    for kind in ("bare", "typed"):
        create = getattr(side, kind)
        seconds, nodes = timed(lambda create=create: build(side, create, plan))
        found.setdefault(f"new, {kind}", []).append((seconds - loop) / len(plan) * 1e6)
        seconds, again = timed(lambda create=create: build(side, create, plan))
        found.setdefault(f"found, {kind}", []).append((seconds - loop) / len(plan) * 1e6)
        if again[-1] is not nodes[-1]:
            raise SystemExit("the second build did not find the first")
        root = nodes[-1]
        if kind == "bare":
            # The typed turn has to make its nodes anew.
            root = side.leaf
        nodes.clear()
        again.clear()
        side.forget()
    seconds, left = timed(lambda: side.rewrite(root))
    found.setdefault("rewrite", []).append(seconds / len(plan) * 1e6)
    return int(side.count(left))


def own_measures(plan: list[Step]) -> dict[str, float]:
    """What tilework alone has: printing, parsing and verifying, microseconds a node."""
    side = Tilework()
    root = build(side, side.bare, plan)[-1]
    count = len(toposort(root))
    printing, text = timed(lambda: format_node(root))
    parsing, _ = timed(lambda: parse(text))
    verifying, _ = timed(lambda: verify(root, Stage.TENSOR))
    return {
        "print": printing / count * 1e6,
        "parse": parsing / count * 1e6,
        "verify": verifying / count * 1e6,
    }


def measure(size: int, repeat: int) -> dict[str, Any]:
    """All measures of both sides, in turns."""
    plan = plan_of(size)
    sides = [Tilework(), Tinygrad()]
    found: dict[str, dict[str, list[float]]] = {side.name: {} for side in sides}
    left: dict[str, int] = {}
    for _ in range(repeat):
        for side in sides:
            left[side.name] = turn(side, plan, found[side.name])
            side.forget()
    medians = {
        name: {key: statistics.median(values) for key, values in measures.items()}
        for name, measures in found.items()
    }
    ratios = {
        key: medians["tinygrad"][key] / medians["tilework"][key] for key in medians["tilework"]
    }
    return {
        "size": size,
        "nodes_left": left,
        "microseconds_per_node": medians,
        "times_faster": ratios,
        "tilework_only": own_measures(plan),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=20_000, help="nodes of the graph")
    parser.add_argument("--repeat", type=int, default=15, help="turns of each side")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    result = measure(options.size, options.repeat)
    if options.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"{options.size} nodes, median of {options.repeat} turns, microseconds a node")
    print(f"{'':14}{'tilework':>10}{'tinygrad':>10}{'times faster':>14}")
    medians = result["microseconds_per_node"]
    for key, ratio in result["times_faster"].items():
        ours, theirs = medians["tilework"][key], medians["tinygrad"][key]
        print(f"{key:14}{ours:10.2f}{theirs:10.2f}{ratio:14.2f}")
    for key, value in result["tilework_only"].items():
        print(f"{key:14}{value:10.2f}")
    print(f"nodes left after rewriting: {result['nodes_left']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
