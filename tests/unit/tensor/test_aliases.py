"""Further names that PyTorch's users know, and methods that write into the tensor itself."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tilework import Tensor
from tilework.base.errors import AliasError, IndexingError, ShapeError, UserError
from tilework.tensor.inplace import InPlace

X = (np.arange(1, 13, dtype=np.float32).reshape(3, 4) / 14).astype(np.float32)
WHOLE, OTHER = np.array([5, 7, -3, 0]), np.array([2, 3, 2, 5])

#: What methods of one tensor are called with besides it.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "clamp_": (0.2, 0.5), "clip_": (0.2, 0.5), "clamp_min_": (0.3,), "clamp_max_": (0.3,),
    "cumsum_": (1,), "cumprod_": (0,), "tril_": (1,), "triu_": (1,), "fill_diagonal_": (2.0,),
}  # fmt: skip
BINARY = (
    "add_", "bitwise_and_", "bitwise_left_shift_", "bitwise_or_", "bitwise_right_shift_",
    "bitwise_xor_", "eq_", "floor_divide_", "fmod_", "gcd_", "ge_", "gt_", "lcm_", "le_",
    "logical_and_", "logical_or_", "logical_xor_", "lt_", "mul_", "ne_", "pow_", "remainder_",
    "sub_",
)  # fmt: skip
OF_FLOATS = ("atan2_", "copysign_", "div_", "heaviside_", "hypot_", "true_divide_", "xlogy_")
OTHERS = ("addcmul_", "addcdiv_", "lerp_", "uniform_", "normal_", "bernoulli_", "exponential_")
UNARY = sorted(
    name
    for name, item in vars(InPlace).items()
    if inspect.isfunction(item)
    and not name.startswith("__")
    and name not in (*BINARY, *OF_FLOATS, *OTHERS)
)


def close(got: Any, want: torch.Tensor) -> None:
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-6, atol=1e-7)
    assert got.numpy().dtype == want.numpy().dtype


@pytest.mark.parametrize("name", UNARY)
def test_a_method_with_an_underscore_writes_what_the_plain_one_gives(name: str) -> None:
    values = X + 1 if name == "acosh_" else X
    ours, theirs = Tensor(np.stack([values, values])), torch.tensor(np.stack([values, values]))
    arguments = ARGUMENTS.get(name, ())
    view = ours[1]
    assert getattr(view, name)(*arguments) is view
    getattr(theirs[1], name)(*arguments)
    close(ours, theirs)


@pytest.mark.parametrize("name", BINARY)
def test_integers_are_written_in_place_as_pytorch_does(name: str) -> None:
    left = np.abs(WHOLE) if "shift" in name or name == "pow_" else WHOLE
    ours, theirs = Tensor(left), torch.tensor(left)
    getattr(ours, name)(Tensor(OTHER))
    close(ours, getattr(theirs, name)(torch.tensor(OTHER)))


@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats_are_written_in_place_as_pytorch_does(name: str) -> None:
    ours, theirs = Tensor(X), torch.tensor(X)
    getattr(ours, name)(Tensor(X[:, ::-1].copy()))
    close(ours, getattr(theirs, name)(torch.tensor(X[:, ::-1].copy())))


def test_sums_of_three_tensors_are_written_in_place() -> None:
    ours, theirs = Tensor(X), torch.tensor(X)
    ours.addcmul_(ours, ours, value=2).addcdiv_(ours, ours + 1, value=3).lerp_(ours * 2, 0.25)
    theirs.addcmul_(theirs, theirs, value=2).addcdiv_(theirs, theirs + 1, value=3)
    close(ours, theirs.lerp_(theirs * 2, 0.25))


def test_a_view_whose_elements_share_a_place_is_not_written_in_place() -> None:
    with pytest.raises(AliasError):
        Tensor([1.0]).expand(3).add_(1)


def test_numbers_are_drawn_into_a_tensor_in_their_range() -> None:
    x = Tensor.zeros(2000).realize()
    assert 0.4 < x.uniform_(0, 1).mean().item() < 0.6
    assert 4.8 < x.normal_(5, 1).mean().item() < 5.2
    assert sorted(set(x.bernoulli_(0.5).tolist())) == [0.0, 1.0]
    assert 0.4 < x.exponential_(2.0).mean().item() < 0.6


def test_a_draw_of_zero_becomes_no_infinite_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(*shape: int, **options: Any) -> Tensor:
        return Tensor.zeros(*shape)

    monkeypatch.setattr(Tensor, "rand", zeros)
    np.testing.assert_allclose(Tensor(X).gumbel_softmax().numpy().sum(1), [1, 1, 1], rtol=1e-6)
    assert Tensor.zeros(4).exponential_().min().item() > 0


NAMES = {
    "absolute": "abs", "arccos": "arccos", "arcsin": "arcsin", "arcsinh": "arcsinh",
    "arctan": "arctan", "arctanh": "arctanh", "negative": "negative", "fix": "fix",
    "adjoint": "adjoint",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_another_name_gives_what_pytorch_gives_under_it(name: str) -> None:
    close(getattr(Tensor(X), name)(), getattr(torch.tensor(X), NAMES[name])())


@pytest.mark.parametrize(
    "name", ["multiply", "subtract", "divide", "greater", "less_equal", "not_equal", "arctan2"]
)
def test_another_name_of_two_operands_gives_what_pytorch_gives(name: str) -> None:
    want = getattr(torch.tensor(X), name)(torch.tensor(X[::-1].copy()))
    close(getattr(Tensor(X), name)(Tensor(X[::-1].copy())), want)


def test_what_a_tensor_is_can_be_asked_by_pytorchs_names() -> None:
    x = Tensor(X)
    assert (x.ndimension(), x.nelement(), x.is_signed(), x[0, 0].is_nonzero()) == (
        2,
        12,
        True,
        True,
    )
    assert x.type_as(Tensor([1])).dtype is Tensor([1]).dtype
    assert x.cpu() is x
    assert x.new_tensor([1, 2]).dtype is x.dtype


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_rows_of_bags_are_put_together_as_pytorch_does(mode: str) -> None:
    places, offsets = np.array([1, 2, 0, 1, 2, 2]), np.array([0, 2, 2])
    want = F.embedding_bag(torch.tensor(places), torch.tensor(X), torch.tensor(offsets), mode=mode)
    close(Tensor(places).embedding_bag(Tensor(X), Tensor(offsets), mode), want)
    grid = places.reshape(2, 3)
    want = F.embedding_bag(torch.tensor(grid), torch.tensor(X), mode=mode)
    close(Tensor(grid).embedding_bag(Tensor(X), mode=mode), want)


def test_rows_of_bags_have_weights_and_places_that_do_not_count() -> None:
    places, weights = np.array([1, 2, 0, 1, 2, 2]), np.arange(6, dtype=np.float32)
    offsets = np.array([0, 2, 2, 6])
    options: dict[str, Any] = {"mode": "sum", "include_last_offset": True, "padding_idx": 2}
    want = F.embedding_bag(
        torch.tensor(places),
        torch.tensor(X),
        torch.tensor(offsets),
        per_sample_weights=torch.tensor(weights),
        **options,
    )
    found = Tensor(places).embedding_bag(
        Tensor(X), Tensor(offsets), per_sample_weights=Tensor(weights), **options
    )
    close(found, want)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_local_response_norm_is_that_of_pytorch(size: int) -> None:
    values = np.stack([X, X + 1])
    want = F.local_response_norm(torch.tensor(values), size, 0.1, 0.5, 2.0)
    close(Tensor(values).local_response_norm(size, 0.1, 0.5, 2.0), want)


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_frequencies_of_transforms_are_those_of_pytorch(n: int) -> None:
    close(Tensor.fftfreq(n, 0.5), torch.fft.fftfreq(n, 0.5))
    close(Tensor.rfftfreq(n, 0.5), torch.fft.rfftfreq(n, 0.5))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_without_rows_give_zeros(mode: str) -> None:
    empty = Tensor(np.zeros((2, 0), np.int64))
    assert empty.embedding_bag(Tensor(X), mode=mode).tolist() == [[0.0] * X.shape[1]] * 2


def test_flat_positions_are_taken_apart() -> None:
    places = Tensor([0, 5, 11]).unravel_index((3, 4))
    assert [each.tolist() for each in places] == [[0, 1, 2], [0, 1, 3]]


def test_a_hard_draw_of_a_category_has_one_one_and_a_gradient() -> None:
    x = Tensor(X, requires_grad=True)
    drawn = x.gumbel_softmax(hard=True)
    np.testing.assert_allclose(np.sort(drawn.numpy(), 1), [[0, 0, 0, 1]] * 3, atol=1e-6)
    (drawn * Tensor(X)).sum().backward()
    assert x.grad is not None
    assert np.abs(x.grad.numpy()).max() > 0


def test_dropout_of_channels_drops_them_whole() -> None:
    x = Tensor.ones(6, 8, 3, 3).dropout2d(0.5, training=True).numpy()
    assert set(x.reshape(48, 9).sum(1)) == {0.0, 18.0}


def test_alpha_dropout_keeps_mean_and_deviation() -> None:
    x = Tensor.randn(20000).alpha_dropout(0.3, training=True)
    assert abs(x.mean().item()) < 0.05
    assert abs(x.std().item() - 1) < 0.05


def test_wrong_calls_say_what_they_got() -> None:
    with pytest.raises(IndexingError, match="float32"):
        Tensor([1.0]).unravel_index((2,))
    with pytest.raises(ShapeError, match="dropout2d"):
        Tensor([1.0]).dropout2d(0.5, training=True)
    with pytest.raises(UserError, match="embedding_bag: unknown mode"):
        Tensor([[0]]).embedding_bag(Tensor(X), mode="median")
    with pytest.raises(ShapeError, match="fill_diagonal_"):
        Tensor([1.0]).fill_diagonal_(1)
