"""What `from tinygrad.nn.optim import ...` gives: the optimizers."""

from __future__ import annotations

from tilework.nn import optim
from tilework.nn.optim import *  # noqa: F403  # all of them, whatever is added

__all__ = [*optim.__all__]
