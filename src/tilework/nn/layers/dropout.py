"""Dropout as a layer."""

from __future__ import annotations

from tilework.tensor.tensor import Tensor


class Dropout:
    """While training, each element is 0 with probability `p`, else divided by 1 - p.

    Args:
        p: the probability.
        inplace: write into the input.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p = p
        self.inplace = inplace

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        found = x.dropout(self.p)
        return x.assign(found) if self.inplace else found
