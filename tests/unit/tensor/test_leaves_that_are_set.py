"""A tensor that a user made stays one when its values are set without history."""

from tilework import Tensor


def test_a_parameter_gets_gradients_after_a_step_by_hand() -> None:
    weight = Tensor([1.0, 2.0])
    (weight * weight).sum().backward()
    with Tensor.no_grad():
        weight -= weight.grad
    weight.grad = None
    (weight * weight * weight).sum().backward()
    assert _gradient(weight) == [3.0, 12.0]


def _gradient(weight: Tensor) -> object:
    return None if weight.grad is None else weight.grad.tolist()


def test_the_gradient_adds_up_over_the_values_before_and_after() -> None:
    weight = Tensor([1.0, 2.0])
    before = (weight * 2).sum()
    with Tensor.no_grad():
        weight[0] = 5.0
    (before + (weight * 3).sum()).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [5.0, 5.0]
