"""Relocation kinds of ELF objects for x86-64 and aarch64: the arithmetic, and nothing else.

`patch` writes one relocated field.  S is the address of the symbol, A the addend, P the address
of the field; G is the address of the symbol's slot in the table of addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import pack_into, unpack_from
from typing import Final

from tilework.base.errors import ModelFileError
from tilework.target.features import AARCH64, X86_64

Patch = Callable[[bytearray, int, int, int], None]
"""(image, offset of the field, S + A, P) -> None"""


def _out_of_range(value: int, bits: int) -> ModelFileError:
    return ModelFileError(
        "object code: a relocation does not fit its field", got=hex(value), expected=f"{bits} bits"
    )


def _put32(image: bytearray, offset: int, value: int) -> None:
    if not -(1 << 31) <= value < 1 << 31:
        raise _out_of_range(value, 32)
    pack_into("<i", image, offset, value)


def _absolute64(image: bytearray, offset: int, target: int, place: int) -> None:
    pack_into("<Q", image, offset, target & 0xFFFF_FFFF_FFFF_FFFF)


def _absolute32_signed(image: bytearray, offset: int, target: int, place: int) -> None:
    _put32(image, offset, target)


def _absolute32(image: bytearray, offset: int, target: int, place: int) -> None:
    if not 0 <= target < 1 << 32:
        raise _out_of_range(target, 32)
    pack_into("<I", image, offset, target)


def _relative32(image: bytearray, offset: int, target: int, place: int) -> None:
    _put32(image, offset, target - place)


def _relative64(image: bytearray, offset: int, target: int, place: int) -> None:
    pack_into("<q", image, offset, target - place)


def _instruction_field(image: bytearray, offset: int, value: int, mask: int, shift: int) -> None:
    """Replace the bits `mask << shift` of an aarch64 instruction."""
    (word,) = unpack_from("<I", image, offset)
    pack_into("<I", image, offset, word & ~(mask << shift) | (value & mask) << shift)


def _branch(bits: int, shift: int) -> Patch:
    """A branch displacement of `bits` bits, counted in instructions."""

    def patch(image: bytearray, offset: int, target: int, place: int) -> None:
        distance = target - place
        if distance & 3 or not -(1 << (bits + 1)) <= distance < 1 << (bits + 1):
            raise _out_of_range(distance, bits)
        _instruction_field(image, offset, distance >> 2, (1 << bits) - 1, shift)

    return patch


def _page_distance(image: bytearray, offset: int, target: int, place: int) -> None:
    """ADRP: the distance between 4 KiB pages, in two fields."""
    pages = (target >> 12) - (place >> 12)
    if not -(1 << 20) <= pages < 1 << 20:
        raise _out_of_range(pages, 21)
    _instruction_field(image, offset, pages, 3, 29)
    _instruction_field(image, offset, pages >> 2, 0x7FFFF, 5)


def _byte_distance(image: bytearray, offset: int, target: int, place: int) -> None:
    """ADR: a distance in bytes, in the fields of ADRP."""
    distance = target - place
    if not -(1 << 20) <= distance < 1 << 20:
        raise _out_of_range(distance, 21)
    _instruction_field(image, offset, distance, 3, 29)
    _instruction_field(image, offset, distance >> 2, 0x7FFFF, 5)


def _page_offset(scale: int) -> Patch:
    """The low 12 bits of an address, divided by the size of the access."""

    def patch(image: bytearray, offset: int, target: int, place: int) -> None:
        low = target & 0xFFF
        if low & ((1 << scale) - 1):
            raise ModelFileError(
                "object code: a relocated access is not aligned",
                got=hex(low),
                expected=f"a multiple of {1 << scale}",
            )
        _instruction_field(image, offset, low >> scale, 0xFFF, 10)

    return patch


# The symbol's own address is meant.
DIRECT: Final[Mapping[str, Mapping[int, Patch]]] = {
    X86_64: {
        1: _absolute64,
        2: _relative32,
        4: _relative32,  # PLT32: a call; far symbols have a stub inside the mapping
        10: _absolute32,
        11: _absolute32_signed,
        24: _relative64,
    },
    AARCH64: {
        257: _absolute64,
        258: _absolute32,
        260: _relative64,
        261: _relative32,
        274: _byte_distance,
        275: _page_distance,
        277: _page_offset(0),
        278: _page_offset(0),
        279: _branch(14, 5),
        280: _branch(19, 5),
        282: _branch(26, 0),
        283: _branch(26, 0),
        284: _page_offset(1),
        285: _page_offset(2),
        286: _page_offset(3),
        299: _page_offset(4),
    },
}

# The address of a slot that holds the symbol's address is meant.
THROUGH_SLOT: Final[Mapping[str, Mapping[int, Patch]]] = {
    X86_64: {9: _relative32, 41: _relative32, 42: _relative32},
    AARCH64: {311: _page_distance, 312: _page_offset(3)},
}

# jmp *[rip + 2]; the address follows at byte 8
_X86_STUB: Final = bytes((0xFF, 0x25, 0x02, 0x00, 0x00, 0x00, 0xCC, 0xCC))
# ldr x16, #8; br x16
_AARCH64_STUB: Final = bytes((0x50, 0x00, 0x00, 0x58, 0x00, 0x02, 0x1F, 0xD6))
STUB_BYTES: Final = 16
STUB_ADDRESS_OFFSET: Final = 8
STUBS: Final[Mapping[str, bytes]] = {X86_64: _X86_STUB, AARCH64: _AARCH64_STUB}
