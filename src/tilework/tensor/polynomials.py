"""Bessel functions, incomplete gamma functions, zeta, and orthogonal polynomials.

Integrals of smooth functions are sums over equidistant places, which converge faster than any
power: over a period for Bessel functions of the first two kinds, over a line (after a change of
variable where the function does not decay by itself) for the others.  All in float64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Self

from tilework import dtypes
from tilework.base.errors import UserError
from tilework.tensor.core import TensorBase
from tilework.tensor.inplace import InPlace
from tilework.tensor.version import history

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EULER: Final = 0.57721566490153286
#: Below it Bessel functions are integrals, above it asymptotic series.
_LIMIT: Final = 25.0
_PLACES: Final = 64
_ORDERS: Final = 30
_TERMS: Final = 14
#: A recurrence of more steps makes a program that nobody can wait for.
_MOST_STEPS: Final = 4096


class Polynomials(InPlace):
    """bessel_j0, modified_bessel_k0, igamma, zeta, chebyshev_polynomial_t and their kin."""

    __slots__ = ()

    # --- Bessel functions --------------------------------------------------------------------

    def bessel_j0(self) -> Self:
        """The Bessel function of the first kind, of order 0.

        Example:
            >>> Tensor([0.0]).bessel_j0().tolist()
            [1.0]
        """
        return self._in_double(lambda x: x._of_first_kind(0), lambda x: -x.bessel_j1())

    def bessel_j1(self) -> Self:
        """The Bessel function of the first kind, of order 1."""

        def slope(x: Self) -> Self:
            safe = x.eq(0).where(1.0, x)
            return x.eq(0).where(0.5, x.bessel_j0() - x.bessel_j1() / safe)

        return self._in_double(lambda x: x._of_first_kind(1), slope)

    def bessel_y0(self) -> Self:
        """The Bessel function of the second kind, of order 0; -inf at 0, NaN below."""
        return self._in_double(lambda x: x._of_second_kind(0), lambda x: -x.bessel_y1())

    def bessel_y1(self) -> Self:
        """The Bessel function of the second kind, of order 1; -inf at 0, NaN below."""
        return self._in_double(
            lambda x: x._of_second_kind(1), lambda x: x.bessel_y0() - x.bessel_y1() / x
        )

    def modified_bessel_i0(self) -> Self:
        """Another name for `i0`."""
        return self.i0()

    def modified_bessel_i1(self) -> Self:
        """Another name for `i1`."""
        return self.i1()

    def modified_bessel_k0(self) -> Self:
        """The modified Bessel function of the second kind, of order 0."""
        return self._in_double(
            lambda x: x._scaled_k(0) * (-x).exp(), lambda x: -x.modified_bessel_k1()
        )

    def modified_bessel_k1(self) -> Self:
        """The modified Bessel function of the second kind, of order 1."""
        return self._in_double(
            lambda x: x._scaled_k(1) * (-x).exp(),
            lambda x: -x.modified_bessel_k0() - x.modified_bessel_k1() / x,
        )

    def scaled_modified_bessel_k0(self) -> Self:
        """exp(self) * modified_bessel_k0(self)."""
        return self._in_double(
            lambda x: x._scaled_k(0),
            lambda x: x.scaled_modified_bessel_k0() - x.scaled_modified_bessel_k1(),
        )

    def scaled_modified_bessel_k1(self) -> Self:
        """exp(self) * modified_bessel_k1(self)."""
        return self._in_double(
            lambda x: x._scaled_k(1),
            lambda x: x.scaled_modified_bessel_k1() * (1 - 1 / x) - x.scaled_modified_bessel_k0(),
        )

    def spherical_bessel_j0(self) -> Self:
        """sin(self) / self; 1 at 0."""
        return (self / math.pi).sinc()

    def _of_first_kind(self, order: int) -> Self:
        size = self.abs()
        is_near = size <= _LIMIT
        angles = [math.pi * (place + 0.5) / _PLACES for place in range(_PLACES)]
        weights = [1 / _PLACES if order == 0 else math.sin(angle) / _PLACES for angle in angles]
        near = is_near.where(size, 0.0)._over_angles(angles, weights, order)
        far = is_near.where(_LIMIT, size)._far(order, is_second=False)
        found = size.isinf().where(0.0, is_near.where(near, far))
        found = self.isnan().where(math.nan, found)
        return (self < 0).where(-found, found) if order else found

    def _over_angles(self, angles: Sequence[float], weights: Sequence[float], order: int) -> Self:
        """The sum of weights times cos (of an even order, else sin) of self * sin(angle)."""
        kind = dtypes.float64
        sines = self._from_numbers([math.sin(angle) for angle in angles], kind, self.device)
        phases = self.unsqueeze(-1) * sines
        waves = phases.sin() if order % 2 else phases.cos()
        return (waves * self._from_numbers(list(weights), kind, self.device)).sum(-1)

    def _far(self, order: int, is_second: bool) -> Self:
        """Hankel's asymptotic series."""
        even, odd, term = self * 0.0, self * 0.0, self * 0.0 + 1.0
        for number in range(_TERMS):
            sign = -1.0 if number // 2 % 2 else 1.0
            if number % 2:
                odd = odd + term * sign
            else:
                even = even + term * sign
            factor = (4 * order * order - (2 * number + 1) ** 2) / (8 * (number + 1))
            term = term * factor / self
        phase = self - (order / 2 + 0.25) * math.pi
        size = (2 / (math.pi * self)).sqrt()
        if is_second:
            return size * (even * phase.sin() + odd * phase.cos())
        return size * (even * phase.cos() - odd * phase.sin())

    def _of_second_kind(self, order: int) -> Self:
        is_near = self <= _LIMIT
        x = (is_near & (self > 0)).where(self, 1.0)
        angles = [math.pi * (place + 0.5) / _PLACES for place in range(_PLACES)]
        near = x._of_first_kind(order) * (x * 0.5).log() * (2 / math.pi)
        near = near + x._over_angles(angles, _neumann(angles, order), order)
        if order == 0:
            near = near + x._of_first_kind(0) * (2 * _EULER / math.pi)
        else:
            near = near + x._of_first_kind(1) * (2 * (_EULER - 1) / math.pi)
            near = near - x._of_first_kind(0) * 2 / (math.pi * x)
        far = is_near.where(_LIMIT, self)._far(order, is_second=True)
        found = is_near.where(near, self.isinf().where(0.0, far))
        return (self > 0).where(found, self.eq(0).where(-math.inf, math.nan))

    def _scaled_k(self, order: int) -> Self:
        """The integral of exp(self * (1 - cosh(t))) * cosh(order * t) over t >= 0."""
        # For large numbers the integrand is a narrow bell, so places move together with its width.
        step, count = 0.2, 500
        x = (self > 0).where(self, 1.0).unsqueeze(-1)
        width = (x > 1).where(x.rsqrt(), 1.0)
        kind, device = dtypes.float64, self.device
        places = self._from_numbers([step * number for number in range(count)], kind, device)
        weights = self._from_numbers([0.5 * step] + [step] * (count - 1), kind, device)
        t = width * places
        decay = ((t * 0.5).sinh().square() * x * -2.0).exp()
        total = (decay * (t * order).cosh() * width * weights).sum(-1)
        found = self.isinf().where(0.0, total)
        return (self > 0).where(found, self.eq(0).where(math.inf, math.nan))

    # --- gamma and zeta ----------------------------------------------------------------------

    def igamma(self, other: Self) -> Self:
        """The lower incomplete gamma function of `other`, regularised; this tensor is the shape.

        Unlike PyTorch's it has gradients by both.

        Example:
            >>> Tensor([1.0]).igamma(Tensor([1.0])).numpy().round(4).tolist()
            [0.632099986076355]
        """
        return self._incomplete(other, is_upper=False)

    def igammac(self, other: Self) -> Self:
        """The upper incomplete gamma function: 1 - igamma."""
        return self._incomplete(other, is_upper=True)

    def gammainc(self, other: Self) -> Self:
        """Another name for `igamma`."""
        return self.igamma(other)

    def gammaincc(self, other: Self) -> Self:
        """Another name for `igammac`."""
        return self.igammac(other)

    def _incomplete(self, other: Any, is_upper: bool) -> Self:
        a, x = self._pair_of_floats(other)
        kind, sign = dtypes.float64, -1.0 if is_upper else 1.0
        found = a.detach().cast(kind)._incomplete_gamma(x.detach().cast(kind), is_upper)

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            shape, point = (each.cast(kind) for each in sources)
            g = g.cast(kind) * sign
            slope = ((shape - 1) * point.log() - point - shape.lgamma()).exp()
            of_shape = shape._slope_of_incomplete_gamma(point)
            return (g * of_shape).cast(x.dtype), (g * slope).cast(x.dtype)

        return found.cast(x.dtype)._with_gradient(rule, a, x)

    def _pair_of_floats(self, other: Any) -> tuple[Self, Self]:
        a = self._as_float()
        x: Any = other if isinstance(other, Polynomials) else a.full_like(other)
        x = x._as_float()
        common = dtypes.promote(a.dtype, x.dtype)
        a, x = a.cast(common).broadcast_tensors(x.cast(common))
        return a, x

    def _incomplete_gamma(self, x: Self, is_upper: bool) -> Self:
        a = self
        is_inside, is_low, part, _ = a._gamma_integral(x)
        part = part.clamp(0.0, 1.0)
        found = part if is_upper else 1.0 - part
        found = is_low.where(1.0 - part if is_upper else part, found)
        zero, one = (1.0, 0.0) if is_upper else (0.0, 1.0)
        is_one = (x.eq(math.inf) & (a < math.inf) & (a >= 0)) | (a.eq(0) & (x > 0))
        is_zero = (x.eq(0) & (a > 0)) | (a.eq(math.inf) & (x >= 0) & (x < math.inf))
        edge = is_one.where(one, is_zero.where(zero, math.nan))
        return is_inside.where(found, edge)

    def _slope_of_incomplete_gamma(self, x: Self) -> Self:
        """The slope of the lower function by its shape, which is this tensor."""
        a = self
        is_inside, is_low, part, with_log = a._gamma_integral(x)
        # The integrand t**(a - 1) gains a factor log(t), and 1 / gamma(a) falls by digamma(a).
        slope = with_log - is_inside.where(a, 1.0).digamma() * part
        is_flat = (a > 0) & (a < math.inf) & (x.eq(0) | x.eq(math.inf))
        return is_inside.where(is_low.where(slope, -slope), is_flat.where(0.0, math.nan))

    def _gamma_integral(self, x: Self) -> tuple[Self, Self, Self, Self]:
        """The integral of the density up to x, or from x on where x is not below the shape.

        Returns:
            Where the arguments are inside of the domain; where the integral is the lower one; the
            integral; and that of the density times the logarithm of its place.
        """
        a = self
        is_inside = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
        safe_a, safe_x = is_inside.where(a, 1.0), is_inside.where(x, 1.0)
        is_low = safe_x < safe_a
        # u = exp(pi / 2 * sinh(t)) covers all scales; both exponents below are never positive.
        step = 1 / 64
        ends = [step * number for number in range(-264, 248)]
        places = [math.exp(math.pi / 2 * math.sinh(t)) for t in ends]
        weights = [step * math.pi / 2 * math.cosh(t) * u for t, u in zip(ends, places, strict=True)]
        kind, device = dtypes.float64, a.device
        u, chosen = a._from_numbers(places, kind, device), is_low.unsqueeze(-1)
        shape, point = safe_a.unsqueeze(-1), safe_x.unsqueeze(-1)
        low = point * -(-u / shape).expm1() - u
        high = (shape - 1) * (u / point).log1p() - u
        density = chosen.where(low, high).exp() * a._from_numbers(weights, kind, device)
        logarithm = point.log() + chosen.where(-u / shape, (u / point).log1p())
        power = (safe_a * safe_x.log() - safe_x - safe_a.lgamma()).exp()
        scale = power / is_low.where(safe_a, safe_x)
        return (
            is_inside,
            is_low,
            density.sum(-1) * scale,
            (density * logarithm).sum(-1) * scale,
        )

    def zeta(self, other: Any) -> Self:
        """Hurwitz' zeta function: the sum of (other + k) ** -self over k >= 0.

        Unlike PyTorch's it has gradients by both.

        Example:
            >>> Tensor([2.0]).zeta(Tensor([1.0])).numpy().round(4).tolist()
            [1.6448999643325806]
        """
        power, x = self._pair_of_floats(other)
        kind = dtypes.float64
        exact = power.detach().cast(kind)
        found = x.detach().cast(kind)._zeta(exact).cast(x.dtype)

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            with history(True):
                exponent, place = (each.cast(kind)._apply(None) for each in sources)
                value = place._zeta(exponent)
            slope = place._zeta(exponent + 1) * -exponent
            (by_power,) = value.gradient(exponent, gradient=g.cast(kind), materialize_grads=True)
            return by_power.cast(x.dtype), (g.cast(kind) * slope).cast(x.dtype)

        return found._with_gradient(rule, power, x)

    def _zeta(self, power: Self) -> Self:
        is_whole = power.eq(power.floor())
        is_right = (power > 1) & ((self > 0) | is_whole)
        safe = is_right.where(power, 2.0)
        found = self._hurwitz(safe)
        is_pole = (self <= 0) & self.eq(self.floor())
        found = is_right.where(found, math.nan)
        return ((is_pole & (power > 1)) | power.eq(1)).where(math.inf, found)

    # --- polynomials -------------------------------------------------------------------------

    def chebyshev_polynomial_t(self, n: Any) -> Self:
        """The Chebyshev polynomial of the first kind.

        Args:
            n: the degree; a tensor gives one for each element.

        Example:
            >>> Tensor([2.0]).chebyshev_polynomial_t(3).tolist()
            [26.0]
        """
        return self._polynomial(n, lambda x: x, lambda x, k, a, b: x * 2.0 * a - b)

    def chebyshev_polynomial_u(self, n: Any) -> Self:
        """The Chebyshev polynomial of the second kind, of degree `n`."""
        return self._polynomial(n, lambda x: x * 2.0, lambda x, k, a, b: x * 2.0 * a - b)

    def chebyshev_polynomial_v(self, n: Any) -> Self:
        """The Chebyshev polynomial of the third kind, of degree `n`."""
        return self._polynomial(n, lambda x: x * 2.0 - 1.0, lambda x, k, a, b: x * 2.0 * a - b)

    def chebyshev_polynomial_w(self, n: Any) -> Self:
        """The Chebyshev polynomial of the fourth kind, of degree `n`."""
        return self._polynomial(n, lambda x: x * 2.0 + 1.0, lambda x, k, a, b: x * 2.0 * a - b)

    def shifted_chebyshev_polynomial_t(self, n: Any) -> Self:
        """`chebyshev_polynomial_t` of 2 * self - 1."""
        return (self * 2.0 - 1.0).chebyshev_polynomial_t(n)

    def shifted_chebyshev_polynomial_u(self, n: Any) -> Self:
        """`chebyshev_polynomial_u` of 2 * self - 1."""
        return (self * 2.0 - 1.0).chebyshev_polynomial_u(n)

    def shifted_chebyshev_polynomial_v(self, n: Any) -> Self:
        """`chebyshev_polynomial_v` of 2 * self - 1."""
        return (self * 2.0 - 1.0).chebyshev_polynomial_v(n)

    def shifted_chebyshev_polynomial_w(self, n: Any) -> Self:
        """`chebyshev_polynomial_w` of 2 * self - 1."""
        return (self * 2.0 - 1.0).chebyshev_polynomial_w(n)

    def hermite_polynomial_h(self, n: Any) -> Self:
        """The Hermite polynomial of physicists, of degree `n`."""
        return self._polynomial(
            n, lambda x: x * 2.0, lambda x, k, a, b: x * 2.0 * a - b * (2.0 * (k - 1))
        )

    def hermite_polynomial_he(self, n: Any) -> Self:
        """The Hermite polynomial of probability, of degree `n`."""
        return self._polynomial(n, lambda x: x, lambda x, k, a, b: x * a - b * (k - 1.0))

    def laguerre_polynomial_l(self, n: Any) -> Self:
        """The Laguerre polynomial of degree `n`."""
        return self._polynomial(
            n,
            lambda x: 1.0 - x,
            lambda x, k, a, b: ((2.0 * k - 1.0 - x) * a - b * (k - 1.0)) / k,
        )

    def legendre_polynomial_p(self, n: Any) -> Self:
        """The Legendre polynomial of degree `n`."""
        return self._polynomial(
            n, lambda x: x, lambda x, k, a, b: (x * a * (2.0 * k - 1.0) - b * (k - 1.0)) / k
        )

    def _polynomial(
        self,
        n: Any,
        first: Callable[[Self], Self],
        step: Callable[[Self, int, Self, Self], Self],
    ) -> Self:
        """The polynomial of degree `n` by its recurrence; 0 for a negative one.

        A tensor gives a degree for each element; the greatest of them is read.
        """
        x = self._as_float()
        if isinstance(n, TensorBase):
            degrees: Any = n
            return x._of_degrees(degrees, first, step)
        if not hasattr(type(n), "__index__"):
            raise UserError("polynomial: the degree is no integer", got=n, expected="an integer")
        if n < 0:
            return x.zeros_like()
        _check_degree(n)
        before, found = x.ones_like(), first(x)
        if n == 0:
            return before
        for degree in range(2, n + 1):
            before, found = found, step(x, degree, found, before)
        return found

    def _of_degrees(
        self,
        n: Self,
        first: Callable[[Self], Self],
        step: Callable[[Self, int, Self, Self], Self],
    ) -> Self:
        x, wide = self.broadcast_tensors(n.cast(self.dtype))
        degrees = wide.detach().trunc()
        greatest = degrees.isnan().where(0.0, degrees).max().item() if degrees._count() else 0
        _check_degree(greatest)
        most = int(max(greatest, 0))
        before, latest = x.ones_like(), first(x)
        found = degrees.eq(0).where(before, 0.0)
        found = degrees.eq(1).where(latest, found)
        for degree in range(2, most + 1):
            before, latest = latest, step(x, degree, latest, before)
            found = degrees.eq(degree).where(latest, found)
        return found


def _check_degree(n: float) -> None:
    if n > _MOST_STEPS:
        raise UserError("polynomial: the degree is too large", got=n, expected=f"<= {_MOST_STEPS}")


def _neumann(angles: Sequence[float], order: int) -> list[float]:
    """Weights of an integral over angles that sums Neumann's series of functions of first kind."""
    weights = []
    for angle in angles:
        total = 0.0
        for k in range(1, _ORDERS + 1):
            sign = -1.0 if k % 2 else 1.0
            if order == 0:
                total += sign * math.cos(2 * k * angle) / k
            else:
                total += sign * (2 * k + 1) / (k * (k + 1)) * math.sin((2 * k + 1) * angle)
        weights.append((2 if order else 4) / -math.pi * total / len(angles))
    return weights
