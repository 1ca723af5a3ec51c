"""A reader of ELF64 relocatable objects (x86-64 and AArch64, little-endian).

It trusts nothing: every offset, count and index of the file is checked against the bytes that
are there, and a malformed file is a `ModelFileError`, never another exception and never a read
outside the file.  Applying relocations and making memory executable is `runtime/loader.py`'s work.
"""

import struct
from enum import IntEnum, IntFlag

from tilework.base.errors import ModelFileError
from tilework.base.records import dataclass

# Limits that no object of ours comes near; they bound the work on a hostile file.
MAX_SECTIONS = 65535
MAX_SYMBOLS = 1 << 20
MAX_RELOCATIONS = 1 << 22
MAX_BSS_BYTES = 1 << 32


class Machine(IntEnum):
    """The instruction set of an object (`e_machine`)."""

    X86_64 = 62
    AARCH64 = 183


class SectionType(IntEnum):
    """The section types that a loader looks at (`sh_type`)."""

    NULL = 0
    PROGBITS = 1
    SYMTAB = 2
    STRTAB = 3
    RELA = 4
    NOTE = 7
    NOBITS = 8
    REL = 9
    INIT_ARRAY = 14
    FINI_ARRAY = 15


class SectionFlag(IntFlag):
    """The section flags that a loader looks at (`sh_flags`)."""

    WRITE = 0x1
    ALLOC = 0x2
    EXECINSTR = 0x4
    MERGE = 0x10
    STRINGS = 0x20
    TLS = 0x400


class Binding(IntEnum):
    """Who sees a symbol."""

    LOCAL = 0
    GLOBAL = 1
    WEAK = 2


class SymbolType(IntEnum):
    """What a symbol names."""

    NOTYPE = 0
    OBJECT = 1
    FUNC = 2
    SECTION = 3
    FILE = 4
    COMMON = 5
    TLS = 6


UNDEFINED = 0
ABSOLUTE = 0xFFF1
COMMON = 0xFFF2


@dataclass(frozen=True, slots=True)
class Section:
    """A section; `data` is empty where the file holds no bytes for it (NOBITS)."""

    name: str
    type: int
    flags: int
    alignment: int
    size: int
    data: bytes

    @property
    def is_loaded(self) -> bool:
        """Whether it takes memory at run time."""
        return bool(self.flags & SectionFlag.ALLOC)

    @property
    def is_code(self) -> bool:
        """Whether it holds instructions."""
        return bool(self.flags & SectionFlag.EXECINSTR)

    @property
    def is_writable(self) -> bool:
        """Whether a program writes to it."""
        return bool(self.flags & SectionFlag.WRITE)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol; `value` is an offset into its section (or the value itself if absolute)."""

    name: str
    section_index: int
    value: int
    size: int
    binding: int
    type: int

    @property
    def is_defined(self) -> bool:
        """Whether this object gives the symbol a place or a value."""
        return self.section_index not in (UNDEFINED, COMMON)


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place to patch: `offset` bytes into section `section_index`."""

    section_index: int
    offset: int
    type: int
    symbol_index: int
    addend: int


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """What a relocatable object holds; indexes of sections and symbols are the file's own."""

    machine: Machine
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]

    def symbol(self, name: str) -> Symbol:
        """Return the defined symbol of this name.

        Raises:
            ModelFileError: the object defines none.
        """
        for symbol in self.symbols:
            if symbol.name == name and symbol.is_defined:
                return symbol
        raise ModelFileError("object file: a symbol is not defined", got=name)


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_RELOCATABLE = 1
_INDEX_ESCAPE = 0xFFFF
_RESERVED_FIRST = 0xFF00


@dataclass(frozen=True, slots=True)
class _Raw:
    """A section header as it stands in the file."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def is_object(data: bytes) -> bool:
    """Whether these bytes begin as a relocatable object of a machine that we know."""
    if len(data) < _HEADER.size or not data.startswith(b"\x7fELF\x02\x01\x01"):
        return False
    fields = _HEADER.unpack_from(data)
    return fields[1] == _RELOCATABLE and fields[2] in list(Machine)


def read_object(data: bytes) -> ObjectFile:
    """Read a relocatable object.

    Args:
        data: the whole file.

    Raises:
        ModelFileError: it is malformed, or not a little-endian ELF64 relocatable of a machine
            that we know.
    """
    machine, headers, names_index = _read_headers(data)
    names = _string_table(data, headers, names_index)
    sections = tuple(_section(data, raw, _text(names, raw.name)) for raw in headers)
    symbol_tables = [i for i, raw in enumerate(headers) if raw.type == SectionType.SYMTAB]
    if len(symbol_tables) > 1:
        raise _bad("more than one symbol table", f"sections {symbol_tables}")
    symbols = _symbols(data, headers, symbol_tables[0]) if symbol_tables else ()
    relocations: list[Relocation] = []
    for index, raw in enumerate(headers):
        if raw.type == SectionType.REL and _is_target_loaded(headers, raw):
            raise _bad("relocations without addends", f"section {index}")
        if raw.type == SectionType.RELA:
            if raw.link not in symbol_tables:
                raise _bad("relocations of an unknown symbol table", f"section {raw.link}")
            relocations += _relocations(data, headers, raw, len(symbols))
            if len(relocations) > MAX_RELOCATIONS:
                raise _bad("too many relocations", f"{len(relocations)}")
    return ObjectFile(machine, sections, symbols, tuple(relocations))


def _bad(what: str, got: str, expected: str | None = None) -> ModelFileError:
    return ModelFileError(f"object file: {what}", got=got, expected=expected)


def _slice(data: bytes, offset: int, size: int, what: str) -> bytes:
    if offset + size > len(data):
        raise _bad(
            f"{what} reaches past the end",
            f"bytes {offset} to {offset + size}",
            f"at most {len(data)}",
        )
    return data[offset : offset + size]


def _read_headers(data: bytes) -> tuple[Machine, list[_Raw], int]:
    """Return the machine, all section headers and the index of the name table."""
    fields = _HEADER.unpack(_slice(data, 0, _HEADER.size, "the header"))
    ident, kind, machine_number = fields[0], fields[1], fields[2]
    table_offset, header_size = fields[6], fields[8]
    entry_size, count, names_index = fields[11], fields[12], fields[13]
    if ident[:4] != b"\x7fELF":
        raise _bad("it is not ELF", f"first bytes {ident[:4]!r}")
    if ident[4:7] != b"\x02\x01\x01":
        raise _bad(
            "this class or byte order is not read",
            f"class {ident[4]}, byte order {ident[5]}, version {ident[6]}",
            "ELF64, little-endian, version 1",
        )
    if kind != _RELOCATABLE:
        raise _bad("it is not a relocatable object", f"type {kind}", f"type {_RELOCATABLE}")
    if machine_number not in Machine.__members__.values():
        raise _bad("the machine is not known", f"{machine_number}", "62 (x86-64) or 183 (AArch64)")
    if header_size != _HEADER.size or ((count or table_offset) and entry_size != _SECTION.size):
        raise _bad("headers have another size", f"{header_size} and {entry_size} bytes")
    if not table_offset:
        raise _bad("there are no sections", "section table at 0")
    first = _Raw(*_SECTION.unpack(_slice(data, table_offset, _SECTION.size, "section 0")))
    # Large counts do not fit the header's 16 bits, and then stand in the null section.
    count = count or first.size
    names_index = first.link if names_index == _INDEX_ESCAPE else names_index
    if not 0 < count <= MAX_SECTIONS:
        raise _bad("the number of sections is not credible", f"{count}")
    table = _slice(data, table_offset, count * _SECTION.size, "the section table")
    return Machine(machine_number), [_Raw(*row) for row in _SECTION.iter_unpack(table)], names_index


def _contents(data: bytes, raw: _Raw, what: str) -> bytes:
    return _slice(data, raw.offset, raw.size, what)


def _string_table(data: bytes, headers: list[_Raw], index: int) -> bytes:
    if not 0 < index < len(headers) or headers[index].type != SectionType.STRTAB:
        raise _bad("a string table is missing", f"section {index}")
    table = _contents(data, headers[index], f"string table {index}")
    if not table or table[-1]:
        raise _bad("a string table does not end in a zero", f"section {index}")
    return table


def _text(table: bytes, offset: int) -> str:
    if offset >= len(table):
        raise _bad("a name lies outside its table", f"offset {offset}", f"below {len(table)}")
    raw = table[offset : table.index(b"\0", offset)]
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad("a name is not UTF-8", repr(raw)) from error


def _section(data: bytes, raw: _Raw, name: str) -> Section:
    alignment = raw.alignment or 1
    if alignment & (alignment - 1) or alignment > 1 << 21:
        raise _bad("an alignment is not usable", f"{alignment} of section {name}")
    if raw.type == SectionType.NULL:
        return Section(name, raw.type, 0, 1, 0, b"")
    if raw.type == SectionType.NOBITS:
        if raw.size > MAX_BSS_BYTES:
            raise _bad("an empty section is too large", f"{raw.size} bytes of section {name}")
        return Section(name, raw.type, raw.flags, alignment, raw.size, b"")
    contents = _contents(data, raw, f"section {name}")
    return Section(name, raw.type, raw.flags, alignment, raw.size, contents)


def _rows(data: bytes, raw: _Raw, row: struct.Struct, limit: int, what: str) -> bytes:
    """Return a table's bytes after checks of its row size and length."""
    if raw.entry_size != row.size or raw.size % row.size:
        raise _bad(f"{what} has rows of another size", f"{raw.size} bytes by {raw.entry_size}")
    if raw.size // row.size > limit:
        raise _bad(f"{what} has too many rows", f"{raw.size // row.size}", f"at most {limit}")
    return _contents(data, raw, what)


def _symbols(data: bytes, headers: list[_Raw], index: int) -> tuple[Symbol, ...]:
    raw = headers[index]
    names = _string_table(data, headers, raw.link)
    table = _rows(data, raw, _SYMBOL, MAX_SYMBOLS, "the symbol table")
    symbols = []
    for name, info, _, section_index, value, size in _SYMBOL.iter_unpack(table):
        symbol = Symbol(_text(names, name), section_index, value, size, info >> 4, info & 15)
        if section_index >= _RESERVED_FIRST:
            if section_index not in (ABSOLUTE, COMMON):
                raise _bad("a symbol has a reserved section", f"{symbol.name}: {section_index:#x}")
        elif section_index >= len(headers):
            raise _bad("a symbol has no section", f"{symbol.name}: section {section_index}")
        elif section_index and value + size > headers[section_index].size:
            raise _bad(
                "a symbol reaches outside its section",
                f"{symbol.name}: bytes {value} to {value + size}",
                f"at most {headers[section_index].size}",
            )
        symbols.append(symbol)
    return tuple(symbols)


def _is_target_loaded(headers: list[_Raw], raw: _Raw) -> bool:
    return raw.info < len(headers) and bool(headers[raw.info].flags & SectionFlag.ALLOC)


def _relocations(
    data: bytes, headers: list[_Raw], raw: _Raw, symbol_count: int
) -> list[Relocation]:
    target = raw.info
    if not 0 < target < len(headers):
        raise _bad("relocations of a section that is not there", f"section {target}")
    limit = headers[target].size
    found = []
    for offset, info, addend in _RELA.iter_unpack(
        _rows(data, raw, _RELA, MAX_RELOCATIONS, "a relocation table")
    ):
        symbol_index = info >> 32
        if offset >= limit:
            raise _bad("a relocation lies outside its section", f"{offset}", f"below {limit}")
        if symbol_index >= symbol_count:
            raise _bad("a relocation has no symbol", f"{symbol_index}", f"below {symbol_count}")
        found.append(Relocation(target, offset, info & 0xFFFFFFFF, symbol_index, addend))
    return found
