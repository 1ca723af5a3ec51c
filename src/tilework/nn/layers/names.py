"""Names of arguments under which programs for PyTorch give them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilework.base.errors import UserError


def also_named(**names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a constructor take arguments by further names.

    Args:
        names: the further name of an argument, and its own.

    Raises:
        UserError: a call gives an argument under both names.
    """

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def construct(*given: Any, **named: Any) -> None:
            for further, own in names.items():
                if further in named:
                    if own in named:
                        raise UserError(
                            "an argument is given under two names", got=f"{own} and {further}"
                        )
                    named[own] = named.pop(further)
            function(*given, **named)

        construct.further_names = names  # type: ignore[attr-defined]  # read where calls are told
        return construct

    return wrap


def flag(value: Any, name: str, layer: str) -> bool:
    """An argument that is True or False, and nothing else.

    A number in its place is an argument of another library's order.

    Raises:
        UserError: it is something else.
    """
    if not isinstance(value, bool):
        raise UserError(
            f"{layer}: {name} must be True or False",
            got=repr(value),
            try_="arguments by name: their order differs between libraries",
        )
    return value
