"""What object code was made from, kept beside it on disk under the hash of the code.

    with settings.override(keep_builds=True):
        y.realize()
    record = find_record(kernel.data)          # source, symbols, the compiler's log, the key

The same code is the same file name, whoever made it; so a build that differs shows as another one.
"""

from __future__ import annotations

import json
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Final

from tilework.base import settings
from tilework.base.diskcache import DiskCache
from tilework.base.elf import SymbolType, is_object, read_object
from tilework.base.errors import ModelFileError
from tilework.base.hashing import blake2b
from tilework.base.records import asdict, dataclass

_SHARE_OF_CACHE: Final = 16
_SPEED: Final = 1  # text shrinks to a tenth at once


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """One build of one kernel.

    Args:
        name: the kernel's, which ends with the digest of its graph.
        key: the key under which the code was kept: settings, target, compiler and its flags.
        source: what the compiler was given.
        symbols: functions of the code by name: offset into their section, and size in bytes.
        log: what the compiler had to say.
    """

    name: str
    key: str
    source: str
    symbols: dict[str, tuple[int, int]]
    log: str

    def to_bytes(self) -> bytes:
        """The record as text, packed; equal records give equal bytes."""
        return zlib.compress(json.dumps(asdict(self), sort_keys=True).encode(), _SPEED)


def content_hash(data: bytes) -> str:
    """The name of object code: its hash."""
    return blake2b(data, digest_size=32).hexdigest()


def symbols_of(name: str, data: bytes) -> dict[str, tuple[int, int]]:
    """Functions of object code by name; code of another format has the kernel alone."""
    if not is_object(data):
        return {name: (0, len(data))}
    return {
        symbol.name: (symbol.value, symbol.size)
        for symbol in read_object(data).symbols
        if symbol.is_defined and symbol.type == SymbolType.FUNC
    }


def keep_record(name: str, key: str, source: str, data: bytes, log: str) -> None:
    """Keep what `data` was made from."""
    record = BuildRecord(name, key, source, symbols_of(name, data), log)
    _cache().put(content_hash(data), record.to_bytes())


def has_record(data: bytes) -> bool:
    """Whether it is known what `data` was made from."""
    return _cache().get(content_hash(data)) is not None


def find_record(data: bytes) -> BuildRecord | None:
    """Return what object code was made from, or None where nobody kept it.

    Raises: ModelFileError when the record is malformed.
    """
    raw = _cache().get(content_hash(data))
    if raw is None:
        return None
    try:
        plain = json.loads(zlib.decompress(raw))
        symbols = {name: (int(at), int(size)) for name, (at, size) in plain["symbols"].items()}
        return BuildRecord(
            str(plain["name"]), str(plain["key"]), str(plain["source"]), symbols, str(plain["log"])
        )
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError("build record: it is malformed", got=str(error)) from error


@lru_cache(maxsize=8)
def _in_folder(folder: Path | None, size_limit_bytes: int) -> DiskCache:
    return DiskCache(folder and folder / "builds", size_limit_bytes, "build")


def _cache() -> DiskCache:
    current = settings.current()
    return _in_folder(current.cache_dir, current.cache_size_bytes // _SHARE_OF_CACHE)
