"""Patterns compiled to Python functions: for each op one that tries all of its rules in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.ir.node import Node, OpDef
    from tilework.ir.pattern import Rule

    #: (node, context) -> (replacement, the rule that gave it), or None.
    Matcher = Callable[[Node, Any], tuple[Node, Rule] | None]


def compile_rules(rules: Sequence[Rule]) -> dict[OpDef, Matcher]:
    """The matcher of each op that a rule has at its root; compiled when a node of it is met."""
    by_op: dict[OpDef, list[Rule]] = {}
    for rule in rules:
        for op in rule.pattern.ops:
            by_op.setdefault(op, []).append(rule)
    matchers: dict[OpDef, Matcher] = {}
    for op, chosen in by_op.items():
        matchers[op] = _late(matchers, op, chosen)
    return matchers


def _late(matchers: dict[OpDef, Matcher], op: OpDef, rules: Sequence[Rule]) -> Matcher:
    """A matcher that compiles itself at its first node: a small graph has few of the ops."""

    def match(node: Node, context: Any) -> tuple[Node, Rule] | None:
        found = matchers[op] = _compile(op, rules)
        return found(node, context)

    return match


def _compile(op: OpDef, rules: Sequence[Rule]) -> Matcher:
    source = _Source()
    source.add(0, f"def match_{op.name}(node, context):")
    source.add(1, "src = node.src")
    for number, rule in enumerate(rules):
        source.names[f"rule_{number}"] = rule
        source.names[f"function_{number}"] = rule.function
        for order in rule.pattern.in_all_orders():
            source.add_rule(number, rule, order)
    source.add(1, "return None")
    names: dict[str, Any] = dict(source.names)
    # The text is made from registered rules alone, never from input.
    code = compile("\n".join(source.lines), f"<rules for {op.name}>", "exec")
    exec(code, names)
    matcher: Matcher = names[f"match_{op.name}"]
    return matcher


class _Source:
    """The text of one matcher and the objects that its names stand for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.counter = 0

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def name_of(self, thing: Any, kind: str) -> str:
        name = f"{kind}_{len(self.names)}"
        self.names[name] = thing
        return name

    def add_rule(self, number: int, rule: Rule, pattern: Any) -> None:
        """Nested ifs that bind the rule's names, then the call of its function."""
        bound: dict[str, str] = {"node": "node", "context": "context"}
        depth = 1
        # (what holds the node, its pattern); the root's op is known already.
        waiting: list[tuple[str, Any]] = [("node", pattern)]
        while waiting:
            held, part = waiting.pop(0)
            conditions = [] if held == "node" else self._op_conditions(held, part)
            name = part.name
            if name is not None:
                if name in bound:
                    conditions.append(f"{held} is {bound[name]}")
                else:
                    bound[name] = held
            if conditions:
                self.add(depth, f"if {' and '.join(conditions)}:")
                depth += 1
            if hasattr(part, "operands"):
                depth = self._add_operands(held, part, depth, waiting)
        call = ", ".join([bound[parameter] for parameter in rule.parameters])
        self.add(depth, f"found = function_{number}({call})")
        self.add(depth, "if found is not None and found is not node:")
        self.add(depth + 1, f"return found, rule_{number}")

    def _op_conditions(self, held: str, part: Any) -> list[str]:
        if len(part.ops) == 1:
            return [f"{held}.op is {self.name_of(part.ops[0], 'op')}"]
        return [f"{held}.op in {self.name_of(part.ops, 'ops')}"] if part.ops else []

    def _add_operands(
        self, held: str, part: Any, depth: int, waiting: list[tuple[str, Any]]
    ) -> int:
        sources = "src" if held == "node" else f"{held}.src"
        count = len(part.operands)
        if part.is_open:
            self.add(depth, f"if len({sources}) >= {count}:")
            depth += 1
        elif any(_is_variadic(op) for op in part.ops) or len(part.ops) > 1:
            self.add(depth, f"if len({sources}) == {count}:")
            depth += 1
        for position, operand in enumerate(part.operands):
            name = f"n{self.counter}"
            self.counter += 1
            self.add(depth, f"{name} = {sources}[{position}]")
            waiting.append((name, operand))
        return depth


def _is_variadic(op: OpDef) -> bool:
    return any(name[0] == "*" or name[-1] == "?" for name in op.operands)
