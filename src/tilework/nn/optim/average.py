"""Running averages of parameters."""

from __future__ import annotations

from collections.abc import Sequence

from tilework.base.errors import UserError
from tilework.tensor.tensor import Tensor


class EMA:
    """Running averages of parameters, which often do better than the last ones.

    Args:
        params: what is averaged.
        decay: share of the old average.

    Example:
        >>> x = Tensor([1.0]).contiguous()
        >>> average = EMA([x], decay=0.5)
        >>> _ = x.assign(Tensor([3.0]))
        >>> average.update()
        >>> average.averages[0].tolist()
        [2.0]
    """

    def __init__(self, params: Sequence[Tensor], decay: float = 0.999) -> None:
        if not 0 <= decay <= 1:
            raise UserError("EMA: the decay is no share", got=decay)
        self.params = list(params)
        self.decay = decay
        self.averages = [param.detach().clone() for param in self.params]
        for average in self.averages:
            average.requires_grad_(False)
        if self.averages:
            Tensor.realize(*self.averages)

    def update(self) -> None:
        """Take in what the parameters are now."""
        with Tensor.no_grad():
            for average, param in zip(self.averages, self.params, strict=True):
                average.assign(average * self.decay + param.detach() * (1 - self.decay))
            if self.averages:
                Tensor.realize(*self.averages)

    def copy_to_params(self) -> None:
        """Write the averages into the parameters."""
        with Tensor.no_grad():
            for average, param in zip(self.averages, self.params, strict=True):
                param.assign(average)
            if self.params:
                Tensor.realize(*self.params)
