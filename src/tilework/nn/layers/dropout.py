"""Dropout as a layer."""

from __future__ import annotations

from tilework.tensor.tensor import Tensor


class Dropout:
    """While training, each element is 0 with probability `p`, else divided by 1 - p."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x.dropout(self.p)
