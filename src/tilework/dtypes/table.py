"""The dtype table: every element type that a tensor may have, as data.

One row per dtype.  Formats of the low-precision floats: IEEE 754 binary16; bfloat16 (the upper
half of binary32); OCP 8-bit floating point, e4m3 without infinities and e5m2 (Open Compute
Project, "OFP8", revision 1.0); 4-bit floats e2m1 without infinities and NaN (OCP, "Microscaling
Formats", version 1.0).
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

#: Names under which dtypes show themselves, where it is not their own.
SHOWN_NAMES: Final[dict[str, str]] = {}  # bounded by the dtypes that there are

#: The width of dtypes of which two elements share a byte.
PACKED_BITS: Final = 4


class Kind(Enum):
    """The number system of a dtype."""

    BOOL = "b"
    SIGNED = "i"
    UNSIGNED = "u"
    FLOAT = "f"


_BFLOAT16_BITS: Final = 7
#: Codes of the struct module.
_CODES: Final = {
    (Kind.BOOL, 1): "?", (Kind.SIGNED, 8): "b", (Kind.UNSIGNED, 8): "B", (Kind.SIGNED, 16): "h",
    (Kind.UNSIGNED, 16): "H", (Kind.SIGNED, 32): "i", (Kind.UNSIGNED, 32): "I",
    (Kind.SIGNED, 64): "q", (Kind.UNSIGNED, 64): "Q", (Kind.FLOAT, 16): "e",
    (Kind.FLOAT, 32): "f", (Kind.FLOAT, 64): "d",
}  # fmt: skip


class DType:
    """One element type; the table below holds the only instances, so identity is equality.

    `exponent_bits` and `mantissa_bits` (stored bits, without the hidden one) describe floats and
    are 0 otherwise; `finite_only` marks formats without infinities (fp8 e4m3).  `itemsize` is the
    bytes that one stored element takes.  `is_integer` means a signed or unsigned integer, never
    bool; `minimum` and `maximum` are those of an integer or bool dtype.  Of a packed dtype two
    elements share a byte; it is stored and converted, and never computed with.
    """

    __slots__ = (
        "bits", "exponent_bits", "finite_only", "is_bool", "is_float", "is_integer", "is_packed",
        "is_signed", "is_unsigned", "itemsize", "kind", "mantissa_bits", "maximum", "minimum",
        "name", "rank",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        kind: Kind,
        bits: int,
        rank: int,
        exponent_bits: int = 0,
        mantissa_bits: int = 0,
        finite_only: bool = False,
    ) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.bits: Final = bits
        self.rank: Final = rank
        self.exponent_bits: Final = exponent_bits
        self.mantissa_bits: Final = mantissa_bits
        self.finite_only: Final = finite_only
        # Facts that follow are stored: the compiler asks for them at nearly every node.
        self.itemsize: Final = (bits + 7) // 8
        self.is_packed: Final = bits == PACKED_BITS
        self.is_float: Final = kind is Kind.FLOAT
        self.is_bool: Final = kind is Kind.BOOL
        self.is_signed: Final = kind is Kind.SIGNED
        self.is_unsigned: Final = kind is Kind.UNSIGNED
        self.is_integer: Final = kind in (Kind.SIGNED, Kind.UNSIGNED)
        self.minimum: Final = -(1 << (bits - 1)) if kind is Kind.SIGNED else 0
        self.maximum: Final = (1 << (bits - (kind is Kind.SIGNED))) - 1

    @property
    def min(self) -> float:
        """Least value of any dtype; that of floats is -inf."""
        return -math.inf if self.is_float else False if self.is_bool else self.minimum

    @property
    def max(self) -> float:
        """Greatest value of any dtype; that of floats is inf."""
        return math.inf if self.is_float else True if self.is_bool else self.maximum

    @property
    def priority(self) -> int:
        """Another name for `rank`."""
        return self.rank

    @property
    def fmt(self) -> str | None:
        """The code by which the struct module names it, or None."""
        return _CODES.get((self.kind, self.bits)) if self.mantissa_bits != _BFLOAT16_BITS else None

    @property
    def bitsize(self) -> int:
        """Another name for `bits`."""
        return self.bits

    def __repr__(self) -> str:
        return f"dtypes.{SHOWN_NAMES.get(self.name, self.name)}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (by_name, (self.name,))


bool_ = DType("bool", Kind.BOOL, 1, 0)
int8 = DType("int8", Kind.SIGNED, 8, 1)
uint8 = DType("uint8", Kind.UNSIGNED, 8, 2)
int16 = DType("int16", Kind.SIGNED, 16, 3)
uint16 = DType("uint16", Kind.UNSIGNED, 16, 4)
int32 = DType("int32", Kind.SIGNED, 32, 5)
uint32 = DType("uint32", Kind.UNSIGNED, 32, 6)
int64 = DType("int64", Kind.SIGNED, 64, 7)
uint64 = DType("uint64", Kind.UNSIGNED, 64, 8)
fp8e4m3 = DType("fp8e4m3", Kind.FLOAT, 8, 9, 4, 3, True)
fp8e5m2 = DType("fp8e5m2", Kind.FLOAT, 8, 10, 5, 2)
float16 = DType("float16", Kind.FLOAT, 16, 11, 5, 10)
bfloat16 = DType("bfloat16", Kind.FLOAT, 16, 12, 8, 7)
float32 = DType("float32", Kind.FLOAT, 32, 13, 8, 23)
float64 = DType("float64", Kind.FLOAT, 64, 14, 11, 52)

#: Two elements share a byte, the first in its low half.
int4 = DType("int4", Kind.SIGNED, PACKED_BITS, 1)
uint4 = DType("uint4", Kind.UNSIGNED, PACKED_BITS, 1)
fp4e2m1 = DType("fp4e2m1", Kind.FLOAT, PACKED_BITS, 9, 2, 1, True)

#: The type of index arithmetic: ranges, offsets and sizes.
index = int64

ALL: Final[tuple[DType, ...]] = (
    bool_, int8, uint8, int16, uint16, int32, uint32, int64, uint64,
    fp8e4m3, fp8e5m2, float16, bfloat16, float32, float64,
)  # fmt: skip
#: Dtypes that are stored and converted only; `ALL` are those that are computed with.
PACKED: Final = (int4, uint4, fp4e2m1)
FLOATS: Final = tuple(dtype for dtype in ALL if dtype.is_float)
INTEGERS: Final = tuple(dtype for dtype in ALL if dtype.is_integer)

_BY_NAME: Final = {dtype.name: dtype for dtype in (*ALL, *PACKED)}


def by_name(name: str) -> DType:
    """The dtype called `name`.  Raises KeyError when there is none."""
    return _BY_NAME[name]
