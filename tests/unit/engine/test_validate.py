"""EXE-22: each kernel beside a reference, and the first one that differs is named."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, dtypes, jit, override
from tilework.backends.contract import KernelSource
from tilework.backends.native import NativeCompiler
from tilework.base.errors import InternalError
from tilework.engine import compile as engine_compile
from tilework.engine import validate
from tilework.engine.link import CACHE


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    def forget() -> None:
        engine_compile.clear_memory()
        CACHE.clear()

    forget()
    with override(cache_dir=None, compile_workers=1):
        yield
    forget()


def miscompile(monkeypatch: pytest.MonkeyPatch, number: int, old: str, new: str) -> list[str]:
    """Replace an instruction in the kernel that is lowered as `number`; gives the names."""
    names: list[str] = []
    lower = NativeCompiler.lower

    def wrong(self: NativeCompiler, kernel: Any, **options: Any) -> KernelSource:
        source = lower(self, kernel, **options)
        if options.get("is_plain"):
            return source
        names.append(source.name)
        if len(names) - 1 == number:
            assert old in source.text
            source = replace(source, text=source.text.replace(old, new))
        return source

    monkeypatch.setattr(NativeCompiler, "lower", wrong)
    return names


_seeds = itertools.count(1)


def chain_of_four() -> Callable[[Tensor], Tensor]:
    """Four kernels, each with one addition; other ones each time, as devices keep wrong code."""
    seed = next(_seeds) * 16.0

    def chain(x: Tensor) -> Tensor:
        for number in range(4):
            x = (x + (seed + number + 0.5)).realize()
        return x

    return chain


@pytest.mark.parametrize("number", range(4))
def test_EXE_22_a_seeded_miscompile_is_named(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    x = Tensor(np.arange(37, dtype=np.float32)).realize()
    names = miscompile(monkeypatch, number, "fadd", "fsub")
    report = jit(chain_of_four()).validate(x)
    assert report.checked == 4
    assert report.first is not None
    assert (report.first.number, report.first.kernel) == (number, names[number])
    assert names[number] in str(report)


def test_EXE_22_the_setting_raises_at_the_first_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(np.arange(5, dtype=np.float32)).realize()
    names = miscompile(monkeypatch, 1, "fadd", "fmul")
    with override(validate=True), pytest.raises(InternalError) as caught:
        chain_of_four()(x)
    assert names[1] in str(caught.value)


def test_EXE_22_a_long_kernel_is_compared_with_plain_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = Tensor(np.random.default_rng(1).normal(size=(96, 96)).astype(np.float32)).realize()
    right = jit(lambda x: x @ x).validate(a)
    assert (right.checked, right.first) == (1, None)
    engine_compile.clear_memory()
    CACHE.clear()
    miscompile(monkeypatch, 0, "fadd", "fsub")
    wrong = jit(lambda x: x @ x + 17).validate(a).first
    assert wrong is not None
    assert wrong.reference == "the kernel without a plan"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint32"])
def test_EXE_22_right_kernels_pass_in_every_dtype(dtype: str) -> None:
    x = Tensor(np.linspace(-3, 3, 65, dtype=np.float32)).cast(dtype).realize()

    def step(value: Tensor) -> Tensor:
        grown = value * value + value
        return (grown.exp() + grown.sin()).softmax() if value.dtype.is_float else grown.cumsum(0)

    assert jit(step).validate(x).first is None


@pytest.mark.parametrize("mode", ["strict", "contract", "fast"])
def test_EXE_22_right_kernels_pass_in_every_mode(mode: str) -> None:
    with override(fp_mode=mode):
        x = Tensor(np.random.default_rng(2).normal(size=(40, 50)).astype(np.float32)).realize()
        assert jit(lambda a: (a @ a.T).tanh().layernorm()).validate(x).first is None


def test_EXE_22_special_values_are_compared_as_such() -> None:
    x = Tensor([float("nan"), float("inf"), -0.0, -1.0]).realize()
    assert jit(lambda a: a.sqrt() + a.exp()).validate(x).first is None


def test_EXE_22_a_validated_call_writes_state_once() -> None:
    state = Tensor(np.zeros(3, np.float32)).realize()

    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state * 2

    captured = jit(step)
    x = Tensor(np.ones(3, np.float32)).realize()
    captured(x)
    assert captured.validate(x).first is None
    assert state.tolist() == [2, 2, 2]
    assert captured(x).tolist() == [6, 6, 6]


def test_EXE_22_the_setting_is_another_capture_and_gives_the_same() -> None:
    captured = jit(chain_of_four())
    x = Tensor(np.arange(9, dtype=np.float32)).realize()
    expected = captured(x).tolist()
    with override(validate=True):
        assert [captured(x).tolist() for _ in range(2)] == [expected, expected]
    assert captured.num_captures == 2


@pytest.mark.parametrize(
    ("dtype", "spoil", "is_found"),
    [
        (dtypes.float32, lambda v: v * (1 + 1e-6), False),
        (dtypes.float32, lambda v: v * (1 + 1e-4), True),
        (dtypes.float64, lambda v: v * (1 + 1e-9), True),
        (dtypes.float32, lambda v: float("nan"), True),
        (dtypes.float32, lambda v: float("inf"), True),
    ],
)
def test_EXE_22_the_tolerance_follows_the_dtype(
    dtype: Any, spoil: Callable[[float], float], is_found: bool
) -> None:
    random = Random(3)
    values = np.array([random.uniform(1, 2) for _ in range(8)], dtype.name)
    other = values.copy()
    other[5] = spoil(other[5])
    found = validate.first_difference(other.tobytes(), values.tobytes(), dtype)
    assert (found is not None) == is_found
    if found is not None:
        assert found[0] == 5


def test_EXE_22_integers_must_be_equal() -> None:
    found = validate.first_difference(b"\x01\x02\x04", b"\x01\x02\x03", dtypes.uint8)
    assert found == (2, 1, 4, 3)
