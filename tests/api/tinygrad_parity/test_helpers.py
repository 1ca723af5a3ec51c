"""Helpers give what those of tinygrad give."""

import gc
import itertools
import math
from typing import Any

import pytest
import tinygrad.dtype
import tinygrad.helpers as theirs

from tilework.compat.tinygrad import dtype, helpers

their_dtype: Any = tinygrad.dtype
RED = "\x1b[31mred and long\x1b[0m"
CALLS: list[tuple[str, tuple[Any, ...]]] = [
    *[(name, (x, y)) for name in ("floordiv", "floormod") for x in (-7, 0, 9) for y in (-2, 0, 3)],
    *[("pad_bytes", (b"a" * n, 4)) for n in (0, 1, 4, 6)],
    *[("to_function_name", (text,)) for text in ("r_2 3", RED, "a.b-C\u00e9", "")],
    *[("word_wrap", (text, 5)) for text in ("", "abcde", "abcdefghijklm", "ab\ncdefghi", RED)],
    ("word_wrap", ("x" * 170,)),
]  # fmt: skip
NAMES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "fp8e4m3",
    "fp8e5m2", "float16", "bfloat16", "float32", "float64",
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), CALLS)
def test_a_helper_gives_what_it_gives_in_tinygrad(name: str, args: tuple[Any, ...]) -> None:
    assert getattr(helpers, name)(*args) == getattr(theirs, name)(*args)


#: bfloat16 holds all values of these, which tinygrad does not say.
IN_BFLOAT16 = ("int8", "uint8", "fp8e4m3", "fp8e5m2")


def test_what_loses_nothing_is_the_same_between_all_dtypes() -> None:
    for one, other in itertools.product(NAMES, NAMES):
        want = their_dtype.can_lossless_cast(
            getattr(their_dtype.dtypes, one), getattr(their_dtype.dtypes, other)
        )
        want |= one in IN_BFLOAT16 and other == "bfloat16"
        found = dtype.can_lossless_cast(getattr(dtype.dtypes, one), getattr(dtype.dtypes, other))
        assert (one, other, found) == (one, other, want)


def test_bfloat16_holds_all_small_integers_and_eights_of_floats() -> None:
    numbers = [float(each) for each in range(-128, 256)]
    for kind in their_dtype.dtypes.fp8_ocp:
        numbers += [their_dtype.fp8_to_float(bits, kind) for bits in range(256)]
    finite = [each for each in numbers if math.isfinite(each)]
    assert [their_dtype.float_to_bf16(each) for each in finite] == finite


@pytest.mark.parametrize("x", [0.1, -1e-8, 65519.0, 65520.0, -1e9, math.inf, 3])
def test_a_float_as_float16_is_that_of_tinygrad(x: float) -> None:
    assert dtype.float_to_fp16(x) == their_dtype.float_to_fp16(x)


def test_waiting_ends_with_the_value_or_an_error() -> None:
    numbers = iter(range(5))
    assert helpers.wait_cond(lambda: next(numbers), value=3) == 3
    with pytest.raises(TimeoutError, match="never"):
        helpers.wait_cond(lambda: False, timeout_ms=1, msg="never")


def test_garbage_is_not_collected_inside_and_is_again_behind() -> None:
    @helpers.disable_gc()
    def depth(n: int) -> bool:
        return gc.isenabled() or (n > 0 and depth(n - 1))

    assert gc.isenabled()
    assert not depth(2)
    assert gc.isenabled()


def test_the_clock_goes_on() -> None:
    assert helpers.perf_counter_us() < helpers.perf_counter_us() + 1
