"""Numbers in the text of CUDA C, which has no names for infinities that every compiler knows.

literal(0xFF800000, float32)    # bitcast_u32_f32(0xff800000ull)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.dtypes import float32, float64, index
from tilework.render.c_family import dialect

if TYPE_CHECKING:
    from tilework.dtypes import DType

#: Indexes below this are plain numbers.
WORD: Final = 1 << 31


def literal(bits: int, dtype: DType) -> str:
    """A scalar literal with exactly these bits."""
    if dtype is index:
        value = bits - (1 << 64) if bits >> 63 else bits
        if -WORD < value < WORD:
            return f"({value})" if value < 0 else str(value)
    if dtype is float32 or dtype is float64:
        exponent = (bits >> (dtype.bits - 1 - dtype.exponent_bits)) & (
            (1 << dtype.exponent_bits) - 1
        )
        if exponent == (1 << dtype.exponent_bits) - 1:
            return f"bitcast_u{dtype.bits}_f{dtype.bits}({bits:#x}ull)"
    return dialect.literal(bits, dtype)
