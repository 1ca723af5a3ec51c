"""Runs samples of many operators and counts what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.differential.judge import Outcome, Sample, judge
from tests.differential.samples import DTYPES, samples_of
from tests.differential.table import comparison_of, difference_of


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
    for dtype in dtypes:
        reason = difference_of(name, dtype)
        if isinstance(how, str):
            return
        for sample in chosen(op, name, dtype, most):
            yield Outcome("skipped", reason) if reason else judge(how, sample)


def tally(op: Any, name: str, most: int | None = None) -> Tally:
    """Count what becomes of the samples of an operator."""
    found = Tally()
    for outcome in outcomes(op, name, most):
        found.add(outcome)
    return found
