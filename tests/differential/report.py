"""Runs samples of many operators and counts what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tests.differential.differences import on_purpose
from tests.differential.judge import Outcome, Sample, judge
from tests.differential.samples import DTYPES, samples_of
from tests.differential.table import NO_SECOND, comparison_of


@dataclass
class Tally:
    """What became of the samples of one operator."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one sample."""
        self.counts[outcome.state] += 1
        if outcome.state != "passed":
            self.reasons[f"{outcome.state}: {outcome.reason}"] += 1


def chosen(op: Any, name: str, dtype: torch.dtype, most: int | None) -> list[Sample]:
    """The samples of an operator in a dtype: all, or at most `most`, evenly spread."""
    if dtype not in op.supported_dtypes("cpu"):
        return []
    found = list(samples_of(op, dtype))
    if most is None or len(found) <= most:
        return found
    return [found[number * len(found) // most] for number in range(most)]


def outcomes(
    op: Any, name: str, most: int | None = None, dtypes: tuple[torch.dtype, ...] = DTYPES
) -> Iterator[Outcome]:
    """What becomes of the samples of an operator, one by one."""
    how = comparison_of(op, name)
    if isinstance(how, str):
        return
    for dtype in dtypes:
        for sample in chosen(op, name, dtype, most):
            yield on_purpose(name, how, sample, judge(how, sample))


def second_order(op: Any, name: str, most: int | None = None) -> Iterator[Outcome]:
    """What becomes of the gradients of gradients, in float32."""
    how = comparison_of(op, name)
    if isinstance(how, str) or not (how.has_gradient and op.supports_gradgrad):
        return
    if name in NO_SECOND:
        return
    twice = replace(how, order=2)
    for sample in chosen(op, name, torch.float32, most):
        yield on_purpose(name, twice, sample, judge(twice, sample))


def tally(op: Any, name: str, most: int | None = None) -> tuple[Tally, Tally]:
    """Count what becomes of the samples of an operator, and of gradients of gradients."""
    first, second = Tally(), Tally()
    for outcome in outcomes(op, name, most):
        first.add(outcome)
    for outcome in second_order(op, name, most):
        second.add(outcome)
    return first, second
