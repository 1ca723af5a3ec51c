"""What `from tinygrad.nn import ...` gives: the layers."""

from __future__ import annotations

from tilework import Tensor, dtypes, nn
from tilework.nn import *  # noqa: F403  # all layers, whatever is added to them

#: Modules that are served themselves.
_MODULES = ("optim", "state")

__all__ = ["Tensor", "dtypes", *(name for name in nn.__all__ if name not in _MODULES)]
