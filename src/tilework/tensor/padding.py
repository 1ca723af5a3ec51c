"""Sizes, steps and padding of windows, as their users give them.

Padding is given as in PyTorch: a number, one for each axis, or before and after each axis from the
last to the first.  Negative padding cuts off.
"""

from __future__ import annotations

from typing import Any

from tilework.base.errors import ShapeError, UserError

Ints = Any  # one int for all axes, or a sequence with one for each


def per_axis(value: Ints, count: int, what: str, least: int = 1) -> tuple[int, ...]:
    """One number for each axis, none below `least`."""
    found = tuple(value) if hasattr(type(value), "__len__") else (value,) * count
    if len(found) != count:
        raise ShapeError(
            f"{what}: needs a number, or one for each of the {count} axes", got=f"{value}"
        )
    if not all(hasattr(type(one), "__index__") and one >= least for one in found):
        raise ShapeError(
            f"{what}: a size or step does not fit",
            got=f"{value!r}",
            expected=f"integers from {least} on",
        )
    return tuple(one.__index__() for one in found)


def read_padding(padding: Ints, count: int, what: str) -> list[tuple[int, int]]:
    """(before, after) for each axis, from the first to the last."""
    if hasattr(type(padding), "__index__") and not hasattr(type(padding), "__len__"):
        one = padding.__index__()  # a number of NumPy too
        return [(one, one)] * count
    given = tuple(padding)
    if len(given) == count:
        return [(each, each) for each in given]
    if len(given) != 2 * count:
        raise ShapeError(
            f"{what}: the padding doesn't fit",
            got=f"{padding}",
            expected=f"a number, {count}, or {2 * count} (before and after, last axis first)",
        )
    return [(given[2 * i], given[2 * i + 1]) for i in range(count)][::-1]


def named_padding(
    padding: Ints | str, kernel: tuple[int, ...], stride: Ints, dilation: Ints
) -> list[tuple[int, int]]:
    """The padding of a convolution, which may be "valid" (none) or "same" (of a stride of 1).

    Returns:
        (before, after) for each axis, from the first to the last; an odd one comes after.
    """
    count = len(kernel)
    if not isinstance(padding, str):
        return read_padding(padding, count, "conv2d")
    if padding == "valid":
        return [(0, 0)] * count
    if padding != "same":
        raise UserError(
            "conv2d: unknown padding", got=padding, expected='numbers, "valid" or "same"'
        )
    if any(step != 1 for step in per_axis(stride, count, "conv2d")):
        raise UserError('conv2d: padding "same" needs stride 1', got=f"{stride}")
    spread = per_axis(dilation, count, "conv2d")
    total = [step * (size - 1) for step, size in zip(spread, kernel, strict=True)]
    return [(each // 2, each - each // 2) for each in total]
