"""Put the barriers into a LINEAR kernel of a block of threads, and prove that none is missing.

Memory of the kind TILE is shared by the threads of a block.  What one thread stores there another
may load only after a barrier, and what is loaded may be overwritten only after one.  Threads run
the same statements (only a gate may keep a thread from an access), so a barrier between two
statements separates them for all threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import InternalError
from tilework.base.records import dataclass, field
from tilework.codegen.gpu.prefetch import load_ahead
from tilework.ir.ops.control import BARRIER, END, ENDIF, FOLD_THREADS, IF
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.program import LINEAR
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node


@dataclass
class _Pending:
    """Accesses to shared memory since the last barrier, by the memory that they touch."""

    loads: set[Node] = field(default_factory=set)
    stores: set[Node] = field(default_factory=set)

    def conflicts(self, node: Node) -> bool:
        """Must a barrier stand between what is pending and this access?"""
        memory = node.src[0].src[0]
        if node.op is LOAD:
            return memory in self.stores
        return memory in self.loads or memory in self.stores

    def add(self, node: Node) -> None:
        memory = node.src[0].src[0]
        (self.loads if node.op is LOAD else self.stores).add(memory)

    def clear(self) -> None:
        self.loads.clear()
        self.stores.clear()


def insert_barriers(linear: Node) -> Node:
    """LINEAR -> LINEAR, with a BARRIER before each access that must wait for other threads.

    Stores to one memory that follow each other are one filling and need no barrier in between.
    """
    if not any(_is_shared(node) for node in linear.src):
        return linear
    ahead = load_ahead(LINEAR(*_stores_late(linear.src)))
    inserted = _Insertion(ahead.src).run()
    missing = find_missing(inserted)
    if missing is not None:
        raise InternalError("barriers: an access does not wait for other threads", got=missing)
    return LINEAR(*inserted)


def _stores_late(statements: Sequence[Node]) -> list[Node]:
    """Stores to shared memory as late as they may stand, so that loads before them overlap.

    A load of several tiles then waits for memory once, and before the barrier, not after it.
    """
    result: list[Node] = []
    late: dict[Node, None] = {}
    for node in statements:
        ends = node.op in (RANGE, END, IF, ENDIF, BARRIER, FOLD_THREADS)
        if late and (ends or (node.op is LOAD and _is_shared(node))):
            result += late
            late = {}
        is_store = node.op is STORE and _is_shared(node)
        if is_store or any(source in late for source in node.src):
            late[node] = None
        else:
            result.append(node)
    return [*result, *late]


def _is_shared(node: Node) -> bool:
    """Is this an access to memory that the threads of a block share?"""
    return node.op in (LOAD, STORE) and node.src[0].type.memory is Memory.TILE


class _Insertion:
    """Walks the statements; a loop is walked twice, since its end is followed by its start."""

    def __init__(self, statements: Sequence[Node]) -> None:
        self.statements = list(statements)
        self.barriers: dict[int, Node] = {}

    def run(self) -> list[Node]:
        self._walk(0, len(self.statements), _Pending(), _Pending())
        result: list[Node] = []
        for at, node in enumerate(self.statements):
            if at in self.barriers:
                result.append(self.barriers[at])
            result.append(node)
        return result

    def _walk(self, start: int, stop: int, pending: _Pending, filling: _Pending) -> None:
        """Walk statements; `filling` are the stores of a run of stores to the same memories."""
        at = start
        while at < stop:
            node = self.statements[at]
            if at in self.barriers or node.op is BARRIER:
                pending.clear()
                filling.clear()
            if node.op is RANGE and node.attrs.unit is Unit.LOOP:
                end = self._end_of(at)
                body = self.statements[at + 1 : end]
                if any(_is_shared(inner) and pending.conflicts(inner) for inner in body):
                    # Once before the loop rather than in each of its iterations.
                    self._put(at, pending, filling)
                self._walk(at + 1, end, pending, filling)
                self._walk(at + 1, end, pending, filling)
                at = end
            if _is_shared(node):
                self._access(at, node, pending, filling)
            at += 1

    def _access(self, at: int, node: Node, pending: _Pending, filling: _Pending) -> None:
        memory = node.src[0].src[0]
        if node.op is STORE and memory in filling.stores and memory not in pending.loads:
            return
        if pending.conflicts(node):
            self._put(at, pending, filling)
        pending.add(node)
        if node.op is STORE:
            filling.stores.add(memory)

    def _put(self, at: int, pending: _Pending, filling: _Pending) -> None:
        """A barrier before a statement."""
        self.barriers[at] = BARRIER(self.statements[at - 1])
        pending.clear()
        filling.clear()

    def _end_of(self, at: int) -> int:
        range_ = self.statements[at]
        for position in range(at + 1, len(self.statements)):
            node = self.statements[position]
            if node.op is END and node.src[0] is range_:
                return position
        raise InternalError("barriers: a loop without an end", got=repr(range_))


def find_missing(statements: Sequence[Node]) -> str | None:
    """Say which access of LINEAR statements may race with another thread's; None if none does.

    A store races with a load of the same memory on either side unless a barrier stands between
    them on every path, also around loops.  Stores by different threads fill different places.
    """
    loaded: set[Node] = set()
    stored: set[Node] = set()

    def walk(start: int, stop: int) -> str | None:
        at = start
        while at < stop:
            node = statements[at]
            if node.op is RANGE and node.attrs.unit is Unit.LOOP:
                end = next(
                    i for i in range(at, stop)
                    if statements[i].op is END and statements[i].src[0] is node
                )  # fmt: skip
                for _ in range(2):
                    found = walk(at + 1, end)
                    if found is not None:
                        return found
                at = end
            elif node.op is BARRIER:
                loaded.clear()
                stored.clear()
            elif _is_shared(node):
                memory = node.src[0].src[0]
                if memory in (stored if node.op is LOAD else loaded):
                    return f"statement {at}, {node!r}"
                (loaded if node.op is LOAD else stored).add(memory)
            at += 1
        return None

    return walk(0, len(statements))
