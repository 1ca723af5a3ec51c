"""Small programs of kinds that users report give what NumPy, PyTorch or exact arithmetic gives.

Each runs as it is written and in one of the other ways; `make test-full` runs all in all ways.
"""

from __future__ import annotations

import pytest
from tests.differential.reported import integers, writes
from tests.differential.reported.case import WAYS, Case, fault_of

TABLES = {
    "writes by index": writes.by_index,
    "programs of writes": writes.programs,
    "tables of positions": writes.by_tables,
    "wide integers": integers.wide,
    "narrow integers": integers.narrow,
    "integers without a sign": integers.unsigned,
    "casts": integers.casts,
}


def faults(cases: list[tuple[Case, str]]) -> list[str]:
    found = []
    for case, way in cases:
        if fault := fault_of(case, way):
            found.append(f"{case.name}, {way}: {fault}")
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("table", TABLES)
def test_programs_as_users_write_them_give_the_right_numbers(table: str) -> None:
    cases = TABLES[table]()
    assert faults([(case, "plain") for case in cases]) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("table", TABLES)
def test_they_give_the_same_in_another_way(table: str) -> None:
    cases = TABLES[table]()
    assert faults([(case, WAYS[1 + number % 3]) for number, case in enumerate(cases)]) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("table", TABLES)
def test_they_give_the_same_in_every_way(table: str, way: str) -> None:
    assert faults([(case, way) for case in TABLES[table]()]) == []


def test_there_are_more_than_two_hundred_programs_of_different_names() -> None:
    names = [case.name for table in TABLES.values() for case in table()]
    assert len(names) > 200
    assert len(names) == len(set(names))
