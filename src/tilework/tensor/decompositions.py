"""Triangular systems, Cholesky, LU and QR, of matrices in batches, in a bounded number of steps.

Each is computed from tensor operations alone, so it runs on every device, in float32 for smaller
floats.  The errors are those of the classical algorithms: with `u` the unit roundoff, the product
of the factors differs from the matrix by at most about n * u times its norm (LU: times the growth
of its elements under partial pivoting).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.tensor.arranging import Arranging
from tilework.tensor.iteration import repeated
from tilework.tensor.named import LU, QR, PackedLU
from tilework.tensor.promotion import broadcast_shapes
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.ir.types import Shape


class Decompositions(Arranging):
    """solve_triangular, cholesky, lu, qr."""

    __slots__ = ()

    # --- what they share ---------------------------------------------------------------------

    def _matrices(self, what: str, is_square: bool = False) -> Self:
        """This tensor in a float dtype that decompositions compute in."""
        if self.ndim < 2 or (is_square and self._dims[-1] != self._dims[-2]):
            raise ShapeError(
                f"{what}: needs {'square ' if is_square else ''}matrices",
                got=f"shape {format_shape(self._dims)}",
            )
        if not self.dtype.is_float:
            raise DTypeError(f"{what}: needs floats", got=self.dtype.name, try_=".float()")
        return self._wide()

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

    def _own_rows(self, numbers: Self) -> Self:
        """One row of each matrix, of the numbers (..., 1, 1)."""
        return self.gather(-2, numbers.expand(*self.shape[:-2], 1, self.shape[-1]))

    # --- triangular systems ------------------------------------------------------------------

    def solve_triangular(
        self, B: Self, *, upper: bool, left: bool = True, unitriangular: bool = False
    ) -> Self:
        """X with self @ X = B, of a triangular matrix; the other triangle is not read.

        Args:
            B: right-hand sides.
            upper: the matrix is upper triangular, else lower.
            left: False for X @ self = B.
            unitriangular: take the diagonal as ones.

        Shape: self (..., n, n), B (..., n, m) -> (..., n, m)

        Example:
            >>> a = Tensor([[2.0, 0.0], [1.0, 1.0]])
            >>> a.solve_triangular(Tensor([[4.0], [3.0]]), upper=False).tolist()
            [[2.0], [1.0]]
        """
        if not left:
            found = self._flipped.solve_triangular(
                B._flipped, upper=not upper, unitriangular=unitriangular
            )
            return found._flipped
        a, b = self._matrices("solve_triangular", is_square=True), B._matrices("solve_triangular")
        a, b = a._systems(b, "solve_triangular")
        solved = a._substituted(b, upper, unitriangular)

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            matrix, sides = sources
            x = matrix.solve_triangular(sides, upper=upper, unitriangular=unitriangular)
            of_b = matrix._flipped.solve_triangular(g, upper=not upper, unitriangular=unitriangular)
            of_a = -of_b.matmul(x._flipped)
            offset = int(unitriangular)
            return (of_a.triu(offset) if upper else of_a.tril(-offset)), of_b

        return solved._with_gradient(rule, a, b).cast(self.dtype)

    def _systems(self, b: Self, what: str) -> tuple[Self, Self]:
        """Matrices and right-hand sides with their leading axes broadcast."""
        if b._dims[-2] != self._dims[-1]:
            raise ShapeError(
                f"{what}: the right-hand sides have another number of rows",
                got=f"{format_shape(self._dims)} and {format_shape(b._dims)}",
                expected="(..., n, n) and (..., n, m)",
            )
        a, b = self._matched_dtypes(b)
        lead = broadcast_shapes([a._dims[:-2], b._dims[:-2]], what)
        return a._with_lead(lead), b._with_lead(lead)

    def _matched_dtypes(self, other: Self) -> tuple[Self, Self]:
        kind = dtypes.promote(self.dtype, other.dtype)
        return self.cast(kind), other.cast(kind)

    def _with_lead(self, lead: Shape) -> Self:
        return self._broadcast_to((*lead, *self._dims[-2:]), self._bindings, "broadcast")

    def _substituted(self, b: Self, upper: bool, is_unit: bool) -> Self:
        """Substitution: a solved row is taken off the rows that are left."""
        size = self._fixed_size(-1, "solve_triangular")
        matrix = self.detach()

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

        return repeated(size, step, b, matrix)[0]

    # --- Cholesky ----------------------------------------------------------------------------

    def cholesky(self, upper: bool = False) -> Self:
        """The lower triangular L with L @ L^T = self, of a positive definite matrix.

        Only the lower triangle is read.  NaN where the matrix is not positive definite.

        Args:
            upper: give L^T instead.

        Shape: (..., n, n) -> (..., n, n)

        Example:
            >>> Tensor([[4.0, 2.0], [2.0, 5.0]]).cholesky().tolist()
            [[2.0, 0.0], [1.0, 2.0]]
        """
        a = self._matrices("cholesky", is_square=True)
        size = a._fixed_size(-1, "cholesky")

        def step(number: Self, x: Self) -> tuple[Self, ...]:
            # Columns of the factor, then what is left of the matrix.
            column = x._line(number, -1)
            pivot = column._line(number, -2)
            root = (pivot > 0).where(pivot, float("nan")).sqrt()
            column = (column._rows() >= number).where(column / root, 0.0).contiguous()
            place = x._columns()
            rest = (place > number).where(x - column * column._flipped, x)
            return ((place == number).where(column, rest),)

        (factor,) = repeated(size, step, a)

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            low = sources[0].cholesky()
            inner = low._flipped.matmul(g.tril()).tril()
            inner = inner - (inner._rows() == inner._columns()).where(inner * 0.5, 0.0)
            turned = low._flipped
            found = turned.solve_triangular(inner, upper=True)
            found = turned.solve_triangular(found._flipped, upper=True)
            return ((found + found._flipped) * 0.5,)

        found = factor._with_gradient(rule, a).cast(self.dtype)
        return found._flipped if upper else found

    def cholesky_solve(self, L: Self, upper: bool = False) -> Self:
        """X with A @ X = self, where L is the Cholesky factor of A."""
        low = L._flipped if upper else L
        first = low.solve_triangular(self, upper=False)
        return low._flipped.solve_triangular(first, upper=True)

    def cholesky_inverse(self, upper: bool = False) -> Self:
        """The inverse of A, where this is the Cholesky factor of A."""
        return self._identity().cholesky_solve(self.triu() if upper else self.tril(), upper)

    # --- LU ----------------------------------------------------------------------------------

    def lu_factor(self) -> PackedLU[Self]:
        """LU with partial pivoting: both factors in one matrix, and the rows exchanged (from 1).

        Shape: (..., m, n) -> (..., m, n), (..., min(m, n)) int32
        """
        a = self._matrices("lu_factor")
        packed, swaps, _ = a._eliminated()

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            return (sources[0]._lu_gradient(g),)

        return PackedLU(packed._with_gradient(rule, a).cast(self.dtype), swaps)

    def _eliminated(self) -> tuple[Self, Self, Self]:
        """Packed factors, exchanges, and the order (..., m) that the rows of `self` came in."""
        rows, columns = self._fixed_size(-2, "lu"), self._fixed_size(-1, "lu")
        count = min(rows, columns)
        if not count:
            return self._not_eliminated(rows)
        order = self[..., :1]._rows().cast(dtypes.int32)
        swaps = self[..., :1, :1].squeeze(-1).expand(*self.shape[:-2], count).cast(dtypes.int32)

        def step(number: Self, x: Self, swaps: Self, order: Self) -> tuple[Self, ...]:
            lines = order._rows()
            column = x._line(number, -1).contiguous()
            size = (lines >= number).where(column.abs(), -1.0)
            best = size.argmax(-2, keepdim=True).contiguous()
            pivot_row, this_row = x._own_rows(best).contiguous(), x._line(number, -2)
            pivot, own = column._own_rows(best).contiguous(), column._line(number, -2)
            swapped = (lines == number).where(pivot, (lines == best).where(own, column))
            factor = swapped / pivot.eq(0).where(1.0, pivot)
            moved = (x._rows() == number).where(pivot_row, (x._rows() == best).where(this_row, x))
            below = x._rows() > number
            reduced = moved - factor * pivot_row
            rest = (x._columns() > number).where(reduced, moved)
            rest = (x._columns() == number).where(factor, rest)
            found = below.where(rest, moved)
            places = swaps._columns()
            swaps = (places == number).where(best.squeeze(-1).cast(dtypes.int32) + 1, swaps)
            first, second = order._own_rows(best), order._line(number, -2)
            order = (lines == number).where(first, (lines == best).where(second, order))
            return found, swaps, order

        found, swaps, order = repeated(count, step, self, swaps, order)
        return found, swaps, order.squeeze(-1)

    def _not_eliminated(self, rows: int) -> tuple[Self, Self, Self]:
        """`_eliminated` of matrices without elements."""
        lead = self.shape[:-2]
        kind, device = dtypes.int32, self.device
        order = type(self).arange(rows, dtype=kind, device=device).expand(*lead, rows)
        return self, type(self).zeros(*lead, 0, dtype=kind, device=device), order

    def _lu_gradient(self, g: Self) -> Self:
        """The gradient of the packed factors.

        With X = L^-1 P^T dA U^-1 (of the square part) dL is L tril(X, -1) and dU is triu(X) U; what
        is left of a wide or a tall matrix follows from the product.
        """
        rows, columns = self._fixed_size(-2, "lu"), self._fixed_size(-1, "lu")
        count = min(rows, columns)
        packed, _ = self.lu_factor()
        square, head = packed[..., :count, :count], g[..., :count, :count]
        low, up = square.tril(-1) + square._identity(), square.triu()
        of_low = low._flipped.matmul(head.tril(-1))
        of_up = head.triu().matmul(up._flipped)
        if columns > rows:
            of_low = of_low - g[..., :, count:].matmul(packed[..., :, count:]._flipped)
        elif rows > columns:
            of_up = of_up - packed[..., count:, :]._flipped.matmul(g[..., count:, :])
        inner = of_low.tril(-1) + of_up.triu()
        found = low._flipped.solve_triangular(inner, upper=True, unitriangular=True)
        found = up._flipped.solve_triangular(found, upper=False, left=False)
        if columns > rows:
            rest = low._flipped.solve_triangular(g[..., :, count:], upper=True, unitriangular=True)
            found = found.cat(rest, dim=-1)
        elif rows > columns:
            rest = up._flipped.solve_triangular(g[..., count:, :], upper=False, left=False)
            found = found.cat(rest, dim=-2)
        return found._rows_put_back(self.detach()._eliminated()[2])

    def _rows_put_back(self, order: Self) -> Self:
        """Row i of this one moves to row order[i]."""
        place = order.argsort(-1).unsqueeze(-1).expand(self.shape)
        return self.gather(-2, place)

    def _rows_in(self, order: Self) -> Self:
        """Row i becomes row order[i] of this one."""
        return self.gather(-2, order.cast(dtypes.index).unsqueeze(-1).expand(self.shape))

    def lu(self) -> LU[Self]:
        """P, L and U with P @ L @ U = self: a permutation, unit lower and upper triangular.

        Shape: (..., m, n) -> (..., m, m), (..., m, k), (..., k, n) with k = min(m, n)
        """
        packed, _ = self.lu_factor()
        order = self.detach()._matrices("lu")._eliminated()[2]
        return packed._unpacked(order)

    def _unpacked(self, order: Self) -> LU[Self]:
        rows, columns = self._fixed_size(-2, "lu"), self._fixed_size(-1, "lu")
        count = min(rows, columns)
        low = self[..., :, :count].tril(-1)
        low = low + (low._rows() == low._columns()).cast(low.dtype)
        square = self.detach()[..., :, :1].expand(*self.shape[:-1], rows)
        permutation = (square._rows() == order.unsqueeze(-2)).cast(self.dtype)
        return LU(permutation, low, self[..., :count, :].triu())

    # --- QR ----------------------------------------------------------------------------------

    def qr(self, mode: str = "reduced") -> QR[Self]:
        """Q with orthonormal columns and upper triangular R, Q @ R = self (Householder).

        Args:
            mode: "reduced", or "complete" for a square Q.

        Shape: (..., m, n) -> (..., m, k), (..., k, n) with k = min(m, n), or k = m
        """
        if mode not in ("reduced", "complete", "r"):
            raise UserError("qr: unknown mode", got=mode, expected="reduced or complete")
        a = self._matrices("qr")
        rows, columns = a._fixed_size(-2, "qr"), a._fixed_size(-1, "qr")
        q, r = a.detach()._reflected()
        count = min(rows, columns)
        if mode == "complete":
            count = rows
        q, r = q[..., :, :count], r[..., :count, :].triu()

        def of_q(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            return (sources[0]._qr_gradient(g, None, mode),)

        def of_r(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            return (sources[0]._qr_gradient(None, g.triu(), mode),)

        found = q._with_gradient(of_q, a), r._with_gradient(of_r, a)
        if mode == "r":
            return QR(found[0][..., :0, :0], found[1].cast(self.dtype))
        return QR(found[0].cast(self.dtype), found[1].cast(self.dtype))

    def _reflected(self) -> tuple[Self, Self]:
        """The square Q and R, one reflection for each column that has something below."""
        rows, columns = self._fixed_size(-2, "qr"), self._fixed_size(-1, "qr")
        q = self[..., :, :1].expand(*self.shape[:-1], rows) if columns else None
        if q is None:
            q = type(self).eye(rows, dtype=self.dtype, device=self.device)
            return q.expand(*self.shape[:-2], rows, rows), self
        count = min(rows - 1, columns)

        def step(number: Self, r: Self, q: Self) -> tuple[Self, ...]:
            column = r._line(number, -1)
            lines = column._rows()
            column = (lines >= number).where(column, 0.0).contiguous()
            head = column._line(number, -2)
            # The largest magnitude is taken out, so that squares don't overflow.
            top = column.abs().max(-2, keepdim=True)
            safe = top.eq(0).where(1.0, top)
            length = (column / safe).square().sum(-2, keepdim=True).sqrt() * safe
            rest = (lines > number).where(column, 0.0).abs().max(-2, keepdim=True)
            sign = (head < 0).where(-1.0, 1.0)
            scale = rest.eq(0).where(1.0, head + sign * length)
            vector = (lines > number).where(column / scale, 0.0)
            vector = (lines == number).where(1.0, vector).contiguous()
            factor = rest.eq(0).where(0.0, (length + head.abs()) / length.eq(0).where(1.0, length))
            factor = factor.contiguous()
            r = r - factor * vector * vector._flipped.matmul(r).contiguous()
            q = q - factor * q.matmul(vector).contiguous() * vector._flipped
            return r, q

        r, q = repeated(count, step, self, q._identity())
        return q, r

    def _qr_gradient(self, of_q: Any, of_r: Any, mode: str) -> Self:
        rows, columns = self._fixed_size(-2, "qr"), self._fixed_size(-1, "qr")
        if mode == "complete" and rows > columns:
            raise UserError(
                "qr: the complete Q of a tall matrix has no gradient: its last columns are free",
                got=f"shape {format_shape(self._dims)}",
                try_='mode="reduced"',
            )
        q, r = self.qr("reduced")
        inner: Any = 0.0
        if of_r is not None:
            inner = of_r.matmul(r._flipped)
        if of_q is not None:
            inner = inner - q._flipped.matmul(of_q)
        if rows >= columns:
            inner = inner.triu()
            inner = inner + inner.triu(1)._flipped
            found = q.matmul(inner) if of_q is None else of_q + q.matmul(inner)
            return r._flipped.solve_triangular(found, upper=False, left=False)
        inner = -inner
        inner = (inner - inner._flipped).tril(-1)
        square = r[..., :, :rows]._flipped
        found = square.solve_triangular(inner, upper=False, left=False)
        found = found.pad(((0, 0),) * (found.ndim - 1) + ((0, columns - rows),))
        return q.matmul(found if of_r is None else found + of_r)
