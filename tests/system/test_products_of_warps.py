"""Products on emulated cards without units for warp groups, from tensors to memory and back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards

from tilework import Tensor, dtypes, jit
from tilework.backends.contract import KernelSource
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.cuda_device import EmulatedCompiler


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of every kernel that is made."""
    found: list[str] = []
    build = EmulatedCompiler.build

    def keep(self: EmulatedCompiler, source: KernelSource) -> bytes:
        found.append(source.text)
        return build(self, source)

    monkeypatch.setattr(EmulatedCompiler, "build", keep)
    return found


@pytest.fixture(params=[75, 86, 120])
def library(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmulatedCuda]:
    """A card of each generation."""
    with emulated_cards(monkeypatch, capability=request.param) as found:
        yield found


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float16)


def test_a_layer_runs_and_replays_as_the_numbers_say(
    library: EmulatedCuda, texts: list[str]
) -> None:
    x, w, bias = drawn(24, 40), drawn(40, 24), drawn(24)

    def layer(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return (x @ w + bias).relu()

    ours = [Tensor(array, device="CUDA").realize() for array in (x, w, bias)]
    found = layer(*ours).numpy()
    assert ["matrix_warp" in text for text in texts] == [True]
    exact = np.maximum(x.astype(np.float64) @ w.astype(np.float64) + bias, 0)
    assert np.abs(found - exact).max() <= 2**-9 * np.abs(exact).max()
    captured = jit(layer)
    assert np.array_equal(captured(*ours).numpy(), found)
    assert np.array_equal(captured(*ours).numpy(), found)


def test_factors_that_start_anywhere_in_a_buffer_are_read_right(library: EmulatedCuda) -> None:
    whole = Tensor(drawn(33, 40), device="CUDA").realize()
    w = Tensor(drawn(40, 16), device="CUDA").realize()
    found = (whole[1:] @ w).numpy()
    exact = drawn(33, 40)[1:].astype(np.float64) @ drawn(40, 16).astype(np.float64)
    assert np.abs(found - exact).max() <= 2**-9 * np.abs(exact).max()


def test_gradients_of_a_product_are_products(library: EmulatedCuda) -> None:
    x = Tensor(drawn(16, 24), device="CUDA", requires_grad=True)
    w = Tensor(drawn(24, 16), device="CUDA", requires_grad=True)
    (x @ w).float().sum().backward()
    assert x.grad is not None
    exact = np.ones((16, 16)) @ drawn(24, 16).astype(np.float64).T
    assert np.abs(x.grad.numpy() - exact).max() <= 2**-8 * np.abs(exact).max()
    assert x.grad.dtype is dtypes.float16


def test_attention_stores_no_scores_where_warps_multiply_all_narrow_floats(
    library: EmulatedCuda, texts: list[str]
) -> None:
    q, k, v = (
        np.random.default_rng(n).standard_normal((1, 2, 24, 16)).astype(np.float16)
        for n in range(3)
    )
    query, key, value = (Tensor(array, device="CUDA").realize() for array in (q, k, v))
    found = query.scaled_dot_product_attention(key, value, is_causal=True).numpy()
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / 4
    scores = np.where(np.tri(24, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)
    assert np.abs(found - exact).max() <= 2**-8 * np.abs(exact).max()
    streams = ["fold_quad" in text and "matrix_warp" in text for text in texts]
    assert streams == [True] or library.capability == 75


def test_layers_of_dequantised_bytes_are_products_of_bytes(
    library: EmulatedCuda, texts: list[str]
) -> None:
    draw = np.random.default_rng(6)
    x = draw.integers(0, 256, (24, 70)).astype(np.uint8)
    w = draw.integers(-128, 128, (24, 70)).astype(np.int8)
    scales = draw.random((24, 1)).astype(np.float32)
    numbers, weights, factor = (Tensor(array, device="CUDA").realize() for array in (x, w, scales))
    wide = (numbers.cast(dtypes.int32) - 131).float() * 0.02
    found = (wide @ (weights.float() * factor).T).numpy()
    exact = (x.astype(np.float64) - 131) * np.float32(0.02) @ (w * scales.astype(np.float64)).T
    assert np.allclose(found, exact, rtol=1e-6, atol=1e-4)
    assert ["matrix_warp" in text for text in texts] == [True]
