"""Functions of mathematical physics and statistics, computed in float64 and rounded once.

The bounds that tests hold them to are those of float64: 1e-13 relative where nothing else is said.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import UserError
from tilework.ir.ops import math as ops
from tilework.tensor import erfinv_coefficients as erfinv
from tilework.tensor import special_coefficients as coefficients
from tilework.tensor.cross_entropy import CrossEntropy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.tensor.elementwise import Operand

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
#: Coefficients of Stirling's series: B(2k) / (2k (2k - 1)).
_STIRLING = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400,
)  # fmt: skip
#: B(2k), of which the series of digamma and zeta are made.
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330,
)  # fmt: skip
#: From this argument on the series are exact enough; smaller arguments are moved up to it.
_SHIFT = 12
_MOST_TERMS = 4096  # a sum of more makes a program that nobody can wait for
_MOST_ORDER = 170  # of which the factorial is still a float


class Special(CrossEntropy):
    """erfc, erfinv, lgamma, digamma, polygamma, i0, i1, ndtr, xlogy and their kin."""

    __slots__ = ()

    def _in_double(
        self, value: Callable[[Self], Self], slope: Callable[[Self], Self] | None = None
    ) -> Self:
        """A function computed in float64; `slope` is its derivative, else that of its formula."""
        x = self._as_float()
        if slope is None:
            return value(x.cast(dtypes.float64)).cast(x.dtype)
        found = value(x.detach().cast(dtypes.float64)).cast(x.dtype)
        return found._with_gradient(lambda sources, g: (g * slope(sources[0]),), x)

    def _series(self, y: Self, terms: Sequence[float]) -> Self:
        """A sum of Chebyshev polynomials at `y`, by Clenshaw's recurrence."""
        later, latest = y * 0.0, y * 0.0
        for term in reversed(terms[1:]):
            later, latest = latest, y * latest * 2.0 - later + term
        return y * latest - later + terms[0]

    # --- error functions ---------------------------------------------------------------------

    def erfc(self) -> Self:
        """1 - erf(self), accurate also where it is tiny.

        Example:
            >>> Tensor([0.0]).erfc().tolist()
            [1.0]
        """

        def slope(x: Self) -> Self:
            return (-(x * x)).exp() * (-2 / math.sqrt(math.pi))

        def value(x: Self) -> Self:
            size = x.abs()
            tail = (-(size * size)).exp() * size._scaled_complement()
            tail = size.eq(math.inf).where(0.0, tail)
            return (x >= 0).where(tail, 2.0 - tail)

        return self._in_double(value, slope)

    def _scaled_complement(self) -> Self:
        """exp(x * x) * erfc(x) of x >= 0."""
        t = (self * 0.5 + 1.0).reciprocal()
        return t * self._series(t * 2.0 - 1.0, coefficients.ERFCX).exp()

    def erfcx(self) -> Self:
        """exp(self ** 2) * erfc(self)."""

        def value(x: Self) -> Self:
            size = x.abs()
            tail = size._scaled_complement()
            return (x >= 0).where(tail, (x * x).exp() * 2.0 - tail)

        return self._in_double(value, lambda x: x * x.erfcx() * 2.0 - 2 / math.sqrt(math.pi))

    def erfinv(self) -> Self:
        """The number whose `erf` is this one; infinite at -1 and 1, NaN beyond.

        float32 is computed in float32, within 2 ULP.

        Example:
            >>> Tensor([0.0, 1.0]).erfinv().tolist()
            [0.0, inf]
        """

        def slope(x: Self) -> Self:
            found = x.erfinv()
            return (found * found).exp() * (math.sqrt(math.pi) / 2)

        def value(x: Self) -> Self:
            size = x.abs()
            inside = (size < 1).where(size, 0.0)
            rest = (1.0 - inside)._double_inverse(inside, steps=3)
            rest = size.eq(1).where(math.inf, (size < 1).where(rest, math.nan))
            return (x < 0).where(-rest, x.eq(0).where(x, rest))

        x = self._as_float()
        if x.dtype is dtypes.float64:
            return x._in_double(value, slope)
        found = x.detach().cast(dtypes.float32)._inverse_in_single().cast(x.dtype)
        return found._with_gradient(lambda sources, g: (g * slope(sources[0]),), x)

    def _inverse_in_single(self) -> Self:
        """erfinv of float32: this one times a smooth function of log(1 - self ** 2)."""
        log = -(-self)._apply(ops.MULACC, self, self.ones_like()).log()
        near = self._times_smooth(log - erfinv.NEAR_MIDDLE, erfinv.NEAR_VALUE, erfinv.NEAR)
        far = self._times_smooth(log - erfinv.FAR_MIDDLE, erfinv.FAR_VALUE, erfinv.FAR)
        found = (log < erfinv.LIMIT).where(near, far)
        return self.eq(0).where(self, log.eq(math.inf).where(self * math.inf, found))

    def _times_smooth(self, away: Self, value: tuple[float, float], terms: Sequence[float]) -> Self:
        """This one times `value` (in two parts) plus what `terms` add at a distance from there."""
        first, further = value
        rest = away._fused_polynomial((further, *terms))
        # What is largest takes no part in the rounding of the rest.
        return self._apply(ops.MULACC, self._number(first, self.dtype), self * rest)

    def _fused_polynomial(self, terms: Sequence[float]) -> Self:
        """The sum of terms[k] * self ** k, by multiply-adds."""
        found = self._number(terms[-1], self.dtype)
        for term in terms[-2::-1]:
            found = found._apply(ops.MULACC, self, self._number(term, self.dtype))
        return found

    def _double_inverse(self, y: Self, steps: int = 4) -> Self:
        """erfinv of `y` in [0, 1), of which this is 1 - y: a rough formula, then Halley's steps."""
        # Winitzki's formula is right to two digits; each step cubes the error.
        log = (self * (y + 1.0)).log()
        middle = log * 0.5 + 2 / (math.pi * 0.147)
        x = ((middle * middle - log / 0.147).sqrt() - middle).sqrt()
        for _ in range(steps):
            error = (y < 0.5).where(x.erf() - y, self - x.erfc())
            step = error * (x * x).exp() * (math.sqrt(math.pi) / 2)
            x = x - step / (x * step + 1.0)
        return x

    def ndtr(self) -> Self:
        """The distribution function of the normal distribution."""
        return self._in_double(lambda x: (x * -math.sqrt(0.5)).erfc() * 0.5)

    def log_ndtr(self) -> Self:
        """The logarithm of `ndtr`, accurate on both sides."""

        def value(x: Self) -> Self:
            low = (x < -1).where(x, -1.0)
            tail = (low * -math.sqrt(0.5)).erfcx() * 0.5
            high = (x < -1).where(-1.0, x)
            rest = ((high * math.sqrt(0.5)).erfc() * -0.5).log1p()
            return (x < -1).where(tail.log() - low * low * 0.5, rest)

        return self._in_double(value)

    def ndtri(self) -> Self:
        """The number whose `ndtr` is this one."""

        def slope(x: Self) -> Self:
            found = x.ndtri()
            return (found * found * 0.5).exp() * math.sqrt(2 * math.pi)

        def value(x: Self) -> Self:
            low = (x > 0.5).where(1.0 - x, x)
            inside = (low > 0).where(low, 0.25)
            tail = (inside * 2.0)._double_inverse(1.0 - inside * 2.0) * math.sqrt(2)
            tail = low.eq(0).where(math.inf, (low > 0).where(tail, math.nan))
            return (x > 0.5).where(tail, -tail)

        return self._in_double(value, slope)

    # --- gamma -------------------------------------------------------------------------------

    def lgamma(self) -> Self:
        """log |gamma(self)|; infinite at 0 and the negative integers.

        Example:
            >>> Tensor([1.0, 5.0]).lgamma().exp().numpy().round(3).tolist()
            [1.0, 24.0]
        """

        def value(x: Self) -> Self:
            is_low = x < 0.5
            found = is_low.where(1.0 - x, x)._lgamma_of_positive()
            turn = x.abs() - x.abs().floor()
            sine = (turn * math.pi).sin()
            mirrored = math.log(math.pi) - sine.log() - found
            mirrored = turn.eq(0).where(math.inf, mirrored)
            return x.isinf().where(math.inf, is_low.where(mirrored, found))

        return self._in_double(value, lambda x: x.digamma())

    def _lgamma_of_positive(self) -> Self:
        """log gamma of numbers from 0.5 on.

        Near its zeros 1 and 2 the recurrence cancels, so the distance to them is kept apart.
        """
        is_small = self < _SHIFT
        moved, product = self, self * 0.0 + 1.0
        for _ in range(_SHIFT):
            is_below = moved < _SHIFT
            product = is_below.where(product * moved, product)
            moved = is_below.where(moved + 1.0, moved)
        inverse = moved.reciprocal()
        square = inverse * inverse
        series = square * 0.0
        for term in reversed(_STIRLING):
            series = series * square + term
        large = (moved - 0.5) * moved.log() - moved + _HALF_LOG_TAU + series * inverse
        return is_small.where(large - product.log(), large)

    def digamma(self) -> Self:
        """The derivative of `lgamma`; -inf at 0, NaN at the negative integers."""

        def value(x: Self) -> Self:
            is_low = x <= 0
            found = is_low.where(1.0 - x, x)._digamma_of_positive()
            turn = x - x.floor()
            tangent = (turn * math.pi).tan()
            mirrored = found - math.pi / tangent
            mirrored = turn.eq(0).where(math.nan, mirrored)
            found = is_low.where(mirrored, x.eq(math.inf).where(math.inf, found))
            return x.eq(0).where(-math.inf * self._sign_of(x), found)

        return self._in_double(value, lambda x: x.polygamma(1))

    def _sign_of(self, x: Self) -> Self:
        return x.ones_like().copysign(x)

    def _digamma_of_positive(self) -> Self:
        moved, before = self, self * 0.0
        for _ in range(_SHIFT):
            is_below = moved < _SHIFT
            before = is_below.where(before + moved.reciprocal(), before)
            moved = is_below.where(moved + 1.0, moved)
        inverse = moved.reciprocal()
        square = inverse * inverse
        series = square * 0.0
        for number in range(len(_BERNOULLI) - 1, -1, -1):
            series = (series + _BERNOULLI[number] / (2 * number + 2)) * square
        return moved.log() - inverse * 0.5 - series - before

    def polygamma(self, n: int) -> Self:
        """The n-th derivative of `digamma`.

        Raises:
            UserError: `n` is negative, or its factorial is no float.
        """
        if n < 0:
            raise UserError("polygamma: the order is negative", got=n)
        if n > _MOST_ORDER:
            raise UserError(
                "polygamma: the order is too large", got=n, expected=f"<= {_MOST_ORDER}"
            )
        if n == 0:
            return self.digamma()
        factor = math.factorial(n) * (-1.0 if n % 2 == 0 else 1.0)

        def value(x: Self) -> Self:
            if n > 1:
                return x._hurwitz(n + 1) * factor
            # psi'(1 - x) + psi'(x) = (pi / sin(pi x)) ** 2
            is_low = x < 0.5
            found = is_low.where(1.0 - x, x)._hurwitz(2)
            sine = ((x - x.round()) * math.pi).sin()
            return is_low.where((math.pi / sine).square() - found, found)

        return self._in_double(value, lambda x: x.polygamma(n + 1))

    def _hurwitz(self, power: Any) -> Self:
        """The sum of (self + k) ** -power over k >= 0, by Euler and Maclaurin."""
        moved, total = self, self * 0.0
        for _ in range(2 * _SHIFT):
            is_below = moved < _SHIFT
            total = is_below.where(total + moved**-power, total)
            moved = is_below.where(moved + 1.0, moved)
        total = total + moved ** (1 - power) / (power - 1) + (moved**-power) * 0.5
        factor, inverse = 1.0, moved.reciprocal()
        part = moved ** (-power - 1)
        for number, bernoulli in enumerate(_BERNOULLI, 1):
            order = 2 * number
            factor = math.prod([power + i for i in range(order - 1)]) / math.factorial(order)
            total = total + part * (bernoulli * factor)
            part = part * inverse * inverse
        total = self.eq(math.inf).where(0.0, total)
        return (moved < _SHIFT).where(math.nan, total)

    def multigammaln(self, p: int) -> Self:
        """The logarithm of the gamma function of p dimensions.

        Raises:
            UserError: `p` is more than can be added up.
        """
        if p > _MOST_TERMS:
            raise UserError(
                "multigammaln: too many dimensions", got=p, expected=f"<= {_MOST_TERMS}"
            )
        x = self._as_float()
        found = x * 0.0 + p * (p - 1) / 4 * math.log(math.pi)
        for number in range(p):
            found = found + (x - number / 2).lgamma()
        return found

    def mvlgamma(self, p: int) -> Self:
        """Another name for `multigammaln`."""
        return self.multigammaln(p)

    # --- Bessel functions --------------------------------------------------------------------

    def i0(self) -> Self:
        """The modified Bessel function of the first kind, of order 0.

        Example:
            >>> Tensor([0.0]).i0().tolist()
            [1.0]
        """
        return self._in_double(lambda x: x.abs().exp() * x._bessel(0), lambda x: x.i1())

    def i0e(self) -> Self:
        """exp(-|self|) * i0(self)."""
        return self._in_double(lambda x: x._bessel(0), lambda x: x.i1e() - x.sign() * x.i0e())

    def i1(self) -> Self:
        """The modified Bessel function of the first kind, of order 1."""

        def slope(x: Self) -> Self:
            safe = x.eq(0).where(1.0, x)
            return x.eq(0).where(0.5, x.i0() - x.i1() / safe)

        return self._in_double(lambda x: x.abs().exp() * x._bessel(1), slope)

    def i1e(self) -> Self:
        """exp(-|self|) * i1(self)."""

        def slope(x: Self) -> Self:
            safe = x.eq(0).where(1.0, x)
            return x.eq(0).where(0.5, x.i0e() - x.i1e() * (x.sign() + safe.reciprocal()))

        return self._in_double(lambda x: x._bessel(1), slope)

    def _bessel(self, order: int) -> Self:
        """exp(-|x|) * I(x) of order 0 or 1."""
        size = self.abs()
        is_near = size <= 8
        near, far = (
            (coefficients.I0_NEAR, coefficients.I0_FAR)
            if order == 0
            else (coefficients.I1_NEAR, coefficients.I1_FAR)
        )
        inside = is_near.where(size, 8.0)
        low = self._series(inside * 0.25 - 1.0, near)
        low = low if order == 0 else low * inside
        outside = is_near.where(8.0, size)
        high = self._series(outside.reciprocal() * 16.0 - 1.0, far) / outside.sqrt()
        found = is_near.where(low, high)
        return found if order == 0 else found.copysign(self)

    # --- products with logarithms ------------------------------------------------------------

    def xlogy(self, other: Operand) -> Self:
        """self * log(other); 0 where this is 0, unless `other` is NaN.

        Example:
            >>> Tensor([0.0]).xlogy(Tensor([0.0])).tolist()
            [0.0]
        """
        x, y = self._matched(other, "xlogy", as_float=True)
        return x._times_log(y, lambda z: z.log())

    def xlog1py(self, other: Operand) -> Self:
        """self * log(1 + other); 0 where this is 0, unless `other` is NaN."""
        x, y = self._matched(other, "xlog1py", as_float=True)
        return x._times_log(y, lambda z: z.log1p())

    def _times_log(self, y: Self, logarithm: Callable[[Self], Self]) -> Self:
        is_nothing = self.eq(0) & y.isnan().logical_not()
        return is_nothing.where(self * 0.0, self * logarithm(is_nothing.where(1.0, y)))

    def entr(self) -> Self:
        """-self * log(self): 0 at 0, -inf below."""
        x = self._as_float()
        safe = (x > 0).where(x, 1.0)
        found = x.eq(0).where(0.0, -(x * safe.log()))
        found = (x < 0).where(-math.inf, found).detach()
        return found._with_gradient(lambda sources, g: (g * (-sources[0].log() - 1),), x)

    def logit(self, eps: float | None = None) -> Self:
        """log(self / (1 - self)); `eps` keeps the argument in [eps, 1 - eps]."""
        x = self._as_float()
        if eps is not None:
            x = x.clamp(eps, 1 - eps)

        def slope(x: Self) -> Self:
            product = x * (1 - x)
            steep = product.eq(0).where(math.inf, product.reciprocal())
            return (product < 0).where(math.nan, steep)

        plain = x.detach()
        found = (plain / (1 - plain)).log()
        return found._with_gradient(lambda sources, g: (g * slope(sources[0]),), x)

    def sinc(self) -> Self:
        """sin(pi * self) / (pi * self), 1 at 0."""

        def slope(x: Self) -> Self:
            turned = x * math.pi
            safe = x.eq(0).where(1.0, x)
            bent = (turned.cos() - turned.sin() / (safe * math.pi)) / safe
            return x.eq(0).where(0.0, bent)

        def value(x: Self) -> Self:
            turned = x.eq(0).where(1.0, x) * math.pi
            return x.eq(0).where(1.0, turned.sin() / turned)

        return self._in_double(value, slope)
