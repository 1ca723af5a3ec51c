"""A cache on disk that many processes may use at once, and that never makes a caller fail.

An entry is one file: a header (magic, version, length, digest of the key, checksum) and the data.
It is written to a temporary file of the same folder and moved into place, so a reader sees all of
it or none, whatever was killed meanwhile.  What does not pass its checksum is a miss, and goes.

The folder stays below its limit by dropping the entries that were used longest ago.  The sweep is
amortised: each process looks after it has written a sixteenth of the limit, so N busy processes
may stand above the limit by at most N sixteenths for a moment.

A folder that cannot be used (no home, read-only, full, of another user) makes the cache behave as
if it were empty, and gives one `Warned` event.
"""

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from time import time
from typing import NamedTuple

from tilework.base import trace
from tilework.base.forks import new_lock
from tilework.base.hashing import blake2b

MAGIC = b"TWCACHE\n"
VERSION = 1
_HEADER = struct.Struct("<8sIQ32s32s")
_SUFFIX = ".entry"
_TEMPORARY = ".tmp-"
_LOCK = ".sweep"
# A temporary file this old belongs to a process that was killed.
_ABANDONED_SECONDS = 600.0
# What remains after a sweep, so that the next one is not due at once.
_KEPT_SHARE = 0.9


class _Entry(NamedTuple):
    used_at: float
    size_bytes: int
    path: str


def _key_digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32).digest()


def _checksum(key_digest: bytes, data: bytes) -> bytes:
    hasher = blake2b(key_digest, digest_size=32)
    hasher.update(data)
    return hasher.digest()


def pack_entry(key: str, data: bytes) -> bytes:
    """Return the bytes of the file that holds `data` under `key`."""
    key_digest = _key_digest(key)
    header = _HEADER.pack(MAGIC, VERSION, len(data), key_digest, _checksum(key_digest, data))
    return header + data


def unpack_entry(key: str, raw: bytes) -> bytes | None:
    """Return the data of an entry's file, or None if a single bit of it is wrong."""
    if len(raw) < _HEADER.size:
        return None
    magic, version, length, stored_key, checksum = _HEADER.unpack_from(raw)
    data = raw[_HEADER.size :]
    key_digest = _key_digest(key)
    if magic != MAGIC or version != VERSION or length != len(data) or stored_key != key_digest:
        return None
    return data if checksum == _checksum(key_digest, data) else None


class DiskCache:
    """Bytes by key, in a folder.

    Safe to share between threads and processes.  `get` and `put` raise nothing for what the disk
    does.

    Args:
        folder: made on the first `put`, for this user alone (mode 0700); None caches nothing.
        size_limit_bytes: the most that the folder may hold.
        name: for events.
    """

    def __init__(self, folder: Path | None, size_limit_bytes: int, name: str = "disk") -> None:
        self.folder = folder
        self.size_limit_bytes = size_limit_bytes
        self.name = name
        self._lock = new_lock()
        self._is_usable = folder is not None and size_limit_bytes > 0
        self._is_prepared = False
        self._has_warned = False
        self._written_since_sweep: int | None = None

    def get(self, key: str) -> bytes | None:
        """Return what was put under `key`, or None; a damaged entry is None, and is removed."""
        data = self._read(key) if self._is_usable else None
        if trace.enabled():
            trace.emit(trace.CacheLookup(self.name, key, data is not None))
        return data

    def put(self, key: str, data: bytes) -> bool:
        """Keep `data` under `key`; returns whether it was stored."""
        size_bytes = _HEADER.size + len(data)
        if not self._is_usable or size_bytes > self.size_limit_bytes or not self._prepare():
            return False
        raw = pack_entry(key, data)
        try:
            try:
                self._write(self.path_of(key), raw)
            except FileNotFoundError:
                # Somebody removed the folder while we were at it; it is made once more.
                self._is_prepared = False
                if not self._prepare():
                    return False
                self._write(self.path_of(key), raw)
        except OSError as error:
            self._give_up(f"cannot write to {self.folder}: {error.strerror or error}")
            return False
        self._account(size_bytes)
        return True

    def remove(self, key: str) -> None:
        """Drop the entry of `key`, if there is one."""
        if self._is_usable:
            self._unlink(self.path_of(key))

    def clear(self) -> None:
        """Drop every entry."""
        for entry in self._scan():
            self._unlink(Path(entry.path))

    def is_new(self) -> bool:
        """Whether it can hold nothing yet: its folder has not been made."""
        return self.folder is None or not os.path.isdir(self.folder)  # False of what is no path

    def size_bytes(self) -> int:
        """Return the bytes of all files of the cache now."""
        return sum(entry.size_bytes for entry in self._scan())

    def path_of(self, key: str) -> Path:
        """Return the file that holds, or would hold, `key`."""
        name = _key_digest(key)[:20].hex()
        return Path(self.folder or "") / name[0] / (name[1:] + _SUFFIX)

    def sweep(self) -> None:
        """Bring the folder below its limit now, unless another process is doing so."""
        if not self._is_usable:
            return
        try:
            lock = os.open(f"{self.folder}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._warn(f"cannot sweep {self.folder}: {error.strerror or error}")
            return
        try:
            # The system drops the lock with its process, so a killed sweeper blocks nobody.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._evict()
        except BlockingIOError:
            return
        except OSError as error:
            self._warn(f"cannot sweep {self.folder}: {error.strerror or error}")
        finally:
            os.close(lock)

    # Reading.

    def _read(self, key: str) -> bytes | None:
        path = self.path_of(key)
        try:
            # Not waiting for who may write into a pipe of this name.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read {path}: {error.strerror or error}")
            return None
        try:
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                raw = file.read() if status.st_uid == os.getuid() else b""
        except OSError as error:
            self._warn(f"cannot read {path}: {error.strerror or error}")
            return None
        data = unpack_entry(key, raw)
        if data is None:
            self._unlink(path)
            return None
        # The time of the last use orders the eviction; on a read-only disk there is none.
        with suppress(OSError):
            os.utime(path)
        return data

    # Writing.

    def _prepare(self) -> bool:
        """Make the folder, and check once that it is this user's."""
        if self._is_prepared:
            return True
        folder = Path(self.folder or "")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            status = folder.stat()
            if status.st_uid != os.getuid():
                self._give_up(f"{folder} belongs to another user")
                return False
            if status.st_mode & 0o077:
                folder.chmod(0o700)
        except OSError as error:
            self._give_up(f"cannot use {folder}: {error.strerror or error}")
            return False
        self._is_prepared = True
        return True

    def _write(self, path: Path, raw: bytes) -> None:
        shelf = path.parent
        temporary = shelf / f"{_TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            try:
                descriptor = os.open(temporary, flags, 0o600)
            except FileNotFoundError:  # the first entry of its shelf
                shelf.mkdir(mode=0o700, exist_ok=True)
                descriptor = os.open(temporary, flags, 0o600)
            with open(descriptor, "wb") as file:
                file.write(raw)
            os.replace(temporary, path)
        except BaseException:
            self._unlink(temporary)
            raise

    def _unlink(self, path: Path) -> None:
        # Another process may have removed it, and what cannot be removed is never believed.
        with suppress(OSError):
            path.unlink()

    # Size.

    def _account(self, size_bytes: int) -> None:
        with self._lock:
            if self._written_since_sweep is None:
                # The first write of a process looks at what others left behind.
                is_due = True
            else:
                self._written_since_sweep += size_bytes
                is_due = self._written_since_sweep > self.size_limit_bytes // 16
            if is_due:
                self._written_since_sweep = 0
        if is_due:
            self.sweep()

    def _scan(self) -> list[_Entry]:
        """Return every entry and temporary file; what vanishes meanwhile is left out."""
        entries: list[_Entry] = []
        if self.folder is None:
            return entries
        try:
            shelves = [shelf.path for shelf in os.scandir(self.folder) if shelf.is_dir()]
        except OSError:  # no folder: nothing in it
            return entries
        for shelf in shelves:
            with suppress(FileNotFoundError), os.scandir(shelf) as files:
                for file in files:
                    with suppress(FileNotFoundError):
                        status = file.stat(follow_symlinks=False)
                        entries.append(_Entry(status.st_mtime, status.st_size, file.path))
        return entries

    def _evict(self) -> None:
        entries: list[_Entry] = []
        now, total = time(), 0
        for entry in self._scan():
            is_temporary = os.path.basename(entry.path).startswith(_TEMPORARY)
            if is_temporary and now - entry.used_at > _ABANDONED_SECONDS:
                self._unlink(Path(entry.path))
                continue
            total += entry.size_bytes
            if not is_temporary:  # else somebody is writing it
                entries.append(entry)
        if total <= self.size_limit_bytes:
            return
        for entry in sorted(entries):
            if total <= self.size_limit_bytes * _KEPT_SHARE:
                break
            self._unlink(Path(entry.path))
            total -= entry.size_bytes

    # What went wrong.

    def _give_up(self, message: str) -> None:
        self._is_usable = False
        self._warn(f"{message}; nothing is cached here from now on")

    def _warn(self, message: str) -> None:
        with self._lock:
            is_first = not self._has_warned
            self._has_warned = True
        if is_first:
            trace.warn(f"{self.name} cache", message)
