"""Threefry-2x32 with 20 rounds, as an expression and as plain Python.

J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

PARITY: Final = 0x1BD11BDA
ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_MASK: Final = 0xFFFF_FFFF


W = TypeVar("W")


def threefry(
    key: tuple[W, W],
    counter: tuple[W, W],
    add: Callable[[W, W], W],
    xor: Callable[[W, W], W],
    rotate: Callable[[W, int], W],
    constant: Callable[[int], W],
) -> tuple[W, W]:
    """The two output words for a key and a counter, by the operations on words that are given."""
    keys = (key[0], key[1], xor(xor(key[0], key[1]), constant(PARITY)))
    x, y = add(counter[0], keys[0]), add(counter[1], keys[1])
    for group in range(5):
        for amount in ROTATIONS[group % 2]:
            x = add(x, y)
            y = xor(rotate(y, amount), x)
        x = add(x, keys[(group + 1) % 3])
        y = add(add(y, keys[(group + 2) % 3]), constant(group + 1))
    return x, y


def threefry_numbers(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """The two output words for numbers.

    Example:
        >>> [hex(word) for word in threefry_numbers((0, 0), (0, 0))]
        ['0x6b200159', '0x99ba4efe']
    """
    return threefry(
        key,
        counter,
        lambda a, b: (a + b) & _MASK,
        lambda a, b: a ^ b,
        lambda a, n: ((a << n) | (a >> (32 - n))) & _MASK,
        lambda n: n,
    )
