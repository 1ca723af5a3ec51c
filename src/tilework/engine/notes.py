"""What a function that is being captured was seen to read, as long as anybody can read it.

`engine.reach` finds it and `engine.guards` compares it later.  What only these notes still refer
to, lists and cells of functions that have returned, is forgotten: no later call can read it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from tilework.engine.draws import Draws
from tilework.engine.foreign import is_a
from tilework.engine.guards import Entry, Guards, values_of, without
from tilework.engine.holdings import held_here_alone

_MAX_WATCHED: Final = 100_000


class Notes:
    """Places that were read, what was in them, and the tensors to which they led.

    Args:
        is_new: whether a tensor was made since the call began.
    """

    def __init__(self, is_new: Callable[[Any], bool]) -> None:
        #: Generators, iterators and the like, and what was read outside of the process.
        self.draws = Draws()
        #: Names of what is too large to be compared.
        self.unseen: list[str] = []
        self._is_new = is_new
        self._entries: list[Entry] = []
        self._known: set[tuple[str, int, Any]] = set()
        self._walked: set[tuple[int | types.CodeType | None, ...]] = set()
        self._leaves: dict[int, Any] = {}
        #: Tensors that were reached from closure variables, and the cells of those by identity.
        self._in_cells: dict[int, tuple[Any, frozenset[int]]] = {}
        self._alive: dict[int, Any] = {}  # what `_known` and `_walked` know by identity

    def add(self, kind: str, owner: Any, key: Any, value: Any, name: str) -> None:
        """Note once that a place (`guards.Entry`) was read, and what was in it."""
        mark = (kind, id(owner), key if is_a(key, str) else id(key))
        if mark in self._known or len(self._entries) >= _MAX_WATCHED:
            return
        self._known.add(mark)
        self._alive[id(owner)] = owner
        self._entries.append(Entry(kind, owner, key, value, name))

    def add_leaf(self, leaf: Any, cell: types.CellType | None) -> None:
        """Note a tensor, to which only the variable in `cell` led if that is given."""
        if cell is None:
            self._leaves[id(leaf)] = leaf
        else:
            known = self._in_cells.get(id(leaf), (leaf, frozenset()))[1]
            self._in_cells[id(leaf)] = (leaf, known | {id(cell)})

    def is_first_walk(
        self, value: Any, code: types.CodeType | None, cell: types.CellType | None
    ) -> bool:
        """Whether `code` has not been seen before to read on from `value`; it has from now on.

        What a variable leads to is looked at again where something that stays leads to it.
        """
        mark = (id(value), code, id(cell))
        if mark in self._walked:
            return False
        self._walked.add(mark)
        self._alive[id(value)] = value
        return True

    def is_first_run(self, space: dict[str, Any], code: types.CodeType) -> bool:
        """Whether `code` has not been seen to run among these globals; it has from now on."""
        mark = (id(space), code)
        if mark in self._walked:
            return False
        self._walked.add(mark)
        return True

    def guards(self) -> Guards:
        """Return what was seen."""
        self.forget_locals()
        held = {id(value) for entry in self._entries for value in values_of(entry)}
        leaves = {n: leaf for n, (leaf, cells) in self._in_cells.items() if cells or n in held}
        leaves |= self._leaves
        return Guards(self._entries, list(leaves.values()), self.unseen, self.draws.drawn())

    def forget_locals(self) -> None:
        """Let go of what lives only because it is noted here, and of what that has kept alive.

        Of tensors these are the new ones, and what only variables led to that are gone, such as an
        argument that a comprehension uses; others were there before the call and are compared.
        """
        while self._forget_some():
            continue

    def _forget_some(self) -> bool:
        gone = held_here_alone(self._references())
        leaves = {n for n in gone if n in self._leaves and self._is_new(self._leaves[n])}
        leaves |= {n for n in gone if n in self._in_cells and self._is_new(self._in_cells[n][0])}
        if not leaves and not any(number in self._alive for number in gone):
            return False
        self._entries = [
            without(entry, leaves) for entry in self._entries if id(entry.owner) not in gone
        ]
        self._known = {mark for mark in self._known if mark[1] not in gone}
        self._walked = {mark for mark in self._walked if gone.isdisjoint(mark)}
        self._leaves = {n: leaf for n, leaf in self._leaves.items() if n not in leaves}
        self._in_cells = {
            number: (leaf, cells - gone)
            for number, (leaf, cells) in self._in_cells.items()
            if number not in leaves
        }
        self._alive = {n: value for n, value in self._alive.items() if n not in gone}
        self.draws.forget(gone)
        return True

    def _references(self) -> Iterator[object]:
        """Each reference of these notes to an object of the program."""
        for entry in self._entries:
            yield entry.owner
            yield from values_of(entry)
        yield from self._alive.values()
        yield from self._leaves.values()
        for leaf, _ in self._in_cells.values():
            yield leaf
        yield from self.draws.held()
