"""Clipped gradients, and parameters as one vector, against PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, nn
from tilework.base.errors import ShapeError, UserError

GRADIENTS = [np.array([[3.0, -4.0], [0.5, 2.0]], "float32"), np.array([12.0], "float32")]


def grad_of(parameter: Any) -> Any:
    return parameter.grad.numpy()


def pair(gradients: list[Any]) -> tuple[list[Tensor], list[torch.Tensor]]:
    own, theirs = [], []
    for g in gradients:
        own.append(Tensor(np.zeros_like(g), requires_grad=True))
        own[-1].grad = Tensor(g)
        theirs.append(torch.zeros(g.shape, requires_grad=True))
        theirs[-1].grad = torch.tensor(g)
    return own, theirs


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("most", [0.5, 1000.0])
def test_clipped_norms_are_pytorchs(norm_type: float, most: float) -> None:
    own, theirs = pair(GRADIENTS)
    found = nn.utils.clip_grad_norm_(own, most, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, most, norm_type)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    for a, b in zip(own, theirs, strict=True):
        np.testing.assert_allclose(grad_of(a), grad_of(b), rtol=2e-6)


@pytest.mark.parametrize("norm_type", [2.0, float("inf")])
def test_one_nan_makes_all_gradients_nan_as_in_pytorch(norm_type: float) -> None:
    own, theirs = pair([*GRADIENTS, np.array([np.nan, 1.0], "float32")])
    nn.utils.clip_grad_norm_(own, 1.0, norm_type)
    torch.nn.utils.clip_grad_norm_(theirs, 1.0, norm_type)
    for a, b in zip(own, theirs, strict=True):
        np.testing.assert_array_equal(np.isnan(grad_of(a)), np.isnan(grad_of(b)))


def test_a_norm_that_is_not_finite_can_be_refused() -> None:
    own, _ = pair([np.array([np.inf], "float32")])
    with pytest.raises(UserError, match="not finite"):
        nn.utils.clip_grad_norm_(own, 1.0, error_if_nonfinite=True)


def test_one_tensor_stands_for_a_list_of_it() -> None:
    own, _ = pair(GRADIENTS[:1])
    nn.utils.clip_grad_value_(own[0], 1.0)
    assert grad_of(own[0]).tolist() == [[1.0, -1.0], [0.5, 1.0]]


def test_no_gradient_at_all_has_norm_zero() -> None:
    assert nn.utils.clip_grad_norm_([Tensor([1.0])], 1.0).item() == 0.0


def test_vectors_go_back_to_where_they_came_from() -> None:
    layer = nn.Linear(3, 2)
    parameters = nn.state.get_parameters(layer)
    found = nn.utils.parameters_to_vector(parameters)
    assert found.shape == (8,)
    before = layer.weight.numpy().copy()
    nn.utils.vector_to_parameters(found * 2, parameters)
    np.testing.assert_array_equal(layer.weight.numpy(), before * 2)


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(ShapeError, match="another length"):
        nn.utils.vector_to_parameters(Tensor.zeros(3), [Tensor.zeros(2)])


def test_gradients_reach_parameters_through_their_vector() -> None:
    a, b = Tensor([[1.0, 2.0]], requires_grad=True), Tensor(3.0, requires_grad=True)
    (nn.utils.parameters_to_vector([a, b]) * Tensor([1.0, 2.0, 3.0])).sum().backward()
    assert (grad_of(a).tolist(), grad_of(b).item()) == ([[1.0, 2.0]], 3.0)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transpose", [True, False])
def test_a_norm_is_fused_into_the_convolution_before_it(
    with_bias: bool, groups: int, transpose: bool
) -> None:
    kind = nn.ConvTranspose2d if transpose else nn.Conv2d
    conv = kind(4, 6, 3, groups=groups, bias=with_bias)
    norm = nn.BatchNorm2d(6)
    for name, each in nn.state.get_state_dict(norm).items():
        if name in ("weight", "bias", "running_mean"):
            nn.init.normal_(each)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    x = Tensor.randn(2, 4, 6, 6)
    fused = nn.utils.fuse_conv_bn_eval(conv, norm, transpose)
    np.testing.assert_allclose(fused(x).numpy(), norm(conv(x)).numpy(), atol=2e-5)
    assert fused is not conv
