"""Pausing the garbage collector."""

import gc

import pytest

from tilework.base.collection import no_collection


def test_the_collector_is_off_in_the_block_alone() -> None:
    assert gc.isenabled()
    with no_collection(), no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), no_collection():
        raise ValueError("inside")
    assert gc.isenabled()


def test_who_has_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
