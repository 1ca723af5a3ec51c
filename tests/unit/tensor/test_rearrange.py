"""`rearrange` against the same steps written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor
from tilework.base import settings, trace
from tilework.base.errors import ShapeError, UserError
from tilework.engine.compile import clear_memory
from tilework.ir.node import Node, toposort
from tilework.ir.ops.memory import LOAD

VALUES = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("formula", "sizes", "want"),
    [
        ("a b c -> c a b", {}, VALUES.transpose(2, 0, 1)),
        ("a b c -> (a b) c", {}, VALUES.reshape(6, 4)),
        ("a b c -> (c a) b", {}, VALUES.transpose(2, 0, 1).reshape(8, 3)),
        ("a b (c d) -> a b d c", {"c": 2}, VALUES.reshape(2, 3, 2, 2).transpose(0, 1, 3, 2)),
        ("a b (c d) -> a b d c", {"d": 2}, VALUES.reshape(2, 3, 2, 2).transpose(0, 1, 3, 2)),
        ("a ... -> ... a", {}, VALUES.transpose(1, 2, 0)),
        ("... c -> c (...)", {}, VALUES.transpose(2, 0, 1).reshape(4, 6)),
        ("a b c -> a 1 b () c", {}, VALUES.reshape(2, 1, 3, 1, 4)),
        ("a b c -> (a b c)", {}, VALUES.reshape(-1)),
        ("… c -> … c", {}, VALUES),
    ],
)
def test_axes_are_split_exchanged_and_joined(formula: str, sizes: Any, want: Any) -> None:
    got = Tensor(VALUES).rearrange(formula, **sizes).numpy()
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("formula", "sizes", "error", "words"),
    [
        ("a b c", {}, UserError, "needs one arrow"),
        ("(...) -> ...", {}, ShapeError, "another number of axes"),
        ("a b c -> a b", {}, UserError, "once on both sides"),
        ("a a c -> a a c", {}, UserError, "once on both sides"),
        ("(a b c -> a b c", {}, UserError, "not closed"),
        ("a (b (c)) -> a b c", {}, UserError, "no formula"),
        ("a b -> b a", {}, ShapeError, "another number of axes"),
        ("a b (c d) -> a b c d", {}, ShapeError, "cannot have these sizes"),
        ("a b (c d) -> a b c d", {"c": 3}, ShapeError, "cannot have these sizes"),
        ("a b c -> c b a", {"z": 3}, UserError, "for no axis"),
    ],
)
def test_a_formula_that_does_not_fit_is_refused(
    formula: str, sizes: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        Tensor(VALUES).rearrange(formula, **sizes)


@pytest.mark.parametrize("mode", ["reflect", "circular", "replicate"])
def test_pads_from_inside_of_many_axes_choose_among_nine_places_at_a_time(mode: str) -> None:
    loads: list[int] = []

    def note(event: trace.Event) -> None:
        if isinstance(event, trace.PassEnded) and event.name == "codegen.simplify":
            assert isinstance(event.after, Node)
            loads.append(sum(node.op is LOAD for node in toposort(event.after)))

    x = np.arange(120, dtype=np.float32).reshape(4, 5, 6)
    with settings.override(cache_dir=None), trace.subscribe(note):
        clear_memory()
        found = Tensor(x).pad((2, 2, 1, 1, 1, 2), mode=mode).numpy()
    kind: Any = {"reflect": "reflect", "circular": "wrap", "replicate": "edge"}[mode]
    assert np.array_equal(found, np.pad(x, ((1, 2), (1, 1), (2, 2)), mode=kind))
    assert loads
    assert max(loads) <= 9
