"""Generated cases give what PyTorch and NumPy give: values, dtypes, shapes and gradients.

Each case is an operation with drawn dtypes, shapes, views and parameters; two are distinct if more
than their random numbers differs.
"""

from __future__ import annotations

from itertools import islice

import pytest
from tests.differential.generated.draw import FAMILIES, cases_of, judge_family, shares
from tests.differential.generated.judge import judge

from tilework import Device
from tilework.base.errors import DeviceUnavailableError
from tilework.toolchain.clang import find_compiler

#: So many distinct cases in `make test`, always the same, and in `make test-full`.
FEW, MANY = 2_000, 20_000
#: Of the few, each family's first batches run on other devices too in `make test`; then all.
FIRST_BATCHES = 3
OTHERS = ("PYTHON", "CPU:CLANG")


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


def check_device(family: str, device: str, batches: int | None) -> None:
    """The same cases on another device: integers equal, floats within the same bounds."""
    if device == "CPU:CLANG" and find_compiler() is None:
        with pytest.raises(DeviceUnavailableError, match="no C compiler"):
            _ = Device[device]
        return
    cases = cases_of(family, shares(FEW)[family], 1)
    assert [fault for batch in islice(cases, batches) for fault in judge(batch, device)] == []


@pytest.mark.parametrize("device", OTHERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_generated_cases_agree_on_other_devices(family: str, device: str) -> None:
    check_device(family, device, FIRST_BATCHES)


@pytest.mark.slow
@pytest.mark.parametrize("device", OTHERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_all_of_the_few_cases_agree_on_other_devices(family: str, device: str) -> None:
    check_device(family, device, None)


@pytest.mark.parametrize("total", [FEW, MANY])
def test_the_shares_of_the_families_add_up(total: int) -> None:
    assert sum(shares(total).values()) >= total
    names = [op.name for family in FAMILIES.values() for op in family]
    assert len(names) == len(set(names))
