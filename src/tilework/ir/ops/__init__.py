"""The op table: one row per op, the single source of truth of the IR.

`math` holds arithmetic, `tensor` what the TENSOR stage adds, `index` ranges and variables,
`memory` buffers, loads and stores, `sort` the sort of a row, `scan` scans that blocks of threads
share, `control` staging, vectors and
statements, `matrix` matrix instructions and their rings, `matrix_registers` small matrices as
values, `warp_matrix` products of one warp, `multi` values over several devices, `program` calls.
"""

from __future__ import annotations

from tilework.ir.ops import (
    control,
    index,
    math,
    matrix,
    matrix_registers,
    memory,
    multi,
    program,
    scan,
    sort,
    tensor,
    warp_matrix,
)
from tilework.ir.ops.define import OPS, define_op

__all__ = [
    "OPS",
    "control",
    "define_op",
    "index",
    "math",
    "matrix",
    "matrix_registers",
    "memory",
    "multi",
    "program",
    "scan",
    "sort",
    "tensor",
    "warp_matrix",
]
