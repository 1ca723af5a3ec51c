"""tilework: a tensor compiler and runtime.

The public names are loaded when they are first used, so that `import tilework` costs little.

Example:
    >>> from tilework import Tensor
    >>> (Tensor([1.0, 2.0]) + 1).tolist()
    [2.0, 3.0]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilework.base.collection import no_collection

if TYPE_CHECKING:
    from tilework import distributed, dtypes, nn, onnx
    from tilework.base import errors, settings
    from tilework.base.settings import override
    from tilework.engine.device import Device
    from tilework.engine.stats import counters
    from tilework.tensor.autocasting import autocast
    from tilework.tensor.exported import export, load
    from tilework.tensor.jit import TinyJit, jit
    from tilework.tensor.tensor import Tensor
    from tilework.tensor.variable import Variable

__version__ = "0.1.0"

#: Public name -> the module it is from, and its name there (None: the module itself).
_WHERE: dict[str, tuple[str, str | None]] = {
    "Device": ("tilework.engine.device", "Device"),
    "Tensor": ("tilework.tensor.tensor", "Tensor"),
    "TinyJit": ("tilework.tensor.jit", "TinyJit"),
    "Variable": ("tilework.tensor.variable", "Variable"),
    "autocast": ("tilework.tensor.autocasting", "autocast"),
    "counters": ("tilework.engine.stats", "counters"),
    "distributed": ("tilework.distributed", None),
    "dtypes": ("tilework.dtypes", None),
    "errors": ("tilework.base.errors", None),
    "export": ("tilework.tensor.exported", "export"),
    "jit": ("tilework.tensor.jit", "jit"),
    "load": ("tilework.tensor.exported", "load"),
    "nn": ("tilework.nn", None),
    "onnx": ("tilework.onnx", None),
    "override": ("tilework.base.settings", "override"),
    "settings": ("tilework.base.settings", None),
}

__all__ = [
    "Device", "Tensor", "TinyJit", "Variable", "autocast", "counters", "distributed", "dtypes",
    "errors", "export", "jit", "load", "nn", "onnx", "override", "settings",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        text = f"module 'tilework' has no attribute {name!r}"
        if not name.startswith("_") and hasattr(__getattr__("Tensor"), name):
            text += f"\n  try: Tensor.{name}"
        raise AttributeError(text)
    with no_collection():  # what modules define stays
        module = importlib.import_module(where[0])
    found = module if where[1] is None else getattr(module, where[1])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
