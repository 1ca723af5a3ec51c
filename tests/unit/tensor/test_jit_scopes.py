"""Captured functions that call captured functions, three levels deep: scopes are Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, Variable, dtypes, jit
from tilework.base.errors import ShapeError, UserError
from tilework.engine import capture

Decorate = Callable[[Callable[..., Any]], Callable[..., Any]]


def shadowed(decorate: Decorate) -> Callable[..., Any]:
    """Each level has an `x` of its own."""
    inner = decorate(lambda x: x * 2 + 1)
    middle = decorate(lambda x: inner(x - 3) * x)
    return decorate(lambda x: middle(x + 5) - inner(x))


def inherited(decorate: Decorate) -> Callable[..., Any]:
    """The innermost level reads what the outer ones have made, by name."""

    def outer(x: Tensor) -> Any:
        scale = x.max()

        def middle(y: Tensor) -> Any:
            shift = y.sum() + scale
            inner = decorate(lambda z: z * scale - shift)
            return inner(y + 1) + inner(x)

        return decorate(middle)(x * 2)

    return decorate(outer)


def other_dtypes(decorate: Decorate) -> Callable[..., Any]:
    inner = decorate(lambda x: x // 2 if x.dtype is dtypes.int32 else x / 2)
    middle = decorate(lambda x: inner(x.cast(dtypes.int32)) + inner(x))
    return decorate(lambda x: middle(x) * inner(x.cast(dtypes.int32)))


def other_sizes(decorate: Decorate) -> Callable[..., Any]:
    inner = decorate(lambda x: x - x.mean())
    middle = decorate(lambda x: inner(x[1:]) + inner(x)[:-1])
    return decorate(lambda x: middle(x).sum() + middle(x[:3]).sum() + inner(x.cat(x)))


def other_slots(decorate: Decorate) -> Callable[..., Any]:
    """The same values in another order, by place, by name, and twice."""
    inner = decorate(lambda a, b, *, c: a * 100 + b * 10 + c)
    middle = decorate(lambda a, b: inner(b, a, c=a) + inner(a, c=b, b=a))
    return decorate(lambda x: middle(x, x + 1) - middle(b=x, a=x * 2))


def written(decorate: Decorate) -> Callable[..., Any]:
    """What an inner call writes is seen by whoever reads after it, and not before."""

    def inner(state: Tensor) -> Tensor:
        before = state * 1
        state += 1
        return before

    def middle(state: Tensor) -> Any:
        first = decorate(inner)(state)
        return first + decorate(inner)(state) * 10 + state * 100

    return decorate(lambda x: decorate(middle)(x * 1) + x)


SCOPES = [shadowed, inherited, other_dtypes, other_sizes, other_slots, written]


@pytest.mark.parametrize("scopes", SCOPES, ids=lambda scopes: scopes.__name__)
def test_SCH_16_three_levels_of_captured_calls_mean_what_plain_calls_mean(
    scopes: Callable[[Decorate], Callable[..., Any]],
) -> None:
    plain, captured = scopes(lambda function: function), scopes(jit)
    for start in range(4):
        x = Tensor(np.arange(start, start + 5, dtype=np.float32)).realize()
        assert captured(x).tolist() == plain(x).tolist()
    assert not capture.is_capturing()


def test_SCH_16_inner_calls_are_no_captures_of_their_own() -> None:
    inner = jit(lambda x: x + 1)
    middle = jit(lambda x: inner(x) * 2)
    outer = jit(lambda x: middle(x) - inner(x))
    for start in range(3):
        assert outer(Tensor([float(start)]).realize()).tolist() == [start + 1.0]
    assert (inner.num_captures, middle.num_captures, outer.num_captures) == (0, 0, 1)


def test_SCH_16_shapes_that_do_not_fit_two_levels_below_are_refused_and_leave_no_capture() -> None:
    inner = jit(lambda x, y: x + y)
    middle = jit(lambda x, y: inner(x[1:], y))
    outer = jit(lambda x, y: middle(x, y) * 2)
    x = Tensor([1.0, 2.0, 3.0]).realize()
    with pytest.raises(ShapeError):
        outer(x, x)
    assert not capture.is_capturing()
    assert outer.num_captures == 0
    for _ in range(3):
        assert outer(x, x[:2]).tolist() == [6.0, 10.0]


def test_SCH_16_a_missing_argument_two_levels_below_is_pythons_error() -> None:
    inner: Any = jit(lambda x, y: x + y)
    outer = jit(lambda x: jit(lambda z: inner(z))(x))
    with pytest.raises(TypeError, match="'y'"):
        outer(Tensor([1.0]).realize())
    assert not capture.is_capturing()


def test_SCH_16_one_variable_has_one_value_over_all_levels() -> None:
    n = Variable("n", 1, 4)
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    inner = jit(lambda x, size: x[:size].sum())
    middle = jit(lambda x, size: inner(x, size) + inner(x, size))
    outer = jit(lambda x, one, other: middle(x, one) + inner(x, other))
    for size in (2, 3, 4):
        assert outer(x, n.bind(size), n.bind(size)).item() == 3 * sum(range(size + 1))
    with pytest.raises(UserError):
        outer(x, n.bind(2), n.bind(3))
