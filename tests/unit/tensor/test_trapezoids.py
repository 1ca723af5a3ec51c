"""Distances between places that are integers do not wrap."""

import pytest

from tilework import Tensor


@pytest.mark.parametrize(
    ("dtype", "places"), [("uint8", [9, 2, 200]), ("int8", [100, -100, 100]), ("int32", [5, 3, 9])]
)
def test_distances_of_integer_places_do_not_wrap(dtype: str, places: list[int]) -> None:
    values, x = Tensor([2.0, 4.0, 6.0]), Tensor(places, dtype=dtype)
    first, second = places[1] - places[0], places[2] - places[1]
    assert values.trapezoid(x).item() == 3 * first + 5 * second
    assert values.cumulative_trapezoid(x).tolist() == [3 * first, 3 * first + 5 * second]
