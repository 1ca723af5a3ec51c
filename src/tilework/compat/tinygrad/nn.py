"""What `from tinygrad.nn import ...` gives: the layers."""

from __future__ import annotations

from types import ModuleType

from tilework import Tensor, dtypes, nn
from tilework.nn import *  # noqa: F403  # all layers, whatever is added to them

#: Layers alone: modules are served themselves, or are none of tinygrad's.
__all__ = [
    "Tensor", "dtypes",
    *(name for name in nn.__all__ if not isinstance(getattr(nn, name), ModuleType)),
]  # fmt: skip
