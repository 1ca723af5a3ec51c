"""The behaviour suite against NVIDIA's back end on a card in software."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.emulated_cards import emulated_cards
from tests.published import published

from tilework.testing.conformance import Case, all_cases, run_case
from tilework.testing.emulators.cuda import EmulatedCuda

CASES = {case.name: case for case in all_cases()}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_cards(monkeypatch, cards=8) as found:
        yield found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_BKE_04_a_card_in_software_behaves_as_the_interpreter(
    library: EmulatedCuda, case: Case
) -> None:
    result = run_case("CUDA", case)
    assert result.status in ("passed", "unsupported"), result.detail
    assert result.status == published()["CUDA"][case.name]
    assert result.status == "passed" or case.name == "leases/read"
