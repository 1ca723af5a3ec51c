"""The rewrite driver: applies a set of rules until none applies, with a worklist.

Sources are rewritten before what uses them, and what a rule gives is rewritten again.  The walk
keeps its own stack, so the depth of a graph does not matter.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tilework.base import trace
from tilework.base.errors import InternalError, RewriteLoopError
from tilework.ir.node import in_use, make, toposort
from tilework.ir.ops.define import value_type
from tilework.ir.pattern import match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node
    from tilework.ir.pattern import Rule, RuleSet

#: A set may fire this often, and this often more for each node of the graph.
FUEL = 10_000
FUEL_PER_NODE = 64


def rewrite(
    root: Node,
    rules: RuleSet,
    *,
    context: Any = None,
    memo: dict[Node, Node] | None = None,
    check_costs: bool = False,
) -> Node:
    """`root` after the rules have been applied everywhere below it until none applies.

    Args:
        root: The graph.
        rules: The rules; for one node they are tried in their order.
        context: Given to rules that ask for it.
        memo: Results by node, to share between calls with the same rules and context.
        check_costs: Check at each firing that the rule does not raise the cost; for tests.

    Raises:
        RewriteLoopError: Rules undo each other or grow without end; names those that fired last.
    """
    return rewrite_all((root,), rules, context=context, memo=memo, check_costs=check_costs)[0]


def rewrite_all(
    roots: Sequence[Node],
    rules: RuleSet,
    *,
    context: Any = None,
    memo: dict[Node, Node] | None = None,
    check_costs: bool = False,
) -> list[Node]:
    """As `rewrite`, for several roots that share nodes."""
    driver = _Driver(rules, context, {} if memo is None else memo, check_costs, roots)
    with in_use():
        driver.run()
    return [driver.done[root] for root in roots]


class _Driver:
    """One run of the rules over a graph."""

    def __init__(
        self,
        rules: RuleSet,
        context: Any,
        done: dict[Node, Node],
        check_costs: bool,
        roots: Sequence[Node],
    ) -> None:
        self.rules = rules
        self.context = context
        #: What each finished node became; a result maps to itself.
        self.done = done
        #: What a node has been replaced by, while that is being rewritten itself.
        self.replaced: dict[Node, Node] = {}
        self.roots = tuple(roots)
        self.fired = 0
        self.fuel = FUEL
        self.last: deque[str] = deque(maxlen=12)
        self.check_costs = check_costs

    def run(self) -> None:
        """Finish every root."""
        done, replaced, context = self.done, self.replaced, self.context
        result_of, matchers = done.get, self.rules.matchers()
        sources: tuple[Node | None, ...]
        stack = list(reversed(self.roots))
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            if node in replaced:
                done[node] = self._finished(node)
                stack.pop()
                continue
            src = node.src
            # Written out for the usual numbers of sources: this is the hot path of the compiler.
            if len(src) == 2:
                left, right = src
                sources = (result_of(left), result_of(right))
            elif len(src) == 1:
                sources = (result_of(src[0]),)
            else:
                sources = tuple(map(result_of, src))
            current = node
            if sources != src:
                if None in sources:
                    stack.extend([source for source in src if source not in done])
                    continue
                # No None among them here.
                current = make(node.op, sources, node.attrs)  # type: ignore[arg-type]
                if current in done or current in replaced:
                    done[node] = self._finished(current)
                    stack.pop()
                    continue
            found = matchers[current.op](current, context) if current.op in matchers else None
            if found is None:
                done[current] = done[node] = current
                stack.pop()
                continue
            stack.append(found[0])
            replaced[current] = replaced[node] = found[0]
            self._note(current, *found)

    def _finished(self, node: Node) -> Node:
        """The result of a node that is done, or whose replacement is."""
        result = self.done.get(node) or self.done.get(self.replaced[node])
        if result is None:
            raise self._loop(node)
        return result

    def _note(self, before: Node, after: Node, rule: Rule) -> None:
        """Count a firing, and check what holds for all rules."""
        self.fired += 1
        self.last.append(rule.name)
        if before.type is not after.type and value_type(before.type) is not value_type(after.type):
            raise InternalError(
                f"rewrite: {self.rules.name}.{rule.name} changes the type",
                got=f"{before!r} became {after!r}",
            )
        if self.fired > self.fuel:
            self._refuel(after)
        if trace.enabled():
            trace.emit(trace.RuleFired(f"{self.rules.name}.{rule.name}", before, after))
        if self.check_costs:
            check_cost(self.rules, rule, before, after)

    def _refuel(self, node: Node) -> None:
        """Allow as many firings as the graph is large; asked once, by what fires a lot."""
        if self.fuel > FUEL:
            raise self._loop(node)
        self.fuel += FUEL_PER_NODE * len(toposort(*self.roots))

    def _loop(self, node: Node) -> RewriteLoopError:
        names = list(dict.fromkeys(self.last))
        return RewriteLoopError(
            f"rewrite: the rules of {self.rules.name} do not come to an end",
            rules=names,
            got=f"{self.fired} firings, the last by {', '.join(names)}; at {node!r}",
        )


def check_cost(rules: RuleSet, rule: Rule, before: Node, after: Node) -> None:
    """Raise InternalError if `rule`, which made `after` of `before`, raised the cost.

    Counted are the nodes between the root of the match and the nodes that the pattern's names
    stand for, which are there before and after.
    """
    bound = match(rule.pattern, before) or {}
    kept = set(bound.values()) - {before}
    # What a name stands for may itself be part of the match: its own sources are kept then.
    old, new = _cost_above(rules, before, kept), _cost_above(rules, after, kept)
    if new > old:
        raise InternalError(
            f"rewrite: {rules.name}.{rule.name} raises the cost",
            got=f"{old} became {new}: {before!r} to {after!r}",
        )


def _cost_above(rules: RuleSet, root: Node, kept: set[Node]) -> int:
    total = 0
    seen = set(kept)
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            total += rules.cost(node)
            stack.extend(node.src)
    return total
