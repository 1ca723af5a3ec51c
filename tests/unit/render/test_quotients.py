"""Vectors divided by one number: the same bits as the division of the machine gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor
from tilework.base import settings
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.symbolic import simplify
from tilework.render.llvm_ir import LlvmRenderer
from tilework.render.llvm_quotients import shared_divisors
from tilework.testing.kernels import target

ROWS, COLUMNS = 64, 208


def special(kind: Any) -> list[float]:
    info = np.finfo(kind)
    return [
        0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, 3.0, float(info.max), float(info.tiny),
        float(info.tiny) / 2, float(info.smallest_subnormal), -float(info.smallest_subnormal),
        float(np.nextafter(kind(2), kind(0))), float(np.nextafter(kind(1), kind(2))),
    ]  # fmt: skip


def spread(rng: np.random.Generator, shape: Any, kind: Any, reach: int) -> Any:
    """Numbers of many sizes, those with few or with almost all bits set among them."""
    bits = np.finfo(kind).nmant
    mantissa = rng.integers(0, 1 << bits, shape)
    edge = rng.integers(0, 64, shape)
    choice = rng.integers(0, 3, shape)
    mantissa = np.where(choice == 0, edge, np.where(choice == 1, (1 << bits) - 1 - edge, mantissa))
    sizes = rng.integers(-reach, reach, shape)
    signs = rng.choice([-1.0, 1.0], shape)
    return (signs * np.ldexp(1 + mantissa / 2.0**bits, sizes)).astype(kind)


def check(x: Any, d: Any) -> None:
    with np.errstate(all="ignore"):
        wanted = x / d[:, None]
    got = (Tensor(x).realize() / Tensor(d).realize().reshape(-1, 1)).numpy()
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    same = got.view(unsigned) == wanted.view(unsigned)
    assert (same | (np.isnan(got) & np.isnan(wanted))).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("reach", [3, 30, 126])
def test_quotients_are_rounded_correctly(kind: Any, reach: int) -> None:
    rng = np.random.default_rng(reach)
    check(spread(rng, (ROWS, COLUMNS), kind, reach), spread(rng, ROWS, kind, reach))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_special_values_among_others_are_divided_as_the_machine_does(kind: Any) -> None:
    rng = np.random.default_rng(5)
    values = np.array(special(kind), kind)
    x = spread(rng, (ROWS, COLUMNS), kind, 8)
    x = np.where(rng.random(x.shape) < 0.1, rng.choice(values, x.shape), x)
    d = np.concatenate([values, spread(rng, ROWS - len(values), kind, 20)])
    check(x, d)
    check(np.abs(x), np.abs(d))


def test_zeros_of_masks_keep_their_sign() -> None:
    x = np.zeros((ROWS, COLUMNS), np.float32)
    x[::2] = -0.0
    x[:, ::3] = 1.5
    check(x, np.full(ROWS, 3, np.float32))
    check(x, np.full(ROWS, -3, np.float32))


def rows_by_numbers() -> Any:
    """A kernel that divides each row by a number of its own."""
    row = RANGE(const_index(ROWS), attrs=RangeAttrs(0))
    column = RANGE(const_index(COLUMNS), attrs=RangeAttrs(1))
    out, x = (PARAM(attrs=ParamAttrs(n, (ROWS * COLUMNS,), float32)) for n in (0, 1))
    d = PARAM(attrs=ParamAttrs(2, (ROWS,), float32))
    at = simplify.add(simplify.scale(row, COLUMNS), column)
    quotient = math.FDIV(LOAD(INDEX(x, at)), LOAD(INDEX(d, row)))
    return SINK(STORE(INDEX(out, at), quotient))


def test_a_number_that_all_vectors_of_a_loop_share_is_divided_by_without_the_divider() -> None:
    lowered = lower_kernel(rows_by_numbers(), target("x86-64-v3"))
    assert len(shared_divisors(lowered.linear.src)) == 1
    assert "fdiv float 1.0" in LlvmRenderer().render(lowered)


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v2"])
def test_machines_without_multiply_adds_divide(level: str) -> None:
    lowered = lower_kernel(rows_by_numbers(), target(level))
    assert len(shared_divisors(lowered.linear.src)) == 1
    assert "llvm.fma" not in LlvmRenderer().render(lowered)
    with settings.override(dev=f"CPU:LLVM:{level}"):
        rng = np.random.default_rng(2)
        check(spread(rng, (ROWS, COLUMNS), np.float32, 9), spread(rng, ROWS, np.float32, 9))
