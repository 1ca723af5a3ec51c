"""What base shares between threads, under sixteen of them."""

from collections.abc import Callable
from pathlib import Path

from tests.threads import run_threads

from tilework.base import settings, trace
from tilework.base.diskcache import DiskCache
from tilework.base.generation import Generation
from tilework.base.ledger import Kind, Ledger

THREADS = 16


def in_threads(work: Callable[[int], None]) -> None:
    """Run `work(number)` in sixteen threads that start together; the first error is raised."""
    run_threads(THREADS, work)


def test_GEN_10_a_disk_cache_gives_right_bytes_to_each_thread(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 40_000)
    wrong: list[str] = []

    def work(number: int) -> None:
        for step in range(60):
            key = str((number + step) % 20)
            found = cache.get(key)
            if found is None:
                cache.put(key, key.encode() * 2000)
            elif found != key.encode() * 2000:
                wrong.append(key)

    in_threads(work)
    cache.sweep()
    assert (wrong, cache.size_bytes() <= 40_000) == ([], True)


def test_GEN_10_a_ledger_loses_no_entry() -> None:
    ledger = Ledger()

    def work(number: int) -> None:
        for _ in range(500):
            ledger.take("CPU", Kind.FD, 2)
            ledger.give_back("CPU", Kind.FD)

    in_threads(work)
    assert ledger.snapshot() == {("CPU", Kind.FD): THREADS * 500}


def test_GEN_10_subscribers_come_and_go_without_disturbing_others() -> None:
    heard: list[trace.Event] = []

    def work(number: int) -> None:
        for _ in range(200):
            with trace.subscribe(lambda event: None):
                pass

    with trace.subscribe(heard.append):
        in_threads(work)
        trace.emit(trace.Warned("a", "b"))
    assert (heard, trace.enabled()) == ([trace.Warned("a", "b")], False)


def test_GEN_10_settings_of_one_thread_stay_there() -> None:
    seen: dict[int, set[int]] = {}

    def work(number: int) -> None:
        with settings.override(captures=number + 1):
            seen[number] = {settings.current().captures for _ in range(200)}

    in_threads(work)
    assert seen == {number: {number + 1} for number in range(THREADS)}


def test_GEN_10_generations_advance_once_a_call() -> None:
    life = Generation("CPU")
    in_threads(lambda number: [life.advance() for _ in range(100)].clear())
    assert life.number == THREADS * 100
