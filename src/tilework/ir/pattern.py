"""Patterns of nodes, rules that replace what matches, and named sets of rules.

How to write a rule, and the laws that all rules keep, is in docs/writing-rules.md.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tilework.base.errors import InternalError
from tilework.base.late import late_module
from tilework.base.records import dataclass
from tilework.ir.compiled import compile_rules
from tilework.ir.cost import op_cost

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterator
    from types import EllipsisType

    from tilework.ir.compiled import Matcher
    from tilework.ir.node import Node, OpDef
else:
    inspect = late_module("inspect")


class Var:
    """Matches any node, or one of the given ops, and gives it to the rule under `name`.

    A name that occurs twice must stand for the same node.
    """

    __slots__ = ("name", "ops")

    def __init__(self, name: str, *ops: OpDef) -> None:
        self.name = name
        self.ops = ops

    def in_all_orders(self) -> list[Var]:
        """This pattern alone: it has no operands to swap."""
        return [self]


class Pat:
    """Matches a node of `op` (or of one of several) whose sources match `operands`.

    A last `...` stands for any further sources.  With `either_order` the first two operands may
    be swapped.  With `name` the node is given to the rule.
    """

    __slots__ = ("either_order", "is_open", "name", "operands", "ops")

    def __init__(
        self,
        op: OpDef | tuple[OpDef, ...],
        *operands: Var | Pat | EllipsisType,
        name: str | None = None,
        either_order: bool = False,
    ) -> None:
        self.ops = op if isinstance(op, tuple) else (op,)
        self.is_open = bool(operands) and operands[-1] is ...
        self.operands = tuple([part for part in operands if isinstance(part, Var | Pat)])
        self.name = name
        self.either_order = either_order
        if len(self.operands) + self.is_open != len(operands):
            raise InternalError("pattern: `...` may only come last", got=operands)

    def in_all_orders(self) -> list[Pat]:
        """This pattern with the operands of each `either_order` part in both orders."""
        combinations: list[list[Var | Pat]] = [[]]
        for operand in self.operands:
            choices = operand.in_all_orders()
            combinations = [[*done, choice] for done in combinations for choice in choices]
        if self.either_order:
            combinations += [[b, a, *others] for a, b, *others in combinations]
        rest = (...,) if self.is_open else ()
        return [Pat(self.ops, *parts, *rest, name=self.name) for parts in combinations]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A pattern and the function that gives the replacement, or None where it does not apply."""

    name: str
    pattern: Pat
    function: Callable[..., Node | None]
    #: Parameters of the function, in order: names in the pattern, "node" or "context".
    parameters: tuple[str, ...]

    @property
    def doc(self) -> str:
        """What the rule does, needs and keeps."""
        return inspect.getdoc(self.function) or ""


class RuleSet:
    """Rules under one name.  No rule of a set may raise the cost that the set declares.

    Args:
        name: Names the set in events and errors.
        cost: What a node costs, summed over the nodes that a rule takes away and adds.
    """

    def __init__(self, name: str, cost: Callable[[Node], int] = op_cost) -> None:
        self.name = name
        self.cost = cost
        self.rules: list[Rule] = []
        self._matchers: dict[OpDef, Matcher] | None = None

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def rule(
        self,
        op: OpDef | tuple[OpDef, ...],
        *operands: Var | Pat | EllipsisType,
        either_order: bool = False,
    ) -> Callable[[Callable[..., Node | None]], Callable[..., Node | None]]:
        """Registers the decorated function as a rule for nodes of `op`.

        The function's parameters are names of the pattern, `node` for the whole match, and
        `context` for what the caller of `rewrite` passes.  It returns the replacement, of the
        same type, or None.

        Raises:
            InternalError: There is no docstring whose first line reads `before  ->  after`, a
                parameter is unknown, or the name is taken.
        """
        pattern = Pat(op, *operands, either_order=either_order)

        def register(function: Callable[..., Node | None]) -> Callable[..., Node | None]:
            self._add(function, pattern)
            return function

        return register

    def _add(self, function: Callable[..., Node | None], pattern: Pat) -> None:
        name = function.__name__
        first_line = (function.__doc__ or "").strip().partition("\n")[0]
        if "->" not in first_line and sys.flags.optimize < 2:  # -OO takes all of them away
            raise InternalError(
                f"rule: {self.name}.{name} has no docstring that says what it does",
                got=first_line or None,
                expected="a first line `before  ->  after`",
            )
        if any(rule.name == name for rule in self.rules):
            raise InternalError(f"rule: {self.name}.{name} is defined twice")
        code = function.__code__
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        unknown = set(parameters) - set(names_of(pattern)) - {"node", "context"}
        if unknown:
            raise InternalError(
                f"rule: {self.name}.{name} has parameters that its pattern does not name",
                got=", ".join(sorted(unknown)),
            )
        self.rules.append(Rule(name, pattern, function, parameters))
        self._matchers = None

    def matchers(self) -> dict[OpDef, Matcher]:
        """For each op the compiled function that tries all rules for it, in order."""
        if self._matchers is None:
            self._matchers = compile_rules(self.rules)
        return self._matchers


def joined(name: str, *sets: RuleSet) -> RuleSet:
    """One set of the rules of several, tried in this order."""
    union = RuleSet(name)
    for part in sets:
        union.rules.extend(part.rules)
    return union


def names_of(pattern: Pat) -> list[str]:
    """The names that a pattern gives to nodes."""
    found = [] if pattern.name is None else [pattern.name]
    for operand in pattern.operands:
        found.extend([operand.name] if isinstance(operand, Var) else names_of(operand))
    return found


def match(pattern: Pat | Var, node: Node) -> dict[str, Node] | None:
    """What the names of `pattern` stand for in `node`, or None: the slow meaning of patterns."""
    for order in pattern.in_all_orders():
        found: dict[str, Node] = {}
        if _match(order, node, found):
            return found
    return None


def _match(pattern: Pat | Var, node: Node, found: dict[str, Node]) -> bool:
    if isinstance(pattern, Var):
        if pattern.ops and node.op not in pattern.ops:
            return False
        return found.setdefault(pattern.name, node) is node
    if node.op not in pattern.ops:
        return False
    count = len(pattern.operands)
    if len(node.src) < count or (len(node.src) > count and not pattern.is_open):
        return False
    if pattern.name is not None and found.setdefault(pattern.name, node) is not node:
        return False
    return all(
        _match(part, source, found)
        for part, source in zip(pattern.operands, node.src, strict=False)
    )
