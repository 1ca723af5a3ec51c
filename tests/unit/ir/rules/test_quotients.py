"""Rounded quotients by literals are made of products, and have the bits of divisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.codegen.pipeline import loosen
from tilework.dtypes import float32, float64, int32, uint8
from tilework.ir.build import cast, const
from tilework.ir.node import Node, toposort
from tilework.ir.ops import memory
from tilework.ir.ops.math import ADD, FDIV, ROUND
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import QUOTIENTS, SATURATED_QUOTIENTS
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v3", cores=2)
WITHOUT_FMA = x86_level_spec("x86-64-v2", cores=2)
#: Divisors whose reciprocal is near, and far, and such as scales are.
DIVISORS = [3.0, 0.1, 0.02, 0.0117, 7.3e-4, 1.7, 255.0, 1e-3, 2.0**59, 2.0**-59, 1.0, 0.75]


def value(dtype: Any = float32) -> Node:
    return memory.BUFFER(attrs=memory.BufferAttrs(0, (), dtype, "CPU"))


def quotient(divisor: float, dtype: Any = float32) -> Node:
    return ROUND(FDIV(value(dtype), const(divisor, dtype)))


def divides(node: Node) -> bool:
    return any(part.op is FDIV for part in toposort(node))


@pytest.mark.parametrize("divisor", DIVISORS)
def test_a_rounded_quotient_is_made_without_a_division(divisor: float) -> None:
    assert not divides(rewrite(quotient(divisor), QUOTIENTS, check_costs=True))
    integer = cast(ADD(quotient(divisor), const(3.0, float32)), uint8)
    assert not divides(rewrite(integer, SATURATED_QUOTIENTS, check_costs=True))
    integer = cast(quotient(divisor), uint8)
    assert not divides(rewrite(integer, SATURATED_QUOTIENTS, check_costs=True))


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(FDIV(value(), const(0.1, float32)), id="not rounded"),
        pytest.param(quotient(0.1, float64), id="float64"),
        pytest.param(quotient(-0.1), id="negative"),
        pytest.param(quotient(2.0**70), id="large"),
        pytest.param(quotient(2.0**-70), id="small"),
        pytest.param(quotient(0.0), id="zero"),
        pytest.param(quotient(float("nan")), id="nan"),
        pytest.param(ROUND(FDIV(const(0.1, float32), value())), id="into a literal"),
    ],
)
def test_other_quotients_are_left_alone(node: Node) -> None:
    assert rewrite(rewrite(node, SATURATED_QUOTIENTS), QUOTIENTS) is node


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(cast(quotient(0.1), int32), id="a wide integer"),
        pytest.param(cast(ADD(quotient(0.1), value()), uint8), id="any number added"),
        pytest.param(cast(ADD(quotient(0.1), const(1e6, float32)), uint8), id="much added"),
    ],
)
def test_what_may_not_saturate_is_not_cut(node: Node) -> None:
    assert rewrite(node, SATURATED_QUOTIENTS) is node


def test_a_target_without_an_fma_divides() -> None:
    node = memory.SINK(memory.STORE(value(), quotient(0.1)))
    assert loosen(node, WITHOUT_FMA) is node
    assert not divides(loosen(node, TARGET))


def numbers(divisor: np.float32, most: int) -> np.ndarray[Any, Any]:
    """Quotients beside halves, numbers of all sizes, and special ones."""
    rng = np.random.default_rng(1)
    halves = ((rng.integers(-most, most, 4000) + 0.5) * np.float64(divisor)).astype(np.float32)
    greatest = np.finfo(np.float32).max
    edges = np.array([1.0, 0.99999994, 1.0000001]) * min(float(divisor), 1.0) * float(greatest)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, greatest, -greatest, 1e-45, -1e-45, 1e-38, -1e-38]
    )
    return np.concatenate(
        [
            halves,
            np.nextafter(halves, np.float32(np.inf)),
            np.nextafter(halves, np.float32(-np.inf)),
            rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32),
            np.minimum(edges, float(greatest)).astype(np.float32),
            special.astype(np.float32),
        ]
    )


@pytest.mark.parametrize("divisor", DIVISORS)
def test_rounded_quotients_have_the_bits_of_divisions(divisor: float) -> None:
    exact = np.float32(divisor)
    x = numbers(exact, 3000)
    with np.errstate(all="ignore"):
        expected = np.round(x / exact)
    found = (Tensor(x, device="CPU") / float(exact)).round().numpy()
    is_number = ~np.isnan(x)
    assert np.isnan(found[~is_number]).all()
    assert np.array_equal(found[is_number].view(np.uint32), expected[is_number].view(np.uint32))


@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize(("dtype", "point"), [("uint8", 113), ("int8", -7), ("uint16", 40000)])
def test_quotients_that_become_small_integers_saturate(
    divisor: float, dtype: str, point: int
) -> None:
    exact = np.float32(divisor)
    limits = np.iinfo(dtype)
    x = numbers(exact, 2 * int(limits.max))
    with np.errstate(all="ignore"):
        expected = np.clip(np.round(x / exact) + np.float32(point), limits.min, limits.max)
    expected = np.where(np.isnan(expected), 0, expected).astype(dtype)
    rounded = (Tensor(x, device="CPU") / float(exact)).round() + float(point)
    assert np.array_equal(rounded.cast(getattr(dtypes, dtype)).numpy(), expected)
