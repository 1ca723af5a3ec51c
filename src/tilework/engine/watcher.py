"""Noting what a function reads while it is captured; `engine.guards` compares it later.

`Watcher` sees each Python function that is called (`engine.calls`), not tilework's own nor the
standard library's (`engine.foreign`), and notes, at its entry, what its code can read: globals,
closure cells, defaults, and attributes of the objects that these and the arguments lead to.  An
attribute counts if its name occurs in the code (`engine.names`).

What only the watcher still refers to, lists and cells of functions that have returned, is forgotten
(`Watcher.forget_locals`): no later call can read it.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from tilework.base.collection import thawed
from tilework.engine.calls import Collector, resume_profiler
from tilework.engine.contents import (
    answers_itself,
    attributes_of,
    bytes_of,
    environment_behind,
    is_bytes,
    is_closed,
    is_collection,
    is_environment,
    is_mapping,
    is_sequence,
    objects_in,
    remembered_by,
    settings_of_numpy,
    size_of,
    targets_of,
)
from tilework.engine.draws import Draws, is_generator, is_iterator, is_stream
from tilework.engine.foreign import (
    LIBRARY,
    file_of,
    file_of_module,
    is_a,
    is_foreign,
    is_foreign_code,
    is_own_code,
    is_own_module,
    is_watchable_global,
)
from tilework.engine.guards import (
    MISSING,
    SCALARS,
    Entry,
    Guards,
    contents_of,
    values_of,
    without,
)
from tilework.engine.holdings import held_here_alone
from tilework.engine.names import (
    asked_by,
    globals_of,
    imports_of,
    names_of,
    read_through,
    reads_any,
)
from tilework.engine.outside import READING, read_by, read_outside

_BUILTINS: Final = dict(builtins.__dict__)  # as Python has them
_MAX_WATCHED: Final = 100_000
_MAX_ITEMS: Final = 4096
_MAX_ARRAY_BYTES: Final = 1 << 16
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
        self._is_new = is_new
        self._entries: list[Entry] = []
        self._known: set[tuple[str, int, Any]] = set()
        self._walked: set[tuple[int | types.CodeType | None, ...]] = set()
        self._leaves: dict[int, Any] = {}
        #: Tensors that were reached from closure variables, and the cells of those by identity.
        self._in_cells: dict[int, tuple[Any, frozenset[int]]] = {}
        self._unseen: list[str] = []
        #: Functions that values have led to, by their code.
        self._met: dict[types.CodeType, list[weakref.ref[types.FunctionType]]] = {}
        self._draws = Draws()
        #: Code that has run, by its identity: whether it is watched, and itself, to be kept.
        self._codes: dict[int, tuple[bool, types.CodeType]] = {}
        #: Identities of objects that were made since the call began: no later one has the same.
        self._made: set[int] = set()
        self._profile: Any = None
        self._alive: dict[int, Any] = {}  # what `_known` and `_walked` know by identity
        self._snapshot: dict[str, Any] = {}
        #: What NumPy's settings were when the call began.
        self._settings = {each: each.get(MISSING) for each in settings_of_numpy()}
        #: What classes have, which is a new object each time that it is asked for.
        self._spaces: dict[type, Mapping[str, Any]] = {}

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
            if self._snapshot:
                self._snapshot.clear()
                self._snapshot = {}  # once: locals() fills it anew, and gives it to its caller
            if event == "c_call":
                if argument.__name__ in READING and not collector.runs:
                    read = read_outside(frame, argument)
                    if read is not None:
                        self._draws.note_read(read)
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
        self.forget_locals()
        held = {id(value) for entry in self._entries for value in values_of(entry)}
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
        self._draws.forget(gone)
        return True

    def _references(self) -> Iterator[object]:
        """Each reference of this watcher to an object of the program."""
        for entry in self._entries:
            yield entry.owner
            yield from values_of(entry)
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
        if code.co_freevars and (id(code), code) not in self._walked:
            self._note_cells(frame.f_code, values, names)
        key = (id(frame.f_globals), code)
        if key not in self._walked:
            self._walked.add(key)
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
                self._note_environment(environment_behind(value))
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

    def _note_environment(self, environment: object) -> None:
        """Note the environment of the process, if it is given."""
        held = attributes_of(environment)
        own = None if held is None else held.get("_data")
        if own is not None and is_a(own, dict):
            self._note("pairs", own, None, (list(own), list(own.values())), "os.environ")

    def _note_cells(
        self, code: types.CodeType, values: Mapping[str, Any], names: frozenset[str]
    ) -> None:
        """Closure cells are not in a frame; the function that runs has them."""
        met = [reference() for reference in self._met.get(code, ())]
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

    # --- what a value leads to ---------------------------------------------------------------

    def _note(self, kind: str, owner: Any, key: Any, value: Any, name: str) -> bool:
        mark = (kind, id(owner), key if is_a(key, str) else id(key))
        if mark in self._known or len(self._entries) >= _MAX_WATCHED:
            return False
        self._known.add(mark)
        self._alive[id(owner)] = owner
        self._entries.append(Entry(kind, owner, key, value, name))
        return True

    def _note_function(self, function: types.FunctionType, name: str) -> None:
        self._met.setdefault(function.__code__, []).append(weakref.ref(function))
        self._note("slot", function, "__code__", function.__code__, f"the code of {name}")
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
            if is_a(value, SCALARS) and not hasattr(value, "__dict__"):
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
            if is_generator(value) or is_iterator(value) or is_stream(value) or is_closed(value):
                self._draws.note(value, name)
                continue
            if is_a(value, type):
                stack.extend(self._class_parts(value, names, name))
                if type(value) is not type:
                    stack.extend(self._class_parts(type(value), names, name))
            else:
                stack.extend(self._parts(value, names, name))
            if asked:
                self._note_absent(value, asked, name)

    def _note_absent(self, value: Any, asked: frozenset[str], name: str) -> None:
        """Note the attributes that are asked for and that `value` does not have itself."""
        own = attributes_of(value)
        if own is not None:
            for key in asked - own.keys():
                self._note("item", own, key, MISSING, f"{name}.{key}")

    def _parts(self, value: Any, names: frozenset[str], name: str) -> list[tuple[Any, str]]:
        """Note `value`'s parts that can be read, and return them."""
        if is_sequence(value) or is_mapping(value):
            return self._container_parts(value, names, name)
        if is_a(value, types.FunctionType):
            return self._function_parts(value, names, name)
        if is_a(value, types.MethodType):
            return [(value.__self__, name)]
        if is_bytes(value):
            self._note_settings_of(type(value).__module__)
            if size_of(value) <= _MAX_ARRAY_BYTES:
                self._note("array", value, None, bytes_of(value), name)
            else:
                self._unseen.append(f"the contents of the array {name}")
                return []
            return [(item, f"an item of {name}") for item in objects_in(value)]
        if is_a(value, types.ModuleType):
            return self._module_parts(value, names, name)
        if is_a(value, ContextVar):
            now = value.get(MISSING)
            self._note("context", value, None, now, f"the context variable {value.name}")
            return [] if now is MISSING else [(now, name)]
        if is_environment(value):
            self._note_environment(value)
            return []
        if is_a(value, weakref.ref):
            return self._weak_parts(value, names, name)
        targets = self._targets(value, name)
        if targets is not None:
            return [(target, name) for target in targets]
        return self._attribute_parts(value, names, name)

    def _function_parts(
        self, value: types.FunctionType, names: frozenset[str], name: str
    ) -> list[tuple[Any, str]]:
        if is_foreign(value.__code__.co_filename):
            # `functools.singledispatch` keeps the user's functions by their types.
            registry = value.__dict__.get("registry")
            return [] if registry is None else [(registry, name)]
        self._note_function(value, name)
        return self._own_parts(value.__dict__, names & value.__dict__.keys(), name)

    def _targets(self, value: Any, name: str) -> tuple[object, ...] | None:
        """What an object of C code leads to that shows it, or None for another object."""
        if is_a(value, functools.partial):
            read = read_by(value.func)
            if read is not None:
                self._draws.note_read(read)
            return value.func, value.args, value.keywords
        kept = remembered_by(value)
        if kept is not None:
            self._note("kept", value, None, kept, f"the cache of {name}")
        return targets_of(value) if kept is None else kept

    def _weak_parts(
        self, value: weakref.ref[Any], names: frozenset[str], name: str
    ) -> list[tuple[Any, str]]:
        """What an object that may go at any time consists of, without keeping it."""
        target = value()
        own = attributes_of(target)
        if self._is_leaf(target) or own is None:
            return [(target, name)]
        self._note("weak", value, None, id(target), name)
        found = self._own_parts(own, names & own.keys(), name)
        for key in self._overridable(type(target), names - own.keys()):
            self._note("item", own, key, MISSING, f"{name}.{key}")
        return found + self._class_parts(type(target), names - own.keys(), name)

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
            if not is_a(value, tuple | frozenset):
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
        """What a module's names stand for; of Python's own modules also lists and the like."""
        if is_own_module(value):
            return []
        found: list[tuple[Any, str]] = []
        is_ours = not is_foreign(file_of_module(value))
        is_any = is_ours and reads_any(names) and len(value.__dict__) <= _MAX_ITEMS
        self._note_settings_of(value.__name__)
        for key in list(value.__dict__) if is_any else names & value.__dict__.keys():
            part = value.__dict__[key]
            self._note("item", value.__dict__, key, part, f"{name}.{key}")
            self._note_environment(environment_behind(part))
            is_data = is_a(part, list) or is_environment(part)
            if is_data or (is_ours and is_watchable_global(part)):
                found.append((part, f"{name}.{key}"))
        return found

    def _attribute_parts(
        self, value: Any, names: frozenset[str], name: str
    ) -> list[tuple[Any, str]]:
        found: list[tuple[Any, str]] = []
        own = attributes_of(value)
        is_dynamic = reads_any(names)
        if is_a(value, threading.local):
            # Its attributes are those of the thread that asks.
            held = own or {}
            for key in names.union(held) if is_dynamic else names:
                self._note("slot", value, key, getattr(value, key, MISSING), f"{name}.{key}")
            if own is not None and is_dynamic:  # what is not there yet, in this thread
                self._note("pairs", own, None, (list(own), list(own.values())), name)
            found += [(part, name) for part in held.values()]
            own = None
        if own is not None:
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
                if is_a(cls.__dict__[key], types.MemberDescriptorType):
                    part = getattr(value, key, MISSING)
                    self._note("slot", value, key, part, f"{name}.{key}")
                    found.append((part, f"{name}.{key}"))
        if not _is_of_a_library(type(value)) and not answers_itself(value):
            self._note("slot", value, "__class__", type(value), f"the class of {name}")
        found.extend(self._class_parts(type(value), names - own.keys(), name))
        return found

    def _overridable(self, cls: type, names: frozenset[str]) -> set[str]:
        """Names that a class provides until an object has an attribute of that name itself."""
        found: set[str] = set()
        for base in cls.__mro__:
            if not _is_of_a_library(base):
                found |= {
                    key
                    for key in names & base.__dict__.keys()
                    if not hasattr(type(base.__dict__[key]), "__set__")
                }
        return found

    def _class_parts(self, cls: type, names: frozenset[str], name: str) -> list[tuple[Any, str]]:
        """Class attributes that hold data, and which methods it has: these are seen when called."""
        found: list[tuple[Any, str]] = []
        # A class of the user's may come to have what it inherits now.
        is_final = _is_of_a_library(cls)
        seen: set[str] = set()
        for base in cls.__mro__:
            if base is object or is_foreign(file_of(base)):
                continue
            is_any = reads_any(names) and not _is_of_a_library(base)
            for key in _open(base) if is_any else names & base.__dict__.keys():
                part = base.__dict__[key]
                owner = base if is_final or key in seen else cls
                seen.add(key)
                if is_a(part, types.FunctionType | property):
                    self._note("class", owner, key, part, f"{name}.{key}")
                    if is_a(part, types.FunctionType):
                        self._note_function(part, f"{name}.{key}")
                    continue
                if callable(part) or hasattr(type(part), "__get__"):
                    self._note_method(base, key, part, f"{name}.{key}")
                    continue
                self._note("class", owner, key, part, f"{name}.{key}")
                found.append((part, f"{name}.{key}"))
        return found

    def _note_method(self, cls: type, key: str, part: Any, name: str) -> None:
        """Note a method of another kind: a static one, one of the class, a user's descriptor."""
        space = self._spaces.setdefault(cls, cls.__dict__)
        self._note("item", space, key, part, name)
        function = getattr(part, "__func__", None)
        if function is not None and is_a(function, types.FunctionType):
            self._note_function(function, name)
        if is_a(part, functools.singledispatchmethod):
            registry = part.dispatcher.registry  # the user's functions by their types
            self._note("pairs", registry, None, (list(registry), list(registry.values())), name)

    def _note_settings_of(self, module: str) -> None:
        """Note how NumPy prints and treats errors, if that is the module: as the call found it."""
        if module == "numpy":
            for variable, now in self._settings.items():
                self._note("context", variable, None, now, f"NumPy's {variable.name}")


def _is_of_a_library(cls: type) -> bool:
    """Whether a class is ours or Python's, whose methods nobody is expected to replace."""
    filename = file_of(cls)
    return is_foreign(filename) or filename.startswith(LIBRARY)


def _open(cls: type) -> list[str]:
    """The names that a class itself has, but for those that Python gives a meaning."""
    return [key for key in list(cls.__dict__) if not key.startswith("__")]


def _objects_of(value: Any) -> Iterable[object]:
    """An object, or those in a container that is given back."""
    if is_a(value, dict):
        return list(value.values()) if len(value) <= _MAX_ITEMS else ()
    if is_a(value, list | tuple | set | frozenset):
        return list(value) if len(value) <= _MAX_ITEMS else ()
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
