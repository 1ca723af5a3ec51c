"""Folds between cards by a library: chosen, captured, beside kernels, and ended by failures."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards
from tests.training_steps import random_batches, training_losses

from tilework import Tensor, distributed, jit, nn, override
from tilework.backends import registry
from tilework.backends.world import WorldDevices
from tilework.base.errors import BoundsError, DeviceError, DeviceLostError
from tilework.engine.device import Device
from tilework.nn.state import get_parameters
from tilework.runtime import links
from tilework.runtime.cuda.nccl import NcclCallError, Status
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.nccl import EmulatedNccl


def _names(count: int) -> tuple[str, ...]:
    return tuple([f"CUDA:{number}" for number in range(count)])


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_cards(monkeypatch, 3) as found:
        found.collectives = EmulatedNccl(found)
        with override(allreduce="library"):
            yield found
    assert not +found.collectives.held


def _sums(count: int, axis: int = 0) -> Any:
    x = Tensor(np.arange(count * 4, dtype=np.float32).reshape(count, 4))
    return x.shard(_names(count), axis).realize()


@pytest.mark.parametrize("count", [2, 3])
def test_a_sum_over_cards_is_one_fold_of_the_library(cards: EmulatedCuda, count: int) -> None:
    x = _sums(count)
    wanted = np.arange(count * 4, dtype=np.float32).reshape(count, 4).sum(0)
    got = x.sum(0).realize()
    assert cards.collectives.calls.count("all_reduce") == count
    assert [part.tolist() for part in got.shards()] == [wanted.tolist()] * count


class _Elsewhere:
    """A group of two processes, of which this is the first."""

    rank, size, wait_seconds = 0, 2, 1.0


def test_cards_of_other_processes_take_the_library_from_no_cards_of_this_one(
    cards: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_current", [_Elsewhere()])
    registry.set_interface(registry.WORLD, WorldDevices(0, Device["CUDA"].spec).find)
    theirs = Device["WORLD+CUDA:1"]
    try:
        got = _sums(2).sum(0).realize()
    finally:
        theirs.close()
        registry.set_interface(registry.WORLD, None)
    assert cards.collectives.calls.count("all_reduce") == 2
    assert got.tolist() == [4, 6, 8, 10]


@pytest.mark.parametrize("fold", ["sum", "prod", "max", "min"])
def test_each_fold_of_integers_is_the_one_that_was_asked_for(
    cards: EmulatedCuda, fold: Any
) -> None:
    parts = [Tensor([3, -1, 2], device="CUDA:0"), Tensor([-5, 4, 2], device="CUDA:1")]
    got = distributed.all_reduce([part.realize() for part in parts], fold)
    wanted = {"sum": [-2, 3, 4], "prod": [-15, -4, 4], "max": [3, 4, 2], "min": [-5, -1, 2]}
    assert [each.tolist() for each in got] == [wanted[fold]] * 2
    assert "all_reduce" in cards.collectives.calls


def test_a_maximum_of_floats_is_not_the_library_s_since_it_loses_nans(cards: EmulatedCuda) -> None:
    x = Tensor([[1.0], [float("nan")]]).shard(_names(2), 0).realize()
    assert np.isnan(x.max(0).numpy()).all()
    assert "all_reduce" not in cards.collectives.calls


def test_with_fixed_bits_the_library_is_not_asked(cards: EmulatedCuda) -> None:
    with override(deterministic=True):
        assert _sums(2).sum(0).tolist() == [4.0, 6.0, 8.0, 10.0]
    assert "all_reduce" not in cards.collectives.calls


def test_without_a_library_copies_do_it(cards: EmulatedCuda) -> None:
    library, cards.collectives = cards.collectives, None
    assert _sums(2).sum(0).tolist() == [4.0, 6.0, 8.0, 10.0]
    assert "all_reduce" not in library.calls
    cards.collectives = library


def test_one_part_of_a_fold_may_be_all_that_is_wanted(cards: EmulatedCuda) -> None:
    got = _sums(3).sum(0).shards()[1].realize()
    assert got.tolist() == [12.0, 15.0, 18.0, 21.0]
    assert cards.collectives.calls.count("all_reduce") == 3


def test_narrow_floats_are_folded_in_float32_and_rounded_once(cards: EmulatedCuda) -> None:
    x = Tensor([[256.0], [1.0], [1.0]], dtype="bfloat16").shard(_names(3), 0).realize()
    assert x.sum(0).numpy().tolist() == [258.0]  # one after the other they would be 256
    assert cards.collectives.calls.count("all_reduce") == 3


class _Net:
    def __init__(self) -> None:
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 3)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


def _train(devices: tuple[str, ...] | None) -> list[float]:
    Tensor.manual_seed(1)
    net = _Net()
    if devices:
        distributed.replicate(get_parameters(net), devices)
    optimizer = nn.optim.SGD(get_parameters(net), lr=0.1)
    batches = random_batches(4, (6, 4), 3, lambda x: x.shard(devices, 0) if devices else x)
    return training_losses(net, optimizer, batches)


def test_training_over_cards_by_the_library_follows_one_device(cards: EmulatedCuda) -> None:
    wanted = _train(None)
    with cards.late(Random(3)):
        got = _train(_names(2))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert "all_reduce" in cards.collectives.calls
    assert "stream_end_capture" in cards.calls


def test_a_captured_fold_lies_beside_kernels_that_do_not_need_it(cards: EmulatedCuda) -> None:
    x, y = _sums(2), _sums(2)

    @jit
    def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(0) + 1, (y * 2).contiguous()

    for _ in range(4):
        one, _ = both(x, y)
        assert one.tolist() == [5.0, 7.0, 9.0, 11.0]
    assert any(span.what == "all_reduce" for span in cards.timeline)


@pytest.mark.parametrize(
    ("call", "status", "kind"),
    [
        ("unique_id", Status.SYSTEM_ERROR, DeviceError),
        ("init_rank", Status.INVALID_USAGE, DeviceError),
        ("all_reduce", Status.REMOTE_ERROR, DeviceLostError),
        ("group_end", Status.CUDA_ERROR, DeviceError),
    ],
)
def test_each_failure_of_the_library_is_typed(
    cards: EmulatedCuda, call: str, status: Status, kind: type[DeviceError]
) -> None:
    x = _sums(2)
    cards.collectives.fail_next(call, status)
    with pytest.raises(kind, match="nccl"):
        x.sum(0).realize()


def test_a_card_that_does_not_come_ends_the_run_at_the_deadline(cards: EmulatedCuda) -> None:
    x = _sums(2)
    cards.collectives.absent.add(1)
    for name in _names(2):
        Device[name].wait_seconds = 0.05
    with pytest.raises(DeviceError):
        x.sum(0).numpy()


@pytest.mark.parametrize("first", [0, 1])
def test_what_was_not_folded_to_its_end_is_handed_out_by_no_card(
    cards: EmulatedCuda, first: int
) -> None:
    x = _sums(2)
    assert x.sum(0).tolist() == [4.0, 6.0, 8.0, 10.0]
    cards.collectives.absent.add(1)
    parts = x.sum(0).realize().shards()
    cards.collectives.remote = Status.REMOTE_ERROR
    for number in (first, 1 - first) * 2:
        with pytest.raises(DeviceLostError):
            parts[number].numpy()


def test_a_status_that_cannot_be_asked_for_is_a_typed_error(
    cards: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = _sums(2)
    assert x.sum(0).tolist() == [4.0, 6.0, 8.0, 10.0]
    cards.collectives.absent.add(1)
    got = x.sum(0).realize()

    def status(comm: int) -> Status:
        raise NcclCallError("ncclCommGetAsyncError", Status.INVALID_ARGUMENT, "as it was told")

    monkeypatch.setattr(cards.collectives, "status", status)
    with pytest.raises(DeviceError, match="watch the other ranks"):
        got.numpy()


def test_a_card_that_is_closed_leaves_the_results_of_the_others(cards: EmulatedCuda) -> None:
    x = _sums(2)
    with cards.late():
        parts = x.sum(0).realize().shards()
        Device["CUDA:0"].close()
    assert parts[1].tolist() == [4.0, 6.0, 8.0, 10.0]


def test_what_a_kernel_of_one_card_reports_is_raised_by_who_reads_another_s_result(
    cards: EmulatedCuda,
) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).shard(_names(2), 0).realize()
    at = Tensor([[0], [7]]).shard(_names(2), 0).realize()
    with pytest.raises(BoundsError):
        x.gather(1, at).sum(0).shards()[0].numpy()
    assert "all_reduce" in cards.collectives.calls


def test_what_the_library_folds_is_explained(cards: EmulatedCuda) -> None:
    text = distributed.explain(_sums(3).sum(0))
    assert "1 all-reduce:" in text
    assert "CUDA, CUDA:1, CUDA:2: add of float32, 16 B on each, by a library" in text
    assert distributed.choose_allreduce(1 << 20, 3, "links").algorithm == "library"


def test_the_choice_says_why_there_is_no_library() -> None:
    with override(allreduce="library"):
        assert "there is none" in distributed.choose_allreduce(1 << 20, 4, "links").explain()
