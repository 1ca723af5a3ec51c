"""Sums of products of narrow integers, by instructions that multiply several at once.

    sum over k of int32(a[k]) * int32(b[k])  ->  sum over words of dot(word of a, word of b)

A word holds the factors of consecutive k: two int16 or four bytes in 32 bits.  The words are
factors like others, so plans stage, pack and tile them, and one lane of a vector works on a word.
All of it is exact modulo 2**32, as the sum that was written is.  Where the factors of a word lie
side by side in memory, memory is read as words.

Where an instruction wants its first bytes unsigned and both are signed, 128 is added to them (their
highest bit is flipped).  What is added to factors, so or in the program (zero points of quantised
numbers), is multiplied by the sum of the other factor: a correction that depends on one side of the
contraction alone.  Instructions for matrix registers take bytes of either sign; whether words are
made for them or for vectors is decided by the cheaper plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.records import dataclass
from tilework.codegen.analysis import Kernel, analyse, depends_on, substitute_ranges
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.plan.contraction import (
    Contraction,
    load_stride,
    orientations,
    vector_product,
)
from tilework.codegen.plan.extents import ceil_div, least_size, product, size
from tilework.codegen.plan.matrix_tiling import has_stores_alone, instruction_of
from tilework.codegen.plan.offset_factors import OffsetFactor, float_factor, offset_factor
from tilework.codegen.plan.single_products import with_single_products
from tilework.codegen.plan.staging import under_gates
from tilework.codegen.plan.tilings import cheapest
from tilework.codegen.plan.windows import windows_of
from tilework.dtypes import bfloat16, float32, int32, uint32
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.node import OpDef
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, ParamAttrs
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

_WORD_BITS: Final = 32
_HIGH_BITS: Final = 0x8080_8080
_ONES: Final = 0x0101_0101
#: Outputs along each side, and products in each sum, from which making words of factors pays.
_LEAST_OUTPUTS: Final = 8
_LEAST_PRODUCTS: Final = 16
#: Words along k that a matrix register takes, the shares of a range that fill most of one, and how
#: much longer a range may become so that registers are full.
_STEPS: Final = 16
_GOOD_SHARES: Final = range(_STEPS // 2, _STEPS + 1)
_MOST_PADDED: Final = 1.15
#: The least share of a word that a short range must fill.
_LEAST_FILLED: Final = 0.6
_QUADS_OF: Final = {
    (True, True): math.DOT_SIGNED_QUADS,
    (False, True): math.DOT_QUADS,
    (False, False): math.DOT_UNSIGNED_QUADS,
}
_BYTES: Final = {True: "int8", False: "uint8"}


@dataclass(frozen=True, slots=True)
class _Grouping:
    """How products are grouped.

    Attributes:
        op: The instruction's op.
        first: The factor whose words are its first operand.
        second: The other one.
        sums: The op for sums of one factor, which takes unsigned bytes and signed ones.
    """

    op: OpDef
    first: OffsetFactor
    second: OffsetFactor
    sums: OpDef = math.DOT_QUADS

    @property
    def bits(self) -> int:
        """The width of one factor in a word."""
        return 16 if self.op in (math.DOT_PAIRS, math.DOT_BFLOAT16_PAIRS) else 8

    @property
    def is_float(self) -> bool:
        """Are the factors floats, of which words hold the bits?"""
        return self.op is math.DOT_BFLOAT16_PAIRS

    @property
    def count(self) -> int:
        """How many products one word takes."""
        return _WORD_BITS // self.bits


def ready_for_plans(sink: Node, target: TargetSpec) -> Node:
    """The kernel that plans are made for: its ranges in normal form, narrow products grouped."""
    ways = ready_in_all_ways(sink, target)
    return ways[0] if len(ways) == 1 else min(ways, key=lambda way: _cycles(way, target))


def ready_in_all_ways(sink: Node, target: TargetSpec) -> list[Node]:
    """The kernels that plans may be made for, of which `ready_for_plans` is the cheapest."""
    normal = normalise_ranges(sink)
    return _grouped_in_all_ways(analyse(normal), target) if _has_words(target) else [normal]


def _has_words(target: TargetSpec) -> bool:
    """Has the target any instruction for words of narrow integers?"""
    return any(op.name in target.native_ops for op in math.DOTS) or any(
        found.fragment_layout == "words" for found in target.matrix_instructions
    )


def _grouped_in_all_ways(kernel: Kernel, target: TargetSpec) -> list[Node]:
    """The kernel with the products of its contraction in words for vectors, and for matrices.

    One product a word, or as it is, where products cannot be grouped for any instruction.
    """
    found = orientations(kernel)
    contraction = found[0] if found else vector_product(kernel)
    if contraction is not None and contraction.reduce.src[0].op is not math.MUL:
        return [kernel.sink]
    ways = [] if contraction is None else _in_words(kernel, contraction, target)
    return ways or [with_single_products(kernel, target)]


def _in_words(kernel: Kernel, contraction: Contraction, target: TargetSpec) -> list[Node]:
    """The ways to put products in words; none where that does not pay, or nothing takes them."""
    sides = [product(side) for side in (contraction.m, contraction.n) if side]
    if min(sides) < _LEAST_OUTPUTS or product(contraction.k) < _LEAST_PRODUCTS:
        return []
    if contraction.corrections:
        return []
    if contraction.reduce.dtype is float32:
        return _floats_in_words(kernel, contraction, target)
    if contraction.reduce.dtype not in (int32, uint32):
        return []
    a = offset_factor(kernel, contraction.k, contraction.a)
    b = offset_factor(kernel, contraction.k, contraction.b)
    if a is None or b is None:
        return []
    sinks: list[Node] = []
    for grouping in _groupings(a, b, target):
        along = _range_for(contraction, grouping.count)
        if along is not None:
            sinks = [_with_words(kernel, contraction, grouping, along)]
            break
    if not contraction.m or not has_stores_alone(kernel):
        return sinks
    for_matrices = [
        _with_words(kernel, contraction, grouping, along)
        for grouping in _matrix_groupings(a, b, target)
        if (along := _range_for(contraction, grouping.count)) is not None
    ]
    if for_matrices and not sinks:
        sinks = [with_single_products(kernel, target)]
    return sinks + for_matrices


def _floats_in_words(kernel: Kernel, contraction: Contraction, target: TargetSpec) -> list[Node]:
    """The kernel as it is, and with pairs of floats in words, if matrix registers take them."""
    a, b = (float_factor(factor) for factor in (contraction.a, contraction.b))
    if a is None or b is None or not contraction.m or not has_stores_alone(kernel):
        return []
    if instruction_of(target, bfloat16, bfloat16, float32) is None:
        return []
    grouping = _Grouping(math.DOT_BFLOAT16_PAIRS, a, b)
    along = _range_for(contraction, grouping.count) or _padded_range(contraction, grouping.count)
    if along is None:
        return []
    return [kernel.sink, _with_words(kernel, contraction, grouping, along)]


def _cycles(sink: Node, target: TargetSpec) -> float:
    best = cheapest(analyse(sink), target)
    return float("inf") if best is None else best[0]


def _with_words(kernel: Kernel, contraction: Contraction, grouping: _Grouping, along: Node) -> Node:
    new = _grouped(kernel, contraction, grouping, along)
    (sink,) = simplify.substitute([kernel.sink], {contraction.reduce: new})
    return sink


def _groupings(a: OffsetFactor, b: OffsetFactor, target: TargetSpec) -> list[_Grouping]:
    """The ways that the factors' dtypes allow, the widest instruction first."""
    found: list[_Grouping] = []
    if a.is_bytes and b.is_bytes:
        if math.DOT_SIGNED_QUADS.name in target.native_ops and a.is_signed and b.is_signed:
            own = math.DOT_SIGNED_QUADS
            found.append(_Grouping(own, a, b, own))
        if math.DOT_QUADS.name in target.native_ops:
            if a.is_signed == b.is_signed:
                # Of two equal signs the first one changes: its correction is a sum of the second,
                # which are mostly weights.
                found.append(_quads(a.flipped(), b))
            else:
                found.append(_quads(a, b))
    if math.DOT_PAIRS.name in target.native_ops:
        first, second = a.as_int16(), b.as_int16()
        if first is not None and second is not None:
            # Offsets of bytes fit the 16 bits.
            own = math.DOT_PAIRS
            found.append(
                _Grouping(own, OffsetFactor(a.whole, first), OffsetFactor(b.whole, second))
            )
    return found


def _quads(a: OffsetFactor, b: OffsetFactor) -> _Grouping:
    """Unsigned bytes times signed ones."""
    return _Grouping(math.DOT_QUADS, *((b, a) if a.is_signed else (a, b)))


def _matrix_groupings(a: OffsetFactor, b: OffsetFactor, target: TargetSpec) -> list[_Grouping]:
    """The way that an instruction for matrix registers takes the factors, if there is one."""
    if not (a.is_bytes and b.is_bytes):
        return []
    if a.is_signed and not b.is_signed:
        a, b = b, a
    op = _QUADS_OF[a.is_signed, b.is_signed]
    has_instruction = any(
        (found.a_dtype, found.b_dtype) == (_BYTES[a.is_signed], _BYTES[b.is_signed])
        and found.fragment_layout == "words"
        for found in target.matrix_instructions
    )
    return [_Grouping(op, a, b)] if has_instruction else []


def _range_for(contraction: Contraction, count: int) -> Node | None:
    """A range of k to be cut into groups of `count`, along which factors are contiguous if any.

    Where none is a multiple of `count`, one that fills most of one word.
    """
    known = [r for r in contraction.k if least_size(r) == size(r)]

    def contiguous(range_: Node) -> int:
        return sum(load_stride(f, range_) == 1 for f in (contraction.a, contraction.b))

    fitting = [r for r in known if size(r) % count == 0]
    if fitting:
        return max(fitting, key=contiguous)
    windows = _inside_windows(contraction)
    short = [r for r in known if r not in windows and _LEAST_FILLED * count <= size(r) < count]
    return max(short, key=contiguous, default=None)


def _inside_windows(contraction: Contraction) -> set[Node]:
    found = [
        *windows_of(contraction.a, contraction.m, contraction.k),
        *windows_of(contraction.b, contraction.n, contraction.k),
    ]
    return {window.inside for window in found}


def _padded_range(contraction: Contraction, count: int) -> Node | None:
    """The range of k whose last word is least empty, where none is a multiple of `count`."""
    windows = _inside_windows(contraction)
    known = [r for r in contraction.k if least_size(r) == size(r) and r not in windows]

    def filled(range_: Node) -> float:
        return size(range_) / (count * _count_of_words(range_, count, is_float=True))

    return max([r for r in known if filled(r) >= _LEAST_FILLED], key=filled, default=None)


def _count_of_words(along: Node, count: int, *, is_float: bool) -> int:
    """How many words a range is cut into; some more, of zeros, where registers would be empty.

    Registers take an even share of a range.  Factors of which none lies side by side along k are
    padded without cost: they are copied anyway.
    """
    words = ceil_div(size(along), count)
    if not is_float or words <= _STEPS or any(words % share == 0 for share in _GOOD_SHARES):
        return words
    padded = ceil_div(words, _STEPS) * _STEPS
    return padded if padded <= words * _MOST_PADDED else ceil_div(words, _STEPS // 2) * _STEPS // 2


def _grouped(kernel: Kernel, contraction: Contraction, grouping: _Grouping, along: Node) -> Node:
    """The sum over words, in the dtype of the sum, and what the offsets of factors add to it."""
    words = _count_of_words(along, grouping.count, is_float=grouping.is_float)
    short = RANGE(const_index(words), attrs=RangeAttrs(along.attrs.number))
    first, second = _words(kernel, grouping, along, short)
    ranges = [short if range_ is along else range_ for range_ in contraction.k]
    attrs = contraction.reduce.attrs
    zero = const_bits(0, int32)
    if grouping.is_float:
        zero = const_bits(0, float32)
    total = REDUCE(grouping.op(first, second, zero), *ranges, attrs=attrs)
    for own, other, word in (
        (grouping.first, grouping.second, second),
        (grouping.second, grouping.first, first),
    ):
        if own.has_offset:
            summed = REDUCE(_summed(grouping.sums, other, word), *ranges, attrs=attrs)
            total = math.ADD(total, math.MUL(summed, own.offset()))
    if grouping.first.has_offset and grouping.second.has_offset:
        both = math.MUL(grouping.first.offset(), grouping.second.offset())
        total = math.ADD(total, math.MUL(both, _count(contraction.k)))
    return cast(total, contraction.reduce.dtype)


def _count(ranges: tuple[Node, ...]) -> Node:
    """How many products a sum has, as int32; extents may be symbolic."""
    total = const_index(1)
    for range_ in ranges:
        total = simplify.mul(total, range_.src[0])
    known = simplify.value_of(total)
    return cast(total, int32) if known is None else const_bits(known & 0xFFFF_FFFF, int32)


def _summed(op: OpDef, factor: OffsetFactor, word: Node) -> Node:
    """The sum of the bytes of a word."""
    ones, zero = const_bits(_ONES, int32), const_bits(0, int32)
    is_first = op is math.DOT_QUADS and not factor.is_signed
    return op(word, ones, zero) if is_first else op(ones, word, zero)


def _words(kernel: Kernel, grouping: _Grouping, along: Node, short: Node) -> tuple[Node, Node]:
    """Both factors in words, read as words where all that reads their memory can be."""
    factors = (grouping.first, grouping.second)
    loads = {factor: _load_of(factor) for factor in factors}
    words = {factor: _loaded_word(factor, along, short, grouping) for factor in factors}
    as_words = {loads[factor] for factor in factors if words[factor] is not None}
    stored = {store.src[0].src[0] for store in kernel.stores}

    def can_read(factor: OffsetFactor) -> bool:
        """Is all that reads the factor's memory made of words?"""
        load = loads[factor]
        if load is None or load.src[0].src[0] in stored:
            return False
        buffer = load.src[0].src[0]
        return all(other in as_words for other in kernel.loads if other.src[0].src[0] is buffer)

    first, second = [words[factor] if can_read(factor) else None for factor in factors]
    return (
        first or _word(grouping.first, along, short, grouping),
        second or _word(grouping.second, along, short, grouping),
    )


def _load_of(factor: OffsetFactor) -> Node | None:
    """The load that a factor's narrow integer is, perhaps under a condition."""
    narrow = factor.narrow
    load = narrow.src[1] if narrow.op is math.WHERE else narrow
    load = load.src[0] if load.op is math.BITCAST else load
    return load if load.op is LOAD else None


def _loaded_word(
    factor: OffsetFactor, along: Node, short: Node, grouping: _Grouping
) -> Node | None:
    """The word that holds the factors of a group, loaded; None where memory holds no such."""
    load = _load_of(factor)
    if load is None or load.dtype.bits != grouping.bits:
        return None
    word = _word_in_memory(load, along, short, grouping.count)
    if word is None:
        return None
    if factor.narrow.op is math.WHERE:
        condition, _, other = factor.narrow.src
        shut = _same(condition, along, short, grouping.count)
        if shut is None or depends_on(other, along):
            return None
        word = math.WHERE(shut, word, _repeated(other, grouping))
    return math.XOR(word, const_bits(_HIGH_BITS, int32)) if factor.flips else word


def _places(along: Node, short: Node, count: int) -> list[dict[Node, Node]]:
    """What a range is at each place of a word."""
    return [
        {along: simplify.add(simplify.scale(short, count), const_index(at))} for at in range(count)
    ]


def _same(node: Node, along: Node, short: Node, count: int) -> Node | None:
    """What a node is at all places of a word; None where they differ."""
    found = [substitute_ranges(node, place, {}) for place in _places(along, short, count)]
    return found[0] if all(other is found[0] for other in found) else None


def _repeated(narrow: Node, grouping: _Grouping) -> Node:
    """A word of equal parts."""
    mask = (1 << grouping.bits) - 1
    ones = sum(1 << at for at in range(0, _WORD_BITS, grouping.bits))
    part = math.AND(cast(narrow, int32), const_bits(mask, int32))
    return math.MUL(part, const_bits(ones, int32))


def _word_in_memory(load: Node, along: Node, short: Node, count: int) -> Node | None:
    """A load of the word that holds `count` elements of another load side by side."""
    buffer, offset = load.src[0].src
    if buffer.op is not PARAM or load_stride(load, along) != 1 or size(along) % count:
        return None
    gates = [_same(gate, along, short, count) for gate in load.src[1:]]
    place = _places(along, short, count)[0]
    constant, total = simplify.terms(substitute_ranges(offset, place, {}))
    if constant % count or any(factor % count for factor in total.values()):
        return None
    attrs = buffer.attrs
    elements = 1
    for extent in attrs.shape:
        if not isinstance(extent, int):
            return None
        elements *= extent
    known = [gate for gate in gates if gate is not None]
    if len(known) < len(gates):
        return None
    inside = simplify.less(short, const_index(size(along) // count))
    if inside is not simplify.TRUE:
        known = [simplify.all_of([*known, inside])]
    start = simplify.from_terms(
        constant // count, {term: factor // count for term, factor in total.items()}
    )
    words = PARAM(attrs=ParamAttrs(attrs.slot, (elements // count,), int32, attrs.device))
    return LOAD(INDEX(words, start), *known, attrs=load.attrs)


def _inside(part: Node, place: dict[Node, Node], along: Node) -> Node:
    """A part of a word, or 0 without any access to memory where its place is behind the range."""
    inside = simplify.less(place[along], along.src[0])
    if inside is simplify.TRUE:
        return part
    return math.WHERE(inside, under_gates(part, [inside]), const_bits(0, part.dtype))


def _word(factor: OffsetFactor, along: Node, short: Node, grouping: _Grouping) -> Node:
    """The factors of one group in a word, the first in the lowest bits.

    What lies behind the end of a range is 0.
    """
    bits, count = grouping.bits, grouping.count
    word = const_bits(0, int32)
    for position, place in enumerate(_places(along, short, count)):
        if position >= size(along):
            break
        part = cast(_inside(substitute_ranges(factor.narrow, place, {}), place, along), int32)
        if factor.flips:
            part = math.XOR(part, const_bits(1 << (bits - 1), int32))
        if factor.narrow.dtype.is_signed and position < count - 1:
            part = math.AND(part, const_bits((1 << bits) - 1, int32))
        if position:
            part = math.SHL(part, const_bits(position * bits, int32))
        word = math.OR(word, part) if position else part
    return word
