"""Linear systems, inverses and determinants of matrices in batches, from LU and QR.

A singular matrix has no inverse: infinities or NaN come out, no error, since nothing is read.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.tensor.decompositions import Decompositions
from tilework.tensor.eliminating import DIRECT
from tilework.tensor.iteration import replayed
from tilework.tensor.named import LU, SignAndLog
from tilework.tensor.variable import format_shape


class Solving(Decompositions):
    """solve, inv, det, slogdet, lstsq, matrix_exp."""

    __slots__ = ()

    def solve(self, B: Self, left: bool = True) -> Self:
        """X with self @ X = B, by LU with partial pivoting.

        Args:
            B: right-hand sides: matrices, or vectors (one for each matrix).
            left: False for X @ self = B.

        Shape: self (..., n, n), B (..., n, m), (..., n) or (n,) -> the shape of B

        Example:
            >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).solve(Tensor([2.0, 2.0])).tolist()
            [1.0, 0.5]
        """
        is_vector = B.ndim == 1 or (B.ndim + 1 == self.ndim and B._dims == self._dims[:-1])
        if is_vector:
            return self.solve(B.unsqueeze(-1)).squeeze(-1)
        if not left:
            return self._flipped.solve(B._flipped)._flipped
        a, b = self._matrices("solve", is_square=True), B._matrices("solve")
        a, b = a._systems(b, "solve")

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            matrix, sides = sources
            of_b = matrix._flipped.solve(g)
            return -of_b.matmul(matrix.solve(sides)._flipped), of_b

        return a._solved(b)._with_gradient(rule, a, b).cast(self.dtype)

    def _solved(self, b: Self) -> Self:
        def whole(a: Self, b: Self) -> tuple[Self, ...]:
            packed, order = a._eliminated()
            return (packed._solved_by(order, b),)

        if self._fixed_size(-1, "solve") <= DIRECT:
            return replayed(whole, self, b)[0]
        return whole(self.detach(), b.detach())[0]

    def _solved_by(self, order: Self, b: Self) -> Self:
        """With packed factors and the order of rows."""

        def sides(b: Self, order: Self) -> tuple[Self, ...]:
            return (b._rows_in(order),)

        low = self._substituted(replayed(sides, b, order)[0], upper=False, is_unit=True)
        return self._substituted(low, upper=True, is_unit=False)

    def lu_solve(self, pivots: Self, B: Self, left: bool = True, adjoint: bool = False) -> Self:
        """X with A @ X = B, of which this and `pivots` are `lu_factor`.

        Args:
            pivots: the exchanges of rows, from 1.
            B: right-hand sides.
            left: False for X @ A = B.
            adjoint: solve with A^T.
        """
        if not left:
            return self.lu_solve(pivots, B._flipped, adjoint=not adjoint)._flipped
        packed, b = self._systems(B, "lu_solve")
        order = packed._order_of(pivots)
        low, up = packed.tril(-1) + packed._identity(), packed.triu()
        if adjoint:
            found = up._flipped.solve_triangular(b, upper=False)
            found = low._flipped.solve_triangular(found, upper=True, unitriangular=True)
            return found._rows_put_back(order)
        found = low.solve_triangular(b._rows_in(order), upper=False, unitriangular=True)
        return up.solve_triangular(found, upper=True)

    def _order_of(self, pivots: Self) -> Self:
        """The order of rows that exchanges lead to."""
        size, count = self._fixed_size(-2, "lu"), pivots._fixed_size(-1, "lu")
        if not size:
            return type(self).zeros(*self.shape[:-2], 0, dtype=dtypes.index, device=self.device)
        lead = self._dims[:-2]
        swaps = pivots.cast(dtypes.index) - 1
        swaps = swaps._broadcast_to((*lead, *swaps._dims[-1:]), swaps._bindings, "lu")
        places = type(self).arange(size, dtype=dtypes.index, device=self.device)
        order = places.expand(*self.shape[:-2], size)
        for number in range(count):
            place = swaps[..., number : number + 1]
            own = order[..., number : number + 1]
            other = order.gather(-1, place)
            here = order._positions(order.ndim - 1)
            order = here.eq(place).where(own, order)
            order = here.eq(number).where(other, order).contiguous()
        return order

    @classmethod
    def lu_unpack(cls, packed: Self, pivots: Self) -> LU[Self]:
        """P, L and U of what `lu_factor` gave."""
        return packed._unpacked(packed.detach()._order_of(pivots))

    def inv(self) -> Self:
        """The inverse of square matrices.

        Example:
            >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).inv().tolist()
            [[0.5, 0.0], [0.0, 0.25]]
        """
        a = self._matrices("inv", is_square=True)

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            turned = sources[0].inv()._flipped
            return (-turned.matmul(g).matmul(turned),)

        return a._solved(a._identity())._with_gradient(rule, a).cast(self.dtype)

    def inverse(self) -> Self:
        """Another name for `inv`."""
        return self.inv()

    def _inverted(self) -> Self:
        return self.inv()

    # --- determinants ------------------------------------------------------------------------

    def det(self) -> Self:
        """The determinant of square matrices; its gradient is right for singular ones too.

        Example:
            >>> Tensor([[2.0, 0.0], [0.0, 3.0]]).det().item()
            6.0
        """
        a = self._matrices("det", is_square=True)
        sign, diagonal = a._sign_and_diagonal()
        value = sign * diagonal.prod(-1)

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            matrix = sources[0]
            value = matrix.det().unsqueeze(-1).unsqueeze(-1)
            is_singular = value.detach().eq(0)
            safe = is_singular.where(matrix._identity(), matrix)
            regular = value * safe.inv()._flipped
            found = is_singular.where(matrix.detach()._cofactors(), regular)
            return (g.unsqueeze(-1).unsqueeze(-1) * found,)

        return value._with_gradient(rule, a).cast(self.dtype)

    def _sign_and_diagonal(self) -> tuple[Self, Self]:
        """The sign of the row exchanges and the diagonal of U."""

        def whole(a: Self) -> tuple[Self, ...]:
            packed, order = a._eliminated()
            return packed._parity_of(order), packed.diagonal(0, -2, -1)

        def found(packed: Self, order: Self) -> tuple[Self, ...]:
            return packed._parity_of(order), packed.diagonal(0, -2, -1)

        if self._fixed_size(-1, "det") <= DIRECT:
            return replayed(whole, self)  # type: ignore[return-value]  # two of them
        return replayed(found, *self.detach()._eliminated())  # type: ignore[return-value]

    def _parity_of(self, order: Self) -> Self:
        """1 or -1, by how many exchanges of two rows lead to an order."""
        # They make an even or an odd number of pairs that are out of order.
        is_out = (order.unsqueeze(-1) > order.unsqueeze(-2)).triu(1)
        return (1 - is_out.sum((-2, -1)).mod(2) * 2).cast(self.dtype)

    def _cofactors(self) -> Self:
        """The matrix of cofactors, from the singular values."""
        u, values, v = self.svd()
        ones = values.unsqueeze(-2).expand(*values.shape, values.shape[-1])
        is_own = ones._rows() == ones._columns()
        others = is_own.where(1.0, ones).prod(-1)
        sign = u.det() * v.det()
        return sign.unsqueeze(-1).unsqueeze(-1) * (u * others.unsqueeze(-2)).matmul(v)

    def slogdet(self) -> SignAndLog[Self]:
        """The sign of the determinant and the logarithm of its magnitude."""
        a = self._matrices("slogdet", is_square=True)
        sign, diagonal = a._sign_and_diagonal()
        sign = (sign * diagonal.sign().prod(-1)).cast(self.dtype)
        value = diagonal.abs().log().sum(-1)

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            return (g.unsqueeze(-1).unsqueeze(-1) * sources[0].inv()._flipped,)

        return SignAndLog(sign, value._with_gradient(rule, a).cast(self.dtype))

    def logdet(self) -> Self:
        """The logarithm of the determinant; NaN where that is negative."""
        sign, value = self.slogdet()
        return (sign < 0).where(math.nan, value)

    # --- least squares -----------------------------------------------------------------------

    def lstsq(self, B: Self) -> Self:
        """X of the least norm that minimises the norm of self @ X - B, of matrices of full rank.

        Shape: self (..., m, n), B (..., m, k) or (..., m) -> (..., n, k) or (..., n)
        """
        if B.ndim == 1 or (B.ndim + 1 == self.ndim and B._dims == self._dims[:-1]):
            return self.lstsq(B.unsqueeze(-1)).squeeze(-1)
        if self.ndim < 2 or B._dims[-2] != self._dims[-2]:
            raise ShapeError(
                "lstsq: the right-hand sides have another number of rows",
                got=f"{format_shape(self._dims)} and {format_shape(B._dims)}",
                expected="(..., m, n) and (..., m, k)",
            )
        if self._fixed_size(-2, "lstsq") >= self._fixed_size(-1, "lstsq"):
            q, r = self.qr()
            return r.solve_triangular(q._flipped.matmul(B), upper=True)
        q, r = self._flipped.qr()
        return q.matmul(r._flipped.solve_triangular(B, upper=False))

    # --- others ------------------------------------------------------------------------------

    def householder_product(self, tau: Self) -> Self:
        """The first columns of the product of reflections, as LAPACK stores them below a diagonal.

        Shape: self (..., m, n), tau (..., k) -> (..., m, n)
        """
        rows, columns = self._fixed_size(-2, "householder"), self._fixed_size(-1, "householder")
        square = self[..., :, :1].expand(*self.shape[:-1], rows)
        found = square._identity().cast(self.dtype)[..., :, :columns]
        for number in range(tau._fixed_size(-1, "householder") - 1, -1, -1):
            column = self[..., :, number : number + 1]
            lines = column._rows()
            vector = (lines > number).where(column, lines.eq(number).cast(self.dtype))
            factor = tau[..., number : number + 1].unsqueeze(-1)
            found = found - factor * vector.matmul(vector._flipped.matmul(found))
        return found

    def matrix_exp(self) -> Self:
        """The exponential of square matrices: a series of a halved matrix, squared again.

        The error is below 1e-6 (float32) times the exponential of the 1-norm for norms up to 2**16.
        """
        a = self._matrices("matrix_exp", is_square=True)
        size = a._fixed_size(-1, "matrix_exp")
        if size == 0:
            return self
        norm = a.detach().abs().sum(-2, keepdim=True).max(-1, keepdim=True)
        halvings = (norm * 2.0).clamp(min_=1.0).log2().ceil().clamp(0, 17)
        scaled = a * (-halvings).exp2()
        terms = 9 if a.dtype is dtypes.float32 else 14
        one = a._identity()
        total = one
        for number in range(terms, 0, -1):
            total = one + scaled.matmul(total) * (1 / number)
        for number in range(17):
            total = (halvings > number).where(total.matmul(total), total)
        return total.cast(self.dtype)

    def tensorinv(self, ind: int = 2) -> Self:
        """The inverse for `tensordot` over the last axes, after the first `ind`."""
        if not 0 < ind <= self.ndim:
            raise UserError("tensorinv: ind is out of range", got=ind)
        first, last = self.shape[:ind], self.shape[ind:]
        return self.reshape(math.prod(first), -1).inv().reshape(*last, *first)

    def tensorsolve(self, B: Self, dims: tuple[int, ...] | None = None) -> Self:
        """X with tensordot(self, X) = B; `dims` are moved to the end first."""
        a = self
        if dims is not None:
            moved = [a._axis(axis, "tensorsolve") for axis in dims]
            a = a.permute([axis for axis in range(a.ndim) if axis not in moved] + moved)
        shape = a.shape[B.ndim :]
        return a.reshape(B.numel(), -1).solve(B.reshape(-1)).reshape(shape)
