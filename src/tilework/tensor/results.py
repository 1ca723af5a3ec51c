"""The memory of a replay's results, and what becomes of contents that a replay overwrites.

A result's memory is handed out again once nobody refers to it.  Whether somebody does is counted:
CPython knows it exactly, and nothing has to be told when a result is dropped.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError
from tilework.base.records import dataclass
from tilework.engine.copies import copy_between
from tilework.engine.device import Device
from tilework.engine.stale import StaleBuffer, ruined
from tilework.engine.stats import COUNTERS
from tilework.runtime.group import BufferGroup, parts_of, split_name
from tilework.tensor.version import ANYTHING, Storage, Version, from_buffer, from_parts, next_epoch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.runtime.buffer import Buffer
    from tilework.tensor.recipe import Recipe

# Results of one output whose memory waits to be used again; more are their holders' alone.
_KEPT: Final = 4


@dataclass(slots=True)
class Result:
    """Memory for one output, free when nobody else refers to any of the three."""

    version: Version
    buffer: Buffer
    memory: Any
    address: int
    #: The tensor that shows it, kept by `tensor.quick` to be handed out again, and its storage.
    tensor: Any = None
    storage: Any = None

    def is_free(self) -> bool:
        """Whether the memory can be handed out; asked of a result that is in its pool alone."""
        self.tensor = self.storage = None
        # Counted: our slot and the argument; the buffer also in the version, the memory in it.
        return (
            sys.getrefcount(self.version) == 2
            and sys.getrefcount(self.buffer) == 3
            and sys.getrefcount(self.memory) == 3
            and self.version.leaves is None  # a tensor whose gradient was wanted
            and self.is_whole()
        )

    def is_whole(self) -> bool:
        """Whether the version lies in the memory: a write in place takes that for another one."""
        return self.version.buffer is self.buffer


class Results:
    """Memory for the outputs of one recipe's program.

    Args:
        recipe: says how many outputs there are, and how they look.
        ring: so many results of each output take turns; None for as many as are in use.
    """

    def __init__(self, recipe: Recipe, ring: int | None) -> None:
        self._recipe = recipe
        self._ring = ring
        #: By output, what was handed out before and may be free again.
        self.pools: list[list[Result]] = [[] for _ in recipe.made]

    def for_replay(self, count: int, values: Mapping[str, int]) -> list[Result]:
        """Return memory for each output of replay `count` that no live result uses."""
        return [self._for_replay(number, count, values) for number in range(len(self.pools))]

    def _for_replay(self, number: int, count: int, values: Mapping[str, int]) -> Result:
        result = self.take(number) if self._ring is None else self._next_of_ring(number, count)
        made = self._recipe.made[number]
        if made.variables:
            result.version.bindings = {name: values[name] for name in made.variables}
        return result

    def take(self, number: int) -> Result:
        """Return memory for output `number` that no live result uses, without a ring."""
        pool = self.pools[number]
        for result in pool:
            if result.is_free():
                return result
        result = self._new(number)
        if len(pool) >= _KEPT:
            del pool[0]  # its memory is now the holder's alone
        pool.append(result)
        return result

    def _next_of_ring(self, number: int, count: int) -> Result:
        pool, ring = self.pools[number], self._ring or 1
        if len(pool) < ring:
            pool.append(self._new(number))
            return pool[-1]
        result = pool[(count - 1) % ring]
        if not result.is_whole():
            result = pool[(count - 1) % ring] = self._new(number)
        if sys.getrefcount(result.version) > 2:
            old = result.version
            old.buffer = StaleBuffer(
                old.device,
                result.buffer.size_bytes,
                f"jit: this result was superseded {ring} calls later",
                "read results earlier, or use a larger ring: jit(outputs=n)",
            )
            result.version = self._version(number, result.buffer)
        return result

    def _new(self, number: int) -> Result:
        made = self._recipe.made[number]
        count = len(split_name(made.device))
        rows = self._recipe.program.outputs[made.first : made.first + count]
        COUNTERS.allocations += count
        parts = [Device[device].allocate(size) for device, size in rows]
        buffer = parts[0] if count == 1 else BufferGroup(parts)
        return Result(self._version(number, buffer), buffer, buffer.memory, parts[0].address)

    def _version(self, number: int, buffer: Buffer) -> Version:
        made = self._recipe.made[number]
        if made.layout is None:
            version = from_buffer(buffer, made.device, made.shape, made.dtype)
        else:
            version = from_parts(buffer, made.layout, made.shape, made.dtype)
        if made.needs_gradient:
            # Its history is not there: a gradient through it must raise, and not be 0.
            version.needs_gradient = True
            version.is_freed = True
            version.origins = ANYTHING
        return version

    def clear(self) -> None:
        """Let go of all memory that waits to be used again."""
        for pool in self.pools:
            pool.clear()


def ruin(version: Version) -> None:
    """Nobody may read a version any more that a failed run may have written in part."""
    # A counter of random numbers is right with the old and with the new value.
    if version.buffer is not None and not version.is_state:
        version.buffer = ruined(version.buffer)


def preserve(storage: Storage) -> Version:
    """Move the contents of `storage` elsewhere for their readers; the storage keeps its memory.

    Returns: the storage's new version, over the old memory, to be overwritten.
    """
    old = storage.version
    buffer = old.buffer
    if buffer is None:
        raise InternalError("jit: a realized tensor has no memory")
    copies = [_copy_of(part) for part in parts_of(buffer)]
    kept = copies[0] if len(copies) == 1 else BufferGroup(copies)
    kind = old.node.type
    if old.layout is None:
        new = from_buffer(buffer, old.device, kind.shape, kind.dtype)
    else:
        new = from_parts(buffer, old.layout, kind.shape, kind.dtype)
    new.bindings = old.bindings
    new.is_state = old.is_state
    new.leaves = old.leaves
    if old.leaves:
        new.needs_gradient = True
        new.is_tracked = False
    old.move_to(kept)
    storage.hold(new)
    next_epoch()
    return new


def _copy_of(buffer: Buffer) -> Buffer:
    device = Device[buffer.device]
    kept = device.allocate(buffer.size_bytes)
    copy_between(device, kept, device, buffer)
    return kept
