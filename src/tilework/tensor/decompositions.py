"""Triangular systems, Cholesky, LU and QR, of matrices in batches.

Each is computed from tensor operations alone, so it runs on every device, in float32 for smaller
floats.  The errors are those of the classical algorithms: with `u` the unit roundoff, the product
of the factors differs from the matrix by at most about n * u times its norm (LU: times the growth
of its elements under partial pivoting).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.tensor.iteration import repeated
from tilework.tensor.named import LU, QR, PackedLU
from tilework.tensor.promotion import broadcast_shapes
from tilework.tensor.reflecting import Reflecting
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.ir.types import Shape


class Decompositions(Reflecting):
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
        factor = a.detach()._factored()

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
        packed, order = a.detach()._eliminated()
        swaps = order._exchanges(min(packed.shape[-2:]))

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            return (sources[0]._lu_gradient(g),)

        return PackedLU(packed._with_gradient(rule, a).cast(self.dtype), swaps)

    def _eliminated(self) -> tuple[Self, Self]:
        """Packed factors, and the order (..., m) that the rows of `self` came in."""
        rows, columns = self._fixed_size(-2, "lu"), self._fixed_size(-1, "lu")
        count = min(rows, columns)
        if not count:
            kind, lead = dtypes.int32, self.shape[:-2]
            order = type(self).arange(rows, dtype=kind, device=self.device).expand(*lead, rows)
            return self, order
        found, order = self.detach()[..., :count]._pivoted()
        if columns > count:
            rest = self.detach()[..., count:]._rows_in(order)
            found = found.cat(found._substituted(rest, upper=False, is_unit=True), dim=-1)
        return found, order

    def _exchanges(self, count: int) -> Self:
        """The exchanges of rows (from 1) that lead to this order: each of row k and a later one."""
        swaps = self[..., :count]
        if not count:
            return swaps
        order = self.unsqueeze(-1)
        places = order._rows().cast(dtypes.int32)

        def step(number: Self, places: Self, swaps: Self, order: Self) -> tuple[Self, ...]:
            lines = places._rows()
            wanted, own = order._line(number, -2), places._line(number, -2)
            best = (places == wanted).cast(dtypes.int32).argmax(-2, keepdim=True).contiguous()
            places = (lines == number).where(wanted, (lines == best).where(own, places))
            found = best.squeeze(-1).cast(dtypes.int32) + 1
            return places, (swaps._columns() == number).where(found, swaps), order

        return repeated(count, step, places, swaps, order)[1]

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
        return found._rows_put_back(self.detach()._eliminated()[1])

    def _rows_put_back(self, order: Self) -> Self:
        """Row i of this one moves to row order[i]."""
        place = order.argsort(-1).unsqueeze(-1).expand(self.shape)
        return self.gather(-2, place)

    def lu(self) -> LU[Self]:
        """P, L and U with P @ L @ U = self: a permutation, unit lower and upper triangular.

        Shape: (..., m, n) -> (..., m, m), (..., m, k), (..., k, n) with k = min(m, n)
        """
        packed, _ = self.lu_factor()
        order = self.detach()._matrices("lu")._eliminated()[1]
        return packed._unpacked(order)

    def _unpacked(self, order: Self) -> LU[Self]:
        rows, columns = self._fixed_size(-2, "lu"), self._fixed_size(-1, "lu")
        count = min(rows, columns)
        low = self[..., :, :count].tril(-1)
        low = low + (low._rows() == low._columns()).cast(low.dtype)
        places = order.unsqueeze(-2).expand(*self.shape[:-1], rows)
        permutation = (places._rows() == places).cast(self.dtype)
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
        count = rows if mode == "complete" else min(rows, columns)
        q, r = a.detach()._reflected(count)
        r = r[..., :count, :].triu()

        def of_q(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            return (sources[0]._qr_gradient(g, None, mode),)

        def of_r(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            return (sources[0]._qr_gradient(None, g.triu(), mode),)

        found = q._with_gradient(of_q, a), r._with_gradient(of_r, a)
        if mode == "r":
            return QR(found[0][..., :0, :0], found[1].cast(self.dtype))
        return QR(found[0].cast(self.dtype), found[1].cast(self.dtype))

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
