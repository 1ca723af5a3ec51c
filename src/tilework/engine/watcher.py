"""Seeing each call while a function is captured, and noting what its code can read.

`Watcher` sees each Python function that is called (`engine.calls`), not tilework's own nor the
standard library's (`engine.foreign`), and notes, at its entry, what its code can read: globals,
closure cells, defaults, and attributes of the objects that these and the arguments lead to
(`engine.reach`).  `engine.notes` keeps what was found.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tilework.base.collection import thawed
from tilework.engine.calls import Collector, resume_profiler
from tilework.engine.contents import environment_behind, is_bytes
from tilework.engine.foreign import (
    is_a,
    is_foreign_code,
    is_own_code,
    is_own_module,
    is_watchable_global,
)
from tilework.engine.guards import MISSING, SCALARS, Guards, contents_of
from tilework.engine.names import globals_of, imports_of, names_of, read_through
from tilework.engine.notes import Notes
from tilework.engine.outside import READING, read_outside
from tilework.engine.reach import MAX_ITEMS, Reach

_BUILTINS: Final = dict(builtins.__dict__)  # as Python has them
_CODE_FLAG_OPTIMIZED: Final = 0x01
_CODE_FLAG_VARARGS: Final = 0x04
_CODE_FLAG_VARKEYWORDS: Final = 0x08


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
        self._notes = Notes(is_new)
        self._note = self._notes.add
        self._reach = Reach(self._notes, is_leaf)
        self._walk = self._reach.walk
        #: Code that has run, by its identity: whether it is watched, and itself, to be kept.
        self._codes: dict[int, tuple[bool, types.CodeType]] = {}
        #: Identities of objects that were made since the call began: no later one has the same.
        self._made: set[int] = set()
        self._profile: Any = None
        self._snapshot: dict[str, Any] = {}

    def add_function(self, function: Callable[..., Any]) -> None:
        """Note what a callable itself consists of: its defaults, the object that it is bound to."""
        if isinstance(function, functools.partial):
            self._walk(function, None, frozenset(), "the captured function")
            function = function.func
        target = getattr(function, "__func__", function)
        if isinstance(target, types.FunctionType):
            self._reach.note_function(target, target.__qualname__)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See each call of this thread while the block runs."""
        before = sys.getprofile()
        follower = before if callable(before) else None

        def profile(frame: types.FrameType, event: Any, argument: Any) -> None:
            if self._snapshot:
                self._snapshot.clear()
                self._snapshot = {}  # once: locals() fills it anew, and gives it to its caller
            if event == "c_call":
                if argument.__name__ in READING and not collector.runs:
                    read = read_outside(frame, argument)
                    if read is not None:
                        self._notes.draws.note_read(read)
            elif event == "call":
                if self._is_watched(frame.f_code) and not collector.runs:
                    self._enter(frame)
            elif event == "return" and argument is not None:
                caller = frame.f_back
                if caller is not None and self._is_watched(caller.f_code) and not collector.runs:
                    self._leave(frame, argument)
            if follower is not None:
                follower(frame, event, argument)

        self._profile = profile
        collector = Collector()
        collector.follow()
        sys.setprofile(profile)
        try:
            yield
        finally:
            resume_profiler(before)
            collector.leave()
            self._snapshot.clear()
            self._profile = None  # it refers to this watcher

    def _is_watched(self, code: types.CodeType) -> bool:
        """Whether calls that run this code are seen, by its identity.

        This is asked at each call of the thread, and code hashes all that it consists of each time.
        """
        found = self._codes.get(id(code))
        if found is None:
            found = self._codes[id(code)] = (not is_foreign_code(code), code)
        return found[0]

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

    def note_slot(self, owner: Any, key: str, value: Any, name: str) -> None:
        """Note that an attribute of an object that is not looked into was read, and was `value`."""
        self._note("slot", owner, key, value, name)

    def guards(self) -> Guards:
        """Return what was seen."""
        return self._notes.guards()

    def forget_locals(self) -> None:
        """Let go of what lives only because it is noted here (`Notes.forget_locals`)."""
        self._notes.forget_locals()

    # --- what a frame can read ---------------------------------------------------------------

    def _enter(self, frame: types.FrameType) -> None:
        code = frame.f_code
        names = names_of(code)
        values = frame.f_locals
        if code.co_flags & _CODE_FLAG_OPTIMIZED and isinstance(values, dict):
            # The frame keeps this copy of its variables, which would keep alive what they were:
            # emptied at the next event, when the frame has no use for it any more.
            self._snapshot = values
        if code.co_name == "__init__" and code.co_varnames:
            self._made.add(id(values.get(code.co_varnames[0])))
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & _CODE_FLAG_VARARGS)
        count += bool(code.co_flags & _CODE_FLAG_VARKEYWORDS)
        for name in code.co_varnames[:count]:
            value = values.get(name)
            # Scalars and containers that are passed belong to the caller, who read them.
            if _has_attributes(value) and not self._is_leaf(value):
                self._walk(value, code, names, type(value).__name__ if name == "self" else name)
        if code.co_freevars:
            self._note_cells(frame.f_code, values, names)
        if self._notes.is_first_run(frame.f_globals, code):
            self._note_globals(frame.f_globals, code, names)
            self._note_imports(frame.f_globals, code, names)

    def _leave(self, frame: types.FrameType, value: object) -> None:
        """Note what the caller's code, which is watched, can read from what a call gives back.

        Containers and arrays are noted where they were found.
        """
        caller = frame.f_back
        if caller is None or is_own_code(frame.f_code):
            return
        if frame.f_code.co_name == "__init__" or is_a(value, SCALARS):
            return
        code = caller.f_code
        name = f"what {frame.f_code.co_name} returns"
        for part in _objects_of(value):
            if id(part) in self._made or self._is_leaf(part) or is_bytes(part):
                continue
            if _has_attributes(part) or is_a(part, types.ModuleType):
                self._walk(part, code, names_of(code), name)

    def _note_globals(
        self, space: dict[str, Any], code: types.CodeType, names: frozenset[str]
    ) -> None:
        """What each name stands for, and that others are Python's own as long as nobody sets them.

        Names that code defined inside it reads are seen when that code runs.
        """
        is_theirs = not is_own_code(code)  # nobody sets names in the modules of our layers
        names = names.union(*[read_through(space.get(name)) for name in globals_of(code)])
        for name in globals_of(code):
            value = space.get(name, MISSING)
            if is_theirs or (value is not MISSING and is_watchable_global(value)):
                self._note("item", space, name, value, f"global {name}")
            if is_watchable_global(value) or is_a(value, types.ModuleType):
                self._walk(value, code, names, name)
            else:
                self._reach.note_environment(environment_behind(value))
            if value is MISSING:
                self._note_builtin(code, names, name)
        if "globals" in globals_of(code):
            self._note("pairs", space, None, (list(space), list(space.values())), "all globals")

    def _note_builtin(self, code: types.CodeType, names: frozenset[str], name: str) -> None:
        """Note a name that somebody has put beside Python's own functions."""
        space = builtins.__dict__
        value = space.get(name, MISSING)
        if value is not MISSING and value is not _BUILTINS.get(name, MISSING):
            self._note("item", space, name, value, f"global {name}")
            self._walk(value, code, names, name)

    def _note_imports(
        self, space: dict[str, Any], code: types.CodeType, names: frozenset[str]
    ) -> None:
        """Modules that the code itself imports."""
        for level, name in imports_of(code):
            package = str(space.get("__package__") or "").split(".")
            whole = ".".join([*package[: len(package) - level + 1], name]) if level else name
            value: Any = sys.modules.get(whole, MISSING)  # None keeps a module from being imported
            is_there = is_a(value, types.ModuleType)
            if not is_there or not is_own_module(value):
                self._note("item", sys.modules, whole, value, f"module {whole}")
            if is_there:
                self._walk(value, code, names, whole)

    def _note_cells(
        self, code: types.CodeType, values: Mapping[str, Any], names: frozenset[str]
    ) -> None:
        """Closure cells are not in a frame; the function that runs has them."""
        met = self._reach.functions_met(code)
        function = _one_that_runs(code, values, met) or _function_of(code, values)
        if function is None or function.__closure__ is None:
            for name in code.co_freevars:  # no cell to watch: at least what it leads to
                self._walk(values.get(name), code, names, name)
            return
        held = [contents_of(cell) for cell in function.__closure__]
        names = names.union(*[read_through(value) for value in held])
        for name, cell in zip(code.co_freevars, function.__closure__, strict=True):
            value = contents_of(cell)
            if value is MISSING:  # not set yet
                continue
            self._note("cell", cell, None, value, f"closure variable {name}")
            self._walk(value, code, names, name, cell)


def _objects_of(value: Any) -> Iterable[object]:
    """An object, or those in a container that is given back."""
    if is_a(value, dict):
        return list(value.values()) if len(value) <= MAX_ITEMS else ()
    if is_a(value, list | tuple | set | frozenset):
        return list(value) if len(value) <= MAX_ITEMS else ()
    return (value,)


def _has_attributes(value: object) -> bool:
    """Whether it is an object of some class with attributes of its own."""
    if is_a(value, tuple) and hasattr(type(value), "_fields"):
        return False  # a named tuple is taken apart as an argument, item by item
    if is_a(value, list | tuple | dict | set | frozenset):
        return type(value).__module__ != "builtins"
    return not is_a(value, (*SCALARS, types.ModuleType))


#: Objects in a generation of the garbage collector up to which they are looked through one by one.
_MOST_YOUNG: Final = 20_000


def _function_of(code: types.CodeType, values: Mapping[str, Any]) -> types.FunctionType | None:
    """Find the function object that runs `code`: the one whose cells the frame shares."""
    # That of a comprehension was made a moment ago; looking through all objects takes
    # milliseconds, once for each.  The order is that of the whole search, youngest first.
    for generation in (0, 1):
        young = gc.get_objects(generation)
        found = _one_that_runs(code, values, young) if len(young) <= _MOST_YOUNG else None
        if found is not None:
            return found
    found = _one_that_runs(code, values, gc.get_referrers(code))
    if found is None:
        with thawed():
            found = _one_that_runs(code, values, gc.get_referrers(code))
    return found


def _one_that_runs(
    code: types.CodeType, values: Mapping[str, Any], objects: list[Any]
) -> types.FunctionType | None:
    for each in objects:
        if type(each) is types.FunctionType and each.__code__ is code and each.__closure__:
            pairs = zip(code.co_freevars, each.__closure__, strict=False)
            if all(_cell_holds(cell, values.get(name, MISSING)) for name, cell in pairs):
                return each
    return None


def _cell_holds(cell: types.CellType, value: object) -> bool:
    return contents_of(cell) is value
