"""The adjoint of convolution: each element spreads the weight over its window."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Self

from tilework.base.errors import ShapeError
from tilework.base.records import dataclass
from tilework.ir.ops import tensor
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import dims
from tilework.tensor.autocasting import narrowed
from tilework.tensor.counting import Counting
from tilework.tensor.padding import Ints, per_axis, read_padding
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tilework.ir.types import Dim


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


class Transposed(Counting):
    """conv_transpose2d."""

    __slots__ = ()

    def _pad_axes(self, pads: Sequence[tuple[int, int]], value: Any = 0) -> Self:
        """Padding of the last axes."""
        rest = self.ndim - len(pads)
        return self.pad(((0, 0),) * rest + tuple(pads), value=value)

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
