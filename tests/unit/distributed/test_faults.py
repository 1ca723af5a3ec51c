"""Devices that are unfit, unconnected or failing: what is refused, what goes on, what ends."""

import time
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, distributed, jit
from tilework.base.errors import (
    DeviceError,
    DeviceTimeoutError,
    StaleOutputError,
    TileworkError,
    UnsupportedError,
    UserError,
)
from tilework.engine.copies import Route, plan_copy
from tilework.engine.device import Device

DATA = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_cards_compute_what_one_device_computes(cards: Any) -> None:
    x = Tensor(DATA).shard(cards.names(3), axis=0)
    assert (x * 2).sum(0).tolist() == (DATA * 2).sum(0).tolist()


def test_MDV_11_a_device_whose_copies_change_bytes_is_refused(cards: Any) -> None:
    cards.lossy.add(1)
    with pytest.raises(UnsupportedError, match="copies from CARD to CARD:1 are not right") as error:
        Tensor(DATA).shard(cards.names(2), axis=0)
    assert "1 of 512 bytes arrived changed" in str(error.value)


def test_MDV_11_a_device_that_cannot_copy_is_refused(cards: Any) -> None:
    cards.fails = (1, 1)
    with pytest.raises(UnsupportedError, match="it fell off the bus"):
        Tensor(DATA).shard(cards.names(2), axis=0)


def test_MDV_11_tensors_made_on_several_devices_pass_the_same_gate(cards: Any) -> None:
    cards.lossy.add(0)
    with pytest.raises(UnsupportedError, match="copies from CARD to CARD:1 are not right"):
        Tensor.zeros(4, device=cards.names(2)).realize()


def test_MDV_11_the_gate_is_passed_once_for_each_pair(cards: Any) -> None:
    Tensor(DATA).shard(cards.names(2), axis=0).realize()
    cards.lossy.add(1)
    x = Tensor(DATA).shard(cards.names(2), axis=0)
    assert x.layout is not None


def test_MDV_14_devices_without_links_copy_through_the_host(cards: Any) -> None:
    cards.links = {(0, 1), (1, 0), (1, 2)}
    cards.broken = {(2, 0)}
    first, second, third = (Device[name] for name in cards.names(3))
    routes = {
        (a.name, b.name): plan_copy(b, b.allocate(64), a, a.allocate(64)).route
        for a, b in [(first, second), (second, third), (third, second), (third, first)]
    }
    assert routes == {
        ("CARD", "CARD:1"): Route.PEER,
        ("CARD:1", "CARD:2"): Route.PEER,
        ("CARD:2", "CARD:1"): Route.STAGED,
        ("CARD:2", "CARD"): Route.STAGED,
    }


@pytest.mark.parametrize("links", [set(), {(0, 1)}, {(0, 1), (1, 0), (1, 2), (2, 1), (0, 2)}])
def test_MDV_14_numbers_are_the_same_whatever_links_are_there(
    cards: Any, links: set[tuple[int, int]]
) -> None:
    cards.links = links
    x = Tensor(DATA).shard(cards.names(3), axis=0)
    assert x.shard(cards.names(3), axis=1).cumsum(0).tolist() == DATA.cumsum(0).tolist()
    assert bool(cards.peer_copies) == bool(links)


@pytest.mark.parametrize("card", [0, 1, 2])
@pytest.mark.parametrize("step", range(4))
def test_MDV_12_a_device_that_fails_ends_the_collective_everywhere(
    cards: Any, card: int, step: int
) -> None:
    names = cards.names(3)
    state = Tensor(DATA).shard(names, axis=0).contiguous().realize()
    cards.start()
    cards.fails = (card, step)
    state.assign(state + state.sum(0))
    with pytest.raises(DeviceError, match="it fell off the bus"):
        state.realize()
    cards.fails = None
    # What was written in place is lost, and says so; what is made anew is right.
    with pytest.raises(TileworkError) as error:
        state.tolist()
    assert isinstance(error.value, StaleOutputError)
    others = tuple([name for number, name in enumerate(names) if number != card])
    assert Tensor(DATA).shard(others, axis=0).sum().item() == DATA.sum()


@pytest.mark.parametrize("card", [0, 1])
def test_MDV_12_a_device_that_hangs_ends_the_collective_within_the_deadline(
    cards: Any, card: int
) -> None:
    names = cards.names(2)
    x = Tensor(DATA).shard(names, axis=0).realize()
    for name in names:
        Device[name].wait_seconds = 0.05
    cards.start()
    cards.hangs = (card, 0)
    since = time.monotonic()
    with pytest.raises(DeviceTimeoutError, match="no progress"):
        x.sum().item()
    assert time.monotonic() - since < 30


def test_MDV_12_a_replay_that_fails_loses_the_state_that_it_writes(cards: Any) -> None:
    names = cards.names(2)
    state = Tensor.zeros(4, 3).shard(names, axis=0).contiguous().realize()

    @jit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x.sum(0))
        return state.sum()

    for _ in range(3):
        step(Tensor(DATA).shard(names, axis=0).realize())
    x = Tensor(DATA).shard(names, axis=0).realize()
    cards.start()
    cards.fails = (1, 1)
    with pytest.raises(DeviceError, match="it fell off the bus"):
        step(x)
    cards.fails = None
    with pytest.raises(StaleOutputError):
        state.tolist()
    assert x.tolist() == DATA.tolist()


def test_parts_of_one_tensor_are_on_devices_of_their_own() -> None:
    with pytest.raises(UserError, match="a group names each of its devices once"):
        Tensor(DATA).shard(("CPU", "CPU:0"), axis=0)
    with pytest.raises(UserError, match="each part must be on one device"):
        distributed.assemble([Tensor(DATA), Tensor(DATA)])


def test_a_null_device_takes_part_in_what_is_only_planned() -> None:
    x = Tensor.empty(8, 4, device=("NULL", "NULL:1")).shard(("NULL", "NULL:1"), axis=0)
    moved = distributed.plan_transfers(x.sum(0))
    found = {(row.source, row.target, row.size_bytes) for row in moved}
    assert found == {("NULL:1", "NULL", 16), ("NULL", "NULL:1", 16)}
