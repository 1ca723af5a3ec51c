"""Fourier transforms.  A complex tensor is a real one whose last axis holds (real, imaginary).

That is what `torch.view_as_real` gives.  Axes (`dim`) are counted without that last one.  A length
is split into factors of at most 32, each a product with a small matrix; lengths with a large prime
factor go through a convolution (Bluestein).  Errors are about u * log2(n), u the unit roundoff.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.tensor import host
from tilework.tensor.spectral import Spectral
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

Pair = tuple[Any, Any]
Dims = Any  # None, an int or several

#: The largest factor that is done as one product with a matrix.
_LARGEST = 32
#: The largest prime factor that is; above it a convolution takes fewer steps.
_LARGEST_PRIME = 200


class Fourier(Spectral):
    """fft, rfft, irfft, their kin over several axes, and stft."""

    __slots__ = ()

    # --- pairs -------------------------------------------------------------------------------

    def with_imaginary(self, imaginary: Self | None = None) -> Self:
        """Complex numbers of real and imaginary parts (0 by default).

        Shape: (...) -> (..., 2)
        """
        rest = self.zeros_like() if imaginary is None else imaginary
        return self.stack(rest, dim=-1)

    def complex(self, imaginary: Self) -> Self:
        """Complex numbers of these real and of imaginary parts, as `torch.complex` makes them.

        Shape: (...) -> (..., 2)
        """
        return self.with_imaginary(imaginary)

    def polar(self, angle: Self) -> Self:
        """Complex numbers of these magnitudes and of angles.

        Shape: (...) -> (..., 2)

        Example:
            >>> Tensor([2.0]).polar(Tensor([0.0])).tolist()
            [[2.0, 0.0]]
        """
        return (self * angle.cos()).with_imaginary(self * angle.sin())

    def view_as_real(self) -> Self:
        """Pairs of real numbers, as which complex numbers are kept anyway: this tensor.

        Raises:
            ShapeError: the last axis has not the size 2.
            DTypeError: this is no float.
        """
        self._as_pair("view_as_real")
        return self

    def view_as_complex(self) -> Self:
        """Complex numbers, which are kept as pairs of real ones: this tensor.

        Raises:
            ShapeError: the last axis has not the size 2.
            DTypeError: this is no float.
        """
        self._as_pair("view_as_complex")
        return self

    def is_complex(self) -> bool:
        """False: complex numbers are pairs of real ones."""
        return False

    def _as_pair(self, what: str) -> Pair:
        """Real and imaginary parts, in a dtype to compute with."""
        if not self.ndim or self._dims[-1] != 2:
            raise ShapeError(
                f"{what}: complex numbers have a last axis of size 2",
                got=f"shape {format_shape(self._dims)}",
                try_="x.with_imaginary() for real numbers",
            )
        if not self.dtype.is_float:
            raise DTypeError(f"{what}: needs floats", got=self.dtype.name)
        wide = self._wide()
        return wide[..., 0], wide[..., 1]

    # --- one axis ----------------------------------------------------------------------------

    def fft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """The discrete Fourier transform of complex numbers along `dim`.

        Args:
            n: the length, to which the axis is cut or filled with zeros.
            dim: the axis, counted without the last one.
            norm: "backward" (the inverse is divided by n), "ortho" (both by its square root) or
                "forward".

        Shape: (..., m, 2) -> (..., n, 2)

        Example:
            >>> Tensor([[1.0, 0.0], [1.0, 0.0]]).fft().tolist()
            [[2.0, 0.0], [0.0, 0.0]]
        """
        return self._complex_transform([n], [dim], norm, is_inverse=False, what="fft")

    def ifft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """The inverse of `fft`."""
        return self._complex_transform([n], [dim], norm, is_inverse=True, what="ifft")

    def rfft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """The first half of the transform of real numbers; the rest are its conjugates.

        Shape: (..., m) -> (..., n // 2 + 1, 2)

        Example:
            >>> Tensor([1.0, 0.0]).rfft().tolist()
            [[1.0, 0.0], [1.0, 0.0]]
        """
        return self._real_transform([n], [dim], norm, "rfft")

    def irfft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """The real numbers of which this is `rfft`; `n` is even unless it is given.

        Shape: (..., m, 2) -> (..., n), with n = 2 * (m - 1) by default

        Example:
            >>> Tensor([1.0, 0.0, 0.0, 0.0]).rfft().irfft().tolist()
            [1.0, 0.0, 0.0, 0.0]
        """
        return self._half_transform([n], [dim], norm, is_inverse=True, what="irfft")

    def hfft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """The real transform of numbers of which this is the first half of a symmetric signal."""
        return self._half_transform([n], [dim], norm, is_inverse=False, what="hfft")

    def ihfft(self, n: int | None = None, dim: int = -1, norm: str | None = None) -> Self:
        """The inverse of `hfft`: the first half of the inverse transform of real numbers."""
        return self._real_transform([n], [dim], norm, "ihfft", is_inverse=True)

    # --- several axes ------------------------------------------------------------------------

    def fftn(
        self, s: Sequence[int] | None = None, dim: Dims = None, norm: str | None = None
    ) -> Self:
        """`fft` along several axes (all by default)."""
        sizes, axes = self._sizes_and_axes(s, dim, self.ndim - 1)
        return self._complex_transform(sizes, axes, norm, is_inverse=False, what="fftn")

    def ifftn(
        self, s: Sequence[int] | None = None, dim: Dims = None, norm: str | None = None
    ) -> Self:
        """`ifft` along several axes (all by default)."""
        sizes, axes = self._sizes_and_axes(s, dim, self.ndim - 1)
        return self._complex_transform(sizes, axes, norm, is_inverse=True, what="ifftn")

    def rfftn(
        self, s: Sequence[int] | None = None, dim: Dims = None, norm: str | None = None
    ) -> Self:
        """`rfft` along the last of several axes, `fft` along the others."""
        sizes, axes = self._sizes_and_axes(s, dim, self.ndim)
        return self._real_transform(sizes, axes, norm, "rfftn")

    def irfftn(
        self, s: Sequence[int] | None = None, dim: Dims = None, norm: str | None = None
    ) -> Self:
        """The inverse of `rfftn`."""
        sizes, axes = self._sizes_and_axes(s, dim, self.ndim - 1)
        return self._half_transform(sizes, axes, norm, is_inverse=True, what="irfftn")

    def fft2(self, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Self:
        """`fft` along two axes."""
        return self.fftn(s, dim, norm)

    def ifft2(self, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Self:
        """`ifft` along two axes."""
        return self.ifftn(s, dim, norm)

    def rfft2(self, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Self:
        """`rfftn` along two axes."""
        return self.rfftn(s, dim, norm)

    def irfft2(self, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Self:
        """`irfftn` along two axes."""
        return self.irfftn(s, dim, norm)

    def hfftn(self, s: Any = None, dim: Dims = None, norm: str | None = None) -> Self:
        """`hfft` along the last of several axes, `fft` along the others."""
        sizes, axes = self._sizes_and_axes(s, dim, self.ndim - 1)
        return self._half_transform(sizes, axes, norm, is_inverse=False, what="hfftn")

    def ihfftn(self, s: Any = None, dim: Dims = None, norm: str | None = None) -> Self:
        """The inverse of `hfftn`."""
        sizes, axes = self._sizes_and_axes(s, dim, self.ndim)
        return self._real_transform(sizes, axes, norm, "ihfftn", is_inverse=True)

    def fftshift(self, dim: Dims = None) -> Self:
        """The first half of real axes moved behind the second, so that frequency 0 is in front.

        Example:
            >>> Tensor([0, 1, 2]).fftshift().tolist()
            [2, 0, 1]
        """
        axes = self._axes(dim, "fftshift")
        return self.roll([self._fixed_size(axis, "fftshift") // 2 for axis in axes], list(axes))

    def ifftshift(self, dim: Dims = None) -> Self:
        """The inverse of `fftshift`."""
        axes = self._axes(dim, "ifftshift")
        moves = [-(self._fixed_size(axis, "ifftshift") // 2) for axis in axes]
        return self.roll(moves, list(axes))

    # --- how ---------------------------------------------------------------------------------

    def _sizes_and_axes(self, s: Any, dim: Dims, ndim: int) -> tuple[list[Any], list[int]]:
        sizes = None if s is None else ([s] if isinstance(s, int) else list(s))
        if dim is not None:
            axes = [dim] if isinstance(dim, int) else list(dim)
        else:
            axes = list(range(ndim if sizes is None else len(sizes)))
            axes = axes if sizes is None else [axis - len(sizes) for axis in axes]
        if sizes is not None and len(sizes) != len(axes):
            raise ShapeError("fft: needs a size for each axis", got=f"{sizes} for {axes}")
        return [None] * len(axes) if sizes is None else sizes, axes

    def _complex_transform(
        self, sizes: list[Any], dims_: list[int], norm: str | None, is_inverse: bool, what: str
    ) -> Self:
        pair = self._as_pair(what)
        for size, dim in zip(sizes, dims_, strict=True):
            pair = _along(pair, pair[0]._axis(dim, what), size, norm, is_inverse)
        return pair[0].stack(pair[1], dim=-1).cast(self.dtype)  # type: ignore[no-any-return]

    def _real_transform(
        self, sizes: list[Any], dims_: list[int], norm: str | None, what: str, *,
        is_inverse: bool = False,
    ) -> Self:  # fmt: skip
        x = self._as_float()
        wide = x._wide()
        pair: Pair = (wide, None)
        for size, dim in list(zip(sizes, dims_, strict=True))[::-1]:
            axis = wide._axis(dim, what)
            if pair[1] is None:
                pair = _real_along(wide, axis, size, norm, is_inverse)
            else:
                pair = _along(pair, axis, size, norm, is_inverse)
        return pair[0].stack(pair[1], dim=-1).cast(x.dtype)  # type: ignore[no-any-return]

    def _half_transform(
        self, sizes: list[Any], dims_: list[int], norm: str | None, is_inverse: bool, what: str
    ) -> Self:
        pair = self._as_pair(what)
        for size, dim in list(zip(sizes, dims_, strict=True))[:-1]:
            pair = _along(pair, pair[0]._axis(dim, what), size, norm, is_inverse)
        axis = pair[0]._axis(dims_[-1], what)
        size = sizes[-1]
        if size is None:
            size = 2 * (pair[0]._fixed_size(axis, what) - 1)
        if size < 1:
            raise ShapeError(f"{what}: the length must be at least 1", got=size)
        found = _to_real_along(pair, axis, size, norm, is_inverse)
        return found.cast(self.dtype)  # type: ignore[no-any-return]


def _resized(x: Any, axis: int, size: int) -> Any:
    own = x._fixed_size(axis, "fft")
    if own >= size:
        return x._cut_axis(axis, 0, size)
    pads = [(0, 0)] * x.ndim
    pads[axis] = (0, size - own)
    return x.pad(tuple(pads))


def _mirrored(pair: Pair, axis: int, size: int) -> Pair:
    """The whole of a symmetric spectrum, of which the first half is given."""
    half = size // 2 + 1
    real, imaginary = (_resized(part, axis, half) for part in pair)
    rest = size - half
    # The numbers in the middle of the other half are conjugates, in reverse.
    a = real._cut_axis(axis, 1, rest + 1)._flipped_view((axis,))
    b = imaginary._cut_axis(axis, 1, rest + 1)._flipped_view((axis,))
    place = imaginary._positions(axis)
    # The imaginary parts of what is its own conjugate have no meaning.
    is_own = place.eq(0) if size % 2 else place.eq(0) | place.eq(half - 1)
    imaginary = is_own.where(0.0, imaginary)
    if not rest:
        return real, imaginary
    return real.cat(a, dim=axis), imaginary.cat(-b, dim=axis)


def _along(pair: Pair, axis: int, size: int | None, norm: str | None, is_inverse: bool) -> Pair:
    """The transform along one axis; an imaginary part of None is 0."""
    length = pair[0]._fixed_size(axis, "fft") if size is None else size
    if length < 1:
        raise ShapeError("fft: the length must be at least 1", got=length)
    real, imaginary = pair
    real = _resized(real, axis, length).movedim(axis, -1)
    if imaginary is not None:
        imaginary = _resized(imaginary, axis, length).movedim(axis, -1)
    scale = _scale(length, norm, is_inverse)
    found = _transformed((real, imaginary), length, -1 if not is_inverse else 1)
    a, b = (part if scale == 1 else part * scale for part in found)
    return a.movedim(-1, axis), b.movedim(-1, axis)


def _real_along(x: Any, axis: int, size: int | None, norm: str | None, is_inverse: bool) -> Pair:
    """The first half of the transform of real numbers; of an even length by one of half of it.

    Elements of even and of odd places are the two parts of complex numbers, whose transform is
    that of both: they are told apart by their symmetry, and joined as in any step by two.
    """
    length = x._fixed_size(axis, "fft") if size is None else size
    half = length // 2
    if length <= _LARGEST or length % 2:
        found = _along((x, None), axis, size, norm, is_inverse)
        a, b = (part._cut_axis(axis, 0, half + 1) for part in found)
        return a, b
    sign, scale = (1 if is_inverse else -1), _scale(length, norm, is_inverse) * 0.5
    x = _resized(x, axis, length).movedim(axis, -1)
    places = x.reshape(*x.shape[:-1], half, 2)
    real, imaginary = _transformed((places[..., 0], places[..., 1]), half, sign)
    # What follows the last one is the first again.
    real, imaginary = (part.cat(part[..., :1], dim=-1) for part in (real, imaginary))
    real, imaginary = real.contiguous(), imaginary.contiguous()
    last, last_imaginary = real.flip(-1), imaginary.flip(-1)
    cosine, sine = _turns(half + 1, length, sign, real)
    odd, odd_imaginary = imaginary + last_imaginary, last - real
    a = (real + last + cosine * odd - sine * odd_imaginary) * scale
    b = (imaginary - last_imaginary + cosine * odd_imaginary + sine * odd) * scale
    return a.movedim(-1, axis), b.movedim(-1, axis)


def _to_real_along(pair: Pair, axis: int, size: int, norm: str | None, is_inverse: bool) -> Any:
    """The real numbers whose transform has this first half: `_real_along` backwards."""
    if size <= _LARGEST or size % 2:
        return _along(_mirrored(pair, axis, size), axis, size, norm, is_inverse)[0]
    half = size // 2
    real, imaginary = (_resized(part, axis, half + 1).movedim(axis, -1) for part in pair)
    # The imaginary parts of what is its own conjugate have no meaning.
    place = imaginary._positions(imaginary.ndim - 1)
    imaginary = (place.eq(0) | place.eq(half)).where(0.0, imaginary)
    # Conjugates turn the other way round and have the same real result.
    imaginary = imaginary if is_inverse else -imaginary
    last, last_imaginary = (part.flip(-1)[..., :half] for part in (real, imaginary))
    real, imaginary = real[..., :half], imaginary[..., :half]
    cosine, sine = _turns(half, size, 1, real)
    first, second = real - last, imaginary + last_imaginary
    a = real + last - (cosine * second + sine * first)
    b = imaginary - last_imaginary + cosine * first - sine * second
    a, b = _transformed((a.contiguous(), b.contiguous()), half, 1)
    found = a.stack(b, dim=-1).reshape(*a.shape[:-1], size)
    scale = _scale(size, norm, is_inverse)
    return (found if scale == 1 else found * scale).movedim(-1, axis)


def _turns(count: int, period: int, sign: int, like: Any) -> Pair:
    """cos and sin of sign * 2 pi * k / period for k below `count`."""
    cosine, sine = _waves(2, count, period, sign, like)
    return cosine[1], sine[1]


def _scale(length: int, norm: str | None, is_inverse: bool) -> float:
    kinds = {None: int(is_inverse), "backward": int(is_inverse), "forward": int(not is_inverse)}
    if norm == "ortho":
        return 1 / math.sqrt(length)
    if norm not in kinds:
        raise UserError("fft: unknown norm", got=norm, expected="backward, ortho or forward")
    return 1 / length if kinds[norm] else 1.0


def _factor(length: int) -> int:
    """The first factor to split off: the largest up to the limit, else the least prime."""
    for size in range(min(_LARGEST, length), 1, -1):
        if length % size == 0:
            return size
    size = 2
    while length % size:
        size += 1
    return size


def _waves(rows: int, columns: int, period: int, sign: int, like: Any) -> Pair:
    """cos and sin of sign * 2 pi * row * column / period, exact angles reduced first."""
    import numpy as np  # here: importing the package must not import it

    steps = np.outer(np.arange(rows), np.arange(columns)) % period
    turn = steps * (2 * math.pi / period)
    cosine, sine = np.cos(turn), np.sin(turn)
    # Quarters of a turn are exact; pi as a float is not.
    cosine[np.abs(cosine) < 1e-15] = 0.0
    sine[np.abs(sine) < 1e-15] = 0.0
    kind = np.float64 if like.dtype is dtypes.float64 else np.float32
    parts = (cosine.astype(kind), (sign * sine).astype(kind))
    first, second = (like._over(host.from_array(part, like.dtype, like.device)) for part in parts)
    return first, second


def _times_matrix(pair: Pair, waves: Pair) -> Pair:
    """(..., n) complex times (n, m) complex."""
    a, b = pair
    cosine, sine = waves
    if b is None:
        return a.matmul(cosine), a.matmul(sine)
    return a.matmul(cosine) - b.matmul(sine), a.matmul(sine) + b.matmul(cosine)


def _transformed(pair: Pair, length: int, sign: int) -> Pair:
    """The transform along the last axis, without a scale."""
    if length <= _LARGEST:
        return _times_matrix(pair, _waves(length, length, length, sign, pair[0]))
    first = _factor(length)
    if first > _LARGEST_PRIME:
        return _by_convolution(pair, length, sign)
    rest = length // first
    if rest == 1:
        return _times_matrix(pair, _waves(length, length, length, sign, pair[0]))
    lead = pair[0].shape[:-1]

    def split(x: Any) -> Any:
        return None if x is None else x.reshape(*lead, first, rest).transpose(-2, -1)

    # (..., rest, first) -> transform over `first`, turn, transform over `rest`.
    inner = _times_matrix(
        (split(pair[0]), split(pair[1])), _waves(first, first, first, sign, pair[0])
    )
    cosine, sine = _waves(rest, first, length, sign, pair[0])
    a, b = inner
    turned = (a * cosine - b * sine, a * sine + b * cosine)
    a, b = (part.transpose(-2, -1).contiguous() for part in turned)
    a, b = _transformed((a, b), rest, sign)
    a, b = (part.transpose(-2, -1).reshape(*lead, length) for part in (a, b))
    return a, b


def _by_convolution(pair: Pair, length: int, sign: int) -> Pair:
    """Bluestein's way: 2 j k = j * j + k * k - (j - k) ** 2 makes it a convolution."""
    import numpy as np  # here: importing the package must not import it

    like = pair[0]
    size = 1 << (2 * length - 1).bit_length()
    turn = (np.arange(length, dtype=np.int64) ** 2 % (2 * length)) * (math.pi / length)
    chirp = np.cos(turn) + 1j * sign * np.sin(turn)
    kernel = np.zeros(size, np.complex128)
    kernel[:length] = chirp.conj()
    kernel[size - length + 1 :] = chirp.conj()[1:][::-1]
    spectrum = np.fft.fft(kernel) / size
    kind = np.float64 if like.dtype is dtypes.float64 else np.float32

    def upload(values: Any) -> Pair:
        first, second = (
            like._over(host.from_array(part.astype(kind), like.dtype, like.device))
            for part in (values.real, values.imag)
        )
        return first, second

    def times(x: Pair, y: Pair) -> Pair:
        if x[1] is None:
            return x[0] * y[0], x[0] * y[1]
        return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]

    chirps = upload(chirp)
    a, b = (_resized(part, part.ndim - 1, size) for part in times(pair, chirps))
    found = times(_transformed((a, b), size, -1), upload(spectrum))
    a, b = (part[..., :length] for part in _transformed(found, size, 1))
    return times((a, b), chirps)
