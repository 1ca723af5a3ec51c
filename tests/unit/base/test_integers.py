from hypothesis import given
from hypothesis import strategies as st

from tilework.base import integers

NONZERO = st.integers(-1000, 1000).filter(bool)


@given(st.integers(-1000, 1000), NONZERO)
def test_trunc_div_leaves_a_rest_with_the_sign_of_the_value(value: int, divisor: int) -> None:
    rest = value - integers.trunc_div(value, divisor) * divisor
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
    signed = integers.wrap_signed(value, width)
    assert (signed - value) % (1 << width) == 0
    assert -(1 << (width - 1)) <= signed < 1 << (width - 1)


@given(st.integers(1, 5000))
def test_divisors_are_all_and_only_the_divisors(value: int) -> None:
    assert list(integers.divisors(value)) == [d for d in range(1, value + 1) if value % d == 0]


def test_the_product_of_nothing_is_one() -> None:
    assert (integers.product([]), integers.product([2, 3])) == (1, 6)
