"""Fourier transforms of all lengths, windows and pieces of signals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilework import Tensor
from tilework.base.errors import ShapeError, UserError


def _signal(length: int) -> np.ndarray:
    return np.random.default_rng(length).standard_normal((2, length, 2)).astype(np.float32)


# Small, composite, a power of two, a prime done as a matrix, a prime done as a convolution.
@pytest.mark.parametrize("length", [1, 2, 6, 64, 100, 37, 211])
def test_a_transform_agrees_with_numpy(length: int) -> None:
    x = _signal(length)
    expected = np.fft.fft(x[..., 0].astype(np.float64) + 1j * x[..., 1])
    found = Tensor(x).fft().numpy()
    scale = np.abs(expected).max()
    assert np.abs(found[..., 0] + 1j * found[..., 1] - expected).max() < 1e-6 * scale


@pytest.mark.parametrize("length", [6, 7, 211])
def test_the_inverse_gives_the_signal_back(length: int) -> None:
    x = _signal(length)
    np.testing.assert_allclose(Tensor(x).fft().ifft().numpy(), x, atol=5e-6)


@pytest.mark.parametrize("length", [6, 7])
def test_the_half_of_a_real_spectrum_is_enough(length: int) -> None:
    x = _signal(length)[..., 0]
    np.testing.assert_allclose(Tensor(x).rfft().irfft(length).numpy(), x, atol=2e-6)


def test_axes_are_counted_without_the_pairs() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 2)).astype(np.float32)
    expected = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=0)
    np.testing.assert_allclose(Tensor(x).fft(dim=0).numpy()[..., 0], expected.real, atol=1e-5)


def test_a_gradient_flows_through_a_convolution_of_prime_length() -> None:
    x = _signal(211)
    own = Tensor(x, requires_grad=True)
    other = torch.tensor(x, requires_grad=True)
    weight = _signal(212)[:, :211]
    (found,) = (own.fft() * Tensor(weight)).sum().gradient(own)
    spectrum = torch.view_as_real(torch.fft.fft(torch.view_as_complex(other)))
    (expected,) = torch.autograd.grad((spectrum * torch.tensor(weight)).sum(), [other])
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_real_numbers_must_be_made_pairs_first() -> None:
    with pytest.raises(ShapeError, match="complex numbers have a last axis of size 2"):
        Tensor.ones(3).fft()


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(UserError, match="fft: unknown norm"):
        Tensor.ones(4).rfft(norm="half")


@pytest.mark.parametrize("normalized", [False, True])
def test_pieces_of_a_signal_agree_with_pytorch(normalized: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 90)).astype(np.float32)
    window = np.hanning(16).astype(np.float32)
    expected = torch.stft(
        torch.tensor(x), 16, 5, window=torch.tensor(window), normalized=normalized,
        return_complex=True,
    )  # fmt: skip
    found = Tensor(x).stft(16, 5, window=Tensor(window), normalized=normalized)
    np.testing.assert_allclose(found.numpy(), torch.view_as_real(expected).numpy(), atol=1e-5)


def test_a_signal_comes_back_from_its_pieces() -> None:
    x = np.random.default_rng(0).standard_normal((2, 96)).astype(np.float32)
    window = Tensor.hann_window(16)
    pieces = Tensor(x).stft(16, 4, window=window)
    back = pieces.istft(16, 4, window=window, length=96)
    np.testing.assert_allclose(back.numpy(), x, atol=2e-6)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
@pytest.mark.parametrize("periodic", [False, True])
def test_a_window_agrees_with_pytorch(name: str, periodic: bool) -> None:
    expected = getattr(torch, f"{name}_window")(9, periodic=periodic)
    found = getattr(Tensor, f"{name}_window")(9, periodic=periodic)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-6)


def test_real_numbers_of_even_length_are_transformed_by_half_of_it() -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal((2, 66))
    half = random.standard_normal((2, 34)) + 1j * random.standard_normal((2, 34))
    parts = Tensor(np.stack([half.real, half.imag], -1))
    for found, expected in (
        (Tensor(x).rfft(norm="ortho"), np.fft.rfft(x, norm="ortho")),
        (Tensor(x).ihfft(), np.fft.ihfft(x)),
    ):
        values = found.numpy()
        np.testing.assert_allclose(values[..., 0] + 1j * values[..., 1], expected, atol=1e-13)
    np.testing.assert_allclose(parts.irfft().numpy(), np.fft.irfft(half), atol=1e-13)
    np.testing.assert_allclose(parts.hfft().numpy(), np.fft.hfft(half), atol=1e-13)
    signal = Tensor(x, requires_grad=True)
    (found,) = (signal.rfft() * parts).sum().gradient(signal)
    # The adjoint of the half transform, of which the ends occur once and the rest twice.
    doubled = half.copy()
    doubled[:, 0], doubled[:, -1] = 2 * half[:, 0], 2 * half[:, -1]
    np.testing.assert_allclose(found.numpy(), np.fft.irfft(doubled) * 33, atol=1e-12)
