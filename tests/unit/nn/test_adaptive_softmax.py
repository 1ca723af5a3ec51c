"""The adaptive softmax gives what PyTorch's gives."""

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, nn
from tilework.base.errors import ShapeError, UserError

RANDOM = np.random.default_rng(6)
X = RANDOM.standard_normal((7, 8)).astype(np.float32)
TARGET = np.array([0, 1, 2, 4, 5, 8, 9])


def both(**options: Any) -> tuple[Any, Any]:
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], 2.0, **options)
    ours = nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], 2.0, **options)
    state = {name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    nn.state.load_state_dict(ours, state)
    return ours, theirs


@pytest.mark.parametrize("options", [{}, {"head_bias": True}])
def test_outputs_loss_and_gradients_are_pytorchs(options: dict[str, Any]) -> None:
    ours, theirs = both(**options)
    for parameter in nn.state.get_parameters(ours):
        parameter.requires_grad_()
    x, other = Tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    found, want = ours(x, Tensor(TARGET)), theirs(other, torch.tensor(TARGET))
    np.testing.assert_allclose(found.output.numpy(), want.output.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(found.loss.item(), want.loss.item(), rtol=1e-5)
    found.loss.backward()
    want.loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=1e-6)  # type: ignore[union-attr]
    slopes = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    for name, parameter in nn.state.get_state_dict(ours).items():
        np.testing.assert_allclose(parameter.grad.numpy(), slopes[name], rtol=1e-4, atol=1e-6)  # type: ignore[union-attr]


def test_probabilities_of_all_classes_and_the_best_are_pytorchs() -> None:
    ours, theirs = both()
    want = theirs.log_prob(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(ours.log_prob(Tensor(X)).numpy(), want, rtol=1e-5, atol=1e-6)
    assert ours.predict(Tensor(X)).tolist() == theirs.predict(torch.tensor(X)).tolist()


def test_one_row_without_an_axis() -> None:
    ours, theirs = both()
    found, want = ours(Tensor(X[0]), Tensor(8)), theirs(torch.tensor(X[0]), torch.tensor(8))
    assert found.output.shape == tuple(want.output.shape)
    np.testing.assert_allclose(found.output.item(), want.output.item(), rtol=1e-5)


@pytest.mark.parametrize("cutoffs", [[], [0, 3], [3, 2], [2, 2], [10]])
def test_cutoffs_that_make_no_sense_are_refused(cutoffs: Any) -> None:
    with pytest.raises(UserError, match="the cutoffs make no sense"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs)


def test_targets_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="don't fit"):
        both()[0](Tensor(X), Tensor(TARGET[:3]))


@pytest.mark.parametrize("wrong", [-1, 10])
def test_a_target_that_is_no_class_is_an_error(wrong: int) -> None:
    target = np.where(TARGET == 4, wrong, TARGET)
    with pytest.raises(IndexError, match="out of range"):
        both()[0](Tensor(X), Tensor(target)).output.numpy()
