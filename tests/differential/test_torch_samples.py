"""PyTorch's own sample inputs give the same here, forward and gradient."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.differential.differences import DIFFERENCES, on_purpose
from tests.differential.judge import Comparison, Sample, judge
from tests.differential.report import outcomes, second_order
from tests.differential.samples import DTYPES, operators
from tests.differential.table import FAULTS, SKIPPED, comparison_of

#: The operators are dealt out to so many tests, so that they run beside each other.
HANDS = 24
#: Samples of each operator and dtype in `make test`; `make test-full` takes all.
FEW = {torch.float32: 2, torch.int64: 1, torch.int32: 1, torch.bool: 1}


def failures(hand: int, most: dict[torch.dtype, int | None]) -> list[str]:
    """What does not agree, and is not known, of every HANDS-th operator."""
    found = []
    for name, op in list(operators().items())[hand::HANDS]:
        if name in FAULTS:
            continue
        for dtype, count in most.items():
            found += [
                f"{name} ({dtype}): {outcome.reason}"
                for outcome in outcomes(op, name, count, (dtype,))
                if outcome.state == "failed"
            ]
    return found


@pytest.mark.parametrize("hand", range(HANDS))
def test_a_few_samples_of_each_operator_agree(hand: int) -> None:
    assert failures(hand, dict(FEW)) == []


@pytest.mark.slow
@pytest.mark.parametrize("hand", range(HANDS))
def test_all_samples_of_each_operator_agree_in_all_dtypes(hand: int) -> None:
    assert failures(hand, dict.fromkeys(DTYPES)) == []


@pytest.mark.slow
@pytest.mark.parametrize("hand", range(HANDS))
def test_the_gradients_of_gradients_of_all_samples_agree(hand: int) -> None:
    found = [
        f"{name}: {outcome.reason}"
        for name, op in list(operators().items())[hand::HANDS]
        for outcome in second_order(op, name)
        if outcome.state == "failed"
    ]
    assert found == []


@pytest.mark.slow
def test_each_known_fault_is_still_one() -> None:
    mended = [
        name
        for name in FAULTS
        if all(found.state != "failed" for found in outcomes(operators()[name], name))
    ]
    assert mended == []


def test_each_name_in_the_tables_is_an_operator_of_pytorch() -> None:
    assert [name for name in (*SKIPPED, *FAULTS, *DIFFERENCES) if name not in operators()] == []


def test_a_known_difference_excuses_no_other_fault() -> None:
    how = comparison_of(operators()["sum"], "sum")
    assert isinstance(how, Comparison)
    wrong = replace(how, ours=lambda x: x.sum() + 1)
    sample = Sample(torch.tensor([1, 2], dtype=torch.uint8), (), {})
    states = [on_purpose("sum", one, sample, judge(one, sample)).state for one in (how, wrong)]
    assert states == ["differs", "failed"]


def test_most_operators_that_are_not_skipped_exist_here() -> None:
    kinds = [comparison_of(op, name) for name, op in operators().items()]
    missing = [kind for kind in kinds if kind == "there is no such method"]
    assert len(missing) < len(kinds) / 10
