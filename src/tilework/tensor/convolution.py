"""Convolution and pooling over any number of axes, as windows, a product and a fold.

Padding is given as in PyTorch: a number, one for each axis, or before and after each axis from the
last to the first.  Negative padding cuts off.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.base.integers import ceil_div
from tilework.base.records import dataclass
from tilework.ir.ops import tensor
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import dims
from tilework.tensor.autocasting import narrowed
from tilework.tensor.counting import Counting
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.types import Dim

Ints = Any  # one int for all axes, or a sequence with one for each


def per_axis(value: Ints, count: int, what: str, least: int = 1) -> tuple[int, ...]:
    """One number for each axis, none below `least`."""
    found = tuple(value) if hasattr(type(value), "__len__") else (value,) * count
    if len(found) != count:
        raise ShapeError(
            f"{what}: needs a number, or one for each of the {count} axes", got=f"{value}"
        )
    if not all(hasattr(type(one), "__index__") and one >= least for one in found):
        raise ShapeError(
            f"{what}: a size or step does not fit",
            got=f"{value!r}",
            expected=f"integers from {least} on",
        )
    return tuple(one.__index__() for one in found)


def read_padding(padding: Ints, count: int, what: str) -> list[tuple[int, int]]:
    """(before, after) for each axis, from the first to the last."""
    if isinstance(padding, int):
        return [(padding, padding)] * count
    given = tuple(padding)
    if len(given) == count:
        return [(one, one) for one in given]
    if len(given) != 2 * count:
        raise ShapeError(
            f"{what}: the padding doesn't fit",
            got=f"{padding}",
            expected=f"a number, {count}, or {2 * count} (before and after, last axis first)",
        )
    return [(given[2 * i], given[2 * i + 1]) for i in range(count)][::-1]


def named_padding(
    padding: Ints | str, kernel: tuple[int, ...], stride: Ints, dilation: Ints
) -> list[tuple[int, int]]:
    """The padding of a convolution, which may be "valid" (none) or "same" (of a stride of 1).

    Returns:
        (before, after) for each axis, from the first to the last; an odd one comes after.
    """
    count = len(kernel)
    if not isinstance(padding, str):
        return read_padding(padding, count, "conv2d")
    if padding == "valid":
        return [(0, 0)] * count
    if padding != "same":
        raise UserError(
            "conv2d: unknown padding", got=padding, expected='numbers, "valid" or "same"'
        )
    if any(step != 1 for step in per_axis(stride, count, "conv2d")):
        raise UserError('conv2d: padding "same" needs stride 1', got=f"{stride}")
    spread = per_axis(dilation, count, "conv2d")
    total = [step * (size - 1) for step, size in zip(spread, kernel, strict=True)]
    return [(each // 2, each - each // 2) for each in total]


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


@dataclass(frozen=True)
class Adjoint:
    """The adjoint of a convolution: everything but its operands."""

    groups: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    extra: tuple[int, ...]

    def has_phases(self, shape: tuple[Dim, ...]) -> bool:
        """Whether places fall into classes, each of which is reached by taps of its own."""
        steps = list(zip(self.stride, self.dilation, strict=True))
        are_known = all(isinstance(size, int) and size > 0 for size in shape[2:])
        is_apart = all(step == 1 or spread == 1 for step, spread in steps)
        return are_known and is_apart and any(step > 1 for step in self.stride)

    def phases(self, axis: int) -> list[tuple[int, int, int]]:
        """The first of some neighbouring classes of places, the last, and how many taps each has.

        There are two numbers of taps at most; classes that no tap reaches are left out.
        """
        step = self.stride[axis]
        taps, more = divmod(self.kernel[axis], step)
        found = [(0, more, taps + 1), (more, step, taps)]
        return [(start, stop, count) for start, stop, count in found if stop > start and count]

    def alone(self, kernel: tuple[int, ...]) -> Adjoint:
        """The convolution of one class, which has a stride of 1."""
        none = (0,) * len(kernel)
        return Adjoint(self.groups, kernel, (1,) * len(kernel), self.dilation, none)

    def sizes(self, own: list[int]) -> list[int]:
        """The sizes of the result of an operand of such sizes."""
        each = zip(own, self.kernel, self.stride, self.dilation, self.extra, strict=True)
        return [
            (size - 1) * step + spread * (taps - 1) + 1 + extra
            for size, taps, step, spread, extra in each
        ]


class Convolution(Counting):
    """conv2d, conv_transpose2d, pooling."""

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

    def _pad_axes(self, pads: Sequence[tuple[int, int]], value: Any = 0) -> Self:
        """Padding of the last axes."""
        rest = self.ndim - len(pads)
        return self.pad(((0, 0),) * rest + tuple(pads), value=value)

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
            padding: zeros around the input; see the module.
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

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Ints = 1,
        dilation: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
    ) -> Self:
        """The adjoint of `conv2d`: each element spreads the weight over its window.

        Shape: self (n, ci, h, w), weight (ci, co / groups, kh, kw) -> (n, co, oh, ow) with
            oh = (h - 1) * stride - padding before and after + dilation * (kh - 1) + 1 +
            output_padding

        Raises:
            ShapeError: channels, groups or sizes don't fit.
        """
        what = "conv_transpose2d"
        if self.ndim == weight.ndim - 1:
            rest = (groups, stride, dilation, padding, output_padding)
            return self.unsqueeze(0).conv_transpose2d(weight, bias, *rest).squeeze(0)
        if self.ndim != weight.ndim or weight._dims[0] != self._dims[1] or groups < 1:
            raise ShapeError(
                f"{what}: the weight doesn't fit",
                got=f"input {format_shape(self._dims)}, weight {format_shape(weight._dims)}",
                expected="(n, ci, ...) and (ci, co / groups, ...)",
            )
        count = weight.ndim - 2
        self, weight = narrowed(self, weight)
        compute, result = self._product_dtypes(weight, None)
        kernel = tuple([weight._fixed_size(axis, what) for axis in range(2, weight.ndim)])
        steps, spread = per_axis(stride, count, what), per_axis(dilation, count, what)
        extra = per_axis(output_padding, count, what, least=0)
        x, weight = self.cast(compute), weight.cast(compute)
        form = Adjoint(groups, kernel, steps, spread, extra)
        found = x._by_phases(weight, form) if form.has_phases(x._dims) else x._by_taps(weight, form)
        cuts = read_padding(padding, count, what)
        found = found._pad_axes([(-low, -high) for low, high in cuts])
        if bias is not None:
            found = found + bias.cast(compute).reshape(1, -1, *(1,) * count)
        return found.cast(result)

    def _by_taps(self, weight: Self, form: Adjoint) -> Self:
        """Each place adds up the taps that it is reached by; the others count as zeros."""
        x, count = self, len(form.kernel)
        for number in range(count):
            x = x._spread(
                2 + 2 * number, form.kernel[number], form.stride[number], form.dilation[number],
                form.extra[number],
            )  # fmt: skip
        channels, per_group = weight._fixed_size(0, "conv"), weight._fixed_size(1, "conv")
        batch, places = self.shape[0], x.shape[2::2]
        # (n, g, c, 1, oh, kh, ow, kw) * (1, g, c, o, 1, kh, 1, kw), added over c, kh, kw.
        inner = channels // form.groups
        taps = [size for pair in zip(places, form.kernel, strict=True) for size in pair]
        x = x.reshape(batch, form.groups, inner, 1, *taps)
        x = x.expand(batch, form.groups, inner, per_group, *taps)
        spaced = [size for each in form.kernel for size in (1, each)]
        w = weight.reshape(1, form.groups, inner, per_group, *spaced).expand(x.shape)
        axes = (2, *[5 + 2 * number for number in range(count)])
        found = (x * w)._fold(Fold.ADD, axes, keepdim=False)
        return found.reshape(batch, form.groups * per_group, *places)

    def _by_phases(self, weight: Self, form: Adjoint) -> Self:
        """With a stride of s, places r, r + s, ... are reached by taps r, r + s, ... alone.

        So they are a convolution of their own that has a stride of 1, and those that have as many
        taps are one: their weights are channels beside each other.
        """
        count = len(form.kernel)
        own_sizes = [self._fixed_size(2 + number, "conv") for number in range(count)]
        classes = [form.phases(axis) for axis in range(count)]
        most = form.alone(tuple([each[0][2] for each in classes])).sizes(own_sizes)
        parts = [self._phases(weight, form, chosen, most) for chosen in product(*classes)]
        for axis in reversed(range(count)):
            each = len(classes[axis])
            rows = [parts[start : start + each] for start in range(0, len(parts), each)]
            parts = [row[0].cat(*row[1:], dim=2 + axis) if row[1:] else row[0] for row in rows]
        # (n, o, rh, rw, qh, qw) -> (n, o, qh, rh, qw, rw)
        (found,) = parts
        if any(stop - start > 1 for each in classes if each[1:] for start, stop, _ in each):
            found = found.contiguous()  # else joined parts are read lane by lane
        order = [axis for number in range(count) for axis in (2 + count + number, 2 + number)]
        found = found.permute(0, 1, *order)
        # Places that no tap reaches are zeros.
        pads: list[tuple[int, int]] = []
        for axis, step in enumerate(form.stride):
            pads += [(0, 0), (0, step - classes[axis][-1][1])]
        found = found._pad_axes(pads)
        whole = [size * step for size, step in zip(most, form.stride, strict=True)]
        found = found.reshape(self.shape[0], weight._fixed_size(1, "conv") * form.groups, *whole)
        rest = zip(form.sizes(own_sizes), whole, strict=True)
        return found._pad_axes([(0, size - here) for size, here in rest])

    def _phases(
        self,
        weight: Self,
        form: Adjoint,
        chosen: Sequence[tuple[int, int, int]],
        most: Sequence[int],
    ) -> Self:
        """What some classes of places get: (n, o, classes of each axis, places of each axis)."""
        count = len(chosen)
        for number, (start, stop, taps) in enumerate(chosen):
            axis, step, own = 2 + 2 * number, form.stride[number], form.kernel[number]
            shape = weight.shape
            pads: list[tuple[int, int]] = [(0, 0)] * weight.ndim
            pads[axis] = (0, taps * step - own)
            weight = weight._pad_axes(pads).reshape(*shape[:axis], taps, step, *shape[axis + 1 :])
            weight = weight._cut_axis(axis + 1, start, stop)
        inner = [2 + 2 * number for number in range(count)]
        weight = weight.permute(0, 1, *[axis + 1 for axis in inner], *inner)
        kernel = tuple([taps for _, _, taps in chosen])
        widths = [stop - start for start, stop, _ in chosen]
        own_form = form.alone(kernel)
        channels = weight._fixed_size(1, "conv")
        flat = weight.reshape(weight.shape[0], channels * prod(widths), *kernel)
        found = self._by_taps(flat, own_form).contiguous()
        sizes = found.shape[2:]
        found = found.reshape(self.shape[0], channels * form.groups, *widths, *sizes)
        pads = [(0, size - int(here)) for size, here in zip(most, sizes, strict=True)]
        return found._pad_axes(pads)

    def _spread(self, axis: int, size: int, stride: int, dilation: int, extra: int) -> Self:
        """Axis `axis` becomes (places, taps): the windows that each place is reached from."""
        last = dims.mul(dims.sub(self._dims[axis], 1), stride)
        total = dims.add(last, (size - 1) * dilation + 1 + extra)
        sizes = list(self.shape)
        sizes.insert(axis + 1, size)
        grown = self.unsqueeze(axis + 1).expand(sizes)
        attrs = tensor.WindowAttrs(axis, total, size, stride, dilation)
        return grown._apply(tensor.UNWINDOW, attrs=attrs)

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
