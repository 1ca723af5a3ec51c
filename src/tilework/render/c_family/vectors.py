"""Emitters of vectors, as the vector extensions of GCC and Clang write them.

A vector type is named by its element and lanes: `f32x16`.  A vector of bools is a mask of bytes,
0 or -1 each, called `b8xN`; selection works on bits, so that values pass through untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tilework.dtypes import DType, float32
from tilework.ir.fold import fold_op
from tilework.ir.ops import control, math
from tilework.render.c_family.dialect import (
    Emit,
    Names,
    emit_bitcast,
    half_conversion,
    is_half,
    literal_one,
    type_name,
)
from tilework.render.c_family.dots import dot_text

if TYPE_CHECKING:
    from tilework.ir.node import Node, OpDef

COMPARISONS: Final[Mapping[OpDef, str]] = {
    math.LT: "<",
    math.LE: "<=",
    math.EQ: "==",
    math.NE: "!=",
}
#: Deeper than this a mask is widened as a whole and not put together from wide parts.
_MASK_DEPTH = 3


def element_name(dtype: DType) -> str:
    """The element type of a vector; bools are bytes of a mask."""
    return "b8" if dtype.is_bool else type_name(dtype)


def vector_type(node: Node) -> str:
    """The type of a vector value."""
    return f"{element_name(node.type.dtype)}x{node.type.shape[0]}"


def lanes_of(node: Node) -> int:
    """The number of lanes of a vector value."""
    lanes: int = node.shape[0]
    return lanes


def integer_vector(kind: str, dtype: DType, lanes: int) -> str:
    """The vector of integers, signed ("i") or not ("u"), as wide as those of `dtype`."""
    return f"{kind}{dtype.bits}x{lanes}"


def splat(text: str, dtype: DType, lanes: int) -> str:
    """A vector of one scalar in all lanes; a bool scalar becomes 0 or -1."""
    one = f"-({text})" if dtype.is_bool else text
    return f"({element_name(dtype)}x{lanes}){{{', '.join([one] * lanes)}}}"


def convert(text: str, target: str) -> str:
    """Lanes converted one by one, as a C cast would."""
    return f"__builtin_convertvector({text}, {target})"


def raw_mask(name: str) -> str:
    """The name of the wide mask that a comparison leaves beside its mask of bytes."""
    return f"wide_{name}"


def mask(node: Node, names: Names, bits: int, depth: int = 0) -> str:
    """The mask of a vector of bools with lanes of `bits` bits."""
    lanes = lanes_of(node)
    if bits == 8:
        return names[node]
    if node.op in COMPARISONS and not node.src[0].type.dtype.is_bool:
        own = node.src[0].type.dtype.bits
        wide = raw_mask(names[node])
        return wide if own == bits else convert(wide, f"i{bits}x{lanes}")
    if node.op in (math.AND, math.OR) and depth < _MASK_DEPTH:
        x, y = (mask(source, names, bits, depth + 1) for source in node.src)
        return f"({x} {'&' if node.op is math.AND else '|'} {y})"
    return convert(names[node], f"i{bits}x{lanes}")


def select(condition: str, x: str, y: str, dtype: DType, lanes: int) -> str:
    """X where the mask has ones, else y, bit by bit."""
    bits = integer_vector("i", dtype, lanes) if not dtype.is_bool else f"b8x{lanes}"
    target = f"{element_name(dtype)}x{lanes}"
    return f"({target})(({condition} & ({bits}){x}) | (~{condition} & ({bits}){y}))"


# ---- emitters


def wrapped(symbol: str) -> Emit:
    """x symbol y for floats as it stands, for integers modulo 2**width."""

    def emit(node: Node, names: Names) -> str:
        x, y = (names[source] for source in node.src)
        dtype = node.type.dtype
        if dtype.is_float:
            return f"{x} {symbol} {y}"
        unsigned = integer_vector("u", dtype, lanes_of(node))
        return f"({vector_type(node)})(({unsigned}){x} {symbol} ({unsigned}){y})"

    return emit


def infix(symbol: str) -> Emit:
    """x symbol y, lane by lane."""

    def emit(node: Node, names: Names) -> str:
        x, y = (names[source] for source in node.src)
        return f"{x} {symbol} {y}"

    return emit


def emit_comparison(node: Node, names: Names) -> str:
    """The mask of bytes of a comparison, made from its wide mask (which has been named)."""
    return convert(raw_mask(names[node]), vector_type(node))


def wide_comparison(node: Node, names: Names) -> str:
    """The statement's first half: the comparison with lanes as wide as its operands."""
    x, y = (names[source] for source in node.src)
    lanes, bits = lanes_of(node), node.src[0].type.dtype.bits
    return f"(i{bits}x{lanes})({x} {COMPARISONS[node.op]} {y})"


def by_helper(name: str) -> Emit:
    """A call of a helper function whose name ends in the type."""

    def emit(node: Node, names: Names) -> str:
        operands = ", ".join(names[source] for source in node.src)
        return f"{name}_{vector_type(node)}({operands})"

    return emit


def extreme(symbol: str, name: str) -> Emit:
    """The greater or lesser operand."""

    def emit(node: Node, names: Names) -> str:
        dtype, lanes = node.type.dtype, lanes_of(node)
        if dtype.is_float:
            return by_helper(name)(node, names)
        x, y = (names[source] for source in node.src)
        condition = f"({integer_vector('i', dtype, lanes)})({x} {symbol} {y})"
        return select(condition, x, y, dtype, lanes)

    return emit


def emit_negate(node: Node, names: Names) -> str:
    """-x: floats by the sign bit, integers modulo 2**width."""
    x, dtype = names[node.src[0]], node.type.dtype
    if dtype.is_float:
        return f"-{x}"
    return f"({vector_type(node)})(-({integer_vector('u', dtype, lanes_of(node))}){x})"


def emit_absolute(node: Node, names: Names) -> str:
    """|x|: floats by the sign bit; the least integer is its own."""
    x, dtype, lanes = names[node.src[0]], node.type.dtype, lanes_of(node)
    if dtype.is_unsigned:
        return x
    if dtype.is_float:
        return f"({vector_type(node)})(({integer_vector('u', dtype, lanes)}){x} & ~{_sign(dtype)})"
    return select(f"({x} < 0)", emit_negate(node, names), x, dtype, lanes)


def _sign(dtype: DType) -> str:
    return "0x80000000u" if dtype.bits == 32 else "0x8000000000000000ull"


def emit_copysign(node: Node, names: Names) -> str:
    """The magnitude of x with the sign bit of y."""
    x, y = (names[source] for source in node.src)
    dtype = node.type.dtype
    unsigned, sign = integer_vector("u", dtype, lanes_of(node)), _sign(dtype)
    return f"({vector_type(node)})((({unsigned}){x} & ~{sign}) | (({unsigned}){y} & {sign}))"


def emit_scale_power(node: Node, names: Names) -> str:
    """x * 2**n by the instruction of AVX-512, which has a form for each width of vectors."""
    x, n = (names[source] for source in node.src)
    bits = lanes_of(node) * node.type.dtype.bits
    kind = "ps" if node.type.dtype is float32 else "pd"
    more = ", 4" if bits == 512 else ""  # rounding as the mode says: to nearest even
    name = f"__builtin_ia32_scalef{kind}{bits}_mask"
    return f"({vector_type(node)}){name}({x}, {n}, {x}, -1{more})"


def emit_number_extreme(node: Node, names: Names) -> str:
    """The greater or lesser number by the instruction of AVX-512."""
    x, y = (names[source] for source in node.src)
    bits = lanes_of(node) * node.type.dtype.bits
    kind = "ps" if node.type.dtype is float32 else "pd"
    how = 0b0101 if node.op is math.MAXIMUM_NUMBER else 0b0100
    more = ", 4" if bits == 512 else ""
    name = f"__builtin_ia32_range{kind}{bits}_mask"
    return f"({vector_type(node)}){name}({x}, {y}, {how}, {x}, -1{more})"


def emit_shift_left(node: Node, names: Names) -> str:
    """x << y for counts below the width."""
    x, y = (names[source] for source in node.src)
    unsigned = integer_vector("u", node.type.dtype, lanes_of(node))
    return f"({vector_type(node)})(({unsigned}){x} << ({unsigned}){y})"


def emit_reciprocal(node: Node, names: Names) -> str:
    """1 / x."""
    one = splat(literal_one(node.type.dtype), node.type.dtype, lanes_of(node))
    return f"{one} / {names[node.src[0]]}"


def emit_where(node: Node, names: Names) -> str:
    """X where the condition holds, else y."""
    condition, x, y = node.src
    dtype = node.type.dtype
    bits = 8 if dtype.is_bool else dtype.bits
    return select(mask(condition, names, bits), names[x], names[y], dtype, lanes_of(node))


def emit_multiply_add(node: Node, names: Names) -> str:
    """x * y + z: floats rounded once, integers modulo 2**width."""
    dtype = node.type.dtype
    if dtype.is_float:
        return by_helper("fma")(node, names)
    unsigned = integer_vector("u", dtype, lanes_of(node))
    x, y, z = (f"({unsigned}){names[source]}" for source in node.src)
    return f"({vector_type(node)})({x} * {y} + {z})"


def emit_dot(node: Node, names: Names) -> str:
    """Sums of products within words."""
    x, y, z = (names[source] for source in node.src)
    unsigned = integer_vector("u", node.type.dtype, lanes_of(node))
    return dot_text(node.op, (x, y, z), vector_type(node), unsigned)


def emit_cast(node: Node, names: Names) -> str:
    """A conversion by value: floats to integers saturate, NaN gives 0."""
    source, target = node.src[0].type.dtype, node.type.dtype
    x, kind, lanes = names[node.src[0]], vector_type(node), lanes_of(node)
    if target.is_bool:
        zero = splat("0", source, lanes)
        if source.is_bool:
            return x
        return convert(f"(i{source.bits}x{lanes})({x} != {zero})", kind)
    if source.is_bool:
        return convert(f"({x} & 1)", kind)
    if is_half(source) or is_half(target):
        return f"{half_conversion(source, target)}_x{lanes}({x})"
    if source.is_float and target.is_integer:
        return f"saturate_{type_name(source)}_{type_name(target)}_x{lanes}({x})"
    return convert(x, kind)


def emit_vector_bitcast(node: Node, names: Names) -> str:
    """The same bits as another vector type."""
    if not node.type.shape or not node.src[0].type.shape:
        return emit_bitcast(node, names)
    return f"({vector_type(node)}){names[node.src[0]]}"


def emit_broadcast(node: Node, names: Names) -> str:
    """One scalar in all lanes."""
    return splat(names[node.src[0]], node.type.dtype, lanes_of(node))


def emit_stack(node: Node, names: Names) -> str:
    """Scalars put together."""
    sign = "-" if node.type.dtype.is_bool else ""
    return f"({vector_type(node)}){{{', '.join(sign + names[lane] for lane in node.src)}}}"


def emit_extract(node: Node, names: Names) -> str:
    """One lane."""
    text = f"{names[node.src[0]]}[{node.attrs.lane}]"
    return f"{text} != 0" if node.type.dtype.is_bool else text


def emit_shuffle(node: Node, names: Names) -> str:
    """Lanes of two vectors, one by one: clang and gcc spell their shuffles differently."""
    x, y = (names[source] for source in node.src)
    half = node.src[0].type.shape[0]
    picked = [f"{x}[{i}]" if i < half else f"{y}[{i - half}]" for i in node.attrs.lanes]
    return f"({vector_type(node)}){{{', '.join(picked)}}}"


def emit_compress(node: Node, names: Names) -> str:
    """The chosen lanes moved together by the instruction of AVX-512."""
    x, kind = names[node.src[0]], vector_type(node)
    dtype, lanes = node.type.dtype, lanes_of(node)
    letter = {32: "s", 64: "d"}[dtype.bits]
    chosen = mask(node.src[1], names, 8)
    bits = " | ".join(f"(({chosen})[{i}] & 1) << {i}" for i in range(lanes))
    name = f"__builtin_ia32_compress{letter}i{lanes * dtype.bits}_mask"
    # gcc wants these very types, and `long` is another one than `long long`.
    element = {32: "int", 64: "long long"}[dtype.bits]
    signed = f"{element} __attribute__((vector_size({lanes * dtype.itemsize})))"
    return f"({kind}){name}(({signed}){x}, ({signed}){{}}, {bits})"


def emit_fold_lanes(node: Node, names: Names) -> str:
    """Halves folded pairwise by a helper."""
    source = node.src[0]
    op = fold_op(node.attrs.fold, source.type.dtype)
    text = f"fold_{op.name}_{vector_type(source)}({names[source]})"
    return f"{text} != 0" if node.type.dtype.is_bool else text


EMITTERS: Final[Mapping[OpDef, Emit]] = {
    math.ADD: wrapped("+"),
    math.SUB: wrapped("-"),
    math.MUL: wrapped("*"),
    math.FDIV: infix("/"),
    math.CDIV: infix("/"),
    math.CMOD: infix("%"),
    math.AND: infix("&"),
    math.OR: infix("|"),
    math.XOR: infix("^"),
    math.SHL: emit_shift_left,
    math.SHR: infix(">>"),
    math.LT: emit_comparison,
    math.LE: emit_comparison,
    math.EQ: emit_comparison,
    math.NE: emit_comparison,
    math.MAXIMUM: extreme(">", "maximum"),
    math.MINIMUM: extreme("<", "minimum"),
    math.SQRT: by_helper("sqrt"),
    math.FLOOR: by_helper("floor"),
    math.CEIL: by_helper("ceil"),
    math.TRUNC: by_helper("trunc"),
    math.ROUND: by_helper("rint"),
    math.COPYSIGN: emit_copysign,
    math.SCALE_POWER: emit_scale_power,
    math.MAXIMUM_NUMBER: emit_number_extreme,
    math.MINIMUM_NUMBER: emit_number_extreme,
    math.RECIPROCAL: emit_reciprocal,
    math.NEG: emit_negate,
    math.ABS: emit_absolute,
    math.MULACC: emit_multiply_add,
    **dict.fromkeys(math.INTEGER_DOTS, emit_dot),
    math.WHERE: emit_where,
    math.CAST: emit_cast,
    math.BITCAST: emit_vector_bitcast,
    control.BROADCAST: emit_broadcast,
    control.STACK: emit_stack,
    control.EXTRACT: emit_extract,
    control.SHUFFLE: emit_shuffle,
    control.COMPRESS: emit_compress,
    control.FOLD_LANES: emit_fold_lanes,
}
