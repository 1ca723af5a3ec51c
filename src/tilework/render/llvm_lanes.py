"""Instructions of vectors: lanes that a mask chooses, moved together and counted; extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.node import Node

    Define = Callable[[str], str]
    Declare = Callable[..., str]


def compressed(define: Define, declare: Declare, suffix: str, x: str, mask: str) -> str:
    """The chosen lanes of a vector, then zeros.

    Args:
        define: Writes an instruction and names its result.
        declare: Declares a function and gives its name.
        suffix: What LLVM calls the type of the vector.
        x: The vector, with its type.
        mask: The mask, with its type.
    """
    kind, mask_kind = x[: x.index(">") + 1], mask[: mask.index(">") + 1]
    name = declare(kind, f"llvm.experimental.vector.compress.{suffix}", kind, mask_kind, kind)
    return define(f"call {kind} @{name}({x}, {mask}, {kind} zeroinitializer)")


def counted(define: Define, declare: Declare, lanes: int, mask: str, bits: int) -> str:
    """How many of `lanes` lanes a mask chooses, modulo 2**bits, as an integer of so many bits."""
    word = define(f"bitcast {mask} to i{lanes}")
    name = declare(f"i{lanes}", f"llvm.ctpop.i{lanes}", f"i{lanes}")
    count = define(f"call i{lanes} @{name}(i{lanes} {word})")
    if bits == lanes:
        return count
    return define(f"{'zext' if bits > lanes else 'trunc'} i{lanes} {count} to i{bits}")


def extreme(define: Define, declare: Declare, x: str, y: str, *, greater: bool) -> str:
    """The greater or lesser number of each two lanes, by an instruction of AVX-512.

    Args:
        define: Writes an instruction and names its result.
        declare: Declares a function and gives its name.
        x: A vector of 128, 256 or 512 bits, with its type.
        y: Another one.
        greater: Which of them.
    """
    # The sign is that of the result of the comparison.
    how = f"i32 {0b0101 if greater else 0b0100}"
    return _masked("range", define, declare, (x, y, how))


def scaled(define: Define, declare: Declare, x: str, n: str) -> str:
    """x * 2**n by an instruction of AVX-512, which has a form for each width of vectors."""
    return _masked("scalef", define, declare, (x, n))


def limits_of(node: Node) -> tuple[float, float]:
    """The least and the greatest float that a CAST to integers turns into one of them."""
    dtype, precision = node.type.dtype, node.src[0].type.dtype.mantissa_bits + 1
    bits = dtype.bits - int(dtype.is_signed)
    least = -(2.0**bits) if dtype.is_signed else 0.0
    return least, 2.0**bits - 2.0 ** max(bits - precision, 0)


def saturated(define: Define, x: str, limits: tuple[str, str], bits: int, *, signed: bool) -> str:
    """A vector of floats as integers that saturate; 0 for NaN.  LLVM would take lane by lane.

    Args:
        define: Writes an instruction and names its result.
        x: The floats, with their type.
        limits: The least and the greatest float that fit, as literals.
        bits: The width of the integers.
        signed: Whether they have a sign.
    """
    kind, name = x[: x.index(">") + 1], x[x.index(">") + 2 :]
    lanes, scalar = kind[1:-1].split(" x ")
    flags = f"<{lanes} x i1>"
    wide = f"<{lanes} x i{max(bits, 32)}>"
    least, most = (f"splat ({scalar} {limit})" for limit in limits)
    above = define(f"fcmp ogt {x}, {least}")
    raised = define(f"select {flags} {above}, {x}, {kind} {least}")
    below = define(f"fcmp olt {kind} {raised}, {most}")
    inside = define(f"select {flags} {below}, {kind} {raised}, {kind} {most}")
    # What has fewer bits fits 32 with a sign.
    word = "fptosi" if signed or bits < 32 else "fptoui"
    found = define(f"{word} {kind} {inside} to {wide}")
    if bits >= 32:
        # The greatest float that fits is below the greatest integer.
        greatest = (1 << (bits - 1)) - 1 if signed else -1
        beyond = define(f"fcmp ogt {x}, {most}")
        limit = f"{wide} splat (i{bits} {greatest})"
        found = define(f"select {flags} {beyond}, {limit}, {wide} {found}")
    is_number = define(f"fcmp ord {kind} {name}, zeroinitializer")
    found = define(f"select {flags} {is_number}, {wide} {found}, {wide} zeroinitializer")
    if bits >= 32:
        return found
    return define(f"trunc {wide} {found} to <{lanes} x i{bits}>")


def all_lanes(lanes: int) -> str:
    """A mask that lets all lanes through, with its type."""
    return f"<{lanes} x i1> splat (i1 true)"


def pointers(define: Define, kind: str, base: str, offsets: str) -> str:
    """The addresses of elements of a kind; `offsets` is a vector with its type."""
    # Not "inbounds": an address whose lane is left out may lie anywhere.
    return define(f"getelementptr {kind}, ptr {base}, {offsets}")


def gathered(
    define: Define, declare: Declare, kind: tuple[str, str], places: str, align: int, mask: str
) -> str:
    """A vector of elements that lie anywhere; 0 where the mask leaves a lane out.

    Args:
        define: Writes an instruction and names its result.
        declare: Declares a function and gives its name.
        kind: The type of the vector, and what LLVM calls that of its elements.
        places: The vector of addresses.
        align: The alignment of each.
        mask: The mask, with its type.
    """
    full, suffix = kind
    lanes = full[1 : full.index(" ")]
    taken = f"<{lanes} x ptr>"
    name = f"llvm.masked.gather.v{lanes}{suffix}.v{lanes}p0"
    name = declare(full, name, taken, "i32", f"<{lanes} x i1>", full)
    return define(
        f"call {full} @{name}({taken} {places}, i32 {align}, {mask}, {full} zeroinitializer)"
    )


def scattered(
    declare: Declare, kind: tuple[str, str], x: str, places: str, align: int, mask: str
) -> str:
    """A line that stores a vector at any addresses, lane after lane; see `gathered`."""
    full, suffix = kind
    lanes = full[1 : full.index(" ")]
    taken = f"<{lanes} x ptr>"
    name = f"llvm.masked.scatter.v{lanes}{suffix}.v{lanes}p0"
    name = declare("void", name, full, taken, "i32", f"<{lanes} x i1>")
    return f"call void @{name}({full} {x}, {taken} {places}, i32 {align}, {mask})"


def _masked(name: str, define: Define, declare: Declare, operands: tuple[str, ...]) -> str:
    """A call of an instruction that takes a mask, with all lanes chosen."""
    kind = operands[0][: operands[0].index(">") + 1]
    lanes = int(kind[1 : kind.index(" ")])
    letter, bits = ("s", 32 * lanes) if "float" in kind else ("d", 64 * lanes)
    mask = f"i{max(lanes, 8)}"
    rounding = ", i32 4" if bits == 512 else ""  # as the mode says: to nearest even
    kinds = [kind, kind, *["i32"] * (len(operands) - 2), kind, mask]
    kinds += ["i32"] if rounding else []
    full = declare(kind, f"llvm.x86.avx512.mask.{name}.p{letter}.{bits}", *kinds)
    rest = f"{kind} zeroinitializer, {mask} -1{rounding}"
    return define(f"call {kind} @{full}({', '.join(operands)}, {rest})")
