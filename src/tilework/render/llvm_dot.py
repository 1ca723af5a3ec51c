"""LLVM IR for sums of products of narrow integers that lie side by side in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tilework.ir.ops import math

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.node import OpDef


class Instruction(NamedTuple):
    """An intrinsic: its name, the type of its operands, and whether it adds to words."""

    name: str
    operand: str
    accumulates: bool


#: By the op and the number of words; other numbers are written out.
INSTRUCTIONS: Final[dict[tuple[OpDef, int], Instruction]] = {
    (math.DOT_PAIRS, 16): Instruction("llvm.x86.avx512.pmaddw.d.512", "<32 x i16>", False),
    (math.DOT_PAIRS, 8): Instruction("llvm.x86.avx2.pmadd.wd", "<16 x i16>", False),
    (math.DOT_PAIRS, 4): Instruction("llvm.x86.sse2.pmadd.wd", "<8 x i16>", False),
    (math.DOT_QUADS, 16): Instruction("llvm.x86.avx512.vpdpbusd.512", "<64 x i8>", True),
    (math.DOT_QUADS, 8): Instruction("llvm.x86.avx512.vpdpbusd.256", "<32 x i8>", True),
    (math.DOT_QUADS, 4): Instruction("llvm.x86.avx512.vpdpbusd.128", "<16 x i8>", True),
    (math.DOT_SIGNED_QUADS, 4): Instruction(
        "llvm.aarch64.neon.sdot.v4i32.v16i8", "<16 x i8>", True
    ),
}


def written_out(op: OpDef, kind: str, x: str, y: str, define: Callable[[str], str]) -> str:
    """The sum by shifts and multiplications, for any type of words; returns its name."""
    bits = 16 if op is math.DOT_PAIRS else 8
    total = ""
    for at in range(0, 32, bits):
        parts = []
        for name, unsigned in ((x, math.UNSIGNED_FIRST), (y, math.UNSIGNED_SECOND)):
            shift = "lshr" if op in unsigned else "ashr"
            high = define(f"shl {kind} {name}, {_constant(kind, 32 - bits - at)}")
            parts.append(define(f"{shift} {kind} {high}, {_constant(kind, 32 - bits)}"))
        product = define(f"mul {kind} {parts[0]}, {parts[1]}")
        total = define(f"add {kind} {total}, {product}") if total else product
    return total


def _constant(kind: str, value: int) -> str:
    return str(value) if kind == "i32" else f"splat (i32 {value})"
