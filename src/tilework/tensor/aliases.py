"""Further names of methods that PyTorch's users know, and small methods of theirs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

from tilework import dtypes
from tilework.base.errors import IndexingError, ShapeError, UserError
from tilework.engine.device import Device
from tilework.tensor.core import TensorBase
from tilework.tensor.quantising import Quantising
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType

#: Half of what draws of float32 are multiples of: what stands for 0, whose logarithm is infinite.
_LEAST_DRAWN: Final = 2.0**-25


class Aliases(Quantising):
    """arccos, multiply, concat, argwhere, bernoulli, gumbel_softmax and their kin."""

    __slots__ = ()

    # --- other names -------------------------------------------------------------------------

    def absolute(self) -> Self:
        """Another name for `abs`."""
        return self.abs()

    def arccos(self) -> Self:
        """Another name for `acos`."""
        return self.acos()

    def arccosh(self) -> Self:
        """Another name for `acosh`."""
        return self.acosh()

    def arcsin(self) -> Self:
        """Another name for `asin`."""
        return self.asin()

    def arcsinh(self) -> Self:
        """Another name for `asinh`."""
        return self.asinh()

    def arctan(self) -> Self:
        """Another name for `atan`."""
        return self.atan()

    def arctanh(self) -> Self:
        """Another name for `atanh`."""
        return self.atanh()

    def negative(self) -> Self:
        """Another name for `neg`."""
        return self.neg()

    def fix(self) -> Self:
        """Another name for `trunc`."""
        return self.trunc()

    def expit(self) -> Self:
        """Another name for `sigmoid`."""
        return self.sigmoid()

    def psi(self) -> Self:
        """Another name for `digamma`."""
        return self.digamma()

    def gammaln(self) -> Self:
        """Another name for `lgamma`."""
        return self.lgamma()

    def pinverse(self) -> Self:
        """Another name for `pinv`."""
        return self.pinv()

    def arctan2(self, other: Any) -> Self:
        """Another name for `atan2`."""
        return self.atan2(other)

    def divide(self, other: Any, *, rounding_mode: str | None = None) -> Self:
        """Another name for `div`."""
        return self.div(other, rounding_mode=rounding_mode)

    def multiply(self, other: Any) -> Self:
        """Another name for `mul`."""
        return self.mul(other)

    def subtract(self, other: Any, *, alpha: Any = 1) -> Self:
        """Another name for `sub`."""
        return self.sub(other, alpha=alpha)

    def greater(self, other: Any) -> Self:
        """Another name for `gt`."""
        return self.gt(other)

    def greater_equal(self, other: Any) -> Self:
        """Another name for `ge`."""
        return self.ge(other)

    def less(self, other: Any) -> Self:
        """Another name for `lt`."""
        return self.lt(other)

    def less_equal(self, other: Any) -> Self:
        """Another name for `le`."""
        return self.le(other)

    def not_equal(self, other: Any) -> Self:
        """Another name for `ne`."""
        return self.ne(other)

    def ger(self, other: Self) -> Self:
        """Another name for `outer`."""
        return self.outer(other)

    def orgqr(self, other: Self) -> Self:
        """Another name for `householder_product`."""
        return self.householder_product(other)

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Another name for `movedim`."""
        return self.movedim(source, destination)

    def swapdims(self, dim0: int, dim1: int) -> Self:
        """Another name for `transpose`."""
        return self.transpose(dim0, dim1)

    def adjoint(self) -> Self:
        """Another name for `mT`; there are no complex numbers."""
        return self.mT

    def argwhere(self) -> Self:
        """Another name for `nonzero`."""
        found: Self = self.nonzero()
        return found

    def concat(self, *others: Any, dim: int = 0) -> Self:
        """Another name for `cat`."""
        return Quantising.cat(self, *others, dim=dim)

    def concatenate(self, *others: Any, dim: int = 0) -> Self:
        """Another name for `cat`."""
        return Quantising.cat(self, *others, dim=dim)

    def trapz(self, x: Self | None = None, *, dx: float = 1.0, dim: int = -1) -> Self:
        """Another name for `trapezoid`."""
        return self.trapezoid(x, dx=dx, dim=dim)

    def narrow_copy(self, dim: int, start: int, length: int) -> Self:
        """`narrow` as a copy."""
        return self.narrow(dim, start, length).clone()

    def nonzero_static(self, *, size: int, fill_value: int = -1) -> Self:
        """`nonzero` of `size` rows, the ones that are missing filled with `fill_value`."""
        found: Self = self.nonzero(size, fill_value)
        return found

    def index_reduce_(
        self, dim: int, index: Self, source: Self, reduce: str, *, include_self: bool = True
    ) -> Self:
        """`index_reduce` into this tensor."""
        return self._replaced(
            self.index_reduce(dim, index, source, reduce, include_self=include_self)
        )

    # --- what a tensor is --------------------------------------------------------------------

    def ndimension(self) -> int:
        """Another name for `ndim`."""
        return self.ndim

    def nelement(self) -> Any:
        """Another name for `numel`."""
        return self.numel()

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self.dtype.is_float or self.dtype.is_signed

    def is_nonzero(self) -> bool:
        """Whether the only element is not zero.

        Raises:
            ShapeError: there is not exactly one.
        """
        return bool(self.item())

    def type_as(self, other: TensorBase) -> Self:
        """This tensor in the dtype of `other`."""
        return self.cast(other.dtype)

    def cpu(self) -> Self:
        """This tensor on the CPU."""
        return self.to("CPU")

    def cuda(self) -> Self:
        """This tensor on the first NVIDIA GPU."""
        return self.to("CUDA")

    # --- making tensors ----------------------------------------------------------------------

    def new_tensor(self, data: Any, dtype: DType | str | None = None) -> Self:
        """A tensor of `data` on this one's device, in its dtype unless another is given."""
        made = self._lift(data, self.device)
        return made.cast(self.dtype if dtype is None else dtype)

    def new_empty(self, *shape: Any, dtype: DType | str | None = None) -> Self:
        """`empty` on this tensor's device, in its dtype unless another is given."""
        kind = self.dtype if dtype is None else dtype
        return type(self).empty(*shape, dtype=kind, device=self.device)

    def randint_like(self, low: int, high: int | None = None) -> Self:
        """Integers up to `high` (not included) in this tensor's shape and dtype.

        Args:
            low: the least; 0 if `high` is not given, which `low` then is.
            high: what they stay below.
        """
        first, last = (0, low) if high is None else (low, high)
        kind = self.dtype if self.dtype.is_integer else dtypes.int64
        drawn = type(self).randint(
            *self.shape, low=first, high=last, dtype=kind, device=self.device
        )
        return drawn.cast(self.dtype)

    @classmethod
    def fftfreq(cls, n: int, d: float = 1.0, device: str | None = None) -> Self:
        """The frequencies of the parts that `fft` of `n` elements gives.

        Args:
            n: the number of elements.
            d: their distance.
            device: where it lives.

        Example:
            >>> Tensor.fftfreq(4).tolist()
            [0.0, 0.25, -0.5, -0.25]
        """
        count = _positive(n, "fftfreq")
        name = Device.canonicalize(device)
        numbers = [*range((count + 1) // 2), *range(-(count // 2), 0)]
        return cls._from_numbers(
            [each / (count * _distance(d)) for each in numbers], dtypes.float32, name
        )

    @classmethod
    def rfftfreq(cls, n: int, d: float = 1.0, device: str | None = None) -> Self:
        """The frequencies of the parts that `rfft` of `n` elements gives; see `fftfreq`."""
        count = _positive(n, "rfftfreq")
        name = Device.canonicalize(device)
        numbers = [each / (count * _distance(d)) for each in range(count // 2 + 1)]
        return cls._from_numbers(numbers, dtypes.float32, name)

    # --- positions ---------------------------------------------------------------------------

    def unravel_index(self, shape: Sequence[int]) -> tuple[Self, ...]:
        """Positions in a flat tensor as positions along each axis of `shape`.

        Raises:
            IndexingError: the positions are no integers.

        Example:
            >>> [x.tolist() for x in Tensor([5]).unravel_index((2, 3))]
            [[1], [2]]
        """
        if not self.dtype.is_integer:
            raise IndexingError(
                "unravel_index: the index must hold integers",
                got=self.dtype.name,
                try_="index.cast(dtypes.int64)",
            )
        found: list[Self] = []
        rest = self.cast(dtypes.int64)
        for size in reversed(tuple(shape)):
            found.append(rest % size)
            rest = rest // size
        return tuple(found[::-1])

    # --- random ------------------------------------------------------------------------------

    def bernoulli(self, p: float | None = None) -> Self:
        """1 with the probability that each element (or `p`) states, else 0.

        Example:
            >>> Tensor([0.0, 1.0]).bernoulli().tolist()
            [0.0, 1.0]
        """
        kind = self.dtype if self.dtype.is_float else dtypes.default_float
        drawn = type(self).rand(*self.shape, device=self.device)
        limit: Any = self.cast(dtypes.float32) if p is None else p
        found: Self = (drawn < limit).cast(kind)
        return found

    def gumbel_softmax(self, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Self:
        """A draw of a category from logits, which can be differentiated.

        Args:
            tau: the temperature.
            hard: give the category as one-hot numbers; the gradient is that of the soft ones.
            dim: the axis of the categories.
        """
        noise = -self._exponential().log()
        soft = ((self + noise.cast(self.dtype)) / tau).softmax(dim)
        if not hard:
            return soft
        axis = self._axis(dim, "gumbel_softmax")
        best = soft.detach().argmax(axis, keepdim=True)
        chosen: Self = soft._positions(axis).eq(best).cast(soft.dtype)
        return chosen - soft.detach() + soft

    def _exponential(self) -> Self:
        """Numbers from the exponential distribution of rate 1, in float32; never 0."""
        drawn = type(self).rand(*self.shape, device=self.device, dtype=dtypes.float32)
        return (-(1.0 - drawn).log()).clamp(min_=_LEAST_DRAWN)

    def dropout1d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """`dropout` of whole channels: (n, c, l) or (c, l)."""
        return self._channel_dropout(p, training, 1)

    def dropout2d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """`dropout` of whole channels: (n, c, h, w) or (c, h, w)."""
        return self._channel_dropout(p, training, 2)

    def dropout3d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """`dropout` of whole channels: (n, c, d, h, w) or (c, d, h, w)."""
        return self._channel_dropout(p, training, 3)

    def _channel_dropout(self, p: float, training: bool | None, axes: int) -> Self:
        if self.ndim not in (axes + 1, axes + 2):
            raise ShapeError(
                f"dropout{axes}d: needs channels",
                got=format_shape(self._dims),
                expected=f"{axes + 1} or {axes + 2} axes",
            )
        lead = self.shape[: self.ndim - axes]
        ones = type(self).ones(*lead, *[1] * axes, dtype=self.dtype, device=self.device)
        return self * ones.dropout(p, training)

    def alpha_dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Dropout after `selu`, which keeps mean and variance.

        Raises:
            UserError: `p` is no probability.
        """
        return self._alpha_dropout(p, training, self.shape)

    def feature_alpha_dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """`alpha_dropout` of whole channels: (n, c, ...).

        Raises:
            ShapeError: there are no channels to draw for; what is not dropped has any shape.
        """
        drawn = (*self.shape[:2], *[1] * (self.ndim - 2))
        return self._alpha_dropout(p, training, drawn, needs_channels=True)

    def _alpha_dropout(
        self,
        p: float,
        training: bool | None,
        drawn: Sequence[Any],
        *,
        needs_channels: bool = False,
    ) -> Self:
        """Dropout with a draw for each element of the shape `drawn`."""
        is_on = getattr(type(self), "training", False) if training is None else training
        if not 0 <= p <= 1:
            raise UserError("alpha_dropout: p is no probability", got=p, expected="0 to 1")
        if not is_on or p == 0:
            return self
        if p == 1:
            return self.zeros_like()
        if needs_channels and self.ndim < 2:
            raise ShapeError(
                "feature_alpha_dropout: needs channels",
                got=format_shape(self._dims),
                expected="(n, c, ...)",
            )
        low = -1.7580993408473766
        scale = ((1 - p) * (1 + p * low * low)) ** -0.5
        kept = type(self).rand(*drawn, device=self.device) >= p
        found: Self = kept.where(self, low) * scale - scale * low * p
        return found

    def rrelu(
        self, lower: float = 1 / 8, upper: float = 1 / 3, training: bool | None = None
    ) -> Self:
        """Negative elements times a slope, drawn from [lower, upper) when training."""
        is_on = getattr(type(self), "training", False) if training is None else training
        slope: Any = (lower + upper) / 2
        if is_on:
            drawn = type(self).uniform(*self.shape, low=lower, high=upper, device=self.device)
            slope = drawn.cast(self.dtype)
        found: Self = (self >= 0).where(self, self * slope)
        return found

    # --- for networks ------------------------------------------------------------------------

    def local_response_norm(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
    ) -> Self:
        """Each element divided by a power of the mean square of `size` channels around it.

        Args:
            size: how many channels.
            alpha: what the mean square is multiplied with.
            beta: the power.
            k: what is added before.

        Shape: (n, c, ...) -> (n, c, ...)

        Raises:
            ShapeError: there are fewer than 3 axes, or `size` is below 1.
        """
        if self.ndim < 3 or size < 1:
            raise ShapeError(
                "local_response_norm: needs (n, c, ...) and a size from 1 on",
                got=f"{format_shape(self._dims)}, size {size}",
                expected="at least 3 axes",
            )
        square = self.square().movedim(1, -1)
        pads = [(0, 0)] * (self.ndim - 1) + [(size // 2, (size - 1) // 2)]
        total = square.pad(pads).unfold(-1, size, 1).sum(-1)
        divisor = (total.movedim(-1, 1) * (alpha / size) + k).pow(beta)
        return self / divisor

    def embedding_bag(
        self,
        weight: Self,
        offsets: Self | None = None,
        mode: str = "mean",
        per_sample_weights: Self | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """Rows of a table for each position, put together bag by bag.

        Args:
            weight: the table, (rows, features).
            offsets: where each bag begins, if the positions are one vector (it is read).
            mode: "sum", "mean" or "max"; a bag without rows gives 0.
            per_sample_weights: what each row is multiplied with, in mode "sum".
            include_last_offset: the last offset is the end of the last bag.
            padding_idx: a position that does not count (the positions are read).

        Shape: self (bags, n) or, with offsets, (n,) -> (bags, features)

        Raises:
            UserError: the mode is unknown, or does not go with weights.
            ShapeError: there are no bags.
        """
        if mode not in ("sum", "mean", "max") or (per_sample_weights is not None and mode != "sum"):
            raise UserError(
                "embedding_bag: unknown mode, or weights in another one than sum",
                got=mode,
                expected="sum, mean or max",
            )
        if offsets is None and self.ndim != 2:
            raise ShapeError(
                "embedding_bag: needs a row for each bag",
                got=format_shape(self._dims),
                expected="(bags, n), or offsets",
            )
        if offsets is None and padding_idx is None and self._dims[1] != 0:
            rows = weight[self]
            if per_sample_weights is not None:
                rows = rows * per_sample_weights.unsqueeze(-1)
            return rows.max(1) if mode == "max" else getattr(rows, mode)(1)
        bags = []
        for begin, end in pairwise(self._bag_bounds(offsets, include_last_offset)):
            places = [
                place
                for place, row in enumerate(self.flatten()[begin:end]._host_array().tolist(), begin)
                if padding_idx is None or row != padding_idx % weight._fixed_size(0, "bag")
            ]
            rows = weight[self.flatten()[places]]
            if per_sample_weights is not None:
                rows = rows * per_sample_weights.flatten()[places].unsqueeze(-1)
            if not places:
                bags.append(weight[:1].zeros_like())
            else:
                bags.append((rows.max(0) if mode == "max" else getattr(rows, mode)(0)).unsqueeze(0))
        if not bags:
            return weight[:0]
        return Quantising.cat(bags[0], *bags[1:])

    def _bag_bounds(self, offsets: Self | None, has_end: bool) -> list[int]:
        """Where bags begin and end in the flat positions."""
        if offsets is None:
            count = self._fixed_size(1, "embedding_bag")
            return [count * bag for bag in range(self._fixed_size(0, "embedding_bag") + 1)]
        if not offsets.dtype.is_integer or offsets.ndim != 1:
            raise IndexingError(
                "embedding_bag: the offsets are no vector of integers",
                got=f"{offsets.dtype.name}{format_shape(offsets._dims)}",
                expected="where each bag begins",
            )
        found: list[int] = offsets._host_array().tolist()
        return found if has_end else [*found, self._count()]


def _positive(n: int, what: str) -> int:
    if n < 1:
        raise ShapeError(f"{what}: the number must be at least 1", got=n, expected="from 1 on")
    return n


def _distance(d: float) -> float:
    if not d:
        raise UserError("fftfreq: the distance of the elements is 0", got=d, expected="not 0")
    return d
