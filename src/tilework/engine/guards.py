"""What a function reads besides its arguments, and whether it is still the same.

While a function is captured, `Watcher` sees each Python function that is called (not tilework's
own, nor the standard library's) and notes, at its entry, what its code can read: globals, closure
cells, defaults, and attributes of the objects that these and the arguments lead to.  An attribute
counts if its name occurs in the code (`engine.names`).  `Guards.changed` compares all of it with
what it was, in well under a microsecond for a small function, and names the first difference.

Values are compared by identity first; numbers, text and the like then by type and value.
Containers of Python and arrays are compared item by item, up to a size.  A function that draws from
a random generator of NumPy or Python, or goes on with an iterator that was there before, counts as
changed at each call.  What C code, files and clocks give is not seen, nor the contents of large
containers and arrays: `Guards.unseen` lists these.  What only the watcher still refers to, lists
and cells of functions that have returned, is forgotten (`Watcher.forget_locals`): no later call can
read it.
"""

from __future__ import annotations

import functools
import gc
import struct
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from operator import is_
from pathlib import Path
from typing import Any, Final

from tilework.engine.contents import (
    bytes_of,
    is_bytes,
    is_collection,
    is_mapping,
    is_sequence,
    targets_of,
)
from tilework.engine.draws import Draws, is_generator, is_iterator
from tilework.engine.holdings import held_here_alone
from tilework.engine.names import asked_by, names_of, reads_any

_SCALARS: Final = (int, float, complex, str, bytes, bool, type(None), type(...), slice, range)
#: The value of a place where nothing was.
MISSING: Final = object()
#: Stands for a value that is not there any more, and that no value is.
_GONE: Final = object()
_CONTENTS: Final = ("items", "pairs", "array", "context")
_MAX_WATCHED: Final = 100_000
_MAX_ITEMS: Final = 4096
_MAX_ARRAY_BYTES: Final = 1 << 16
_OWN: Final = str(Path(__file__).parent.parent) + "/"
_LIBRARY: Final = _OWN + "nn/"  # layers and optimizers hold what a function reads
_STANDARD: Final = tuple(
    {sysconfig.get_path("stdlib") + "/", sysconfig.get_path("platstdlib") + "/"}
)
_ARRAYS: Final = "/site-packages/numpy/"  # keeps state of its own for errors and printing
_CODE_FLAG_OPTIMIZED: Final = 0x01
_CODE_FLAG_VARARGS: Final = 0x04
_CODE_FLAG_VARKEYWORDS: Final = 0x08


def is_foreign(filename: str) -> bool:
    """Whether code of this file is not watched: tilework's own, the standard library's, C's."""
    if filename.startswith((_OWN, "<frozen")):
        return not filename.startswith(_LIBRARY)
    if _ARRAYS in filename:
        return True
    return filename.startswith(_STANDARD) and "site-packages" not in filename


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was read: where it is, what it was, and its name for people."""

    #: "item": owner[key]; "cell"; "slot", "class": owner.key; "items"; "pairs"; "array"; "context"
    kind: str
    owner: Any
    key: Any
    value: Any
    name: str


def same_value(a: object, b: object) -> bool:
    """Whether two values are one object, or scalars of one type and value (floats by bits)."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, _SCALARS):
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
            return f"{self.drawn[0]}: the function draws from it"
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
    return bool(bytes_of(owner) == value)


def _values_of(entry: Entry) -> Iterable[object]:
    """The objects that an entry keeps as what was read."""
    if entry.kind == "items":
        return entry.value  # type: ignore[no-any-return]  # the tuple of them
    if entry.kind == "pairs":
        return entry.value[1]  # type: ignore[no-any-return]  # the list of them
    return () if entry.kind == "array" else (entry.value,)


def _without(entry: Entry, gone: set[int]) -> Entry:
    """The entry without the values that are gone: none that comes later is the same."""
    values = [_GONE if id(value) in gone else value for value in _values_of(entry)]
    if not any(value is _GONE for value in values):
        return entry
    if entry.kind == "items":
        return replace(entry, value=tuple(values))
    if entry.kind == "pairs":
        return replace(entry, value=(entry.value[0], values))
    return replace(entry, value=values[0])


def _read(entry: Entry) -> Any:
    if entry.kind == "item":
        return entry.owner.get(entry.key, MISSING)
    if entry.kind == "cell":
        return _contents_of(entry.owner)
    if entry.kind in ("slot", "class"):
        return getattr(entry.owner, entry.key, MISSING)
    if entry.kind == "context":
        return entry.owner.get(MISSING)
    return entry.owner


def _resume(profiler: Any) -> None:
    """Give calls back to whoever saw them before: a function, or a profiler in C like cProfile."""
    if profiler is None or callable(profiler):
        sys.setprofile(profiler)
        return
    sys.setprofile(None)
    enable = getattr(profiler, "enable", None)
    if enable is not None:
        enable()


def _contents_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
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
    text = repr(value) if isinstance(value, _SCALARS) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


class _Collector:
    """Knows when this thread collects garbage: what runs then is no part of any function.

    These are finalisers and the callbacks of others, hence one callback before and one after them.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.runs = False

    def follow(self) -> None:
        # The end first: a collection that comes in between must not look as if it went on for ever.
        gc.callbacks.append(self._end)
        gc.callbacks.insert(0, self._begin)

    def leave(self) -> None:
        for callback in (self._begin, self._end):
            if callback in gc.callbacks:  # nobody emptied the list
                gc.callbacks.remove(callback)

    def _begin(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start" and threading.get_ident() == self._thread:
            self.runs = True

    def _end(self, phase: str, _: dict[str, int]) -> None:
        if phase == "stop" and threading.get_ident() == self._thread:
            self.runs = False


class Watcher:
    """Collects what the functions called inside `watching` read.

    Args:
        is_leaf: whether an object is a tensor: it is noted, and not looked into.
        is_new: whether a tensor was made since the call began.
    """

    def __init__(
        self,
        is_leaf: Callable[[object], bool],
        is_new: Callable[[Any], bool] = lambda leaf: False,
    ) -> None:
        self._is_leaf = is_leaf
        self._is_new = is_new
        self._entries: list[Entry] = []
        self._known: set[tuple[str, int, Any]] = set()
        self._walked: set[tuple[int | types.CodeType | None, ...]] = set()
        self._leaves: dict[int, Any] = {}
        #: Tensors that were reached from closure variables, and the cells of those by identity.
        self._in_cells: dict[int, tuple[Any, frozenset[int]]] = {}
        self._unseen: list[str] = []
        self._draws = Draws()
        self._profile: Any = None
        self._alive: dict[int, Any] = {}  # what `_known` and `_walked` know by identity
        self._snapshot: dict[str, Any] = {}

    def add_function(self, function: Callable[..., Any]) -> None:
        """Note what a callable itself consists of: its defaults, the object that it is bound to."""
        if isinstance(function, functools.partial):
            self._walk(function, None, frozenset(), "the captured function")
            function = function.func
        target = getattr(function, "__func__", function)
        if isinstance(target, types.FunctionType):
            self._note_function(target, target.__qualname__)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See each call of this thread while the block runs."""
        before = sys.getprofile()
        follower = before if callable(before) else None

        def profile(frame: types.FrameType, event: Any, argument: Any) -> None:
            self._snapshot.clear()
            if event == "call" and not _is_foreign_code(frame.f_code) and not collector.runs:
                self._enter(frame)
            if follower is not None:
                follower(frame, event, argument)

        self._profile = profile
        collector = _Collector()
        collector.follow()
        sys.setprofile(profile)
        try:
            yield
        finally:
            _resume(before)
            collector.leave()
            self._snapshot.clear()
            self._profile = None  # it refers to this watcher

    @contextmanager
    def paused(self) -> Iterator[None]:
        """See no calls while the block runs."""
        if self._profile is None or sys.getprofile() is not self._profile:
            yield
            return
        sys.setprofile(None)
        try:
            yield
        finally:
            sys.setprofile(self._profile)

    def guards(self) -> Guards:
        """Return what was seen."""
        self.forget_locals()
        held = {id(value) for entry in self._entries for value in _values_of(entry)}
        leaves = {n: leaf for n, (leaf, cells) in self._in_cells.items() if cells or n in held}
        leaves |= self._leaves
        return Guards(self._entries, list(leaves.values()), self._unseen, self._draws.drawn())

    # --- what nobody can read any more -------------------------------------------------------

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
            _without(entry, leaves) for entry in self._entries if id(entry.owner) not in gone
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
        self._draws.forget(gone)
        return True

    def _references(self) -> Iterator[object]:
        """Each reference of this watcher to an object of the program."""
        for entry in self._entries:
            yield entry.owner
            yield from _values_of(entry)
        yield from self._alive.values()
        yield from self._leaves.values()
        for leaf, _ in self._in_cells.values():
            yield leaf
        yield from self._draws.held()

    # --- what a frame can read ---------------------------------------------------------------

    def _enter(self, frame: types.FrameType) -> None:
        code = frame.f_code
        names = names_of(code)
        values = frame.f_locals
        if code.co_flags & _CODE_FLAG_OPTIMIZED and isinstance(values, dict):
            # The frame keeps this copy of its variables, which would keep alive what they were:
            # emptied at the next event, when the frame has no use for it any more.
            self._snapshot = values
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & _CODE_FLAG_VARARGS)
        count += bool(code.co_flags & _CODE_FLAG_VARKEYWORDS)
        for name in code.co_varnames[:count]:
            value = values.get(name)
            # Scalars and containers that are passed belong to the caller, who read them.
            if _has_attributes(value) and not self._is_leaf(value):
                self._walk(value, code, names, type(value).__name__ if name == "self" else name)
        if code.co_freevars and (id(code), code) not in self._walked:
            self._note_cells(frame.f_code, values, names)
        key = (id(frame.f_globals), code)
        if key not in self._walked:
            self._walked.add(key)
            for name in code.co_names:
                if name in frame.f_globals:
                    value = frame.f_globals[name]
                    if _is_watchable_global(value):
                        self._note("item", frame.f_globals, name, value, f"global {name}")
                        self._walk(value, code, names, name)
                    elif isinstance(value, types.ModuleType):
                        self._walk(value, code, names, name)

    def _note_cells(
        self, code: types.CodeType, values: Mapping[str, Any], names: frozenset[str]
    ) -> None:
        """Closure cells are not in a frame; the function that runs has them."""
        function = _function_of(code, values)
        if function is None or function.__closure__ is None:
            for name in code.co_freevars:  # no cell to watch: at least what it leads to
                self._walk(values.get(name), code, names, name)
            return
        for name, cell in zip(code.co_freevars, function.__closure__, strict=True):
            value = _contents_of(cell)
            if value is MISSING:  # not set yet
                continue
            self._note("cell", cell, None, value, f"closure variable {name}")
            self._walk(value, code, names, name, cell)

    # --- what a value leads to ---------------------------------------------------------------

    def _note(self, kind: str, owner: Any, key: Any, value: Any, name: str) -> bool:
        mark = (kind, id(owner), key if isinstance(key, str) else id(key))
        if mark in self._known or len(self._entries) >= _MAX_WATCHED:
            return False
        self._known.add(mark)
        self._alive[id(owner)] = owner
        self._entries.append(Entry(kind, owner, key, value, name))
        return True

    def _note_function(self, function: types.FunctionType, name: str) -> None:
        self._note("slot", function, "__defaults__", function.__defaults__, f"{name}.__defaults__")
        if function.__code__.co_kwonlyargcount:
            keywords = function.__kwdefaults__
            self._note("slot", function, "__kwdefaults__", keywords, f"{name}.__kwdefaults__")
        # No caller passes these, hence none has read them.
        for default in (function.__defaults__, function.__kwdefaults__):
            if default:
                code = function.__code__
                self._walk(default, code, names_of(code), f"a default of {name}")

    def _walk(
        self,
        value: Any,
        code: types.CodeType | None,
        names: frozenset[str],
        name: str,
        cell: types.CellType | None = None,
    ) -> None:
        """Note what `code` can read from `value` on, which `cell` holds if it is given."""
        asked = frozenset[str]() if code is None else asked_by(code)
        stack: list[tuple[Any, str]] = [(value, name)]
        while stack:
            value, name = stack.pop()
            if isinstance(value, _SCALARS):
                continue
            if self._is_leaf(value):
                if cell is None:
                    self._leaves[id(value)] = value
                else:
                    known = self._in_cells.get(id(value), (value, frozenset()))[1]
                    self._in_cells[id(value)] = (value, known | {id(cell)})
                continue
            # What a variable leads to is looked at again where something that stays leads to it.
            mark = (id(value), code, id(cell))
            if mark in self._walked:
                continue
            self._walked.add(mark)
            self._alive[id(value)] = value
            if is_generator(value) or is_iterator(value):
                self._draws.note(value, name)
                continue
            look = self._class_parts if isinstance(value, type) else self._parts
            stack.extend(look(value, names, name))
            if asked:
                self._note_absent(value, asked, name)

    def _note_absent(self, value: Any, asked: frozenset[str], name: str) -> None:
        """Note the attributes that are asked for and that `value` does not have itself."""
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            for key in asked - own.keys():
                self._note("item", own, key, MISSING, f"{name}.{key}")

    def _parts(self, value: Any, names: frozenset[str], name: str) -> list[tuple[Any, str]]:
        """Note `value`'s parts that can be read, and return them."""
        if is_sequence(value) or is_mapping(value):
            return self._container_parts(value, names, name)
        if isinstance(value, types.FunctionType):
            if is_foreign(value.__code__.co_filename):
                return []
            self._note_function(value, name)
            return self._own_parts(value.__dict__, names & value.__dict__.keys(), name)
        if isinstance(value, types.MethodType):
            return [(value.__self__, name)]
        if isinstance(value, functools.partial):
            return [(value.func, name), (value.args, name), (value.keywords, name)]
        if is_bytes(value):
            size = value.nbytes if hasattr(value, "nbytes") else len(value)
            if size <= _MAX_ARRAY_BYTES:
                self._note("array", value, None, bytes_of(value), name)
            else:
                self._unseen.append(f"the contents of the array {name}")
            return []
        if isinstance(value, types.ModuleType):
            return self._module_parts(value, names, name)
        if isinstance(value, ContextVar):
            now = value.get(MISSING)
            self._note("context", value, None, now, f"the context variable {value.name}")
            return [] if now is MISSING else [(now, name)]
        targets = targets_of(value)
        if targets is not None:
            return [(target, name) for target in targets]
        return self._attribute_parts(value, names, name)

    def _container_parts(
        self, value: Any, names: frozenset[str], name: str
    ) -> list[tuple[Any, str]]:
        found: list[tuple[Any, str]] = []
        if len(value) > _MAX_ITEMS:
            self._unseen.append(f"the {len(value)} items of {name}")
        elif is_mapping(value):
            self._note("pairs", value, None, (list(value), list(value.values())), name)
            found = [(item, f"{name}[{key!r}]") for key, item in value.items()]
        else:
            if not isinstance(value, tuple | frozenset):
                self._note("items", value, None, tuple(value), name)
            found = [(item, f"{name}[{index}]") for index, item in enumerate(value)]
        if hasattr(value, "__dict__") or type(value).__module__ not in ("builtins", "collections"):
            found += self._attribute_parts(value, names, name)
        return found

    def _own_parts(
        self, own: dict[str, Any], wanted: Iterable[str], name: str
    ) -> list[tuple[Any, str]]:
        found: list[tuple[Any, str]] = []
        for key in list(wanted):
            self._note("item", own, key, own[key], f"{name}.{key}")
            found.append((own[key], f"{name}.{key}"))
        return found

    def _module_parts(
        self, value: types.ModuleType, names: frozenset[str], name: str
    ) -> list[tuple[Any, str]]:
        if is_foreign(getattr(value, "__file__", None) or "<frozen"):
            return []
        found: list[tuple[Any, str]] = []
        for key in names & value.__dict__.keys():
            part = value.__dict__[key]
            if _is_watchable_global(part):
                self._note("item", value.__dict__, key, part, f"{name}.{key}")
                found.append((part, f"{name}.{key}"))
        return found

    def _attribute_parts(
        self, value: Any, names: frozenset[str], name: str
    ) -> list[tuple[Any, str]]:
        found: list[tuple[Any, str]] = []
        own = getattr(value, "__dict__", None)
        is_dynamic = reads_any(names)
        if isinstance(own, dict):
            wanted = own.keys() if is_dynamic or is_collection(value) else names & own.keys()
            found += self._own_parts(own, wanted, name)
            if is_dynamic:  # it may ask for what is not there yet
                self._note("pairs", own, None, (list(own), list(own.values())), name)
            for key in self._overridable(type(value), names - own.keys()):
                self._note("item", own, key, MISSING, f"{name}.{key}")
        else:
            own = {}
        for cls in type(value).__mro__:
            provided = cls.__dict__.keys()
            for key in (provided if is_dynamic else names & provided) - own.keys():
                if isinstance(cls.__dict__[key], types.MemberDescriptorType):
                    part = getattr(value, key, MISSING)
                    self._note("slot", value, key, part, f"{name}.{key}")
                    found.append((part, f"{name}.{key}"))
        found.extend(self._class_parts(type(value), names - own.keys(), name))
        return found

    def _overridable(self, cls: type, names: frozenset[str]) -> set[str]:
        """Names that a class provides until an object has an attribute of that name itself."""
        found: set[str] = set()
        for base in cls.__mro__:
            filename = _file_of(base)
            if not is_foreign(filename) and not filename.startswith(_LIBRARY):
                found |= {
                    key
                    for key in names & base.__dict__.keys()
                    if not hasattr(type(base.__dict__[key]), "__set__")
                }
        return found

    def _class_parts(self, cls: type, names: frozenset[str], name: str) -> list[tuple[Any, str]]:
        """Class attributes that hold data, and which methods it has: these are seen when called."""
        found: list[tuple[Any, str]] = []
        for base in cls.__mro__:
            if base is object or is_foreign(_file_of(base)):
                continue
            for key in names & base.__dict__.keys():
                part = base.__dict__[key]
                if isinstance(part, types.FunctionType | property):
                    self._note("class", base, key, part, f"{name}.{key}")
                    if isinstance(part, types.FunctionType):
                        self._note_function(part, f"{name}.{key}")
                    continue
                if callable(part) or hasattr(type(part), "__get__"):
                    continue
                self._note("class", base, key, part, f"{name}.{key}")
                found.append((part, f"{name}.{key}"))
        return found


def _file_of(cls: type) -> str:
    module = sys.modules.get(cls.__module__)
    return getattr(module, "__file__", None) or "<frozen"


@functools.lru_cache(maxsize=16384)
def _is_foreign_code(code: types.CodeType) -> bool:
    if code.co_filename == "<string>" and code.co_name.startswith("__"):
        return True  # what dataclasses and named tuples generate reads its arguments alone
    return is_foreign(code.co_filename)


def _has_attributes(value: object) -> bool:
    """Whether it is an object of some class with attributes of its own."""
    if isinstance(value, tuple) and hasattr(type(value), "_fields"):
        return False  # a named tuple is taken apart as an argument, item by item
    if isinstance(value, list | tuple | dict | set | frozenset):
        return type(value).__module__ != "builtins"
    return not isinstance(value, (*_SCALARS, types.ModuleType))


def _is_watchable_global(value: object) -> bool:
    """Data and the user's own functions; not modules, classes or what tilework provides."""
    if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        return False
    if isinstance(value, types.FunctionType):
        return not is_foreign(value.__code__.co_filename)
    if isinstance(value, type):
        return not is_foreign(_file_of(value))
    return True


def _function_of(code: types.CodeType, values: Mapping[str, Any]) -> types.FunctionType | None:
    """Find the function object that runs `code`: the one whose cells the frame shares."""
    found = [
        referrer
        for referrer in gc.get_referrers(code)
        if isinstance(referrer, types.FunctionType) and referrer.__closure__
    ]
    for function in found:
        pairs = zip(code.co_freevars, function.__closure__ or (), strict=False)
        if all(_cell_holds(cell, values.get(name, MISSING)) for name, cell in pairs):
            return function
    return None


def _cell_holds(cell: types.CellType, value: object) -> bool:
    return _contents_of(cell) is value
