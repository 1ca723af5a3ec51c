"""Further methods that write into the tensor itself: other names, products, random numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework.base.errors import UserError
from tilework.tensor.polynomials import Polynomials

if TYPE_CHECKING:
    from tilework.tensor.promotion import Number


class FurtherInPlace(Polynomials):
    """`x.f_(...)` is `x.assign(x.f(...))`, as of `InPlace`."""

    __slots__ = ()

    # --- of one operand ----------------------------------------------------------------------

    def absolute_(self) -> Self:
        """`absolute` into this tensor."""
        return self._replaced(self.absolute())

    def arccos_(self) -> Self:
        """`arccos` into this tensor."""
        return self._replaced(self.arccos())

    def arccosh_(self) -> Self:
        """`arccosh` into this tensor."""
        return self._replaced(self.arccosh())

    def arcsin_(self) -> Self:
        """`arcsin` into this tensor."""
        return self._replaced(self.arcsin())

    def arcsinh_(self) -> Self:
        """`arcsinh` into this tensor."""
        return self._replaced(self.arcsinh())

    def arctan_(self) -> Self:
        """`arctan` into this tensor."""
        return self._replaced(self.arctan())

    def arctanh_(self) -> Self:
        """`arctanh` into this tensor."""
        return self._replaced(self.arctanh())

    def bitwise_not_(self) -> Self:
        """`bitwise_not` into this tensor."""
        return self._replaced(self.bitwise_not())

    def fix_(self) -> Self:
        """`fix` into this tensor."""
        return self._replaced(self.fix())

    def i0_(self) -> Self:
        """`i0` into this tensor."""
        return self._replaced(self.i0())

    def logit_(self) -> Self:
        """`logit` into this tensor."""
        return self._replaced(self.logit())

    def negative_(self) -> Self:
        """`negative` into this tensor."""
        return self._replaced(self.negative())

    # --- of two operands ---------------------------------------------------------------------

    def arctan2_(self, other: Any) -> Self:
        """`arctan2` into this tensor."""
        return self._replaced(self.arctan2(other))

    def float_power_(self, other: Any) -> Self:
        """`float_power` into this tensor."""
        return self._replaced(self.float_power(other))

    def greater_(self, other: Any) -> Self:
        """`greater` into this tensor."""
        return self._replaced(self.greater(other))

    def greater_equal_(self, other: Any) -> Self:
        """`greater_equal` into this tensor."""
        return self._replaced(self.greater_equal(other))

    def igamma_(self, other: Any) -> Self:
        """`igamma` into this tensor."""
        return self._replaced(self.igamma(other))

    def igammac_(self, other: Any) -> Self:
        """`igammac` into this tensor."""
        return self._replaced(self.igammac(other))

    def ldexp_(self, other: Any) -> Self:
        """`ldexp` into this tensor."""
        return self._replaced(self.ldexp(other))

    def less_(self, other: Any) -> Self:
        """`less` into this tensor."""
        return self._replaced(self.less(other))

    def less_equal_(self, other: Any) -> Self:
        """`less_equal` into this tensor."""
        return self._replaced(self.less_equal(other))

    def multiply_(self, other: Any) -> Self:
        """`multiply` into this tensor."""
        return self._replaced(self.multiply(other))

    def nextafter_(self, other: Any) -> Self:
        """`nextafter` into this tensor."""
        return self._replaced(self.nextafter(other))

    def not_equal_(self, other: Any) -> Self:
        """`not_equal` into this tensor."""
        return self._replaced(self.not_equal(other))

    def subtract_(self, other: Any, *, alpha: Number = 1) -> Self:
        """Another name for `sub_`."""
        return self.sub_(other, alpha=alpha)

    def divide_(self, other: Any, *, rounding_mode: str | None = None) -> Self:
        """Another name for `div_`."""
        return self.div_(other, rounding_mode=rounding_mode)

    def mvlgamma_(self, p: int) -> Self:
        """`mvlgamma` into this tensor."""
        return self._replaced(self.mvlgamma(p))

    def polygamma_(self, n: int) -> Self:
        """`polygamma` into this tensor."""
        return self._replaced(self.polygamma(n))

    def renorm_(self, p: float, dim: int, maxnorm: float) -> Self:
        """`renorm` into this tensor."""
        return self._replaced(self.renorm(p, dim, maxnorm))

    # --- products ----------------------------------------------------------------------------

    def addbmm_(self, batch1: Self, batch2: Self, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """`addbmm` into this tensor."""
        return self._replaced(self.addbmm(batch1, batch2, beta=beta, alpha=alpha))

    def addmm_(self, mat1: Self, mat2: Self, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """`addmm` into this tensor."""
        return self._replaced(self.addmm(mat1, mat2, beta=beta, alpha=alpha))

    def addmv_(self, mat: Self, vec: Self, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """`addmv` into this tensor."""
        return self._replaced(self.addmv(mat, vec, beta=beta, alpha=alpha))

    def addr_(self, vec1: Self, vec2: Self, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """`addr` into this tensor."""
        return self._replaced(self.addr(vec1, vec2, beta=beta, alpha=alpha))

    def baddbmm_(self, batch1: Self, batch2: Self, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """`baddbmm` into this tensor."""
        return self._replaced(self.baddbmm(batch1, batch2, beta=beta, alpha=alpha))

    # --- random ------------------------------------------------------------------------------

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0) -> Self:
        """Fill with numbers from the Cauchy distribution.

        Raises:
            UserError: `sigma` is not positive.
        """
        if not sigma > 0:
            raise UserError("cauchy_: the width must be positive", got=sigma)
        drawn = type(self).uniform(*self.shape, low=-0.5, high=0.5, device=self.device)
        return self._replaced(((drawn * math.pi).tan() * sigma + median).cast(self.dtype))

    def geometric_(self, p: float) -> Self:
        """Fill with how many trials there are until the first of probability `p` succeeds.

        Raises:
            UserError: `p` is not in (0, 1).
        """
        if not 0 < p < 1:
            raise UserError("geometric_: this is no probability", got=p, expected="0 < p < 1")
        trials = (self._exponential() / -math.log1p(-p)).floor() + 1
        return self._replaced(trials.cast(self.dtype))

    def log_normal_(self, mean: float = 1.0, std: float = 2.0) -> Self:
        """Fill with numbers whose logarithms are from the normal distribution."""
        drawn = type(self).normal(*self.shape, mean=mean, std=std, device=self.device)
        return self._replaced(drawn.exp().cast(self.dtype))

    def random_(self, low: int = 0, high: int | None = None) -> Self:
        """Fill with integers from [low, high), equally likely.

        Args:
            low: the least; with one argument alone that is `high`, as PyTorch has it.
            high: by default all integers that the dtype holds exactly, but no negative ones.
        """
        if high is None and low:
            low, high = 0, low
        if high is None:
            is_whole = self.dtype.is_integer
            high = self.dtype.maximum + 1 if is_whole else 1 << (self.dtype.mantissa_bits + 1)
            high = min(high, 1 << 63)
        kind = self.dtype if self.dtype.is_integer else "int64"
        drawn = type(self).randint(*self.shape, low=low, high=high, dtype=kind, device=self.device)
        return self._replaced(drawn.cast(self.dtype))
