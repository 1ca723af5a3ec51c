"""Containers, iterators and the like that a captured function reads: a change is seen."""

import array
import csv
import itertools
import weakref
from collections import ChainMap, OrderedDict, UserDict, UserList, deque
from collections.abc import Callable
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tilework.engine.guards import Guards
from tilework.engine.watcher import Watcher

#: What a function may hold, how it reads that, and how another one changes it.
Change = tuple[Any, Callable[[Any], object], Callable[[Any], object]]


class Lookup(dict[str, int]):
    """A dictionary with an attribute."""

    def __init__(self) -> None:
        super().__init__(a=1)
        self.scale = 1


class Target:
    size = 1


def changes() -> dict[str, Change]:
    table = {"a": 1}
    target = Target()
    setting: ContextVar[int] = ContextVar("setting", default=1)
    cells = array.array("d", [1.0, 2.0])
    return {
        "a set": ({1, 2}, len, lambda s: s.add(3)),
        "a deque": (deque([1, 2]), len, lambda s: s.append(3)),
        "a bytearray": (bytearray(b"ab"), lambda s: s[0], lambda s: s.__setitem__(0, 7)),
        "an array": (cells, lambda s: s[0], lambda s: s.__setitem__(0, 7.0)),
        "a memoryview": (memoryview(cells), lambda s: s[0], lambda s: s.__setitem__(0, 8.0)),
        "a proxy": (MappingProxyType(table), lambda s: s["a"], lambda _: table.update(a=2)),
        "a view": (table.values(), sum, lambda _: table.update(a=3)),
        "an ordered one": (OrderedDict(a=1, b=2), len, lambda s: s.move_to_end("a")),
        "a user's mapping": (UserDict(a=1), lambda s: s["a"], lambda s: s.update(a=2)),
        "a user's list": (UserList([1]), lambda s: s[0], lambda s: s.append(2)),
        "a chain": (ChainMap({"a": 1}, {"b": 2}), len, lambda s: s.maps[1].update(c=3)),
        "a context variable": (setting, lambda s: s.get(), lambda s: s.set(2)),
        "a weak reference": (
            weakref.ref(target),
            lambda s: s().size,
            lambda _: setattr(target, "size", 2),
        ),
        "a method of C code": ([3].__getitem__, lambda s: s(0), lambda s: s.__self__.append(4)),
        "an attribute of a container": (
            Lookup(),
            lambda s: s.scale,
            lambda s: setattr(s, "scale", 2),
        ),
    }


def watch(function: Callable[[], Any]) -> Guards:
    watcher = Watcher(lambda value: False)
    watcher.add_function(function)
    with watcher.watching():
        function()
    return watcher.guards()


@pytest.mark.parametrize("name", list(changes()))
def test_contents_that_differ_are_seen(name: str) -> None:
    held, read, change = changes()[name]

    def function() -> object:
        return read(held)

    guards = watch(function)
    assert guards.changed() is None
    change(held)
    assert guards.changed() is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter([1, 2, 3]),
        lambda: map(float, [1, 2, 3]),
        lambda: (n for n in (1, 2, 3)),
        itertools.count,
        lambda: zip([1, 2, 3], [4, 5, 6], strict=True),
        lambda: iter(deque([1, 2, 3])),
        lambda: csv.reader(["1", "2", "3"]),
        lambda: iter(csv.DictReader(["a", "1", "2"])),
        lambda: np.arange(3).flat,
        lambda: np.ndenumerate(np.arange(3)),
    ],
    ids=[
        "list",
        "map",
        "generator",
        "count",
        "zip",
        "deque",
        "csv",
        "rows by name",
        "flat",
        "ndenumerate",
    ],
)
def test_an_iterator_that_was_there_before_gives_something_new(make: Callable[[], Any]) -> None:
    held = make()
    assert "held" in str(watch(lambda: next(held)).changed())


def test_an_iterator_of_the_call_itself_changes_nothing() -> None:
    items = [1, 2, 3]

    def function() -> object:
        return sum(n + k for n in items for k in reversed(items)), list(map(str, items))

    assert watch(function).changed() is None


def test_what_a_default_holds_is_seen() -> None:
    kept = {"scale": 1}

    def inner(factors: dict[str, int] = kept, *, others: dict[str, int] = kept) -> int:
        return factors["scale"] + others["scale"]

    def function() -> int:
        return inner()

    guards = watch(function)
    assert guards.changed() is None
    kept["scale"] = 2
    assert guards.changed() is not None


class Layer:
    scale = 1

    def run(self) -> int:
        return self.scale

    def ask(self) -> object:
        return getattr(self, "extra", 1)

    def keep(self, kept: list[int] = []) -> int:  # noqa: B006 - that is what is tested
        return len(kept)


def test_an_attribute_that_hides_the_one_of_the_class_is_seen() -> None:
    layer = Layer()
    guards = watch(layer.run)
    assert guards.changed() is None
    layer.scale = 2
    assert guards.changed() == "Layer.scale: nothing became 2"


def test_another_method_of_the_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer()

    def function() -> int:
        return layer.run()

    guards = watch(function)
    assert guards.changed() is None
    monkeypatch.setattr(Layer, "run", lambda self: 5)
    assert guards.changed() is not None


def test_a_method_of_the_object_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer()

    def function() -> int:
        return layer.run()

    guards = watch(function)
    monkeypatch.setattr(layer, "run", lambda: 5)
    assert guards.changed() is not None


def test_an_attribute_that_was_not_there_when_it_was_asked_for_is_seen() -> None:
    layer = Layer()
    guards = watch(layer.ask)
    assert guards.changed() is None
    layer.__dict__["extra"] = 2
    assert guards.changed() is not None


def test_code_that_asks_for_one_name_does_not_read_the_other_attributes() -> None:
    layer = Layer()
    layer.__dict__["calls"] = 1
    guards = watch(layer.ask)
    layer.__dict__["calls"] = 2
    assert guards.changed() is None
    layer.__dict__["extra"] = 2
    assert guards.changed() == "Layer.extra: nothing became 2"


def test_code_that_computes_the_name_it_asks_for_reads_all_attributes() -> None:
    layer = Layer()
    layer.__dict__["calls"] = 1
    name = "extra"
    guards = watch(lambda: getattr(layer, name, 1))
    layer.__dict__["calls"] = 2
    assert guards.changed() is not None


def test_what_a_default_of_a_method_holds_is_seen() -> None:
    layer = Layer()

    def function() -> int:
        return layer.keep()

    guards = watch(function)
    assert guards.changed() is None
    (kept,) = Layer.keep.__defaults__ or ()
    kept.append(1)
    assert guards.changed() is not None
    kept.clear()


def test_an_attribute_of_a_function_is_seen() -> None:
    def inner() -> object:
        return inner.scale  # type: ignore[attr-defined]  # set below

    inner.scale = 1  # type: ignore[attr-defined]  # functions have attributes
    guards = watch(lambda: inner())
    assert guards.changed() is None
    inner.scale = 2  # type: ignore[attr-defined]  # functions have attributes
    assert guards.changed() is not None


def test_each_function_that_shares_a_variable_has_its_attributes_watched() -> None:
    held = Target()
    other = Layer()
    held.layer = other  # type: ignore[attr-defined]  # whatever it leads to

    def inner() -> object:
        return held.size

    def function() -> object:
        return held.layer, inner()  # type: ignore[attr-defined]  # set above

    guards = watch(function)
    assert guards.changed() is None
    held.size = 2
    assert guards.changed() is not None
