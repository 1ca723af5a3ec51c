"""Programs written for tinygrad, run unchanged.

    python -m tilework.compat.tinygrad script.py [arguments]

or, inside a process, before the program is imported:

    from tilework.compat.tinygrad import install
    install()
    import program

Modules named `tinygrad` are then served from here, over tilework's public API: tensors, dtypes,
devices, layers, optimizers, state, ONNX models, `TinyJit` and the helpers that programs use.  What
belongs to the insides of the compiler is not served, and an import of it says so.
"""

from __future__ import annotations

from tilework.compat.tinygrad.hook import install, is_installed, uninstall

__all__ = ["install", "is_installed", "uninstall"]
