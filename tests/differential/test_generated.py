"""Generated cases give what PyTorch and NumPy give: values, dtypes, shapes and gradients.

Each case is an operation with drawn dtypes, shapes, views and parameters; two are distinct if more
than their random numbers differs.
"""

from __future__ import annotations

import pytest
from tests.differential.generated.draw import FAMILIES, judge_family, shares

#: So many distinct cases in `make test`, always the same, and in `make test-full`.
FEW, MANY = 2_000, 20_000


def check(family: str, total: int, number: int) -> None:
    found = judge_family(family, shares(total)[family], number)
    assert found.faults == []
    assert len(found.structures) >= shares(total)[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_two_thousand_generated_cases_agree(family: str) -> None:
    check(family, FEW, 1)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_twenty_thousand_generated_cases_agree(family: str) -> None:
    check(family, MANY, 2)


@pytest.mark.parametrize("total", [FEW, MANY])
def test_the_shares_of_the_families_add_up(total: int) -> None:
    assert sum(shares(total).values()) >= total
    names = [op.name for family in FAMILIES.values() for op in family]
    assert len(names) == len(set(names))
