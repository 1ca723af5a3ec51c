"""The slow and obvious meaning of every op: the judge of all other implementations.

`evaluate` gives the value of a TENSOR graph, `run_kernel` runs a kernel of the stages KERNEL,
TILED and LOWERED, `run_linear` the ordered statements of LINEAR.  Arithmetic is that of
`ir/ops/math.py`, by the standard library alone.
"""

from __future__ import annotations

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
    "run_kernel",
    "run_linear",
]
