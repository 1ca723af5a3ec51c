"""Functions of functions give what those of PyTorch and JAX give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, jit
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.nn import func

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script")

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((3, 2)).astype(np.float32)
Y = RANDOM.standard_normal((2, 3)).astype(np.float32)

#: Functions of two matrices; the first gives one number.
SCALARS: dict[str, Callable[[Any, Any], Any]] = {
    "products": lambda x, y: ((x @ y).tanh() ** 2).sum(),
    "exponentials": lambda x, y: (x.exp() * y.T).mean(),
    "logarithms": lambda x, y: (x * x + 1).log().sum() * y.sum(),
    "only the first": lambda x, y: (x * x * x).sum(),
}
MATRICES: dict[str, Callable[[Any, Any], Any]] = {
    "products": lambda x, y: (x @ y).tanh(),
    "squares": lambda x, y: x * x + y.T,
    "softmax": lambda x, y: x.softmax(-1),
}


def both(call: Callable[[Any, Any, Any], Any]) -> tuple[list[Any], list[Any]]:
    ours = call(func, Tensor(X), Tensor(Y))
    theirs = call(torch.func, torch.from_numpy(X), torch.from_numpy(Y))
    return flat(ours), flat(theirs)


def flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [leaf for each in value for leaf in flat(each)]
    return [value.detach().numpy()]


def check(call: Callable[[Any, Any, Any], Any]) -> None:
    ours, theirs = both(call)
    assert [each.shape for each in ours] == [each.shape for each in theirs]
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_a_gradient_is_pytorchs(name: str, argnums: Any) -> None:
    check(lambda kinds, x, y: kinds.grad(SCALARS[name], argnums)(x, y))


@pytest.mark.parametrize("name", SCALARS)
def test_the_gradient_comes_before_the_value_as_in_pytorch(name: str) -> None:
    check(lambda kinds, x, y: kinds.grad_and_value(SCALARS[name])(x, y))


def test_what_comes_along_is_given_back() -> None:
    check(lambda kinds, x, y: kinds.grad(lambda x: ((x * x).sum(), x + 1), has_aux=True)(x))


@pytest.mark.parametrize("name", MATRICES)
def test_a_product_with_the_transposed_jacobian_is_pytorchs(name: str) -> None:
    def call(kinds: Any, x: Any, y: Any) -> Any:
        value, pull = kinds.vjp(MATRICES[name], x, y)
        return value, pull(value * 2 + 1)

    check(call)


@pytest.mark.parametrize("name", MATRICES)
def test_a_product_with_the_jacobian_is_pytorchs(name: str) -> None:
    check(lambda kinds, x, y: kinds.jvp(MATRICES[name], (x, y), (x + 1, y * 2)))


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("way", ["jacrev", "jacfwd"])
def test_a_jacobian_is_pytorchs(name: str, way: str) -> None:
    check(lambda kinds, x, y: getattr(kinds, way)(MATRICES[name])(x, y))


@pytest.mark.parametrize("name", SCALARS)
def test_a_hessian_is_pytorchs(name: str) -> None:
    check(lambda kinds, x, y: kinds.hessian(SCALARS[name])(x, y))


def test_a_jacobian_at_several_inputs_is_a_tuple() -> None:
    ours = func.jacobian(MATRICES["products"], (Tensor(X), Tensor(Y)))
    theirs = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        MATRICES["products"], (torch.from_numpy(X), torch.from_numpy(Y))
    )
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own.numpy(), other.numpy(), rtol=2e-5, atol=2e-6)


def test_a_product_with_the_hessian_is_that_of_the_matrix() -> None:
    only = lambda x: ((x @ Tensor(Y)).tanh() ** 2).sum()  # noqa: E731
    slope, product = func.hvp(only, (Tensor(X),), (Tensor(X + 1),))
    whole = func.hessian(only)(Tensor(X)).numpy().reshape(6, 6)
    np.testing.assert_allclose(product[0].numpy().ravel(), whole @ (X + 1).ravel(), rtol=1e-4)
    np.testing.assert_allclose(slope[0].numpy(), func.grad(only)(Tensor(X)).numpy(), rtol=1e-6)


def test_containers_of_parameters_keep_their_form() -> None:
    model = {"layers": [Tensor(X), Tensor(Y)], "scale": Tensor(2.0)}

    def loss(model: Any) -> Tensor:
        found: Tensor = (model["layers"][0] @ model["layers"][1]).sum() * model["scale"]
        return found

    value, slopes = func.value_and_grad(loss)(model)
    assert set(slopes) == {"layers", "scale"}
    np.testing.assert_allclose(slopes["scale"].item(), (X @ Y).sum(), rtol=1e-5)
    np.testing.assert_allclose(value.item(), 2 * (X @ Y).sum(), rtol=1e-5)
    assert [each.shape for each in slopes["layers"]] == [(3, 2), (2, 3)]


def test_a_tensor_that_the_function_also_closes_over_is_a_constant_there() -> None:
    x = Tensor([3.0])
    assert func.grad(lambda own: (own * x).sum())(x).tolist() == [3.0]


def test_gradients_are_found_where_no_history_is_kept() -> None:
    with Tensor.no_grad():
        assert func.grad(lambda x: (x * x).sum())(Tensor([3.0])).tolist() == [6.0]


def test_gradients_of_gradients_nest() -> None:
    third = func.grad(func.grad(func.grad(lambda x: x**4)))
    assert third(Tensor(2.0)).item() == 48.0


def test_a_gradient_can_be_captured() -> None:
    captured = jit(func.grad(SCALARS["products"]))
    expected = func.grad(SCALARS["products"])(Tensor(X), Tensor(Y)).numpy()
    for _ in range(3):
        np.testing.assert_allclose(captured(Tensor(X), Tensor(Y)).numpy(), expected, rtol=1e-5)


def test_more_than_one_number_has_no_gradient() -> None:
    with pytest.raises(ShapeError, match="one number"):
        func.grad(lambda x: x * x)(Tensor(X))


def test_integers_have_no_gradient() -> None:
    with pytest.raises(DTypeError, match="integers"):
        func.grad(lambda x: x.sum())(Tensor([1, 2]))


def test_an_argument_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="no such argument"):
        func.grad(lambda x: x.sum(), 2)(Tensor(X))


def test_a_tangent_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match="tangent"):
        func.jvp(lambda x: x, (Tensor(X),), (Tensor(Y),))
