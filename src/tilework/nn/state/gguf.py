"""Files in the GGUF format: facts about a model, and its tensors, many in block formats.

Plain tensors are memory of the file, as in `safe_load`; those in block formats become float32.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final, NamedTuple

from tilework import dtypes
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.base.integers import product
from tilework.dtypes import DType
from tilework.engine.device import Device
from tilework.nn.state.gguf_blocks import FORMATS, decode
from tilework.nn.state.safetensors import Source, map_file
from tilework.tensor import host
from tilework.tensor.tensor import Tensor

_PLAIN: Final[dict[int, DType]] = {
    0: dtypes.float32, 1: dtypes.float16, 24: dtypes.int8, 25: dtypes.int16, 26: dtypes.int32,
    27: dtypes.int64, 28: dtypes.float64, 30: dtypes.bfloat16,
}  # fmt: skip
_NUMBERS: Final[dict[int, str]] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_TEXT: Final = 8
_ARRAY: Final = 9
_MOST_AXES: Final = 8
_MOST_NESTED: Final = 16


def gguf_load(fn: str | Path | Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and the tensors of a GGUF file (versions 2 and 3).

    Args:
        fn: the file, or a tensor of its bytes (uint8).

    Returns:
        The facts by key (numbers, texts and lists of them), and the tensors by name.  Their shapes
        are row-major: the file's sizes in reverse.

    Raises:
        ModelFileError: it is no GGUF file, or a damaged one.
        UnsupportedError: its version, its byte order or the format of a tensor is not known.
    """
    data = map_file(fn)
    reader = _Reader(data, str(fn))
    try:
        return reader.read()
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise ModelFileError(
            "gguf_load: the file is damaged", got=f"{fn}, at byte {reader.place}: {error}"
        ) from error


class _Row(NamedTuple):
    """What a file says about a tensor."""

    name: str
    shape: tuple[int, ...]
    kind: int
    place: int


class _Reader:
    """What has been read so far."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.data = data
        self.where = where
        self.place = 0
        self.source = Source(data, where)

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        if bytes(self.data[:4]) != b"GGUF":
            raise ModelFileError(
                "gguf_load: this is no GGUF file", got=f"{self.where}, {len(self.data)} bytes"
            )
        self.place = 4
        version = self.number("<I")
        if version not in (2, 3):
            is_swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
            raise UnsupportedError(
                "gguf_load: the file is big-endian" if is_swapped else "gguf_load: the version",
                got=f"{self.where}, version {version}",
                expected="a little-endian file of version 2 or 3",
            )
        tensor_count, fact_count = self.number("<Q"), self.number("<Q")
        facts = {}
        for _ in range(fact_count):
            key = self.text()
            facts[key] = self.value(self.number("<I"), 0)
        rows = [self.row() for _ in range(tensor_count)]
        alignment = facts.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0:
            raise ModelFileError("gguf_load: the alignment makes no sense", got=alignment)
        start = -(-self.place // alignment) * alignment
        return facts, {row.name: self.tensor(start, row) for row in rows}

    def number(self, form: str) -> Any:
        (found,) = struct.unpack_from(form, self.data, self.place)
        self.place += struct.calcsize(form)
        return found

    def text(self) -> str:
        size = self.number("<Q")
        if size > len(self.data) - self.place:
            raise IndexError(f"a text of {size} bytes is longer than the file")
        found = bytes(self.data[self.place : self.place + size]).decode()
        self.place += size
        return found

    def value(self, kind: int, depth: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY and depth < _MOST_NESTED:
            return self.values(self.number("<I"), self.number("<Q"), depth)
        if kind not in _NUMBERS:
            raise ModelFileError(
                "gguf_load: a fact has a kind that is not known",
                got=f"{kind} at byte {self.place} of {self.where}",
            )
        return self.number(_NUMBERS[kind])

    def values(self, kind: int, count: int, depth: int) -> list[Any]:
        form = _NUMBERS.get(kind)
        if form is None:
            return [self.value(kind, depth + 1) for _ in range(count)]
        if count * struct.calcsize(form) > len(self.data) - self.place:
            raise IndexError(f"a list of {count} numbers is longer than the file")
        found = struct.unpack_from(f"<{count}{form[1:]}", self.data, self.place)
        self.place += count * struct.calcsize(form)
        return list(found)

    def row(self) -> _Row:
        name = self.text()
        axes = self.number("<I")
        if axes > _MOST_AXES:
            raise ModelFileError(f"gguf_load: {name!r} has too many axes", got=axes)
        sizes = [self.number("<Q") for _ in range(axes)]
        return _Row(name, tuple(reversed(sizes)), self.number("<I"), self.number("<Q"))

    def tensor(self, start: int, row: _Row) -> Tensor:
        plain = _PLAIN.get(row.kind)
        if plain is not None:
            begin, end = self.reach(start, row, 1, plain.itemsize)
            return self.source.tensor(begin, end - begin, plain, row.shape)
        form = FORMATS.get(row.kind)
        if form is None:
            known = [dtype.name for dtype in _PLAIN.values()]
            raise UnsupportedError(
                f"gguf_load: {row.name!r} has a format that is not known",
                got=f"GGML type {row.kind}",
                expected=", ".join([*known, *[each.name for each in FORMATS.values()]]),
            )
        begin, end = self.reach(start, row, form.elements, form.size)
        numbers = decode(self.data[begin:end], form)
        return Tensor._over(
            host.upload(numbers, row.shape, dtypes.float32, Device.canonicalize(None))
        )

    def reach(self, start: int, row: _Row, elements: int, size: int) -> tuple[int, int]:
        """Where the bytes of a tensor begin and end."""
        if (row.shape[-1] if row.shape else 1) % elements:
            raise ModelFileError(
                f"gguf_load: the rows of {row.name!r} are no whole blocks",
                got=f"shape {row.shape}, blocks of {elements}",
            )
        begin = start + row.place
        end = begin + product(row.shape) // elements * size
        if end > len(self.data):
            raise ModelFileError(
                f"gguf_load: {row.name!r} reaches past the end of the file",
                got=f"bytes {begin} to {end} of {len(self.data)}",
            )
        return begin, end
