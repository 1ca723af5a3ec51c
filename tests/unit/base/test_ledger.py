import pytest

from tilework.base.errors import InternalError
from tilework.base.ledger import Kind, Ledger, difference


def test_rows_at_zero_are_left_out() -> None:
    ledger = Ledger()
    ledger.take("CPU", Kind.FD)
    ledger.give_back("CPU", Kind.FD)
    assert ledger.snapshot() == {}


def test_devices_are_counted_apart() -> None:
    ledger = Ledger()
    ledger.take("CPU", Kind.PAGES, 3)
    ledger.take("CUDA", Kind.PAGES)
    assert ledger.snapshot("CPU") == {("CPU", Kind.PAGES): 3}


def test_giving_back_too_much_is_our_fault() -> None:
    with pytest.raises(InternalError, match="gives back more fd"):
        Ledger().give_back("CPU", Kind.FD)


def test_a_difference_names_what_leaked() -> None:
    before = {("CPU", Kind.FD): 1, ("CPU", Kind.VA): 2}
    after = {("CPU", Kind.FD): 3, ("CPU", Kind.VA): 2}
    assert difference(before, after) == {("CPU", Kind.FD): 2}
