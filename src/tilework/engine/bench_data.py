"""What kernels are measured on, and whether two results of theirs agree.

Indices are random ones that are in range, so that gathers meet memory as they do in programs; other
integers are random and not 0.  Results agree if they are equal, bit for bit; or, where floats were
added, if they differ by no more than another order of the additions can make likely.
"""

from __future__ import annotations

import random
from math import isnan, sqrt
from struct import pack, unpack
from typing import TYPE_CHECKING, Final

from tilework.base.integers import product
from tilework.dtypes import decode, encode
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE
from tilework.ir.ops.tensor import REDUCE, SCAN
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node

#: About how many floats of a result are compared.
_MOST_COMPARED: Final = 1 << 16
#: How many different numbers memory is filled with: primes, so that no row equals the next.
_VALUES: Final = 4093
_INDICES: Final = 65521
_LARGEST: Final = 100
#: Roundings that a sum may differ by, besides those that grow with the root of its length.
_ROUNDINGS: Final = 16
#: log2 of the relative error of one rounding.
_ERRORS: Final = {"float64": -53, "float32": -24, "float16": -11, "bfloat16": -8}


def index_limits(sink: Node) -> dict[int, int]:
    """For each slot whose integers are used as indices: below which number they have to be.

    It is 1 where the kernel does not compare them with a number, so that only 0 is known to do.
    """
    loaded: dict[Node, frozenset[int]] = {}  # whose integers an expression depends on
    itself: dict[Node, int] = {}  # whose integers it is, whatever is added to negative ones
    addressed: set[int] = set()
    limits: dict[int, int] = {}
    for node in toposort(sink):
        if node.op is LOAD:
            index = node.src[0]
            param = index.src[0]
            if param.op is PARAM and not param.attrs.dtype.is_float:
                loaded[node] = frozenset((param.attrs.slot,))
                itself[node] = param.attrs.slot
        elif node.op is INDEX:
            for source in node.src[1:]:
                addressed |= loaded.get(source, frozenset())
        elif node.op is not STORE:
            found = frozenset[int]().union(*[loaded.get(source, ()) for source in node.src])
            if found:
                loaded[node] = found
            _follow(node, itself, limits)
    return {slot: limits.get(slot, 1) for slot in sorted(addressed)}


def _follow(node: Node, itself: dict[Node, int], limits: dict[int, int]) -> None:
    if node.op is math.CAST and node.src[0] in itself and not node.type.dtype.is_float:
        itself[node] = itself[node.src[0]]
    elif node.op is math.WHERE and node.src[2] in itself:
        itself[node] = itself[node.src[2]]
    elif node.op is math.LT and node.src[0] in itself and node.src[1].op is math.CONST:
        slot = itself[node.src[0]]
        limit = int(decode(node.src[1].attrs.bits, node.src[1].attrs.dtype))
        if limit > 0:
            limits[slot] = min(limit, limits.get(slot, limit))


def pattern(dtype: DType | None, size_bytes: int, limit: int | None) -> bytes:
    """Numbers that memory is filled with, again and again: some thousands, or all that fit.

    Args:
        dtype: of the elements; None for zeros.
        size_bytes: how much memory there is.
        limit: of indices; None for other numbers.

    Returns:
        At most `size_bytes` bytes.
    """
    if dtype is None:
        return bytes(min(size_bytes, _VALUES))
    generator = random.Random(0)
    longest = _VALUES if limit is None else _INDICES
    if dtype.is_packed:
        return generator.randbytes(min(longest, size_bytes))
    count = min(longest, size_bytes // dtype.itemsize + 1)
    values: list[float] | list[int]
    if dtype.is_float:
        values = [generator.gauss(0.0, 0.5) for _ in range(count)]
    elif limit is not None:
        most = min(limit - 1, dtype.maximum)
        values = [generator.randint(0, most) for _ in range(count)]
    elif dtype.is_bool:
        values = [generator.randrange(2) for _ in range(count)]
    else:
        values = [generator.randint(1, _LARGEST) for _ in range(count)]
    row = b"".join([encode(value, dtype).to_bytes(dtype.itemsize, "little") for value in values])
    return row[:size_bytes]


def longest_sum(sink: Node) -> int:
    """How many numbers a kernel adds into one at the most; 0 where it adds none."""
    longest = 0
    for node in toposort(sink):
        if node.op in (REDUCE, SCAN):
            ranges = [source for source in node.src[1:] if source.op is RANGE]
            longest = max(longest, product([max(bounds(r.src[0])[1], 1) for r in ranges]))
    return longest


def agree(got: bytes, wanted: bytes, dtype: DType | None, summands: int) -> bool:
    """Whether two results agree: exactly, or floats but for the order of additions.

    Args:
        got: a result.
        wanted: the other.
        dtype: of their elements.
        summands: how many numbers were added into each at the most.
    """
    if got == wanted:
        return True
    if dtype is None or dtype.name not in _ERRORS or not summands:
        return False
    one, other = (_sample(data, dtype) for data in (got, wanted))
    largest = max([abs(value) for value in other if abs(value) < float("inf")], default=0.0)
    of_sums = 2.0 ** (-53 if dtype.name == "float64" else -24)
    allowed = of_sums * (_ROUNDINGS + 8.0 * sqrt(summands)) * largest
    # The sums of narrow floats are float32; where they differ, another neighbour may be nearest.
    of_neighbours = 2.0 * 2.0 ** _ERRORS[dtype.name] if dtype.itemsize == 2 else 0.0
    return all(
        a == b or abs(a - b) <= allowed + of_neighbours * abs(b) or (isnan(a) and isnan(b))
        for a, b in zip(one, other, strict=True)
    )


def _sample(data: bytes, dtype: DType) -> Sequence[float]:
    """Floats of a result, from all over it."""
    view = memoryview(data)
    step = max(len(data) // dtype.itemsize // _MOST_COMPARED, 1) | 1  # odd: all columns come by
    if dtype.name == "bfloat16":
        bits = [value << 16 for value in view.cast("H")[::step].tolist()]
        return unpack(f"<{len(bits)}f", pack(f"<{len(bits)}I", *bits))
    if dtype.name == "float16":
        halves = view.cast("H")[::step].tolist()
        return unpack(f"<{len(halves)}e", pack(f"<{len(halves)}H", *halves))
    values = view.cast("f") if dtype.name == "float32" else view.cast("d")
    return values[::step].tolist()
