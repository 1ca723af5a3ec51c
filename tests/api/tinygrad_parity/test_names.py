"""Every public name of tinygrad's Tensor, layers, optimizers, state and dtypes exists here.

A call that tinygrad takes is taken here: the same parameters in the same order with the same
defaults; ours may have more.  What differs is listed in `differences.toml` with its reason, and an
entry that is no longer true fails.
"""

import importlib
import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tinygrad.dtype as their_dtype
import tinygrad.nn
import tinygrad.nn.optim
import tinygrad.nn.state
import tinygrad.tensor as their_tensor

import tilework
import tilework.nn
from tilework.compat.tinygrad import dtype as served_dtype

TABLE = tomllib.loads((Path(__file__).parent / "differences.toml").read_text(encoding="utf-8"))

#: Parameters whose name differs everywhere; PyTorch's users know ours.
RENAMED = TABLE["renamed"]
EMPTY = inspect.Parameter.empty
KINDS = inspect.Parameter


def own_names(module: Any) -> list[str]:
    """The functions and classes that a module defines itself."""
    return sorted(
        name
        for name, item in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(item) or inspect.isclass(item))
        and item.__module__ == module.__name__
    )


def public_names(kind: Any) -> list[str]:
    return sorted(name for name in dir(kind) if not name.startswith("_"))


def parameters_of(item: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(item).parameters.values())


def is_same_default(theirs: Any, ours: Any) -> bool:
    if theirs is ours:
        return True
    if inspect.isclass(theirs):
        return bool(theirs.__name__ == getattr(ours, "__name__", ""))
    if type(theirs).__module__.startswith("tinygrad"):
        return str(getattr(theirs, "value", theirs)).split(".")[-1] in ("int", "0", "False")
    return bool(theirs == ours)


def incompatibility(theirs: Any, ours: Any) -> str | None:
    """Why a call that `theirs` takes is not taken by `ours`, or None."""
    want, have = parameters_of(theirs), parameters_of(ours)
    if want and want[0].name == "shape" and len(want) > 1 and want[1].kind is KINDS.VAR_POSITIONAL:
        want = want[1:]  # a shape as one sequence or number by number
    takes_rest = any(each.kind is KINDS.VAR_POSITIONAL for each in have)
    takes_names = any(each.kind is KINDS.VAR_KEYWORD for each in have)
    by_name = {each.name: each for each in have}
    for place, each in enumerate(want):
        if each.kind in (KINDS.VAR_POSITIONAL, KINDS.VAR_KEYWORD):
            if each.kind is KINDS.VAR_POSITIONAL and not takes_rest:
                return f"*{each.name} is not taken"
            continue
        found = by_name.get(each.name) or next(
            (by_name[name] for name in RENAMED.get(each.name, ()) if name in by_name), None
        )
        if found is None:
            if not takes_names and not (takes_rest and each.kind is KINDS.POSITIONAL_OR_KEYWORD):
                return f"{each.name} is not taken"
            continue
        is_positional = each.kind is KINDS.POSITIONAL_OR_KEYWORD
        if is_positional and (found.kind is KINDS.KEYWORD_ONLY or have.index(found) != place):
            return f"{each.name} has another place"
        if each.default is not EMPTY and not is_same_default(each.default, found.default):
            return f"{each.name} is {found.default} by default, not {each.default}"
    return None


def differences(theirs: Any, ours: Any, names: list[str]) -> dict[str, str]:
    """The names that are missing or cannot be called in the same way, each with what is wrong."""
    found: dict[str, str] = {}
    for name in names:
        if not hasattr(ours, name):
            found[name] = "missing"
            continue
        item, own = getattr(theirs, name), getattr(ours, name)
        if callable(item) != callable(own):
            found[name] = "one is called, the other is not"
        elif callable(item) and not inspect.isclass(item):
            fault = incompatibility(item, own)
        elif callable(item):
            fault = incompatibility(item.__init__, own.__init__ if inspect.isclass(own) else own)
        else:
            fault = None
        if name not in found and fault is not None:
            found[name] = fault
    return found


def state_module() -> Any:
    return importlib.import_module("tilework.compat.tinygrad.state")


def optim_module() -> Any:
    return importlib.import_module("tilework.compat.tinygrad.optim")


SUBJECTS: dict[str, tuple[Any, Any, list[str]]] = {
    "Tensor": (their_tensor.Tensor, tilework.Tensor, public_names(their_tensor.Tensor)),
    "nn": (tinygrad.nn, tilework.nn, own_names(tinygrad.nn)),
    "optim": (tinygrad.nn.optim, optim_module(), own_names(tinygrad.nn.optim)),
    "state": (tinygrad.nn.state, state_module(), own_names(tinygrad.nn.state)),
    "dtypes": (their_dtype.dtypes, served_dtype.dtypes, public_names(their_dtype.dtypes)),
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_each_difference_from_tinygrad_is_listed_with_its_reason(subject: str) -> None:
    found = differences(*SUBJECTS[subject])
    listed = TABLE.get(subject, {})
    assert {name: fault for name, fault in found.items() if name not in listed} == {}
    assert [name for name in listed if name not in found] == []  # an entry out of date
    assert [name for name, reason in listed.items() if len(reason) < 10] == []


def test_the_comparison_sees_a_missing_name_and_another_order() -> None:
    class Theirs:
        def one(self, a: int, b: int = 2) -> None: ...
        def two(self, a: int) -> None: ...
        def three(self) -> None: ...
        def four(self, a: int = 1) -> None: ...

    class Ours:
        def one(self, b: int = 2, a: int = 1) -> None: ...
        def three(self, more: int = 0) -> None: ...
        def four(self, a: int = 3) -> None: ...

    found = differences(Theirs, Ours, ["one", "two", "three", "four"])
    assert found == {
        "one": "a has another place",
        "two": "missing",
        "four": "a is 3 by default, not 1",
    }
