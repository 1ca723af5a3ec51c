"""Object code in memory -> executable pages, with the standard library alone.

    code = load_object(data, ["kernel"])
    address = code.address_of("kernel")           # an int, for a launch record or ctypes
    code.close()

    code = load_objects([(data_a, ["a"]), (data_b, ["b"])])    # one mapping for a whole program
    code.address_of("b", 1)

The pages are written while they cannot be executed and executed when they cannot be written.  An
object may call the few functions of the C library in `LIBRARY_FUNCTIONS` (compilers emit calls
to `memcpy`, and to `fmaxf` for a choice between two floats, by themselves) and whatever `symbols`
names; a call goes through a stub inside the mapping, so the distance never matters.  Anything else
undefined is refused with its name.

The object's note (`target.isa`) is compared with the processor first: code for a newer machine
raises UnsupportedError instead of crashing.  Objects come from files that anybody could have
written, so every offset is checked; what the code itself does cannot be.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from struct import pack_into
from typing import Final

from tilework.base import faults
from tilework.base.elf import (
    ABSOLUTE,
    Machine,
    ObjectFile,
    SectionFlag,
    SectionType,
    read_object,
)
from tilework.base.errors import ModelFileError, StaleHandleError, UnsupportedError
from tilework.base.ledger import LEDGER, Kind, Ledger
from tilework.base.records import dataclass, field
from tilework.runtime import reclaim
from tilework.runtime.hostos import HostOs, host_os
from tilework.runtime.relocate import (
    DIRECT,
    STUB_ADDRESS_OFFSET,
    STUB_BYTES,
    STUBS,
    THROUGH_SLOT,
)
from tilework.target.features import AARCH64, X86_64, missing_features
from tilework.target.isa import NOTE_SECTION, decode_note

DEVICE: Final = "CPU"
LIBRARY_FUNCTIONS: Final = frozenset({
    "memcpy", "memmove", "memset", "memcmp", "bcmp", "fmaxf", "fminf", "fmax", "fmin",
})  # fmt: skip
MAX_CODE_BYTES: Final = 256 << 20  # far below the reach of a PC-relative displacement

_MACHINES: Final = {Machine.X86_64: X86_64, Machine.AARCH64: AARCH64}
_ALLOC: Final = int(SectionFlag.ALLOC)  # plain integers: flag arithmetic on an enum is slow
_WRITE: Final = int(SectionFlag.WRITE)
_EXECUTE: Final = int(SectionFlag.EXECINSTR)
_TLS: Final = int(SectionFlag.TLS)
_UNWIND: Final = (".eh_frame", ".ARM.ex")


class LoadedCode:
    """One mapping of relocated code; `close` gives the pages back.

    Nothing may run in the code, and no launch record may point into it, when it is closed.
    """

    def __init__(
        self,
        host: HostOs,
        ledger: Ledger,
        address: int,
        size_bytes: int,
        entries: Sequence[Mapping[str, int]],
    ) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self._entries = tuple(entries)
        self._undo = partial(_unload, host, ledger, address, size_bytes)
        self._release = weakref.finalize(self, reclaim.later, self._undo)
        self._release.atexit = False  # other threads may still run in it; it ends with the process

    def address_of(self, name: str, index: int = 0) -> int:
        """Return the address of entry `name` of the object number `index`.

        Raises: StaleHandleError after `close`.
        """
        if not self._release.alive:
            raise StaleHandleError("loader: this code was unloaded", got=name)
        return self._entries[index][name]

    def close(self) -> None:
        """Unmap the code; a second call does nothing."""
        if self._release.detach() is not None:
            self._undo()
        reclaim.run()

    def __enter__(self) -> LoadedCode:
        """Close at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """See `close`."""
        self.close()


def _unload(host: HostOs, ledger: Ledger, address: int, size_bytes: int) -> None:
    """Undo `load_objects`; bound to no object, so that a finalizer can hold it."""
    host.unmap_pages(address, size_bytes)
    ledger.give_back(DEVICE, Kind.PROGRAM)


def load_object(
    data: bytes,
    entries: Sequence[str],
    *,
    symbols: Mapping[str, int] | None = None,
    host: HostOs | None = None,
    ledger: Ledger = LEDGER,
) -> LoadedCode:
    """Load one object; see the module's docstring.

    Args:
        data: an ELF relocatable object for this machine.
        entries: the functions whose addresses are wanted.
        symbols: addresses of further functions that the object may call.
        host: the operating system; tests pass a fake one.
        ledger: where the mapping is counted.

    Raises: ModelFileError when the object is malformed or lacks an entry; UnsupportedError when
    it needs another processor or calls something unknown; MapError, OutOfMemoryError.
    """
    return load_objects([(data, entries)], symbols=symbols, host=host, ledger=ledger)


def load_objects(
    objects: Sequence[tuple[bytes, Sequence[str]]],
    *,
    symbols: Mapping[str, int] | None = None,
    host: HostOs | None = None,
    ledger: Ledger = LEDGER,
) -> LoadedCode:
    """Load many objects into one mapping; arguments and errors as in `load_object`."""
    reclaim.run()
    system = host or host_os()
    layout = _Layout(system, symbols or {})
    for data, _ in objects:
        layout.add(_read(data, system))
    code_bytes, total_bytes = layout.finish()
    faults.hit("loader.map")
    base = system.map_pages(total_bytes)
    try:
        faults.hit("loader.link")
        image = layout.link(base)
        ctypes.memmove(base, (ctypes.c_char * len(image)).from_buffer(image), len(image))
        system.make_executable(base, code_bytes)
        entries = [
            layout.entry_addresses(index, names, base) for index, (_, names) in enumerate(objects)
        ]
    except BaseException:
        system.unmap_pages(base, total_bytes)
        raise
    ledger.take(DEVICE, Kind.PROGRAM)
    return LoadedCode(system, ledger, base, total_bytes, entries)


def _read(data: bytes, host: HostOs) -> ObjectFile:
    """Parse an object and refuse it when this processor cannot run it."""
    parsed = read_object(data)
    isa = _MACHINES.get(parsed.machine)
    if isa is None or isa != host.isa():
        raise UnsupportedError(
            "loader: the object is for another processor",
            got=isa or f"ELF machine {parsed.machine}",
            expected=host.isa(),
        )
    for section in parsed.sections:
        if section.name == NOTE_SECTION:
            note = decode_note(section.data)
            lacking = missing_features(note.features, host.cpu_features())
            if note.isa != isa or lacking:
                raise UnsupportedError(
                    "loader: the code was made for a processor with more features",
                    got=f"needs {', '.join(lacking) or note.isa}",
                    expected=f"{isa} code for this machine",
                    try_="compile or export it again on, or for, this machine",
                )
            return parsed
    raise ModelFileError(
        "loader: the object does not say which processor features it needs",
        expected=f"a section {NOTE_SECTION}, as tilework's toolchains write it",
    )


@dataclass(slots=True)
class _Placed:
    """An object with the offset of each of its loaded sections."""

    parsed: ObjectFile
    offsets: dict[int, int] = field(default_factory=dict)
    writable: dict[int, int] = field(default_factory=dict)  # relative to the writable part


class _Layout:
    """Decides where everything goes, then links the image."""

    def __init__(self, host: HostOs, symbols: Mapping[str, int]) -> None:
        self._host = host
        self._isa = host.isa()
        self._symbols = symbols
        self._placed: list[_Placed] = []
        self._code_bytes = 0
        self._writable_bytes = 0
        self._writable_start = 0
        self._stubs: dict[str, int] = {}  # offset of each outside function's stub
        self._slots: dict[tuple[int, int], int] = {}  # offset of each symbol's address slot

    def add(self, parsed: ObjectFile) -> None:
        """Give each section of an object its place."""
        placed = _Placed(parsed)
        for index, section in enumerate(parsed.sections):
            if not section.flags & _ALLOC or section.name.startswith(_UNWIND):
                continue
            if section.name == NOTE_SECTION:
                continue
            self._check_section(section.name, section.flags, section.alignment)
            alignment = max(section.alignment, 1)
            if section.flags & _WRITE:
                start = -(-self._writable_bytes // alignment) * alignment
                placed.writable[index] = start
                self._writable_bytes = start + section.size
            else:
                start = -(-self._code_bytes // alignment) * alignment
                placed.offsets[index] = start
                self._code_bytes = start + section.size
            if self._code_bytes + self._writable_bytes > MAX_CODE_BYTES:
                raise ModelFileError("loader: the code is too large", expected=f"{MAX_CODE_BYTES}")
        self._placed.append(placed)

    def finish(self) -> tuple[int, int]:
        """Place stubs and slots; return the bytes of the code part and of the whole."""
        self._code_bytes = -(-self._code_bytes // STUB_BYTES) * STUB_BYTES
        through_slot = THROUGH_SLOT[self._isa]
        for number, placed in enumerate(self._placed):
            symbols = placed.parsed.symbols
            for relocation in placed.parsed.relocations:
                symbol = symbols[relocation.symbol_index]
                if not symbol.is_defined:
                    if symbol.name in self._stubs:
                        continue
                    self._stubs[symbol.name] = self._code_bytes
                    self._code_bytes += STUB_BYTES
                elif relocation.type in through_slot:
                    key = (number, relocation.symbol_index)
                    if key not in self._slots:
                        self._slots[key] = self._code_bytes
                        self._code_bytes += STUB_BYTES
        page = self._host.page_bytes
        self._writable_start = max(-(-self._code_bytes // page), 1) * page
        total = self._writable_start + -(-self._writable_bytes // page) * page
        for placed in self._placed:
            for index, start in placed.writable.items():
                placed.offsets[index] = self._writable_start + start
        return self._writable_start, total

    def link(self, base: int) -> bytearray:
        """Return the image with all relocations applied for a mapping at `base`."""
        end = self._writable_start + self._writable_bytes
        image = bytearray(end if self._writable_bytes else self._code_bytes)
        for name, offset in self._stubs.items():
            image[offset : offset + STUB_ADDRESS_OFFSET] = STUBS[self._isa]
            pack_into("<Q", image, offset + STUB_ADDRESS_OFFSET, self._outside_address(name))
        for number, placed in enumerate(self._placed):
            for index, offset in placed.offsets.items():
                section = placed.parsed.sections[index]
                if section.type != SectionType.NOBITS:
                    image[offset : offset + section.size] = section.data
            self._relocate(image, number, placed, base)
        for (number, symbol), offset in self._slots.items():
            address = self._address(self._placed[number], symbol, base)
            pack_into("<Q", image, offset, address)
        return image

    def entry_addresses(self, index: int, names: Sequence[str], base: int) -> dict[str, int]:
        """Return the addresses of the functions `names` of one object."""
        placed = self._placed[index]
        found = {
            symbol.name: number
            for number, symbol in enumerate(placed.parsed.symbols)
            if symbol.name in names and symbol.section_index in placed.offsets
        }
        if absent := sorted(set(names) - set(found)):
            raise ModelFileError("loader: the object has no such entry", got=", ".join(absent))
        return {name: self._address(placed, number, base) for name, number in found.items()}

    def _relocate(self, image: bytearray, number: int, placed: _Placed, base: int) -> None:
        direct, through_slot = DIRECT[self._isa], THROUGH_SLOT[self._isa]
        for relocation in placed.parsed.relocations:
            start = placed.offsets.get(relocation.section_index)
            if start is None:
                continue  # of a section that is not loaded, such as unwind tables
            kind = relocation.type
            patch = direct.get(kind)
            if patch is not None:
                target = self._address(placed, relocation.symbol_index, base)
            elif kind in through_slot:
                patch = through_slot[kind]
                target = base + self._slot_offset(number, placed, relocation.symbol_index)
            else:
                raise UnsupportedError(
                    f"loader: relocation kind {kind} of {self._isa} is not supported"
                )
            size = placed.parsed.sections[relocation.section_index].size
            width = 8 if kind in (1, 24, 257, 260) else 4
            if not 0 <= relocation.offset <= size - width:
                raise ModelFileError("loader: a relocation lies outside its section")
            offset = start + relocation.offset
            patch(image, offset, target + relocation.addend, base + offset)

    def _slot_offset(self, number: int, placed: _Placed, symbol: int) -> int:
        found = placed.parsed.symbols[symbol]
        if not found.is_defined:
            return self._stubs[found.name] + STUB_ADDRESS_OFFSET
        return self._slots[number, symbol]

    def _address(self, placed: _Placed, number: int, base: int) -> int:
        symbol = placed.parsed.symbols[number]
        if not symbol.is_defined:
            return base + self._stubs[symbol.name]
        if symbol.section_index == ABSOLUTE:
            return symbol.value
        start = placed.offsets.get(symbol.section_index)
        if start is None or symbol.value > placed.parsed.sections[symbol.section_index].size:
            raise ModelFileError(
                "loader: a symbol lies in no loaded section", got=symbol.name or number
            )
        return base + start + symbol.value

    def _outside_address(self, name: str) -> int:
        address = self._symbols.get(name, 0)
        if not address and name in LIBRARY_FUNCTIONS:
            address = self._host.symbol_address(name)
        if not address:
            raise UnsupportedError(
                "loader: the code calls a function that is not provided",
                got=name,
                expected=f"one of {sorted(LIBRARY_FUNCTIONS | set(self._symbols))}",
            )
        return address

    def _check_section(self, name: str, flags: int, alignment: int) -> None:
        if flags & _TLS or name.startswith((".init", ".fini", ".ctors")):
            raise UnsupportedError(
                "loader: thread-local data and constructors are not supported", got=name
            )
        if flags & _WRITE and flags & _EXECUTE:
            raise ModelFileError("loader: a section is writable and executable", got=name)
        if alignment & (alignment - 1) or alignment > self._host.page_bytes:
            raise ModelFileError(
                f"loader: the alignment of section {name} is not usable", got=alignment
            )
