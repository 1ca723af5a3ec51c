"""Gradients of attention that compute scores again: no scores in memory, any mask, any value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.engine import execute
from tilework.schedule.call import transform_to_call

if TYPE_CHECKING:
    from tilework.dtypes import DType

Arrays = list[np.ndarray]


def exact(inputs: Arrays, seen: np.ndarray) -> Arrays:
    """The gradients of softmax(q k^T / sqrt(e)) v by q, k and v, in float64."""
    q, k, v, g = (array.astype(np.float64) for array in inputs)
    scale = q.shape[-1] ** -0.5
    with np.errstate(all="ignore"):
        scores = np.where(seen, q @ k.swapaxes(-1, -2) * scale, -np.inf)
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        weights = raised / raised.sum(-1, keepdims=True)
        by_weight = g @ v.swapaxes(-1, -2)
        mean = (by_weight * weights).sum(-1, keepdims=True)
        by_score = np.where(seen, weights * (by_weight - mean), 0) * scale
        return [by_score @ k, by_score.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g]


def drawn(heads: int, rows: int, keys: int, depth: int, values: int) -> Arrays:
    draw = np.random.default_rng(7)
    shapes = ((rows, depth), (keys, depth), (keys, values), (rows, values))
    return [draw.standard_normal((1, heads, *s)).astype(np.float32) for s in shapes]


def gradients(
    arrays: Arrays, dtype: DType, *, causal: bool, mask: np.ndarray | None = None
) -> list[Tensor]:
    q, k, v, g = (Tensor(array).cast(dtype) for array in arrays)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    seen = None if mask is None else Tensor(mask)
    mixed = q.scaled_dot_product_attention(k, v, attn_mask=seen, is_causal=causal)
    return list(mixed.gradient(q, k, v, gradient=g))


@pytest.mark.parametrize(
    ("heads", "rows", "keys", "depth", "values", "causal", "dtype", "most"),
    [
        (1, 2100, 2100, 16, 16, True, dtypes.float32, 2e-6),
        (2, 1500, 1501, 24, 8, False, dtypes.float32, 2e-6),
        (1, 2049, 2300, 16, 32, True, dtypes.bfloat16, 2e-2),
    ],
)
def test_gradients_of_long_rows_are_those_of_the_formula(
    heads: int,
    rows: int,
    keys: int,
    depth: int,
    values: int,
    causal: bool,
    dtype: DType,
    most: float,
) -> None:
    arrays = drawn(heads, rows, keys, depth, values)
    rounded = [Tensor(a).cast(dtype).cast(dtypes.float32).numpy() for a in arrays]
    seen = np.arange(keys) <= np.arange(rows)[:, None] if causal else np.ones((rows, keys), bool)
    found = gradients(arrays, dtype, causal=causal)
    for got, wanted in zip(found, exact(rounded, seen), strict=True):
        difference = np.abs(got.cast(dtypes.float32).numpy() - wanted).max()
        assert difference <= most * np.abs(wanted).max()


def test_a_mask_of_the_callers_own_is_obeyed() -> None:
    arrays = drawn(1, 2100, 2050, 16, 16)
    mask = np.random.default_rng(2).random((2100, 2050)) > 0.5
    found = gradients(arrays, dtypes.float32, causal=False, mask=mask)
    for got, wanted in zip(found, exact(arrays, mask), strict=True):
        assert np.abs(got.numpy() - wanted).max() <= 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_nan_reaches_what_it_reaches_where_masked_blocks_are_left_out(which: int) -> None:
    arrays = drawn(1, 2100, 2100, 16, 16)
    arrays[which][0, 0, 900, 3] = np.nan
    seen = np.tri(2100, dtype=bool)
    found = gradients(arrays, dtypes.float32, causal=True)
    for got, wanted in zip(found, exact(arrays, seen), strict=True):
        np.testing.assert_array_equal(np.isnan(got.numpy()), np.isnan(wanted))


def test_no_scores_are_stored() -> None:
    arrays = drawn(1, 2100, 2100, 16, 16)
    ready = [Tensor(array).realize() for array in arrays]
    q, k, v = (x.detach().requires_grad_() for x in ready[:3])
    mixed = q.scaled_dot_product_attention(k, v, is_causal=True)
    found = mixed.gradient(q, k, v, gradient=ready[3])
    made = execute.schedule_of(transform_to_call([x.node for x in found]).function)
    assert made.arena_bytes < 2100 * 16 * 4


def test_gradients_of_a_norm_before_a_convolution_are_captured() -> None:
    """Folds of rows in one kernel with products that no other loop along a row needs."""
    r = np.random.default_rng(0)
    shapes = ((5, 31, 3), (3,), (3,), (17, 31, 5), (17,))
    inputs = [Tensor(r.standard_normal(shape).astype(np.float32) * 0.2) for shape in shapes]
    for each in inputs:
        each.requires_grad = True
    Tensor.realize(*inputs)
    scale = np.cos(np.arange(8 * 17 * 3)).astype(np.float32)

    def step(x: Tensor) -> list[Tensor]:
        x = x.detach()
        x.requires_grad = True
        _, gain, bias, weight, offset = inputs
        norm = x * ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt() * gain + bias
        out = norm.tanh().exp().conv2d(weight, offset, stride=1, padding=2)
        chosen = out[Tensor([3, 4, 0, 2, 0, 1, 4, 0])]
        for each in inputs[1:]:
            each.grad = None
        (chosen * Tensor(scale).reshape(chosen.shape)).sum().backward()
        found = [chosen, *[each.grad for each in (x, *inputs[1:]) if each.grad is not None]]
        Tensor.realize(*found)
        return found

    captured = jit(step)
    for _ in range(2):
        replayed = [each.numpy() for each in captured(inputs[0].detach())]
    for found, wanted in zip(replayed, step(inputs[0]), strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)
