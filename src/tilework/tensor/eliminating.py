"""Triangular systems, Cholesky and LU by blocks: most of the work is in products.

Each step eliminates some columns, one by one, and a product takes them off the rest.  It gets its
number as a tensor and works on the whole matrix, so that the same kernels serve all steps; a large
matrix is cut in two, which leaves half as much work.
"""

from __future__ import annotations

from typing import Self

from tilework import dtypes
from tilework.tensor.arranging import Arranging
from tilework.tensor.iteration import repeated, replayed, settled

#: So many columns are eliminated one by one, before a product takes them off the others.
BLOCK = 16
#: With fewer of them exchanges of rows and substitutions gain nothing from blocks; all steps
#: together are captured and replayed.
DIRECT = 32
#: Matrices up to this size are not cut.
_UNCUT = 128


class Eliminating(Arranging):
    """What solve_triangular, cholesky and lu are made of; none of it records a history."""

    __slots__ = ()

    # --- lines -------------------------------------------------------------------------------

    @property
    def _flipped(self) -> Self:
        """The matrices with rows and columns exchanged."""
        return self.transpose(-2, -1)

    def _rows(self) -> Self:
        """The number of the row of each element."""
        return self._positions(self.ndim - 2)

    def _columns(self) -> Self:
        """The number of the column of each element."""
        return self._positions(self.ndim - 1)

    def _line(self, number: Self, axis: int) -> Self:
        """The row (axis -2) or column (axis -1) of a number, one for all matrices; kept as 1."""
        return self._gathered(self.ndim + axis, [number.reshape(1)])

    def _first(self) -> Self:
        """Number 0, as steps get it."""
        return self._from_numbers([0], dtypes.index, self.device).reshape(())

    def _block(self, start: Self, axis: int, count: int = BLOCK) -> Self:
        """Some rows or columns from a number on."""
        numbers = start.reshape(1).expand(count)
        return self._gathered(self.ndim + axis, [numbers + numbers._positions(0)])

    def _moved_into(self, start: Self, axis: int, size: int) -> Self:
        """A block in its place among `size` rows or columns; anything elsewhere."""
        numbers = start.reshape(1).expand(size)
        places = (numbers._positions(0) - numbers).clamp(0, BLOCK - 1)
        return self._gathered(self.ndim + axis, [places])

    def _own_rows(self, numbers: Self) -> Self:
        """One row of each matrix, of the numbers (..., 1, 1)."""
        return self.gather(-2, numbers.expand(*self.shape[:-2], 1, self.shape[-1]))

    def _rows_in(self, order: Self) -> Self:
        """Row i becomes row order[i] of this one."""
        return self.gather(-2, order.cast(dtypes.index).unsqueeze(-1).expand(self.shape))

    def _with_zeros(self, rows: int, columns: int) -> Self:
        """The matrices with zeros up to so many rows and columns."""
        more = (0, rows - self.shape[-2]), (0, columns - self.shape[-1])
        return self.pad(((0, 0),) * (self.ndim - 2) + more)

    # --- triangular systems ------------------------------------------------------------------

    def _substituted(self, b: Self, upper: bool, is_unit: bool, uncut: int = 0) -> Self:
        """X with self @ X = b."""
        size = self._fixed_size(-1, "solve_triangular")
        if size <= DIRECT:

            def whole(a: Self, b: Self) -> tuple[Self, ...]:
                return (a._substituted_by_rows(b, upper, is_unit),)

            return replayed(whole, self, b)[0]
        uncut = uncut or _uncut(size)
        if size <= uncut:
            return self._substituted_by_blocks(b, upper, is_unit)

        def first_part(a: Self, b: Self) -> tuple[Self, ...]:
            own, _ = _parts(uncut, size, upper)
            return a[..., own, own], b[..., own, :]

        def other_part(a: Self, b: Self, found: Self) -> tuple[Self, ...]:
            own, left = _parts(uncut, size, upper)
            return a[..., left, left], b[..., left, :] - a[..., left, own].matmul(found)

        def both(found: Self, other: Self) -> tuple[Self, ...]:
            return (other.cat(found, dim=-2) if upper else found.cat(other, dim=-2),)

        matrix, sides = replayed(first_part, self, b)
        found = matrix._substituted(sides, upper, is_unit, uncut)
        matrix, rest = replayed(other_part, self, b, found)
        return replayed(both, found, matrix._substituted(rest, upper, is_unit, uncut))[0]

    def _substituted_by_blocks(self, b: Self, upper: bool, is_unit: bool) -> Self:
        size = self._fixed_size(-1, "solve_triangular")
        count = -(-size // BLOCK)
        whole = count * BLOCK

        def filled(sides: Self, matrix: Self) -> tuple[Self, ...]:
            a = matrix._with_zeros(whole, whole)
            # Ones, so that nothing is divided by 0 there.
            is_further = (a._rows() == a._columns()) & (a._rows() >= size)
            return sides._with_zeros(whole, sides.shape[-1]), is_further.where(1.0, a)

        def step(number: Self, x: Self, a: Self) -> tuple[Self, ...]:
            start = (number * -1 + (count - 1) if upper else number) * BLOCK
            square, rows, start = settled(
                a._block(start, -1)._block(start, -2), x._block(start, -2), start
            )
            solved = square._substituted_by_rows(rows, upper, is_unit)
            columns, lines = a._block(start, -1), x._rows()
            is_left = lines < start if upper else lines >= start + BLOCK
            rest = is_left.where(x - columns.matmul(solved), x)
            is_own = (lines >= start) & (lines < start + BLOCK)
            return is_own.where(solved._moved_into(start, -2, whole), rest), a

        state = (b, self) if whole == size else replayed(filled, b, self)
        return repeated(count, step, *state)[0][..., :size, :]

    def _substituted_by_rows(self, b: Self, upper: bool, is_unit: bool) -> Self:
        """Substitution: a solved row is taken off the rows that are left."""
        size = self._fixed_size(-1, "solve_triangular")

        def step(number: Self, x: Self, a: Self) -> tuple[Self, ...]:
            place = (number * -1 + (size - 1)) if upper else number
            column = a._line(place, -1)
            row = x._line(place, -2)
            if not is_unit:
                row = row / column._line(place, -2)
            rows = x._rows()
            is_left = rows < place if upper else rows > place
            rest = is_left.where(x - column * row, x)
            return (rows == place).where(row, rest), a

        return repeated(size, step, b, self)[0]

    # --- Cholesky ----------------------------------------------------------------------------

    def _factored(self, uncut: int = 0) -> Self:
        """Columns (..., m, n) of the Cholesky factor whose first n rows are the diagonal's."""
        columns = self._fixed_size(-1, "cholesky")
        if columns <= BLOCK:

            def whole(a: Self) -> tuple[Self, ...]:
                return (a._factored_by_columns(a._first()),)

            return replayed(whole, self)[0]
        uncut = uncut or _uncut(columns)
        if columns <= uncut:
            return self._factored_by_blocks()

        def left_of(a: Self) -> tuple[Self, ...]:
            return (a[..., :uncut],)

        def rest_of(a: Self, left: Self) -> tuple[Self, ...]:
            below = left[..., uncut:, :]
            taken = below.matmul(below[..., : columns - uncut, :]._flipped)
            return (a[..., uncut:, uncut:] - taken,)

        def both(left: Self, right: Self) -> tuple[Self, ...]:
            above = ((0, 0),) * (left.ndim - 2) + ((uncut, 0), (0, 0))
            return (left.cat(right.pad(above), dim=-1),)

        left = replayed(left_of, self)[0]._factored(uncut)
        right = replayed(rest_of, self, left)[0]._factored(uncut)
        return replayed(both, left, right)[0]

    def _factored_by_blocks(self) -> Self:
        rows, columns = self._fixed_size(-2, "cholesky"), self._fixed_size(-1, "cholesky")
        count = -(-columns // BLOCK)
        whole = count * BLOCK

        def step(number: Self, x: Self) -> tuple[Self, ...]:
            start = number * BLOCK
            panel = x._block(start, -1)
            panel, start = settled((panel._rows() >= start).where(panel, 0.0), start)
            panel = panel._factored_by_columns(start)
            after = start + BLOCK
            places = x._columns()
            rest = x - panel.matmul(panel[..., :whole, :]._flipped)
            rest = ((places >= after) & (x._rows() >= after)).where(rest, x)
            is_own = (places >= start) & (places < after)
            return (is_own.where(panel._moved_into(start, -1, whole), rest),)

        found = repeated(count, step, self._with_zeros(max(rows, whole), whole))[0]
        return found[..., :rows, :columns]

    def _factored_by_columns(self, start: Self) -> Self:
        """Columns of the factor that begin at row `start`."""
        columns = self._fixed_size(-1, "cholesky")

        def step(number: Self, x: Self, start: Self) -> tuple[Self, ...]:
            # Columns of the factor, then what is left of the matrix.
            column, line = x._line(number, -1), start + number
            pivot = column._line(line, -2)
            root = (pivot > 0).where(pivot, float("nan")).sqrt()
            column = (column._rows() >= line).where(column / root, 0.0).contiguous()
            place = x._columns()
            top = column._block(start, -2, columns)
            rest = (place > number).where(x - column * top._flipped, x)
            return (place == number).where(column, rest), start

        return repeated(columns, step, self, start)[0]

    # --- LU ----------------------------------------------------------------------------------

    def _pivoted(self, uncut: int = 0) -> tuple[Self, Self]:
        """Packed factors of (..., m, n) with m >= n, and the order (..., m) of the rows."""
        columns = self._fixed_size(-1, "lu")
        if columns <= DIRECT:

            def whole(a: Self) -> tuple[Self, ...]:
                found, order = a._pivoted_by_columns(a._first())
                return found, order.squeeze(-1)

            return replayed(whole, self)  # type: ignore[return-value]  # two of them
        uncut = uncut or _uncut(columns)
        if columns <= uncut:
            return self._pivoted_by_blocks()

        def left_of(a: Self) -> tuple[Self, ...]:
            return (a[..., :uncut],)

        def right_of(a: Self, left: Self, order: Self) -> tuple[Self, ...]:
            right = a[..., uncut:]._rows_in(order)
            return left[..., :uncut, :], right[..., :uncut, :], right[..., uncut:, :]

        def rest_of(left: Self, right: Self, upper: Self) -> tuple[Self, ...]:
            return (right - left[..., uncut:, :].matmul(upper),)

        def both(left: Self, upper: Self, lower: Self, first: Self, then: Self) -> tuple[Self, ...]:
            left = left[..., :uncut, :].cat(left[..., uncut:, :]._rows_in(then), dim=-2)
            moved = first[..., uncut:].gather(-1, then.cast(dtypes.index))
            packed = left.cat(upper.cat(lower, dim=-2), dim=-1)
            return packed, first[..., :uncut].cat(moved, dim=-1)

        left, order = replayed(left_of, self)[0]._pivoted(uncut)
        square, top, right = replayed(right_of, self, left, order)
        upper = square._substituted(top, upper=False, is_unit=True, uncut=uncut)
        lower, further = replayed(rest_of, left, right, upper)[0]._pivoted(uncut)
        return replayed(both, left, upper, lower, order, further)  # type: ignore[return-value]

    def _pivoted_by_blocks(self) -> tuple[Self, Self]:
        rows, columns = self._fixed_size(-2, "lu"), self._fixed_size(-1, "lu")
        count = -(-columns // BLOCK)
        whole = count * BLOCK

        def filled(a: Self) -> tuple[Self, ...]:
            # Zeros are exchanged with nothing: of equal magnitudes the first is taken.
            matrix = a._with_zeros(max(rows, whole), whole)
            return matrix, matrix[..., 0]._columns().cast(dtypes.int32)

        def step(number: Self, x: Self, order: Self) -> tuple[Self, ...]:
            start = number * BLOCK
            panel, start = settled(x._block(start, -1), start)
            panel, turns = panel._pivoted_by_columns(start)
            turns = turns.squeeze(-1)
            moved, square = settled(x._rows_in(turns), panel._block(start, -2))
            upper = square._substituted_by_rows(moved._block(start, -2), False, True)
            lines, places, after = x._rows(), x._columns(), start + BLOCK
            rest = (lines >= after).where(moved - panel.matmul(upper), moved)
            is_upper = (lines >= start) & (lines < after)
            rest = is_upper.where(upper._moved_into(start, -2, x.shape[-2]), rest)
            rest = (places >= after).where(rest, moved)
            is_own = (places >= start) & (places < after)
            order = order.gather(-1, turns.cast(dtypes.index))
            return is_own.where(panel._moved_into(start, -1, whole), rest), order

        found, order = repeated(count, step, *replayed(filled, self))
        return found[..., :rows, :columns], order[..., :rows]

    def _pivoted_by_columns(self, start: Self) -> tuple[Self, Self]:
        """Factors of columns whose diagonal begins at row `start`, and the order (..., m, 1)."""
        order = self[..., :1]._rows().cast(dtypes.int32)

        def step(number: Self, x: Self, order: Self, start: Self) -> tuple[Self, ...]:
            lines, line = order._rows(), start + number
            column = x._line(number, -1).contiguous()
            size = (lines >= line).where(column.abs(), -1.0)
            best = size.argmax(-2, keepdim=True).contiguous()
            pivot_row, this_row = x._own_rows(best).contiguous(), x._line(line, -2)
            pivot, own = column._own_rows(best), column._line(line, -2)
            swapped = (lines == line).where(pivot, (lines == best).where(own, column))
            factor = swapped / pivot.eq(0).where(1.0, pivot)
            moved = (x._rows() == line).where(pivot_row, (x._rows() == best).where(this_row, x))
            rest = (x._columns() > number).where(moved - factor * pivot_row, moved)
            rest = (x._columns() == number).where(factor, rest)
            found = (x._rows() > line).where(rest, moved)
            first, second = order._own_rows(best), order._line(line, -2)
            order = (lines == line).where(first, (lines == best).where(second, order))
            return found, order, start

        count = self._fixed_size(-1, "lu")
        return repeated(count, step, self, order, start)[:2]  # type: ignore[return-value]


def _parts(uncut: int, size: int, upper: bool) -> tuple[slice, slice]:
    """Rows that are solved first, and those that are left."""
    first, last = slice(0, uncut), slice(uncut, size)
    return (last, first) if upper else (first, last)


def _uncut(size: int) -> int:
    """Up to how many columns a matrix of this size is not cut."""
    half = -(-size // (2 * BLOCK)) * BLOCK
    return max(half, _UNCUT)
