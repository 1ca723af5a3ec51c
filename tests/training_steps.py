"""Captured training steps of small nets, for tests of what runs on several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tilework import Tensor, jit


def random_batches(
    count: int, shape: tuple[int, int], classes: int, place: Callable[[Tensor], Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """So many batches of inputs and labels, the same ones each time, each put where they belong."""
    random = np.random.default_rng(0)
    for _ in range(count):
        x = Tensor(random.standard_normal(shape).astype(np.float32))
        y = Tensor(random.integers(0, classes, shape[0]).astype(np.int32))
        yield place(x), place(y)


def training_losses(
    net: Callable[[Tensor], Tensor],
    optimizer: Any,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    captured: bool = True,
) -> list[float]:
    """The losses of steps over batches, read when all steps have been given to the devices."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y)
        loss.backward()
        optimizer.step()
        return loss

    run = jit(step) if captured else step
    with Tensor.train():
        found = [run(x.realize(), y.realize()) for x, y in batches]
    return [float(loss.item()) for loss in found]
