"""Captures in programs that put their objects aside with `gc.freeze`, as servers do."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from tilework import Tensor, jit, nn
from tilework.tensor.version import Storage


@pytest.fixture(autouse=True)
def _thaw() -> Iterator[None]:
    was_frozen = bool(gc.get_freeze_count())
    yield
    gc.unfreeze()
    if was_frozen:
        gc.collect()
        gc.freeze()


def ones(*shape: int) -> Tensor:
    return Tensor.ones(*shape).realize()


def test_weights_that_are_set_are_read_anew() -> None:
    layer = nn.Linear(4, 3, bias=False)
    layer.weight.realize()
    gc.freeze()
    total = jit(lambda x: layer(x).sum())
    for _ in range(3):
        total(ones(2, 4))
    layer.weight.assign(Tensor.ones(3, 4))
    assert total(ones(2, 4)).item() == 24.0


def test_state_that_is_written_goes_on_where_it_was() -> None:
    state = ones(4)
    gc.freeze()

    @jit
    def step() -> Tensor:
        state.assign(state * 2)
        return state.sum()

    assert [step().item() for _ in range(4)] == [8.0, 16.0, 32.0, 64.0]
    state.assign(Tensor.zeros(4))
    assert step().item() == 0.0


def factors(*, is_hidden: bool) -> tuple[Callable[[Tensor], Tensor], Callable[[float], None]]:
    """A captured function that calls an inner one, which no value leads to if it is hidden."""
    factor = 2.0

    def scaled(x: Tensor) -> Tensor:
        return x * factor

    def put(value: float) -> None:
        nonlocal factor
        factor = value

    if is_hidden:
        chosen = iter([scaled] * 100)
        return jit(lambda x: next(chosen)(x).sum()), put
    return jit(lambda x: scaled(x).sum()), put


@pytest.mark.parametrize("is_hidden", [False, True])
def test_closure_variables_that_change_are_read_anew(is_hidden: bool) -> None:
    total, put = factors(is_hidden=is_hidden)
    gc.freeze()
    assert [total(ones(4)).item() for _ in range(3)] == [8.0, 8.0, 8.0]
    put(3.0)
    assert total(ones(4)).item() == 12.0


def test_a_version_forgets_storages_that_are_gone() -> None:
    version = ones(4)._storage.version
    for _ in range(1000):
        Storage(version)
    assert len(version.holders) < 32
    alive = [Storage(version) for _ in range(100)]
    assert set(alive) == set(version.storages())
