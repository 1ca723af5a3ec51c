"""Digests of nested plain data that are the same in every process and on every machine.

Used for keys of disk caches; `hash()` will not do, as it depends on the process's seed and takes
1, 1.0 and True, or 0.0 and -0.0, for one another.
"""

import struct
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

from tilework.base.errors import InternalError
from tilework.base.records import fields, is_dataclass

if TYPE_CHECKING:
    from hashlib import blake2b as blake2b
else:
    try:
        from _blake2 import blake2b  # the same function; `hashlib` loads OpenSSL beside it
    except ImportError:
        from hashlib import blake2b

DIGEST_BYTES = 20


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


def digest(*parts: object) -> str:
    """Return a hexadecimal digest of `parts`, which may be nested.

    Takes None, bool, int, float (by its bits, so NaNs and signed zeros differ), complex, str,
    bytes, tuple, list, dict (by sorted digest of the keys), set, frozenset, Enum, path, dataclass
    and any object with `digest_parts()`.  Types are part of the digest: 1, 1.0 and True differ.

    Raises:
        InternalError: something is not plain data.

    Example:
        >>> digest(1) == digest(True), digest((1, 2)) == digest([1, 2])
        (False, False)
    """
    hasher = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        _feed(hasher, part)
    return hasher.hexdigest()


def _sized(hasher: _Hash, tag: bytes, data: bytes) -> None:
    hasher.update(tag + len(data).to_bytes(8, "little"))
    hasher.update(data)


def _feed(hasher: _Hash, value: Any) -> None:
    """Feed one value: a tag, then a length where the length can differ, then the content."""
    scalar = _scalar(value)
    if scalar is not None:
        _sized(hasher, *scalar)
    elif isinstance(value, tuple | list):
        hasher.update(b"T" if isinstance(value, tuple) else b"L")
        hasher.update(len(value).to_bytes(8, "little"))
        for item in value:
            _feed(hasher, item)
    elif isinstance(value, Mapping):
        pairs = sorted((digest(name), name, item) for name, item in value.items())
        hasher.update(b"D" + len(pairs).to_bytes(8, "little"))
        for _, name, item in pairs:
            _feed(hasher, name)
            _feed(hasher, item)
    elif isinstance(value, set | frozenset):
        _sized(hasher, b"S", "".join(sorted(digest(item) for item in value)).encode())
    elif hasattr(value, "digest_parts"):
        _sized(hasher, b"O", type(value).__qualname__.encode())
        _feed(hasher, value.digest_parts())
    elif is_dataclass(value) and not isinstance(value, type):
        _sized(hasher, b"R", type(value).__qualname__.encode())
        for row in fields(value):
            _sized(hasher, b"f", row.name.encode())
            _feed(hasher, getattr(value, row.name))
    else:
        raise InternalError("digest: this is not plain data", got=f"{type(value).__name__}")


def _scalar(value: object) -> tuple[bytes, bytes] | None:
    """Return the tag and the bytes of a value without parts, or None."""
    if value is None:
        return b"N", b""
    if isinstance(value, Enum):
        return b"E", f"{type(value).__qualname__}.{value.name}".encode()
    if isinstance(value, bool):
        return b"B", b"\1" if value else b"\0"
    if isinstance(value, int):
        return b"I", str(value).encode() if -(10**9) < value < 10**9 else hex(value).encode()
    if isinstance(value, float):
        return b"F", struct.pack("<d", value)
    if isinstance(value, complex):
        return b"C", struct.pack("<dd", value.real, value.imag)
    if isinstance(value, str):
        return b"U", value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes | bytearray | memoryview):
        return b"Y", bytes(value)
    if isinstance(value, PurePath):
        return b"P", str(value).encode("utf-8", "surrogateescape")
    return None
