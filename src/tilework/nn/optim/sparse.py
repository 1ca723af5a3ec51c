"""Adam for tables of which a step uses few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import UserError
from tilework.nn.optim.adam import CorrectedMoments
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.nn.optim.groups import Params


class SparseAdam(CorrectedMoments):
    """Adam that leaves the rows of a parameter alone whose gradient is 0, and their means too.

    Rows are along the first axis, as those of `Embedding`.  Gradients are whole tensors here: a row
    whose gradient is 0 throughout counts as one that was not looked up.

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        betas: shares of the old means of gradients and of their squares.
        eps: added to the root of the mean square.
        maximize: go along the gradient, not against it.

    Raises:
        UserError: `eps` is not above 0.

    Example:
        >>> table = Tensor([[1.0], [2.0]], requires_grad=True)
        >>> optimizer = SparseAdam([table], lr=0.5)
        >>> loss = table[1].sum().backward()
        >>> optimizer.step()
        >>> table.round(decimals=3).tolist()
        [[1.0], [1.5]]
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if eps == 0:  # what has not been looked up would be 0 / 0
            raise UserError("SparseAdam: eps is 0", got=eps, expected="a number above 0")
        super().__init__(params, lr, betas, eps, maximize=maximize)
        self._start_powers()

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        is_used = g.ne(0)
        if g.ndim > 1:
            is_used = is_used.any(tuple(range(1, g.ndim)), keepdim=True)
        m, v = self.m[number], self.v[number]
        b1 = self._as(self.b1, g)
        m.assign(is_used.where(m * b1 + g * self._as(1 - self.b1, g), m))
        v.assign(is_used.where(v * self.b2 + g * g * (1 - self.b2), v))
        written += [m, v]
        rate = ((1 - self.b2_t).sqrt() / (1 - self.b1_t)).cast(g.dtype) * self._rate(g)
        return is_used.where(m / (v.sqrt() + self.eps) * rate, 0.0)
