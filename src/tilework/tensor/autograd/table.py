"""The table of gradients: for each op of the TENSOR stage a rule, or the reason for having none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError
from tilework.base.records import dataclass

if TYPE_CHECKING:
    from tilework.ir.node import OpDef
    from tilework.tensor.tensor import Tensor


@dataclass
class Step:
    """One application of an op: what it was applied to and, if a rule asks, its value."""

    attrs: Any
    sources: tuple[Tensor, ...]
    make_value: Callable[[], Tensor]
    #: For each source, whether its gradient goes on to anything; a rule may give None if not.
    wanted: tuple[bool, ...]

    @cached_property
    def value(self) -> Tensor:
        """What the op gave."""
        return self.make_value()


#: (step, gradient of its value) -> gradients of its sources; None where nothing flows.
Rule = Callable[[Step, "Tensor"], "tuple[Tensor | None, ...]"]

RULES: Final[dict[OpDef, Rule]] = {}
NO_GRADIENT: Final[dict[OpDef, str]] = {}


def gradient_of(*ops: OpDef) -> Callable[[Rule], Rule]:
    """Register a rule for `ops`."""

    def register(rule: Rule) -> Rule:
        for op in ops:
            if op in RULES or op in NO_GRADIENT:
                raise InternalError(f"{op.name} has two gradients")
            RULES[op] = rule
        return rule

    return register


def no_gradient(reason: str, *ops: OpDef) -> None:
    """State why `ops` pass no gradient on."""
    for op in ops:
        if op in RULES or op in NO_GRADIENT:
            raise InternalError(f"{op.name} has two gradients")
        NO_GRADIENT[op] = reason
