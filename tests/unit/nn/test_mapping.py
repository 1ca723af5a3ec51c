"""`vmap` gives what PyTorch's gives, and refuses what it cannot do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, Variable, jit, nn
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.nn import func

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script")

RANDOM = np.random.default_rng(9)
X = RANDOM.standard_normal((4, 3, 2)).astype(np.float32)
Y = RANDOM.standard_normal((2, 3)).astype(np.float32)
PLACES = RANDOM.integers(0, 3, (4, 5))


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for key in value for leaf in flat(value[key])]
    if isinstance(value, tuple | list):
        return [leaf for each in value for leaf in flat(each)]
    return [value.detach().numpy()]


#: What is called with (the module with vmap and grad, the kind of tensor, arrays).
CALLS: dict[str, Callable[..., Any]] = {
    "one argument": lambda f, x, y, i: f.vmap(lambda row: (row * row).sum())(x),
    "an argument that all share": lambda f, x, y, i: f.vmap(lambda a, b: a @ b, (0, None))(x, y),
    "another axis": lambda f, x, y, i: f.vmap(lambda a: a.cumsum(0), in_dims=1)(x),
    "an axis from the end": lambda f, x, y, i: f.vmap(lambda a: a.exp(), in_dims=-1)(x),
    "rows elsewhere in the result": lambda f, x, y, i: f.vmap(lambda a: a * 2, out_dims=-1)(x),
    "several results": lambda f, x, y, i: f.vmap(lambda a: (a + 1, a.sum(0)), out_dims=(2, 1))(x),
    "a result without rows": lambda f, x, y, i: f.vmap(
        lambda a, b: (a + 1, b * 2), (0, None), (0, None)
    )(x, y),
    "a shared result for each row": lambda f, x, y, i: f.vmap(
        lambda a, b: b * 2, (0, None)
    )(x, y),
    "containers": lambda f, x, y, i: f.vmap(
        lambda pair: {"sum": pair["a"][0] + pair["b"], "b": pair["b"]},
        in_dims=({"a": (0,), "b": None},),
    )({"a": (x,), "b": x[0]}),
    "maps in maps": lambda f, x, y, i: f.vmap(f.vmap(lambda row: row.softmax(0)))(x),
    "pairs of all rows": lambda f, x, y, i: f.vmap(
        lambda a: f.vmap(lambda b: (a * b).sum())(x)
    )(x),
    "places of each row": lambda f, x, y, i: f.vmap(lambda a, p: a.index_select(0, p))(x, i),
    "places in what all share": lambda f, x, y, i: f.vmap(
        lambda a, p: a.index_select(1, p), (None, 0)
    )(y, i),
    "adding at places of each row": lambda f, x, y, i: f.vmap(
        lambda a, p: a.index_add(0, p, p[:, None].expand(5, 2) * 1.5)
    )(x, i),
    "gradients of each row": lambda f, x, y, i: f.vmap(
        f.grad(lambda a, b: ((a @ b).tanh() ** 2).sum()), (0, None)
    )(x, y),
    "a gradient of a map": lambda f, x, y, i: f.grad(
        lambda w: (f.vmap(lambda a: (a @ w).logsumexp(0).sum())(x) ** 2).sum()
    )(y),
    "a map of Jacobians": lambda f, x, y, i: f.vmap(f.jacrev(lambda a: a.tanh() * a.sum()))(x),
    "a map of Hessians": lambda f, x, y, i: f.vmap(
        f.hessian(lambda a: (a ** 3).sum() * a[0, 0])
    )(x),
    "chunks": lambda f, x, y, i: f.vmap(lambda a: a.T, out_dims=1, chunk_size=3)(x),
    "an argument by name": lambda f, x, y, i: f.vmap(lambda a, power: a ** power)(x, power=2),
    "greatest of rows": lambda f, x, y, i: f.vmap(lambda a: a.max(dim=0).values)(x),
    "sorted rows": lambda f, x, y, i: f.vmap(lambda a: a.sort(dim=0)[0])(x),
    "inverses": lambda f, x, y, i: f.vmap(lambda a: (a.T @ a).inverse())(x),
    "gradients of determinants": lambda f, x, y, i: f.vmap(f.grad(lambda a: (a.T @ a).det()))(x),
    "diagonals": lambda f, x, y, i: f.vmap(lambda a: (a @ a.T).diagonal())(x),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_map_is_pytorchs(name: str) -> None:
    ours = flat(CALLS[name](func, Tensor(X), Tensor(Y), Tensor(PLACES)))
    theirs = flat(CALLS[name](torch.func, *[torch.tensor(x) for x in (X, Y, PLACES)]))
    assert [each.shape for each in ours] == [each.shape for each in theirs]
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-6)


def test_gradients_for_each_sample_of_a_model() -> None:
    model = [nn.Conv2d(1, 2, 3), Tensor.relu, nn.MaxPool2d(2), lambda x: x.flatten(1),
             nn.Linear(18, 3)]  # fmt: skip
    state = nn.state.get_state_dict(model)
    images = RANDOM.standard_normal((3, 1, 8, 8)).astype(np.float32)
    labels = np.array([0, 2, 1])

    def loss(weights: dict[str, Any], image: Any, label: Any) -> Any:
        x = image[None].conv2d(weights["0.weight"], weights["0.bias"]).relu().max_pool2d(2)
        logits = x.flatten(1).linear(weights["4.weight"].T, weights["4.bias"])
        return nn.functional.cross_entropy(logits, label[None])

    found = func.vmap(func.grad(loss), (None, 0, 0))(state, Tensor(images), Tensor(labels))
    for name, slopes in found.items():
        for number in range(3):
            alone = func.grad(loss)(state, Tensor(images[number]), Tensor(labels[number]))
            np.testing.assert_allclose(
                slopes[number].numpy(), alone[name].numpy(), rtol=1e-4, atol=1e-6
            )


def test_writes_inside_stay_with_their_rows() -> None:
    def write(row: Tensor) -> Tensor:
        made = row.clone()
        made[0] = made[1] * 10
        made[:, 1] += 5
        return made

    found = func.vmap(write)(Tensor(X)).numpy()
    want = X.copy()
    want[:, 0] = want[:, 1] * 10
    want[:, :, 1] += 5
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_what_is_written_later_does_not_change_a_map() -> None:
    x = Tensor(X).contiguous().realize()
    found = func.vmap(lambda row: row.max(0))(x)
    x *= 0
    np.testing.assert_array_equal(found.numpy(), X.max(1))


def test_a_map_can_be_captured() -> None:
    step = jit(func.vmap(func.grad(lambda row: (row.sin() * row).sum())))
    for factor in (1, 2, 3):
        x = X * factor
        np.testing.assert_allclose(
            step(Tensor(x)).numpy(), np.cos(x) * x + np.sin(x), rtol=1e-5, atol=1e-6
        )


def test_random_numbers_differ_from_row_to_row_if_asked_for() -> None:
    draw = func.vmap(lambda row: Tensor.rand(5) + 0 * row.sum(), randomness="different")
    found = draw(Tensor(X)).numpy()
    assert len({tuple(row) for row in found}) == len(X)


def test_random_numbers_are_the_same_if_asked_for() -> None:
    draw = func.vmap(lambda row: Tensor.rand(5) + 0 * row.sum(), randomness="same")
    found = draw(Tensor(X)).numpy()
    assert len({tuple(row) for row in found}) == 1


def test_rows_of_all_chunks_get_the_same_random_numbers() -> None:
    draw = func.vmap(
        lambda row: (Tensor.rand(5) + 0 * row.sum(), Tensor.randn(2) + 0 * row.sum()),
        randomness="same",
        chunk_size=3,
    )
    for found in draw(Tensor(X)):
        assert len({tuple(row) for row in found.numpy()}) == 1


def test_dropout_of_rows_drops_other_elements_in_each() -> None:
    with Tensor.train():
        found = func.vmap(lambda row: row.dropout(0.5), randomness="different")(Tensor.ones(8, 64))
    assert len({tuple(row) for row in found.numpy() == 0}) == 8


REFUSED: dict[str, tuple[Callable[[Tensor], Any], type[Exception], str]] = {
    "random numbers": (func.vmap(lambda x: x + Tensor.rand(2)), UserError, "randomness"),
    "a value": (func.vmap(lambda x: x if x.sum() > 0 else -x), UserError, "a value is asked for"),
    "a number": (func.vmap(lambda x: x * x.sum().item()), UserError, "a value is asked for"),
    "a size": (func.vmap(lambda x: x[x > 0]), UserError, "a value is asked for"),
    "unique": (func.vmap(lambda x: x.unique()), UserError, "unique has a result of another size"),
    "nonzero": (func.vmap(lambda x: x.nonzero()), UserError, r"nonzero\(size=...\)"),
    "masked_select": (
        func.vmap(lambda x: x.masked_select(x > 0)), UserError, "masked_select has a result of"),
    "bincount": (func.vmap(lambda x: x.cast("int32").bincount()), UserError, "bincount has a"),
    "a variable": (
        lambda x: func.vmap(lambda a: a)(x[: Variable("n", 1, 2).bind(2)]), ShapeError,
        "the number of rows is a variable"),
    "no tensor": (func.vmap(lambda x: 3.0), DTypeError, "something else than tensors"),
    "no rows": (func.vmap(lambda x: x, in_dims=None), UserError, "no argument has an axis"),
    "no axis": (func.vmap(lambda x: x, in_dims=7), ShapeError, "axis 7 is out of range"),
    "rows in a shared result": (
        func.vmap(lambda x: x, out_dims=None), UserError, "differs from row to row"),
    "another structure": (
        func.vmap(lambda x: x, in_dims=((0, 0),)), UserError, "in_dims is no axis"),
    "an unknown word": (func.vmap(lambda x: x, randomness="some"), UserError, "randomness"),
    "other numbers of rows": (
        lambda x: func.vmap(lambda a, b: a)(x, x[1:]), ShapeError, "different sizes"),
    "a number with rows": (
        lambda x: func.vmap(lambda a, b: a)(x, 2), DTypeError, "no tensor has an axis"),
    "chunks of nothing": (
        lambda x: func.vmap(lambda a: a, chunk_size=0)(x), UserError, "chunk_size"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_mapped_is_refused(name: str) -> None:
    call, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        call(Tensor(X[:, 0]))


def test_hashes_of_rows_are_those_of_each() -> None:
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    found = func.vmap(lambda row: row.keccak())(Tensor(rows)).numpy()
    wanted = [hashlib.sha3_256(row.tobytes()).digest() for row in rows]
    assert [row.tobytes() for row in found] == wanted


def test_no_rows_give_no_rows() -> None:
    assert func.vmap(lambda x: x.sum(0))(Tensor.zeros(0, 3, 2)).shape == (0, 2)
