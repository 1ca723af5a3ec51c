"""A convolution layer of windows or steps that are nothing is refused where it is made."""

import numpy as np
import pytest

from tilework import Tensor, nn
from tilework.base.errors import ShapeError

KINDS = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"kernel_size": 0}, {"kernel_size": -1}, {"stride": 0}, {"stride": -1}, {"dilation": 0},
        {"dilation": -2}, {"groups": 0}, {"groups": -1}, {"in_channels": -3},
        {"out_channels": -4},
    ],
)  # fmt: skip
def test_sizes_and_steps_below_one_are_refused(kind: str, wrong: dict[str, int]) -> None:
    right = {"in_channels": 3, "out_channels": 4, "kernel_size": 3}
    with pytest.raises(ShapeError, match="from 1 on"):
        getattr(nn, kind)(**(right | wrong))


def test_one_axis_of_the_window_that_is_zero_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"kernel_size(.|\n)*\(3, 0\)"):
        nn.Conv2d(3, 4, (3, 0))


def test_layers_from_or_to_no_channels_add_up_nothing() -> None:
    assert nn.Conv2d(3, 0, 1)(Tensor.ones(1, 3, 2, 2)).shape == (1, 0, 2, 2)
    found = nn.Conv2d(0, 4, 1, bias=False)(Tensor.ones(1, 0, 2, 2)).numpy()
    np.testing.assert_array_equal(found, np.zeros((1, 4, 2, 2), np.float32))
