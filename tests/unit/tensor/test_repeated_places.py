"""Several values that are folded into one place: all of them count, whatever names the place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tilework import Tensor, dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

#: What names place 0, 0, 1 and 1, or place 1 four times, as numbers that different stages see.
PAIRS: dict[str, Callable[[], Tensor]] = {
    "list": lambda: Tensor([0, 0, 1, 1]),
    "repeated": lambda: Tensor([0, 1]).repeat_interleave(2),
    "expanded": lambda: Tensor([0, 1]).reshape(2, 1).expand(2, 2).reshape(4),
    "computed": lambda: Tensor.arange(4) // 2,
}
ONES: dict[str, Callable[[], Tensor]] = {
    "list": lambda: Tensor([1, 1, 1, 1]),
    "constant": lambda: Tensor.ones(4, dtype=dtypes.int64),
    "expanded": lambda: Tensor([1]).expand(4),
    "times 0": lambda: Tensor.arange(4) * 0 + 1,
}


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("reduce", ["sum", "amax"])
@pytest.mark.parametrize("name", [*ONES])
def test_one_place_gets_all_values(name: str, reduce: str, device: str) -> None:
    start, index = Tensor.zeros(3, device=device), ONES[name]().to(device)
    values = Tensor([1.0, 5.0, 2.0, 3.0], device=device)
    found = start.scatter_reduce(0, index, values, reduce)
    assert found.tolist() == [0.0, 11.0 if reduce == "sum" else 5.0, 0.0]


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("name", [*PAIRS])
def test_two_places_get_two_values_each(name: str, device: str) -> None:
    start, index = Tensor.zeros(3, device=device), PAIRS[name]().to(device)
    values = Tensor([2.0, 1.0, 3.0, 4.0], device=device)
    assert start.scatter_add(0, index, values).tolist() == [3.0, 7.0, 0.0]


@pytest.mark.parametrize("name", [*ONES])
def test_equal_values_count_as_often_as_they_are_there(name: str) -> None:
    found = Tensor.zeros(3).scatter_add(0, ONES[name](), Tensor.ones(4))
    assert found.tolist() == [0.0, 4.0, 0.0]


def _gradient(index: Any) -> list[float]:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x[index] * Tensor([1.0, 5.0, 2.0, 3.0])).sum().backward()
    assert x.grad is not None
    found: list[float] = x.grad.tolist()
    return found


@pytest.mark.parametrize("name", [*ONES])
def test_the_gradient_of_rows_that_are_read_often_is_their_sum(name: str) -> None:
    assert _gradient(ONES[name]()) == [0.0, 11.0]
