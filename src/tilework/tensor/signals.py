"""Windows, and Fourier transforms of pieces of a signal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.tensor.creation import as_dtype
from tilework.tensor.fourier import Fourier
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.dtypes import DType


class Signals(Fourier):
    """hann_window, kaiser_window, stft, istft and their kin."""

    __slots__ = ()

    # --- windows -----------------------------------------------------------------------------

    @classmethod
    def _window_of(
        cls,
        length: int,
        periodic: bool,
        value: Callable[[Any, int], Any],
        dtype: DType | str | None,
        device: str | None,
    ) -> Self:
        """`value(position, last)` at each position, computed in float64."""
        if length < 0:
            raise ShapeError("window: the length is negative", got=length)
        kind = dtypes.default_float if dtype is None else as_dtype(dtype)
        if length < 2:
            return cls.ones(length, dtype=kind, device=device)
        place = cls.arange(length, dtype=dtypes.float64, device=device)
        found: Self = value(place, length if periodic else length - 1)
        return found.cast(kind)

    @classmethod
    def general_cosine_window(
        cls, length: int, a: Sequence[float], periodic: bool = True, **options: Any
    ) -> Self:
        """A sum of cosines with the weights `a` and alternating signs."""

        def value(place: Self, last: int) -> Self:
            found = place * 0.0
            for number, weight in enumerate(a):
                wave = (place * (2 * math.pi * number / last)).cos()
                found = found + wave * (weight if number % 2 == 0 else -weight)
            return found

        return cls._window_of(length, periodic, value, *_kind(options))

    @classmethod
    def hann_window(cls, length: int, periodic: bool = True, **options: Any) -> Self:
        """One bow of a cosine, 0 at the ends.

        Args:
            length: how many elements.
            periodic: for spectra: the last element is left out; False for a symmetric window.
            options: `dtype` and `device`.
        """
        return cls.general_cosine_window(length, (0.5, 0.5), periodic, **options)

    @classmethod
    def hamming_window(
        cls,
        length: int,
        periodic: bool = True,
        alpha: float = 0.54,
        beta: float = 0.46,
        **options: Any,
    ) -> Self:
        """alpha - beta * cos, one bow."""
        return cls.general_cosine_window(length, (alpha, beta), periodic, **options)

    @classmethod
    def blackman_window(cls, length: int, periodic: bool = True, **options: Any) -> Self:
        """Three cosines."""
        return cls.general_cosine_window(length, (0.42, 0.5, 0.08), periodic, **options)

    @classmethod
    def nuttall_window(cls, length: int, periodic: bool = True, **options: Any) -> Self:
        """Four cosines."""
        weights = (0.3635819, 0.4891775, 0.1365995, 0.0106411)
        return cls.general_cosine_window(length, weights, periodic, **options)

    @classmethod
    def bartlett_window(cls, length: int, periodic: bool = True, **options: Any) -> Self:
        """A triangle, 0 at the ends."""
        return cls._window_of(
            length, periodic, lambda x, last: 1.0 - (x * (2 / last) - 1.0).abs(), *_kind(options)
        )

    @classmethod
    def cosine_window(cls, length: int, periodic: bool = True, **options: Any) -> Self:
        """Half a wave of a sine, through the middle of the elements."""

        def value(x: Self, last: int) -> Self:
            return ((x + 0.5) * (math.pi / (last + 1))).sin()

        return cls._window_of(length, periodic, value, *_kind(options))

    @classmethod
    def gaussian_window(
        cls, length: int, std: float = 1.0, periodic: bool = True, **options: Any
    ) -> Self:
        """The density of the normal distribution around the middle, 1 there."""

        def value(x: Self, last: int) -> Self:
            return (((x - last / 2) / std).square() * -0.5).exp()

        return cls._window_of(length, periodic, value, *_kind(options))

    @classmethod
    def exponential_window(
        cls,
        length: int,
        center: float | None = None,
        tau: float = 1.0,
        periodic: bool = True,
        **options: Any,
    ) -> Self:
        """exp(-|distance from `center`| / tau); the center is the middle by default."""

        def value(x: Self, last: int) -> Self:
            middle = last / 2 if center is None else center
            return ((x - middle).abs() * (-1 / tau)).exp()

        return cls._window_of(length, periodic, value, *_kind(options))

    @classmethod
    def kaiser_window(
        cls, length: int, periodic: bool = True, beta: float = 12.0, **options: Any
    ) -> Self:
        """Bessel's function of a half circle; `beta` makes the window narrow."""

        def value(x: Self, last: int) -> Self:
            side = x * (2 / last) - 1.0
            inside = (1.0 - side * side).maximum(0.0).sqrt()
            scale = (cls.ones(1, dtype=dtypes.float64, device=x.device) * beta).i0()
            return (inside * beta).i0() / scale

        return cls._window_of(length, periodic, value, *_kind(options))

    # --- pieces of a signal ------------------------------------------------------------------

    def stft(
        self,
        n_fft: int,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: Self | None = None,
        center: bool = True,
        pad_mode: str = "reflect",
        normalized: bool = False,
        onesided: bool = True,
    ) -> Self:
        """The spectra of overlapping pieces of a real signal.

        Args:
            n_fft: length of a piece.
            hop_length: distance of pieces, n_fft // 4 by default.
            win_length: length of the window, n_fft by default; it is put in the middle.
            window: what a piece is multiplied with, ones by default.
            center: pad the signal, so that piece t lies around t * hop_length.
            pad_mode: how; see `pad`.
            normalized: divide by sqrt(n_fft).
            onesided: only the first half of each spectrum.

        Shape: (..., n) -> (..., frequencies, pieces, 2)
        """
        if self.ndim not in (1, 2):
            raise ShapeError("stft: needs a signal, or a batch", got=format_shape(self._dims))
        hop = n_fft // 4 if hop_length is None else hop_length
        if n_fft < 1 or hop < 1:
            raise UserError("stft: lengths must be positive", got=f"{n_fft} and {hop}")
        x = self._as_float()
        if center:
            reach = n_fft // 2
            pads = ((0, 0),) * (x.ndim - 1) + ((reach, reach),)
            x = x.pad(pads, mode=pad_mode)
        shape = x._piece_window(n_fft, win_length, window)
        pieces = x.unfold(-1, n_fft, hop)
        pieces = pieces if shape is None else pieces * shape
        norm = "ortho" if normalized else None
        found = pieces.rfft(norm=norm) if onesided else pieces.with_imaginary().fft(norm=norm)
        return found.transpose(-3, -2)

    def _piece_window(self, n_fft: int, length: int | None, window: Self | None) -> Self | None:
        """The window padded to a piece on both sides."""
        size = n_fft if length is None else length
        if window is None:
            if size == n_fft:
                return None
            window = type(self).ones(size, dtype=self.dtype, device=self.device)
        if window._dims != (size,) or size > n_fft:
            raise ShapeError("stft: the window doesn't fit", got=format_shape(window._dims))
        left = (n_fft - size) // 2
        return window.pad(((left, n_fft - size - left),))

    def istft(
        self,
        n_fft: int,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: Self | None = None,
        center: bool = True,
        normalized: bool = False,
        onesided: bool = True,
        length: int | None = None,
    ) -> Self:
        """The signal of which this is `stft`; overlapping pieces are weighted by the window.

        Shape: (..., frequencies, pieces, 2) -> (..., n)
        """
        hop = n_fft // 4 if hop_length is None else hop_length
        norm = "ortho" if normalized else None
        spectra = self.transpose(-3, -2)
        pieces = spectra.irfft(n_fft, norm=norm) if onesided else spectra.ifft(norm=norm)[..., 0]
        shape = pieces._piece_window(n_fft, win_length, window)
        if shape is None:
            shape = type(self).ones(n_fft, dtype=pieces.dtype, device=pieces.device)
        whole = (pieces * shape)._overlapped(hop)
        weights = shape.square().expand(*pieces.shape[-2:])._overlapped(hop)
        start = n_fft // 2 if center else 0
        total = whole._fixed_size(-1, "istft")
        stop = total - start if length is None else min(start + length, total)
        whole, weights = whole[..., start:stop], weights[start:stop]
        found = whole / (weights.abs() > 1e-11).where(weights, 1.0)
        if length is not None and length > stop - start:
            found = found.pad(((0, 0),) * (found.ndim - 1) + ((0, length - stop + start),))
        return found

    def _overlapped(self, hop: int) -> Self:
        """Pieces (..., pieces, n) added up at distances of `hop`."""
        x = self.transpose(-2, -1)
        lead = x.shape[:-2]
        size, count = x._fixed_size(-2, "istft"), x._fixed_size(-1, "istft")
        total = (count - 1) * hop + size
        rows = x.reshape(-1, size, count).transpose(-2, -1)
        spread = rows._spread_pieces(total, hop)
        return spread.reshape(*lead, total)

    def _spread_pieces(self, total: int, hop: int) -> Self:
        """(n, pieces, size) -> (n, total)."""
        size = self._fixed_size(2, "istft")
        place = self._positions(1) * hop + self._positions(2)
        rows = self._fixed_size(0, "istft")
        zeros = type(self).zeros(rows, total, dtype=self.dtype, device=self.device)
        flat = (rows, self._fixed_size(1, "istft") * size)
        return zeros.scatter_add(1, place.reshape(flat), self.contiguous().reshape(flat))


def _kind(options: dict[str, Any]) -> tuple[Any, Any]:
    unknown = set(options) - {"dtype", "device"}
    if unknown:
        raise UserError("window: unknown option", got=sorted(unknown), expected="dtype, device")
    return options.get("dtype"), options.get("device")
