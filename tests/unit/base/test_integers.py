import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework.base import integers

NONZERO = st.integers(-1000, 1000).filter(bool)


@given(st.integers(-1000, 1000), NONZERO)
def test_trunc_div_and_mod_belong_together(value: int, divisor: int) -> None:
    quotient, rest = integers.trunc_div(value, divisor), integers.trunc_mod(value, divisor)
    assert quotient * divisor + rest == value
    assert abs(rest) < abs(divisor)
    assert rest == 0 or (rest > 0) == (value > 0)


@given(st.integers(-1000, 1000), st.integers(1, 100))
def test_rounding_meets_the_value_from_both_sides(value: int, multiple: int) -> None:
    low, high = integers.round_down(value, multiple), integers.round_up(value, multiple)
    assert low <= value <= high
    assert high - low in (0, multiple)
    assert integers.ceil_div(value, multiple) * multiple == high


@given(st.integers(-(2**70), 2**70), st.sampled_from([1, 8, 16, 32, 64]))
def test_wrapping_keeps_the_value_modulo_the_width(value: int, width: int) -> None:
    signed, unsigned = integers.wrap_signed(value, width), integers.wrap_unsigned(value, width)
    assert (signed - value) % (1 << width) == (unsigned - value) % (1 << width) == 0
    assert -(1 << (width - 1)) <= signed < 1 << (width - 1)
    assert 0 <= unsigned < 1 << width


@given(st.integers(1, 5000))
def test_divisors_are_all_and_only_the_divisors(value: int) -> None:
    assert list(integers.divisors(value)) == [d for d in range(1, value + 1) if value % d == 0]


@pytest.mark.parametrize(("value", "power"), [(0, 1), (1, 1), (2, 2), (3, 4), (1025, 2048)])
def test_next_power_of_two(value: int, power: int) -> None:
    assert integers.next_power_of_two(value) == power
    assert integers.is_power_of_two(power)


def test_the_product_of_nothing_is_one() -> None:
    assert (integers.product([]), integers.product([2, 3])) == (1, 6)
