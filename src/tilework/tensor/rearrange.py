"""Formulas of `rearrange`: names of axes before and after an arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilework.base.errors import ShapeError, UserError
from tilework.base.integers import product
from tilework.base.records import dataclass

_TOKEN: Final = re.compile(r"\s*(\(|\)|\.\.\.|…|1(?!\w)|[A-Za-z_]\w*)")
#: All axes that are not named: side by side, and (inside of brackets) as one axis.
_SPREAD: Final = "..."
_REST: Final = "(...)"


@dataclass(frozen=True, slots=True)
class Plan:
    """Shapes and an order of axes: reshape, permute, reshape."""

    apart: tuple[Any, ...]
    order: tuple[int, ...]
    joined: tuple[Any, ...]


class Pattern:
    """A formula taken apart.

    Args:
        formula: for example `"b (h w) c -> b c h w"`.

    Raises:
        UserError: it is malformed, or its sides do not name the same axes.
    """

    def __init__(self, formula: str) -> None:
        sides = formula.split("->")
        if len(sides) != 2:
            raise UserError("rearrange: needs one arrow", got=formula, expected="a b -> b a")
        self._formula = formula
        self._before, self._after = _groups(sides[0], formula), _groups(sides[1], formula)
        names = [
            sorted(_SPREAD if name == _REST else name for group in side for name in group)
            for side in (self._before, self._after)
        ]
        if names[0] != names[1] or len(set(names[0])) != len(names[0]):
            raise UserError(
                "rearrange: each axis must be named once on both sides",
                got=formula,
                expected=f"{' '.join(names[0])} on both sides",
            )

    def plan(self, shape: Sequence[Any], sizes: Mapping[str, int]) -> Plan:
        """How to rearrange a tensor of this shape.

        Raises:
            ShapeError: the formula does not fit the shape or the sizes.
            UserError: a size is given for an axis that is not named.
        """
        before = self._filled(self._before, len(shape))
        after = self._filled(self._after, len(shape))
        known = [name for group in before for name in group]
        unknown = [name for name in sizes if name not in known]
        if unknown:
            raise UserError("rearrange: a size is given for no axis", got=", ".join(unknown))
        found: dict[str, Any] = {}
        for group, size in zip(before, shape, strict=True):
            found.update(self._split(group, size, sizes))
        order = [name for group in after for name in group]
        return Plan(
            apart=tuple([found[name] for name in known]),
            order=tuple([known.index(name) for name in order]),
            joined=tuple([product([found[name] for name in group]) for group in after]),
        )

    def _filled(self, groups: list[list[str]], ndim: int) -> list[list[str]]:
        """The groups with names for the axes that `...` stands for."""
        rest = ndim - sum([group != [_SPREAD] for group in self._before])
        if rest < 0 or (rest > 0 and [_SPREAD] not in self._before):
            raise ShapeError(
                "rearrange: the formula has another number of axes",
                got=f"{self._formula} for {ndim} axes",
            )
        names = [f".{number}" for number in range(rest)]
        found: list[list[str]] = []
        for group in groups:
            if group == [_SPREAD]:
                found.extend([[name] for name in names])
            else:
                found.append([each for name in group for each in _names(name, names)])
        return found

    def _split(self, group: list[str], size: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The size of each name that an axis is made of."""
        if len(group) == 1 and group[0] not in sizes:
            return {group[0]: size}
        open_names = [name for name in group if name not in sizes]
        known = product([sizes[name] for name in group if name in sizes])
        fits = len(open_names) <= 1 and known and size % known == 0
        if not fits or (not open_names and known != size):
            raise ShapeError(
                f"rearrange: the axis ({' '.join(group)}) cannot have these sizes",
                got=f"an axis of {size} with {dict(sizes)}",
                try_="give the size of all names but one",
            )
        return {name: sizes.get(name, size // known) for name in group}


def _names(name: str, rest: list[str]) -> list[str]:
    return rest if name == _REST else [name]


def _groups(side: str, formula: str) -> list[list[str]]:
    """The axes of one side, each as the names that it is made of."""
    found: list[list[str]] = []
    group: list[str] | None = None
    place = 0
    while side[place:].strip():
        match = _TOKEN.match(side, place)
        token = "" if match is None else match.group(1)
        is_inside = group is not None
        if match is None or (token == "(" and is_inside) or (token == ")" and not is_inside):
            raise UserError(
                "rearrange: this is no formula", got=formula, expected="a (b c) -> c a b"
            )
        place = match.end()
        if token == "(":
            group = []
        elif token == ")":
            found.append(group or [])
            group = None
        else:
            token = _SPREAD if token == "…" else token
            part = [] if token == "1" else [token]
            if group is None:
                found.append(part)
            else:
                group.extend([_REST] if token == _SPREAD else part)
    if group is not None:
        raise UserError("rearrange: a bracket is not closed", got=formula)
    return found
