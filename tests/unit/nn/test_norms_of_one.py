"""A training batch of one element in each channel has no variance: every result would be 0."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import Tensor, nn
from tilework.base.errors import ShapeError


@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 1, 1)])
@pytest.mark.parametrize("tracks", [True, False])
def test_batch_norm_of_one_element_is_refused_in_training(
    shape: tuple[int, ...], tracks: bool
) -> None:
    layer = nn.BatchNorm2d(4, track_running_stats=tracks)
    with Tensor.train(), pytest.raises(ShapeError, match="several elements in each channel"):
        layer(Tensor.ones(*shape))


def test_batch_norm_of_one_element_takes_running_statistics_otherwise() -> None:
    layer = nn.BatchNorm2d(4)
    layer.running_mean = Tensor.zeros(4)
    found = layer(Tensor.full((1, 4), 3.0))
    np.testing.assert_allclose(found.numpy(), np.full((1, 4), 3.0 / np.sqrt(1 + 1e-5)), rtol=1e-6)
