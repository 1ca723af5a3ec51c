"""The operator table: which rule stands for an operator of a domain at a version.

A rule is a function `rule(call, *operands)` that returns the outputs: tensors or, where they are
small and known on the host, NumPy arrays.  Operands arrive as tensors, except at the positions of
`host`, which arrive as NumPy arrays; one that the model leaves out is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

Rule = Callable[..., Any]
RuleT = TypeVar("RuleT", bound=Rule)
DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True, slots=True)
class OpRule:
    """A rule that holds from version `since` until the next registered one.

    `raw` rules get every operand as the evaluator holds it (control flow, sequences).
    """

    name: str
    domain: str
    since: int
    function: Rule
    host: frozenset[int]
    raw: bool = False


# Filled while the modules of `ops` are imported, and constant afterwards.
_RULES: dict[tuple[str, str], list[OpRule]] = {}


def canonical_domain(domain: str) -> str:
    """Return the domain as tables write it: the default one is empty."""
    return "" if domain in DEFAULT_DOMAINS else domain


def onnx_op(
    *names: str,
    since: int = 1,
    domain: str = "",
    host: Iterable[int] = (),
    raw: bool = False,
) -> Callable[[RuleT], RuleT]:
    """Register a rule for operators.

    Args:
        names: the operators.
        since: first opset version for which the rule holds.
        domain: the operator set; the default one is empty.
        host: positions of operands that must be known on the host (shapes, axes, repeats).
        raw: hand over operands as they are, sequences and absent values included.
    """

    def register(function: RuleT) -> RuleT:
        for name in names:
            rule = OpRule(name, domain, since, function, frozenset(host), raw)
            rows = _RULES.setdefault((domain, name), [])
            rows.append(rule)
            rows.sort(key=lambda row: row.since)
        return function

    return register


def find_rule(domain: str, name: str, version: int) -> OpRule | None:
    """Return the newest rule that holds at `version`, or None."""
    found = None
    for row in _RULES.get((canonical_domain(domain), name), ()):
        if row.since <= version:
            found = row
    return found
