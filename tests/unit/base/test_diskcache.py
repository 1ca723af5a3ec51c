import fcntl
import os
import time
from pathlib import Path

import pytest

from tilework.base import trace
from tilework.base.diskcache import DiskCache, pack_entry, unpack_entry

MIB = 1 << 20


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", MIB)


def warnings() -> list[str]:
    return [event.message for event in trace.recent_warnings()]


def age(cache: DiskCache, key: str, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(cache.path_of(key), (moment, moment))


def test_what_was_put_is_found(cache: DiskCache) -> None:
    assert cache.put("key", b"data")
    assert cache.get("key") == b"data"


def test_another_cache_on_the_folder_finds_it_too(cache: DiskCache) -> None:
    cache.put("key", b"data")
    assert DiskCache(cache.folder, MIB).get("key") == b"data"


def test_an_unknown_key_is_a_miss(cache: DiskCache) -> None:
    assert cache.get("key") is None


def test_a_second_put_replaces(cache: DiskCache) -> None:
    cache.put("key", b"old")
    cache.put("key", b"new")
    assert cache.get("key") == b"new"


@pytest.mark.parametrize("data", [b"", b"\0" * 100_000])
def test_any_bytes_can_be_kept(cache: DiskCache, data: bytes) -> None:
    cache.put("key", data)
    assert cache.get("key") == data


def test_any_text_can_be_a_key(cache: DiskCache) -> None:
    cache.put("../\0/\udc80", b"data")
    assert cache.get("../\0/\udc80") == b"data"


def test_removed_entries_are_misses(cache: DiskCache) -> None:
    cache.put("a", b"1")
    cache.put("b", b"2")
    cache.remove("a")
    assert (cache.get("a"), cache.get("b")) == (None, b"2")
    cache.clear()
    assert (cache.get("b"), cache.size_bytes()) == (None, 0)


def test_EXE_25_a_flip_of_any_bit_is_a_miss() -> None:
    raw = pack_entry("key", b"some data")
    for position in range(8 * len(raw)):
        broken = bytearray(raw)
        broken[position // 8] ^= 1 << (position % 8)
        assert unpack_entry("key", bytes(broken)) is None


def test_EXE_25_a_cut_or_grown_entry_is_a_miss() -> None:
    raw = pack_entry("key", b"some data")
    cuts = [unpack_entry("key", raw[:length]) for length in range(len(raw))]
    assert set(cuts) == {None}
    assert unpack_entry("key", raw + b"\0") is None


def test_EXE_25_an_entry_under_another_key_is_a_miss() -> None:
    assert unpack_entry("other", pack_entry("key", b"data")) is None


def test_a_damaged_entry_is_removed(cache: DiskCache) -> None:
    cache.put("key", b"data")
    path = cache.path_of("key")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert cache.get("key") is None
    assert not path.exists()


def test_a_link_in_place_of_an_entry_is_not_followed(cache: DiskCache, tmp_path: Path) -> None:
    cache.put("key", b"data")
    path = cache.path_of("key")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.get("key") is None


def test_folder_and_files_are_for_this_user_alone(cache: DiskCache) -> None:
    cache.put("key", b"data")
    path = cache.path_of("key")
    modes = [item.stat().st_mode & 0o777 for item in (path.parent.parent, path.parent, path)]
    assert modes == [0o700, 0o700, 0o600]


def test_a_folder_open_to_others_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    DiskCache(tmp_path, MIB).put("key", b"data")
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user_is_refused(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("key", b"data")
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    mine = DiskCache(cache.folder, MIB)
    assert (mine.put("other", b"data"), mine.get("key")) == (False, None)
    assert "belongs to another user" in warnings()[0]


def test_the_entry_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 5000)
    for number in range(4):
        cache.put(str(number), bytes(1000))
        age(cache, str(number), 100 - number)
    cache.get("0")
    cache.put("4", bytes(1000))
    cache.sweep()
    assert [key for key in "01234" if cache.get(key) is not None] == ["0", "2", "3", "4"]


def test_the_size_stays_bounded(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 100_000)
    for number in range(300):
        cache.put(str(number), bytes(2000))
        assert cache.size_bytes() <= 100_000 * 17 // 16 + 2100
    assert cache.get("299") is not None


def test_what_is_larger_than_the_cache_is_not_stored(tmp_path: Path) -> None:
    assert not DiskCache(tmp_path / "cache", 1000).put("key", bytes(1000))


def test_a_limit_of_zero_turns_it_off(tmp_path: Path) -> None:
    assert not DiskCache(tmp_path / "cache", 0).put("key", b"")
    assert not (tmp_path / "cache").exists()


def test_files_of_killed_writers_are_swept(cache: DiskCache) -> None:
    cache.put("key", b"data")
    shelf = cache.path_of("key").parent
    for name, seconds in ((".tmp-1-dead", 3600), (".tmp-2-alive", 1)):
        (shelf / name).write_bytes(b"part")
        os.utime(shelf / name, (time.time() - seconds,) * 2)
    cache.sweep()
    assert {file.name for file in shelf.glob(".tmp*")} == {".tmp-2-alive"}


def test_a_file_that_is_being_written_is_never_evicted(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 5000)
    cache.put("old", bytes(1000))
    being_written = cache.path_of("old").parent / ".tmp-2-alive"
    being_written.write_bytes(bytes(5000))
    os.utime(being_written, (time.time() - 60,) * 2)
    cache.sweep()
    assert being_written.exists()
    assert cache.get("old") is None


def test_a_folder_that_vanishes_is_made_again(cache: DiskCache) -> None:
    cache.put("key", b"data")
    cache.path_of("key").unlink()
    cache.path_of("key").parent.rmdir()
    (cache.folder or Path()).joinpath(".sweep").unlink()
    (cache.folder or Path()).rmdir()
    assert cache.put("key", b"data")
    assert (cache.get("key"), warnings()) == (b"data", [])


def test_no_folder_is_no_cache(tmp_path: Path) -> None:
    cache = DiskCache(None, MIB)
    assert (cache.put("key", b"data"), cache.get("key"), warnings()) == (False, None, [])
    cache.sweep()
    cache.clear()


def test_GEN_02_an_injected_error_of_the_disk_is_a_warning(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, "replace", fail)
    assert not cache.put("key", b"data")
    assert "input/output error" in warnings()[0]


def test_a_sweep_that_cannot_lock_is_a_warning(cache: DiskCache) -> None:
    cache.sweep()
    assert "cannot sweep" in warnings()[0]


def test_one_sweep_at_a_time(cache: DiskCache) -> None:
    cache.put("key", b"data")
    with open(cache.folder / ".sweep" if cache.folder else "", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cache.size_limit_bytes = 1
        cache.sweep()
    assert cache.get("key") == b"data"
    cache.sweep()
    assert cache.get("key") is None


def test_a_folder_in_place_of_an_entry_is_a_miss(cache: DiskCache) -> None:
    cache.put("other", b"data")
    cache.path_of("key").mkdir(parents=True)
    assert cache.get("key") is None


def test_a_file_in_the_way_is_no_cache_and_one_warning(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    cache = DiskCache(tmp_path / "cache" / "deeper", MIB)
    assert [cache.put("key", b"data") for _ in range(3)] == [False] * 3
    assert cache.get("key") is None
    assert len(warnings()) == 1


def test_lookups_are_events(cache: DiskCache) -> None:
    events: list[trace.Event] = []
    with trace.subscribe(events.append):
        cache.get("key")
        cache.put("key", b"data")
        cache.get("key")
    assert events == [
        trace.CacheLookup("disk", "key", hit=False),
        trace.CacheLookup("disk", "key", hit=True),
    ]


def test_a_cache_is_new_until_something_is_put_into_it(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "new", 1 << 20)
    assert cache.is_new()
    assert cache.get("key") is None
    assert cache.is_new()
    cache.put("key", b"data")
    assert not cache.is_new()
    assert DiskCache(None, 1 << 20).is_new()


def test_a_pipe_in_the_place_of_an_entry_is_not_waited_for(cache: DiskCache) -> None:
    cache.put("key", b"data")
    cache.path_of("key").unlink()
    os.mkfifo(cache.path_of("key"))
    assert cache.get("key") is None
    assert cache.put("key", b"data")
    assert cache.get("key") == b"data"


def test_a_folder_whose_name_no_file_system_takes_caches_nothing(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / ("long" * 100), MIB)
    assert cache.is_new()
    assert cache.get("key") is None
    assert not cache.put("key", b"data")
