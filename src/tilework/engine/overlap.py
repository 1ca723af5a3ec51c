"""Which buffers lie in others, and which share bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilework.runtime.buffer import Buffer


def contains(outer: Buffer, inner: Buffer) -> bool:
    """Whether all bytes of a buffer lie in another one of the same memory."""
    start = inner.offset_bytes - outer.offset_bytes
    return start >= 0 and start + inner.size_bytes <= outer.size_bytes


def share_a_byte(one: Buffer, other: Buffer) -> bool:
    """Whether two buffers overlap, also through two loans of one memory."""
    if one.device != other.device:
        return False
    first, second = one.address, other.address
    return first < second + other.size_bytes and second < first + one.size_bytes


def find_holder(buffers: Sequence[Buffer], wanted: Buffer) -> int | None:
    """Return which of `buffers` holds all of `wanted`."""
    memory = wanted.memory
    for index, buffer in enumerate(buffers):
        if buffer.memory is memory and contains(buffer, wanted):
            return index
    return None
