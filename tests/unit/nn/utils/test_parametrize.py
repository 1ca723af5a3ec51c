"""Computed parameters: weight norm and spectral norm against PyTorch."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrizations as theirs_of

from tilework import Tensor, nn
from tilework.base.errors import ShapeError, UserError
from tilework.nn.utils import parametrize


def grad_of(parameter: Any) -> Any:
    return parameter.grad.numpy()


def linear_pair() -> tuple[nn.Linear, torch.nn.Linear]:
    own, theirs = nn.Linear(4, 3), torch.nn.Linear(4, 3)
    nn.init.zeros_(nn.state.get_state_dict(own)["bias"])
    with torch.no_grad():
        theirs.weight.copy_(torch.from_numpy(own.weight.numpy()))
        theirs.bias.zero_()
    return own, theirs


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_gives_pytorchs_weights_and_gradients(dim: int | None) -> None:
    own, theirs = linear_pair()
    nn.utils.weight_norm(own, dim=dim)
    theirs_of.weight_norm(theirs, dim=-1 if dim is None else dim)
    x = np.random.default_rng(1).standard_normal((5, 4), "float32")
    own(Tensor(x)).square().sum().backward()
    theirs(torch.from_numpy(x)).square().sum().backward()
    expected = dict(theirs.named_parameters())
    for name, value in nn.state.get_state_dict(own).items():
        np.testing.assert_allclose(value.numpy(), expected[name].detach(), rtol=1e-5)
        np.testing.assert_allclose(grad_of(value), grad_of(expected[name]), rtol=2e-4, atol=1e-4)


def test_weight_norm_has_pytorchs_names() -> None:
    own, theirs = linear_pair()
    nn.utils.weight_norm(own)
    theirs_of.weight_norm(theirs)
    assert set(nn.state.get_state_dict(own)) == set(theirs.state_dict())


def test_a_step_of_an_optimizer_changes_the_computed_weight() -> None:
    own, theirs = linear_pair()
    nn.utils.weight_norm(own)
    theirs_of.weight_norm(theirs)
    x = np.ones((2, 4), "float32")
    optimizers = (
        nn.optim.SGD(nn.state.get_parameters(own), 0.1),
        torch.optim.SGD(theirs.parameters(), 0.1),
    )
    own(Tensor(x)).square().sum().backward()
    theirs(torch.from_numpy(x)).square().sum().backward()
    for each in optimizers:
        each.step()
    np.testing.assert_allclose(own.weight.numpy(), theirs.weight.detach(), rtol=1e-4, atol=1e-5)


def test_spectral_norm_divides_by_the_greatest_singular_value() -> None:
    layer = nn.utils.spectral_norm(nn.Conv2d(3, 5, 3), n_power_iterations=100)
    with Tensor.train():
        weight = layer.weight
    plain = layer.parametrizations["weight"].original.numpy().reshape(5, -1)
    greatest = np.linalg.svd(plain)[1][0]
    np.testing.assert_allclose(weight.numpy().reshape(5, -1), plain / greatest, rtol=5e-3)


def test_spectral_norm_takes_pytorchs_state_and_gives_its_weights() -> None:
    own, theirs = linear_pair()
    nn.utils.spectral_norm(own)
    theirs_of.spectral_norm(theirs)
    state = {name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    nn.state.load_state_dict(own, state)
    with Tensor.train():
        found = own.weight.numpy()
    theirs.train()
    np.testing.assert_allclose(found, theirs.weight.detach(), rtol=1e-5, atol=1e-6)


def test_outside_of_training_spectral_norm_keeps_its_directions() -> None:
    layer = nn.utils.spectral_norm(nn.Linear(4, 3))
    before = layer.parametrizations["weight"].__dict__["0"]._u.numpy().copy()
    layer.weight.realize()
    after = layer.parametrizations["weight"].__dict__["0"]._u.numpy()
    np.testing.assert_array_equal(before, after)


def test_transposed_convolutions_are_normed_along_their_outputs() -> None:
    layer = nn.utils.spectral_norm(nn.ConvTranspose2d(3, 5, 2))
    assert layer.parametrizations["weight"].__dict__["0"]._u.shape == (5,)


def test_a_layer_whose_weight_is_computed_is_still_that_layer() -> None:
    layer = nn.utils.weight_norm(nn.Linear(4, 3))
    assert isinstance(layer, nn.Linear)
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")


def test_a_copy_of_such_a_layer_has_parameters_of_its_own() -> None:
    layer = nn.utils.weight_norm(nn.Linear(4, 3))
    other = copy.deepcopy(layer)
    nn.init.zeros_(other.parametrizations["weight"].original0)
    assert not other.weight.ne(0).any().item()
    assert layer.weight.ne(0).any().item()


@pytest.mark.parametrize("leave", [True, False])
def test_removing_leaves_the_value_or_the_original(leave: bool) -> None:
    layer = nn.Linear(2, 2)
    nn.init.zeros_(layer.weight)
    parametrize.register_parametrization(layer, "weight", Tensor.exp)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=leave)
    assert type(layer) is nn.Linear
    assert layer.weight.tolist() == [[float(leave)] * 2] * 2
    assert sorted(nn.state.get_state_dict(layer)) == ["bias", "weight"]


def test_steps_are_computed_one_after_the_other() -> None:
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, 3.0)
    parametrize.register_parametrization(layer, "weight", Tensor.neg)
    parametrize.register_parametrization(layer, "weight", lambda x: x * 2)
    assert layer.weight[0].tolist() == [-6.0, -6.0]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.utils.weight_norm(nn.Linear(2, 2), "wait"), UserError, "no such tensor"),
        (lambda: nn.utils.spectral_norm(nn.Linear(2, 2), "wait"), UserError, "no such tensor"),
        (lambda: nn.utils.spectral_norm(nn.Linear(2, 2), dim=2), ShapeError, "no such axis"),
        (
            lambda: nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0),
            UserError,
            "a round at least",
        ),
        (
            lambda: parametrize.remove_parametrizations(nn.Linear(2, 2), "weight"),
            UserError,
            "not computed",
        ),
        (
            lambda: parametrize.remove_parametrizations(
                nn.utils.weight_norm(nn.Linear(2, 2)), "weight", leave_parametrized=False
            ),
            UserError,
            "can't take the place of one",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused(
    call: object, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()  # type: ignore[operator]
