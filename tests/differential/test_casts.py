"""Casts between all pairs of dtypes at their edges, and exact integers, on every device.

The oracle knows nothing of the library: it rounds exact fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilework import Device, Tensor, dtypes
from tilework.base.errors import DeviceUnavailableError
from tilework.dtypes import DType
from tilework.toolchain.clang import find_compiler

KINDS = tuple(dtype for dtype in dtypes.ALL if not dtype.is_packed)
DEVICES = ("CPU", "PYTHON", "CPU:CLANG")
_NAMES = {"fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2"}


def storage(dtype: DType) -> Any:
    """NumPy's dtype of the same format."""
    name = _NAMES.get(dtype.name, dtype.name)
    return np.dtype(getattr(ml_dtypes, name, name))


def edges(dtype: DType) -> np.ndarray:
    """Extremes of a dtype, and what lies beside the extremes of the others."""
    kind = storage(dtype)
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_integer:
        found = {dtype.minimum, dtype.minimum + 1, 0, 1, 2, 3, 5, 17, dtype.maximum}
        found |= {sign * (2**n + step) for n in range(65) for step in (-1, 0, 1, 3)
                  for sign in (1, -1)}  # fmt: skip
        inside = sorted(one for one in found if dtype.minimum <= one <= dtype.maximum)
        return np.array(inside, dtype=kind)
    numbers = [
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        0.999,
        3.7,
        -3.7,
        math.inf,
        -math.inf,
        math.nan,
        448.0,
        464.0,
        480.0,
        57344.0,
        61440.0,
        65504.0,
        65519.9,
        65520.0,
        3.4e38,
        1e300,
        1e-3,
        1e-8,
        6e-8,
        1e-40,
        1e-45,
        5e-324,
        2.0**-24,
        2.0**-25,
        1.5 * 2.0**-25,
    ]
    numbers += [sign * (2.0**n + step) for n in (7, 8, 15, 16, 31, 32, 53, 63, 64)
                for step in (-1, -0.5, 0, 0.5, 1) for sign in (1.0, -1.0)]  # fmt: skip
    numbers += [1 + 2.0**-n for n in range(1, 30)] + [1 + 3 * 2.0**-n for n in range(2, 30)]
    with np.errstate(all="ignore"):
        return np.array(numbers).astype(kind)


def rounded(value: Fraction, dtype: DType) -> float:
    """The number of a float format that is nearest, of two the even one; beyond all infinite."""
    if not value:
        return 0.0
    low = 2 - (1 << (dtype.exponent_bits - 1))  # exponent of the least normal number
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** (max(exponent, low) - dtype.mantissa_bits)
    found = round(size / step) * step  # Python rounds halves to even
    info = ml_dtypes.finfo(storage(dtype))  # type: ignore[no-untyped-call]
    if found > Fraction(float(info.max)):
        return math.nan if dtype.name == "fp8e4m3" else math.copysign(math.inf, value)
    return math.copysign(float(found), value)


def expected(value: Any, source: DType, target: DType) -> Any:
    """What a value of one dtype is in another."""
    number: Any = float(value) if source.is_float else int(value)
    if target.is_bool:
        return number != 0
    if target.is_integer:
        if not source.is_float:
            width = number % (1 << target.bits)
            is_negative = target.is_signed and width >> (target.bits - 1)
            return width - (1 << target.bits) if is_negative else width
        if math.isnan(number):
            return 0
        if math.isinf(number):
            return target.maximum if number > 0 else target.minimum
        return min(max(math.trunc(number), target.minimum), target.maximum)
    if source.is_float and (math.isnan(number) or math.isinf(number)):
        is_finite_only = target.name == "fp8e4m3"
        return math.nan if is_finite_only else number
    found = rounded(Fraction(number), target)
    return math.copysign(found, number) if source.is_float and not number else found


def opened(device: str) -> bool:
    """Whether a device exists here; one without its compiler says so."""
    if device == "CPU:CLANG" and find_compiler() is None:
        with pytest.raises(DeviceUnavailableError, match="no C compiler"):
            _ = Device[device]
        return False
    return True


def is_same(found: Any, want: Any, target: DType) -> bool:
    if not target.is_float:
        return bool(found == want)
    a, b = float(found), float(want)
    return (math.isnan(a) and math.isnan(b)) or (
        a == b and math.copysign(1, a) == math.copysign(1, b)
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("source", KINDS, ids=lambda dtype: dtype.name)
def test_casts_to_every_dtype_are_as_written(source: DType, device: str) -> None:
    if not opened(device):
        return
    values = edges(source)
    x = Tensor(values, device=device)
    assert x.dtype is source
    made = [x.cast(target) for target in KINDS]
    Tensor.realize(*made)
    wrong = [
        f"{value!r} to {target.name}: {one!r}, expected {want!r}"
        for target, tensor in zip(KINDS, made, strict=True)
        for value, one in zip(values, tensor.numpy(), strict=True)
        if not is_same(one, want := expected(value, source, target), target)
    ]
    assert wrong == []


# --- exact integers ----------------------------------------------------------------------------


def wrapped(value: int, dtype: DType) -> int:
    """An integer modulo the width of its dtype."""
    width = value % (1 << dtype.bits)
    return width - (1 << dtype.bits) if dtype.is_signed and width >> (dtype.bits - 1) else width


OPERATIONS: dict[str, tuple[Any, Any]] = {
    "add": (lambda x, y: x + y, lambda a, b: a + b),
    "sub": (lambda x, y: x - y, lambda a, b: a - b),
    "mul": (lambda x, y: x * y, lambda a, b: a * b),
    "floordiv": (lambda x, y: x // y, lambda a, b: a // b if b else 0),
    "mod": (lambda x, y: x % y, lambda a, b: a % b if b else 0),
    "maximum": (lambda x, y: x.maximum(y), max),
    "minimum": (lambda x, y: x.minimum(y), min),
    "xor": (lambda x, y: x ^ y, lambda a, b: a ^ b),
    "and": (lambda x, y: x & y, lambda a, b: a & b),
    "less": (lambda x, y: (x < y).cast(x.dtype), lambda a, b: int(a < b)),
    "equal": (lambda x, y: (x == y).cast(x.dtype), lambda a, b: int(a == b)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint32", "int8", "uint8"])
def test_integers_are_exact_modulo_their_width(dtype: str, device: str) -> None:
    if not opened(device):
        return
    kind = dtypes.by_name(dtype)
    values = edges(kind)
    generator = np.random.default_rng(3)
    info = np.iinfo(dtype)
    more = generator.integers(info.min, info.max, 100, dtype=dtype, endpoint=True)
    values = np.concatenate([values, more])
    others = generator.permutation(values)
    x, y = Tensor(values, device=device), Tensor(others, device=device)
    made = {name: ours(x, y) for name, (ours, _) in OPERATIONS.items()}
    Tensor.realize(*made.values())
    wrong = [
        f"{name} of {a} and {b}: {one}"
        for name, (_, oracle) in OPERATIONS.items()
        for a, b, one in zip(values.tolist(), others.tolist(), made[name].tolist(), strict=True)
        if one != wrapped(oracle(a, b), kind)
    ]
    assert wrong == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_folds_of_wide_integers_are_exact(dtype: str, device: str) -> None:
    if not opened(device):
        return
    info = np.iinfo(dtype)
    generator = np.random.default_rng(4)
    values = generator.integers(info.min, info.max, (37, 53), dtype=dtype, endpoint=True)
    x = Tensor(values, device=device)
    with np.errstate(over="ignore"):
        wanted = [values.sum(0), values.max(1), values.min(0), values.argmax(1),
                  np.sort(values, 0), values.cumsum(1), values.prod(0),
                  values.T.astype(object) @ values.astype(object)]  # fmt: skip
    made = [x.sum(0), x.max(1), x.min(0), x.argmax(1), x.sort(0)[0], x.cumsum(1), x.prod(0),
            x.transpose(0, 1) @ x]  # fmt: skip
    Tensor.realize(*made)
    for ours, want in zip(made[:-1], wanted[:-1], strict=True):
        np.testing.assert_array_equal(ours.numpy(), want)
    kind = dtypes.by_name(dtype)
    product = [[wrapped(int(one), kind) for one in row] for row in wanted[-1]]
    assert made[-1].tolist() == product
