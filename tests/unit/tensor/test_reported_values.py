"""Values and gradients at the edges, of the kinds that users of other engines report as wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tilework import Tensor, dtypes, jit

nan, inf = float("nan"), float("inf")
RANDOM = np.random.default_rng(7)
EDGES = [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 100.0, -100.0, 1e20, -1e20, inf, -inf]
POSITIVE = [1e-30, 1e-10, 1.0, 100.0, 1e30, inf]
TIES = [[1.0, 1.0, 0.0], [0.0, 0.0, 5.0], [-2.0, 3.0, 3.0]]
X = RANDOM.standard_normal((2, 3, 7, 9)).astype(np.float32)


def same_gradient(ours: Any, theirs: Any, *inputs: Any, tolerance: float = 1e-4) -> None:
    own = [Tensor(np.array(each, np.float32)) for each in inputs]
    other = [torch.tensor(np.array(each, np.float32), requires_grad=True) for each in inputs]
    found = ours(*own).sum().gradient(*own, materialize_grads=True)
    theirs(*other).sum().backward()
    for x, y in zip(found, other, strict=True):
        want = np.zeros(y.shape) if y.grad is None else y.grad.numpy()
        np.testing.assert_allclose(x.numpy(), want, rtol=tolerance, atol=tolerance)


EVERYWHERE: dict[str, Any] = {
    "relu": torch.relu, "relu6": F.relu6, "silu": F.silu, "sigmoid": torch.sigmoid,
    "tanh": torch.tanh, "softplus": F.softplus, "logsigmoid": F.logsigmoid, "elu": F.elu,
    "selu": F.selu, "celu": F.celu, "mish": F.mish, "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid, "leaky_relu": F.leaky_relu, "abs": torch.abs,
    "sign": torch.sign, "exp": torch.exp, "erf": torch.erf, "sinc": torch.sinc,
    "expm1": torch.expm1, "asinh": torch.asinh, "atan": torch.atan, "square": torch.square,
    "softsign": F.softsign, "tanhshrink": F.tanhshrink, "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
}  # fmt: skip


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_gradient_is_right_from_tiny_to_infinite(name: str) -> None:
    same_gradient(lambda x: getattr(x, name)(), EVERYWHERE[name], EDGES)


@pytest.mark.parametrize(
    "name", ["log", "sqrt", "rsqrt", "log1p", "lgamma", "reciprocal", "log2", "log10"]
)
def test_a_gradient_is_right_over_all_positive_numbers(name: str) -> None:
    same_gradient(lambda x: getattr(x, name)(), getattr(torch, name), POSITIVE, tolerance=1e-3)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0])
def test_the_gradient_of_a_power_is_right_at_zero_and_below(power: float) -> None:
    same_gradient(lambda x: x**power, lambda x: x**power, [0.0, 1.0, -1.0, 4.0])


@pytest.mark.parametrize(
    "name", ["maximum", "minimum", "atan2", "hypot", "fmod", "remainder", "logaddexp", "copysign",
             "fmax", "fmin", "pow"],
)  # fmt: skip
def test_the_gradient_of_two_operands_is_right_at_ties(name: str) -> None:
    first, second = [1.0, 2.0, 2.0, 3.0, 0.5], [2.0, 1.0, 2.0, 4.0, 0.25]
    same_gradient(
        lambda a, b: getattr(a, name)(b), lambda a, b: getattr(torch, name)(a, b), first, second
    )


FOLDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "max": (lambda x: x.max(), lambda x: x.max()),
    "max of rows": (lambda x: x.max(0), lambda x: x.amax(0)),
    "min": (lambda x: x.min(), lambda x: x.min()),
    "prod": (lambda x: x.prod(1), lambda x: x.prod(1)),
    "std": (lambda x: x.std(1), lambda x: x.std(1)),
    "norm": (lambda x: x.norm(), lambda x: x.norm()),
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: x.logsumexp(1)),
    "cumprod": (lambda x: x.cumprod(1), lambda x: x.cumprod(1)),
    "cummax": (lambda x: x.cummax(1)[0], lambda x: x.cummax(1)[0]),
    "sort": (lambda x: x.sort(1)[0] * x.detach(), lambda x: x.sort(1)[0] * x.detach()),
    "median": (lambda x: x.median(1)[0], lambda x: x.median(1)[0]),
    "topk": (lambda x: x.topk(2, 1)[0], lambda x: x.topk(2, 1)[0]),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), lambda x: x.logcumsumexp(1)),
    "softmax": (
        lambda x: x.softmax(1) * x.detach(),
        lambda x: x.softmax(1) * x.detach(),
    ),
}


@pytest.mark.parametrize("name", FOLDS)
def test_the_gradient_of_a_fold_is_right_at_ties_and_zeros(name: str) -> None:
    same_gradient(*FOLDS[name], TIES)


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("target", [dtype.name for dtype in dtypes.INTEGERS])
def test_floats_saturate_in_casts_to_integers(target: str, source: Any) -> None:
    kind = dtypes.by_name(target)
    values = np.array(
        [0, -0.5, 0.5, 1.5, -1.5, 127.5, 128, 255.9, 256, -129, 32768, 65536, 2.0**31, 2.0**32,
         2.0**63, 2.0**64, -(2.0**31) - 1e6, -(2.0**63), 1e30, -1e30, inf, -inf, nan]
    ).astype(source)  # fmt: skip
    want = []
    for value in values.tolist():
        if value != value:
            want.append(0)
        else:
            is_high = value >= kind.maximum
            want.append(kind.maximum if is_high else max(int(max(value, -(2.0**64))), kind.minimum))
    assert Tensor(values).cast(kind).tolist() == want


@pytest.mark.parametrize("value", [2**31, 2**40, -(2**40)])
@pytest.mark.parametrize(
    "name", ["__add__", "__sub__", "__mul__", "__rsub__", "maximum", "minimum", "__floordiv__",
             "__mod__", "__and__", "__or__", "__xor__", "__lt__", "__eq__"],
)  # fmt: skip
def test_a_python_integer_beyond_int32_keeps_its_value(name: str, value: int) -> None:
    numbers = np.array([5, 7, -3], np.int64)
    found = getattr(Tensor([5, 7, -3]), name)(value).numpy()
    want = getattr(np, name)(numbers, value) if name[0] == "m" else getattr(numbers, name)(value)
    np.testing.assert_array_equal(found, want)


def of_half(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float16))


LOW_PRECISION: dict[str, tuple[Callable[[], Any], Any]] = {
    "mean of many": (lambda: Tensor(np.ones(100000, np.float16)).mean(), 1.0),
    "norm": (lambda: Tensor(np.full(100, 300, np.float16)).norm(), 3000.0),
    "variance": (lambda: Tensor(np.full(100, 300, np.float16)).var(), 0.0),
    "softmax": (lambda: of_half(60000, 60000, -60000).softmax(), [0.5, 0.5, 0.0]),
    "logsumexp": (lambda: of_half(60000, -60000).logsumexp(0), 60000.0),
    "product": (
        lambda: Tensor(np.ones((1, 5000), np.float16)) @ Tensor(np.ones((5000, 1), np.float16)),
        [[5000.0]],
    ),
    "layer norm": (lambda: Tensor(np.array([[300, -300]], np.float16)).layernorm(), [[1.0, -1.0]]),
    "cosine": (lambda: of_half(300, 300).cosine_similarity(of_half(300, 300), 0), 1.0),
    "distance": (lambda: of_half(300, 0).dist(of_half(0, 300)), 424.25),
    "mse": (lambda: of_half(300, 300).mse_loss(of_half(0, 0), "mean"), inf),
    "average pool": (lambda: Tensor(np.full((1, 1, 4), 60000, np.float16)).avg_pool1d(4), 60000.0),
    "int8 product": (
        lambda: Tensor(np.full((1, 999), 100, np.int8)) @ Tensor(np.full((999, 1), 100, np.int8)),
        [[9990000]],
    ),
    "uint8 mean": (lambda: Tensor(np.full(1000, 255, np.uint8)).mean(), 255.0),
    "uint8 below zero": (
        lambda: Tensor([1], dtype=dtypes.uint8) - Tensor([2], dtype=dtypes.uint8),
        [255],
    ),
    "bool sum": (lambda: Tensor([True, True, False]).sum(), 2),
    "bool plus bool": (lambda: Tensor([True]) + Tensor([True]), [True]),
}  # fmt: skip


@pytest.mark.parametrize("name", LOW_PRECISION)
def test_narrow_numbers_add_up_in_wide_ones(name: str) -> None:
    call, want = LOW_PRECISION[name]
    np.testing.assert_allclose(call().float().numpy().squeeze(), np.squeeze(want), rtol=1e-3)


AS_PYTORCH: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "divisor": (
        lambda: Tensor(X).avg_pool2d(3, 2, 1, 1, True, divisor_override=5),
        lambda: F.avg_pool2d(torch.tensor(X), 3, 2, 1, True, divisor_override=5),
    ),
    "no padding counted": (
        lambda: Tensor(X).avg_pool2d(3, 2, 1, 1, True, count_include_pad=False),
        lambda: F.avg_pool2d(torch.tensor(X), 3, 2, 1, True, False),
    ),
    "odd powers": (
        lambda: Tensor(X).lp_pool2d(1.0, 3, 2),
        lambda: F.lp_pool2d(torch.tensor(X), 1.0, 3, 2),
    ),
    "circular, cut": (
        lambda: Tensor(X).pad((2, -1, -1, 3), mode="circular"),
        lambda: F.pad(torch.tensor(X), (2, -1, -1, 3), mode="circular"),
    ),
    "einsum by numbers": (
        lambda: Tensor.einsum(Tensor(X[0, 0]), [0, 1], Tensor(X[0, 1]), [0, 2], [2, 1]),
        lambda: torch.einsum(torch.tensor(X[0, 0]), [0, 1], torch.tensor(X[0, 1]), [0, 2], [2, 1]),
    ),
    "einsum by numbers without output": (
        lambda: Tensor.einsum(Tensor(X[0, 0]), [3, 1], Tensor(X[0, 1]), [3, 2]),
        lambda: torch.einsum(torch.tensor(X[0, 0]), [3, 1], torch.tensor(X[0, 1]), [3, 2]),
    ),
    "search for a number": (
        lambda: Tensor([1.0, 2.0, 4.0]).searchsorted(3.0),
        lambda: torch.searchsorted(torch.tensor([1.0, 2.0, 4.0]), 3.0),
    ),
    "scatter into a grown scalar": (
        lambda: Tensor(1.0).masked_scatter(Tensor([True, False]), Tensor([3.0])),
        lambda: torch.tensor(1.0).masked_scatter(torch.tensor([True, False]), torch.tensor([3.0])),
    ),
    "median of nothing": (lambda: Tensor.zeros(0).median(), lambda: torch.zeros(0).median()),
}  # fmt: skip


@pytest.mark.parametrize("name", AS_PYTORCH)
def test_an_option_means_what_it_means_in_pytorch(name: str) -> None:
    ours, theirs = AS_PYTORCH[name]
    np.testing.assert_allclose(ours().numpy(), theirs().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(8, 3), (1, 1), (5, 12), (2, 9), (7, 9)])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased_pictures_are_those_of_pytorch(
    mode: str, align_corners: bool, size: tuple[int, int]
) -> None:
    found = Tensor(X).interpolate(size, mode=mode, align_corners=align_corners, antialias=True)
    want = F.interpolate(
        torch.tensor(X), size, mode=mode, align_corners=align_corners, antialias=True
    )
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


def test_positions_of_a_scalar_and_as_a_tuple_are_those_of_pytorch() -> None:
    x = np.array([[0, 1], [2, 0]])
    for own, other in zip(
        Tensor(x).nonzero(as_tuple=True), torch.tensor(x).nonzero(as_tuple=True), strict=True
    ):
        np.testing.assert_array_equal(own.numpy(), other.numpy())
    assert Tensor(3).nonzero().shape == (1, 0)
    assert [each.tolist() for each in Tensor(3).nonzero(as_tuple=True)] == [[0]]


@pytest.mark.parametrize("count", [33, 100, 1025])
def test_many_tensors_are_joined_in_their_order(count: int) -> None:
    parts = [Tensor([float(number), -float(number)]).realize() for number in range(count)]
    want = np.array([sign * number for number in range(count) for sign in (1.0, -1.0)])
    np.testing.assert_array_equal(Tensor.cat(*parts).numpy(), want)
    stacked = Tensor.stack(*parts, dim=1)
    np.testing.assert_array_equal(stacked.numpy(), want.reshape(count, 2).T)


def test_the_gradient_of_many_joined_tensors_reaches_each() -> None:
    parts = [Tensor([float(number)]) for number in range(70)]
    joined = Tensor.cat(*parts)
    found = (joined * joined).sum().gradient(*parts)
    assert [each.item() for each in found] == [2.0 * number for number in range(70)]


CAPTURES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]], list[Any]]] = {
    "a flag": (
        lambda x, flag: x + 1 if flag else x - 1,
        [(2.0, True), (2.0, False)] * 3,
        [3.0, 1.0] * 3,
    ),
    "a number": (lambda x, n: x * n, [(2.0, n) for n in range(5)], [0.0, 2.0, 4.0, 6.0, 8.0]),
    "text": (
        lambda x, name: getattr(x, name)(),
        [(-4.0, "abs"), (-4.0, "neg"), (-4.0, "square")] * 2,
        [4.0, 4.0, 16.0] * 2,
    ),
    "a dictionary": (
        lambda x, row: x + row["a"] * row["b"],
        [(1.0, {"a": 2, "b": n}) for n in range(4)],
        [1.0, 3.0, 5.0, 7.0],
    ),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_follows_what_it_is_called_with(name: str) -> None:
    function, calls, want = CAPTURES[name]
    captured = jit(function)
    found = [captured(Tensor([x]).realize(), *rest).item() for x, *rest in calls]
    assert found == want
