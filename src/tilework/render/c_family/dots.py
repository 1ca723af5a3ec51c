"""Sums of products of narrow integers that lie side by side in words, written out in C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops import math

if TYPE_CHECKING:
    from tilework.ir.node import OpDef


def dot_text(op: OpDef, operands: tuple[str, str, str], signed: str, unsigned: str) -> str:
    """z plus the products, modulo 2**32; `signed` and `unsigned` name the types of the words."""
    x, y, z = operands
    bits = 16 if op is math.DOT_PAIRS else 8
    first = unsigned if op in math.UNSIGNED_FIRST else signed
    second = unsigned if op in math.UNSIGNED_SECOND else signed
    terms = [f"({unsigned}){z}"]
    for at in range(0, 32, bits):
        factors = [
            f"({unsigned})(({kind})(({unsigned}){word} << {32 - bits - at}) >> {32 - bits})"
            for word, kind in ((x, first), (y, second))
        ]
        terms.append(" * ".join(factors))
    return f"({signed})({' + '.join(terms)})"
