"""First values of parameters, against PyTorch: bounds, spread and shape of what is drawn."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes, nn
from tilework.base.errors import ShapeError, UserError

FUNCTIONS = ["linear", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "selu"]


@pytest.fixture(autouse=True)
def seed() -> None:
    Tensor.manual_seed(11)
    torch.manual_seed(11)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gains_are_those_of_pytorch(name: Any) -> None:
    assert nn.init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))


@pytest.mark.parametrize("slope", [None, 0, 0.3, -2.0])
def test_the_gain_of_a_leaky_relu_depends_on_its_slope(slope: float | None) -> None:
    expected = torch.nn.init.calculate_gain("leaky_relu", slope)
    assert nn.init.calculate_gain("leaky_relu", slope) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.init.calculate_gain("cubic"), "unknown function"),
        (lambda: nn.init.calculate_gain("leaky_relu", True), "slope is no number"),
        (lambda: nn.init.trunc_normal_(Tensor.empty(2), a=1.0, b=1.0), "bounds"),
        (lambda: nn.init.kaiming_normal_(Tensor.empty(2, 2), mode="fan"), "unknown mode"),
        (lambda: nn.init.sparse_(Tensor.empty(2, 2), 1.5), "no share"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(call: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    "name",
    ["eye_", "dirac_", "xavier_uniform_", "xavier_normal_", "kaiming_normal_", "orthogonal_"],
)
def test_vectors_have_no_inputs_and_outputs(name: str) -> None:
    with pytest.raises(ShapeError, match=f"{name}: the tensor has other axes"):
        getattr(nn.init, name)(Tensor.empty(3))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("uniform_", {"a": -2.0, "b": 3.0}),
        ("normal_", {"mean": 1.0, "std": 0.5}),
        ("trunc_normal_", {"mean": 0.5, "std": 2.0, "a": -1.0, "b": 4.0}),
        ("xavier_uniform_", {"gain": 2.0}),
        ("xavier_normal_", {"gain": 0.5}),
        ("kaiming_uniform_", {"a": 0.3}),
        ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "tanh"}),
    ],
)
@pytest.mark.parametrize("shape", [(200, 300), (40, 30, 5, 7)])
def test_draws_have_pytorchs_mean_spread_and_bounds(
    name: str, options: dict[str, float], shape: tuple[int, ...]
) -> None:
    own = getattr(nn.init, name)(Tensor.empty(*shape), **options).numpy()
    theirs = getattr(torch.nn.init, name)(torch.empty(*shape), **options).numpy()
    spread = theirs.std()
    assert abs(own.mean() - theirs.mean()) < 0.05 * spread
    assert own.std() == pytest.approx(spread, rel=0.03)
    if "uniform" in name or "trunc" in name:
        assert own.max() == pytest.approx(theirs.max(), rel=0.02)
        assert own.min() == pytest.approx(theirs.min(), rel=0.02)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (0, 3)])
def test_the_identity_is_pytorchs(shape: tuple[int, int]) -> None:
    own = nn.init.eye_(Tensor.ones(*shape).contiguous()).numpy()
    np.testing.assert_array_equal(own, torch.nn.init.eye_(torch.ones(*shape)).numpy())


@pytest.mark.parametrize(
    ("shape", "groups"), [((4, 3, 5), 1), ((4, 2, 4, 3), 2), ((3, 3, 1, 2, 3), 1), ((2, 6, 3), 2)]
)
def test_the_kernel_that_keeps_channels_is_pytorchs(shape: tuple[int, ...], groups: int) -> None:
    own = nn.init.dirac_(Tensor.empty(*shape), groups).numpy()
    np.testing.assert_array_equal(own, torch.nn.init.dirac_(torch.empty(*shape), groups).numpy())


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5), (4, 2, 3)])
def test_orthogonal_weights_keep_lengths(shape: tuple[int, ...]) -> None:
    found = nn.init.orthogonal_(Tensor.empty(*shape), gain=2.0).numpy().reshape(shape[0], -1)
    small = found @ found.T if found.shape[0] <= found.shape[1] else found.T @ found
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64])
def test_what_is_written_keeps_the_dtype(dtype: object) -> None:
    weight = Tensor.zeros(64, 64, dtype=dtype).contiguous()  # type: ignore[arg-type]
    for fill in (nn.init.trunc_normal_, nn.init.orthogonal_, nn.init.kaiming_uniform_):
        assert fill(weight) is weight
        assert weight.dtype is dtype
        assert bool(weight.float().isfinite().all().item())


def test_numbers_in_bfloat16_stay_in_their_bounds() -> None:
    weight = nn.init.trunc_normal_(Tensor.empty(4096, dtype=dtypes.bfloat16), a=-0.99, b=0.99)
    assert weight.float().abs().max().item() <= 0.9922


def test_sparse_weights_have_the_same_zeros_in_each_column() -> None:
    found = nn.init.sparse_(Tensor.empty(10, 7), 0.25).numpy()
    assert (found == 0).sum(0).tolist() == [math.ceil(2.5)] * 7


@pytest.mark.parametrize("name", ["uniform_", "kaiming_uniform_", "orthogonal_", "xavier_normal_"])
def test_weights_without_elements_stay_empty(name: str) -> None:
    assert getattr(nn.init, name)(Tensor.empty(0, 3)).shape == (0, 3)


def test_filling_a_parameter_records_no_history() -> None:
    layer = nn.Linear(3, 2)
    nn.init.constant_(layer.weight, 2.0)
    layer(Tensor([[1.0, 2.0, 3.0]])).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[1.0, 2.0, 3.0]] * 2
