"""The slow and obvious meaning of every op: the judge of all other implementations.

`evaluate` gives the value of a TENSOR graph, `run_kernel` runs a kernel of the stages KERNEL,
TILED and LOWERED, `run_linear` the ordered statements of LINEAR, `run_blocks` those of a block of
threads.  Arithmetic is that of `ir/ops/math.py`, by the standard library alone.  The compiler
itself needs only the scalars (to compute literals), so the rest is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilework.ir.interpret.blocks import run_blocks
    from tilework.ir.interpret.kernels import compile_kernel, run_kernel
    from tilework.ir.interpret.linear import compile_linear, run_linear
    from tilework.ir.interpret.program import Program
    from tilework.ir.interpret.tensors import evaluate, evaluate_all
    from tilework.ir.interpret.value import Value

__all__ = [
    "Program",
    "Value",
    "compile_kernel",
    "compile_linear",
    "evaluate",
    "evaluate_all",
    "run_blocks",
    "run_kernel",
    "run_linear",
]

_MODULES = {
    "Program": "program",
    "Value": "value",
    "compile_kernel": "kernels",
    "compile_linear": "linear",
    "evaluate": "tensors",
    "evaluate_all": "tensors",
    "run_blocks": "blocks",
    "run_kernel": "kernels",
    "run_linear": "linear",
}


def __getattr__(name: str) -> Any:
    """Load the module of a public name when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
