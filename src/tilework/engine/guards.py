"""What a function reads besides its arguments, and whether it is still the same.

`engine.watcher` sees it while the function is captured, and `engine.notes` keeps it, one `Entry`
for each thing that was read.
`Guards.changed` compares all of it with what it was, in well under a microsecond for a small
function, and names the first difference.

Values are compared by identity first; numbers, text and the like then by type and value.
Containers of Python and arrays are compared item by item, up to a size.  A function that draws from
a random generator of NumPy, Python or PyTorch, goes on with an iterator that was there before, or
reads a clock, a file or a connection (`engine.outside`) counts as changed at each call.  What other
C code keeps is not seen, nor the contents of large containers and arrays: `Guards.unseen` lists the
latter.
"""

from __future__ import annotations

import struct
import types
from collections.abc import Iterable
from operator import is_
from typing import Any, Final

from tilework.base.records import dataclass, replace
from tilework.engine.contents import bytes_of, remembered_by
from tilework.engine.foreign import is_a

SCALARS: Final = (int, float, complex, str, bytes, bool, type(None), type(...), slice, range)
#: The value of a place where nothing was.
MISSING: Final = object()
#: Stands for a value that is not there any more, and that no value is.
_GONE: Final = object()
_CONTENTS: Final = ("items", "pairs", "array", "context", "weak", "kept")


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was read: where it is, what it was, and its name for people."""

    #: "item": owner[key]; "cell"; "slot", "class": owner.key; "items"; "pairs"; "array"; "context";
    #: "weak": what a weak reference leads to, by identity; "kept": what a cache still has
    kind: str
    owner: Any
    key: Any
    value: Any
    name: str


def same_value(a: object, b: object) -> bool:
    """Whether two values are one object, or scalars of one type and value (floats by bits)."""
    if a is b:
        return True
    if type(a) is not type(b) or not is_a(a, SCALARS):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, complex) and isinstance(b, complex):
        return same_value(a.real, b.real) and same_value(a.imag, b.imag)
    return a == b


class Guards:
    """What was read, ready to be compared.  Immutable."""

    def __init__(
        self,
        entries: list[Entry],
        leaves: list[Any],
        unseen: list[str],
        drawn: tuple[str, ...] = (),
    ) -> None:
        self.drawn = drawn  # generators whose next numbers a replay would not give
        self.entries = tuple(entries)
        self.leaves = tuple(leaves)  # tensors that were reached, each once
        self.unseen = tuple(unseen)
        by_kind: dict[str, list[Entry]] = {}
        for entry in entries:
            by_kind.setdefault(entry.kind, []).append(entry)
        self._items = [(e.owner, e.key, e.value) for e in by_kind.get("item", ())]
        self._cells = [(e.owner, e.value) for e in by_kind.get("cell", ())]
        self._slots = [
            (e.owner, e.key, e.value) for kind in ("slot", "class") for e in by_kind.get(kind, ())
        ]
        self._contents = [e for kind in _CONTENTS for e in by_kind.get(kind, ())]

    def changed(self) -> str | None:
        """Return the name of the first thing that is not what it was, or None."""
        if self.drawn:
            return f"{self.drawn[0]}: the function draws from it at each call"
        if self._same_places() and all(map(has_same_contents, self._contents)):
            return None
        return self._explain()

    def _same_places(self) -> bool:
        for owner, key, value in self._items:
            if owner.get(key, MISSING) is not value:
                return False
        for owner, key, value in self._slots:
            if getattr(owner, key, MISSING) is not value:
                return False
        for cell, value in self._cells:
            try:
                if cell.cell_contents is not value:
                    return False
            except ValueError:  # it was deleted
                return False
        return True

    def _explain(self) -> str | None:
        """The slow comparison, which also accepts equal scalars and says what differs."""
        for entry in self.entries:
            now = _read(entry)
            if entry.kind in ("items", "pairs"):
                if not _same_items(entry, now):
                    return f"{entry.name}: its items changed"
            elif entry.kind == "array":
                if bytes_of(now) != entry.value:
                    return f"{entry.name}: the contents of the array changed"
            elif entry.kind in ("weak", "kept"):
                if not has_same_contents(entry):
                    return f"{entry.name}: what it leads to changed"
            elif not same_value(now, entry.value):
                return f"{entry.name}: {_short(entry.value)} became {_short(now)}"
        return None


def has_same_contents(entry: Entry) -> bool:
    """Whether a container, array or context variable holds the very items that it held."""
    owner, value = entry.owner, entry.value
    if entry.kind == "items":
        return len(owner) == len(value) and all(map(is_, owner, value))
    if entry.kind == "pairs":
        keys, values = value
        if len(owner) != len(keys) or list(owner) != keys:
            return False
        return all(map(is_, owner.values(), values))
    if entry.kind == "context":
        return bool(owner.get(MISSING) is value)
    if entry.kind == "weak":
        return bool(
            id(owner()) == value
        )  # of what is gone nobody else has the number: it gives None
    if entry.kind == "kept":
        now = {id(part) for part in remembered_by(owner) or ()}
        return all(id(part) in now for part in value)
    return bool(bytes_of(owner) == value)


def values_of(entry: Entry) -> Iterable[object]:
    """The objects that an entry keeps as what was read."""
    if entry.kind in ("items", "kept"):
        return entry.value  # type: ignore[no-any-return]  # the tuple of them
    if entry.kind == "pairs":
        return entry.value[1]  # type: ignore[no-any-return]  # the list of them
    return () if entry.kind in ("array", "weak") else (entry.value,)


def without(entry: Entry, gone: set[int]) -> Entry:
    """The entry without the values that are gone: none that comes later is the same."""
    values = [_GONE if id(value) in gone else value for value in values_of(entry)]
    if not any(value is _GONE for value in values):
        return entry
    if entry.kind in ("items", "kept"):
        return replace(entry, value=tuple(values))
    if entry.kind == "pairs":
        return replace(entry, value=(entry.value[0], values))
    return replace(entry, value=values[0])


def _read(entry: Entry) -> Any:
    if entry.kind == "item":
        return entry.owner.get(entry.key, MISSING)
    if entry.kind == "cell":
        return contents_of(entry.owner)
    if entry.kind in ("slot", "class"):
        return getattr(entry.owner, entry.key, MISSING)
    if entry.kind == "context":
        return entry.owner.get(MISSING)
    return entry.owner


def contents_of(cell: types.CellType) -> Any:
    """What a closure cell holds, or MISSING."""
    try:
        return cell.cell_contents
    except ValueError:  # nothing
        return MISSING


def _same_items(entry: Entry, now: Any) -> bool:
    if entry.kind == "items":
        old = entry.value
        return len(now) == len(old) and all(map(same_value, now, old))
    keys, values = entry.value
    return list(now) == keys and all(map(same_value, now.values(), values))


def _short(value: object) -> str:
    if value is MISSING:
        return "nothing"
    if value is _GONE:
        return "something that is gone"
    text = repr(value) if is_a(value, SCALARS) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
