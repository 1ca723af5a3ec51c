"""Layers without sizes become the ordinary ones at their first call."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, jit, nn
from tilework.base.errors import ShapeError, TileworkError, UserError

RANDOM = np.random.default_rng(4)
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = {
    "LazyLinear": ((5,), {"bias": False}, (2, 3, 7)),
    "LazyConv1d": ((4, 3), {"padding": 1, "dilation": 2}, (2, 6, 9)),
    "LazyConv2d": ((4, (3, 2)), {"stride": 2, "groups": 2, "padding_mode": "circular",
                                 "padding": 1}, (2, 6, 7, 8)),
    "LazyConv3d": ((4, 2), {}, (1, 3, 4, 4, 4)),
    "LazyConvTranspose1d": ((4, 3), {"padding": 1, "stride": 2}, (2, 6, 9)),
    "LazyConvTranspose2d": ((4, (3, 2), 2, 1, 1, 2, False), {}, (2, 6, 5, 4)),
    "LazyConvTranspose3d": ((4, 2), {"dilation": 2}, (1, 3, 4, 4, 4)),
    "LazyInstanceNorm1d": ((), {"eps": 1e-3}, (4, 3, 5)),
    "LazyInstanceNorm2d": ((1e-3, 0.2), {"affine": False}, (2, 3, 5, 4)),
    "LazyInstanceNorm3d": ((), {"track_running_stats": False}, (4, 3, 2, 2, 2)),
    "LazyBatchNorm1d": ((), {"eps": 1e-3}, (4, 3, 5)),
    "LazyBatchNorm2d": ((1e-3, 0.2), {}, (4, 3, 5, 2)),
    "LazyBatchNorm3d": ((), {"affine": False}, (4, 3, 2, 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_lazy_layer_gives_what_it_gives_in_pytorch(name: str) -> None:
    args, named, shape = CASES[name]
    ours, theirs = getattr(nn, name)(*args, **named), getattr(torch.nn, name)(*args, **named)
    x = RANDOM.standard_normal(shape).astype(np.float32)
    ours(Tensor(x))
    with torch.no_grad():
        theirs.eval()(torch.tensor(x))
    assert type(ours) is getattr(nn, name.removeprefix("Lazy"))
    state = {key: Tensor(value.numpy()) for key, value in theirs.state_dict().items()}
    assert {key: value.shape for key, value in nn.state.get_state_dict(ours).items()} == {
        key: value.shape for key, value in state.items()
    }
    nn.state.load_state_dict(ours, state, verbose=False)
    theirs.train()
    with Tensor.train():
        found = ours(Tensor(x)).numpy()
    want = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=2e-6)


def test_parameters_of_a_layer_that_was_not_called_are_refused_with_its_place() -> None:
    model = [nn.Linear(2, 3), nn.LazyLinear(4)]
    with pytest.raises(UserError, match="1: a lazy layer has no parameters"):
        nn.state.get_parameters(model)
    with pytest.raises(UserError, match="calling the model once"):
        nn.state.load_state_dict(model, {"0.weight": Tensor.ones(3, 2)})
    Tensor.ones(1, 2).sequential(model)
    assert len(nn.state.get_parameters(model)) == 4


def test_a_captured_function_does_not_make_parameters() -> None:
    layer = nn.LazyLinear(2)
    with pytest.raises(UserError, match="before it is captured"):
        jit(layer)(Tensor.ones(1, 3))
    assert layer(Tensor.ones(1, 3)).shape == (1, 2)


def test_an_input_that_does_not_fit_leaves_the_layer_without_sizes() -> None:
    layer = nn.LazyConv2d(4, 3, groups=2)
    for shape in [(4, 4), (1, 3, 5, 5)]:  # too few axes; three channels in two groups
        with pytest.raises(ShapeError):
            layer(Tensor.ones(*shape))
    assert type(layer) is nn.LazyConv2d
    assert layer(Tensor.ones(1, 6, 5, 5)).shape == (1, 4, 3, 3)


def test_a_copy_made_before_the_first_call_takes_its_own_sizes() -> None:
    layer = nn.LazyLinear(2)
    other = copy.deepcopy(layer)
    assert layer(Tensor.ones(1, 3)).shape == other(Tensor.ones(1, 5)).shape
    assert (layer.weight.shape, other.weight.shape) == ((2, 3), (2, 5))


def test_a_lazy_layer_of_no_tensor_is_refused() -> None:
    with pytest.raises(TileworkError):
        nn.LazyLinear(2)("text")  # type: ignore[arg-type]


def test_a_lazy_transposed_convolution_pads_with_zeros_alone() -> None:
    with pytest.raises(UserError, match="only zeros lie around a transposed convolution"):
        nn.LazyConvTranspose2d(4, 3, padding_mode="reflect")
