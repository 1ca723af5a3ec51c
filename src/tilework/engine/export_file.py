"""The container of an exported program: a description in JSON, data, checksums, a signature.

    data = Sections()
    place = data.add(b"...")
    write_file(path, {"place": place}, data, key)
    file = open_file(path, key)

`docs/export-format.md` describes the layout.  Nothing here knows what the description means.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any, Final

from tilework.base import faults
from tilework.base.errors import ModelFileError, UnsupportedError, UserError
from tilework.base.integers import round_up
from tilework.base.records import dataclass

MAGIC: Final = b"TWEXPORT"
VERSION: Final = 3
ALIGNMENT: Final = 64
PAGE: Final = 4096
#: magic, version, bytes of the description, of the data and of the signature, both checksums.
HEADER: Final = struct.Struct("<8sIIQQ32s32s")
SIGNATURE_BYTES: Final = 32
#: A shorter key can be guessed.
LEAST_KEY_BYTES: Final = 16
_MAX_DESCRIPTION: Final = 1 << 30


class Sections:
    """The data section: blobs with their places."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, blob: bytes | memoryview, alignment: int = ALIGNMENT) -> list[int]:
        """Append a blob and return [offset, size]."""
        gap = -self.size % alignment
        self.parts.append(bytes(gap))
        place = [self.size + gap, len(blob)]
        self.parts.append(bytes(blob))
        self.size = place[0] + place[1]
        return place


@dataclass(slots=True)
class ExportFile:
    """A mapped file whose checksums are right."""

    description: dict[str, Any]
    view: memoryview  # of the data
    mapping: mmap.mmap

    def blob(self, place: object) -> memoryview:
        """Return the bytes at [offset, size].  Raises: ModelFileError."""
        offset, size = numbers(place, 2, "a place")
        if offset + size > len(self.view):
            raise malformed("a place reaches outside of the data", place)
        return self.view[offset : offset + size]


def write_file(
    path: Path, description: dict[str, Any], data: Sections, key: bytes | None = None
) -> None:
    """Write a file, whole or not at all.

    Args:
        path: one that exists is replaced.
        description: plain data.
        data: what the places in the description stand for.
        key: signs the file.

    Raises: UserError for a key that is too short.
    """
    check_key(key)
    text = json.dumps(description, separators=(",", ":")).encode()
    hasher = hashlib.blake2b(digest_size=32)
    for part in data.parts:
        hasher.update(part)
    checksum = hashlib.blake2b(text, digest_size=32).digest()
    signature_size = 0 if key is None else SIGNATURE_BYTES
    header = HEADER.pack(
        MAGIC, VERSION, len(text), data.size, signature_size, checksum, hasher.digest()
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(header)
            file.write(text)
            file.write(bytes(-(len(header) + len(text)) % PAGE))
            for part in data.parts:
                file.write(part)
            if key is not None:
                file.write(_signature(key, header))
            faults.hit("export.write")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def open_file(path: Path, key: bytes | None = None) -> ExportFile:
    """Map a file and check all that can be checked without knowing what it means.

    Args:
        path: what `write_file` wrote.
        key: refuse a file that is not signed with it.

    Raises: ModelFileError when it is damaged, or not signed with `key`; UnsupportedError for
    another format.
    """
    check_key(key)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < HEADER.size:
            raise malformed("it is too short", f"{size} bytes")
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = memoryview(mapping)
    magic, version, length, data_size, signature_size, checksum, data_checksum = HEADER.unpack_from(
        whole
    )
    if magic != MAGIC:
        raise malformed("it does not begin like one", magic)
    if version != VERSION:
        raise UnsupportedError(
            "export: the file has a format that this version cannot read",
            got=f"format {version}",
            expected=f"format {VERSION}",
            try_="export it again with this version",
        )
    start = round_up(HEADER.size + length, PAGE)
    end = start + data_size
    if length > _MAX_DESCRIPTION or signature_size not in (0, SIGNATURE_BYTES):
        raise malformed("its sizes are not possible")
    if end + signature_size != size:
        raise malformed("its size is not what it says", f"{size} bytes")
    _check_signature(key, bytes(whole[: HEADER.size]), bytes(whole[end:]))
    text = whole[HEADER.size : HEADER.size + length]
    if any(whole[HEADER.size + length : start]):
        raise malformed("there is something between its sections")
    view = whole[start:end]
    if hashlib.blake2b(text, digest_size=32).digest() != checksum:
        raise malformed("the checksum of its description is wrong")
    if hashlib.blake2b(view, digest_size=32).digest() != data_checksum:
        raise malformed("the checksum of its data is wrong")
    try:
        description = json.loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise malformed("its description is not JSON, or too deep", error) from error
    if not isinstance(description, dict):
        raise malformed("its description is no object")
    return ExportFile(description, view, mapping)


def check_key(key: bytes | None) -> None:
    """Refuse what is no key.  Raises: UserError."""
    if key is not None and (not isinstance(key, bytes) or len(key) < LEAST_KEY_BYTES):
        raise UserError(
            "export: a key for signatures is too short, or no bytes",
            got=f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__,
            expected=f"at least {LEAST_KEY_BYTES} random bytes",
            try_=f"secrets.token_bytes({SIGNATURE_BYTES}), kept where only you can read it",
        )


def _signature(key: bytes, header: bytes) -> bytes:
    """The header holds the checksums of all that follows it."""
    return hmac.digest(key, header, "sha256")


def _check_signature(key: bytes | None, header: bytes, found: bytes) -> None:
    if key is None:
        return
    if not found:
        raise ModelFileError(
            "export: the file is not signed",
            expected="a file signed with the key that was given",
            try_="export it with key=..., or load it without a key if you trust where it is from",
        )
    if not hmac.compare_digest(found, _signature(key, header)):
        raise ModelFileError(
            "export: the signature of the file is wrong",
            expected="a file signed with the key that was given, and not changed since",
        )


def numbers(value: object, count: int | None, what: str) -> list[int]:
    """Return `value` if it is a list of (so many) natural numbers.  Raises: ModelFileError."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise malformed(f"{what} is malformed", value)
    for item in value:
        if not isinstance(item, int) or isinstance(item, bool) or item < 0:
            raise malformed(f"{what} is malformed", value)
    return list(value)


def malformed(what: str, got: object = None) -> ModelFileError:
    """Return the error of a file that is damaged, or not ours."""
    return ModelFileError(
        f"export: the file is damaged or not an export: {what}",
        got=None if got is None else repr(got)[:100],
    )
