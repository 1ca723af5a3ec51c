"""Constructions in a build for finding mistakes: what is not defined, or not promised, is refused.

It computes as `NumpyBuilder` does, and looks at every lane: of conversions to integers, which must
be in range, of shifts, which must be shorter than the word, and of the domains that helpers state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilework.base.errors import InternalError
from tilework.codegen.decompose.builder import BinaryName, Dtype, Value
from tilework.testing.accuracy.numpy_builder import Array, NumpyBuilder


class CheckedBuilder(NumpyBuilder):
    """A raw value is an array of lanes, each of which is checked."""

    checks_domains = True

    def __init__(self) -> None:
        #: Helpers whose domains were checked, and by how many lanes.
        self.checked: dict[str, int] = {}

    def _refuse(self, what: str, lanes: Array, expected: str) -> None:
        raise InternalError(what, got=f"{lanes.flat[:3].tolist()}", expected=expected)

    def binary(self, name: BinaryName, x: Array, y: Array, dtype: Dtype) -> Array:
        """Apply one operation of two operands."""
        if name in ("shl", "shr"):
            counts, bits = np.asarray(y), np.asarray(x).dtype.itemsize * 8
            wrong = (counts.astype(np.int64) < 0) | (counts.astype(np.int64) >= bits)
            if wrong.any():
                self._refuse("a shift is as long as the word", counts[wrong], f"below {bits}")
        return super().binary(name, x, y, dtype)

    def cast(self, x: Array, source: Dtype, target: Dtype) -> Array:
        """Convert by value."""
        if "float" in source and "int" in target:
            limits = np.iinfo(target)
            wide = np.asarray(x, np.float64)
            fits = (wide > float(limits.min) - 1) & (wide < float(limits.max) + 1)
            if not fits.all():
                self._refuse("a conversion is out of range", np.asarray(x)[~fits], target)
        return super().cast(x, source, target)

    def check_domain(self, x: Array, low: float, high: float, helper: str) -> None:
        """Refuse an `x` outside of what a helper's text says of it."""
        lanes = np.asarray(x)
        outside = ~(np.isnan(lanes) | ((lanes >= low) & (lanes <= high)))
        self.checked[helper] = self.checked.get(helper, 0) + lanes.size
        if outside.any():
            self._refuse(
                f"{helper}: its domain is left", lanes[outside], f"{low} to {high}, or NaN"
            )


def evaluate_checked(
    construction: Callable[..., Value[Array]], *arrays: Array
) -> tuple[Array, dict[str, int]]:
    """Return what `construction` computes for whole arrays, and the lanes that helpers checked.

    Args:
        construction: a function of `Value`.
        arrays: an operand each.

    Raises:
        InternalError: a lane is out of range, or leaves the domain of a helper.
    """
    builder = CheckedBuilder()
    names: list[Any] = [array.dtype.name for array in arrays]
    values = [Value(builder, array, name) for array, name in zip(arrays, names, strict=True)]
    return construction(*values).raw, builder.checked
