"""What `from tinygrad.tensor import ...` gives."""

from __future__ import annotations

from tilework import Tensor
from tilework.compat.tinygrad.dtype import dtypes
from tilework.compat.tinygrad.uop import Variable

__all__ = ["Tensor", "Variable", "dtypes"]
