"""What programs of views, writes and whole numbers mean, told by NumPy.

A `Model` is a row of numbers and the places of it that a tensor shows, so that views of views
stay views whatever moved them.  All numbers are small whole ones (or NaN and infinities), which
floats hold exactly: every answer has one right value, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Results beyond this are brought back to -30 ... 30, so that all stay exact.
MOST = 200
MODULUS = 61


@dataclass
class Model:
    """A tensor: a row of numbers and where each element stands in it."""

    row: Array
    places: Array

    @classmethod
    def of(cls, values: Array) -> Model:
        """A tensor that shares memory with no other."""
        return cls(
            np.array(values).reshape(-1), np.arange(np.size(values)).reshape(np.shape(values))
        )

    @property
    def values(self) -> Array:
        """The elements as they are now."""
        return np.asarray(self.row[self.places])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(self.places.shape)

    @property
    def is_writable(self) -> bool:
        """Whether no two elements are one place."""
        return np.unique(self.places).size == self.places.size

    def moved(self, move: Callable[[Array], Array]) -> Model:
        """A view."""
        return Model(self.row, move(self.places))

    def write(self, values: Any) -> None:
        """Put values there."""
        self.row[self.places] = cast(np.broadcast_to(values, self.shape), self.row.dtype)


def wide(x: Array) -> Array:
    """As 64-bit floats or integers."""
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64)


def cast(values: Any, dtype: Any) -> Array:
    """What a cast gives: integers wrap, floats become integers toward zero, NaN becomes 0."""
    given, kind = np.asarray(values), np.dtype(dtype)
    if given.dtype.kind != "f" or kind.kind in "fb":
        with np.errstate(all="ignore"):
            return given.astype(kind)
    limits = np.iinfo(kind)
    whole = np.nan_to_num(np.trunc(given), nan=0.0, posinf=2.0**63, neginf=-(2.0**63))
    found = [min(max(int(each), limits.min), limits.max) for each in whole.reshape(-1)]
    return np.array(found, dtype=kind).reshape(given.shape)


def is_bounded(values: Array) -> bool:
    """Whether what is computed from them stays exact."""
    if values.dtype.kind == "b" or not values.size:
        return True
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return not finite.size or max(int(finite.max()), -int(finite.min())) <= MOST
