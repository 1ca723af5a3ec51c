"""How types, literals and addresses are written in LLVM IR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import DType, Kind, decode, encode, float16, float32, float64
from tilework.ir.ops import control, math
from tilework.ir.ops.memory import INDEX, PARAM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node

#: The arguments of a kernel's function.
ARGUMENTS = "ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch"
_FLOATS = {float16: "half", float32: "float", float64: "double"}


def scalar_type(dtype: DType) -> str:
    """The LLVM type of one element in a register."""
    if dtype in _FLOATS:
        return _FLOATS[dtype]
    return f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """The LLVM type of one element in memory."""
    return "i8" if dtype.is_bool else scalar_type(dtype)


def type_of(node: Node) -> str:
    """The LLVM type of a value."""
    scalar = scalar_type(node.type.dtype)
    return f"<{node.type.lanes} x {scalar}>" if node.type.shape else scalar


def literal(bits: int, dtype: DType) -> str:
    """An element as an LLVM constant."""
    if dtype.is_bool:
        return "true" if bits else "false"
    if dtype is float16:
        return f"0xH{bits:04X}"
    if dtype is float32:
        value = float(decode(bits, dtype))
        if value != value:
            # LLVM writes a float as the double of equal value; a NaN keeps its payload.
            wide = (bits >> 31 << 63) | (0x7FF << 52) | ((bits & 0x7FFFFF) << 29)
            return f"0x{wide:016X}"
        return f"0x{_double_bits(value):016X}"
    if dtype is float64:
        return f"0x{bits:016X}"
    if dtype.kind is Kind.SIGNED:
        return str(int(decode(bits, dtype)))
    return str(bits)


def alignment(address: Node) -> int:
    """The alignment that an access may count on: memory on loan may start at any byte."""
    return 1 if address.src[0].op is PARAM else address.type.dtype.itemsize


def _double_bits(value: float) -> int:
    return encode(value, float64)


def is_shifted(offset: Node) -> bool:
    """Whether an offset is something and a constant.

    Such an address is written as two steps, of which all accesses to a tile share the first: LLVM
    takes several times as long to find out that sums differ in their constants alone.
    """
    return (
        offset.op is math.ADD
        and offset.src[1].op is math.CONST
        and offset.src[0].op is not control.ACCUMULATOR
        and not offset.type.shape
    )


def sums_within_addresses(statements: Sequence[Node]) -> set[Node]:
    """The statements whose values are used in addresses alone, which spell them out."""
    inside: set[Node] = set()
    outside: set[Node] = set()
    for node in statements:
        if node.op is INDEX and is_shifted(node.src[1]):
            inside.add(node.src[1])
            outside.update(node.src[1].src)
            outside.add(node.src[0])
        else:
            outside.update(node.src)
    return inside - outside


def scalar_zero(kind: str) -> str:
    """The literal 0 of a scalar type."""
    if kind in ("float", "double"):
        return "0.0"
    return "0xH0000" if kind == "half" else "0"


def scalar_suffix(kind: str) -> str:
    """How names of intrinsics say a scalar type."""
    return {"half": "f16", "float": "f32", "double": "f64"}.get(kind, kind)


def type_suffix(node: Node) -> str:
    """How names of intrinsics say the type of a node."""
    scalar = scalar_suffix(scalar_type(node.type.dtype))
    return f"v{node.type.lanes}{scalar}" if node.type.shape else scalar
