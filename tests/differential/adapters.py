"""How PyTorch's operators are called here: by the method of that name, or as a table says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tilework import Tensor

#: Names of arguments that say nothing here: memory formats, layouts, pinned memory and the like.
_IGNORED = frozenset({"layout", "pin_memory", "memory_format", "out", "generator"})
_RENAMED = {"dim": "axis", "axis": "dim", "input": "self"}


def by_method(name: str) -> Callable[..., Any] | None:
    """A call of the method `name`, with PyTorch's names of arguments; None if there is none."""
    method = getattr(Tensor, name, None)
    if method is None or isinstance(method, property):
        return None if method is None else lambda x: getattr(x, name)
    known = set(inspect.signature(inspect.unwrap(method)).parameters)

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        found: dict[str, Any] = {}
        for key, value in kwargs.items():
            if key in _IGNORED:
                continue
            if key == "device":
                value = None
            renamed = key if key in known else _RENAMED.get(key, key)
            found[renamed] = value
        return method(x, *args, **found)

    return call


def short_name(name: str) -> str:
    """`conv2d` of `nn.functional.conv2d`; a variant's name is left out by the caller."""
    return name.rpartition(".")[2]


ADAPTERS: dict[str, Callable[..., Any]] = {}
