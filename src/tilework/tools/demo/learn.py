"""Train a small convolutional network; the same settings serve the comparison with PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilework.base.records import dataclass, field
from tilework.nn.optim import Adam
from tilework.tensor.jit import jit
from tilework.tensor.tensor import Tensor
from tilework.tools.demo.digits import Digits

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a training run depends on besides its data."""

    seed: int = 0
    epochs: int = 30
    batch: int = 64
    learning_rate: float = 2e-3
    filters: tuple[int, int] = (16, 32)


@dataclass(slots=True)
class History:
    """Loss and accuracy after each epoch, and the time of it all."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    step_seconds: float = 0.0


def initial_weights(recipe: Recipe, size: int) -> dict[str, Array]:
    """Return the weights that a run starts from: uniform within 1 / sqrt(inputs), as usual.

    Args:
        recipe: the seed and the filters.
        size: width of a picture, in pixels.
    """
    generator = np.random.default_rng(recipe.seed)
    first, second = recipe.filters
    shapes = {
        "first": (first, 1, 3, 3),
        "second": (second, first, 3, 3),
        "last": (10, second * (size // 2) ** 2),
    }
    weights: dict[str, Array] = {}
    for name, shape in shapes.items():
        bound = float(np.prod(shape[1:])) ** -0.5
        weights[f"{name}.weight"] = generator.uniform(-bound, bound, shape).astype(np.float32)
        weights[f"{name}.bias"] = generator.uniform(-bound, bound, shape[0]).astype(np.float32)
    return weights


def batches(recipe: Recipe, count: int, epoch: int) -> Iterator[Array]:
    """Yield the places of each batch of an epoch, every picture once, the last part left out."""
    order = np.random.default_rng((recipe.seed, epoch)).permutation(count)
    for start in range(0, count - recipe.batch + 1, recipe.batch):
        yield order[start : start + recipe.batch]


class Network:
    """Two convolutions, a pool, and a fully connected layer.

    Shape: (n, 1, size, size) -> (n, 10)
    """

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = {name: Tensor(array) for name, array in weights.items()}
        for tensor in self.weights.values():
            tensor.requires_grad = True

    def __call__(self, x: Tensor) -> Tensor:
        """Return a score per class."""
        w = self.weights
        x = x.conv2d(w["first.weight"], w["first.bias"], padding=1).relu()
        x = x.conv2d(w["second.weight"], w["second.bias"], padding=1).relu()
        x = x.max_pool2d((2, 2)).flatten(1)
        return x.linear(w["last.weight"].transpose(), w["last.bias"])

    def parameters(self) -> list[Tensor]:
        """Return what is trained."""
        return list(self.weights.values())


def train(
    digits: Digits,
    recipe: Recipe,
    on_epoch: Callable[[int, float, float], None] | None = None,
) -> tuple[Network, History]:
    """Train from the recipe's start, and test after each epoch.

    Args:
        digits: the pictures.
        recipe: the settings.
        on_epoch: called with the epoch, the mean loss and the accuracy on the test pictures.
    """
    network = Network(initial_weights(recipe, digits.size))
    optimizer = Adam(network.parameters(), lr=recipe.learning_rate)
    pictures, classes = Tensor(digits.train_pictures), Tensor(digits.train_classes)

    @jit
    def step(places: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = network(pictures[places]).sparse_categorical_crossentropy(classes[places])
        loss.backward()
        return loss.realize(*optimizer.schedule_step())

    @jit
    def score(x: Tensor, y: Tensor) -> Tensor:
        with Tensor.no_grad():
            return (network(x).argmax(-1) == y).mean().realize()

    test_pictures, test_classes = Tensor(digits.test_pictures), Tensor(digits.test_classes)
    history = History()
    start = time.perf_counter()
    steps = 0
    with Tensor.train():
        for epoch in range(recipe.epochs):
            losses = []
            for places in batches(recipe, len(digits.train_pictures), epoch):
                began = time.perf_counter()
                losses.append(step(Tensor(places)))
                if epoch:
                    history.step_seconds += time.perf_counter() - began
                    steps += 1
            history.losses.append(float(np.mean([loss.item() for loss in losses])))
            history.accuracies.append(float(score(test_pictures, test_classes).item()))
            if on_epoch is not None:
                on_epoch(epoch, history.losses[-1], history.accuracies[-1])
    history.seconds = time.perf_counter() - start
    history.step_seconds /= max(1, steps)
    return network, history
