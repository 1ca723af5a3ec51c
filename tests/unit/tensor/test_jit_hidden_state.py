"""Captures see what is kept behind functions of the standard library, and computed names."""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, jit


class Bag:
    """What holds a number under a name that is computed."""

    shared_1: float

    def __init__(self) -> None:
        self.a_1 = 2.0


class Secretive(Bag):
    """Whose class cannot be asked for."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            raise KeyError(name)
        return object.__getattribute__(self, name)


@functools.singledispatch
def scale(value: object) -> float:
    return 2.0


class Scales:
    @functools.singledispatchmethod
    def of(self, value: object) -> float:
        return 2.0


BAG, SECRETIVE, SCALES = Bag(), Secretive(), Scales()
MODULE: Any = types.ModuleType("a_module_of_the_test")
KEPT = {"a": 2.0}
NUMBER = 1
FETCH = operator.attrgetter("a_1")
ASK = getattr
ARRAY = np.array([1.23456789])


@functools.lru_cache
def kept(key: str) -> float:
    return KEPT[key]


def changed_cache() -> None:
    KEPT["a"] = 3.0
    kept.cache_clear()


def set_to(owner: Any, name: str, value: float = 3.0) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)


def divided() -> float:
    try:
        np.ones(1) / 0
    except FloatingPointError:
        return 3.0
    return 2.0


#: What a function reads, and what changes it.
READS: dict[str, tuple[Callable[[], float], Callable[[], object]]] = {
    "a cache": (lambda: kept("a"), changed_cache),
    "a function for a type": (lambda: scale(1), lambda: scale.register(int, lambda value: 3.0)),
    "a method for a type": (
        lambda: SCALES.of(1),
        lambda: Scales.__dict__["of"].register(int, lambda self, value: 3.0),
    ),
    "a computed name": (lambda: getattr(BAG, f"a_{NUMBER}"), set_to(BAG, "a_1")),
    "a getter": (lambda: FETCH(BAG), set_to(BAG, "a_1")),
    "getattr by another name": (lambda: ASK(BAG, f"a_{NUMBER}"), set_to(BAG, "a_1")),
    "past the class": (
        lambda: object.__getattribute__(BAG, f"a_{NUMBER}"), set_to(BAG, "a_1")),
    "of a class": (lambda: getattr(Bag, f"shared_{NUMBER}"), set_to(Bag, "shared_1")),
    "of a module": (lambda: getattr(MODULE, f"a_{NUMBER}"), set_to(MODULE, "a_1")),
    "of what hides its class": (lambda: SECRETIVE.a_1, set_to(SECRETIVE, "a_1")),
    "how arrays are printed": (
        lambda: float(len(str(ARRAY))), lambda: np.set_printoptions(precision=2)),
    "what a division by zero does": (divided, lambda: np.seterr(divide="raise")),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_what_changes_behind_a_function_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, change = READS[name]
    monkeypatch.setattr(Bag, "shared_1", 2.0, raising=False)
    monkeypatch.setattr(MODULE, "a_1", 2.0, raising=False)
    monkeypatch.setitem(sys.modules, MODULE.__name__, MODULE)
    for bag in (BAG, SECRETIVE):
        bag.a_1 = 2.0
    with np.printoptions(), np.errstate(divide="ignore"):
        captured, x = jit(lambda x: x * read()), Tensor([1.0])
        before = read()
        assert [captured(x).item() for _ in range(3)] == [before] * 3
        change()
        assert read() != before
        assert captured(x).item() == read()
