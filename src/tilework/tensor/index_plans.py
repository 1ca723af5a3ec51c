"""The parts of an index: positions that the host knows, single bools, and a whole index planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.base.errors import IndexingError
from tilework.base.records import dataclass, field
from tilework.base.sequences import row_major_strides
from tilework.tensor import host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.ir.types import Dim


@dataclass(frozen=True, slots=True)
class KnownIndex:
    """Positions that the host knows; `mask_size` is the size of the mask's axis they came from.

    Those of a mask that was read are `packed`, in int64, and need not be looked at one by one.
    """

    positions: list[int]
    shape: tuple[int, ...]
    mask_size: int | None = None
    packed: memoryview | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """A single bool as an index: a new axis of size 1 if it is True, else of size 0."""

    is_on: bool


def known_items(item: Any) -> list[Any]:
    """A list or array as an index: positions, or for a mask the positions of its True elements."""
    nested = item.tolist() if hasattr(item, "tolist") else item
    if isinstance(nested, bool):
        return [Switch(nested)]
    if isinstance(nested, range):
        nested = list(nested)
    if not isinstance(nested, list | tuple):
        raise IndexingError(
            "index: this is not an index",
            got=f"{item!r} of type {type(item).__name__}",
            expected="an int, a slice, None, ..., or a tensor or list of integers or bools",
        )
    flat, shape = host.flatten(nested)
    if not flat:  # a list of no lists does not say how long they are, an array does
        shape = list(getattr(item, "shape", shape))
    is_mask = getattr(getattr(item, "dtype", None), "kind", "") == "b"
    if is_mask or (flat and all(isinstance(each, bool) for each in flat)):
        strides = row_major_strides(shape)
        found = [number for number, each in enumerate(flat) if each]
        return [
            KnownIndex([number // stride % size for number in found], (len(found),), size)
            for stride, size in zip(strides, shape, strict=True)
        ]
    for each in flat:
        if isinstance(each, bool) or not isinstance(each, int):
            raise IndexingError("index: an index must be an integer", got=f"{each!r}")
    return [KnownIndex(flat, tuple(shape))]


@dataclass
class Plan:
    """An index taken apart: cuts of a view, mirrored axes, the new shape, and index tensors."""

    bounds: list[tuple[Dim, Dim, int]] = field(default_factory=list)
    flips: list[int] = field(default_factory=list)
    shape: list[Any] = field(default_factory=list)
    #: Axis of the viewed tensor and the index tensor for it.
    advanced: list[tuple[int, Any]] = field(default_factory=list)
    bindings: Mapping[str, int] | None = None

    def order(self) -> tuple[list[int], int]:
        """The axes with all indexed ones side by side, and where those begin.

        As in PyTorch an index tensor without axes picks like a number, so it does not count: index
        tensors with axes that are neighbours else keep their place, others come to the front.
        """
        axes = [axis for axis, _ in self.advanced]
        points = [axis for axis, index in self.advanced if not index.ndim]
        left = [axis for axis in range(len(self.shape)) if axis not in points]
        places = [left.index(axis) for axis in axes if axis not in points]
        is_adjacent = not places or places[-1] - places[0] == len(places) - 1
        rest = [axis for axis in left if axis not in axes]
        first = sum([place < places[0] for place in map(left.index, rest)]) if places else 0
        first = first if is_adjacent else 0
        return [*rest[:first], *axes, *rest[first:]], first
