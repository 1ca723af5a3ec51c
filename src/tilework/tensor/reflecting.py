"""QR by blocks of reflections (Householder): most of the work is in products.

A block of reflections H1 H2 ... Hk is I - V T V^T, where the columns of V are their vectors and T
is upper triangular (Schreiber and Van Loan, "A storage-efficient WY representation for products of
Householder transformations", SIAM J. Sci. Stat. Comput. 10, 1989).  A step reflects the columns
of one block one by one, and takes the block off the columns behind it by products.
"""

from __future__ import annotations

from typing import Self

from tilework.tensor.eliminating import BLOCK, Eliminating
from tilework.tensor.iteration import repeated, replayed, settled


class Reflecting(Eliminating):
    """What qr and the full factors of svd are made of; none of it records a history."""

    __slots__ = ()

    def _reflected(self, count: int) -> tuple[Self, Self]:
        """The first `count` columns of Q, and R: (..., m, count) and (..., m, n).

        Below its diagonal R has anything.  There are at most m columns of Q.
        """
        rows, columns = self._fixed_size(-2, "qr"), self._fixed_size(-1, "qr")
        size = min(rows - 1, columns)  # the last row has nothing below it
        if size < 1 or not self.numel():
            square = type(self).eye(rows, dtype=self.dtype, device=self.device)
            return square[:, :count].expand(*self.shape[:-2], rows, count), self
        if size <= BLOCK:

            def whole_matrix(matrix: Self) -> tuple[Self, ...]:
                return matrix._reflected_at_once(size, count)

            return replayed(whole_matrix, self)  # type: ignore[return-value]  # two of them
        blocks = -(-size // BLOCK)
        whole = blocks * BLOCK
        matrix = self._with_zeros(max(rows, whole), max(columns, whole))
        r, vectors, turns = matrix._reflected_by_blocks(blocks)
        q = vectors._blocks_of_q(turns, blocks, count)
        return q[..., :rows, :], r[..., :rows, :columns]

    def _reflected_at_once(self, size: int, count: int) -> tuple[Self, Self]:
        """The same by one block of `size` reflections."""
        panel, vectors, turn = self[..., :size]._reflected_by_columns(self._first())
        rest = vectors._block_taken_off(turn._flipped, self[..., size:])
        q = vectors._block_taken_off(turn, vectors._unit_columns(count))
        return q, panel.cat(rest, dim=-1)

    def _orthonormal(self) -> Self:
        """Q (..., m, m) whose first columns point as those of this one (..., m, n), m >= n."""
        rows, columns = self._fixed_size(-2, "qr"), self._fixed_size(-1, "qr")
        q, r = self._reflected(rows)
        sign = (r.diagonal(0, -2, -1) < 0).where(-1.0, 1.0)
        if rows > columns:
            sign = sign.pad(((0, 0),) * (sign.ndim - 1) + ((0, rows - columns),), value=1.0)
        return q * sign.unsqueeze(-2)

    def _unit_columns(self, count: int) -> Self:
        """The first columns of the identity of as many rows as this one has."""
        lines = self[..., :1].expand(*self.shape[:-1], count)
        return (lines._rows() == lines._columns()).cast(self.dtype)

    def _block_taken_off(self, turn: Self, other: Self) -> Self:
        """(I - V T V^T) @ other, of the vectors V that this one has as columns."""
        inner = turn.matmul(self._flipped.matmul(other).contiguous()).contiguous()
        return other - self.matmul(inner)

    def _reflected_by_blocks(self, blocks: int) -> tuple[Self, Self, Self]:
        """R, the vectors (..., m, blocks * BLOCK) and the T of each block beside each other."""
        whole = blocks * BLOCK

        def step(number: Self, x: Self, vectors: Self, turns: Self) -> tuple[Self, ...]:
            start = number * BLOCK
            panel, start = settled(x._block(start, -1), start)
            panel, found, turn = panel._reflected_by_columns(start)
            rest = found._block_taken_off(turn._flipped, x)
            after = start + BLOCK
            rest = (x._columns() >= after).where(rest, x)
            parts = (panel, rest), (found, vectors), (turn, turns)
            return tuple([own._in_columns(start, other) for own, other in parts])

        empty = self._unit_columns(whole) * 0.0
        start = self, empty, empty[..., :BLOCK, :]
        return repeated(blocks, step, *start)  # type: ignore[return-value]  # three of them

    def _in_columns(self, start: Self, others: Self) -> Self:
        """The other columns with this block in the place of those from a number on."""
        places = others._columns()
        is_own = (places >= start) & (places < start + BLOCK)
        return is_own.where(self._moved_into(start, -1, others.shape[-1]), others)

    def _blocks_of_q(self, turns: Self, blocks: int, count: int) -> Self:
        """The first columns of Q, of the vectors: the last block is applied first."""

        def step(number: Self, q: Self, vectors: Self, turns: Self) -> tuple[Self, ...]:
            start = (number * -1 + (blocks - 1)) * BLOCK
            own, turn = settled(vectors._block(start, -1), turns._block(start, -1))
            return own._block_taken_off(turn, q), vectors, turns

        return repeated(blocks, step, self._unit_columns(count), self, turns)[0]

    def _reflected_by_columns(self, start: Self) -> tuple[Self, Self, Self]:
        """Columns whose diagonal begins at row `start`, reflected; their vectors, and T."""
        columns = self._fixed_size(-1, "qr")

        def step(number: Self, x: Self, vectors: Self, turn: Self, start: Self) -> tuple[Self, ...]:
            vector, factor = x._line(number, -1)._reflector(start + number)
            taken = vector._flipped.matmul(x).contiguous()
            before = vectors._flipped.matmul(vector).contiguous()
            column = turn.matmul(before) * -factor
            column = (column._rows() == number).where(factor, column)
            return (
                x - factor * vector * taken,
                (vectors._columns() == number).where(vector, vectors),
                (turn._columns() == number).where(column, turn),
                start,
            )

        empty = self._unit_columns(columns) * 0.0
        square = empty[..., :1, :].expand(*self.shape[:-2], columns, columns)
        return repeated(columns, step, self, empty, square, start)[:3]  # type: ignore[return-value]

    def _reflector(self, line: Self) -> tuple[Self, Self]:
        """v and f, where I - f v v^T clears a column (..., m, 1) below a row; v is 1 there.

        f is 0 where nothing has to be cleared.
        """
        lines = self._rows()
        column = (lines >= line).where(self, 0.0)
        # In units of the largest magnitude, so that no square overflows and nothing is subnormal.
        top = column.abs().max(-2, keepdim=True)
        column = (column / top.eq(0).where(1.0, top)).contiguous()
        head = column._line(line, -2)
        length = column.square().sum(-2, keepdim=True).sqrt()
        rest = (lines > line).where(column, 0.0).abs().max(-2, keepdim=True)
        sign = (head < 0).where(-1.0, 1.0)
        scale = rest.eq(0).where(1.0, head + sign * length)
        vector = (lines > line).where(column / scale, 0.0)
        vector = (lines == line).where(1.0, vector).contiguous()
        factor = rest.eq(0).where(0.0, (length + head.abs()) / length.eq(0).where(1.0, length))
        return vector, factor.contiguous()
