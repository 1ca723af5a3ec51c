"""Sums of products of narrow integers, by instructions that multiply several at once.

    sum over k of int32(a[k]) * int32(b[k])  ->  sum over words of dot(word of a, word of b)

A word holds the factors of consecutive k: two int16 or four bytes in 32 bits.  The words are
factors like others, so plans stage, pack and tile them, and one lane of a vector works on a word.
All of it is exact modulo 2**32, as the sum that was written is.  Where the factors of a word lie
side by side in memory, memory is read as words.

Where an instruction wants its first bytes unsigned and both are signed, 128 is added to them (their
highest bit is flipped), and 128 times the sum of the other factor is taken off: a correction that
depends on one side of the contraction alone.  Instructions for matrix registers take bytes of
either sign; whether words are made for them or for vectors is decided by the cheaper plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tilework.codegen.analysis import Kernel, analyse, substitute_ranges
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.plan.contraction import Contraction, load_stride, orientations
from tilework.codegen.plan.extents import least_size, product, size
from tilework.codegen.plan.tilings import cheapest
from tilework.dtypes import DType, int8, int16, int32, uint8, uint32
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
_ALL_HIGH_BITS: Final = 0x8080_8080
#: Outputs along each side, and products in each sum, from which making words of factors pays.
_LEAST_OUTPUTS: Final = 8
_LEAST_PRODUCTS: Final = 16
_NARROW: Final = frozenset({int8, uint8, int16})
_QUADS_OF: Final = {
    (int8, int8): math.DOT_SIGNED_QUADS,
    (uint8, int8): math.DOT_QUADS,
    (uint8, uint8): math.DOT_UNSIGNED_QUADS,
}


@dataclass(frozen=True, slots=True)
class _Grouping:
    """How products are grouped.

    Attributes:
        op: The instruction's op.
        first: The factor whose words are its first operand, below its cast to 32 bits.
        second: The other one.
        flips: Whether 128 is added to the first factor's bytes.
    """

    op: OpDef
    first: Node
    second: Node
    flips: bool = False

    @property
    def bits(self) -> int:
        """The width of one factor in a word."""
        return 16 if self.op is math.DOT_PAIRS else 8

    @property
    def count(self) -> int:
        """How many products one word takes."""
        return _WORD_BITS // self.bits


def ready_for_plans(sink: Node, target: TargetSpec) -> Node:
    """The kernel that plans are made for: its ranges in normal form, narrow products grouped."""
    normal = normalise_ranges(sink)
    has_words = any(found.fragment_layout == "words" for found in target.matrix_instructions)
    if not has_words and not any(op.name in target.native_ops for op in math.DOTS):
        return normal
    return group_products(analyse(normal), target)


def group_products(kernel: Kernel, target: TargetSpec) -> Node:
    """The kernel with the products of its contraction in words, where the target has it so."""
    found = orientations(kernel)
    if not found or found[0].reduce.src[0].op is not math.MUL or found[0].corrections:
        return kernel.sink
    contraction = found[0]
    sides = (product(contraction.m), product(contraction.n))
    if min(sides) < _LEAST_OUTPUTS or product(contraction.k) < _LEAST_PRODUCTS:
        return kernel.sink
    sinks = [kernel.sink]
    for grouping in _groupings(contraction, target):
        along = _range_for(contraction, grouping.count)
        if along is not None:
            sinks[:] = [_with_words(kernel, contraction, grouping, along)]
            break
    sinks += [
        _with_words(kernel, contraction, grouping, along)
        for grouping in _matrix_groupings(contraction, target)
        if (along := _range_for(contraction, grouping.count)) is not None
    ]
    return sinks[0] if len(sinks) == 1 else min(sinks, key=lambda sink: _cycles(sink, target))


def _cycles(sink: Node, target: TargetSpec) -> float:
    best = cheapest(analyse(sink), target)
    return float("inf") if best is None else best[0]


def _with_words(kernel: Kernel, contraction: Contraction, grouping: _Grouping, along: Node) -> Node:
    new = _grouped(kernel, contraction, grouping, along)
    (sink,) = simplify.substitute([kernel.sink], {contraction.reduce: new})
    return sink


def _groupings(contraction: Contraction, target: TargetSpec) -> list[_Grouping]:
    """The ways that the factors' dtypes allow, the widest instruction first."""
    if contraction.reduce.dtype not in (int32, uint32):
        return []
    a, b = _narrow(contraction.a), _narrow(contraction.b)
    if a is None or b is None:
        return []
    found: list[_Grouping] = []
    if math.DOT_SIGNED_QUADS.name in target.native_ops and a.dtype is int8 and b.dtype is int8:
        found.append(_Grouping(math.DOT_SIGNED_QUADS, a, b))
    if math.DOT_QUADS.name in target.native_ops:
        kinds = (a.dtype, b.dtype)
        if kinds == (uint8, int8):
            found.append(_Grouping(math.DOT_QUADS, a, b))
        elif kinds == (int8, uint8):
            found.append(_Grouping(math.DOT_QUADS, b, a))
        elif kinds == (int8, int8):
            found.append(_Grouping(math.DOT_QUADS, a, b, flips=True))
    if math.DOT_PAIRS.name in target.native_ops:
        found.append(_Grouping(math.DOT_PAIRS, a, b))
    return found


def _matrix_groupings(contraction: Contraction, target: TargetSpec) -> list[_Grouping]:
    """The way that an instruction for matrix registers takes the factors, if there is one."""
    if contraction.reduce.dtype not in (int32, uint32):
        return []
    a, b = _narrow(contraction.a), _narrow(contraction.b)
    if a is None or b is None:
        return []
    if a.dtype is int8 and b.dtype is uint8:
        a, b = b, a
    op = _QUADS_OF.get((a.dtype, b.dtype))
    has_instruction = any(
        (found.a_dtype, found.b_dtype) == (a.dtype.name, b.dtype.name)
        and found.fragment_layout == "words"
        for found in target.matrix_instructions
    )
    return [_Grouping(op, a, b)] if op is not None and has_instruction else []


def _narrow(factor: Node) -> Node | None:
    """The narrow integer that a factor is, below its cast; None if it is something else."""
    if factor.op is not math.CAST or factor.src[0].dtype not in _NARROW:
        return None
    return factor.src[0]


def _range_for(contraction: Contraction, count: int) -> Node | None:
    """A range of k to be cut into groups of `count`, along which factors are contiguous if any."""
    fitting = [r for r in contraction.k if least_size(r) == size(r) and size(r) % count == 0]

    def contiguous(range_: Node) -> int:
        return sum(load_stride(f, range_) == 1 for f in (contraction.a, contraction.b))

    return max(fitting, key=contiguous, default=None)


def _grouped(kernel: Kernel, contraction: Contraction, grouping: _Grouping, along: Node) -> Node:
    """The sum over words, in the dtype of the sum."""
    short = RANGE(const_index(size(along) // grouping.count), attrs=RangeAttrs(along.attrs.number))
    first, second = _words(kernel, grouping, along, short)
    ranges = [short if range_ is along else range_ for range_ in contraction.k]
    attrs = contraction.reduce.attrs
    high_bits, zero = const_bits(_ALL_HIGH_BITS, int32), const_bits(0, int32)
    if grouping.flips:
        first = math.XOR(first, high_bits)
    total = REDUCE(grouping.op(first, second, zero), *ranges, attrs=attrs)
    if grouping.flips:
        correction = REDUCE(grouping.op(high_bits, second, zero), *ranges, attrs=attrs)
        total = math.SUB(total, correction)
    return cast(total, contraction.reduce.dtype)


def _words(kernel: Kernel, grouping: _Grouping, along: Node, short: Node) -> tuple[Node, Node]:
    """Both factors in words, read as words where all that reads their memory can be."""
    factors = (grouping.first, grouping.second)
    loaded = {
        factor: word
        for factor in factors
        if (word := _loaded_word(factor, along, short, grouping)) is not None
    }
    stored = {store.src[0].src[0] for store in kernel.stores}
    for factor in list(loaded):
        buffer = factor.src[0].src[0]
        readers = [load for load in kernel.loads if load.src[0].src[0] is buffer]
        if buffer in stored or any(reader not in loaded for reader in readers):
            for other in readers:
                loaded.pop(other, None)
    first, second = [
        loaded.get(factor) or _word(factor, along, short, grouping) for factor in factors
    ]
    return first, second


def _loaded_word(narrow: Node, along: Node, short: Node, grouping: _Grouping) -> Node | None:
    """A load of the word that holds the factors of a group; None where memory holds no such."""
    if narrow.op is not LOAD or narrow.dtype.bits != grouping.bits:
        return None
    buffer, offset = narrow.src[0].src
    if buffer.op is not PARAM or load_stride(narrow, along) != 1:
        return None
    count = grouping.count
    places = [
        {along: simplify.add(simplify.scale(short, count), const_index(at))} for at in range(count)
    ]
    gates = [
        tuple([substitute_ranges(gate, place, {}) for gate in narrow.src[1:]]) for place in places
    ]
    constant, total = simplify.terms(substitute_ranges(offset, places[0], {}))
    if any(gate != gates[0] for gate in gates) or constant % count:
        return None
    if any(factor % count for factor in total.values()):
        return None
    start = simplify.from_terms(
        constant // count, {term: factor // count for term, factor in total.items()}
    )
    attrs = buffer.attrs
    elements = 1
    for extent in attrs.shape:
        if not isinstance(extent, int):
            return None
        elements *= extent
    words = PARAM(attrs=ParamAttrs(attrs.slot, (elements // count,), int32, attrs.device))
    return LOAD(INDEX(words, start), *gates[0], attrs=narrow.attrs)


def _word(narrow: Node, along: Node, short: Node, grouping: _Grouping) -> Node:
    """The factors of one group in a word, the first in the lowest bits."""
    bits, count = grouping.bits, grouping.count
    word: Node | None = None
    for position in range(count):
        place = simplify.add(simplify.scale(short, count), const_index(position))
        part = cast(substitute_ranges(narrow, {along: place}, {}), int32)
        if _is_signed(narrow.dtype) and position < count - 1:
            part = math.AND(part, const_bits((1 << bits) - 1, int32))
        if position:
            part = math.SHL(part, const_bits(position * bits, int32))
        word = part if word is None else math.OR(word, part)
    return word if word is not None else const_bits(0, int32)


def _is_signed(dtype: DType) -> bool:
    return dtype.is_signed
