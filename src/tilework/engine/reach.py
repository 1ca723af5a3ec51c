"""What code can read from a value on, by the attributes whose names occur in it (`engine.names`).

`Reach.walk` follows items, attributes, defaults and the like as far as no code but tilework's own
and the standard library's (`engine.foreign`) stands between, and notes each place that it passes.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final

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
from tilework.engine.draws import is_generator, is_iterator, is_stream
from tilework.engine.foreign import (
    LIBRARY,
    file_of,
    file_of_module,
    is_a,
    is_foreign,
    is_own_module,
    is_watchable_global,
)
from tilework.engine.guards import MISSING, SCALARS
from tilework.engine.names import asked_by, names_of, reads_any
from tilework.engine.notes import Notes
from tilework.engine.outside import read_by

#: Containers with more items are not compared.
MAX_ITEMS: Final = 4096
_MAX_ARRAY_BYTES: Final = 1 << 16


class Reach:
    """Follows values, and notes what it finds.

    Args:
        notes: where each place is noted.
        is_leaf: whether an object is a tensor: it is noted, and not looked into.
    """

    def __init__(self, notes: Notes, is_leaf: Callable[[object], bool]) -> None:
        self._notes = notes
        self._note = notes.add
        self._is_leaf = is_leaf
        #: Functions that values have led to, by their code.
        self._met: dict[types.CodeType, list[weakref.ref[types.FunctionType]]] = {}
        #: What NumPy's settings were when the call began.
        self._settings = {each: each.get(MISSING) for each in settings_of_numpy()}
        #: What classes have, which is a new object each time that it is asked for.
        self._spaces: dict[type, Mapping[str, Any]] = {}

    def functions_met(self, code: types.CodeType) -> list[types.FunctionType | None]:
        """The functions of this code to which values have led; None for one that is gone."""
        return [reference() for reference in self._met.get(code, ())]

    def walk(
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
                self._notes.add_leaf(value, cell)
                continue
            if not self._notes.is_first_walk(value, code, cell):
                continue
            if is_generator(value) or is_iterator(value) or is_stream(value) or is_closed(value):
                self._notes.draws.note(value, name)
                continue
            if is_a(value, type):
                stack.extend(self._class_parts(value, names, name))
                if type(value) is not type:
                    stack.extend(self._class_parts(type(value), names, name))
            else:
                stack.extend(self._parts(value, names, name))
            if asked:
                self._note_absent(value, asked, name)

    def note_function(self, function: types.FunctionType, name: str) -> None:
        """Note the code and the defaults of a function, and what these lead to."""
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
                self.walk(default, code, names_of(code), f"a default of {name}")

    def note_environment(self, environment: object) -> None:
        """Note the environment of the process, if it is that which is given."""
        held = attributes_of(environment)
        own = None if held is None else held.get("_data")
        if own is not None and is_a(own, dict):
            self._note("pairs", own, None, (list(own), list(own.values())), "os.environ")

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
                self._notes.unseen.append(f"the contents of the array {name}")
                return []
            return [(item, f"an item of {name}") for item in objects_in(value)]
        if is_a(value, types.ModuleType):
            return self._module_parts(value, names, name)
        if is_a(value, ContextVar):
            now = value.get(MISSING)
            self._note("context", value, None, now, f"the context variable {value.name}")
            return [] if now is MISSING else [(now, name)]
        if is_environment(value):
            self.note_environment(value)
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
        self.note_function(value, name)
        return self._own_parts(value.__dict__, names & value.__dict__.keys(), name)

    def _targets(self, value: Any, name: str) -> tuple[object, ...] | None:
        """What an object of C code leads to that shows it, or None for another object."""
        if is_a(value, functools.partial):
            read = read_by(value.func)
            if read is not None:
                self._notes.draws.note_read(read)
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
        if len(value) > MAX_ITEMS:
            self._notes.unseen.append(f"the {len(value)} items of {name}")
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
        is_any = is_ours and reads_any(names) and len(value.__dict__) <= MAX_ITEMS
        self._note_settings_of(value.__name__)
        for key in list(value.__dict__) if is_any else names & value.__dict__.keys():
            part = value.__dict__[key]
            self._note("item", value.__dict__, key, part, f"{name}.{key}")
            self.note_environment(environment_behind(part))
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
                        self.note_function(part, f"{name}.{key}")
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
            self.note_function(function, name)
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
