"""Views: the same elements under another shape or order.

They share the storage, so a write through a view is a write to its base.  `flip` and `pad` give
new values, as in PyTorch; a slice with a negative step is a view, as in NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework.base.errors import ShapeError
from tilework.base.integers import product
from tilework.ir.ops import tensor
from tilework.ir.symbolic import dims
from tilework.tensor.core import TensorBase
from tilework.tensor.variable import Size, as_dim, as_size, bindings_of, format_shape
from tilework.tensor.version import merge_bindings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.ir.types import Dim, Shape

Sizes = tuple[Any, ...]


def as_sizes(sizes: Sizes) -> tuple[Any, ...]:
    """Sizes given one by one or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        return tuple(sizes[0])
    return sizes


def read_sizes(sizes: Sequence[Any], what: str) -> tuple[Shape, Mapping[str, int] | None]:
    """A shape as the IR has it, and the values bound inside."""
    if {int}.issuperset(map(type, sizes)):
        return tuple(sizes), None  # as nearly all are; the rest asks each size twice
    found = None
    for size in sizes:
        if bindings_of(size):
            found = merge_bindings([bindings_of(each) for each in sizes], what)
            break
    return tuple([as_dim(size) for size in sizes]), found


class Movement(TensorBase):
    """Reshaping, reordering, cutting and repeating."""

    __slots__ = ()

    # --- shapes ------------------------------------------------------------------------------

    def reshape(self, *shape: Any) -> Self:
        """The same elements, row-major, under another shape.

        Args:
            shape: sizes, one by one or as a sequence; one of them may be -1, which stands for
                what is left; None keeps the size of its axis.

        Raises:
            ShapeError: the number of elements would change.

        Example:
            >>> Tensor.arange(6).reshape(2, -1).shape
            (2, 3)
        """
        given = list(as_sizes(shape))
        for axis, size in enumerate(given):
            if size is None:
                given[axis] = self.shape[axis]
        new, bindings = read_sizes(given, "reshape")
        old = self._dims
        if -1 in new:
            new = self._fill_in(new)
        if new == old:
            return self
        count, wanted = dims.product(old), dims.product(new)
        if count is not wanted and count != wanted:
            raise ShapeError(
                "reshape: the number of elements changes",
                got=f"{format_shape(old)} to {format_shape(new)}",
                expected=f"a shape of {as_size(count, None)} elements",
            )
        return self._seen(tensor.RESHAPE, tensor.ShapeAttrs(new), bindings)

    def _fill_in(self, shape: Shape) -> Shape:
        """`shape` with its one -1 replaced by what is left."""
        known = dims.product([size for size in shape if size != -1])
        total = dims.product(self._dims)
        if shape.count(-1) > 1 or known == 0:
            raise ShapeError(
                "reshape: -1 can't be worked out",
                got=format_shape(shape),
                expected="one -1, and no other size of 0",
            )
        left = dims.floordiv(total, known)
        if dims.mul(left, known) != total:
            raise ShapeError(
                "reshape: the elements don't divide into this shape",
                got=f"{format_shape(self._dims)} to {format_shape(shape)}",
            )
        return tuple([left if size == -1 else size for size in shape])

    def reshape_as(self, other: TensorBase) -> Self:
        """This tensor with the shape of `other`."""
        return self.reshape(other.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Axes `start_dim` to `end_dim` (included) joined to one."""
        start, end = self._axis(start_dim, "flatten"), self._axis(end_dim, "flatten")
        if self.ndim == 0:
            return self.reshape(1)
        if start > end:
            raise ShapeError("flatten: start_dim lies behind end_dim", got=f"{start} and {end}")
        shape = self._dims
        joined = as_size(dims.product(shape[start : end + 1]), self._bindings)
        return self.reshape(*self.shape[:start], joined, *self.shape[end + 1 :])

    def unflatten(self, dim: int, sizes: Sequence[Any]) -> Self:
        """Axis `dim` split into axes of `sizes` (one may be -1)."""
        axis = self._axis(dim, "unflatten")
        parts = list(sizes)
        if -1 in parts:
            known = product(size for size in parts if size != -1)
            parts[parts.index(-1)] = self.shape[axis] // known if known else 0
        return self.reshape(*self.shape[:axis], *parts, *self.shape[axis + 1 :])

    def squeeze(self, dim: int | tuple[int, ...] | None = None) -> Self:
        """Axes of size 1 dropped: all of them, or those named."""
        if dim is None:
            return self.reshape([size for size in self.shape if not _is_one(size)])
        dropped = self._axes(dim, "squeeze")
        kept = [
            size for axis, size in enumerate(self.shape) if axis not in dropped or not _is_one(size)
        ]
        return self.reshape(kept)

    def unsqueeze(self, dim: int) -> Self:
        """A new axis of size 1 at position `dim`."""
        axis = self._axis(dim, "unsqueeze", extra=1)
        return self.reshape(*self.shape[:axis], 1, *self.shape[axis:])

    def expand(self, *shape: Any) -> Self:
        """Axes of size 1 repeated, without a copy; -1 or None keeps a size.

        Raises:
            ShapeError: an axis has neither size 1 nor the wanted size.
        """
        given = list(as_sizes(shape))
        missing = len(given) - self.ndim
        if missing < 0:
            raise ShapeError(
                "expand: the new shape has fewer axes",
                got=f"{format_shape(self._dims)} to {tuple(given)}",
            )
        old = (1,) * missing + self.shape
        wanted = [
            size if new is None or (isinstance(new, int) and new == -1) else new
            for size, new in zip(old, given, strict=True)
        ]
        new_shape, bindings = read_sizes(wanted, "expand")
        return self._broadcast_to(new_shape, bindings, "expand")

    def broadcast_to(self, *shape: Any) -> Self:
        """Another name for `expand`."""
        return self.expand(*shape)

    def expand_as(self, other: TensorBase) -> Self:
        """This tensor expanded to the shape of `other`."""
        return self.expand(other.shape)

    def _broadcast_to(self, shape: Shape, bindings: Mapping[str, int] | None, what: str) -> Self:
        old = self._dims
        if old == shape:
            return self
        padded = (1,) * (len(shape) - len(old)) + old
        for size, new in zip(padded, shape, strict=True):
            if size != new and size != 1:
                raise ShapeError(
                    f"{what}: the shapes don't fit",
                    got=f"{format_shape(old)} to {format_shape(shape)}",
                    expected="each size equal, or 1",
                )
        base = self
        if padded != old:
            base = self._seen(tensor.RESHAPE, tensor.ShapeAttrs(padded))
        if padded == shape:
            return base
        return base._seen(tensor.EXPAND, tensor.ShapeAttrs(shape), bindings)

    # --- order -------------------------------------------------------------------------------

    def permute(self, *order: Any) -> Self:
        """Axis i of the result is axis `order[i]` of this tensor."""
        given = as_sizes(order)
        axes = tuple([self._axis(axis, "permute") for axis in given])
        if sorted(axes) != list(range(self.ndim)):
            raise ShapeError(
                "permute: not a permutation of the axes",
                got=f"{given} for shape {format_shape(self._dims)}",
                expected=f"each of 0 to {self.ndim - 1} once",
            )
        if axes == tuple(range(self.ndim)):
            return self
        return self._seen(tensor.PERMUTE, tensor.AxesAttrs(axes))

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Two axes exchanged."""
        if not self.ndim and {dim0, dim1} <= {0, -1}:
            return self
        a, b = self._axis(dim0, "transpose"), self._axis(dim1, "transpose")
        if not self.ndim:
            raise ShapeError("transpose: a scalar has no axes")
        order = list(range(self.ndim))
        order[a], order[b] = order[b], order[a]
        return self.permute(order)

    def swapaxes(self, dim0: int, dim1: int) -> Self:
        """Another name for `transpose`."""
        return self.transpose(dim0, dim1)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Axes `source` moved to positions `destination`; the others keep their order."""
        src = [source] if isinstance(source, int) else list(source)
        dst = [destination] if isinstance(destination, int) else list(destination)
        if len(src) != len(dst):
            raise ShapeError(
                "movedim: the axes and their places differ in number",
                got=f"{source} to {destination}",
                expected="a place for each axis",
            )
        moved = dict(
            zip(
                [self._axis(axis, "movedim") for axis in dst],
                [self._axis(axis, "movedim") for axis in src],
                strict=True,
            )
        )
        rest = iter([axis for axis in range(self.ndim) if axis not in moved.values()])
        return self.permute([moved[i] if i in moved else next(rest) for i in range(self.ndim)])

    @property
    def T(self) -> Self:
        """All axes in reverse order."""
        return self.permute(list(range(self.ndim))[::-1])

    @property
    def mT(self) -> Self:
        """The last two axes exchanged."""
        return self.transpose(-2, -1)

    def _flipped_view(self, axes: tuple[int, ...]) -> Self:
        return self._seen(tensor.FLIP, tensor.AxesAttrs(axes)) if axes else self

    def flip(self, *dims_: Any) -> Self:
        """A copy that runs backwards along the given axes (all by default)."""
        axes = self._axes(tuple(as_sizes(dims_)) if dims_ else None, "flip")
        return self._flipped_view(axes)._apply(None)

    # --- parts -------------------------------------------------------------------------------

    def shrink(self, bounds: Sequence[tuple[Size, Size] | None]) -> Self:
        """The elements from start up to stop of each axis; None keeps an axis whole."""
        if len(bounds) != self.ndim:
            raise ShapeError(
                "shrink: needs bounds for each axis",
                got=f"{len(bounds)} for shape {format_shape(self._dims)}",
            )
        for pair in bounds:
            if pair is not None and not (isinstance(pair, tuple | list) and len(pair) == 2):
                raise ShapeError(
                    "shrink: bounds are pairs", got=pair, expected="(start, stop), or None"
                )
        pairs = [
            (0, size) if pair is None else pair
            for pair, size in zip(bounds, self.shape, strict=True)
        ]
        flat, bindings = read_sizes([end for pair in pairs for end in pair], "shrink")
        return self._cut([(flat[2 * i], flat[2 * i + 1], 1) for i in range(self.ndim)], bindings)

    def _cut(
        self, bounds: Sequence[tuple[Dim, Dim, int]], bindings: Mapping[str, int] | None = None
    ) -> Self:
        if all(
            start == 0 and stop == size and step == 1
            for (start, stop, step), size in zip(bounds, self._dims, strict=True)
        ):
            return self
        return self._seen(tensor.SHRINK, tensor.ShrinkAttrs(tuple(bounds)), bindings)

    def _cut_axis(self, axis: int, start: Dim, stop: Dim, step: int = 1) -> Self:
        bounds: list[tuple[Dim, Dim, int]] = [(0, size, 1) for size in self._dims]
        bounds[axis] = (start, stop, step)
        return self._cut(bounds)

    def narrow(self, dim: int, start: int, length: Size) -> Self:
        """The `length` elements of axis `dim` from `start` on."""
        axis = self._axis(dim, "narrow")
        pairs: list[tuple[Size, Size] | None] = [None] * self.ndim
        begin: Size = start + self.shape[axis] if start < 0 else start
        pairs[axis] = (begin, begin + length)
        return self.shrink(pairs)

    def _zero_pad(self, pads: Sequence[tuple[Dim, Dim]]) -> Self:
        """Zeros around this tensor; all counts are at least 0."""
        if all(low == 0 and high == 0 for low, high in pads):
            return self
        return self._apply(tensor.PAD, attrs=tensor.PadAttrs(tuple(pads)))

    def _spaced(self, axis: int, step: int) -> Self:
        """Each element of `axis` followed by step - 1 zeros."""
        shape = list(self.shape)
        pads: list[tuple[Dim, Dim]] = [(0, 0)] * (self.ndim + 1)
        pads[axis + 1] = (0, step - 1)
        shape[axis] = shape[axis] * step
        return self.unsqueeze(axis + 1)._zero_pad(pads).reshape(shape)

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The diagonal of the plane of two axes, as the last axis."""
        a, b = self._axis(dim1, "diagonal"), self._axis(dim2, "diagonal")
        rest = [axis for axis in range(self.ndim) if axis not in (a, b)]
        x = self.permute([*rest, a, b])
        rows, columns = x._fixed_size(x.ndim - 2, "diagonal"), x._fixed_size(x.ndim - 1, "diagonal")
        row, column = max(-offset, 0), max(offset, 0)
        length = max(min(rows - row, columns - column), 0)
        if length == 0:
            return x._cut_axis(x.ndim - 2, 0, 0).reshape(*x.shape[:-2], 0)
        # In row-major order neighbours on the diagonal are columns + 1 elements apart.
        x = x.flatten(-2, -1)
        first = row * columns + column
        last = first + (length - 1) * (columns + 1)
        return x._cut_axis(x.ndim - 1, first, last + 1, columns + 1)

    # --- windows -----------------------------------------------------------------------------

    def _window(self, axis: int, size: int, stride: int = 1, dilation: int = 1) -> Self:
        """Axis `axis` becomes (positions, taps)."""
        length = self._dims[axis]
        reach = (size - 1) * dilation + 1
        count = dims.add(dims.floordiv(dims.sub(length, reach), stride), 1)
        if isinstance(count, int) and count < 0:
            count = 0
        attrs = tensor.WindowAttrs(axis, count, size, stride, dilation)
        return self._seen(tensor.WINDOW, attrs)

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """All windows of `size` elements along `dim`, `step` apart; the taps are the last axis.

        Windows that do not overlap are a view, which may be written to, where the axis holds the
        last window's whole step; others are a copy, which refuses writes.
        """
        axis = self._axis(dim, "unfold")
        if not self.ndim:
            return self.reshape(1).unfold(0, size, step).reshape(size)
        length = self._fixed_size(axis, "unfold")
        if not 0 < size <= length or step < 1:
            raise ShapeError(
                "unfold: the window does not fit",
                got=f"size {size}, step {step} on an axis of {length}",
                expected=f"size in 1..{length}, step of at least 1",
            )
        count = (length - size) // step + 1
        if size <= step and count * step <= length:
            # Windows that don't overlap are a view, which may be written to.
            apart = self.narrow(axis, 0, count * step).unflatten(axis, (count, step))
            return apart.narrow(axis + 1, 0, size).movedim(axis + 1, -1)
        return self._window(axis, size, step).movedim(axis + 1, -1)


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1
