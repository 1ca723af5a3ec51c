"""Short rows become one range with what is around them, whatever limits the outer one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor
from tilework.codegen.analysis import analyse
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.dtypes import uint8
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.symbolic import simplify

PLACES = 20


def padded(channels: int, low: int, high: int) -> Node:
    """out[place, channel] = x[place - low, channel] where low <= place < high."""
    place, channel = (
        RANGE(const_index(n), attrs=RangeAttrs(i)) for i, n in enumerate((PLACES, channels))
    )
    out, x = (PARAM(attrs=ParamAttrs(i, (PLACES * channels,), uint8)) for i in range(2))
    at = simplify.add(simplify.scale(place, channels), channel)
    inside = simplify.both(math.LT(const_index(low - 1), place), math.LT(place, const_index(high)))
    source = simplify.sub(at, const_index(low * channels))
    return SINK(STORE(INDEX(out, at), LOAD(INDEX(x, source), inside)))


@pytest.mark.parametrize(("channels", "count"), [(2, 1), (3, 1), (16, 1), (17, 2), (200, 2)])
def test_short_rows_are_merged_across_limits(channels: int, count: int) -> None:
    assert len(analyse(normalise_ranges(padded(channels, 2, 15))).outputs) == count


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.int64])
@pytest.mark.parametrize("channels", [1, 2, 3, 16, 17])
@pytest.mark.parametrize("pads", [(2, 3), (0, 1), (4, 0), (0, 0)])
def test_padded_places_keep_their_channels(pads: tuple[int, int], channels: int, kind: Any) -> None:
    x = np.random.default_rng(channels).integers(0, 99, (2, 5, 7, channels)).astype(kind)
    widths = ((0, 0), (1, 2), pads, (0, 0))
    for value in (0, 3):
        found = Tensor(x).pad(widths, value=value).numpy()
        assert found.tobytes() == np.pad(x, widths, constant_values=value).tobytes()


@pytest.mark.parametrize("channels", [3, 16, 40])
def test_joined_and_rolled_places_keep_their_channels(channels: int) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 99, (3, 5, channels)).astype(np.uint8) for _ in range(2))
    joined = Tensor(x).cat(Tensor(y), dim=1).contiguous().numpy()
    assert joined.tobytes() == np.concatenate([x, y], 1).tobytes()
    assert Tensor(x).roll(2, 1).numpy().tobytes() == np.roll(x, 2, 1).tobytes()
