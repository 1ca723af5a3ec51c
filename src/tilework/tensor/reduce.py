"""Reductions, running folds and statistics.

Sums of small floats add up in float32, sums of integers in 64 bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.dtypes import DType, accumulation_dtype, sum_dtype
from tilework.ir.ops import tensor
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import dims
from tilework.tensor.activations import Activations
from tilework.tensor.creation import as_dtype
from tilework.tensor.named import ValuesAndIndices
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.ir.types import Dim

Axis = int | tuple[int, ...] | list[int] | None


class Reduce(Activations):
    """Folding along axes."""

    __slots__ = ()

    # --- the op ------------------------------------------------------------------------------

    def _fold(self, fold: Fold, axes: tuple[int, ...], keepdim: bool) -> Self:
        """REDUCE over axes that are in order."""
        if not axes:
            return self._apply(None)
        found = self._apply(tensor.REDUCE, attrs=tensor.ReduceAttrs(fold, axes))
        return found._kept(axes) if keepdim else found

    def _kept(self, axes: tuple[int, ...]) -> Self:
        """Axes of size 1 put back where a reduction dropped them."""
        sizes = list(self.shape)
        for axis in axes:
            sizes.insert(axis, 1)
        return self.reshape(sizes)

    def _count_over(self, axes: tuple[int, ...]) -> Dim:
        return dims.product([self._dims[axis] for axis in axes])

    def _wide(self) -> Self:
        """Small floats as float32, to compute with."""
        return self.cast(accumulation_dtype(self.dtype))

    # --- folds -------------------------------------------------------------------------------

    def sum(
        self, axis: Axis = None, keepdim: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """The sum over `axis` (all by default).

        Args:
            axis: one axis or several.
            keepdim: keep the axes with size 1.
            dtype: of the result; by default integers give 64 bits, floats their own dtype.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).sum(axis=0).tolist()
            [4, 6]
        """
        wanted = sum_dtype(self.dtype) if dtype is None else as_dtype(dtype)
        x = self.cast(wanted) if dtype is not None or not self.dtype.is_float else self
        axes = self._axes(axis, "sum")
        return x._wide()._fold(Fold.ADD, axes, keepdim).cast(wanted)

    def prod(
        self, axis: Axis = None, keepdim: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """The product over `axis` (all by default).

        Example:
            >>> Tensor([2, 3, 4]).prod().item()
            24
        """
        wanted = sum_dtype(self.dtype) if dtype is None else as_dtype(dtype)
        x = self.cast(wanted) if dtype is not None or not self.dtype.is_float else self
        axes = self._axes(axis, "prod")
        return x._wide()._fold(Fold.MUL, axes, keepdim).cast(wanted)

    def max(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """The greatest element over `axis`; NaN if there is one.

        Raises:
            ShapeError: there is no element.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).max(1).tolist()
            [2, 4]
        """
        axes = self._nonempty(axis, "max")
        return self._fold(Fold.MAX, axes, keepdim)

    def min(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """The least element over `axis`; NaN if there is one."""
        axes = self._nonempty(axis, "min")
        return self._fold(Fold.MIN, axes, keepdim)

    def amax(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Another name for `max`."""
        return self.max(axis, keepdim)

    def amin(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Another name for `min`."""
        return self.min(axis, keepdim)

    def _nonempty(self, axis: Axis, what: str) -> tuple[int, ...]:
        axes = self._axes(axis, what)
        if any(self._dims[one] == 0 for one in axes):
            raise ShapeError(
                f"{what}: there is no element to choose from",
                got=f"shape {format_shape(self._dims)}, axes {axes}",
                expected="at least one element along each of the axes",
            )
        return axes

    def any(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Whether an element is not zero.

        Example:
            >>> Tensor([[0, 1], [0, 0]]).any(1).tolist()
            [True, False]
        """
        return self._truth()._fold(Fold.MAX, self._axes(axis, "any"), keepdim)

    def all(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Whether no element is zero.

        Example:
            >>> Tensor([[0, 1], [2, 3]]).all(1).tolist()
            [False, True]
        """
        return self._truth()._fold(Fold.MIN, self._axes(axis, "all"), keepdim)

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The position (int64) of the greatest element, the first of equals; NaN is greatest.

        Example:
            >>> Tensor([[1, 9], [7, 4]]).argmax(1).tolist()
            [1, 0]
        """
        return self._position_of(Fold.MAX, axis, keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The position (int64) of the least element, the first of equals; NaN is least."""
        return self._position_of(Fold.MIN, axis, keepdim)

    def _position_of(self, fold: Fold, axis: int | None, keepdim: bool) -> Self:
        what = "argmax" if fold is Fold.MAX else "argmin"
        if axis is None:
            found = self.flatten()._position_of(fold, 0, keepdim=False)
            return found.reshape((1,) * self.ndim) if keepdim else found
        (where,) = self._nonempty(axis, what) or (0,)
        x = self.detach() if self.ndim else self.detach().reshape(1)
        best = x._fold(fold, (where,), keepdim=True)
        is_best = (x == best) | x.isnan() if self.dtype.is_float else x == best
        position = is_best.where(x._positions(where), dims.greatest(x._dims[where]))
        return position._fold(Fold.MIN, (where,), keepdim and self.ndim > 0)

    # --- statistics --------------------------------------------------------------------------

    def mean(
        self, axis: Axis = None, keepdim: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """The mean over `axis`; of integers as float32, from an exact sum.

        Args:
            axis: what is averaged, everything by default.
            keepdim: keep the axes with size 1.
            dtype: converts to this first.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).mean(1).tolist()
            [1.5, 3.5]
        """
        if dtype is not None:
            return self.cast(dtype).mean(axis, keepdim)
        axes = self._axes(axis, "mean")
        count = self._count_over(axes)
        if self.dtype.is_float:
            total = self._wide()._fold(Fold.ADD, axes, keepdim)
            return (total / total._size_as(count, total.dtype)).cast(self.dtype)
        total = self.sum(axes, keepdim).cast(dtypes.float64)
        return (total / total._size_as(count, dtypes.float64)).cast(dtypes.default_float)

    def _size_as(self, size: Dim, dtype: DType) -> Self:
        """A size as a number to compute with."""
        if isinstance(size, int):
            return self._number(size, dtype)
        found = self._from_node(size, self.device, self._bindings).cast(dtype)
        return found._broadcast_to(self._dims, self._bindings, "size")

    def var(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The variance over `axis`, the sum of squares divided by the count less `correction`.

        Of float32 it is computed in float64, in which no square and no sum of them overflows.

        Example:
            >>> Tensor([1.0, 3.0]).var().item()
            2.0
        """
        axes = self._axes(axis, "var")
        x = self._for_squares()
        center = x.mean(axes, keepdim=True)
        total = (x - center).square()._fold(Fold.ADD, axes, keepdim)
        count = total._size_as(self._count_over(axes), total.dtype) - correction
        found = total / (count > 0).where(count, 0.0)
        return found.cast(self.dtype if self.dtype.is_float else dtypes.default_float)

    def _for_squares(self) -> Self:
        """The elements in a dtype that holds their squares: float64 unless they are small floats.

        Squares of small floats, from 2^-48 to 2^32, fit into float32, but those of bfloat16, which
        has its range.
        """
        is_small = self.dtype.is_float and self.dtype.exponent_bits < dtypes.float32.exponent_bits
        return self._wide() if is_small else self.cast(dtypes.float64)

    def std(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The square root of `var`, rounded once to the dtype."""
        found = self._for_squares().var(axis, keepdim, correction)._root()
        return found.cast(self.dtype if self.dtype.is_float else dtypes.default_float)

    def var_mean(
        self, axis: Axis = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """`var` and `mean`."""
        return self.var(axis, keepdim, correction), self.mean(axis, keepdim)

    def std_mean(
        self, axis: Axis = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """`std` and `mean`."""
        return self.std(axis, keepdim, correction), self.mean(axis, keepdim)

    def norm(
        self,
        p: float | str = 2.0,
        dim: Axis = None,
        keepdim: bool = False,
        dtype: DType | str | None = None,
    ) -> Self:
        """The p-norm over `dim`: of p = 0 the count of what is not 0; its gradient at 0 is 0.

        Args:
            p: a number, or "fro" for 2, or "nuc" for the sum of singular values.
            dim: the axes, all by default; "nuc" needs two.
            keepdim: keep them with size 1.
            dtype: converts to this first.

        Example:
            >>> Tensor([3.0, 4.0]).norm().item()
            5.0
        """
        x = self._as_float() if dtype is None else self.cast(dtype)
        if p == "nuc":
            matrices: Any = x  # what has methods of linear algebra
            found: Self = matrices.matrix_norm("nuc", (-2, -1) if dim is None else dim, keepdim)
            return found
        if isinstance(p, str):
            if p != "fro":
                raise UserError(
                    "norm: unknown norm", got=repr(p), expected='a number, "fro", "nuc"'
                )
            p = 2.0
        axis = dim
        if p == math.inf:
            return x.abs().max(axis, keepdim)
        if p == -math.inf:
            return x.abs().min(axis, keepdim)
        if p == 0:
            return x.ne(0).cast(x._wide().dtype).sum(axis, keepdim).cast(x.dtype)
        if p == 2:
            return x._wide().square().sum(axis, keepdim)._root().cast(x.dtype)
        total = (x.abs()._wide() ** p).sum(axis, keepdim)
        return (total._root(p) if p > 0 else total.pow(1 / p)).cast(x.dtype)

    def _root(self, p: float = 2.0) -> Self:
        """The p-th root of a sum of magnitudes; at 0, where it has a corner, its gradient is 0."""
        is_zero = self.eq(0)
        return is_zero.where(0, is_zero.where(1, self).pow(1 / p))

    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """Each vector along `dim` divided by its p-norm, or by `eps` if that is greater."""
        return self / self.norm(p, dim, keepdim=True).maximum(eps)

    # --- exponentials ------------------------------------------------------------------------

    def softmax(self, axis: int = -1, dtype: DType | str | None = None) -> Self:
        """exp(self) divided by its sum along `axis`.

        Example:
            >>> Tensor([1.0, 1.0]).softmax().tolist()
            [0.5, 0.5]
        """
        x = self._as_float() if dtype is None else self.cast(dtype)
        if not x.ndim:
            return x.ones_like()
        where = (self._axis(axis, "softmax"),)
        wide = x._wide()
        raised = (wide - wide._safe_max(where)).exp()
        return (raised / raised._fold(Fold.ADD, where, keepdim=True)).cast(x.dtype)

    def _safe_max(self, axes: tuple[int, ...]) -> Self:
        """The maximum to subtract before exp; no gradient flows through it."""
        if any(self._dims[axis] == 0 for axis in axes):
            return self.detach()._fold(Fold.ADD, axes, keepdim=True)
        return self.detach()._fold(Fold.MAX, axes, keepdim=True)

    def softmin(self, axis: int = -1, dtype: DType | str | None = None) -> Self:
        """`softmax` of the negative."""
        return (-self).softmax(axis, dtype)

    def log_softmax(self, axis: int = -1, dtype: DType | str | None = None) -> Self:
        """log(softmax(self)) without overflow or loss."""
        x = self._as_float() if dtype is None else self.cast(dtype)
        if not x.ndim:
            return x.zeros_like()
        where = (self._axis(axis, "log_softmax"),)
        wide = x._wide()
        shifted = wide - wide._safe_max(where)
        total = shifted.exp()._fold(Fold.ADD, where, keepdim=True)
        return (shifted - total.log()).cast(x.dtype)

    def logsumexp(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """log of the sum of exp; -inf where all elements are."""
        x = self._as_float()
        axes = self._axes(axis, "logsumexp") if self.ndim else ()
        wide = x._wide()
        top = wide._safe_max(axes)
        top = top.abs().eq(math.inf).where(0.0, top)
        total = (wide - top).exp()._fold(Fold.ADD, axes, keepdim=True).log() + top
        found = total.cast(x.dtype)
        if keepdim:
            return found
        return found.reshape([size for axis_, size in enumerate(x.shape) if axis_ not in axes])

    # --- running folds -----------------------------------------------------------------------

    def _scan(self, fold: Fold, axis: int, **options: bool) -> Self:
        attrs = tensor.ScanAttrs(fold, axis, **options)
        return self._apply(tensor.SCAN, attrs=attrs)

    def _running(self, fold: Fold, axis: int, what: str, dtype: DType | str | None = None) -> Self:
        wanted = sum_dtype(self.dtype) if dtype is None else as_dtype(dtype)
        if not self.ndim:
            return self.cast(wanted)._apply(None)
        where = self._axis(axis, what)
        return self.cast(wanted)._wide()._scan(fold, where).cast(wanted)

    def cumsum(self, axis: int = 0, dtype: DType | str | None = None) -> Self:
        """The running sum along `axis`; integers add up in 64 bits.

        Example:
            >>> Tensor([1, 2, 3]).cumsum(0).tolist()
            [1, 3, 6]
        """
        return self._running(Fold.ADD, axis, "cumsum", dtype)

    def cumprod(self, axis: int = 0, dtype: DType | str | None = None) -> Self:
        """The running product along `axis`; integers multiply in 64 bits."""
        return self._running(Fold.MUL, axis, "cumprod", dtype)

    def cummax(self, axis: int = 0) -> ValuesAndIndices[Self]:
        """The running maximum along `axis`, and the position (int64) where it was last found."""
        return self._running_best(Fold.MAX, axis)

    def cummin(self, axis: int = 0) -> ValuesAndIndices[Self]:
        """The running minimum along `axis`, and the position (int64) where it was last found."""
        return self._running_best(Fold.MIN, axis)

    def _running_best(self, fold: Fold, axis: int) -> ValuesAndIndices[Self]:
        if not self.ndim:
            return ValuesAndIndices(self._apply(None), self._constant(0, dtypes.index))
        where = self._axis(axis, "cummax" if fold is Fold.MAX else "cummin")
        best = self._scan(fold, where)
        x, found = self.detach(), best.detach()
        is_best = (x == found) | x.isnan() if self.dtype.is_float else x == found
        position = is_best.where(x._positions(where), 0)._scan(Fold.MAX, where)
        return ValuesAndIndices(best, position)

    def logcumsumexp(self, axis: int = 0) -> Self:
        """log of the running sum of exp; as many passes over the axis as its length has bits."""
        if not self.ndim:
            return self._apply(None)
        where = self._axis(axis, "logcumsumexp")
        found = self._as_float()._wide()
        length = found._fixed_size(where, "logcumsumexp")
        step = 1
        while step < length:
            pads: list[tuple[Dim, Dim]] = [(0, 0)] * found.ndim
            pads[where] = (step, 0)
            shifted = found._cut_axis(where, 0, length - step)._zero_pad(pads)
            before = (found._positions(where) < step).where(-math.inf, shifted)
            found = before.logaddexp(found).contiguous()
            step *= 2
        found = found.cast(dtypes.float_of(self.dtype))
        return found._apply(None) if length == 1 else found
