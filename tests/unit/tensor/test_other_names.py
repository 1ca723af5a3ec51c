"""Arguments by PyTorch's and NumPy's names mean what they mean there, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError, ShapeError
from tilework.tensor.other_names import refused, translated

X = np.array([[3.0, -1.0, 2.0], [0.5, 4.0, -2.0]], np.float32)

#: Calls that PyTorch's tensors take too, word for word.
CALLS: dict[str, Callable[[Any], Any]] = {
    "the axis of a sum": lambda x: x.sum(dim=1),
    "axes of a sum": lambda x: x.sum(dim=(0, 1), keepdim=True),
    "NumPy's names": lambda x: x.sum(axis=1, keepdims=True),
    "the axis of a softmax": lambda x: x.softmax(dim=0),
    "the axis of a position": lambda x: x.argmax(dim=1),
    "the axis of a running sum": lambda x: x.cumsum(dim=1),
    "the axis of what holds": lambda x: (x > 0).all(dim=1),
    "a lower bound": lambda x: x.clamp(min=0),
    "both bounds": lambda x: x.clip(min=-1, max=1),
    "a deviation with a bias": lambda x: x.std(dim=0, unbiased=False),
    "a variance with a bias": lambda x: x.var(unbiased=False),
    "a mean in another dtype": lambda x: x.mean(dim=0, dtype=_kind(x, "float64")),
    "a factor of a summand": lambda x: x.add(x, alpha=3),
    "a factor of a subtrahend": lambda x: x.sub(x * 2, alpha=3),
    "an exponent": lambda x: x.pow(exponent=2),
    "a stable sort": lambda x: x.sort(dim=1, stable=True)[0],
    "the greatest in order": lambda x: x.topk(2, sorted=True)[0],
    "parts of a size": lambda x: x.split(split_size=2, dim=1)[1],
    "axes to turn around": lambda x: x.flip(dims=(0, 1)),
    "an order of axes": lambda x: x.permute(dims=(1, 0)),
    "a shape": lambda x: x.reshape(shape=(3, 2)),
    "sizes": lambda x: x.expand(size=(2, 2, 3)),
    "how often": lambda x: x.repeat(repeats=(2, 1)),
    "the other matrix": lambda x: x.mm(mat2=x.t()),
    "one axis of lengths": lambda x: x.norm(dim=1),
    "the order of a length": lambda x: x.norm(1),
    "the order of lengths and the axis": lambda x: x.norm(1, 0),
    "a length by a word": lambda x: x.norm(p="fro", dim=1, keepdim=True),
    "the sum of singular values": lambda x: x.norm("nuc"),
    "a number to scatter": lambda x: x.scatter(1, _positions(x), value=9.0),
    "another dtype": lambda x: x.to(_kind(x, "float16")),
    "another dtype by name": lambda x: x.to(dtype=_kind(x, "int32")),
    "a device and a dtype": lambda x: x.to("cpu", _kind(x, "float64")),
    "what another tensor is": lambda x: x.to(x.double()),
    "bits in another dtype": lambda x: x.view(_kind(x, "int32")),
}


def _kind(x: Any, name: str) -> Any:
    return getattr(torch if isinstance(x, torch.Tensor) else dtypes, name)


def _positions(x: Any) -> Any:
    return torch.tensor([[0], [2]]) if isinstance(x, torch.Tensor) else Tensor([[0], [2]])


@pytest.mark.parametrize("name", CALLS)
def test_a_call_by_other_names_gives_what_it_gives_there(name: str) -> None:
    found, expected = CALLS[name](Tensor(X)).numpy(), CALLS[name](torch.tensor(X)).numpy()
    assert found.shape == expected.shape
    assert found.dtype.kind == expected.dtype.kind
    assert found.dtype == expected.dtype or found.dtype.kind == "i"
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Tensor(X).sum(depth=1), "unexpected keyword argument 'depth'"),  # type: ignore[call-arg]
        (lambda: Tensor(X).unsqueeze(), "missing a required argument: 'dim'"),  # type: ignore[call-arg]
        (lambda: Tensor(X).relu(1, 2), "too many positional arguments"),  # type: ignore[call-arg]
        (lambda: Tensor.rand(2, generator=3), "unexpected keyword argument 'generator'"),  # type: ignore[call-arg]
        (lambda: Tensor(X).sum(1, dim=0), "unexpected keyword argument 'dim'"),  # type: ignore[call-arg]
        (lambda: Tensor(X).sum(axis=1, dim=0), "unexpected keyword argument 'dim'"),  # type: ignore[call-arg]
    ],
)
def test_arguments_that_no_name_explains_are_refused(
    call: Callable[[], Tensor], words: str
) -> None:
    with pytest.raises(DTypeError, match=words) as caught:
        call()
    assert caught.value.expected is not None


@pytest.mark.parametrize("axis", [True, False])
def test_truth_is_no_axis(axis: bool) -> None:
    with pytest.raises(DTypeError, match="an axis must be an integer"):
        Tensor(X).std(axis)


def test_a_scalar_has_no_fifth_axis() -> None:
    assert Tensor(2.0).sum(-1).item() == 2.0
    with pytest.raises(ShapeError, match="axis 5 is out of range"):
        Tensor(2.0).sum(5)


def test_a_type_error_from_inside_is_not_taken_for_a_wrong_name() -> None:
    with pytest.raises(DTypeError, match="the argument index is of the wrong kind"):
        Tensor(X).gather(dim=0, index="rows")  # type: ignore[arg-type]


def test_a_call_that_fits_is_neither_translated_nor_refused() -> None:
    def method(self: object, axis: int, *, dtype: str = "") -> None:
        """Nothing."""

    assert translated(method, (0, 1), {}) == ((0, 1), {})
    assert refused(method, (0, 1), {}) is None
    assert translated(method, (0,), {"dim": 2, "out": None}) == ((0,), {"axis": 2})
    assert translated(method, (0,), {"dim": 2, "out": X}) is None
