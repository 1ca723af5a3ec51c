"""What the languages of the C family share: names of types, exact literals, a table of emitters.

A scalar expression is the same text in all of them.  Integers wrap: arithmetic is done unsigned,
since signed overflow is undefined in C.  Literals are written so that no digit is lost: floats in
hexadecimal, NaNs by their bits, the least integer as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isinf
from typing import TYPE_CHECKING, Final

from tilework.base.records import dataclass
from tilework.dtypes import DType, decode, float32, float64
from tilework.ir.ops import math
from tilework.render.c_family.dots import dot_text

if TYPE_CHECKING:
    from tilework.ir.node import Node, OpDef

Names = Mapping["Node", str]
Emit = Callable[["Node", "Names"], str]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words in which one language of the family differs.

    Attributes:
        kernel: What stands before the entry point's name.
        arguments: The entry point's arguments, in parentheses.
        prelude: Text at the head of every source.
    """

    kernel: str
    arguments: str
    prelude: str


def type_name(dtype: DType) -> str:
    """The name of a scalar's type: storage-only floats are unsigned integers of their width."""
    if dtype.is_bool:
        return "bool_"
    if dtype is float32 or dtype is float64:
        return f"f{dtype.bits}"
    return f"{'i' if dtype.is_signed else 'u'}{dtype.bits}"


def arithmetic_type(dtype: DType) -> str:
    """The unsigned type that an integer is computed in: never one that is promoted to int."""
    return "u64" if dtype.bits == 64 else "u32"


def literal(bits: int, dtype: DType) -> str:
    """A scalar literal with exactly these bits."""
    if dtype.is_bool:
        return "1" if bits else "0"
    if dtype is float32 or dtype is float64:
        return _float_literal(bits, dtype)
    if dtype.is_signed:
        return _signed_literal(int(decode(bits, dtype)), dtype)
    return f"(({type_name(dtype)}){bits}ull)"


def _float_literal(bits: int, dtype: DType) -> str:
    value = float(decode(bits, dtype))
    if value != value:
        return f"bitcast_u{dtype.bits}_f{dtype.bits}({bits:#x}ull)"
    suffix = "f" if dtype is float32 else ""
    if isinf(value):
        return f"(-__builtin_inf{suffix}())" if value < 0 else f"__builtin_inf{suffix}()"
    return f"({value.hex()}{suffix})"


def _signed_literal(value: int, dtype: DType) -> str:
    if value == dtype.minimum:
        return f"(({type_name(dtype)})({value + 1}ll - 1))"
    return f"(({type_name(dtype)}){value}ll)"


# ---- emitters of scalars


def wrapped(symbol: str) -> Emit:
    """x symbol y for floats as it stands, for integers modulo 2**width."""

    def emit(node: Node, names: Names) -> str:
        x, y = (names[source] for source in node.src)
        dtype = node.type.dtype
        if dtype.is_float:
            return f"{x} {symbol} {y}"
        unsigned = arithmetic_type(dtype)
        return f"({type_name(dtype)})(({unsigned}){x} {symbol} ({unsigned}){y})"

    return emit


def infix(symbol: str) -> Emit:
    """x symbol y, where C means what the op means."""

    def emit(node: Node, names: Names) -> str:
        x, y = (names[source] for source in node.src)
        return f"({type_name(node.type.dtype)})({x} {symbol} {y})"

    return emit


def extreme(symbol: str, name: str) -> Emit:
    """The greater or lesser operand; floats through a helper that keeps NaN and signed zeros."""

    def emit(node: Node, names: Names) -> str:
        x, y = (names[source] for source in node.src)
        if node.type.dtype.is_float:
            return f"{name}_{type_name(node.type.dtype)}({x}, {y})"
        return f"{x} {symbol} {y} ? {x} : {y}"

    return emit


def builtin(name: str) -> Emit:
    """A function of floats that the compiler knows."""

    def emit(node: Node, names: Names) -> str:
        suffix = "f" if node.type.dtype is float32 else ""
        return f"__builtin_{name}{suffix}({', '.join(names[source] for source in node.src)})"

    return emit


def emit_negate(node: Node, names: Names) -> str:
    """-x: floats by the sign bit, integers modulo 2**width."""
    x, dtype = names[node.src[0]], node.type.dtype
    if dtype.is_float:
        return f"-{x}"
    return f"({type_name(dtype)})(0u - ({arithmetic_type(dtype)}){x})"


def emit_absolute(node: Node, names: Names) -> str:
    """|x|; the least integer is its own."""
    x, dtype = names[node.src[0]], node.type.dtype
    if dtype.is_float:
        return builtin("fabs")(node, names)
    if not dtype.is_signed:
        return x
    return f"{x} < 0 ? ({type_name(dtype)})(0u - ({arithmetic_type(dtype)}){x}) : {x}"


def emit_shift_left(node: Node, names: Names) -> str:
    """x << y for a count below the width; longer ones are decomposed before."""
    x, y = (names[source] for source in node.src)
    dtype = node.type.dtype
    return f"({type_name(dtype)})(({arithmetic_type(dtype)}){x} << {y})"


def emit_reciprocal(node: Node, names: Names) -> str:
    """1 / x."""
    return f"{literal_one(node.type.dtype)} / {names[node.src[0]]}"


def literal_one(dtype: DType) -> str:
    """The literal 1 of a float."""
    return "1.0f" if dtype is float32 else "1.0"


def emit_where(node: Node, names: Names) -> str:
    """X where the condition holds, else y."""
    condition, x, y = (names[source] for source in node.src)
    return f"{condition} ? {x} : {y}"


def emit_multiply_add(node: Node, names: Names) -> str:
    """x * y + z: floats rounded once, integers modulo 2**width."""
    dtype = node.type.dtype
    if dtype.is_float:
        return builtin("fma")(node, names)
    x, y, z = (f"({arithmetic_type(dtype)}){names[source]}" for source in node.src)
    return f"({type_name(dtype)})({x} * {y} + {z})"


def emit_dot(node: Node, names: Names) -> str:
    """Sums of products within words."""
    x, y, z = (names[source] for source in node.src)
    return dot_text(node.op, (x, y, z), "int", "unsigned int")


def emit_cast(node: Node, names: Names) -> str:
    """A conversion by value: floats to integers saturate, NaN gives 0."""
    source, target = node.src[0].type.dtype, node.type.dtype
    x = names[node.src[0]]
    if target.is_bool:
        return f"{x} != 0"
    if is_half(source) or is_half(target):
        return f"{half_conversion(source, target)}({x})"
    if source.is_float and target.is_integer:
        return f"saturate_{type_name(source)}_{type_name(target)}({x})"
    return f"({type_name(target)}){x}"


def is_half(dtype: DType) -> bool:
    """Is this IEEE binary16, which is held as its bits?"""
    return dtype.is_float and dtype.bits == 16 and dtype.exponent_bits == 5


def half_conversion(source: DType, target: DType) -> str:
    """The helper that converts between binary16 and float32."""
    return "half_to_float" if is_half(source) else "float_to_half"


def emit_bitcast(node: Node, names: Names) -> str:
    """The same bits as another type, through memory that the compiler removes."""
    source, target = type_name(node.src[0].type.dtype), type_name(node.type.dtype)
    x = names[node.src[0]]
    if source == target:
        return x
    if "f" in (source[0], target[0]):
        return f"bitcast_{source}_{target}({x})"
    return f"({target}){x}"


class CFamily:
    """The scalar emitters that every language of the family starts from."""

    emitters: Final[Mapping[OpDef, Emit]] = {
        math.ADD: wrapped("+"),
        math.SUB: wrapped("-"),
        math.MUL: wrapped("*"),
        math.FDIV: wrapped("/"),
        math.CDIV: infix("/"),
        math.CMOD: infix("%"),
        math.AND: infix("&"),
        math.OR: infix("|"),
        math.XOR: infix("^"),
        math.SHL: emit_shift_left,
        math.SHR: infix(">>"),
        math.LT: infix("<"),
        math.LE: infix("<="),
        math.EQ: infix("=="),
        math.NE: infix("!="),
        math.MAXIMUM: extreme(">", "maximum"),
        math.MINIMUM: extreme("<", "minimum"),
        math.SQRT: builtin("sqrt"),
        math.FLOOR: builtin("floor"),
        math.CEIL: builtin("ceil"),
        math.TRUNC: builtin("trunc"),
        math.ROUND: builtin("rint"),
        math.COPYSIGN: builtin("copysign"),
        math.RECIPROCAL: emit_reciprocal,
        math.NEG: emit_negate,
        math.ABS: emit_absolute,
        math.MULACC: emit_multiply_add,
        **dict.fromkeys(math.INTEGER_DOTS, emit_dot),
        math.WHERE: emit_where,
        math.CAST: emit_cast,
        math.BITCAST: emit_bitcast,
    }
