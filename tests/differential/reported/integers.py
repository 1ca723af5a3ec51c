"""Integers beyond 2**53, narrow ones that wrap, those without a sign, and casts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from tests.differential.reported.case import Array, Case, by_torch, exactly

from tilework import dtypes

WIDE: Array = np.array([2**53 + 1, -(2**53) - 3, 2**62, -(2**63), 2**63 - 1, 7, -7, 0])
OTHERS: Array = np.array([3, -3, 5, 7, -2, -2, 2, 1])
UNSIGNED: Array = np.array([2**64 - 1, 2**63, 2**63 + 1, 5, 0, 1], np.uint64)
DIVISORS: Array = np.array([2, 3, 2**63, 7, 9, 1], np.uint64)

Call = Callable[..., Any]
#: Two operands, as PyTorch has it.
_PAIRS: dict[str, Call] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "mod": operator.mod, "lt": operator.lt, "xor": operator.xor,
    "fmod": lambda a, b: a.fmod(b), "trunc": lambda a, b: a.div(b, rounding_mode="trunc"),
    "maximum": lambda a, b: a.maximum(b),
}  # fmt: skip
_SINGLE: dict[str, Call] = {
    "sum": lambda a: a.sum(), "cumsum": lambda a: a.cumsum(0), "sort": lambda a: a.sort(),
    "sort down": lambda a: a.sort(descending=True), "topk": lambda a: a.topk(3),
    "argmax": lambda a: a.argmax(), "plus 2**60": lambda a: a + (2**60),
    "equal to 2**53 + 1": lambda a: a == 2**53 + 1, "abs": lambda a: a.abs(),
    "neg": operator.neg, "clamp": lambda a: a.clamp(-(2**53) - 1, 2**53 + 1),
    "as float32": lambda a: a.float(), "as float64": lambda a: a.double(),
}  # fmt: skip
_NARROW: dict[str, Call] = {
    "add": operator.add, "mul": operator.mul, "shl": operator.lshift, "shr": operator.rshift,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow,
    "truediv": operator.truediv, "invert": lambda a, b: ~a, "neg": lambda a, b: -a,
    "abs": lambda a, b: a.abs(), "sum": lambda a, b: a.sum(), "prod": lambda a, b: a.prod(),
    "cumprod": lambda a, b: a.cumprod(0), "cumsum": lambda a, b: a.cumsum(0),
    "max": lambda a, b: a.max(),
}  # fmt: skip


def wide() -> list[Case]:
    """int64 where float64 has lost the last places."""
    found = [by_torch(f"int64 {name}", [WIDE, OTHERS], call) for name, call in _PAIRS.items()]
    found += [by_torch(f"int64 {name}", [WIDE], call) for name, call in _SINGLE.items()]
    squares: Array = np.array([3037000499, -3037000499, 2**31])
    halves: Array = np.array([65504, 65519, 65520, -70000, 2049, 2051])
    found += [
        by_torch("int64 prod", [WIDE[:3]], lambda a: a.prod()),
        by_torch("int64 matmul", [WIDE.reshape(2, 4) >> 8, OTHERS.reshape(4, 2)], operator.matmul),
        by_torch("int64 square", [squares], lambda a: a**2),
        by_torch("int64 cube", [np.array([2097151, -2097151])], lambda a: a**3),
        by_torch("int64 as float16", [halves], lambda a: a.half()),
        by_torch("shift left", [np.array([1, -1, 3]), np.array([62, 63, 1])], operator.lshift),
        by_torch("shift right", [np.array([-1, -8, 2**62]), np.array([1, 2, 61])], operator.rshift),
        exactly("shift by all bits", [np.array([1, -1, -8]), np.array([64, 65, 100])],
                operator.rshift, np.array([0, -1, -1])),
        exactly("searchsorted", [np.sort(WIDE), WIDE], lambda a, b: a.searchsorted(b),
                np.searchsorted(np.sort(WIDE), WIDE)),
        exactly("isin", [WIDE, np.array([2**53 + 1, 2**53])], lambda a, b: a.isin(b),
                np.isin(WIDE, [2**53 + 1, 2**53])),
        exactly("where", [WIDE], lambda a: (a > 0).where(a, -1), np.where(WIDE > 0, WIDE, -1)),
        exactly("bitcast", [WIDE], lambda a: a.bitcast(dtypes.float64), WIDE.view(np.float64)),
        exactly("mean", [WIDE[:2]], lambda a: a.mean(), np.float32(-1.0)),
        Case("unique", [np.concatenate([WIDE, WIDE])], lambda a: a.unique(),
             lambda a: np.unique(a), is_captured=False),
    ]  # fmt: skip
    return found


def narrow() -> list[Case]:
    """Integers of 8, 16 and 32 bits at their ends."""
    found = []
    for kind in (np.int8, np.int16, np.int32, np.uint8):
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        inputs = [
            np.array([low, high, low + 1, high - 1, 7, 5], kind),
            np.array([1, 2, 3, 1, 2, 5], kind),
        ]
        for name, call in _NARROW.items():
            if kind is np.uint8 and name in ("sum", "prod", "cumprod", "cumsum"):
                continue  # 64 bits without a sign here, as in NumPy; with one in PyTorch
            found.append(by_torch(f"{kind.__name__} {name}", inputs, call))
    return found


def unsigned() -> list[Case]:
    """uint64, which PyTorch does not have."""
    calls: dict[str, tuple[Call, Array]] = {
        "add": (operator.add, UNSIGNED + DIVISORS), "sub": (operator.sub, UNSIGNED - DIVISORS),
        "mul": (operator.mul, UNSIGNED * DIVISORS),
        "floordiv": (operator.floordiv, UNSIGNED // DIVISORS),
        "mod": (operator.mod, UNSIGNED % DIVISORS), "lt": (operator.lt, UNSIGNED < DIVISORS),
        "ge": (operator.ge, UNSIGNED >= DIVISORS),
    }  # fmt: skip
    found = [exactly(f"uint64 {n}", [UNSIGNED, DIVISORS], c, w) for n, (c, w) in calls.items()]
    total = np.array(sum(map(int, UNSIGNED)) % 2**64, np.uint64)
    single: dict[str, tuple[Call, Array]] = {
        "shr": (lambda a: a >> 1, UNSIGNED >> np.uint64(1)),
        "max": (lambda a: a.max(), UNSIGNED.max()), "min": (lambda a: a.min(), UNSIGNED.min()),
        "sort": (lambda a: a.sort()[0], np.sort(UNSIGNED)),
        "argmax": (lambda a: a.argmax(), np.array(0)), "sum": (lambda a: a.sum(), total),
        "cummax": (lambda a: a.flip(0).cummax(0)[0], np.maximum.accumulate(UNSIGNED[::-1])),
        "as float32": (lambda a: a.float(), UNSIGNED.astype(np.float32)),
        "as float64": (lambda a: a.double(), UNSIGNED.astype(np.float64)),
    }  # fmt: skip
    return found + [exactly(f"uint64 {n}", [UNSIGNED], c, w) for n, (c, w) in single.items()]


def casts() -> list[Case]:
    """Numbers that the other dtype cannot hold, and ties."""
    inf, nan = np.inf, np.nan
    tie = 1 + 2**-11
    halves: Array = np.array(
        [65519.99, 65520, 1e-8, 2.98e-8, 2.99e-8, 5.96e-8, nan, -inf, tie + 1e-12, tie]
    )
    as_bfloat16: Array = np.array([1 + 2**-8, 1 + 2**-8 + 1e-14, 3.3895e38, 3.4e38, 1e-41, nan])
    from_float32: Array = np.array(
        [1 + 2**-8, 1 + 2**-8 + 2**-23, 3.3895e38, 3.4e38, 1e-41, nan], np.float32
    )

    def rounded(numbers: Array) -> Array:
        return numbers.astype(ml_dtypes.bfloat16).astype(np.float32)

    with np.errstate(all="ignore"):
        return [
            exactly("float64 to uint64",
                    [np.array([1e19, 2.0**64, -1, 0.5, nan, inf])],
                    lambda a: a.cast(dtypes.uint64),
                    np.array([10**19, 2**64 - 1, 0, 0, 0, 2**64 - 1], np.uint64)),
            exactly("float32 to int64",
                    [np.array([9.3e18, -9.3e18, nan, inf, -inf, 1.9, -1.9], np.float32)],
                    lambda a: a.cast(dtypes.int64),
                    np.array([2**63 - 1, -(2**63), 0, 2**63 - 1, -(2**63), 1, -1])),
            exactly("float16 to int8", [np.array([127.5, -128.9, 300, nan, -inf], np.float16)],
                    lambda a: a.cast(dtypes.int8), np.array([127, -128, 127, 0, -128], np.int8)),
            exactly("int32 to int8", [np.array([300, -300, 128, -129], np.int32)],
                    lambda a: a.cast(dtypes.int8), np.array([44, -44, -128, 127], np.int8)),
            by_torch("float32 to bool", [np.array([nan, 0.0, -0.0, 1e-45, inf], np.float32)],
                     lambda a: a.bool()),
            # PyTorch rounds twice, through float32.
            exactly("float64 to float16", [halves], lambda a: a.half(), halves.astype(np.float16)),
            by_torch("float64 to float32 in ties",
                     [np.array([1 + 2**-24, 1 + 3 * 2**-24, 1e-46, 3.4028235677973366e38])],
                     lambda a: a.float(), relative=0.0, absolute=0.0),
            exactly("float64 to bfloat16", [as_bfloat16], lambda a: a.bfloat16(),
                    np.array([1, 1 + 2**-7, 255 * 2.0**120, inf, 0, nan], np.float32)),
            exactly("float32 to bfloat16", [from_float32], lambda a: a.bfloat16(),
                    rounded(from_float32)),
        ]  # fmt: skip
