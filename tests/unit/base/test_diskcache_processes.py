"""The disk cache under what processes and disks do to it."""

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tilework.base import trace
from tilework.base.diskcache import DiskCache

# Keys name their data, so that every process can tell right bytes from wrong ones.
SHARED = """
import os, random, sys
from pathlib import Path
from tilework.base.diskcache import DiskCache
def data_of(number): return bytes([number % 251]) * (1000 + 97 * (number % 300))
"""

WRITER = SHARED + (
    """
cache = DiskCache(Path(sys.argv[1]), int(sys.argv[2]))
number = 0
while True:
    cache.put(str(number % 300), data_of(number % 300))
    if number == 0: print("ready", flush=True)
    number += 1
"""
)

MIXED = SHARED + (
    """
cache = DiskCache(Path(sys.argv[1]), int(sys.argv[2]))
draw = random.Random(int(sys.argv[3]))
hits = 0
for _ in range(400):
    number = draw.randrange(60)
    found = cache.get(str(number))
    if found is None:
        if not cache.put(str(number), data_of(number)): sys.exit("put failed")
    elif found != data_of(number): sys.exit(f"wrong bytes under {number}")
    else: hits += 1
print(hits)
"""
)


def data_of(number: int) -> bytes:
    return bytes([number % 251]) * (1000 + 97 * (number % 300))


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_EXE_25_killed_writers_leave_whole_entries_or_none(tmp_path: Path) -> None:
    delays = random.Random(7)
    for _ in range(6):
        writer = start(WRITER, tmp_path / "cache", 64 << 20)
        with writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delays.uniform(0.0, 0.05))
            writer.send_signal(signal.SIGKILL)
    cache = DiskCache(tmp_path / "cache", 64 << 20)
    found = {number: cache.get(str(number)) for number in range(300)}
    kept = {number: data for number, data in found.items() if data is not None}
    assert kept
    assert all(data == data_of(number) for number, data in kept.items())


def test_EXE_25_eight_processes_share_a_cache_that_is_too_small_for_them(tmp_path: Path) -> None:
    limit = 200_000
    workers = [start(MIXED, tmp_path / "cache", limit, seed) for seed in range(8)]
    outputs = [worker.communicate(timeout=600) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 8, outputs
    cache = DiskCache(tmp_path / "cache", limit)
    cache.sweep()
    assert 0 < cache.size_bytes() <= limit


def test_a_full_disk_is_no_cache_and_one_warning(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 64 << 20)
    cache.put("small", b"data")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A file size limit fails in the middle of a write, as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        stored = [cache.put(str(number), bytes(100_000)) for number in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert stored == [False] * 3
    assert [event.source for event in trace.recent_warnings()] == ["disk cache"]
    leftovers = list((tmp_path / "cache").rglob(".tmp*"))
    assert leftovers == []
    assert DiskCache(tmp_path / "cache", 64 << 20).get("small") == b"data"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_file_system_is_no_cache_and_one_warning(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        cache = DiskCache(tmp_path / "cache", 64 << 20)
        stored = [cache.put(str(number), bytes(20_000)) for number in range(6)]
        right = [cache.get(str(n)) in (None, bytes(20_000)) for n in range(6)]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert (stored[0], stored[-1], all(right)) == (True, False, True)
    assert len(trace.recent_warnings()) == 1


READ_ONLY = SHARED + (
    """
from tilework.base import trace
if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)
cache = DiskCache(Path(sys.argv[1]), 1 << 20)
print([cache.put("a", b"1"), cache.put("b", b"2"), cache.get("a")], len(trace.recent_warnings()))
"""
)


def test_a_read_only_home_is_no_cache_and_one_warning() -> None:
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o555)
        with start(READ_ONLY, Path(home) / ".cache" / "tilework") as reader:
            output, errors = reader.communicate(timeout=600)
        Path(home).chmod(0o700)
    assert (output, errors) == ("[False, False, None] 1\n", "")
