"""The operator table: which rule stands for an operator of a domain at a version.

A rule is a function `rule(call, *operands)` that returns the outputs: tensors or, where they are
small and known on the host, NumPy arrays.  Operands arrive as tensors, except at the positions of
`host`, which arrive as NumPy arrays; one that the model leaves out is None.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any, TypeVar

from tilework.base.errors import ModelFileError
from tilework.base.records import dataclass

Rule = Callable[..., Any]
RuleT = TypeVar("RuleT", bound=Rule)
DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True, slots=True)
class OpRule:
    """A rule that holds from version `since` until the next registered one.

    `raw` rules get every operand as the evaluator holds it (control flow, sequences).
    `needed` are the positions of operands that no node may leave out; `most` is how many a node
    may have, None if any number; of those `every` one must be given, or may be left out.
    """

    name: str
    domain: str
    since: int
    function: Rule
    host: frozenset[int]
    raw: bool = False
    needed: tuple[int, ...] = ()
    most: int | None = None
    every: bool = False

    def check(self, operands: Sequence[object], node: object) -> None:
        """Refuse a node with operands missing or too many.  Raises: ModelFileError."""
        count = len(operands)
        missing = [
            at for at in self.needed if at >= count or (operands[at] is None and not self.raw)
        ]
        if self.every:
            missing += [at for at, operand in enumerate(operands) if operand is None]
        if missing:
            raise ModelFileError(f"onnx: {node} lacks an input", got=f"no input {missing[0]}")
        if self.most is not None and count > self.most:
            raise ModelFileError(
                f"onnx: {node} has too many inputs", got=str(count), expected=f"at most {self.most}"
            )


def _operands_of(
    function: Rule, least: int, optional: frozenset[int]
) -> tuple[tuple[int, ...], int | None, bool]:
    """`needed`, `most` and `every` of a rule, by its signature."""
    assert isinstance(function, FunctionType)
    code, is_open = function.__code__, bool(function.__code__.co_flags & inspect.CO_VARARGS)
    names = code.co_varnames[1 : code.co_argcount]
    without_default = len(names) - len(function.__defaults__ or ())
    needed = [
        at
        for at, name in enumerate(names[:without_default])
        if "None" not in str(function.__annotations__.get(name, ""))
    ]
    needed += [at for at in range(len(names), least) if at not in optional]
    if not is_open:
        return tuple(needed), len(names), False
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
    return tuple(needed), None, "None" not in str(function.__annotations__.get(rest, "None"))


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
    least: int = 0,
    optional: Iterable[int] = (),
) -> Callable[[RuleT], RuleT]:
    """Register a rule for operators.

    Args:
        names: the operators.
        since: first opset version for which the rule holds.
        domain: the operator set; the default one is empty.
        host: positions of operands that must be known on the host (shapes, axes, repeats).
        raw: hand over operands as they are, sequences and absent values included.
        least: how many operands a rule with `*operands` needs; else its signature says it.
        optional: positions among those that a node may still leave out.
    """

    def register(function: RuleT) -> RuleT:
        needed, most, every = _operands_of(function, least, frozenset(optional))
        every = every and not raw
        for name in names:
            rule = OpRule(name, domain, since, function, frozenset(host), raw, needed, most, every)
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
