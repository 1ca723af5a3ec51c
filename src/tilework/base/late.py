"""Modules of the standard library that are imported when something in them is first used.

A process that adds two numbers needs no archives, no signatures and no spelling; importing what
they need took it a tenth of its time.  Our own modules are imported where the layers can be seen.

Example:
    >>> difflib = late_module("difflib")
    >>> difflib.get_close_matches("ad", ["add", "sub"])
    ['add']
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class _Late(ModuleType):
    """Stands for a module until something is taken from it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def late_module(name: str) -> Any:
    """The module called `name`, imported when an attribute of it is first asked for.

    Type checkers see the module where the real import stands below `if TYPE_CHECKING`.
    """
    return _Late(name)
