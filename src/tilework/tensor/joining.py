"""Putting tensors together, taking them apart, and repeating, rolling and padding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.dtypes import promote
from tilework.ir.ops import tensor
from tilework.ir.symbolic import dims
from tilework.tensor.core import TensorBase
from tilework.tensor.linalg import Linalg
from tilework.tensor.movement import as_sizes, read_sizes
from tilework.tensor.promotion import Number
from tilework.tensor.variable import as_size, format_shape
from tilework.tensor.version import merge_bindings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.ir.types import Dim

#: How many tensors one kernel puts together.
_MOST_AT_ONCE = 32

Pads = tuple[tuple["Dim", "Dim"], ...]


#: Axes that a tensor is rolled along at once: there are two parts for each.
_ROLLED_AT_ONCE = 3
#: Axes that a tensor is padded along from inside at once: there are three parts for each.
_PADDED_AT_ONCE = 2


class Joining(Linalg):
    """cat, stack, split, repeat, roll, pad and triangles."""

    __slots__ = ()

    # --- joining -----------------------------------------------------------------------------

    def cat(self, *others: Any, dim: int = 0) -> Self:
        """This tensor and the others one behind the other along `dim`.

        `Tensor.cat([a, b])` takes them as one list.

        Raises:
            ShapeError: they differ in another axis.

        Example:
            >>> Tensor([1, 2]).cat(Tensor([3])).tolist()
            [1, 2, 3]
        """
        parts: list[Self] = as_list(self, others, "cat")
        axis = parts[0]._axis(dim, "cat")
        if not parts[0].ndim:
            raise ShapeError(
                "cat: scalars have no axis to be joined along", got="shape ()", try_="stack"
            )
        dtype = parts[0].dtype
        if dtype.is_packed and all(part.dtype is dtype for part in parts):
            values = dtypes.value_dtype(dtype)
            packed: Self = parts[0].cast(values).cat(*[p.cast(values) for p in parts[1:]], dim=axis)
            return packed.cast(dtype)
        for part in parts[1:]:
            dtype = promote(dtype, part.dtype)
        _check_joinable(parts, axis)
        kept = [part.cast(dtype) for part in parts if part._dims[axis] != 0]
        if not kept:
            return parts[0].cast(dtype)
        while len(kept) > _MOST_AT_ONCE:
            # Each element is chosen among all that are joined at once, so many go step by step.
            kept = [
                _joined(kept[start : start + _MOST_AT_ONCE], axis).contiguous()
                for start in range(0, len(kept), _MOST_AT_ONCE)
            ]
        return _joined(kept, axis) if len(kept) > 1 else kept[0]._apply(None)

    def stack(self, *others: Any, dim: int = 0) -> Self:
        """This tensor and the others along a new axis `dim`."""
        parts: list[Self] = as_list(self, others, "stack")
        if not parts:
            raise ShapeError("stack: there is nothing to join", expected="at least one tensor")
        axis = parts[0]._axis(dim, "stack", extra=1)
        for part in parts:
            if part._dims != parts[0]._dims:
                raise ShapeError(
                    "stack: the shapes differ",
                    got=" and ".join([format_shape(each._dims) for each in parts]),
                    expected="the same shape of all",
                )
        raised = [part.unsqueeze(axis) for part in parts]
        return raised[0].cat(*raised[1:], dim=axis)

    # --- taking apart ------------------------------------------------------------------------

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts of the given size (the last may be smaller), or of the given sizes, along `dim`."""
        axis = self._axis(dim, "split")
        length = self._fixed_size(axis, "split")
        if isinstance(sizes, int):
            if sizes < 1 and length:
                raise ShapeError("split: the size must be at least 1", got=sizes)
            step = max(sizes, 1)
            parts = [min(step, length - start) for start in range(0, max(length, 1), step)]
        else:
            parts = list(sizes)
        if sum(parts) != length:
            raise ShapeError(
                "split: the sizes don't add up to the axis",
                got=f"{parts} for axis {axis} of {format_shape(self._dims)}",
                expected=f"sizes whose sum is {length}",
            )
        found = []
        start = 0
        for part in parts:
            found.append(self._cut_axis(axis, start, start + part))
            start += part
        return tuple(found)

    def chunk(self, chunks: int, dim: int = 0) -> list[Self]:
        """At most `chunks` parts of equal size along `dim`; the last may be smaller."""
        axis = self._axis(dim, "chunk")
        if chunks < 1:
            raise ShapeError("chunk: the number must be at least 1", got=chunks)
        length = self._fixed_size(axis, "chunk")
        if not length:
            return [self] * chunks
        return list(self.split(-(-length // chunks), axis))

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The slices along `dim`, without that axis."""
        axis = self._axis(dim, "unbind")
        length = self._fixed_size(axis, "unbind")
        return tuple([self._cut_axis(axis, i, i + 1).squeeze(axis) for i in range(length)])

    # --- repeating ---------------------------------------------------------------------------

    def repeat(self, *repeats: Any) -> Self:
        """The whole tensor repeated along each axis; new axes come first.

        Example:
            >>> Tensor([1, 2]).repeat(2, 2).tolist()
            [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        times = list(as_sizes(repeats))
        if len(times) < self.ndim:
            raise ShapeError(
                "repeat: needs a number for each axis",
                got=f"{times} for {format_shape(self._dims)}",
            )
        old = (1,) * (len(times) - self.ndim) + self.shape
        apart = [size for each in old for size in (1, each)]
        grown = [size for time, each in zip(times, old, strict=True) for size in (time, each)]
        joined = [time * each for time, each in zip(times, old, strict=True)]
        return self.reshape(apart).expand(grown).reshape(joined)._apply(None)

    def tile(self, *repeats: Any) -> Self:
        """Another name for `repeat`, which fills in 1 for leading axes."""
        times = list(as_sizes(repeats))
        return self.repeat([1] * (self.ndim - len(times)) + times)

    def repeat_interleave(
        self, repeats: Any, dim: int | None = None, *, output_size: int | None = None
    ) -> Self:
        """Each element (or slice along `dim`) repeated in place.

        Args:
            repeats: how often; or one number for each, as a list or a tensor, which is read.
            dim: the axis; all elements in one vector by default.
            output_size: the size of the result along the axis, with which a tensor is not read.

        Raises:
            ShapeError: the result has another size, or the numbers don't fit the axis.

        Example:
            >>> Tensor([5, 7]).repeat_interleave(Tensor([2, 1]), output_size=3).tolist()
            [5, 5, 7]
        """
        x = self.flatten() if dim is None else self
        axis = 0 if dim is None else self._axis(dim, "repeat_interleave")
        if output_size is not None:
            return x._repeated_to(repeats, axis, output_size)
        if not hasattr(type(repeats), "__index__") or isinstance(repeats, TensorBase):
            return x._repeated_by(repeats, axis)
        shape = list(x.shape)
        grown = x.unsqueeze(axis + 1).expand(*shape[: axis + 1], repeats, *shape[axis + 1 :])
        shape[axis] = shape[axis] * repeats
        return grown.reshape(shape)._apply(None)

    def _repeated_to(self, repeats: Any, axis: int, output_size: int) -> Self:
        """The same for a result whose size is known."""
        x = self if self.ndim else self.reshape(1)
        if isinstance(repeats, TensorBase) and repeats.ndim and repeats.shape[0] == x.shape[axis]:
            ends: Any = repeats.cast(dtypes.index).cumsum(0)  # type: ignore[attr-defined]
            places = type(self).arange(output_size, dtype=dtypes.index, device=self.device)
            index = ends.searchsorted(places, right=True)
            return x._apply(tensor.GATHER, index, attrs=tensor.GatherAttrs(axis))
        found = x.repeat_interleave(repeats, axis)
        if found.shape[axis] != output_size:
            raise ShapeError(
                "repeat_interleave: the result has another size",
                got=f"{found.shape[axis]}, and output_size={output_size}",
            )
        return found

    def _repeated_by(self, repeats: Any, axis: int) -> Self:
        x = self if self.ndim else self.reshape(1)
        numbers = repeats.tolist() if hasattr(repeats, "tolist") else list(repeats)
        length = x._fixed_size(axis, "repeat_interleave")
        for count in numbers if isinstance(numbers, list) else [numbers]:
            if isinstance(count, bool) or not hasattr(type(count), "__index__") or count < 0:
                raise ShapeError(
                    "repeat_interleave: an element is repeated so and so many times",
                    got=f"{count!r} of type {type(count).__name__}",
                    expected="integers from 0 on, one for each element",
                )
        if not isinstance(numbers, list):
            return x.repeat_interleave(numbers, axis)
        if len(numbers) == 1:
            return x.repeat_interleave(numbers[0], axis)
        if len(numbers) != length:
            raise ShapeError(
                "repeat_interleave: needs a number for each element",
                got=f"{len(numbers)} for an axis of {length}",
            )
        places = [place for place, count in enumerate(numbers) for _ in range(count)]
        index: Any = type(self)._from_numbers(places, dtypes.index, self.device)
        attrs = tensor.GatherAttrs(axis)
        return x._apply(tensor.GATHER, index, attrs=attrs)

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Elements moved `shifts` places along `dims`; what leaves at the end enters in front."""
        if dims is None:
            amount = shifts if isinstance(shifts, int) else sum(shifts)
            return self.flatten().roll(amount, 0).reshape(self.shape)
        moves = [shifts] if isinstance(shifts, int) else list(shifts)
        axes = [dims] if isinstance(dims, int) else list(dims)
        if len(moves) != len(axes):
            raise ShapeError("roll: needs a shift for each axis", got=f"{shifts} and {dims}")
        total: dict[int, int] = {}
        for move, given in zip(moves, axes, strict=True):
            axis = self._axis(given, "roll")
            total[axis] = total.get(axis, 0) + move
        found, x = list(total.items()), self
        for at in range(0, len(found), _ROLLED_AT_ONCE):
            x = x._rolled(found[at : at + _ROLLED_AT_ONCE])
        return x._apply(None) if x is self else x

    def _rolled(self, moves: Sequence[tuple[int, int]]) -> Self:
        """Rolled along several axes: the parts of the first are rolled along the others."""
        if not moves:
            return self
        (axis, move), rest = moves[0], moves[1:]
        length = self._fixed_size(axis, "roll")
        start = -move % length if length else 0
        if start == 0:
            return self._rolled(rest)
        behind, before = self._cut_axis(axis, start, length), self._cut_axis(axis, 0, start)
        return behind._rolled(rest).cat(before._rolled(rest), dim=axis)

    # --- padding -----------------------------------------------------------------------------

    def pad(
        self,
        padding: Sequence[Any],
        mode: str = "constant",
        value: Number = 0.0,
    ) -> Self:
        """Elements added before and after axes; negative counts cut off.

        Args:
            padding: pairs (before, after), one for each axis from the first on (None for none),
                or numbers in PyTorch's order: before and after the last axis, the last but one...
            mode: "constant", "reflect" (without the edge), "replicate" or "circular".
            value: what to pad with in mode "constant".

        Raises:
            ShapeError: the counts don't fit the tensor.

        Example:
            >>> Tensor([1, 2]).pad(((1, 0),)).tolist()
            [0, 1, 2]
        """
        pads, bindings = self._read_pads(padding)
        if mode == "constant":
            return self._pad_constant(pads, bindings, value)
        if mode not in ("reflect", "replicate", "circular"):
            raise UserError(
                "pad: unknown mode", got=mode, expected="constant, reflect, replicate or circular"
            )
        found: list[tuple[int, int, int]] = []
        for axis, (low, high) in enumerate(pads):
            if not isinstance(low, int) or not isinstance(high, int):
                raise ShapeError(f"pad: mode {mode} needs fixed counts", got=f"axis {axis}")
            if low or high:
                found.append((axis, low, high))
        x = self
        for at in range(0, len(found), _PADDED_AT_ONCE):
            # Parts joined of joined parts are as many as the product of both.
            x = (x.contiguous() if at else x)._pad_from_inside(
                found[at : at + _PADDED_AT_ONCE], mode
            )
        return x._apply(None)  # what only cuts off is a view so far

    def _read_pads(self, padding: Sequence[Any]) -> tuple[Pads, Mapping[str, int] | None]:
        given = list(padding)
        if all(pair is None or isinstance(pair, tuple | list) for pair in given):
            pairs = [(0, 0) if pair is None else tuple(pair) for pair in given]
            if len(pairs) != self.ndim or any(len(pair) != 2 for pair in pairs):
                raise ShapeError(
                    "pad: needs a pair for each axis",
                    got=f"{padding} for shape {format_shape(self._dims)}",
                    expected=f"{self.ndim} pairs",
                )
        else:
            if len(given) % 2 or len(given) > 2 * self.ndim:
                raise ShapeError(
                    "pad: needs two counts for each axis, the last axis first",
                    got=f"{padding} for shape {format_shape(self._dims)}",
                    expected=f"an even number of counts, at most {2 * self.ndim}",
                )
            named = [(given[i], given[i + 1]) for i in range(0, len(given), 2)][::-1]
            pairs = [(0, 0)] * (self.ndim - len(named)) + named
        flat, bindings = read_sizes([count for pair in pairs for count in pair], "pad")
        return tuple([(flat[2 * i], flat[2 * i + 1]) for i in range(len(pairs))]), bindings

    def _pad_constant(self, pads: Pads, bindings: Mapping[str, int] | None, value: Number) -> Self:
        x = self._cut_negative(pads)
        if bindings is not None:
            x = x._seen_with(bindings)
        positive = [tuple([max(n, 0) if isinstance(n, int) else n for n in pair]) for pair in pads]
        if all(pair == (0, 0) for pair in positive):
            return x._apply(None)
        filled = x._zero_pad([(low, high) for low, high in positive])
        if value == 0 and not str(value).startswith("-"):
            return filled
        inside = x._constant(True, dtypes.bool_)._zero_pad([(a, b) for a, b in positive])
        return inside.where(filled, value)

    def _seen_with(self, bindings: Mapping[str, int]) -> Self:
        """This tensor where the variables of `bindings` have their values too."""
        made = type(self).__new__(type(self))
        found = merge_bindings((self._bindings, bindings), "pad")
        return made._set(self._storage, self._chain, self._type, found)

    def _cut_negative(self, pads: Pads) -> Self:
        bounds: list[tuple[Dim, Dim, int]] = []
        for (low, high), size in zip(pads, self._dims, strict=True):
            start = -low if isinstance(low, int) and low < 0 else 0
            stop = dims.add(size, high) if isinstance(high, int) and high < 0 else size
            if isinstance(stop, int) and stop < start:
                raise ShapeError(
                    "pad: more is cut off than there is",
                    got=f"{pads} for shape {format_shape(self._dims)}",
                )
            bounds.append((start, stop, 1))
        return self._cut(bounds)

    def _pad_from_inside(self, pads: Sequence[tuple[int, int, int]], mode: str) -> Self:
        """Padded along axes: the parts of the first, each padded along the others."""
        if not pads:
            return self
        (axis, low, high), rest = pads[0], pads[1:]
        size = self._fixed_size(axis, "pad")
        kept = size + min(low, 0) + min(high, 0)
        most = {"reflect": size - 1, "circular": kept, "replicate": max(low, high, 0)}[mode]
        if low > most or high > most or size == 0:
            raise ShapeError(
                f"pad: mode {mode} can't take so much from inside",
                got=f"{(low, high)} on axis {axis} of size {size}",
                expected=f"at most {most}",
            )
        x = self._cut_axis(axis, max(-low, 0), size + min(high, 0))
        # What is cut off is not seen from the other end either.
        source = x if mode == "circular" else self
        parts = [x]
        if low > 0:
            parts.insert(0, source._border(axis, low, mode, is_low=True))
        if high > 0:
            parts.append(source._border(axis, high, mode, is_low=False))
        parts = [part._pad_from_inside(rest, mode) for part in parts]
        return parts[0].cat(*parts[1:], dim=axis)

    def _border(self, axis: int, count: int, mode: str, is_low: bool) -> Self:
        size = self._fixed_size(axis, "pad")
        if mode == "circular":
            start = size - count if is_low else 0
            return self._cut_axis(axis, start, start + count)
        if mode == "replicate":
            edge = self._cut_axis(axis, 0, 1) if is_low else self._cut_axis(axis, size - 1, size)
            sizes = list(edge.shape)
            sizes[axis] = count
            return edge.expand(sizes)
        start = 1 if is_low else size - 1 - count
        return self._cut_axis(axis, start, start + count)._flipped_view((axis,))

    def pad_to(self, *shape: Any, value: Number = 0) -> Self:
        """Padded behind each axis up to `shape`; None keeps an axis."""
        wanted = as_sizes(shape)
        if len(wanted) != self.ndim:
            raise ShapeError(
                "pad_to: needs a size for each axis",
                got=f"{wanted} for {format_shape(self._dims)}",
                expected=f"{self.ndim} sizes",
            )
        pairs = [
            (0, 0 if new is None else new - size)
            for new, size in zip(wanted, self.shape, strict=True)
        ]
        return self.pad(pairs, value=value)

    def shrink_to(self, *shape: Any) -> Self:
        """The first elements of each axis, as many as `shape` says; None keeps an axis."""
        wanted = as_sizes(shape)
        return self.shrink([None if new is None else (0, new) for new in wanted])

    # --- triangles and grids -----------------------------------------------------------------

    def tril(self, diagonal: int = 0) -> Self:
        """The lower triangle of each matrix, zeros above; `diagonal` moves the border up."""
        return self._triangle(diagonal, is_lower=True)

    def triu(self, diagonal: int = 0) -> Self:
        """The upper triangle of each matrix, zeros below; `diagonal` moves the border up."""
        return self._triangle(diagonal, is_lower=False)

    def _triangle(self, diagonal: int, is_lower: bool) -> Self:
        if self.ndim < 2:
            raise ShapeError("tril: needs a matrix", got=format_shape(self._dims))
        row, column = self._positions(self.ndim - 2), self._positions(self.ndim - 1)
        is_kept = column <= row + diagonal if is_lower else column >= row + diagonal
        return is_kept.where(self, self._number(0, self.dtype))

    def diag(self, diagonal: int = 0) -> Self:
        """The square matrix with this vector on a diagonal, or a diagonal of a matrix."""
        if self.ndim == 2:
            return self.diagonal(diagonal)._apply(None)
        if self.ndim != 1:
            raise ShapeError("diag: needs a vector or a matrix", got=format_shape(self._dims))
        size = as_size(self._dims[0], self._bindings)
        square = self.expand(size, size)
        is_own = square._positions(0) == square._positions(1)
        found = is_own.where(square, self._number(0, self.dtype))
        if not diagonal:
            return found
        low = ((0, abs(diagonal)), (abs(diagonal), 0))
        return found.pad(low if diagonal > 0 else low[::-1])

    def meshgrid(self, *others: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """Each vector along an axis of its own, all expanded to the common shape."""
        vectors = (self, *others)
        if indexing not in ("ij", "xy"):
            raise UserError("meshgrid: unknown indexing", got=indexing, expected="ij or xy")
        order = list(range(len(vectors)))
        if indexing == "xy" and len(vectors) > 1:
            order[0], order[1] = 1, 0
        sizes = [vectors[position].numel() for position in order]
        found = []
        for number, vector in enumerate(vectors):
            shape: list[Any] = [1] * len(vectors)
            shape[order.index(number)] = -1
            found.append(vector.reshape(shape).expand(sizes))
        return tuple(found)


def as_list(first: Any, others: tuple[Any, ...], what: str) -> list[Any]:
    """Tensors given one by one, or as one sequence.

    Raises:
        DTypeError: something else is among them.
    """
    found = [first, *others]
    if isinstance(first, list | tuple):
        found = [*first, *others]
    elif len(others) == 1 and isinstance(others[0], list | tuple):
        found = [first, *others[0]]
    for each in found:
        if not isinstance(each, TensorBase):
            raise DTypeError(
                f"{what}: not all of these are tensors",
                got=f"{each!r} of type {type(each).__name__}",
                expected="tensors one by one, or one sequence of tensors",
            )
    return found


def _check_joinable(parts: Sequence[Linalg], axis: int) -> None:
    first = parts[0]._dims
    for part in parts:
        own = part._dims
        if own[:axis] != first[:axis] or own[axis + 1 :] != first[axis + 1 :]:
            raise ShapeError(
                "cat: the shapes differ in another axis",
                got=" and ".join([format_shape(each._dims) for each in parts]),
                expected=f"equal sizes but for axis {axis}",
            )


def _joined(parts: Sequence[Any], axis: int) -> Any:
    """Each part padded to the whole and the right one chosen by position (keeps -0.0 and NaN)."""
    total: Dim = 0
    ends: list[Dim] = []
    bindings = merge_bindings([part._bindings for part in parts], "cat")
    for part in parts:
        total = dims.add(total, part._dims[axis])
        ends.append(total)
    padded = []
    for part, end in zip(parts, ends, strict=True):
        pads: list[tuple[Dim, Dim]] = [(0, 0)] * part.ndim
        pads[axis] = (dims.sub(end, part._dims[axis]), dims.sub(total, end))
        padded.append(part._zero_pad(pads))
    result = padded[-1]
    position = result._positions(axis)
    for part, end in zip(padded[-2::-1], ends[-2::-1], strict=True):
        limit = position._size_as(end, dtypes.index)
        result = (position < limit).where(part, result)
    if bindings is not None:
        return result._seen_with(bindings)
    return result
