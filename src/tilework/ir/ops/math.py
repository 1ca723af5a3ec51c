"""Elementwise arithmetic: the ALU set, elementary functions, comparisons, selection, casts.

Meanings that hold on every back end:

* Integers are modulo 2**width.  IDIV rounds towards minus infinity and MOD has the sign of the
  divisor (as Python and NumPy); division by zero gives 0 and so does MOD; the least integer
  divided by -1 is itself.  SHL and SHR by at least the width give 0 (SHR of a negative number -1).
* Floats round once, to nearest even.  MAXIMUM and MINIMUM return NaN if an operand is NaN, and
  order -0.0 below +0.0.  Comparisons with NaN are false, NE with NaN is true.
* A cast of a float to an integer truncates; out of range it saturates, NaN gives 0.  A cast
  between integers keeps the value modulo 2**width.  To bool: true unless zero.
* On bools sums are OR and products AND, as in reductions; a difference is XOR.
"""

from __future__ import annotations

from typing import Any

from tilework.base.errors import DTypeError, ShapeError
from tilework.base.records import dataclass
from tilework.dtypes import DType, bool_, float32, int32
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import (
    define_op,
    infer_compare,
    infer_float,
    infer_integer,
    infer_same,
    same_type,
)
from tilework.ir.stage import EVERYWHERE, IN_KERNEL, Stage
from tilework.ir.types import Shape, Type, make_type


def _binary(name: str, doc: str, *, commutative: bool = False) -> OpDef:
    return define_op(
        name,
        operands=("x", "y"),
        infer=infer_same(name),
        stages=EVERYWHERE,
        doc=doc,
        elementwise=True,
        commutative=commutative,
    )


def _integer(name: str, doc: str, *, commutative: bool = False) -> OpDef:
    return define_op(
        name,
        operands=("x", "y"),
        infer=infer_integer(name),
        stages=EVERYWHERE,
        doc=doc,
        elementwise=True,
        commutative=commutative,
    )


def _compare(name: str, doc: str, *, commutative: bool = False) -> OpDef:
    return define_op(
        name,
        operands=("x", "y"),
        infer=infer_compare(name),
        stages=EVERYWHERE,
        doc=doc,
        elementwise=True,
        commutative=commutative,
    )


def _function(name: str, doc: str, operands: tuple[str, ...] = ("x",)) -> OpDef:
    return define_op(
        name,
        operands=operands,
        infer=infer_float(name),
        stages=EVERYWHERE,
        doc=doc,
        elementwise=True,
    )


ADD: OpDef = _binary("add", "x + y.", commutative=True)
SUB: OpDef = _binary("sub", "x - y.")
MUL: OpDef = _binary("mul", "x * y.", commutative=True)
MAXIMUM: OpDef = _binary("maximum", "The greater of x and y; NaN if one is NaN.", commutative=True)
MINIMUM: OpDef = _binary("minimum", "The lesser of x and y; NaN if one is NaN.", commutative=True)
IDIV: OpDef = _integer("idiv", "Integer quotient rounded towards minus infinity; 0 for y == 0.")
MOD: OpDef = _integer("mod", "x - idiv(x, y) * y, so with the sign of y; 0 for y == 0.")
CDIV: OpDef = define_op(
    "cdiv",
    operands=("x", "y"),
    infer=infer_integer("cdiv"),
    stages=Stage.LOWERED | Stage.LINEAR,
    doc="Quotient rounded towards zero; y must not be 0, nor -1 for the least x.",
    elementwise=True,
)
CMOD: OpDef = define_op(
    "cmod",
    operands=("x", "y"),
    infer=infer_integer("cmod"),
    stages=Stage.LOWERED | Stage.LINEAR,
    doc="x - cdiv(x, y) * y, with the sign of x; the same preconditions as cdiv.",
    elementwise=True,
)
AND: OpDef = _integer("and", "Bitwise (bool: logical) and.", commutative=True)
OR: OpDef = _integer("or", "Bitwise (bool: logical) or.", commutative=True)
XOR: OpDef = _integer("xor", "Bitwise (bool: logical) exclusive or.", commutative=True)
SHL: OpDef = _integer("shl", "x shifted left by y bits; 0 if y is at least the width.")
SHR: OpDef = _integer("shr", "x shifted right by y bits, with the sign for signed x.")

LT: OpDef = _compare("lt", "x < y.")
LE: OpDef = _compare("le", "x <= y.")
EQ: OpDef = _compare("eq", "x == y.", commutative=True)
NE: OpDef = _compare("ne", "x != y (true if an operand is NaN).", commutative=True)

FDIV: OpDef = _function("fdiv", "x / y, correctly rounded.", ("x", "y"))
FMOD: OpDef = _function(
    "fmod", "x - trunc(x / y) * y computed exactly, with the sign of x.", ("x", "y")
)
POW: OpDef = _function(
    "pow", "x to the power of y, with the special cases of C's Annex F.", ("x", "y")
)
ATAN2: OpDef = _function("atan2", "The angle of the point (y, x), in (-pi, pi].", ("x", "y"))
COPYSIGN: OpDef = _function("copysign", "The magnitude of x with the sign bit of y.", ("x", "y"))
SQRT: OpDef = _function("sqrt", "Square root, correctly rounded; sqrt(-0) is -0.")
RECIPROCAL: OpDef = _function("reciprocal", "1 / x, correctly rounded.")
EXP: OpDef = _function("exp", "e to the power of x.")
EXP2: OpDef = _function("exp2", "2 to the power of x.")
EXPM1: OpDef = _function("expm1", "exp(x) - 1, accurate near 0.")
LOG: OpDef = _function("log", "Natural logarithm.")
LOG2: OpDef = _function("log2", "Logarithm to base 2.")
LOG1P: OpDef = _function("log1p", "log(1 + x), accurate near 0.")
SIN: OpDef = _function("sin", "Sine of x radians.")
COS: OpDef = _function("cos", "Cosine of x radians.")
TAN: OpDef = _function("tan", "Tangent of x radians.")
ASIN: OpDef = _function("asin", "Arc sine in radians.")
ACOS: OpDef = _function("acos", "Arc cosine in radians.")
ATAN: OpDef = _function("atan", "Arc tangent in radians.")
SINH: OpDef = _function("sinh", "Hyperbolic sine.")
COSH: OpDef = _function("cosh", "Hyperbolic cosine.")
TANH: OpDef = _function("tanh", "Hyperbolic tangent.")
ASINH: OpDef = _function("asinh", "Inverse hyperbolic sine.")
ACOSH: OpDef = _function("acosh", "Inverse hyperbolic cosine.")
ATANH: OpDef = _function("atanh", "Inverse hyperbolic tangent.")
ERF: OpDef = _function(
    "erf", "Error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x."
)
FLOOR: OpDef = _function("floor", "The greatest integer not above x.")
CEIL: OpDef = _function("ceil", "The least integer not below x.")
TRUNC: OpDef = _function("trunc", "x rounded towards zero.")
ROUND: OpDef = _function("round", "x rounded to the nearest integer, ties to even.")

NEG: OpDef = define_op(
    "neg",
    operands=("x",),
    infer=infer_same("neg"),
    stages=EVERYWHERE,
    doc="-x; for floats the sign bit is flipped.",
    elementwise=True,
)
ABS: OpDef = define_op(
    "abs",
    operands=("x",),
    infer=infer_same("abs"),
    stages=EVERYWHERE,
    doc="|x|; for floats the sign bit is cleared.",
    elementwise=True,
)
MULACC: OpDef = define_op(
    "mulacc",
    operands=("x", "y", "z"),
    infer=infer_same("mulacc"),
    stages=EVERYWHERE,
    doc="x * y + z, rounded once for floats (a fused multiply-add).",
    elementwise=True,
)
SCALE_POWER: OpDef = define_op(
    "scale_power",
    operands=("x", "n"),
    infer=infer_float("scale_power"),
    stages=IN_KERNEL,
    doc="x times 2 to the power of floor(n), rounded once.",
    elementwise=True,
)
MAXIMUM_NUMBER: OpDef = define_op(
    "maximum_number",
    operands=("x", "y"),
    infer=infer_float("maximum_number"),
    stages=IN_KERNEL,
    doc="The greater of x and y, +0.0 above -0.0; if one is NaN, the other.",
    elementwise=True,
)
MINIMUM_NUMBER: OpDef = define_op(
    "minimum_number",
    operands=("x", "y"),
    infer=infer_float("minimum_number"),
    stages=IN_KERNEL,
    doc="The lesser of x and y, -0.0 below +0.0; if one is NaN, the other.",
    elementwise=True,
)
DOT_PAIRS: OpDef = define_op(
    "dot_pairs",
    operands=("x", "y", "z"),
    infer=infer_integer("dot_pairs"),
    stages=IN_KERNEL,
    doc="x and y are two int16 each, in one int32: z plus the two products, modulo 2**32.",
    elementwise=True,
)
DOT_QUADS: OpDef = define_op(
    "dot_quads",
    operands=("x", "y", "z"),
    infer=infer_integer("dot_quads"),
    stages=IN_KERNEL,
    doc="x is four uint8 and y four int8, each in one int32: z plus the four products.",
    elementwise=True,
)
DOT_SIGNED_QUADS: OpDef = define_op(
    "dot_signed_quads",
    operands=("x", "y", "z"),
    infer=infer_integer("dot_signed_quads"),
    stages=IN_KERNEL,
    doc="x and y are four int8 each, in one int32: z plus the four products.",
    elementwise=True,
)
DOT_UNSIGNED_QUADS: OpDef = define_op(
    "dot_unsigned_quads",
    operands=("x", "y", "z"),
    infer=infer_integer("dot_unsigned_quads"),
    stages=IN_KERNEL,
    doc="x and y are four uint8 each, in one int32: z plus the four products.",
    elementwise=True,
)


def _infer_dot_of_floats(src: tuple[Node, ...], attrs: Any) -> Type:
    words = same_type("dot_bfloat16_pairs", src[:2])
    kind = src[2].type
    if words.dtype is not int32 or kind.dtype is not float32 or words.shape != kind.shape:
        raise DTypeError(
            "dot_bfloat16_pairs: the operands do not fit",
            got=f"{words} twice, and {kind}",
            expected="two words (int32), and a float32 of the same shape",
        )
    return kind


DOT_BFLOAT16_PAIRS: OpDef = define_op(
    "dot_bfloat16_pairs",
    operands=("x", "y", "z"),
    infer=_infer_dot_of_floats,
    stages=IN_KERNEL,
    doc=(
        "x and y are two bfloat16 each, in one int32, and z is a float32: z plus the products, one"
        " after the other by FMA, the lower half first."
    ),
    elementwise=True,
)

#: Sums of products of integers that lie side by side in words.
INTEGER_DOTS = frozenset({DOT_PAIRS, DOT_QUADS, DOT_SIGNED_QUADS, DOT_UNSIGNED_QUADS})
#: Those of floats too.
DOTS = INTEGER_DOTS | {DOT_BFLOAT16_PAIRS}
#: Those of bytes.
QUADS = frozenset({DOT_QUADS, DOT_SIGNED_QUADS, DOT_UNSIGNED_QUADS})
#: Those whose first factors are unsigned, and whose second ones are.
UNSIGNED_FIRST = frozenset({DOT_QUADS, DOT_UNSIGNED_QUADS})
UNSIGNED_SECOND = frozenset({DOT_UNSIGNED_QUADS})


def _infer_where(src: tuple[Node, ...], attrs: Any) -> Type:
    condition, x, y = src
    kind = same_type("where", (x, y))
    if condition.type.dtype is not bool_ or condition.type.shape != kind.shape:
        raise DTypeError(
            "where: the condition does not fit",
            got=f"{condition.type}",
            expected=f"bool of shape {kind.shape}",
        )
    return kind


WHERE: OpDef = define_op(
    "where",
    operands=("condition", "x", "y"),
    infer=_infer_where,
    stages=EVERYWHERE,
    doc="x where the condition holds, else y, element by element.",
    elementwise=True,
)
WHERE_RARE: OpDef = define_op(
    "where_rare",
    operands=("condition", "rare", "common"),
    infer=_infer_where,
    stages=IN_KERNEL,
    doc=(
        "As WHERE; the condition seldom holds, so that what `rare` alone needs is best computed "
        "only for vectors with such a lane."
    ),
    elementwise=True,
)


@dataclass(frozen=True, slots=True)
class CastAttrs(Attrs):
    """The dtype that CAST or BITCAST gives."""

    dtype: DType


def _infer_cast(src: tuple[Node, ...], attrs: CastAttrs) -> Type:
    return make_type(src[0].type.shape, attrs.dtype)


def _infer_bitcast(src: tuple[Node, ...], attrs: CastAttrs) -> Type:
    x = src[0].type
    if x.dtype.bits == attrs.dtype.bits:
        return make_type(x.shape, attrs.dtype)
    if not x.shape or x.dtype.is_bool or attrs.dtype.is_bool:
        raise ShapeError(
            "bitcast: widths differ and there is no axis to take up the difference",
            got=f"{x} to {attrs.dtype.name}",
            expected="dtypes of one width, or an axis, and no bool",
        )
    last = x.shape[-1]
    if not isinstance(last, int):
        raise ShapeError(
            "bitcast: widths differ and the size of the last axis is a variable",
            got=f"{x} to {attrs.dtype.name}",
            expected="dtypes of one width, or a last axis whose size is a number",
        )
    if last * x.dtype.bits % attrs.dtype.bits:
        raise ShapeError(
            "bitcast: the last axis does not hold a whole number of elements",
            got=f"{x} to {attrs.dtype.name}",
            expected=f"a last axis whose size times {x.dtype.bits} is a multiple of"
            f" {attrs.dtype.bits}",
        )
    return make_type((*x.shape[:-1], last * x.dtype.bits // attrs.dtype.bits), attrs.dtype)


CAST: OpDef = define_op(
    "cast",
    operands=("x",),
    attrs=CastAttrs,
    infer=_infer_cast,
    stages=EVERYWHERE,
    doc="x converted to another dtype by value; rules at the top of this file.",
    elementwise=True,
)
BITCAST: OpDef = define_op(
    "bitcast",
    operands=("x",),
    attrs=CastAttrs,
    infer=_infer_bitcast,
    stages=EVERYWHERE,
    doc="The bits of x read as another dtype; the last axis scales if the widths differ.",
)


@dataclass(frozen=True, slots=True)
class ConstAttrs(Attrs):
    """A literal: its bits in `dtype` (never a Python number) and the shape it fills."""

    bits: int
    dtype: DType
    shape: Shape = ()


def _infer_const(src: tuple[Node, ...], attrs: ConstAttrs) -> Type:
    return make_type(attrs.shape, attrs.dtype)


CONST: OpDef = define_op(
    "const",
    operands=(),
    attrs=ConstAttrs,
    infer=_infer_const,
    stages=EVERYWHERE,
    doc="A literal, the same for every element of its shape.",
    elementwise=True,
)
