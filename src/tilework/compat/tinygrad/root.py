"""What `from tinygrad import ...` gives."""

from __future__ import annotations

from tilework import Tensor
from tilework.compat.tinygrad.counters import GlobalCounters
from tilework.compat.tinygrad.device import Device
from tilework.compat.tinygrad.dtype import dtypes
from tilework.compat.tinygrad.flags import Context, getenv
from tilework.compat.tinygrad.function import function
from tilework.compat.tinygrad.jit import TinyJit
from tilework.compat.tinygrad.uop import UOp, Variable
from tilework.tensor.download import fetch

__all__ = [
    "Context", "Device", "GlobalCounters", "Tensor", "TinyJit", "UOp", "Variable", "dtypes",
    "fetch", "function", "getenv",
]  # fmt: skip
