"""Optimizers and schedules take PyTorch's arguments: their names, order and defaults.

`torch_differences.toml` says under `optimizer_arguments` which are not here, and why.
"""

import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from tilework.nn import optim

REASONS: dict[str, str] = tomllib.loads(
    (Path(__file__).parent / "torch_differences.toml").read_text(encoding="utf-8")
)["optimizer_arguments"]

KINDS: dict[str, tuple[Any, Any]] = {
    name: (getattr(place, name), getattr(optim, name))
    for place in (torch.optim, torch.optim.lr_scheduler)
    for name in sorted(vars(place))
    if inspect.isclass(getattr(place, name))
    and inspect.isclass(getattr(optim, name, None))
    and name != "Optimizer"
}


def arguments(kind: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(kind).parameters)


def has_reason(kind: str, argument: str) -> bool:
    return argument in REASONS or f"{kind}.{argument}" in REASONS


def order(kind: str, side: int) -> list[str]:
    """The arguments that may be given by position, up to the first that is not here."""
    found = []
    for name, parameter in arguments(KINDS[kind][side]).items():
        if parameter.kind is parameter.KEYWORD_ONLY or has_reason(kind, name):
            break
        found.append(name)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_argument_of_pytorchs_is_taken_with_its_default(kind: str) -> None:
    theirs, ours = (arguments(each) for each in KINDS[kind])
    wanted = {
        name: parameter.default for name, parameter in theirs.items() if not has_reason(kind, name)
    }
    assert wanted == {name: ours[name].default for name in wanted if name in ours}


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_by_position_have_pytorchs_order(kind: str) -> None:
    theirs, ours = order(kind, 0), order(kind, 1)
    assert ours[: len(theirs)] == theirs


def test_no_reason_is_given_for_an_argument_that_is_taken() -> None:
    taken = {f"{kind}.{name}" for kind, (_, ours) in KINDS.items() for name in arguments(ours)}
    bare = {name.partition(".")[2] for name in taken}
    assert [name for name in REASONS if name in taken | bare] == []


def test_all_kinds_of_both_are_compared() -> None:
    assert len(KINDS) > 25
