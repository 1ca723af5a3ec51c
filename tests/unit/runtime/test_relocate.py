from struct import pack, unpack_from

import pytest

from tilework.base.errors import ModelFileError
from tilework.runtime.relocate import DIRECT, STUB_BYTES, STUBS, THROUGH_SLOT

X86, ARM = DIRECT["x86-64"], DIRECT["aarch64"]
PLACE = 0x7F00_0000_1000


def patched_word(kind: int, word: int, target: int, place: int = PLACE) -> int:
    """The aarch64 instruction `word` with its field filled in."""
    image = bytearray(pack("<I", word))
    (ARM.get(kind) or THROUGH_SLOT["aarch64"][kind])(image, 0, target, place)
    found: int = unpack_from("<I", image)[0]
    return found


# The expected words are those of GNU as and ld for the same distances.
@pytest.mark.parametrize(
    ("kind", "word", "target", "expected"),
    [
        (283, 0x94000000, PLACE + 0x1000, 0x94000400),  # bl .+4096
        (283, 0x94000000, PLACE - 4, 0x97FFFFFF),  # bl .-4
        (282, 0x14000000, PLACE + 8, 0x14000002),  # b .+8
        (280, 0x54000000, PLACE + 8, 0x54000040),  # b.eq .+8
        (280, 0x54000000, PLACE - 8, 0x54FFFFC0),  # b.eq .-8
        (279, 0x36000000, PLACE + 8, 0x36000040),  # tbz w0, #0, .+8
        (275, 0x90000000, PLACE + 0x3000, 0xF0000000),  # adrp x0, +3 pages
        (275, 0x90000000, PLACE - 0x1000, 0xF0FFFFE0),  # adrp x0, -1 page
        (274, 0x10000000, PLACE + 5, 0x30000020),  # adr x0, .+5
        (277, 0x91000000, 0x12345ABC, 0x912AF000),  # add x0, x0, #0xabc
        (278, 0x39400000, 0x1003, 0x39400C00),  # ldrb w0, [x0, #3]
        (284, 0x79400000, 0x1006, 0x79400C00),  # ldrh w0, [x0, #6]
        (285, 0xB9400000, 0x100C, 0xB9400C00),  # ldr w0, [x0, #12]
        (286, 0xF9400000, 0x1018, 0xF9400C00),  # ldr x0, [x0, #24]
        (299, 0x3DC00000, 0x1030, 0x3DC00C00),  # ldr q0, [x0, #48]
        (311, 0x90000000, PLACE + 0x3000, 0xF0000000),  # adrp of a slot
        (312, 0xF9400000, 0x1018, 0xF9400C00),  # ldr of a slot
    ],
)
def test_aarch64_fields_are_filled(kind: int, word: int, target: int, expected: int) -> None:
    assert patched_word(kind, word, target) == expected


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (283, PLACE + (1 << 27)),
        (280, PLACE + (1 << 20)),
        (279, PLACE + (1 << 15)),
        (283, PLACE + 2),
        (275, PLACE + (1 << 33)),
        (274, PLACE + (1 << 21)),
    ],
)
def test_aarch64_distances_that_do_not_fit_are_refused(kind: int, target: int) -> None:
    with pytest.raises(ModelFileError, match="does not fit"):
        patched_word(kind, 0, target)


def test_aarch64_accesses_must_be_aligned() -> None:
    with pytest.raises(ModelFileError, match="not aligned"):
        patched_word(286, 0, 0x1004)


def test_x86_fields_are_filled() -> None:
    image = bytearray(8)
    X86[2](image, 0, PLACE - 100, PLACE)
    assert unpack_from("<i", image)[0] == -100
    X86[1](image, 0, PLACE, 0)
    assert unpack_from("<Q", image)[0] == PLACE
    X86[24](image, 0, PLACE + (1 << 40), PLACE)
    assert unpack_from("<q", image)[0] == 1 << 40
    X86[10](image, 0, 0xFFFF_FFFF, 0)
    assert unpack_from("<I", image)[0] == 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("kind", "target"), [(2, PLACE + (1 << 31)), (10, 1 << 32), (10, -1), (11, 1 << 31)]
)
def test_x86_values_that_do_not_fit_are_refused(kind: int, target: int) -> None:
    with pytest.raises(ModelFileError, match="does not fit"):
        X86[kind](bytearray(8), 0, target, PLACE)


def test_a_stub_leaves_room_for_its_address() -> None:
    assert {len(code) for code in STUBS.values()} == {STUB_BYTES - 8}
