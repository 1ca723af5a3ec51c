"""Programs over several cards: copies in queues of their own, and no wait of the host."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards
from tests.training_steps import random_batches, training_losses

from tilework import Tensor, distributed, jit, nn
from tilework.base.errors import BoundsError
from tilework.base.records import replace
from tilework.base.settings import override
from tilework.engine import queued
from tilework.engine.device import Device
from tilework.nn.state import get_parameters
from tilework.runtime import reclaim
from tilework.testing.emulators.cuda import EmulatedCuda

CARDS = ("CUDA:0", "CUDA:1")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_cards(monkeypatch, cards=4) as found:
        yield found
    gc.collect()  # tensors with gradients are in cycles
    reclaim.run()
    assert not +found.held


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_a_tensor_goes_from_card_to_card_without_the_host(library: EmulatedCuda) -> None:
    values = numbers(5, 7)
    x = Tensor(values, device="CUDA:0").realize()
    x.to("CUDA:1").realize()  # a queue is tried from the host when it is first used
    with library.late():
        library.calls.clear()
        moved = x.to("CUDA:1").realize()
        assert "copy_between_cards" in library.calls
        assert not {"copy_to_host", "stream_synchronize"} & set(library.calls)
        assert np.array_equal(moved.numpy(), values)


def test_MDV_14_cards_without_a_link_copy_through_the_host(library: EmulatedCuda) -> None:
    library.missing_links |= {(0, 1), (1, 0)}
    values = numbers(9)
    x = Tensor(values, device="CUDA:0").realize()
    library.calls.clear()
    assert np.array_equal(x.to("CUDA:1").numpy(), values)
    assert "copy_between_cards" not in library.calls


def test_BKE_03_cards_whose_specs_have_no_queue_for_copies_copy_through_the_host(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    for card in CARDS:
        driver = Device[card].driver
        monkeypatch.setattr(driver, "target", replace(driver.target, has_copy_queue=False))

    @jit
    def total(x: Tensor) -> Tensor:
        return x.to("CUDA:1").sum(0) + 1

    x = Tensor(numbers(6, 5), device="CUDA:0").realize()
    library.calls.clear()
    for _ in range(3):
        found = total(x).numpy()
    assert np.allclose(found, numbers(6, 5).sum(0) + 1, rtol=1e-5)
    assert "copy_to_host" in library.calls
    assert "copy_between_cards" not in library.calls


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("algorithm", ["naive", "ring", "all2all"])
def test_MDV_07_sums_over_cards_are_right_when_all_work_is_late(
    library: EmulatedCuda, count: int, algorithm: str
) -> None:
    cards = tuple([f"CUDA:{number}" for number in range(count)])

    @jit
    def total(x: Tensor) -> Tensor:
        return x.exp().sum(0) * 2

    with override(allreduce=algorithm):
        for seed in range(4):
            values = np.random.default_rng(seed).standard_normal((8, 11)).astype(np.float32)
            x = Tensor(values).to(cards[0]).shard(cards, 0).realize()
            with library.late():
                found = [part.numpy() for part in total(x).shards()]
            want = np.exp(values).sum(0) * 2
            assert all(np.allclose(each, want, rtol=1e-5) for each in found)
            assert all(np.array_equal(each, found[0]) for each in found)


def test_a_replay_over_cards_never_waits_for_them(library: EmulatedCuda) -> None:
    @jit
    def total(x: Tensor) -> Tensor:
        return x.sum(0) + 1

    x = Tensor(numbers(6, 5), device="CUDA:0").shard(CARDS, 0).realize()
    with override(poison=False):  # which stands between what is else one sequence
        for _ in range(3):
            total(x)
        library.calls.clear()
        total(x)
    assert library.calls.count("launch") == 4  # the sums of each, and what is made of both
    assert not {"copy_between_cards", "copy_on_device", "stream_synchronize"} & set(library.calls)


def test_what_a_kernel_reads_twice_is_copied_first(library: EmulatedCuda) -> None:
    @jit
    def product(x: Tensor, w: Tensor) -> Tensor:
        return (x @ (w * 2)).relu()

    x = Tensor(numbers(6, 5), device="CUDA:0").shard(CARDS, 0).realize()
    w = Tensor(numbers(5, 4), device="CUDA:0").shard(CARDS, 0).realize()
    want = np.maximum(x.numpy() @ (w.numpy() * 2), 0)
    for _ in range(3):
        with library.late():
            library.calls.clear()
            found = product(x, w)
            assert library.calls.count("copy_between_cards") > 0
            assert np.allclose(found.numpy(), want, rtol=1e-5, atol=1e-5)


def test_memory_of_a_run_is_not_used_again_before_its_copies_are_done(
    library: EmulatedCuda,
) -> None:
    values = [numbers(64) + number for number in range(4)]
    with library.late():
        sent = []
        for each in values:
            x = Tensor(each, device="CUDA:0").realize()
            sent.append((x * 2).to("CUDA:1").realize())  # x * 2 is freed at once
            del x
        for each, found in zip(values, sent, strict=True):
            assert np.array_equal(found.numpy(), each * 2)


def test_a_training_step_over_cards_is_that_of_one_card(library: EmulatedCuda) -> None:
    def trained(cards: tuple[str, ...]) -> np.ndarray:
        weight = Tensor(numbers(3, 2), device=cards[0]).realize()
        weight = weight.shard(cards).realize() if len(cards) > 1 else weight
        weight.requires_grad = True

        @jit
        def step(x: Tensor) -> Tensor:
            weight.grad = None
            loss = (x @ weight).square().sum()
            loss.backward()
            grad: Any = weight.grad
            weight.assign(weight.detach() - grad * 0.01)
            return loss.realize(weight)

        for seed in range(4):
            values = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
            x = Tensor(values, device=cards[0])
            step((x.shard(cards, 0) if len(cards) > 1 else x).realize())
        return weight.numpy()

    alone = trained(CARDS[:1])
    with library.late():
        assert np.allclose(trained(CARDS), alone, rtol=1e-5)


def test_an_index_out_of_range_on_one_card_is_seen_by_who_reads_on_the_other(
    library: EmulatedCuda,
) -> None:
    table = Tensor(numbers(4), device="CUDA:0").realize()
    places = Tensor(np.array([1, 9], np.int32), device="CUDA:0").realize()
    with pytest.raises(BoundsError):
        table[places].to("CUDA:1").numpy()


def test_cards_are_closed_in_any_order(library: EmulatedCuda) -> None:
    for first, second in (CARDS, CARDS[::-1]):
        x = Tensor(numbers(6), device="CUDA:0").shard(CARDS).realize()
        assert (x * 2).sum().item() == pytest.approx(float(numbers(6).sum()) * 2, rel=1e-5)
        del x
        Device[first].close()
        Device[second].close()


def test_collectives_by_name_run_between_cards(library: EmulatedCuda) -> None:
    parts = [Tensor(numbers(6) + n, device=card).realize() for n, card in enumerate(CARDS)]
    with library.late():
        found = distributed.reduce_scatter(parts)
        want = sum(part.numpy() for part in parts)
        assert np.allclose(np.concatenate([each.numpy() for each in found]), want)
        assert [each.numpy().shape for each in distributed.all_gather(parts)] == [(12,), (12,)]


@pytest.mark.parametrize("reads", [True, False])
def test_a_network_trained_on_two_cards_is_that_of_one_when_all_work_is_late(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    if not reads:
        monkeypatch.setattr(queued, "read_in_place", lambda *_: {})

    def losses(cards: tuple[str, ...]) -> list[float]:
        Tensor.manual_seed(1)
        layer = nn.Linear(8, 6)
        if len(cards) > 1:
            distributed.replicate(get_parameters(layer), cards)
        else:
            for parameter in get_parameters(layer):
                parameter.to_(cards[0])
        optimizer = nn.optim.AdamW(get_parameters(layer), lr=0.01)

        def place(x: Tensor) -> Tensor:
            return x.shard(cards, 0) if len(cards) > 1 else x.to(cards[0])

        return training_losses(layer, optimizer, random_batches(4, (8, 8), 6, place))

    alone = losses(CARDS[:1])
    with library.late():
        assert np.allclose(losses(CARDS), alone, rtol=1e-5)
