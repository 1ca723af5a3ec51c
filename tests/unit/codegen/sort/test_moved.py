"""Sorts of elements whose keys lie close together, share bits, or agree in their upper digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.unit.codegen.sort.test_values import values_kernel

from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.sort import lower
from tilework.dtypes import float64, int16, int32, int64, uint64
from tilework.ir.interpret import run_linear
from tilework.testing.kernels import Case, can_run, run_on_machine, target

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.dtypes import DType

Array = np.ndarray[Any, Any]
Generator = np.random.Generator
KINDS = {"int16": int16, "int32": int32, "int64": int64, "uint64": uint64, "float64": float64}
SIZE = 6001


def _wide(rng: Generator, size: int) -> Array:
    return rng.integers(-(2**63), 2**63 - 1, size)


def _with_ties(rng: Generator, size: int) -> Array:
    """One number in twenty agrees with another one in its upper digits."""
    numbers, count = _wide(rng, size), size // 20
    numbers[:count] = (numbers[count : 2 * count] >> 20 << 20) + rng.integers(0, 2**20, count)
    return rng.permutation(numbers)


def _in_groups(rng: Generator, size: int) -> Array:
    """Digits are independent, but forty numbers at a time agree in the upper ones."""
    upper = np.resize(np.repeat(rng.integers(0, 2**31, size // 40), 41), size) << 32
    numbers: Array = upper + rng.integers(0, 2**30, size)
    return numbers


def _in_pairs(rng: Generator, size: int) -> Array:
    """More numbers have to be moved at the end than it is worth."""
    upper = np.resize(rng.integers(0, 2**31, size // 3), size) << 32
    return rng.permutation(upper + rng.integers(0, 2**30, size))


CASES: dict[str, Callable[[Generator, int], Array]] = {
    "wide": _wide,
    "one far away": lambda rng, size: np.r_[rng.integers(0, 10**6, size - 1), 2**62],
    "around two": lambda rng, size: rng.choice([0, 2**61], size) + rng.integers(0, 2**20, size),
    "with ties": _with_ties,
    "in groups": _in_groups,
    "in pairs": _in_pairs,
    "on both sides of zero": lambda rng, size: rng.integers(-300, 300, size),
    "in two digits": lambda rng, size: rng.integers(-(2**19), 2**19, size),
    "equal": lambda rng, size: np.full(size, -7),
    "ascending": lambda rng, size: np.arange(size) << 40,
    "descending": lambda rng, size: (np.arange(size) << 30)[::-1].copy(),
    "at the ends": lambda rng, size: rng.choice([-(2**63), 2**63 - 1, 0], size),
}


def check(numbers: Array, form: str = "llvm", level: str = "host") -> None:
    dtype: DType = KINDS[numbers.dtype.name]
    for descending in (False, True):
        raw = numbers.tobytes()
        sink = values_kernel(dtype, 1, len(numbers), descending=descending)
        case = Case(sink, [b"\xcd" * len(raw), raw])
        if form == "linear":
            buffers = case.copies()
            run_linear(lower_kernel(sink, target(level)).linear, buffers, {})
            found = bytes(buffers[0])
        else:
            found = run_on_machine(case, form, level).buffers[0]
        wanted = np.sort(numbers)
        np.testing.assert_array_equal(
            np.frombuffer(found, numbers.dtype), wanted[::-1] if descending else wanted
        )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_integers_are_in_order_however_they_lie(
    case: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower, "SHARED_FROM", 100 if shared else 1 << 30)
    numbers = CASES[case](np.random.default_rng(len(case)), SIZE)
    check(numbers)
    check((numbers >> 32).astype(np.int32))
    check(numbers.astype(np.uint64))


@pytest.mark.parametrize("case", ["with ties", "in groups", "in pairs", "one far away"])
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_every_processor_level_moves_what_is_not_in_order(case: str, level: str) -> None:
    check(CASES[case](np.random.default_rng(3), 500), "linear", level)
    if can_run(level):
        check(CASES[case](np.random.default_rng(3), SIZE), "clang", level)


@pytest.mark.parametrize("size", [81, 97, 104, 1000, SIZE])
def test_rows_of_any_length_are_in_order(size: int) -> None:
    rng = np.random.default_rng(size)
    for case in ("wide", "in pairs", "in groups"):
        check(CASES[case](rng, size))


def test_floats_that_have_short_mantissas_are_in_order() -> None:
    rng = np.random.default_rng(4)
    check(rng.standard_normal(SIZE).astype(np.float32).astype(np.float64))
    check(np.exp(rng.standard_normal(SIZE) * 100))
    check(rng.integers(-1000, 1000, SIZE).astype(np.float64))


def test_halves_of_words_are_in_order() -> None:
    rng = np.random.default_rng(5)
    check(rng.integers(-(2**15), 2**15, SIZE).astype(np.int16))
    check(rng.integers(-9, 9, SIZE).astype(np.int16))
