"""Sums of products of matrices and vectors, and what is built from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.dtypes import sum_dtype
from tilework.tensor.named import SVD
from tilework.tensor.special import Special
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.tensor.promotion import Number


class Products(Special):
    """bmm, addmm, kron, tensordot, cross, matrix_power and their kin."""

    __slots__ = ()

    def _needs_axes(self, count: int, what: str) -> None:
        if self.ndim != count:
            kinds = {1: "a vector", 2: "a matrix", 3: "matrices in a batch"}
            raise ShapeError(
                f"{what}: needs {kinds[count]}", got=f"shape {format_shape(self._dims)}"
            )

    def mm(self, other: Self) -> Self:
        """The product of two matrices."""
        self._needs_axes(2, "mm")
        other._needs_axes(2, "mm")
        return self.matmul(other)

    def bmm(self, other: Self) -> Self:
        """The products of matrices in two batches of one size."""
        self._needs_axes(3, "bmm")
        other._needs_axes(3, "bmm")
        if self._dims[0] != other._dims[0]:
            raise ShapeError(
                "bmm: the batches differ",
                got=f"{format_shape(self._dims)} and {format_shape(other._dims)}",
            )
        return self.matmul(other)

    def mv(self, other: Self) -> Self:
        """The product of a matrix and a vector."""
        self._needs_axes(2, "mv")
        other._needs_axes(1, "mv")
        return self.matmul(other)

    def _plus_product(self, found: Self, beta: Number, alpha: Number) -> Self:
        """beta * self + alpha * found; a beta of 0 leaves NaN of this tensor out."""
        found = found if alpha == 1 else found * alpha
        if beta == 0:
            shape = self._broadcast_to(found._dims, found._bindings, "addmm")
            return found + shape.zeros_like()
        return (self if beta == 1 else self * beta) + found

    def addmm(self, mat1: Self, mat2: Self, beta: Number = 1, alpha: Number = 1) -> Self:
        """beta * self + alpha * (mat1 @ mat2).

        Example:
            >>> Tensor([1, 1]).addmm(Tensor([[1, 2]]), Tensor([[1, 0], [0, 1]])).tolist()
            [[2, 3]]
        """
        return self._plus_product(mat1.mm(mat2), beta, alpha)

    def addmv(self, mat: Self, vec: Self, beta: Number = 1, alpha: Number = 1) -> Self:
        """beta * self + alpha * (mat @ vec)."""
        return self._plus_product(mat.mv(vec), beta, alpha)

    def addr(self, vec1: Self, vec2: Self, beta: Number = 1, alpha: Number = 1) -> Self:
        """beta * self + alpha * (all products of two vectors)."""
        return self._plus_product(vec1.outer(vec2), beta, alpha)

    def baddbmm(self, batch1: Self, batch2: Self, beta: Number = 1, alpha: Number = 1) -> Self:
        """beta * self + alpha * (batch1 @ batch2), matrix by matrix."""
        return self._plus_product(batch1.bmm(batch2), beta, alpha)

    def addbmm(self, batch1: Self, batch2: Self, beta: Number = 1, alpha: Number = 1) -> Self:
        """beta * self + alpha * the sum of all products of matrices of two batches."""
        batch1._needs_axes(3, "addbmm")
        batch2._needs_axes(3, "addbmm")
        found = type(self).einsum("bik,bkj->ij", batch1, batch2)
        return self._plus_product(found, beta, alpha)

    def addcmul(self, tensor1: Self, tensor2: Self, value: Number = 1) -> Self:
        """self + value * tensor1 * tensor2."""
        product = tensor1 * tensor2
        return self + (product if value == 1 else product * value)

    def addcdiv(self, tensor1: Self, tensor2: Self, value: Number = 1) -> Self:
        """self + value * (tensor1 / tensor2)."""
        quotient = tensor1 / tensor2
        return self + (quotient if value == 1 else quotient * value)

    def inner(self, other: Self) -> Self:
        """Sums of products over the last axis of both."""
        if not self.ndim or not other.ndim:
            return self * other
        return self.tensordot(other, ([self.ndim - 1], [other.ndim - 1]))

    def vdot(self, other: Self) -> Self:
        """The sum of products of two vectors."""
        self._needs_axes(1, "vdot")
        other._needs_axes(1, "vdot")
        return self.matmul(other)

    def vecdot(self, other: Self, dim: int = -1) -> Self:
        """The sum of products along one axis."""
        x, y = self._together(other, "vecdot")
        axis = x._axis(dim, "vecdot")
        return x.movedim(axis, -1).unsqueeze(-2).matmul(y.movedim(axis, -1).unsqueeze(-1))._last()

    def _last(self) -> Self:
        """Without the last two axes, of size 1."""
        return self.squeeze(-1).squeeze(-1)

    def tensordot(self, other: Self, dims: Any = 2) -> Self:
        """Sums of products over several axes.

        Args:
            other: the second factor.
            dims: how many axes (the last of this, the first of `other`), or two lists of axes.
        """
        if hasattr(type(dims), "__index__"):
            count = dims.__index__()
            if not 0 <= count <= min(self.ndim, other.ndim):
                raise ShapeError("tensordot: there are not so many axes", got=count)
            mine, theirs = list(range(self.ndim - count, self.ndim)), list(range(count))
        else:
            mine = [self._axis(axis, "tensordot") for axis in _as_list(dims[0])]
            theirs = [other._axis(axis, "tensordot") for axis in _as_list(dims[1])]
        if len(mine) != len(theirs):
            raise ShapeError("tensordot: needs as many axes of both", got=f"{dims}")
        rows = [axis for axis in range(self.ndim) if axis not in mine]
        columns = [axis for axis in range(other.ndim) if axis not in theirs]
        letters = {axis: _letter(number) for number, axis in enumerate([*rows, *mine])}
        summed = {axis: letters[mine[number]] for number, axis in enumerate(theirs)}
        free = {axis: _letter(self.ndim + number) for number, axis in enumerate(columns)}
        left = "".join([letters[axis] for axis in range(self.ndim)])
        right = "".join([(summed | free)[axis] for axis in range(other.ndim)])
        kept = [letters[axis] for axis in rows] + [free[axis] for axis in columns]
        return type(self).einsum(f"{left},{right}->{''.join(kept)}", self, other)

    def kron(self, other: Self) -> Self:
        """Kronecker's product: each element here times the whole of `other`.

        Example:
            >>> Tensor([1, 2]).kron(Tensor([1, 1])).tolist()
            [1, 1, 2, 2]
        """
        ndim = max(self.ndim, other.ndim)
        x = self.reshape((1,) * (ndim - self.ndim) + self.shape)
        y = other.reshape((1,) * (ndim - other.ndim) + other.shape)
        spread = [size for each in x.shape for size in (each, 1)]
        packed = [size for each in y.shape for size in (1, each)]
        product = x.reshape(spread) * y.reshape(packed)
        return product.reshape([a * b for a, b in zip(x.shape, y.shape, strict=True)])

    def cross(self, other: Self, dim: int | None = None) -> Self:
        """The cross product of vectors of 3 elements along `dim` (else the first axis of size 3).

        Raises:
            ShapeError: the axis has another size.

        Example:
            >>> Tensor([1, 0, 0]).cross(Tensor([0, 1, 0])).tolist()
            [0, 0, 1]
        """
        x, y = self._together(other, "cross")
        if dim is None:
            found = [axis for axis, size in enumerate(x._dims) if size == 3]
            dim = found[0] if found else -1
        axis = x._axis(dim, "cross")
        if not x.ndim or x._dims[axis] != 3:
            raise ShapeError(
                "cross: the axis must have size 3", got=f"axis {axis} of {format_shape(x._dims)}"
            )
        return x.roll(-1, axis) * y.roll(-2, axis) - x.roll(-2, axis) * y.roll(-1, axis)

    def trace(self) -> Self:
        """The sum of the diagonal of a matrix."""
        self._needs_axes(2, "trace")
        return self.diagonal().sum()

    def matrix_power(self, n: int) -> Self:
        """The matrix multiplied by itself; a negative `n` takes the inverse."""
        self._needs_squares("matrix_power")
        if n < 0:
            return self._inverted().matrix_power(-n)
        found: Self | None = None
        square = self
        while n:
            if n & 1:
                found = square if found is None else found.matmul(square).cast(self.dtype)
            n >>= 1
            if n:
                square = square.matmul(square).cast(self.dtype)
        if found is None:
            return self._identity()
        return found._apply(None) if found is self else found

    def _needs_squares(self, what: str) -> None:
        if self.ndim < 2 or self._dims[-1] != self._dims[-2]:
            raise ShapeError(
                f"{what}: needs square matrices", got=f"shape {format_shape(self._dims)}"
            )

    def _identity(self) -> Self:
        """Identity matrices of this shape and dtype."""
        is_same = self._positions(self.ndim - 2) == self._positions(self.ndim - 1)
        return is_same.cast(self.dtype)

    def _inverted(self) -> Self:
        """The inverse; `Solving` says how."""
        raise NotImplementedError

    def svd(self, full_matrices: bool = False) -> SVD[Self]:
        """Singular values; `Spectral` says how."""
        raise NotImplementedError

    @classmethod
    def multi_dot(cls, tensors: Sequence[Self]) -> Self:
        """The product of several matrices, in the order that takes the fewest multiplications.

        The first and the last may be vectors.
        """
        if len(tensors) < 2:
            raise UserError("multi_dot: needs at least two tensors", got=len(tensors))
        parts = list(tensors)
        is_row, is_column = parts[0].ndim == 1, parts[-1].ndim == 1
        if is_row:
            parts[0] = parts[0].unsqueeze(0)
        if is_column:
            parts[-1] = parts[-1].unsqueeze(1)
        found: Self = _in_best_order(parts)
        found = found.squeeze(-1) if is_column else found
        return found.squeeze(0) if is_row else found

    def vander(self, n: int | None = None, increasing: bool = False) -> Self:
        """The powers of each element, from the highest to 0, or the other way round.

        Shape: (..., m) -> (..., m, n), with n = m by default
        """
        if not self.ndim:
            return self.reshape(1).vander(n, increasing)
        if not self.dtype.is_float:
            return self.cast(sum_dtype(self.dtype))._vander(n, increasing)
        return self._vander(n, increasing)

    def _vander(self, n: int | None, increasing: bool) -> Self:
        count = self._fixed_size(-1, "vander") if n is None else n
        column = self.unsqueeze(-1)
        powers = [column.ones_like()]
        for _ in range(1, count):
            powers.append(powers[-1] * column)
        if not count:
            return column[..., :0]
        return powers[0].cat(*powers[1:], dim=-1) if increasing else _reversed(powers)

    def bilinear(self, other: Self, weight: Self, bias: Self | None = None) -> Self:
        """self^T weight[o] other for each output o, plus `bias`.

        Shape: self (..., i), other (..., j), weight (o, i, j), bias (o,) -> (..., o)
        """
        found = type(self).einsum("...i,oij,...j->...o", self, weight, other)
        return found if bias is None else found + bias

    def block_diag(self, *others: Self) -> Self:
        """One matrix with this and the others along its diagonal, zeros elsewhere."""
        parts = [part.reshape(1, -1) if part.ndim < 2 else part for part in (self, *others)]
        width = sum([part._fixed_size(1, "block_diag") for part in parts])
        rows, start = [], 0
        for part in parts:
            end = width - start - part._fixed_size(1, "block_diag")
            rows.append(part.pad(((0, 0), (start, end))))
            start = width - end
        return rows[0].cat(*rows[1:], dim=0)

    def renorm(self, p: float, dim: int, maxnorm: float) -> Self:
        """Each slice along `dim` whose p-norm exceeds `maxnorm` scaled down to it."""
        if not self.dtype.is_float:
            raise DTypeError("renorm: needs floats", got=self.dtype.name)
        axis = self._axis(dim, "renorm")
        rest = tuple([other for other in range(self.ndim) if other != axis])
        length = self.norm(p, rest, keepdim=True)
        scale = (length > maxnorm).where(maxnorm / (length + 1e-7), 1.0)
        return self * scale.cast(self.dtype)


def _as_list(axes: Any) -> list[int]:
    return [axes] if hasattr(type(axes), "__index__") else list(axes)


def _letter(number: int) -> str:
    return "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[number]


def _reversed(parts: list[Any]) -> Any:
    return parts[-1].cat(*parts[-2::-1], dim=-1)


def _in_best_order(parts: list[Any]) -> Any:
    """The product by the classical dynamic program over split points."""
    sizes = [part._fixed_size(0, "multi_dot") for part in parts]
    sizes.append(parts[-1]._fixed_size(1, "multi_dot"))
    count = len(parts)
    cost = [[0] * count for _ in range(count)]
    split = [[0] * count for _ in range(count)]
    for span in range(1, count):
        for i in range(count - span):
            j = i + span
            options = [
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            cost[i][j], split[i][j] = min(options)

    def product(i: int, j: int) -> Any:
        if i == j:
            return parts[i]
        k = split[i][j]
        return product(i, k).matmul(product(k + 1, j))

    return product(0, count - 1)
