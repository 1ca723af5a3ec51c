"""Vectors times constant matrices that are computed from bytes: the bytes are packed in panels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tilework import Tensor, TinyJit, Variable, dtypes
from tilework.base import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.dtypes import DType


def _packed_bytes(function: TinyJit[..., Tensor]) -> int:
    """What the capture holds of packed constants."""
    assert function.captured is not None
    packed = function.captured.recipe.program.packed
    return 0 if packed is None else packed.size_bytes


def _both_ways(compute: Callable[[Tensor], Tensor], x: np.ndarray) -> tuple[np.ndarray, int]:
    """The result, which has the same bits packed and as it is, and the bytes that were packed."""
    results, size_bytes = [], 0
    for wanted in (False, True):
        with settings.override(prepack=wanted):
            function = TinyJit(lambda x: compute(x).realize())
            for _ in range(3):
                result = function(Tensor(x).realize())
            results.append(result.numpy())
            size_bytes = _packed_bytes(function)
    np.testing.assert_array_equal(results[0].view(np.uint8), results[1].view(np.uint8))
    return results[1], size_bytes


def _bytes(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    kind = np.int8 if dtype is dtypes.int8 else np.uint8
    limits = np.iinfo(kind)
    found: np.ndarray = np.random.default_rng(5).integers(limits.min, limits.max + 1, shape, kind)
    return found


def _close(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8])
@pytest.mark.parametrize(("steps", "columns"), [(512, 192), (331, 193), (97, 1031)])
def test_bytes_with_a_scale_for_each_column_are_packed_as_bytes(
    dtype: DType, steps: int, columns: int
) -> None:
    weights = _bytes((steps, columns), dtype)
    scales = np.random.default_rng(6).uniform(0.01, 0.02, columns).astype(np.float32)
    x = np.random.default_rng(7).standard_normal((1, steps)).astype(np.float32)
    held, scale = Tensor(weights).realize(), Tensor(scales).realize()
    got, size_bytes = _both_ways(lambda x: x @ (held.cast(dtypes.float32) * scale), x)
    _close(got, x.astype(np.float64) @ (weights * scales.astype(np.float64)))
    assert 0 < size_bytes <= steps * (columns + 64)


def test_scales_and_zero_points_of_blocks_are_packed_as_few_as_they_are() -> None:
    blocks, inside, columns = 16, 32, 256
    weights = _bytes((blocks, inside, columns), dtypes.uint8)
    zeros = _bytes((blocks, 1, columns), dtypes.uint8)
    scales = np.random.default_rng(6).uniform(0.01, 0.02, (blocks, 1, columns)).astype(np.float32)
    x = np.random.default_rng(7).standard_normal((1, blocks * inside)).astype(np.float32)
    held, zero, scale = (Tensor(a).realize() for a in (weights, zeros, scales))

    def compute(x: Tensor) -> Tensor:
        floats = (held.cast(dtypes.float32) - zero.cast(dtypes.float32)) * scale
        return x @ floats.reshape(blocks * inside, columns)

    got, size_bytes = _both_ways(compute, x)
    exact = (weights.astype(np.float64) - zeros) * scales
    _close(got, x.astype(np.float64) @ exact.reshape(-1, columns))
    assert size_bytes == weights.nbytes + zeros.nbytes + scales.nbytes


def test_numbers_of_four_bits_are_packed_as_a_byte_each_at_most() -> None:
    numbers = np.random.default_rng(8).integers(-8, 8, (512, 256))
    floats = (numbers * 0.25).astype(np.float32)
    weights = Tensor(floats).quantize(0.25, dtype=dtypes.int4).realize()
    x = np.random.default_rng(7).standard_normal((1, 512)).astype(np.float32)
    got, size_bytes = _both_ways(lambda x: x @ weights.dequantize(0.25), x)
    _close(got, x.astype(np.float64) @ floats)
    assert 0 < size_bytes <= numbers.size


def test_matrices_of_a_batch_have_panels_of_their_own() -> None:
    weights = _bytes((3, 300, 200), dtypes.int8)
    x = np.random.default_rng(7).standard_normal((3, 1, 300)).astype(np.float32)
    held = Tensor(weights).realize()
    got, size_bytes = _both_ways(lambda x: x @ held.cast(dtypes.float32), x)
    _close(got, x.astype(np.float64) @ weights.astype(np.float64))
    rows, rest = divmod(size_bytes, 3 * 300)
    assert rest == 0
    assert 200 <= rows <= 256  # whole vectors, of the machine's length


def test_floats_are_packed_too_and_what_is_not_finite_is_kept() -> None:
    weights = np.random.default_rng(8).standard_normal((256, 160)).astype(np.float32)
    weights[3, 5], weights[7, 150] = np.inf, np.nan
    x = np.random.default_rng(7).standard_normal((1, 256)).astype(np.float32)
    held = Tensor(weights).realize()
    got, size_bytes = _both_ways(lambda x: x @ held, x)
    expected = x.astype(np.float64) @ weights.astype(np.float64)
    assert size_bytes > 0
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))
    finite = np.isfinite(expected)
    _close(got[finite], expected[finite])


def test_a_total_that_is_carried_in_place_is_not_packed() -> None:
    weights = np.random.default_rng(8).standard_normal((256, 200)).astype(np.float32)
    held = Tensor(weights).realize()
    total = Tensor.zeros(1, 200).contiguous().realize()
    step = TinyJit(lambda x: total.assign(total + x @ held).realize())
    expected = np.zeros((1, 200))
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((1, 256)).astype(np.float32)
        step(Tensor(x).realize())
        expected += x.astype(np.float64) @ weights.astype(np.float64)
    _close(total.numpy(), expected)
    assert _packed_bytes(step) == 0


def test_large_matrices_are_summed_in_blocks_of_rows_packed_or_not() -> None:
    """Their sums have another order, which packing keeps."""
    steps, columns = 4096, 4096
    weights = np.tile(_bytes((64, columns), dtypes.int8), (steps // 64, 1))
    held = Tensor(weights).realize()
    x = np.random.default_rng(7).standard_normal((1, steps)).astype(np.float32)
    got, size_bytes = _both_ways(lambda x: x @ held.cast(dtypes.float32), x)
    _close(got, x.astype(np.float64) @ weights.astype(np.float64))
    assert size_bytes == steps * columns


def test_rows_of_a_symbolic_number_are_multiplied_as_they_were() -> None:
    weights = _bytes((512, 192), dtypes.int8)
    held = Tensor(weights).realize()
    x = np.random.default_rng(7).standard_normal((5, 512)).astype(np.float32)
    held_x, rows = Tensor(x).realize(), Variable("rows", 1, 5)
    function = TinyJit(lambda x: (x @ held.cast(dtypes.float32)).realize())
    for count in (1, 3, 5, 1, 2):
        got = function(held_x[: rows.bind(count)]).numpy()
        _close(got, x[:count].astype(np.float64) @ weights.astype(np.float64))
    assert _packed_bytes(function) == 0
