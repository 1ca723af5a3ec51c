"""temporary"""

from dataclasses import dataclass
import struct
from tilework.base.errors import ModelFileError


@dataclass(slots=True)
class Section:
    name: str
    kind: int
    flags: int
    data: memoryview
    size: int
    alignment: int


@dataclass(slots=True)
class Symbol:
    name: str
    section: int
    value: int
    kind: int
    binding: int


@dataclass(slots=True)
class Relocation:
    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(slots=True)
class ObjectFile:
    machine: int
    sections: list
    symbols: list
    relocations: list


def read_object(data):
    if data[:4] != b"\x7fELF":
        raise ModelFileError("object code: not an ELF file")
    view = memoryview(data)
    try:
        (shoff,) = struct.unpack_from("<Q", data, 40)
        (machine,) = struct.unpack_from("<H", data, 18)
        shnum, shstr = struct.unpack_from("<HH", data, 60)
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + 64 * i) for i in range(shnum)]

        def text(table, at):
            start = table[4] + at
            return bytes(data[start : data.index(b"\0", start)]).decode()

        sections = [
            Section(
                text(raw[shstr], r[0]),
                r[1],
                r[2],
                view[r[4] : r[4] + r[5]] if r[1] != 8 else view[:0],
                r[5],
                r[8],
            )
            for r in raw
        ]
        symbols, relocations = [], []
        for r in raw:
            if r[1] == 2:
                for o in range(r[4], r[4] + r[5], 24):
                    n, info, other, shndx, value, size = struct.unpack_from("<IBBHQQ", data, o)
                    symbols.append(Symbol(text(raw[r[6]], n), shndx, value, info & 15, info >> 4))
            if r[1] == 4:
                for o in range(r[4], r[4] + r[5], 24):
                    off, info, addend = struct.unpack_from("<QQq", data, o)
                    relocations.append(Relocation(r[7], off, info & 0xFFFFFFFF, info >> 32, addend))
    except (struct.error, IndexError, ValueError) as e:
        raise ModelFileError("object code: truncated", got=str(e)) from e
    return ObjectFile(machine, sections, symbols, relocations)
