"""The text of each op that has a result: one instruction of LLVM IR, or a few.

    EMITTERS[node.op](instructions, node)      # writes them, and returns the name of the result

Values are operands by then; blocks, loops and memory are the affair of `llvm_ir`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tilework.dtypes import encode
from tilework.ir.ops import control, math
from tilework.ir.ops.tensor import Fold
from tilework.render.llvm_dot import INSTRUCTIONS, written_out
from tilework.render.llvm_folds import folded
from tilework.render.llvm_lanes import (
    compressed,
    counted,
    extreme,
    limits_of,
    saturated,
    scaled,
)
from tilework.render.llvm_types import (
    literal,
    scalar_type,
    scalar_zero,
    type_of,
    type_suffix,
)

if TYPE_CHECKING:
    from tilework.ir.node import Node, OpDef
    from tilework.render.llvm_quotients import Divisor, Writer


class Instructions(Protocol):
    """Where instructions are written to, and the names of what was computed before."""

    shared_divisors: frozenset[Node]
    divisors: dict[Node, Divisor]

    def define(self, expression: str) -> str:
        """Write an instruction and return the name of its result."""
        ...

    def declare(self, result: str, name: str, *arguments: str) -> str:
        """Declare a function that is called, and return its name."""
        ...

    def operand(self, node: Node) -> str:
        """The text of an operand, without its type."""
        ...

    def typed(self, node: Node) -> str:
        """The text of an operand, with its type."""
        ...

    def quotients(self) -> Writer:
        """What writes divisions by a divisor that many share."""
        ...


def _infix(integer: str, floating: str | None = None) -> Callable[[Instructions, Node], str]:
    def emit(function: Instructions, node: Node) -> str:
        name = floating if node.type.dtype.is_float and floating else integer
        x, y = (function.operand(source) for source in node.src)
        return function.define(f"{name} {type_of(node)} {x}, {y}")

    return emit


def _signed_infix(signed: str, unsigned: str) -> Callable[[Instructions, Node], str]:
    def emit(function: Instructions, node: Node) -> str:
        name = signed if node.type.dtype.is_signed else unsigned
        x, y = (function.operand(source) for source in node.src)
        return function.define(f"{name} {type_of(node)} {x}, {y}")

    return emit


def _intrinsic(name: str) -> Callable[[Instructions, Node], str]:
    def emit(function: Instructions, node: Node) -> str:
        kind = type_of(node)
        arguments = [kind] * len(node.src)
        full = function.declare(kind, f"llvm.{name}.{type_suffix(node)}", *arguments)
        operands = ", ".join(function.typed(source) for source in node.src)
        return function.define(f"call {kind} @{full}({operands})")

    return emit


def _extreme(floating: str, signed: str, unsigned: str) -> Callable[[Instructions, Node], str]:
    def emit(function: Instructions, node: Node) -> str:
        dtype = node.type.dtype
        whole = signed if dtype.is_signed else unsigned
        # `floating` keeps NaN and orders -0 below +0.
        return _intrinsic(floating if dtype.is_float else whole)(function, node)

    return emit


def _compare(floating: str, signed: str, unsigned: str) -> Callable[[Instructions, Node], str]:
    def emit(function: Instructions, node: Node) -> str:
        dtype = node.src[0].type.dtype
        if dtype.is_float:
            name = f"fcmp {floating}"
        else:
            name = f"icmp {signed if dtype.is_signed else unsigned}"
        x, y = (function.operand(source) for source in node.src)
        return function.define(f"{name} {type_of(node.src[0])} {x}, {y}")

    return emit


def _negate(function: Instructions, node: Node) -> str:
    kind = type_of(node)
    if node.type.dtype.is_float:
        return function.define(f"fneg {kind} {function.operand(node.src[0])}")
    zero = "zeroinitializer" if node.type.shape else "0"
    return function.define(f"sub {kind} {zero}, {function.operand(node.src[0])}")


def _absolute(function: Instructions, node: Node) -> str:
    if node.type.dtype.is_float:
        return _intrinsic("fabs")(function, node)
    kind = type_of(node)
    if not node.type.dtype.is_signed:
        return function.operand(node.src[0])
    name = function.declare(kind, f"llvm.abs.{type_suffix(node)}", kind, "i1")
    return function.define(f"call {kind} @{name}({function.typed(node.src[0])}, i1 false)")


def _reciprocal(function: Instructions, node: Node) -> str:
    kind = type_of(node)
    scalar = scalar_type(node.type.dtype)
    one = "0xH3C00" if scalar == "half" else "1.0"
    text = f"splat ({scalar} {one})" if node.type.shape else one
    return function.define(f"fdiv {kind} {text}, {function.operand(node.src[0])}")


def _where(function: Instructions, node: Node) -> str:
    condition, x, y = (function.typed(source) for source in node.src)
    return function.define(f"select {condition}, {x}, {y}")


def _multiply_add(function: Instructions, node: Node) -> str:
    if node.type.dtype.is_float:
        return _intrinsic("fma")(function, node)
    kind = type_of(node)
    x, y, z = (function.operand(source) for source in node.src)
    product = function.define(f"mul {kind} {x}, {y}")
    return function.define(f"add {kind} {product}, {z}")


def _dot(function: Instructions, node: Node) -> str:
    kind = type_of(node)
    x, y, z = (function.operand(source) for source in node.src)
    instruction = INSTRUCTIONS.get((node.op, node.type.lanes))
    if instruction is None or not node.type.shape:
        total = written_out(node.op, kind, x, y, function.define)
        return function.define(f"add {kind} {total}, {z}")
    name, part, accumulates = instruction
    left = function.define(f"bitcast {kind} {x} to {part}")
    right = function.define(f"bitcast {kind} {y} to {part}")
    factors = f"{part} {left}, {part} {right}"
    if accumulates:
        full = function.declare(kind, name, kind, part, part)
        return function.define(f"call {kind} @{full}({kind} {z}, {factors})")
    full = function.declare(kind, name, part, part)
    total = function.define(f"call {kind} @{full}({factors})")
    return function.define(f"add {kind} {total}, {z}")


def _scale_power(function: Instructions, node: Node) -> str:
    x, n = (function.typed(source) for source in node.src)
    return scaled(function.define, function.declare, x, n)


def _cast(function: Instructions, node: Node) -> str:
    source, target = node.src[0].type.dtype, node.type.dtype
    text = function.typed(node.src[0])
    kind = type_of(node)
    if source is target:
        return function.operand(node.src[0])
    if target.is_bool:
        return _to_bool(function, node.src[0])
    if source.is_float and target.is_float:
        name = "fpext" if target.bits > source.bits else "fptrunc"
        return function.define(f"{name} {text} to {kind}")
    if source.is_float:
        return _saturating(function, node)
    if target.is_float:
        name = "sitofp" if source.is_signed else "uitofp"
        return function.define(f"{name} {text} to {kind}")
    if target.bits == source.bits:
        return function.operand(node.src[0])
    if target.bits < source.bits:
        return function.define(f"trunc {text} to {kind}")
    name = "sext" if source.is_signed else "zext"
    return function.define(f"{name} {text} to {kind}")


def _to_bool(function: Instructions, source: Node) -> str:
    kind = type_of(source)
    text = function.operand(source)
    if source.type.dtype.is_float:
        zero = "zeroinitializer" if source.type.shape else scalar_zero(kind)
        return function.define(f"fcmp une {kind} {text}, {zero}")
    zero = "zeroinitializer" if source.type.shape else "0"
    return function.define(f"icmp ne {kind} {text}, {zero}")


def _saturating(function: Instructions, node: Node) -> str:
    source, dtype = node.src[0], node.type.dtype
    operand, kind = function.typed(source), type_of(node)
    if node.type.shape:
        limits = [literal(encode(x, source.dtype), source.dtype) for x in limits_of(node)]
        bits, signed = dtype.bits, dtype.is_signed
        return saturated(function.define, operand, (limits[0], limits[1]), bits, signed=signed)
    word = "fptosi" if dtype.is_signed else "fptoui"
    name = f"llvm.{word}.sat.{type_suffix(node)}.{type_suffix(source)}"
    full = function.declare(kind, name, type_of(source))
    return function.define(f"call {kind} @{full}({operand})")


def _bitcast(function: Instructions, node: Node) -> str:
    source = type_of(node.src[0])
    target = type_of(node)
    if source == target:
        return function.operand(node.src[0])
    return function.define(f"bitcast {source} {function.operand(node.src[0])} to {target}")


def _broadcast(function: Instructions, node: Node) -> str:
    kind = type_of(node)
    lanes = node.attrs.lanes
    scalar = function.operand(node.src[0])
    first = function.define(f"insertelement {kind} poison, {type_of(node.src[0])} {scalar}, i64 0")
    whole = function.define(
        f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer"
    )
    if node in function.shared_divisors:
        function.divisors[node] = function.quotients().divisor(node, scalar, whole)
    return whole


def _divide(function: Instructions, node: Node) -> str:
    shared = function.divisors.get(node.src[1])
    if shared is not None:
        return function.quotients().quotient(node, function.operand(node.src[0]), shared)
    return _infix("fdiv", "fdiv")(function, node)


def _stack(function: Instructions, node: Node) -> str:
    kind = type_of(node)
    name = "poison"
    for position, source in enumerate(node.src):
        name = function.define(
            f"insertelement {kind} {name}, {function.typed(source)}, i64 {position}"
        )
    return name


def _extract(function: Instructions, node: Node) -> str:
    return function.define(f"extractelement {function.typed(node.src[0])}, i64 {node.attrs.lane}")


def _shuffle_pair(function: Instructions, node: Node) -> str:
    mask = ", ".join(f"i32 {lane}" for lane in node.attrs.lanes)
    x, y = (function.typed(source) for source in node.src)
    name = function.define(f"shufflevector {x}, {y}, <{len(node.attrs.lanes)} x i32> <{mask}>")
    return _fenced(function, node, name) if _is_second_shuffle(node) else name


def _is_second_shuffle(node: Node) -> bool:
    """Does a shuffle take the result of others, which take none?"""
    before = [source for source in node.src if source.op is control.SHUFFLE]
    return bool(before) and all(
        source.op is not control.SHUFFLE for shuffle in before for source in shuffle.src
    )


def _fenced(function: Instructions, node: Node, name: str) -> str:
    """The same vector, behind which LLVM does not look; no instruction comes of it.

    LLVM tries to join a shuffle with all that it is made of, eight levels deep: half of the time
    that a transposed square of registers takes, for the instructions that it has anyway.
    """
    kind, dtype, lanes = type_of(node), node.type.dtype, node.type.lanes
    bits = lanes * dtype.bits
    if dtype.is_bool or bits % 32:
        return name
    fenced, suffix = f"<{bits // 32} x float>", f"v{bits // 32}f32"
    if kind != fenced:
        name = function.define(f"bitcast {kind} {name} to {fenced}")
    fence = function.declare(fenced, f"llvm.arithmetic.fence.{suffix}", fenced)
    name = function.define(f"call {fenced} @{fence}({fenced} {name})")
    return name if kind == fenced else function.define(f"bitcast {fenced} {name} to {kind}")


def _number_extreme(function: Instructions, node: Node) -> str:
    x, y = (function.typed(source) for source in node.src)
    greater = node.op is math.MAXIMUM_NUMBER
    return extreme(function.define, function.declare, x, y, greater=greater)


def _compress(function: Instructions, node: Node) -> str:
    x, mask = (function.typed(source) for source in node.src)
    return compressed(function.define, function.declare, type_suffix(node), x, mask)


def _fold_lanes(function: Instructions, node: Node) -> str:
    source = node.src[0]
    is_count = source.op is math.CAST and source.src[0].type.dtype.is_bool
    if is_count and node.attrs.fold is Fold.ADD and node.type.dtype.is_integer:
        mask = source.src[0]
        lanes, bits = mask.type.lanes, node.type.dtype.bits
        return counted(function.define, function.declare, lanes, function.typed(mask), bits)
    return folded(function.define, function.declare, node, function.operand(source))


#: For each op a function of (instructions, node) that returns the result's operand.
EMITTERS: dict[OpDef, Callable[[Instructions, Node], str]] = {
    math.ADD: _infix("add", "fadd"),
    math.SUB: _infix("sub", "fsub"),
    math.MUL: _infix("mul", "fmul"),
    math.FDIV: _divide,
    math.CDIV: _signed_infix("sdiv", "udiv"),
    math.CMOD: _signed_infix("srem", "urem"),
    math.AND: _infix("and"),
    math.OR: _infix("or"),
    math.XOR: _infix("xor"),
    math.SHL: _infix("shl"),
    math.SHR: _signed_infix("ashr", "lshr"),
    math.MAXIMUM: _extreme("maximum", "smax", "umax"),
    math.MINIMUM: _extreme("minimum", "smin", "umin"),
    math.LT: _compare("olt", "slt", "ult"),
    math.LE: _compare("ole", "sle", "ule"),
    math.EQ: _compare("oeq", "eq", "eq"),
    math.NE: _compare("une", "ne", "ne"),
    math.SQRT: _intrinsic("sqrt"),
    math.FLOOR: _intrinsic("floor"),
    math.CEIL: _intrinsic("ceil"),
    math.TRUNC: _intrinsic("trunc"),
    math.ROUND: _intrinsic("roundeven"),
    math.COPYSIGN: _intrinsic("copysign"),
    math.RECIPROCAL: _reciprocal,
    math.NEG: _negate,
    math.ABS: _absolute,
    math.MULACC: _multiply_add,
    math.SCALE_POWER: _scale_power,
    math.MAXIMUM_NUMBER: _number_extreme,
    math.MINIMUM_NUMBER: _number_extreme,
    math.DOT_PAIRS: _dot,
    math.DOT_QUADS: _dot,
    math.DOT_SIGNED_QUADS: _dot,
    math.DOT_UNSIGNED_QUADS: _dot,
    math.WHERE: _where,
    math.CAST: _cast,
    math.BITCAST: _bitcast,
    control.BROADCAST: _broadcast,
    control.STACK: _stack,
    control.EXTRACT: _extract,
    control.SHUFFLE: _shuffle_pair,
    control.COMPRESS: _compress,
    control.FOLD_LANES: _fold_lanes,
}
