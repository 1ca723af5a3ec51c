"""Run a program on tensors and on their models, and say where they differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.differential.programs.model import MODULUS, Array, Model, is_bounded
from tests.differential.programs.steps import KINDS, STEPS, Chooser, Pair, fresh

from tilework import Device, Tensor, jit
from tilework.base import settings
from tilework.base.errors import AliasError

#: (the name of a step, the numbers it draws from)
Program = list[tuple[str, tuple[int, ...]]]

SHAPES: list[tuple[int, ...]] = [
    (), (1,), (5,), (3, 4), (4, 3), (2, 3, 4), (1, 7), (0, 3), (8, 8), (33,), (2, 1, 3, 2),
    (16, 17), (130,), (64, 9), (3, 1, 5),
]  # fmt: skip
#: More tensors than these make a program slow and find no more.
MOST_PAIRS = 12


def an_input(choose: Chooser) -> Array:
    """A small array of whole numbers."""
    shape, kind = choose.of(SHAPES), choose.of(KINDS)
    low, high = (0, 2) if kind == "bool" else (0, 7) if kind == "uint8" else (-6, 7)
    return np.asarray(choose.random().integers(low, high, shape)).astype(kind)


def bounded(pair: Pair) -> Pair:
    """The pair, or what is left of it by a division where its numbers are large."""
    if is_bounded(pair.model.values):
        return pair
    values = pair.model.values % MODULUS
    own = pair.own % MODULUS
    if not pair.is_unsigned:
        own, values = own - MODULUS // 2, values - MODULUS // 2
    return fresh(own, values)


def apply(program: Program, pairs: list[Pair], device: str, may_realize: bool) -> None:
    """Run the steps; `pairs` are what is alive afterwards."""
    with np.errstate(all="ignore"):
        for name, row in program:
            choose = Chooser(row)
            if name == "started":
                if may_realize:
                    values = an_input(choose)
                    pairs.append(Pair(Tensor(values, device=device), Model.of(values)))
                continue
            if name == "realized":
                if may_realize:
                    choose.of(pairs).own.realize()
                continue
            if name == "forgotten":
                if len(pairs) > 1:
                    del pairs[choose.below(len(pairs))]
                continue
            try:
                found = STEPS[name](choose, pairs)
            except AliasError:
                continue  # a view through expand is not written to, also where it could be
            made = [] if found is None else found if isinstance(found, list) else [found]
            # A write may have made the numbers of a tensor large.
            for place, pair in enumerate(pairs):
                if not is_bounded(pair.model.values):
                    pairs[place] = bounded(pair)
            pairs += [bounded(pair) for pair in made]
            del pairs[: max(0, len(pairs) - MOST_PAIRS)]


def differences(pairs: list[Pair]) -> list[str]:
    """What is wrong with the tensors, the last one read first."""
    wrong = []
    for place, pair in reversed(list(enumerate(pairs))):
        found, expected = np.asarray(pair.own.numpy()), pair.model.values
        if found.shape != expected.shape or found.dtype != expected.dtype:
            wrong.append(
                f"{place}: {found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}"
            )
        elif not np.array_equal(found, expected, equal_nan=expected.dtype.kind == "f"):
            wrong.append(f"{place}: {found.tolist()}, expected {expected.tolist()}")
    return wrong


def inputs_of(row: tuple[int, ...], shift: int = 0) -> list[Array]:
    """Three arrays; another `shift` has other numbers in the same shapes."""
    found = []
    for place in range(3):
        choose = Chooser(row[place:] + row[:place])
        values = an_input(choose)
        found.append(np.roll(values, shift) if values.shape else values)
    return found


def fault_of(row: tuple[int, ...], program: Program, device: str = "CPU") -> str:
    """What is wrong after the program, or an empty text."""
    with settings.override(dev=device):
        pairs = [Pair(Tensor(x, device=device), Model.of(x)) for x in inputs_of(row)]
        apply(program, pairs, device, may_realize=True)
        return "; ".join(differences(pairs))


def fault_of_captured(row: tuple[int, ...], program: Program) -> str:
    """What is wrong when the program is captured once and replayed with other numbers.

    What is written into its arguments is seen by the caller.
    """
    device = Device.DEFAULT
    expected: list[Pair] = []

    def run(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
        pairs = [Pair(own, model) for own, model in zip((a, b, c), models, strict=True)]
        apply(program, pairs, device, may_realize=False)
        expected[:] = pairs
        return [pair.own for pair in pairs]

    captured: Any = jit(run)
    for call in range(4):
        values = inputs_of(row, call)
        models = [Model.of(x) for x in values]
        given = [Tensor(x, device=device).realize() for x in values]
        found = captured(*given)
        if call:  # a replay does not run the Python code: the models must be made again
            models = [Model.of(x) for x in values]
            run(*[Tensor(x, device=device).realize() for x in values])
        seen = [Pair(own, pair.model) for own, pair in zip(found, expected, strict=True)]
        seen += [Pair(own, model) for own, model in zip(given, models, strict=True)]
        if wrong := differences(seen):
            return f"call {call}: " + "; ".join(wrong)
    return ""
