"""Convolution and pooling over any number of axes, as windows, a product and a fold.

Padding is read as `padding.py` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.base.integers import ceil_div
from tilework.base.records import dataclass
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import dims
from tilework.tensor.autocasting import narrowed
from tilework.tensor.padding import Ints, named_padding, per_axis, read_padding
from tilework.tensor.transposed import Transposed
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType


@dataclass(frozen=True)
class _Plan:
    """A convolution: everything but its operands."""

    groups: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    def gradients(self, sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
        """Of the input (the adjoint convolution, no column matrix in between) and the weight."""
        x, weight = sources
        extra = []
        for number, (low, high) in enumerate(self.pads):
            reached = dims.mul(dims.sub(g._dims[2 + number], 1), self.stride[number])
            reached = dims.add(reached, self.dilation[number] * (self.kernel[number] - 1) + 1)
            extra.append(dims.sub(dims.add(x._dims[2 + number], low + high), reached))
        flat = [count for pair in self.pads[::-1] for count in pair]
        of_input = g.conv_transpose2d(
            weight, None, self.groups, self.stride, self.dilation, flat, extra
        )
        return of_input, x._weight_gradient(g, self)


class Convolution(Transposed):
    """conv2d, pooling."""

    __slots__ = ()

    # --- windows -----------------------------------------------------------------------------

    def _pooled(
        self, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], what: str
    ) -> Self:
        """Windows over the last axes.

        Shape: (..., h, w) -> (..., oh, ow, kh, kw)
        """
        count = len(kernel)
        first = self.ndim - count
        for axis, (size, spread) in enumerate(zip(kernel, dilation, strict=True), first):
            reach = (size - 1) * spread + 1
            if dims.greatest(self._dims[axis]) < reach:
                raise ShapeError(
                    f"{what}: the kernel is larger than the input with its padding",
                    got=f"kernel of {reach} on axis {axis} of {format_shape(self._dims)}",
                )
        x = self
        for number in range(count):
            x = x._window(first + 2 * number, kernel[number], stride[number], dilation[number])
        positions = [first + 2 * number for number in range(count)]
        taps = [first + 2 * number + 1 for number in range(count)]
        return x.permute([*range(first), *positions, *taps])

    # --- convolution -------------------------------------------------------------------------

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Ints = 1,
        dilation: Ints = 1,
        padding: Ints = 0,
        dtype: DType | str | None = None,
    ) -> Self:
        """Convolution over as many axes as the weight has behind its first two.

        Args:
            weight: what is summed with each window.
            bias: added to each output channel.
            groups: parts of the channels that don't mix.
            stride: distance of windows, in elements.
            dilation: distance of taps, in elements.
            padding: zeros around the input; see the module. They take part in the sums, so that an
                infinite weight gives NaN at them.
            dtype: of the result; by default integers give 64 bits.

        Shape: self (n, ci, h, w), weight (co, ci / groups, kh, kw), bias (co,) -> (n, co, oh, ow);
            without n in both, a single image

        Raises:
            ShapeError: channels, groups or sizes don't fit.
        """
        if weight.ndim < 3:
            raise ShapeError(
                "conv2d: the weight has too few axes",
                got=format_shape(weight._dims),
                expected="(co, ci / groups, kh, kw), with as many last axes as are convolved",
            )
        if self.ndim == weight.ndim - 1:
            one = self.unsqueeze(0)
            return one.conv2d(weight, bias, groups, stride, dilation, padding, dtype).squeeze(0)
        self._check_channels(weight, weight._dims[1], groups, "conv2d")
        count = weight.ndim - 2
        self, weight = narrowed(self, weight) if dtype is None else (self, weight)
        compute, result = self._product_dtypes(weight, dtype)
        kernel = tuple([weight._fixed_size(axis, "conv2d") for axis in range(2, weight.ndim)])
        plan = _Plan(
            groups,
            kernel,
            per_axis(stride, count, "conv2d"),
            per_axis(dilation, count, "conv2d"),
            tuple(named_padding(padding, kernel, stride, dilation)),
        )
        x, w = self.cast(compute), weight.cast(compute)
        found = x._correlated(w, plan)
        if compute.is_float:
            found = found._with_gradient(plan.gradients, x, w)
        if bias is not None:
            found = found + bias.cast(compute).reshape(1, -1, *(1,) * count)
        return found.cast(result)

    def _patches(self, plan: _Plan) -> Self:
        """Windows of the padded input.

        Shape: (n, ci, h, w) -> (n, groups, 1, oh, ow, ci / groups, kh, kw)
        """
        count = len(plan.kernel)
        x = self._pad_axes(plan.pads)
        x = x._pooled(plan.kernel, plan.stride, plan.dilation, "conv2d")
        per_group = x._fixed_size(1, "conv2d") // plan.groups
        places = x.shape[2 : 2 + count]
        x = x.reshape(self.shape[0], plan.groups, 1, per_group, *places, *plan.kernel)
        return x.permute(0, 1, 2, *range(4, 4 + count), 3, *range(4 + count, 4 + 2 * count))

    def _correlated(self, weight: Self, plan: _Plan) -> Self:
        """The sum of products of each window with the weight."""
        count = len(plan.kernel)
        out, per_group = weight._fixed_size(0, "conv2d"), weight._fixed_size(1, "conv2d")
        x = self._patches(plan)
        places = x.shape[3 : 3 + count]
        spread = (self.shape[0], plan.groups, out // plan.groups, *places, per_group, *plan.kernel)
        w = weight.reshape(1, *spread[1:3], *(1,) * count, per_group, *plan.kernel)
        axes = tuple(range(x.ndim - count - 1, x.ndim))
        found = (x.expand(spread) * w.expand(spread))._fold(Fold.ADD, axes, keepdim=False)
        return found.reshape(self.shape[0], out, *places)

    def _weight_gradient(self, g: Self, plan: _Plan) -> Self:
        """What the weight gets from the gradient of the output."""
        count = len(plan.kernel)
        x = self._patches(plan)
        out = g._fixed_size(1, "conv2d")
        shape = list(x.shape)
        shape[2] = out // plan.groups
        grown = g.reshape(*shape[:3], *shape[3 : 3 + count], *(1,) * (count + 1))
        axes = (0, *range(3, 3 + count))
        found = (x.expand(shape) * grown.expand(shape))._fold(Fold.ADD, axes, keepdim=False)
        return found.reshape(out, *shape[3 + count :])

    def _check_channels(self, weight: Self, channels: Any, groups: int, what: str) -> None:
        fits = (
            self.ndim == weight.ndim >= 3
            and groups >= 1
            and dims.mul(channels, groups) == self._dims[1]
            and dims.greatest(weight._dims[0]) % groups == 0
        )
        if not fits:
            raise ShapeError(
                f"{what}: the weight doesn't fit",
                got=f"input {format_shape(self._dims)}, weight {format_shape(weight._dims)}, "
                f"groups {groups}",
                expected="(n, ci, ...) and (co, ci / groups, ...), co a multiple of groups",
            )

    # --- pooling -----------------------------------------------------------------------------

    def _pool_sizes(
        self, kernel_size: Ints, stride: Ints | None, dilation: Ints, what: str
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        given = tuple(kernel_size) if hasattr(type(kernel_size), "__len__") else (kernel_size,) * 2
        kernel = per_axis(given, len(given), what)
        if len(kernel) > self.ndim:
            raise ShapeError(
                f"{what}: the kernel has more axes than the input",
                got=f"{kernel} for {format_shape(self._dims)}",
            )
        steps = kernel if stride is None else per_axis(stride, len(kernel), what)
        return kernel, steps, per_axis(dilation, len(kernel), what)

    def _overhang(
        self,
        pads: Sequence[tuple[int, int]],
        sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    ) -> list[tuple[int, int]]:
        """More padding behind, so that a last window that starts inside is not lost."""
        kernel, stride, dilation = sizes
        found = []
        first = self.ndim - len(kernel)
        for number, (low, high) in enumerate(pads):
            size = self._fixed_size(first + number, "ceil_mode")
            reach = dilation[number] * (kernel[number] - 1) + 1
            count = ceil_div(size + low + high - reach, stride[number]) + 1
            if (count - 1) * stride[number] >= size + low:
                count -= 1  # it would lie wholly in the padding behind
            total = (count - 1) * stride[number] + reach
            found.append((low, max(high, total - size - low)))
        return found

    def avg_pool2d(
        self,
        kernel_size: Ints = (2, 2),
        stride: Ints | None = None,
        dilation: Ints = 1,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:
        """The mean of each window over the last axes.

        Args:
            kernel_size: size of the window; one for each pooled axis.
            stride: distance of windows; the kernel's size by default.
            dilation: distance of taps.
            padding: zeros around the input; see the module.
            ceil_mode: keep a last window that reaches out.
            count_include_pad: whether padding counts in the mean.
            divisor_override: what sums are divided by instead of the count.

        Raises:
            ShapeError: a size or a step is below 1, or the window has too many axes.
            UserError: `divisor_override` is 0.
        """
        if divisor_override == 0:
            raise UserError(
                "avg_pool2d: divisor_override is 0", got=0, expected="a number other than 0"
            )
        sizes = self._pool_sizes(kernel_size, stride, dilation, "avg_pool2d")
        count = len(sizes[0])
        pads = read_padding(padding, count, "avg_pool2d")
        grown = self._overhang(pads, sizes) if ceil_mode else pads
        x = self._wide() if self.dtype.is_float else self.float()
        axes = tuple(range(x.ndim, x.ndim + count))
        total = x._pad_axes(grown)._pooled(*sizes, "avg_pool2d")._fold(Fold.ADD, axes, False)
        if divisor_override is not None:
            mean = total / divisor_override
        elif not ceil_mode and (count_include_pad or all(pair == (0, 0) for pair in pads)):
            taps = 1
            for size in sizes[0]:
                taps *= size
            mean = total / taps
        else:
            mean = total / x._window_counts(pads, grown, sizes, count_include_pad)
        return mean.cast(self.dtype) if self.dtype.is_float else mean

    def _window_counts(
        self,
        pads: Sequence[tuple[int, int]],
        grown: Sequence[tuple[int, int]],
        sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
        count_include_pad: bool,
    ) -> Self:
        """How many elements count in each window."""
        count = len(sizes[0])
        ones = type(self).ones(*self.shape[self.ndim - count :], device=self.device)
        if count_include_pad:
            ones = ones._pad_axes(pads, value=1)
            extra = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(pads, grown, strict=True)]
        else:
            extra = list(grown)
        windows = ones._pad_axes(extra)._pooled(*sizes, "avg_pool2d")
        found = windows._fold(Fold.ADD, tuple(range(count, 2 * count)), keepdim=False)
        return found.cast(self.dtype)

    def max_pool2d(
        self,
        kernel_size: Ints = (2, 2),
        stride: Ints | None = None,
        dilation: Ints = 1,
        padding: Ints = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The greatest element of each window over the last axes; padding never wins.

        Of equal elements the first one gets the gradient.

        Args:
            kernel_size: size of the window; one for each pooled axis.
            stride: distance of windows; the kernel's size by default.
            dilation: distance of taps.
            padding: around the input; see the module.
            ceil_mode: keep a last window that reaches out.
            return_indices: give the positions too, counted over the pooled axes.
        """
        sizes = self._pool_sizes(kernel_size, stride, dilation, "max_pool2d")
        count = len(sizes[0])
        pads = read_padding(padding, count, "max_pool2d")
        grown = self._overhang(pads, sizes) if ceil_mode else pads
        windows = self._pad_axes(grown, self._least())._pooled(*sizes, "max_pool2d")
        axes = tuple(range(self.ndim, self.ndim + count))
        spatial = self.shape[self.ndim - count :]
        count_of = dims.greatest(dims.product(spatial))
        place = type(self).arange(count_of, dtype=dtypes.int64, device=self.device)
        place = place.reshape(spatial)._pad_axes(grown, 1 << 62)._pooled(*sizes, "max_pool2d")
        found = windows._greatest_in(axes, place)
        return (found, windows._first_greatest(axes, place)) if return_indices else found

    def _greatest_in(self, axes: tuple[int, ...], place: Self) -> Self:
        """The greatest over `axes`; of equals the one at the least `place` gets the gradient."""

        def rule(sources: tuple[Self, ...], g: Self) -> tuple[Self, ...]:
            first = sources[0]._first_greatest(axes, place)
            for axis in axes:
                first, g = first.unsqueeze(axis), g.unsqueeze(axis)
            return (place.eq(first).where(g, 0.0),)

        found = self._fold(Fold.MAX, axes, keepdim=False)
        return found._with_gradient(rule, self) if self.dtype.is_float else found

    def _first_greatest(self, axes: tuple[int, ...], place: Self) -> Self:
        """The least `place` of the greatest elements over `axes`; NaN is greatest."""
        x = self.detach()
        best = x._fold(Fold.MAX, axes, keepdim=True)
        is_best = x.eq(best) | x.isnan()
        return is_best.where(place, 1 << 62)._fold(Fold.MIN, axes, keepdim=False)

    def _least(self) -> Any:
        if self.dtype.is_float:
            return float("-inf")
        return False if self.dtype.is_bool else self.dtype.minimum

    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: Ints = (2, 2),
        stride: Ints | None = None,
        dilation: Ints = 1,
        padding: Ints = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """The elements at the places where `max_pool2d` found them, zeros elsewhere."""
        kernel, steps, spread = self._pool_sizes(kernel_size, stride, dilation, "max_unpool2d")
        count = len(kernel)
        first = self.ndim - count
        pads = read_padding(padding, count, "max_unpool2d")
        if output_size is None:
            target = [
                (self._fixed_size(first + i, "max_unpool2d") - 1) * steps[i]
                + spread[i] * (kernel[i] - 1) + 1 - sum(pads[i])
                for i in range(count)
            ]  # fmt: skip
        else:
            target = list(output_size)[-count:]
        lead = self.shape[:first]
        flat = self.reshape(*lead, -1)
        total = 1
        for size in target:
            total *= size
        zeros = type(self).zeros(*lead, total, dtype=self.dtype, device=self.device)
        return zeros.scatter(-1, indices.reshape(flat.shape), flat).reshape(*lead, *target)
