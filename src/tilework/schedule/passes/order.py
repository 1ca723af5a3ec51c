"""The order of kernels: reads after writes, writes after reads, writes after writes.

A version of a buffer is read before the next version is written.  Where a kernel both has to come
before a write and after something that depends on it, the old contents are copied first.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from tilework.base.errors import ScheduleCycleError
from tilework.ir.symbolic.simplify import TRUE
from tilework.schedule.passes.kernel_graph import Kernel, Step, Store
from tilework.schedule.passes.movement import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.schedule.passes.kernel_graph import Buffer
    from tilework.schedule.passes.prepare import Layout

Edges = dict[Kernel, dict[Kernel, None]]


class Ordering:
    """Kernels and what must come before what, free of hazards and of circles.

    Args:
        layout: gives buffers for copies.
        kernels: all kernels of the function.
    """

    def __init__(self, layout: Layout, kernels: Sequence[Kernel]) -> None:
        self.layout = layout
        self.kernels = list(kernels)
        self._copies: set[Kernel] = set()
        for kernel in list(self.kernels):
            self._separate_writes(kernel)
        #: For each kernel those that must come later.
        self.after: Edges = {}
        #: The edges that only protect old contents: (reader, writer) to what is read.
        self._protects: dict[tuple[Kernel, Kernel], tuple[Buffer, int]] = {}
        #: The edges between two writes of a buffer: to the later version.
        self._overwrites: dict[tuple[Kernel, Kernel], tuple[Buffer, int]] = {}
        #: The edges from a write to a reader of it, which no copy can take away.
        self._needed: set[tuple[Kernel, Kernel]] = set()
        self._connect()
        # Each break adds one kernel, at most one for each edge that protects a version.
        left = 64 + 8 * len(self.kernels)
        while (circle := self._circle()) is not None:
            if left == 0:
                raise ScheduleCycleError(
                    "schedule: kernels wait for each other", path=_names(circle)
                )
            left -= 1
            self._break(circle)
            self._connect()

    # --- hazards inside a kernel -----------------------------------------------------------------

    def _separate_writes(self, kernel: Kernel) -> None:
        """Compute into memory of its own what overwrites elements that the kernel reads elsewhere.

        A kernel may read what it overwrites only at the very element that it writes.
        """
        for store in list(kernel.stores):
            buffer = store.buffer
            loads = [
                step
                for step in kernel.steps
                if step.buffer is buffer and step.version < store.version
            ]
            if not loads:
                continue
            is_plain = not kernel.named and store.fold is None
            same = all(
                step.dtype is buffer.dtype and is_plain and step.flat() is store.offset
                for step in loads
            )
            if same:
                continue
            if kernel.named or store.gate is not None:
                for version in dict.fromkeys(step.version for step in loads):
                    self._snapshot(kernel, buffer, version)
            else:
                self._write_later(kernel, store)

    def _write_later(self, kernel: Kernel, store: Store) -> None:
        """Store into a new buffer, and copy that to the place of the store afterwards.

        Who reads a version that is written as a whole reads the new buffer.
        """
        shape = kernel.space
        target, version = store.buffer, store.version
        between = self.layout.new_buffer(shape, store.buffer.dtype, kernel.device)
        index = kernel.index
        copy = Kernel(kernel.position, shape, kernel.device)
        copy.work = 0.0
        step = Step(copy, store.step.node, index, TRUE)
        step.buffer, step.version, step.dtype = between, 0, store.buffer.dtype
        step.shape = shape
        copy.steps.append(step)
        copy.reads[between, 0] = None
        between.readers[0] = [copy]
        between.writers[0] = kernel
        moved = Store(
            store.buffer, store.version, store.offset, step, store.what, "copied in place"
        )
        copy.stores.append(moved)
        store.buffer.writers[store.version] = copy
        store.buffer, store.version = between, 0
        store.offset = flatten(index, shape)
        store.reason += "; computed first, since the kernel reads what it overwrites"
        if not target.partial.get(version, version > 0):
            for reader in [other.find() for other in target.readers.pop(version, ())]:
                self._redirect(reader, (target, version), (between, 0))
        self.kernels.append(copy)
        self._copies.add(copy)

    def _redirect(self, reader: Kernel, place: tuple[Buffer, int], new: tuple[Buffer, int]) -> None:
        """Have `reader` load another buffer with the same contents."""
        reader.reads.pop(place, None)
        reader.reads[new] = None
        new[0].readers[new[1]].append(reader)
        for step in reader.steps:
            if (step.buffer, step.version) == place:
                step.buffer, step.version = new
        reader.copied_from = [new if each == place else each for each in reader.copied_from]

    def _snapshot(self, reader: Kernel, buffer: Buffer, version: int) -> None:
        """Have `reader` read a copy of the version, made while it still exists."""
        kept = self.layout.new_buffer(buffer.shape, buffer.dtype, buffer.device)
        copy = Kernel(reader.position, buffer.shape, buffer.device)
        step = Step(copy, reader.steps[0].node, copy.index, TRUE)
        step.buffer, step.version, step.dtype, step.shape = (
            buffer,
            version,
            buffer.dtype,
            buffer.shape,
        )
        copy.steps.append(step)
        copy.reads[buffer, version] = None
        offset = flatten(copy.index, buffer.shape)
        what = f"{buffer.dtype.name}{list(buffer.shape)}"
        copy.stores.append(
            Store(kept, 0, offset, step, what, "old contents that are read after a write")
        )
        kept.writers[0] = copy
        kept.readers[0] = []
        readers = buffer.readers[version]
        readers[:] = [other for other in readers if other.find() is not reader] + [copy]
        self._redirect(reader, (buffer, version), (kept, 0))
        self.kernels.append(copy)
        self._copies.add(copy)

    # --- edges -----------------------------------------------------------------------------------

    def _connect(self) -> None:
        self.after = {kernel: {} for kernel in self.kernels}
        self._protects = {}
        self._overwrites = {}
        self._needed = set()
        for buffer in self.layout.buffers:
            written = sorted(buffer.writers)
            for place, version in enumerate(written):
                writer = buffer.writers[version].find()
                if place:
                    self._edge(buffer.writers[written[place - 1]].find(), writer)
                    self._overwrites[buffer.writers[written[place - 1]].find(), writer] = (
                        buffer,
                        version,
                    )
            for version, readers in buffer.readers.items():
                source = buffer.writer_of(version)
                following = next((v for v in written if v > version), None)
                for reader in readers:
                    kernel = reader.find()
                    if source is not None:
                        self._edge(source, kernel)
                        self._needed.add((source, kernel))
                    if following is not None:
                        writer = buffer.writers[following].find()
                        if writer is not kernel:
                            self._edge(kernel, writer)
                            self._protects[kernel, writer] = (buffer, version)

    def _edge(self, first: Kernel, then: Kernel) -> None:
        if first is then:
            raise ScheduleCycleError(
                "schedule: a kernel needs what it computes",
                path=[store.what for store in first.stores],
            )
        self.after[first][then] = None

    def _circle(self) -> list[Kernel] | None:
        """Kernels that wait for each other, in a circle; None if there are none."""
        waiting = dict.fromkeys(self.kernels, 0)
        for later in self.after.values():
            for kernel in later:
                waiting[kernel] += 1
        ready = [kernel for kernel in self.kernels if waiting[kernel] == 0]
        while ready:
            kernel = ready.pop()
            del waiting[kernel]
            for other in self.after[kernel]:
                waiting[other] -= 1
                if waiting[other] == 0:
                    ready.append(other)
        if not waiting:
            return None
        # Each kernel that is left has one before it that is left as well: walk back to a repeat.
        before = {
            other: kernel for kernel in waiting for other in self.after[kernel] if other in waiting
        }
        seen: dict[Kernel, None] = {}
        kernel = next(iter(waiting))
        while kernel not in seen:
            seen[kernel] = None
            kernel = before[kernel]
        path = list(seen)
        return path[path.index(kernel) :][::-1]

    def _break(self, circle: list[Kernel]) -> None:
        edges = list(zip(circle, [*circle[1:], circle[0]], strict=True))
        loose = [edge for edge in edges if edge not in self._needed]
        for kernel, then in loose:
            place = self._protects.get((kernel, then))
            if place is None or kernel in self._copies or (kernel, then) in self._overwrites:
                continue
            self._snapshot(kernel, *place)
            return
        for kernel, then in loose:
            place = self._overwrites.get((kernel, then)) or self._protects.get((kernel, then))
            store = next((s for s in then.stores if place and s.buffer is place[0]), None)
            if store is not None and then not in self._copies:
                self._write_later(then, store)
                return
        raise ScheduleCycleError(
            "schedule: kernels wait for each other",
            path=_names(circle),
        )


def _names(circle: list[Kernel]) -> list[str]:
    return [", ".join(store.what for store in kernel.stores) for kernel in circle]


def levels(kernels: Sequence[Kernel], after: Edges) -> dict[Kernel, int]:
    """How many kernels must still come after each, in the longest chain."""
    found: dict[Kernel, int] = {}
    for kernel in reversed(topological(kernels, after)):
        found[kernel] = 1 + max((found[later] for later in after[kernel]), default=-1)
    return found


def topological(kernels: Sequence[Kernel], after: Edges) -> list[Kernel]:
    """The kernels so that each comes before those in `after`; else by their position."""
    waiting = dict.fromkeys(kernels, 0)
    for later in after.values():
        for kernel in later:
            waiting[kernel] += 1
    number = {kernel: count for count, kernel in enumerate(kernels)}
    ready = [(k.position, number[k], k) for k in kernels if waiting[k] == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, _, kernel = heapq.heappop(ready)
        order.append(kernel)
        for other in after[kernel]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, (other.position, number[other], other))
    return order
