"""Eigenvalues and singular values of matrices in batches, by Jacobi's rotations, and norms.

In each round all columns are rotated in pairs at once, then paired anew; a sweep meets each pair
once.  The number of sweeps is fixed (6 + log2 n, two more in float64): convergence is quadratic, so
the error left is that of rounding, about n * u times the norm of the matrix.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.tensor.iteration import repeated
from tilework.tensor.named import SVD, Spectrum
from tilework.tensor.solving import Solving
from tilework.tensor.variable import format_shape


class Spectral(Solving):
    """eigh, svd, pinv, matrix_norm, matrix_rank, cond."""

    __slots__ = ()

    # --- rotations ---------------------------------------------------------------------------

    def _rounds(self, size: int) -> int:
        """How many rounds the sweeps take over `size` (even) columns."""
        sweeps = 5 + math.ceil(math.log2(max(size, 2)))
        sweeps += 2 if self.dtype is dtypes.float64 else 0
        return sweeps * max(size - 1, 1) if size > 1 else 0

    def _partners(self) -> Self:
        """Each last-axis element replaced by that of its pair: 0 and 1, 2 and 3, ..."""
        pairs = self.reshape(*self.shape[:-1], self.shape[-1] // 2, 2).flip(-1)
        return pairs.reshape(self.shape)

    def _angles(self, low: Self, high: Self) -> tuple[Self, Self]:
        """Cosine, and sine with its sign, for each column; of pairs in (..., n / 2).

        They make this one, which the columns of a pair have in common, 0.
        """
        is_flat = self.eq(0)
        slope = (high - low) / (is_flat.where(1.0, self) * 2.0)
        root = (slope.abs() < 1e18).where(slope * slope, 1.0) + 1.0
        root = (slope.abs() < 1e18).where(root.sqrt(), slope.abs())
        tangent = (slope < 0).where(-1.0, 1.0) / (slope.abs() + root)
        tangent = is_flat.where(0.0, tangent)
        cosine = (tangent * tangent + 1.0).rsqrt()
        sine = tangent * cosine
        cosines = cosine.unsqueeze(-1).expand(*cosine.shape, 2)
        sines = (-sine).unsqueeze(-1).cat(sine.unsqueeze(-1), dim=-1)
        shape = (*low.shape[:-1], 2 * low.shape[-1])
        return cosines.reshape(shape).contiguous(), sines.reshape(shape).contiguous()

    def _turned(self, cosines: Self, sines: Self) -> Self:
        """The columns rotated in pairs."""
        return self * cosines.unsqueeze(-2) + self._partners() * sines.unsqueeze(-2)

    def _paired_anew(self, order: Self, axis: int) -> Self:
        return self._gathered(axis, [order])

    # --- eigenvalues -------------------------------------------------------------------------

    def eigh(self, UPLO: str = "L") -> Spectrum[Self]:
        """Eigenvalues (ascending) and eigenvectors (in columns) of symmetric matrices.

        Args:
            UPLO: the triangle that is read, "L" or "U".

        Shape: (..., n, n) -> (..., n), (..., n, n)

        The gradient of the vectors is infinite where two eigenvalues are equal.
        """
        if UPLO not in ("L", "U"):
            raise UserError("eigh: unknown triangle", got=UPLO, expected="L or U")
        a = self._matrices("eigh", is_square=True)
        triangle = a.tril() if UPLO == "L" else a.triu()
        rest = a.tril(-1) if UPLO == "L" else a.triu(1)
        whole = triangle + rest._flipped
        values, vectors = whole.detach()._symmetric_spectrum()

        def of_values(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            v = sources[0].eigh(UPLO)[1]
            return ((v * g.unsqueeze(-2)).matmul(v._flipped),)

        def of_vectors(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            w, v = sources[0].eigh(UPLO)
            gap = w.unsqueeze(-2) - w.unsqueeze(-1)
            is_own = gap._rows() == gap._columns()
            inner = v._flipped.matmul(g)
            inner = is_own.where(0.0, inner / is_own.where(1.0, gap))
            found = v.matmul(inner).matmul(v._flipped)
            return ((found + found._flipped) * 0.5,)

        return Spectrum(
            values._with_gradient(of_values, a).cast(self.dtype),
            vectors._with_gradient(of_vectors, a).cast(self.dtype),
        )

    def eigvalsh(self, UPLO: str = "L") -> Self:
        """The eigenvalues of symmetric matrices, ascending."""
        return self.eigh(UPLO)[0]

    def _symmetric_spectrum(self) -> tuple[Self, Self]:
        size = self._fixed_size(-1, "eigh")
        if size < 2:
            return self.diagonal(0, -2, -1), self._identity()
        extra = size % 2
        lead = ((0, 0),) * (self.ndim - 2)
        a = self.pad((*lead, (0, extra), (0, extra)))
        order = self._from_numbers(_next_pairs(size + extra), dtypes.index, self.device)

        def step(_: Self, x: Self, v: Self, order: Self) -> tuple[Self, ...]:
            diagonal = x.diagonal(0, -2, -1).reshape(*x.shape[:-2], x.shape[-1] // 2, 2)
            both = x.diagonal(1, -2, -1)[..., ::2]
            cosines, sines = both._angles(diagonal[..., 0], diagonal[..., 1])
            columns = x._turned(cosines, sines)
            rows = columns._flipped._turned(cosines, sines)
            rows = rows._paired_anew(order, x.ndim - 1)._paired_anew(order, x.ndim - 2)
            vectors = v._turned(cosines, sines)._paired_anew(order, v.ndim - 1)
            return rows, vectors, order

        sweep = size + extra - 1
        _, v, _ = repeated(self._rounds(size + extra), step, a, a._identity(), order)
        # Each of many rotations is off by a rounding: the last sweep starts from the matrix.
        v = v._orthonormal()
        a = v._flipped.matmul(a.matmul(v).contiguous())
        a, turn, _ = repeated(sweep, step, a, a._identity(), order)
        v = v.matmul(turn)._orthonormal()
        values, places = a.diagonal(0, -2, -1)[..., :size].sort(-1)
        vectors = v[..., :size, :size]
        return values, vectors.gather(-1, places.unsqueeze(-2).expand(vectors.shape))

    # --- singular values ---------------------------------------------------------------------

    def svd(self, full_matrices: bool = False) -> SVD[Self]:
        """U, S (descending) and V^T with U @ diag(S) @ V^T = self.

        Args:
            full_matrices: give square U and V^T, whose further columns are free.

        Shape: (..., m, n) -> (..., m, k), (..., k), (..., k, n) with k = min(m, n)

        The gradient of U and V is infinite where two singular values are equal; the further columns
        of full matrices have none.
        """
        a = self._matrices("svd")
        rows, columns = a._fixed_size(-2, "svd"), a._fixed_size(-1, "svd")
        count = min(rows, columns)
        u, s, v = a.detach()._any_svd()
        parts: list[Self] = []
        for number, part in enumerate((u[..., :, :count], s, v[..., :count, :])):
            parts.append(part._with_gradient(_svd_rule(number), a).cast(self.dtype))
        if not full_matrices:
            return SVD(parts[0], parts[1], parts[2])
        more_u, more_v = u[..., :, count:].cast(self.dtype), v[..., count:, :].cast(self.dtype)
        left = parts[0].cat(more_u, dim=-1) if rows > count else parts[0]
        right = parts[2].cat(more_v, dim=-2) if columns > count else parts[2]
        return SVD(left, parts[1], right)

    def svdvals(self) -> Self:
        """The singular values, descending.

        Example:
            >>> Tensor([[3.0, 0.0], [0.0, 4.0]]).svdvals().tolist()
            [4.0, 3.0]
        """
        return self.svd()[1]

    def _any_svd(self) -> tuple[Self, Self, Self]:
        """Full factors: of wide matrices those of the flipped ones."""
        rows, columns = self._fixed_size(-2, "svd"), self._fixed_size(-1, "svd")
        if rows < columns:
            u, s, v = self._flipped._any_svd()
            return v._flipped, s, u._flipped
        if columns == 0:
            square = type(self).eye(rows, dtype=self.dtype, device=self.device)
            lead = self.shape[:-2]
            zeros = self.reshape(*lead, 0) if not self.numel() else self[..., 0, :]
            return square.expand(*lead, rows, rows), zeros, self[..., :0, :]
        products, right = self._orthogonal_columns()
        lengths = products.norm(dim=-2)
        values, places = lengths.sort(-1, descending=True)
        spread = places.unsqueeze(-2)
        products = products.gather(-1, spread.expand(products.shape))
        right = right.gather(-1, spread.expand(right.shape))
        # QR completes the columns of values that are 0, and keeps all of them orthogonal.
        return products._orthonormal(), values, right._flipped

    def _orthogonal_columns(self) -> tuple[Self, Self]:
        """self @ V with orthogonal columns, and V (Hestenes)."""
        columns = self._fixed_size(-1, "svd")
        if columns < 2:
            ones = self[..., :1, :] * 0.0 + 1.0
            return self, ones
        extra = columns % 2
        lead = ((0, 0),) * (self.ndim - 2)
        a = self.pad((*lead, (0, 0), (0, extra)))
        # Squares of huge or tiny elements leave the range, so the largest magnitude is taken out.
        top = a.abs().max((-2, -1), keepdim=True)
        top = top.eq(0).where(1.0, top)
        order = self._from_numbers(_next_pairs(columns + extra), dtypes.index, self.device)
        unit = 2.0 ** -(self.dtype.mantissa_bits + 1)
        square = a[..., :1, :].expand(*a.shape[:-2], columns + extra, columns + extra)

        def step(_: Self, x: Self, v: Self, order: Self) -> tuple[Self, ...]:
            lengths = x.square().sum(-2).reshape(*x.shape[:-2], x.shape[-1] // 2, 2)
            both = (x * x._partners()).sum(-2)[..., ::2]
            low, high = lengths[..., 0], lengths[..., 1]
            is_done = both.abs() <= (low * high).sqrt() * unit
            cosines, sines = is_done.where(0.0, both)._angles(low, high)
            turned = x._turned(cosines, sines)._paired_anew(order, x.ndim - 1)
            return turned, v._turned(cosines, sines)._paired_anew(order, v.ndim - 1), order

        sweep, unity = columns + extra - 1, square._identity()
        a = a / top
        _, v, _ = repeated(self._rounds(columns + extra), step, a, unity, order)
        # Each of many rotations is off by a rounding: the last sweep starts from the matrix.
        v = v._orthonormal()
        _, turn, _ = repeated(sweep, step, a.matmul(v), unity, order)
        v = v.matmul(turn)._orthonormal()
        return (a.matmul(v) * top)[..., :, :columns], v[..., :columns, :columns]

    # --- pseudo-inverse, rank, condition -----------------------------------------------------

    def pinv(self, rcond: float | None = None, hermitian: bool = False) -> Self:
        """The pseudo-inverse of Moore and Penrose.

        Args:
            rcond: singular values up to this share of the greatest count as 0; by default the
                unit of the dtype times the longer side.
            hermitian: the matrix is symmetric (its lower triangle is read).
        """
        a = self._matrices("pinv")
        share = a._default_share() if rcond is None else rcond
        source = a.tril() + a.tril(-1)._flipped if hermitian else a
        u, s, v = source.detach().svd()
        if self.numel() == 0:
            return self._flipped
        limit = s[..., :1] * share
        inverse = (s > limit).where((s > limit).where(s, 1.0).reciprocal(), 0.0)
        value = (v._flipped * inverse.unsqueeze(-2)).matmul(u._flipped)

        def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
            matrix = sources[0]
            p = matrix.pinv(rcond)
            turned, side = p._flipped, g._flipped
            first = -turned.matmul(g).matmul(turned)
            left = (side - matrix.matmul(p).matmul(side)).matmul(p).matmul(turned)
            right = turned.matmul(p).matmul(side - side.matmul(p).matmul(matrix))
            return (first + left + right,)

        return value._with_gradient(rule, source).cast(self.dtype)

    def _default_share(self) -> float:
        longest = max(self._fixed_size(-2, "svd"), self._fixed_size(-1, "svd"))
        return longest * 2.0**-self.dtype.mantissa_bits

    def matrix_rank(self, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Self:
        """How many singular values are above max(atol, rtol * the greatest) (int64).

        Args:
            atol: 0 by default.
            rtol: the unit of the dtype times the longer side by default, 0 if `atol` is given.
            hermitian: the matrix is symmetric (its lower triangle is read).
        """
        a = self._matrices("matrix_rank").detach()
        s = a.eigvalsh().abs() if hermitian else a.svdvals()
        if not s.shape[-1]:
            return s.ne(0).sum(-1)
        if rtol is None:
            rtol = a._default_share() if atol is None else 0.0
            if atol is not None and not isinstance(atol, int | float):
                rtol = atol.eq(0).where(a._default_share(), 0.0)
        top = s.max(-1, keepdim=True)
        relative = top * (rtol if isinstance(rtol, int | float) else rtol.unsqueeze(-1))
        absolute = 0.0 if atol is None else atol
        if not isinstance(absolute, int | float):
            absolute = absolute.unsqueeze(-1)
        return (s > relative.maximum(absolute)).sum(-1)

    def cond(self, p: Any = None) -> Self:
        """The condition number: the norm of the matrix times that of its inverse."""
        if p in (None, 2, -2):
            s = self.svdvals()
            return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
        return self.matrix_norm(p) * self.inv().matrix_norm(p)

    # --- norms -------------------------------------------------------------------------------

    def matrix_norm(
        self, ord: Any = "fro", dim: tuple[int, int] = (-2, -1), keepdim: bool = False
    ) -> Self:
        """Norms of matrices: "fro", "nuc", 1, -1, 2, -2, infinity and -infinity.

        Args:
            ord: which one; 1 adds up columns, infinity rows, 2 is the greatest singular value.
            dim: the axes of the matrices.
            keepdim: keep them with size 1.
        """
        if self.ndim < 2:
            raise ShapeError("matrix_norm: needs matrices", got=format_shape(self._dims))
        axes = [self._axis(axis, "matrix_norm") for axis in dim]
        x = self.movedim(axes, (-2, -1))
        if ord == "fro":
            found = x.norm(dim=(-2, -1))
        elif ord in (2, -2, "nuc"):
            s = x.svdvals()
            found = s.sum(-1) if ord == "nuc" else (_greatest(s) if ord == 2 else s.min(-1))
        elif ord in (1, -1, math.inf, -math.inf):
            sums = x.abs().sum(-2 if abs(ord) == 1 else -1)
            found = _greatest(sums) if ord > 0 else sums.min(-1)
        else:
            raise UserError("matrix_norm: unknown norm", got=repr(ord))
        if not keepdim:
            return found
        return found.reshape([1 if axis in axes else size for axis, size in enumerate(self.shape)])

    def vector_norm(self, ord: float = 2, dim: Any = None, keepdim: bool = False) -> Self:
        """The p-norm of vectors along `dim` (all elements by default)."""
        return self.norm(ord, dim, keepdim)


def _greatest(sizes: Any) -> Any:
    """The greatest of each row; of none, as of a matrix without rows, 0."""
    return sizes.max(-1) if sizes.shape[-1] else sizes.sum(-1)


def _next_pairs(size: int) -> list[int]:
    """Where each place gets its column from, so that size - 1 rounds meet each pair once."""
    tops, bottoms = list(range(0, size, 2)), list(range(1, size, 2))
    if size == 2:
        return [0, 1]
    new_tops = [tops[0], bottoms[0], *tops[1:-1]]
    new_bottoms = [*bottoms[1:], tops[-1]]
    return [place for pair in zip(new_tops, new_bottoms, strict=True) for place in pair]


def _svd_rule(number: int) -> Any:
    """The gradient of U (0), S (1) or V^T (2)."""

    def rule(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
        u, s, v = sources[0].svd()
        if number == 1:
            return ((u * g.unsqueeze(-2)).matmul(v),)
        squares = s * s
        gap = squares.unsqueeze(-2) - squares.unsqueeze(-1)
        is_own = gap._rows() == gap._columns()
        if number == 0:
            inner = u._flipped.matmul(g)
            skew = inner - inner._flipped
            inner = is_own.where(0.0, skew / is_own.where(1.0, gap)) * s.unsqueeze(-2)
            found = u.matmul(inner).matmul(v)
            if u.shape[-2] > s.shape[-1]:
                rest = g / s.unsqueeze(-2)
                found = found + (rest - u.matmul(u._flipped.matmul(rest))).matmul(v)
            return (found,)
        turned = g._flipped
        inner = v.matmul(turned)
        skew = inner - inner._flipped
        inner = s.unsqueeze(-1) * is_own.where(0.0, skew / is_own.where(1.0, gap))
        found = u.matmul(inner).matmul(v)
        if v.shape[-1] > s.shape[-1]:
            rest = g / s.unsqueeze(-1)
            found = found + u.matmul(rest - rest.matmul(v._flipped).matmul(v))
        return (found,)

    return rule
