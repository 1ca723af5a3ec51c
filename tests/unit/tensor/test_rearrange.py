"""`rearrange` against the same steps written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor
from tilework.base.errors import ShapeError, UserError

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
