"""Functions of draws that say how much they stretch, with PyTorch's names and arguments."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import ShapeError, UnsupportedError, UserError
from tilework.nn.distributions.distribution import Parameter
from tilework.tensor.tensor import Tensor
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.nn.distributions.distribution import Distribution


def sum_of_last(x: Tensor, count: int) -> Tensor:
    """The sum over so many of the last axes.

    Shape:
        x (*first, *last) -> first
    """
    return x.sum(tuple(range(-count, 0))) if count else x


class Transform:
    """A function of draws, its inverse, and the logarithm of how much it stretches.

    Args:
        cache_size: 1 remembers the last operand and its result, so that the inverse of that result
            is the operand itself; 0 remembers nothing.

    Raises:
        UserError: more is to be remembered.
    """

    #: How many axes at the end make one operand, and one result.
    domain_dim = 0
    codomain_dim = 0
    #: Whether each result comes of one operand alone.
    bijective = True
    #: 1 if it rises, -1 if it falls.
    sign: Parameter = 1

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise UserError(
                f"{type(self).__name__}: so much is not remembered",
                got=f"cache_size {cache_size}",
                expected="0 or 1",
            )
        self._cache_size = cache_size
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The function of `x`."""
        if self._last is not None and self._last[0] is x:
            return self._last[1]
        y = self._forward(x)
        if self._cache_size:
            self._last = (x, y)
        return y

    def undo(self, y: Tensor) -> Tensor:
        """What the function makes `y` of."""
        if self._last is not None and self._last[1] is y:
            return self._last[0]
        x = self._inverse(y)
        if self._cache_size:
            self._last = (x, y)
        return x

    @property
    def inv(self) -> Transform:
        """The inverse, which is a transform as well."""
        return _Inverse(self)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result for one of an operand."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the operand for one of a result."""
        return tuple(shape)

    @abstractmethod
    def _forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _inverse(self, y: Tensor) -> Tensor: ...

    @abstractmethod
    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the magnitude of the determinant of the slopes at `x`, made `y`."""

    def __eq__(self, other: object) -> bool:
        """Whether the other one is of this kind and has the same parameters."""
        if type(self) is not type(other):
            return False
        mine, theirs = self._parameters(), other._parameters()
        return mine.keys() == theirs.keys() and all(
            value is theirs[name]
            or (not isinstance(value, Tensor) and not isinstance(theirs[name], Tensor)
                and bool(value == theirs[name]))
            for name, value in mine.items()
        )  # fmt: skip

    def __hash__(self) -> int:
        """The same for equals."""
        return hash(type(self))

    def _parameters(self) -> dict[str, Any]:
        hidden = ("_last", "_cache_size")
        return {name: value for name, value in vars(self).items() if name not in hidden}

    def __repr__(self) -> str:
        """The name."""
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    """What undoes another transform."""

    def __init__(self, whole: Transform) -> None:
        super().__init__()
        self.whole = whole
        self.domain_dim, self.codomain_dim = whole.codomain_dim, whole.domain_dim
        self.bijective, self.sign = whole.bijective, whole.sign

    @property
    def inv(self) -> Transform:
        """The transform that is undone."""
        return self.whole

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result for one of an operand."""
        return self.whole.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the operand for one of a result."""
        return self.whole.forward_shape(shape)

    def _forward(self, x: Tensor) -> Tensor:
        return self.whole.undo(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.whole(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the magnitude of the slope."""
        return -self.whole.log_abs_det_jacobian(y, x)


class ExpTransform(Transform):
    """y = exp(x)."""

    def _forward(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the slope."""
        return x


class PowerTransform(Transform):
    """y = x ** exponent, of numbers from 0 on.

    Args:
        exponent: the power, which is not 0.
        cache_size: see `Transform`.
    """

    def __init__(self, exponent: Parameter, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent
        self.sign = _sign(exponent)

    def _forward(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the magnitude of the slope."""
        return (y / x * self.exponent).abs().log()


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x))."""

    def _forward(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the slope."""
        return -((-x).softplus() + x.softplus())


class TanhTransform(Transform):
    """y = tanh(x).

    The inverse of a result that is rounded to 1 is infinite: `cache_size=1` keeps the operand.

    Example:
        >>> squash = TanhTransform(cache_size=1)
        >>> squash.undo(squash(Tensor([20.0]))).tolist()
        [20.0]
    """

    def _forward(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the slope, exact where the slope is 0 in floats."""
        return (math.log(2) - x - (x * -2).softplus()) * 2


class SoftplusTransform(Transform):
    """y = log(1 + exp(x))."""

    def _forward(self, x: Tensor) -> Tensor:
        return x.softplus()

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the slope."""
        return -(-x).softplus()


class AbsTransform(Transform):
    """y = abs(x); the inverse is the operand that is not below 0."""

    bijective = False

    def _forward(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """There is none: two operands have the same result."""
        raise _no_slope(self)


class SoftmaxTransform(Transform):
    """y = softmax(x) along the last axis; operands that differ by a constant have one result."""

    domain_dim = 1
    codomain_dim = 1
    bijective = False

    def _forward(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """There is none: many operands have the same result."""
        raise _no_slope(self)


class AffineTransform(Transform):
    """y = loc + scale * x.

    Args:
        loc: what is added.
        scale: what `x` is multiplied by, which is not 0.
        event_dim: how many axes at the end make one operand.
        cache_size: see `Transform`.
    """

    def __init__(
        self, loc: Parameter, scale: Parameter, event_dim: int = 0, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.loc, self.scale = loc, scale
        self.domain_dim = self.codomain_dim = event_dim
        self.sign = _sign(scale)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result for one of an operand."""
        given = [x.shape for x in (self.loc, self.scale) if isinstance(x, Tensor)]
        return Tensor.broadcast_shapes(tuple(shape), *given)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the operand for one of a result."""
        return self.forward_shape(shape)

    def _forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.loc

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the magnitude of the slope."""
        scale = self.scale
        slope = scale.abs().log() if isinstance(scale, Tensor) else math.log(abs(scale))
        return sum_of_last(x.zeros_like() + slope, self.domain_dim)


class CumulativeDistributionTransform(Transform):
    """y = the probability of what is at most x.

    Args:
        distribution: a law of real numbers with `cdf`, `icdf` and `log_prob`.
        cache_size: see `Transform`.
    """

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def _forward(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the slope, which is that of the density."""
        return self.distribution.log_prob(x)


class StickBreakingTransform(Transform):
    """Shares that add up to 1, each a part of what those before it left.

    Shape:
        x (..., n) -> y (..., n + 1)
    """

    domain_dim = 1
    codomain_dim = 1

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result for one of an operand."""
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the operand for one of a result."""
        return (*shape[:-1], shape[-1] - 1)

    def _parts(self, x: Tensor) -> Tensor:
        """The logarithm of the odds of each part: equal shares for zeros."""
        count = int(x.shape[-1])
        left = Tensor.arange(count, 0, -1, dtype=x.dtype, device=x.device)
        return x - left.log()

    def _forward(self, x: Tensor) -> Tensor:
        odds = self._parts(x)
        left = odds.neg().logsigmoid().cumsum(-1).exp()
        before = left[..., :-1].pad(((0, 0),) * (x.ndim - 1) + ((1, 0),), value=1.0)
        return Tensor.cat(odds.sigmoid() * before, left[..., -1:], dim=-1)

    def _inverse(self, y: Tensor) -> Tensor:
        # What is left after each share is the sum of those behind it, which cancels nothing.
        behind = y.flip(-1).cumsum(-1).flip(-1)[..., 1:]
        count = int(y.shape[-1]) - 1
        left = Tensor.arange(count, 0, -1, dtype=y.dtype, device=y.device)
        return y[..., :-1].log() - behind.log() + left.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the magnitude of the determinant."""
        return (self._parts(x).logsigmoid() + y[..., 1:].flip(-1).cumsum(-1).flip(-1).log()).sum(-1)


class ReshapeTransform(Transform):
    """The last axes in another shape.

    Args:
        in_shape: of an operand.
        out_shape: of a result, of as many elements.
        cache_size: see `Transform`.

    Raises:
        ShapeError: the numbers of elements differ.
    """

    def __init__(
        self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ShapeError(
                "ReshapeTransform: the numbers of elements differ",
                got=f"{format_shape(self.in_shape)} and {format_shape(self.out_shape)}",
            )
        self.domain_dim, self.codomain_dim = len(self.in_shape), len(self.out_shape)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result for one of an operand."""
        return (*shape[: len(shape) - self.domain_dim], *self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the operand for one of a result."""
        return (*shape[: len(shape) - self.codomain_dim], *self.in_shape)

    def _forward(self, x: Tensor) -> Tensor:
        return x.reshape(*self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(*self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Zeros: nothing is stretched."""
        batch = x.shape[: x.ndim - self.domain_dim]
        return Tensor.zeros(*batch, dtype=x.dtype, device=x.device)


class IndependentTransform(Transform):
    """Some more of the last axes taken together as one operand.

    Args:
        base_transform: what is done with each.
        reinterpreted_batch_ndims: how many axes.
        cache_size: see `Transform`.
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.domain_dim = base_transform.domain_dim + reinterpreted_batch_ndims
        self.codomain_dim = base_transform.codomain_dim + reinterpreted_batch_ndims
        self.bijective, self.sign = base_transform.bijective, base_transform.sign

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result for one of an operand."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the operand for one of a result."""
        return self.base_transform.inverse_shape(shape)

    def _forward(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.undo(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum over the axes."""
        each = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_of_last(each, self.reinterpreted_batch_ndims)


class ComposeTransform(Transform):
    """Several transforms, the first one first.

    Args:
        parts: the transforms; none leave draws as they are.
        cache_size: see `Transform`.

    Example:
        >>> double = ComposeTransform([ExpTransform(), AffineTransform(0.0, 2.0)])
        >>> double(Tensor([0.0])).tolist(), double.inv(Tensor([2.0])).tolist()
        ([2.0], [0.0])
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.domain_dim = self._least_dim(self.parts)
        self.codomain_dim = self._least_dim([part.inv for part in reversed(self.parts)])
        self.bijective = all(part.bijective for part in self.parts)
        for part in self.parts:
            self.sign = self.sign * part.sign

    @staticmethod
    def _least_dim(parts: Sequence[Transform]) -> int:
        """How many axes at the end the first operand has, so that each part has enough."""
        count = 0
        for part in reversed(parts):
            count = max(count + part.domain_dim - part.codomain_dim, part.domain_dim)
        return count

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result for one of an operand."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the operand for one of a result."""
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def _forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.undo(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of those of the parts."""
        batch = x.shape[: x.ndim - self.domain_dim]
        total = Tensor.zeros(*batch, dtype=x.dtype, device=x.device)
        count = self.domain_dim
        for part in self.parts:
            y = part(x)
            total = total + sum_of_last(part.log_abs_det_jacobian(x, y), count - part.domain_dim)
            count += part.codomain_dim - part.domain_dim
            x = y
        return total


#: Leaves draws as they are.
identity_transform: Final = ComposeTransform([])


def _sign(factor: Any) -> Any:
    return factor.sign() if isinstance(factor, Tensor) else math.copysign(1, factor)


def _no_slope(transform: Transform) -> UnsupportedError:
    return UnsupportedError(
        f"{type(transform).__name__}: it has no slope, as several operands have the same result",
        try_="a transform with `bijective`, such as StickBreakingTransform or ExpTransform",
    )
