import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework.base import elf
from tilework.base.elf import Machine, SectionFlag, SectionType, read_object
from tilework.base.errors import ModelFileError

TEXT, DATA, BSS = b"\x90" * 16, b"\x01\x02\x03\x04", 64
NAMES = b"\0.text\0.data\0.bss\0.rela.text\0.symtab\0.strtab\0f\0g\0far\0"


def name(text: str) -> int:
    return NAMES.index(b"\0" + text.encode() + b"\0") + 1


def build(machine: int = Machine.X86_64, symbols: bytes | None = None) -> bytes:
    """Write a small object by hand: code, data, empty data, three symbols, two relocations."""
    if symbols is None:
        symbols = b"".join(
            (
                struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0),
                struct.pack("<IBBHQQ", name("f"), 0x12, 0, 1, 0, 16),
                struct.pack("<IBBHQQ", name("g"), 0x21, 0, 2, 0, 4),
                struct.pack("<IBBHQQ", name("far"), 0x10, 0, 0, 0, 0),
            )
        )
    relocations = struct.pack("<QQq", 3, 3 << 32 | 4, -4) + struct.pack("<QQq", 8, 2 << 32 | 2, 7)
    bodies = (TEXT, DATA, b"", relocations, symbols, NAMES)
    offsets, blob = [], b""
    for body in bodies:
        offsets.append(64 + len(blob))
        blob += body
    loaded = SectionFlag.ALLOC
    headers = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (name(".text"), 1, loaded | SectionFlag.EXECINSTR, 0, offsets[0], len(TEXT), 0, 0, 16, 0),
        (name(".data"), 1, loaded | SectionFlag.WRITE, 0, offsets[1], len(DATA), 0, 0, 4, 0),
        (name(".bss"), 8, loaded | SectionFlag.WRITE, 0, offsets[2], BSS, 0, 0, 32, 0),
        (name(".rela.text"), 4, 0, 0, offsets[3], len(relocations), 5, 1, 8, 24),
        (name(".symtab"), 2, 0, 0, offsets[4], len(symbols), 6, 1, 8, 24),
        (name(".strtab"), 3, 0, 0, offsets[5], len(NAMES), 0, 0, 1, 0),
    ]
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    counts = (0, 64, 0, 0, 64, len(headers), 6)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, machine, 1, 0, 0, 64 + len(blob), *counts)
    return header + blob + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in headers)


GOOD = build()


def test_sections_come_with_their_bytes() -> None:
    sections = read_object(GOOD).sections
    assert [(s.name, s.size, s.data) for s in sections[1:4]] == [
        (".text", 16, TEXT),
        (".data", 4, DATA),
        (".bss", 64, b""),
    ]


def test_flags_say_what_a_loader_must_do() -> None:
    text, data, bss = read_object(GOOD).sections[1:4]
    assert [(s.is_loaded, s.is_code, s.is_writable) for s in (text, data, bss)] == [
        (True, True, False),
        (True, False, True),
        (True, False, True),
    ]


def test_symbols_keep_their_place_in_the_table() -> None:
    symbols = read_object(GOOD).symbols
    assert [(s.name, s.section_index, s.binding, s.type) for s in symbols[1:]] == [
        ("f", 1, elf.Binding.GLOBAL, elf.SymbolType.FUNC),
        ("g", 2, elf.Binding.WEAK, elf.SymbolType.OBJECT),
        ("far", elf.UNDEFINED, elf.Binding.GLOBAL, elf.SymbolType.NOTYPE),
    ]


def test_relocations_have_signed_addends() -> None:
    assert read_object(GOOD).relocations == (
        elf.Relocation(1, 3, 4, 3, -4),
        elf.Relocation(1, 8, 2, 2, 7),
    )


@pytest.mark.parametrize("machine", list(Machine))
def test_both_machines_are_read(machine: Machine) -> None:
    assert read_object(build(machine)).machine is machine


def test_a_defined_symbol_is_found_by_name() -> None:
    assert read_object(GOOD).symbol("f").size == 16


def test_an_undefined_symbol_is_not_found() -> None:
    with pytest.raises(ModelFileError, match=r"(?s)not defined.*got: far"):
        read_object(GOOD).symbol("far")


def patched(offset: int, layout: str, value: int) -> bytes:
    raw = bytearray(GOOD)
    struct.pack_into(layout, raw, offset, value)
    return bytes(raw)


SECTIONS = struct.unpack_from("<Q", GOOD, 40)[0]


def section_field(index: int, field: int) -> int:
    return int(SECTIONS + 64 * index + (0, 4, 8, 16, 24, 32, 40, 44, 48, 56)[field])


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "the header reaches past the end"),
        (b"MZ" + GOOD[2:], "not ELF"),
        (patched(4, "B", 1), "class or byte order"),
        (patched(5, "B", 2), "class or byte order"),
        (patched(16, "<H", 2), "not a relocatable object"),
        (patched(18, "<H", 3), "machine is not known"),
        (patched(58, "<H", 40), "another size"),
        (patched(40, "<Q", 0), "no sections"),
        (patched(40, "<Q", 1 << 60), "section 0 reaches past the end"),
        (patched(60, "<H", 60000), "section table reaches past the end"),
        (patched(62, "<H", 0), "string table is missing"),
        (patched(section_field(1, 0), "<I", 10**6), "name lies outside"),
        (patched(section_field(1, 5), "<Q", 1 << 40), "reaches past the end"),
        (patched(section_field(1, 8), "<Q", 3), "alignment is not usable"),
        (patched(section_field(3, 5), "<Q", 1 << 50), "empty section is too large"),
        (patched(section_field(4, 6), "<I", 2), "unknown symbol table"),
        (patched(section_field(4, 7), "<I", 99), "section that is not there"),
        (patched(section_field(4, 9), "<Q", 0), "rows of another size"),
        (patched(section_field(4, 1), "<I", SectionType.REL), "without addends"),
        (patched(section_field(5, 5), "<Q", 95), "rows of another size"),
        (patched(section_field(5, 5), "<Q", 24), "relocation has no symbol"),
        (patched(section_field(2, 1), "<I", SectionType.SYMTAB), "more than one symbol table"),
        (patched(84, "<Q", 16), "relocation lies outside"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_refused_for_its_reason(raw: bytes, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        read_object(raw)


@pytest.mark.parametrize(
    ("symbol", "words"),
    [
        ((0, 0, 0, 50, 0, 0), "no section"),
        ((0, 0, 0, 0xFF20, 0, 0), "reserved section"),
        ((0, 0, 0, 2, 2, 3), "outside its section"),
        ((10**6, 0, 0, 1, 0, 0), "name lies outside"),
    ],
)
def test_a_bad_symbol_is_refused(symbol: tuple[int, ...], words: str) -> None:
    rows = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0) + struct.pack("<IBBHQQ", *symbol)
    with pytest.raises(ModelFileError, match=words):
        read_object(build(symbols=rows + bytes(48)))


def test_an_absolute_symbol_needs_no_section() -> None:
    rows = bytes(24) + struct.pack("<IBBHQQ", 0, 4, 0, elf.ABSOLUTE, 77, 0) + bytes(48)
    assert read_object(build(symbols=rows)).symbols[1].value == 77


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255), st.integers(0, len(GOOD)))
def test_GEN_09_hostile_bytes_give_an_object_or_a_typed_error(
    position: int, flip: int, length: int
) -> None:
    raw = bytearray(GOOD)
    raw[position] ^= flip
    for candidate in (bytes(raw), bytes(raw[:length])):
        with suppress(ModelFileError):
            assert len(read_object(candidate).sections) <= elf.MAX_SECTIONS
