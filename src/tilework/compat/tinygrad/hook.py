"""The import hook: modules called `tinygrad` are made from modules of this package."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

from tilework import dtypes, errors

NAME: Final = "tinygrad"
_HERE: Final = __name__.rpartition(".")[0]

#: Served module -> the module of this package that has its names; None: a bare folder of others.
SERVED: Final[dict[str, str | None]] = {
    "tinygrad": "root",
    "tinygrad.device": "device",
    "tinygrad.dtype": "dtype",
    "tinygrad.engine": None,
    "tinygrad.engine.jit": "jit",
    "tinygrad.function": "function",
    "tinygrad.helpers": "helpers",
    "tinygrad.llm": None,
    "tinygrad.llm.gguf": "gguf",
    "tinygrad.nn": "nn",
    "tinygrad.nn.datasets": "datasets",
    "tinygrad.nn.onnx": "onnx",
    "tinygrad.nn.optim": "optim",
    "tinygrad.nn.state": "state",
    "tinygrad.tensor": "tensor",
    "tinygrad.uop": None,
    "tinygrad.uop.ops": "uop",
}


#: How programs see dtypes printed.
_SHOWN: Final[dict[str, str]] = {
    "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int",
    "uint32": "uint", "int64": "long", "uint64": "ulong", "float16": "half", "float32": "float",
    "float64": "double",
}  # fmt: skip


def _children(name: str) -> list[str]:
    """The last parts of the names of served modules right below `name`."""
    return [each.rpartition(".")[2] for each in SERVED if each.rpartition(".")[0] == name]


class _Loader(importlib.abc.Loader):
    """Fills a served module with the public names of the module that stands for it."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None  # an ordinary module

    def exec_module(self, module: ModuleType) -> None:
        source = SERVED[module.__name__]
        module.__doc__ = f"`{module.__name__}`, served by tilework."
        if source is not None:
            served = importlib.import_module(f"{_HERE}.{source}")
            for name in served.__all__:
                setattr(module, name, getattr(served, name))

        def missing(name: str) -> Any:
            whole = f"{module.__name__}.{name}"
            if whole in SERVED:
                return importlib.import_module(whole)
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            raise ImportError(
                f"{whole} is not served: it belongs to the insides of tinygrad, or is not known",
                name=whole,
            )

        module.__getattr__ = missing  # type: ignore[method-assign]  # looked up in the module


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules called `tinygrad` here, whether or not such a package is installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != NAME:
            return None
        if fullname not in SERVED:
            raise ModuleNotFoundError(
                f"{fullname} is not served by tilework; served are {', '.join(SERVED)}",
                name=fullname,
            )
        is_package = bool(_children(fullname))
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=is_package)


_FINDER: Final = _Finder()


def is_installed() -> bool:
    """Whether `import tinygrad` is answered from here."""
    return _FINDER in sys.meta_path


def install() -> None:
    """Answer `import tinygrad` from here, until `uninstall`.

    Raises:
        UserError: the package tinygrad itself was imported before.

    A program then imports what it knows::

        install()
        from tinygrad import Tensor

        Tensor([1, 2, 3]).sum().item()  # 6
        uninstall()
    """
    if is_installed():
        return
    if NAME in sys.modules:
        raise errors.UserError(
            "compat: the package tinygrad was imported already",
            try_="install the hook before anything imports it",
        )
    sys.meta_path.insert(0, _FINDER)
    dtypes.SHOWN_NAMES.update(_SHOWN)


def uninstall() -> None:
    """Forget the served modules and answer `import tinygrad` no more."""
    if not is_installed():
        return
    sys.meta_path.remove(_FINDER)
    dtypes.SHOWN_NAMES.clear()
    for name in [each for each in sys.modules if each.partition(".")[0] == NAME]:
        del sys.modules[name]
