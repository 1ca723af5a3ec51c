"""Networks of convolutions give the same numbers however their intermediates are stored.

Weights and inputs are small whole numbers, so that every sum is exact in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilework import Tensor, jit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS = ("conv", "grouped", "depthwise", "add", "join", "pool", "mean_pool", "clip", "pad")


def whole(generator: np.random.Generator, *shape: int) -> Tensor:
    return Tensor(generator.integers(-2, 3, shape).astype(np.float32)).realize()


def layer(kind: str, x: Tensor, seen: list[Tensor], generator: np.random.Generator) -> Tensor:
    """One more layer over `x`; `seen` are earlier values."""
    _, channels, height, width = (int(size) for size in x.shape)
    stride = int(generator.integers(1, 3))
    if kind == "conv":
        outputs = int(generator.choice([3, 8, 16, 20, 32, 48]))
        taps = int(generator.choice([1, 2, 3]))
        padding = int(generator.integers(0, taps))
        dilation = 2 if taps == 2 and min(height, width) > 4 else 1
        if min(height, width) + 2 * padding < dilation * (taps - 1) + 1:
            return x
        weight = whole(generator, outputs, channels, taps, taps)
        return x.conv2d(weight, padding=padding, stride=stride, dilation=dilation).clip(-3, 3)
    if kind == "grouped":
        groups = 2 if channels % 2 == 0 else 1
        weight = whole(generator, 8 * groups, channels // groups, 3, 3)
        return x.conv2d(weight, padding=1, stride=stride, groups=groups).clip(-3, 3)
    if kind == "depthwise":
        weight = whole(generator, channels, 1, 3, 3)
        return x.conv2d(weight, padding=1, stride=stride, groups=channels).clip(-3, 3)
    if kind == "add":
        same = [other for other in seen if other.shape == x.shape]
        return (x + same[int(generator.integers(0, len(same)))]).relu() if same else x
    if kind == "join":
        same = [other for other in seen if other.shape[2:] == x.shape[2:]]
        return x.cat(same[0], dim=1) if same and channels < 64 else x
    if kind == "pool":
        pooled: Tensor = x.max_pool2d((3, 3), stride=stride, padding=1)
        return pooled
    if kind == "mean_pool" and min(height, width) > 1:
        return (x.avg_pool2d((2, 2), stride=stride) * 4).clip(-3, 3)
    if kind == "pad" and min(height, width) < 20:
        return x.pad((1, 0, 2, 1))
    return x.clip(-2, 2)


def network(kinds: Sequence[str], seed: int) -> tuple[Callable[..., tuple[Tensor, ...]], Tensor]:
    """A function of an image that is a chain of layers with some side ways, and its argument."""

    def run(x: Tensor, *, stepwise: bool = False) -> tuple[Tensor, ...]:
        generator = np.random.default_rng(seed)
        seen = [x]
        for kind in kinds:
            x = layer(kind, x, seen, generator)
            if stepwise:  # what is asked for is stored row by row
                x = x.realize()
            seen.append(x)
        return x, x.sum((2, 3)), seen[len(seen) // 2] * 2

    generator = np.random.default_rng(seed + 1)
    channels = int(generator.choice([3, 16, 17]))
    image = whole(generator, int(generator.integers(1, 3)), channels, 9, 14)
    return run, image


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(KINDS), min_size=2, max_size=6), st.integers(0, 10_000))
def test_layouts_change_no_number(kinds: list[str], seed: int) -> None:
    function, x = network(["conv", *kinds, "conv"], seed)
    expected = [each.numpy() for each in function(x, stepwise=True)]
    for found, wanted in zip(function(x), expected, strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)
    captured = jit(function)
    for _ in range(3):
        for found, wanted in zip(captured(x), expected, strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted)
