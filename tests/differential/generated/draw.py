"""Draws cases of a family by hypothesis, in batches, and judges each distinct one once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.differential.generated import contractions, elementwise, movement, reductions
from tests.differential.generated.judge import Case, Op, judge

#: So many cases are realized together.
BATCH = 20
MOST_RUNS = 12

FAMILIES: dict[str, list[Op]] = {
    **elementwise.families(),
    **reductions.families(),
    **movement.families(),
    **contractions.families(),
}


@st.composite
def a_case(draw: Any, ops: list[Op]) -> Case:
    """A case of one of the operations."""
    op = draw(st.sampled_from(ops))
    operands, options = op.draw(draw)
    return Case(op, operands, tuple(options.items()))


def shares(total: int) -> dict[str, int]:
    """How many of `total` cases each family has: as many for each operation."""
    ops = sum(len(family) for family in FAMILIES.values())
    return {name: -(-total * len(family) // ops) for name, family in FAMILIES.items()}


@dataclass
class Drawn:
    """The structures that were judged, and what was wrong."""

    structures: set[Any] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    #: How many had their gradients compared.
    differentiated: int = 0
    #: Operands by dtype.
    dtypes: Counter[str] = field(default_factory=Counter)

    def add(self, batch: list[Case], faults: list[str]) -> None:
        """Count the cases of a batch that was judged."""
        self.structures.update(case.structure for case in batch)
        self.faults += faults
        self.differentiated += sum(case.is_differentiated for case in batch)
        self.dtypes.update(one.dtype for case in batch for one in case.operands)


def _collect(
    ops: list[Op], count: int, number: int, structures: set[Any], batches: list[list[Case]]
) -> None:
    """Add batches of cases that are not there yet until there are `count`."""

    @seed(number)
    @settings(
        max_examples=4 * (count - len(structures)) // BATCH + 8, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    @given(st.lists(a_case(ops), min_size=BATCH, max_size=BATCH))
    def collect(batch: list[Case]) -> None:
        fresh = []
        for case in batch:
            if len(structures) < count and case.structure not in structures:
                structures.add(case.structure)
                fresh.append(case)
        if fresh:
            batches.append(fresh)

    collect()


def cases_of(family: str, count: int, number: int = 0) -> Iterator[list[Case]]:
    """Batches of `count` distinct cases of a family, the same for the same `number`."""
    structures: set[Any] = set()
    batches: list[list[Case]] = []

    # One run of hypothesis repeats itself the more, the longer it goes on: others follow.
    for attempt in range(MOST_RUNS):
        if len(structures) < count:
            _collect(FAMILIES[family], count, number + attempt * 1_000, structures, batches)
    yield from batches


def judge_family(family: str, count: int, number: int = 0, device: str | None = None) -> Drawn:
    """Judge `count` distinct cases of a family on a device."""
    found = Drawn()
    for batch in cases_of(family, count, number):
        found.add(batch, judge(batch, device))
    return found
