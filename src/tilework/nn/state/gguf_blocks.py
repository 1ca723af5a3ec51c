"""The block formats of GGML, as float32: numbers of few bits with scales that a block shares.

Every format is a row of the table below: how many elements and bytes a block has, and what reads
it.  A reader takes the fields of all blocks in the order in which they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tilework.base.records import dataclass
from tilework.nn.state import gguf_books

#: An array of NumPy, whose operators have no exact types.
Array = Any

#: What the digits of the books stand for.
_DIGITS: Final = {
    "iq2_xxs": (8, 25, 43),
    "iq2_xs": (8, 25, 43),
    "iq2_s": (8, 25, 43),
    "iq3_xxs": (4, 12, 20, 28, 36, 44, 52, 62),
    "iq3_s": (1, 3, 5, 7, 9, 11, 13, 15),
    "iq1": (-1, 0, 1),
}
#: The 16 steps of the non-linear formats of 4 bits, and twice the numbers of FP4 (e2m1).
_STEPS: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_TWICE_FP4: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


class Blocks:
    """The bytes of a tensor's blocks, taken from front to back; results have a row a block."""

    def __init__(self, data: memoryview, size: int) -> None:
        import numpy as np

        self.np = np
        self._rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
        self._place = 0

    def take(self, count: int, kind: str = "u1") -> Array:
        """The next `count` numbers of a block."""
        end = self._place + count * self.np.dtype(kind).itemsize
        part = self.np.ascontiguousarray(self._rows[:, self._place : end])
        self._place = end
        return part.view(f"<{kind}")

    def number(self, kind: str = "f2") -> Array:
        """The next number of a block as a float32, with an axis of size 1."""
        return self.take(1, kind).astype(self.np.float32)

    def digits(self, whole: Array, width: int, group: int) -> Array:
        """The numbers of `width` bits in `whole`, lowest first.

        Each `group` of words gives its lowest numbers first, then the next ones.
        """
        count = 8 * whole.itemsize // width
        shifts = self.np.arange(count, dtype=whole.dtype) * whole.dtype.type(width)
        grouped = whole.reshape(len(whole), -1, 1, group) >> shifts.reshape(1, 1, -1, 1)
        return (grouped & whole.dtype.type((1 << width) - 1)).reshape(len(whole), -1)

    def parts(self, whole: Array, shifts: tuple[int, ...], width: int) -> Array:
        """The numbers of `width` bits at given places of each word, one word after the other."""
        places = self.np.array(shifts, dtype=whole.dtype)
        found = (whole[:, :, None] >> places) & whole.dtype.type((1 << width) - 1)
        return found.reshape(len(whole), -1)

    def chosen(self, table: tuple[int, ...], places: Array) -> Array:
        """The numbers of a table."""
        return self.np.array(table, dtype=self.np.float32)[places]

    def rows(self, book: str, places: Array) -> Array:
        """The rows of a book, one after the other."""
        return _book(book)[places].reshape(len(places), -1)

    def signs(self, whole: Array) -> Array:
        """-1 where a bit of a byte is set, else 1."""
        bits = self.digits(whole.astype(self.np.uint8), 1, 1)
        return 1 - 2 * bits.astype(self.np.float32)

    def even_signs(self, seven: Array) -> Array:
        """The signs of eight numbers by seven bits: the count of minus signs is even."""
        parity = seven ^ (seven >> 4)
        parity = parity ^ (parity >> 2)
        parity = (parity ^ (parity >> 1)) & 1
        return self.signs(seven | (parity << 7))

    def scaled(self, scales: Array, numbers: Array) -> Array:
        """Numbers times scales that equal parts of a block share."""
        return self.spread(scales, numbers) * numbers

    def spread(self, scales: Array, numbers: Array) -> Array:
        """One scale for each number."""
        times = numbers.shape[1] // scales.shape[1]
        return self.np.repeat(scales.astype(self.np.float32), times, axis=1)


@cache
def _book(name: str) -> Array:
    import numpy as np

    width = 4 if name.startswith("iq3") else 8
    digits = np.frombuffer(gguf_books.columns(name), dtype=np.uint8).reshape(width, -1).T
    return np.array(_DIGITS[name], dtype=np.float32)[digits]


# --- one scale, or a scale and a least value -----------------------------------------------------


def _q4_0(blocks: Blocks) -> Array:
    scale = blocks.number()
    return scale * (blocks.digits(blocks.take(16), 4, 16).astype("f4") - 8)


def _q4_1(blocks: Blocks) -> Array:
    scale, least = blocks.number(), blocks.number()
    return scale * blocks.digits(blocks.take(16), 4, 16).astype("f4") + least


def _five_bits(blocks: Blocks) -> Array:
    high = blocks.digits(blocks.take(4), 1, 1)
    low = blocks.digits(blocks.take(16), 4, 16)
    return (low | (high << 4)).astype("f4")


def _q5_0(blocks: Blocks) -> Array:
    scale = blocks.number()
    return scale * (_five_bits(blocks) - 16)


def _q5_1(blocks: Blocks) -> Array:
    scale, least = blocks.number(), blocks.number()
    return scale * _five_bits(blocks) + least


def _q8_0(blocks: Blocks) -> Array:
    scale = blocks.number()
    return scale * blocks.take(32, "i1").astype("f4")


def _q8_k(blocks: Blocks) -> Array:
    scale = blocks.number("f4")
    return scale * blocks.take(256, "i1").astype("f4")


# --- blocks of 256 with scales of parts ----------------------------------------------------------


def _q2_k(blocks: Blocks) -> Array:
    both = blocks.take(16)
    numbers = blocks.digits(blocks.take(64), 2, 32).astype("f4")
    scale, least = blocks.number(), blocks.number()
    return blocks.scaled(scale * (both & 15), numbers) - blocks.spread(least * (both >> 4), numbers)


def _q3_k(blocks: Blocks) -> Array:
    high = blocks.digits(blocks.take(32), 1, 32)
    low = blocks.digits(blocks.take(64), 2, 32)
    packed = blocks.take(12)
    coarse = blocks.digits(packed[:, :8], 4, 8) | (blocks.digits(packed[:, 8:], 2, 4) << 4)
    numbers = low.astype("f4") - 4 * (1 - high.astype("f4"))
    return blocks.scaled(blocks.number() * (coarse.astype("f4") - 32), numbers)


def _scales_and_leasts(blocks: Blocks) -> tuple[Array, Array]:
    """Eight scales and eight least values of 6 bits in 12 bytes, times those of the block."""
    scale, least = blocks.number(), blocks.number()
    first, second, rest = (blocks.take(4) for _ in range(3))
    join = blocks.np.concatenate
    scales = join([first & 63, (rest & 15) | ((first >> 2) & 48)], axis=1)
    leasts = join([second & 63, (rest >> 4) | ((second >> 2) & 48)], axis=1)
    return scale * scales, least * leasts


def _q4_k(blocks: Blocks) -> Array:
    scales, leasts = _scales_and_leasts(blocks)
    numbers = blocks.digits(blocks.take(128), 4, 32).astype("f4")
    return blocks.scaled(scales, numbers) - blocks.spread(leasts, numbers)


def _q5_k(blocks: Blocks) -> Array:
    scales, leasts = _scales_and_leasts(blocks)
    high = blocks.digits(blocks.take(32), 1, 32)
    numbers = (blocks.digits(blocks.take(128), 4, 32) | (high << 4)).astype("f4")
    return blocks.scaled(scales, numbers) - blocks.spread(leasts, numbers)


def _q6_k(blocks: Blocks) -> Array:
    low = blocks.digits(blocks.take(128), 4, 64)
    high = blocks.digits(blocks.take(64), 2, 32)
    scales = blocks.take(16, "i1").astype("f4")
    return blocks.scaled(blocks.number() * scales, (low | (high << 4)).astype("f4") - 32)


# --- three values, and tables of sixteen ---------------------------------------------------------


def _tq1_0(blocks: Blocks) -> Array:
    def thirds(count: int, digits: int) -> Array:
        powers = blocks.np.array([1, 3, 9, 27, 81][:digits], dtype=blocks.np.uint8)
        moved = blocks.take(count)[:, None, :] * powers[None, :, None]
        return ((moved.astype(blocks.np.uint16) * 3) >> 8).reshape(len(moved), -1)

    numbers = blocks.np.concatenate([thirds(32, 5), thirds(16, 5), thirds(4, 4)], axis=1)
    return blocks.number() * (numbers.astype("f4") - 1)


def _tq2_0(blocks: Blocks) -> Array:
    numbers = blocks.digits(blocks.take(64), 2, 32).astype("f4")
    return blocks.number() * (numbers - 1)


def _iq4_nl(blocks: Blocks) -> Array:
    scale = blocks.number()
    return scale * blocks.chosen(_STEPS, blocks.digits(blocks.take(16), 4, 16))


def _iq4_xs(blocks: Blocks) -> Array:
    scale = blocks.number()
    high = blocks.parts(blocks.take(1, "u2"), tuple(range(0, 16, 2)), 2)
    low = blocks.digits(blocks.take(4), 4, 1)
    coarse = (low | (high.astype("u1") << 4)).astype("f4") - 32
    numbers = blocks.chosen(_STEPS, blocks.digits(blocks.take(128), 4, 16))
    return blocks.scaled(scale * coarse, numbers)


def _mxfp4(blocks: Blocks) -> Array:
    scale = blocks.np.ldexp(blocks.np.float32(0.5), blocks.take(1).astype("i4") - 127)
    return scale * blocks.chosen(_TWICE_FP4, blocks.digits(blocks.take(16), 4, 16))


def _nvfp4(blocks: Blocks) -> Array:
    """Four scales in fp8 without a sign (e4m3; its NaN means 0), each for sixteen numbers."""
    coded = blocks.take(4)
    exponent, fraction = (coded >> 3) & 15, coded & 7
    whole = blocks.np.where(exponent == 0, fraction, fraction + 8).astype("f4")
    scales = blocks.np.ldexp(whole, blocks.np.maximum(exponent, 1).astype("i4") - 11)
    scales = blocks.np.where(coded == 0x7F, blocks.np.float32(0), scales)
    return blocks.scaled(scales, blocks.chosen(_TWICE_FP4, blocks.digits(blocks.take(32), 4, 8)))


# --- books of rows -------------------------------------------------------------------------------


def _iq2_xxs(blocks: Blocks) -> Array:
    scale = blocks.number()
    words = blocks.take(16, "u4")
    places, more = words[:, ::2], words[:, 1::2]
    rows = blocks.rows("iq2_xxs", blocks.parts(places, (0, 8, 16, 24), 8))
    signs = blocks.even_signs(blocks.parts(more, (0, 7, 14, 21), 7))
    return blocks.scaled(scale * (0.5 + (more >> 28).astype("f4")) * 0.25, rows * signs)


def _iq2_xs(blocks: Blocks) -> Array:
    scale, words = blocks.number(), blocks.take(32, "u2")
    scales = scale * (0.5 + blocks.digits(blocks.take(8), 4, 1).astype("f4")) * 0.25
    return blocks.scaled(scales, blocks.rows("iq2_xs", words & 511) * blocks.even_signs(words >> 9))


def _iq2_s(blocks: Blocks) -> Array:
    scale, low = blocks.number(), blocks.take(32).astype("u2")
    signs = blocks.signs(blocks.take(32))
    high = blocks.digits(blocks.take(8), 2, 1).astype("u2")
    scales = scale * (0.5 + blocks.digits(blocks.take(8), 4, 1).astype("f4")) * 0.25
    return blocks.scaled(scales, blocks.rows("iq2_s", low | (high << 8)) * signs)


def _iq3_xxs(blocks: Blocks) -> Array:
    scale = blocks.number()
    rows = blocks.rows("iq3_xxs", blocks.take(64))
    words = blocks.take(8, "u4")
    signs = blocks.even_signs(blocks.parts(words, (0, 7, 14, 21), 7))
    return blocks.scaled(scale * (0.5 + (words >> 28).astype("f4")) * 0.5, rows * signs)


def _iq3_s(blocks: Blocks) -> Array:
    scale, low = blocks.number(), blocks.take(64).astype("u2")
    rows = blocks.rows("iq3_s", low | (blocks.digits(blocks.take(8), 1, 1).astype("u2") << 8))
    signs = blocks.signs(blocks.take(32))
    scales = scale * (1 + 2 * blocks.digits(blocks.take(4), 4, 1).astype("f4"))
    return blocks.scaled(scales, rows * signs)


def _moved(blocks: Blocks, rows: Array, is_down: Array) -> Array:
    """The rows moved by an eighth, down where it is said."""
    return rows + blocks.spread(0.125 - 0.25 * is_down.astype("f4"), rows)


def _iq1_s(blocks: Blocks) -> Array:
    scale, low = blocks.number(), blocks.take(32).astype("u2")
    words = blocks.take(8, "u2")
    rows = blocks.rows("iq1", low | (blocks.parts(words, (0, 3, 6, 9), 3) << 8))
    scales = scale * (2 * ((words >> 12) & 7).astype("f4") + 1)
    return blocks.scaled(scales, _moved(blocks, rows, words >> 15))


def _iq1_m(blocks: Blocks) -> Array:
    low, high = blocks.take(32).astype("u2"), blocks.digits(blocks.take(16), 4, 1).astype("u2")
    words = blocks.take(4, "u2")
    top = words >> 12
    whole = top[:, :1] | (top[:, 1:2] << 4) | (top[:, 2:3] << 8) | (top[:, 3:] << 12)
    scale = whole.astype("<u2").view("<f2").astype("f4")
    scales = scale * (2 * blocks.parts(words, (0, 3, 6, 9), 3).astype("f4") + 1)
    rows = blocks.rows("iq1", low | ((high & 7) << 8))
    return blocks.scaled(scales, _moved(blocks, rows, high >> 3))


@dataclass(frozen=True)
class BlockFormat:
    """A format: its name, elements and bytes of a block, and what reads blocks of it."""

    name: str
    elements: int
    size: int
    read: Callable[[Blocks], Array]


#: The formats by their number in files.
FORMATS: Final[dict[int, BlockFormat]] = {
    2: BlockFormat("Q4_0", 32, 18, _q4_0), 3: BlockFormat("Q4_1", 32, 20, _q4_1),
    6: BlockFormat("Q5_0", 32, 22, _q5_0), 7: BlockFormat("Q5_1", 32, 24, _q5_1),
    8: BlockFormat("Q8_0", 32, 34, _q8_0), 10: BlockFormat("Q2_K", 256, 84, _q2_k),
    11: BlockFormat("Q3_K", 256, 110, _q3_k), 12: BlockFormat("Q4_K", 256, 144, _q4_k),
    13: BlockFormat("Q5_K", 256, 176, _q5_k), 14: BlockFormat("Q6_K", 256, 210, _q6_k),
    15: BlockFormat("Q8_K", 256, 292, _q8_k), 16: BlockFormat("IQ2_XXS", 256, 66, _iq2_xxs),
    17: BlockFormat("IQ2_XS", 256, 74, _iq2_xs), 18: BlockFormat("IQ3_XXS", 256, 98, _iq3_xxs),
    19: BlockFormat("IQ1_S", 256, 50, _iq1_s), 20: BlockFormat("IQ4_NL", 32, 18, _iq4_nl),
    21: BlockFormat("IQ3_S", 256, 110, _iq3_s), 22: BlockFormat("IQ2_S", 256, 82, _iq2_s),
    23: BlockFormat("IQ4_XS", 256, 136, _iq4_xs), 29: BlockFormat("IQ1_M", 256, 56, _iq1_m),
    34: BlockFormat("TQ1_0", 256, 54, _tq1_0), 35: BlockFormat("TQ2_0", 256, 66, _tq2_0),
    39: BlockFormat("MXFP4", 32, 17, _mxfp4), 40: BlockFormat("NVFP4", 64, 36, _nvfp4),
}  # fmt: skip


def decode(data: memoryview, form: BlockFormat) -> memoryview:
    """The elements of whole blocks as float32, in order, as bytes."""
    found = form.read(Blocks(data, form.size)).astype("<f4").reshape(-1)
    return memoryview(found).cast("B")
