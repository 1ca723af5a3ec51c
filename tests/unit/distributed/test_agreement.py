"""What devices of several processes may do together, as all of them agree on it."""

from __future__ import annotations

from typing import Any

import pytest

from tilework import distributed
from tilework.distributed.agreement import decide
from tilework.runtime.links import NOTHING, Shared, set_shared
from tilework.schedule.shard.allreduce import choose


def _row(card: str, library: int = 23200, *folds: str) -> dict[str, Any]:
    return {"library": library, "card": card, "folds": [["add", each] for each in folds]}


def test_ranks_with_one_library_and_a_card_each_share_what_all_of_them_fold() -> None:
    rows = [_row("a", 23200, "int32", "float32"), _row("b", 23200, "float32")]
    assert decide("WORLD+CUDA", rows) == Shared("WORLD+CUDA", (0, 1), (("add", "float32"),))


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (_row("c", 0), "rank 2 has no library"),
        (_row("c", 22800, "int32"), "rank 2 has version 22800, rank 0 23200"),
        (_row("b", 23200, "int32"), "ranks 1 and 2 have the same card"),
    ],
)
def test_a_rank_that_does_not_fit_keeps_folds_from_all_and_copies_from_itself(
    last: dict[str, Any], reason: str
) -> None:
    rows = [_row("a", 23200, "int32"), _row("b", 23200, "int32"), last]
    assert decide("WORLD+CUDA", rows) == Shared("WORLD+CUDA", (0, 1), (), reason)


def test_one_rank_alone_shares_nothing() -> None:
    rows = [_row("a", 0), _row("b", 23200, "int32")]
    assert decide("WORLD+CUDA", rows) == Shared("WORLD+CUDA", (), (), "rank 0 has no library")


def test_two_cards_of_two_processes_take_the_library_also_for_few_bytes() -> None:
    assert choose(4, 2, "processes", has_library=True).algorithm == "library"
    assert choose(1 << 30, 2, "links", has_library=True).algorithm == "naive"


def test_with_fixed_bits_processes_do_not_take_the_library() -> None:
    found = choose(1 << 20, 2, "processes", has_library=True, deterministic=True)
    assert found.algorithm == "naive"


def test_the_choice_names_the_rank_that_keeps_processes_from_the_library() -> None:
    set_shared(Shared("WORLD+CUDA", (0, 1), (), "rank 2 has no library"))
    try:
        found = distributed.choose_allreduce(1 << 20, 3, "processes")
    finally:
        set_shared(NOTHING)
    assert found.algorithm == "all2all"
    assert "no library for all: rank 2 has no library" in found.explain()
