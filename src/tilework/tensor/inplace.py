"""Methods that write their result into the tensor itself, under PyTorch's names (`x.add_(y)`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework.base.errors import ShapeError
from tilework.tensor.drawing import Drawing
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.tensor.promotion import Number


class InPlace(Drawing):
    """`x.f_(...)` is `x.assign(x.f(...))`; every view of the storage sees it.

    All raise what `assign` raises: `AliasError` where two elements are one place in memory, and
    `DTypeError` where the result does not fit the dtype.
    """

    __slots__ = ()

    # --- arithmetic --------------------------------------------------------------------------

    def add_(self, other: Any, *, alpha: Number = 1) -> Self:
        """Add `alpha` times `other` to this tensor.

        Example:
            >>> x = Tensor([1.0, 2.0])
            >>> x.add_(1, alpha=10).tolist()
            [11.0, 12.0]
        """
        return self._replaced(self + (other if alpha == 1 else other * alpha))

    def sub_(self, other: Any, *, alpha: Number = 1) -> Self:
        """Subtract `alpha` times `other` from this tensor."""
        return self._replaced(self - (other if alpha == 1 else other * alpha))

    def div_(self, other: Any, *, rounding_mode: str | None = None) -> Self:
        """Divide this tensor by `other`; see `div`."""
        return self._replaced(self.div(other, rounding_mode=rounding_mode))

    def addcmul_(self, first: Self, second: Self, *, value: Number = 1) -> Self:
        """Add `value` times the product of two tensors to this one."""
        return self._replaced(self.addcmul(first, second, value=value))

    def addcdiv_(self, first: Self, second: Self, *, value: Number = 1) -> Self:
        """Add `value` times the quotient of two tensors to this one."""
        return self._replaced(self.addcdiv(first, second, value=value))

    def lerp_(self, end: Self, weight: Any) -> Self:
        """Go from this tensor toward `end` by `weight`."""
        return self._replaced(self.lerp(end, weight))

    # --- of two operands ---------------------------------------------------------------------

    def atan2_(self, other: Any) -> Self:
        """`atan2` into this tensor."""
        return self._replaced(self.atan2(other))

    def bitwise_and_(self, other: Any) -> Self:
        """`bitwise_and` into this tensor."""
        return self._replaced(self.bitwise_and(other))

    def bitwise_left_shift_(self, other: Any) -> Self:
        """`bitwise_left_shift` into this tensor."""
        return self._replaced(self.bitwise_left_shift(other))

    def bitwise_or_(self, other: Any) -> Self:
        """`bitwise_or` into this tensor."""
        return self._replaced(self.bitwise_or(other))

    def bitwise_right_shift_(self, other: Any) -> Self:
        """`bitwise_right_shift` into this tensor."""
        return self._replaced(self.bitwise_right_shift(other))

    def bitwise_xor_(self, other: Any) -> Self:
        """`bitwise_xor` into this tensor."""
        return self._replaced(self.bitwise_xor(other))

    def copysign_(self, other: Any) -> Self:
        """`copysign` into this tensor."""
        return self._replaced(self.copysign(other))

    def eq_(self, other: Any) -> Self:
        """`eq` into this tensor."""
        return self._replaced(self.eq(other))

    def floor_divide_(self, other: Any) -> Self:
        """`floor_divide` into this tensor."""
        return self._replaced(self.floor_divide(other))

    def fmod_(self, other: Any) -> Self:
        """`fmod` into this tensor."""
        return self._replaced(self.fmod(other))

    def gcd_(self, other: Any) -> Self:
        """`gcd` into this tensor."""
        return self._replaced(self.gcd(other))

    def ge_(self, other: Any) -> Self:
        """`ge` into this tensor."""
        return self._replaced(self.ge(other))

    def gt_(self, other: Any) -> Self:
        """`gt` into this tensor."""
        return self._replaced(self.gt(other))

    def heaviside_(self, other: Self) -> Self:
        """`heaviside` into this tensor."""
        return self._replaced(self.heaviside(other))

    def hypot_(self, other: Any) -> Self:
        """`hypot` into this tensor."""
        return self._replaced(self.hypot(other))

    def lcm_(self, other: Any) -> Self:
        """`lcm` into this tensor."""
        return self._replaced(self.lcm(other))

    def le_(self, other: Any) -> Self:
        """`le` into this tensor."""
        return self._replaced(self.le(other))

    def logical_and_(self, other: Any) -> Self:
        """`logical_and` into this tensor."""
        return self._replaced(self.logical_and(other))

    def logical_or_(self, other: Any) -> Self:
        """`logical_or` into this tensor."""
        return self._replaced(self.logical_or(other))

    def logical_xor_(self, other: Any) -> Self:
        """`logical_xor` into this tensor."""
        return self._replaced(self.logical_xor(other))

    def lt_(self, other: Any) -> Self:
        """`lt` into this tensor."""
        return self._replaced(self.lt(other))

    def mul_(self, other: Any) -> Self:
        """`mul` into this tensor."""
        return self._replaced(self.mul(other))

    def ne_(self, other: Any) -> Self:
        """`ne` into this tensor."""
        return self._replaced(self.ne(other))

    def pow_(self, other: Any) -> Self:
        """`pow` into this tensor."""
        return self._replaced(self.pow(other))

    def remainder_(self, other: Any) -> Self:
        """`remainder` into this tensor."""
        return self._replaced(self.remainder(other))

    def true_divide_(self, other: Any) -> Self:
        """`true_divide` into this tensor."""
        return self._replaced(self.true_divide(other))

    def xlogy_(self, other: Any) -> Self:
        """`xlogy` into this tensor."""
        return self._replaced(self.xlogy(other))

    # --- of one operand ----------------------------------------------------------------------

    def abs_(self) -> Self:
        """`abs` into this tensor."""
        return self._replaced(self.abs())

    def acos_(self) -> Self:
        """`acos` into this tensor."""
        return self._replaced(self.acos())

    def acosh_(self) -> Self:
        """`acosh` into this tensor."""
        return self._replaced(self.acosh())

    def asin_(self) -> Self:
        """`asin` into this tensor."""
        return self._replaced(self.asin())

    def asinh_(self) -> Self:
        """`asinh` into this tensor."""
        return self._replaced(self.asinh())

    def atan_(self) -> Self:
        """`atan` into this tensor."""
        return self._replaced(self.atan())

    def atanh_(self) -> Self:
        """`atanh` into this tensor."""
        return self._replaced(self.atanh())

    def ceil_(self) -> Self:
        """`ceil` into this tensor."""
        return self._replaced(self.ceil())

    def cos_(self) -> Self:
        """`cos` into this tensor."""
        return self._replaced(self.cos())

    def cosh_(self) -> Self:
        """`cosh` into this tensor."""
        return self._replaced(self.cosh())

    def deg2rad_(self) -> Self:
        """`deg2rad` into this tensor."""
        return self._replaced(self.deg2rad())

    def digamma_(self) -> Self:
        """`digamma` into this tensor."""
        return self._replaced(self.digamma())

    def erf_(self) -> Self:
        """`erf` into this tensor."""
        return self._replaced(self.erf())

    def erfc_(self) -> Self:
        """`erfc` into this tensor."""
        return self._replaced(self.erfc())

    def erfinv_(self) -> Self:
        """`erfinv` into this tensor."""
        return self._replaced(self.erfinv())

    def exp_(self) -> Self:
        """`exp` into this tensor."""
        return self._replaced(self.exp())

    def exp2_(self) -> Self:
        """`exp2` into this tensor."""
        return self._replaced(self.exp2())

    def expm1_(self) -> Self:
        """`expm1` into this tensor."""
        return self._replaced(self.expm1())

    def floor_(self) -> Self:
        """`floor` into this tensor."""
        return self._replaced(self.floor())

    def frac_(self) -> Self:
        """`frac` into this tensor."""
        return self._replaced(self.frac())

    def lgamma_(self) -> Self:
        """`lgamma` into this tensor."""
        return self._replaced(self.lgamma())

    def log_(self) -> Self:
        """`log` into this tensor."""
        return self._replaced(self.log())

    def log10_(self) -> Self:
        """`log10` into this tensor."""
        return self._replaced(self.log10())

    def log1p_(self) -> Self:
        """`log1p` into this tensor."""
        return self._replaced(self.log1p())

    def log2_(self) -> Self:
        """`log2` into this tensor."""
        return self._replaced(self.log2())

    def logical_not_(self) -> Self:
        """`logical_not` into this tensor."""
        return self._replaced(self.logical_not())

    def neg_(self) -> Self:
        """`neg` into this tensor."""
        return self._replaced(self.neg())

    def rad2deg_(self) -> Self:
        """`rad2deg` into this tensor."""
        return self._replaced(self.rad2deg())

    def reciprocal_(self) -> Self:
        """`reciprocal` into this tensor."""
        return self._replaced(self.reciprocal())

    def relu_(self) -> Self:
        """`relu` into this tensor."""
        return self._replaced(self.relu())

    def round_(self) -> Self:
        """`round` into this tensor."""
        return self._replaced(self.round())

    def rsqrt_(self) -> Self:
        """`rsqrt` into this tensor."""
        return self._replaced(self.rsqrt())

    def sigmoid_(self) -> Self:
        """`sigmoid` into this tensor."""
        return self._replaced(self.sigmoid())

    def sign_(self) -> Self:
        """`sign` into this tensor."""
        return self._replaced(self.sign())

    def sin_(self) -> Self:
        """`sin` into this tensor."""
        return self._replaced(self.sin())

    def sinc_(self) -> Self:
        """`sinc` into this tensor."""
        return self._replaced(self.sinc())

    def sinh_(self) -> Self:
        """`sinh` into this tensor."""
        return self._replaced(self.sinh())

    def sqrt_(self) -> Self:
        """`sqrt` into this tensor."""
        return self._replaced(self.sqrt())

    def square_(self) -> Self:
        """`square` into this tensor."""
        return self._replaced(self.square())

    def tan_(self) -> Self:
        """`tan` into this tensor."""
        return self._replaced(self.tan())

    def tanh_(self) -> Self:
        """`tanh` into this tensor."""
        return self._replaced(self.tanh())

    def trunc_(self) -> Self:
        """`trunc` into this tensor."""
        return self._replaced(self.trunc())

    def clamp_(self, min_: Any = None, max_: Any = None) -> Self:
        """`clamp` into this tensor."""
        return self._replaced(self.clamp(min_, max_))

    def clip_(self, min_: Any = None, max_: Any = None) -> Self:
        """`clip` into this tensor."""
        return self._replaced(self.clip(min_, max_))

    def clamp_min_(self, min_: Any) -> Self:
        """`clamp_min` into this tensor."""
        return self._replaced(self.clamp_min(min_))

    def clamp_max_(self, max_: Any) -> Self:
        """`clamp_max` into this tensor."""
        return self._replaced(self.clamp_max(max_))

    def cumprod_(self, axis: int) -> Self:
        """`cumprod` into this tensor."""
        return self._replaced(self.cumprod(axis))

    def cumsum_(self, axis: int) -> Self:
        """`cumsum` into this tensor."""
        return self._replaced(self.cumsum(axis))

    def nan_to_num_(
        self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """`nan_to_num` into this tensor."""
        return self._replaced(self.nan_to_num(nan, posinf, neginf))

    def tril_(self, diagonal: int = 0) -> Self:
        """`tril` into this tensor."""
        return self._replaced(self.tril(diagonal))

    def triu_(self, diagonal: int = 0) -> Self:
        """`triu` into this tensor."""
        return self._replaced(self.triu(diagonal))

    def fill_diagonal_(self, fill_value: Number) -> Self:
        """Write `fill_value` into the elements whose positions are equal along all axes.

        Raises:
            ShapeError: there are fewer than two axes, or more than two of different sizes.
        """
        sizes = self._sizes()
        if len(sizes) < 2 or (len(sizes) > 2 and len(set(sizes)) > 1):
            raise ShapeError(
                "fill_diagonal_: there is no diagonal",
                got=format_shape(self._dims),
                expected="a matrix, or equal sizes of all axes",
            )
        row = self._positions(0)
        chosen = row.eq(self._positions(1))
        for axis in range(2, len(sizes)):
            chosen = chosen & row.eq(self._positions(axis))
        return self._replaced(chosen.where(self._number(fill_value, self.dtype), self))

    # --- random ------------------------------------------------------------------------------

    def uniform_(self, low: float = 0.0, high: float = 1.0) -> Self:
        """Fill with numbers from [low, high), equally likely."""
        drawn = type(self).uniform(*self.shape, low=low, high=high, device=self.device)
        return self._replaced(drawn.cast(self.dtype))

    def normal_(self, mean: float = 0.0, std: float = 1.0) -> Self:
        """Fill with numbers from the normal distribution."""
        drawn = type(self).normal(*self.shape, mean=mean, std=std, device=self.device)
        return self._replaced(drawn.cast(self.dtype))

    def bernoulli_(self, p: Any = 0.5) -> Self:
        """Fill with 1 with probability `p` (a number, or a tensor of this shape), else 0."""
        chance = p if isinstance(p, InPlace) else self.full_like(p, dtype="float32")
        return self._replaced(chance.bernoulli().cast(self.dtype))

    def exponential_(self, lambd: float = 1.0) -> Self:
        """Fill with numbers from the exponential distribution of rate `lambd`."""
        return self._replaced((self._exponential() / lambd).cast(self.dtype))
