"""Captures of functions whose classes and modules lie in no file, and of what classes inherit."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from tilework import Tensor, jit

X = [1.0]
TEXT = """
class Base:
    factor = 2

    def __init__(self):
        self.own = 1

    def __call__(self, x):
        return x * self.own

    def scale(self):
        return 3


class Derived(Base):
    pass


def helper():
    return 4
"""


@pytest.fixture(params=["unlisted", "listed"])
def made(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A module that is made while the program runs, as a prompt's and a notebook's are."""
    name = f"made_while_running_{request.param}"
    module = types.ModuleType(name)
    if request.param == "listed":
        sys.modules[name] = module
    exec(TEXT, module.__dict__)
    yield module
    sys.modules.pop(name, None)


def test_attributes_of_classes_that_lie_in_no_file_are_watched(made: Any) -> None:
    owner = made.Base
    captured: Any = jit(lambda x: x * owner.factor)
    for factor in (2, 2, 3, 4):
        owner.factor = factor
        assert captured(Tensor(X)).item() == factor


def test_methods_of_classes_that_lie_in_no_file_may_be_replaced(made: Any) -> None:
    owner = made.Base()
    captured: Any = jit(lambda x: x * owner.scale())
    assert [captured(Tensor(X)).item() for _ in range(3)] == [3, 3, 3]
    made.Base.scale = lambda self: 8
    assert captured(Tensor(X)).item() == 8


def test_code_that_lies_in_no_file_is_watched_in_methods_of_special_names(made: Any) -> None:
    owner = made.Base()
    captured: Any = jit(lambda x: owner(x))
    for own in (1, 1, 5):
        owner.own = own
        assert captured(Tensor(X)).item() == own


def test_functions_and_data_of_modules_without_a_file_are_watched(made: Any) -> None:
    made.number = 1
    captured: Any = jit(lambda x: x * made.helper() + made.number)
    assert [captured(Tensor(X)).item() for _ in range(2)] == [5, 5]
    made.helper = lambda: 6
    assert captured(Tensor(X)).item() == 7
    made.number = 2
    assert captured(Tensor(X)).item() == 8


def test_a_class_may_come_to_have_what_it_inherited(made: Any) -> None:
    owner = made.Derived()
    captured: Any = jit(lambda x: x * owner.factor + owner.scale())
    assert [captured(Tensor(X)).item() for _ in range(2)] == [5, 5]
    made.Derived.factor = 10
    assert captured(Tensor(X)).item() == 13
    made.Derived.scale = lambda self: 1
    assert captured(Tensor(X)).item() == 11


def test_what_a_class_inherits_is_no_change(made: Any) -> None:
    owner = made.Derived()
    captured: Any = jit(lambda x: x * owner.factor + owner.scale())
    captured(Tensor(X))
    first = captured.captured
    assert first is not None
    for _ in range(5):
        captured(Tensor(X))
    assert captured.captured is first


def test_the_standard_library_is_not_looked_into() -> None:
    from tilework.engine.foreign import file_of_module, is_foreign

    assert all(is_foreign(file_of_module(module)) for module in (sys, types, sys.modules["math"]))
