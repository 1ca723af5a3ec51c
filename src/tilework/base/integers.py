"""Integer arithmetic that the compiler needs in many places."""

from collections.abc import Iterable


def ceil_div(value: int, divisor: int) -> int:
    """Return `value / divisor`, rounded towards plus infinity.

    Example:
        >>> ceil_div(7, 2), ceil_div(-7, 2), ceil_div(8, 2)
        (4, -3, 4)
    """
    return -(-value // divisor)


def round_up(value: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def round_down(value: int, multiple: int) -> int:
    """Return the largest multiple of `multiple` that is not above `value`."""
    return value // multiple * multiple


def trunc_div(value: int, divisor: int) -> int:
    """Return `value / divisor`, rounded towards zero, as C does.

    Example:
        >>> trunc_div(-7, 2), trunc_div(7, -2)
        (-3, -3)
    """
    quotient = abs(value) // abs(divisor)
    return quotient if (value < 0) == (divisor < 0) else -quotient


def wrap_signed(value: int, width: int) -> int:
    """Return `value` modulo 2**width, in [-2**(width-1), 2**(width-1)).

    Example:
        >>> wrap_signed(255, 8), wrap_signed(128, 8), wrap_signed(-129, 8)
        (-1, -128, 127)
    """
    half = 1 << (width - 1)
    return ((value + half) & ((1 << width) - 1)) - half


def divisors(value: int) -> tuple[int, ...]:
    """Return the positive divisors of a positive `value`, ascending."""
    small: list[int] = []
    large: list[int] = []
    factor = 1
    while factor * factor <= value:
        if value % factor == 0:
            small.append(factor)
            if factor * factor != value:
                large.append(value // factor)
        factor += 1
    return tuple(small + large[::-1])


def product(values: Iterable[int]) -> int:
    """Return the product, 1 for nothing."""
    result = 1
    for value in values:
        result *= value
    return result
