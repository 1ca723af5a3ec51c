"""Places of a grid that are small floats are computed without being rounded in between."""

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes

SMALL = {"float16": dtypes.float16, "bfloat16": dtypes.bfloat16}
RANDOM = np.random.default_rng(8)
IMAGES = RANDOM.integers(-8, 8, (2, 3, 33, 27)).astype(np.float32)
GRID = RANDOM.uniform(-1.1, 1.1, (2, 11, 9, 2)).astype(np.float32)


def as_small(values: np.ndarray, name: str) -> tuple[Tensor, torch.Tensor]:
    """The same rounded numbers here in the dtype, and in PyTorch in float64."""
    there = torch.tensor(values).to(getattr(torch, name)).double()
    return Tensor(there.float().numpy()).cast(SMALL[name]), there


def sampled(x: torch.Tensor, grid: torch.Tensor, mode: str, padding: str, aligned: bool) -> float:
    found = torch.nn.functional.grid_sample(x, grid, mode, padding, aligned)
    return float(found.sum())


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_gradients_of_small_grids_are_the_slopes_of_the_cells_the_places_lie_in(
    name: str, padding: str
) -> None:
    x, exact = as_small(IMAGES, name)
    grid, places = as_small(GRID, name)
    slope = x.grid_sample(grid, "bilinear", padding, True).sum().gradient(grid)[0]
    found = slope.float().numpy()
    step = 1e-7  # far below the distance of a place from the border of its cell
    for index in [(0, 0, 0, 0), (0, 4, 2, 1), (0, 10, 8, 0), (1, 3, 3, 1), (1, 7, 5, 0)]:
        up, down = places.clone(), places.clone()
        up[index] += step
        down[index] -= step
        rise = sampled(exact, up, "bilinear", padding, True)
        rise -= sampled(exact, down, "bilinear", padding, True)
        assert found[index] == pytest.approx(rise / (2 * step), rel=2e-2, abs=0.5)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_values_at_small_grids_are_those_of_float64_rounded_once(name: str, mode: str) -> None:
    x, exact = as_small(IMAGES, name)
    grid, places = as_small(GRID, name)
    found = x.grid_sample(grid, mode)
    assert found.dtype is SMALL[name]
    want = torch.nn.functional.grid_sample(exact, places, mode, align_corners=False)
    error = 2.0**-11 if name == "float16" else 2.0**-8
    np.testing.assert_allclose(found.float().numpy(), want.numpy(), rtol=error, atol=2e-5)
