"""Sequences of several lengths, padded or packed.

Lengths are numbers of the host: shapes follow from them.  A tensor of lengths is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.tensor.tensor import Tensor
from tilework.tensor.wrong_calls import tell


class PackedSequence(NamedTuple):
    """Sequences step by step, without padding: all first steps, then all second ones...

    The longest sequence comes first within a step.
    """

    #: The steps, (all steps of all sequences, ...).
    data: Tensor
    #: How many sequences have a first step, a second one...
    batch_sizes: Tensor
    #: Which sequence is the longest, the second longest...; None if they came in that order.
    sorted_indices: Tensor | None = None
    #: The place of each sequence in that order.
    unsorted_indices: Tensor | None = None

    def sizes(self) -> list[int]:
        """`batch_sizes` as numbers of the host."""
        found: list[int] = self.batch_sizes.tolist()
        return found

    def lengths(self) -> list[int]:
        """The lengths of the sequences, in the order in which they came."""
        sizes = self.sizes()
        falling = [sum(size > place for size in sizes) for place in range(sizes[0])]
        if self.unsorted_indices is None:
            return falling
        return [falling[place] for place in self.unsorted_indices.tolist()]


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Leave the padding out.

    Args:
        input: padded sequences.
        lengths: how many steps of each count; a tensor is read.
        batch_first: sequences are the first axis, not the second.
        enforce_sorted: refuse lengths that don't fall.

    Shape: (t, n, ...), or (n, t, ...) if batch_first

    Raises:
        ShapeError: the lengths don't fit the input.
        UserError: the lengths don't fall, and have to.

    Example:
        >>> packed = pack_padded_sequence(Tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
        >>> packed.data.tolist(), packed.batch_sizes.tolist()
        ([1, 3, 2], [2, 1])
    """
    if input.ndim < 2:
        raise ShapeError("pack_padded_sequence: needs steps and sequences", got=f"{input.shape}")
    rows = input.transpose(0, 1) if batch_first else input
    steps, count = int(rows.shape[0]), int(rows.shape[1])
    wanted = _numbers(lengths)
    if len(wanted) != count or not all(0 < length <= steps for length in wanted):
        raise ShapeError(
            "pack_padded_sequence: the lengths don't fit",
            got=f"{wanted} for shape {input.shape}",
            expected=f"{count} lengths from 1 to {steps}",
        )
    order = sorted(range(count), key=lambda place: -wanted[place])
    falling = [wanted[place] for place in order]
    if enforce_sorted and falling != wanted:
        raise UserError(
            "pack_padded_sequence: the lengths don't fall",
            got=wanted,
            expected="the longest sequence first",
            try_="enforce_sorted=False",
        )
    if enforce_sorted:
        order = list(range(count))
    sizes = [sum(length > step for length in falling) for step in range(falling[0] if count else 0)]
    places = [step * count + order[row] for step, size in enumerate(sizes) for row in range(size)]
    data = rows.reshape(steps * count, *rows.shape[2:])[_positions(places)]
    if enforce_sorted:
        return PackedSequence(data, _positions(sizes))
    back = [0] * count
    for place, row in enumerate(order):
        back[row] = place
    return PackedSequence(data, _positions(sizes), _positions(order), _positions(back))


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Sequences with padding, and their lengths.

    Args:
        sequence: what `pack_padded_sequence` or `pack_sequence` gave.
        batch_first: sequences are the first axis, not the second.
        padding_value: what follows a sequence that is shorter than the longest.
        total_length: how many steps there are; those of the longest sequence by default.

    Raises:
        ShapeError: `total_length` is shorter than the longest sequence.

    Example:
        >>> packed = pack_sequence([Tensor([1, 2]), Tensor([3])])
        >>> [part.tolist() for part in pad_packed_sequence(packed, batch_first=True)]
        [[[1, 2], [3, 0]], [2, 1]]
    """
    lengths, sizes = sequence.lengths(), sequence.sizes()
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise ShapeError(
            "pad_packed_sequence: total_length is shorter than the longest sequence",
            got=steps,
            expected=f"at least {len(sizes)}",
        )
    begins = [0, *accumulate(sizes)]
    place = sequence.unsorted_indices
    ranks = list(range(len(lengths))) if place is None else place.tolist()
    places = [
        begins[step] + rank if step < length else 0
        for step in range(steps)
        for rank, length in zip(ranks, lengths, strict=True)
    ]
    data = sequence.data
    found = data[_positions(places)].reshape(steps, len(lengths), *data.shape[1:])
    counts = _positions(lengths)
    is_step = Tensor.arange(steps, dtype=dtypes.int64).unsqueeze(1) < counts
    shape = (steps, len(lengths), *[1] * (data.ndim - 1))
    padded = is_step.to(data.device).reshape(shape).where(found, padding_value)
    padded = padded.cast(data.dtype)
    return (padded.transpose(0, 1) if batch_first else padded), counts


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of several lengths in one tensor.

    Args:
        sequences: tensors that differ in their first axis only.
        batch_first: sequences are the first axis, not the second.
        padding_value: what shorter sequences are filled up with.
        padding_side: "right" (behind the sequence) or "left".

    Raises:
        UserError: there are no sequences, or the side is unknown.
        ShapeError: they differ in another axis.

    Example:
        >>> pad_sequence([Tensor([1, 2]), Tensor([3])], batch_first=True).tolist()
        [[1, 2], [3, 0]]
    """
    found = list(sequences)
    if not found or padding_side not in ("left", "right"):
        raise UserError(
            "pad_sequence: there are no sequences, or the side is unknown",
            got=f"{len(found)} sequences, {padding_side}",
            expected="left or right",
        )
    if any(each.ndim == 0 or each.shape[1:] != found[0].shape[1:] for each in found):
        raise ShapeError(
            "pad_sequence: the sequences differ in more than their length",
            got=f"{[each.shape for each in found]}",
        )
    longest = max(int(each.shape[0]) for each in found)
    rows = []
    for each in found:
        rest = longest - int(each.shape[0])
        pads = (rest, 0) if padding_side == "left" else (0, rest)
        rows.append(each.pad([pads, *[(0, 0)] * (each.ndim - 1)], value=padding_value))
    return Tensor.stack(*rows, dim=0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """`pack_padded_sequence` of `pad_sequence`."""
    lengths = [int(each.shape[0]) for each in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, False, enforce_sorted)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded tensor, each in its length; a tensor of lengths is read.

    Example:
        >>> found = unpad_sequence(Tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
        >>> [each.tolist() for each in found]
        [[1, 2], [3]]
    """
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    wanted = _numbers(lengths)
    if len(wanted) != rows.shape[0]:
        raise ShapeError(
            "unpad_sequence: needs a length for each sequence",
            got=f"{len(wanted)} lengths",
            expected=rows.shape[0],
        )
    return [rows[place, :length] for place, length in enumerate(wanted)]


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed one, in the order in which they came."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def _numbers(lengths: Tensor | Sequence[int]) -> list[int]:
    found: list[int] = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    return found


def _positions(numbers: Sequence[int]) -> Tensor:
    return Tensor(list(numbers), dtype=dtypes.int64, requires_grad=False)


tell(
    __name__,
    (
        "PackedSequence",
        "pack_padded_sequence",
        "pack_sequence",
        "pad_packed_sequence",
        "pad_sequence",
        "unpack_sequence",
        "unpad_sequence",
    ),
)
