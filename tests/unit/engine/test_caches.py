"""Caches: keyed on all that changes what they hold, bounded, and shared by threads (GEN-04)."""

import gc
import mmap
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.threads import run_threads

from tilework import Tensor
from tilework.base import settings
from tilework.base.settings import Affects, Settings
from tilework.engine import compile as engine_compile
from tilework.engine import execute, link, splits
from tilework.engine.device import Device
from tilework.engine.stats import COUNTERS
from tilework.ir import node as ir_node
from tilework.schedule import cache as schedule_cache
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import create_schedule
from tilework.schedule.schedule import DEFAULT_LIMITS
from tilework.target.compile_key import compile_key
from tilework.tensor import signature

OTHER = {"fp_mode": "fast", "allreduce": "ring"}


def other(name: str) -> object:
    """Another value of a setting than the one in force."""
    return OTHER[name] if name in OTHER else not getattr(settings.current(), name)


def affecting(what: Affects) -> list[str]:
    return [row.name for row in fields(Settings) if row.metadata["affects"] & what]


def clear() -> None:
    schedule_cache.clear()
    link.CACHE.clear()
    engine_compile.clear_memory()
    splits.clear_memory()
    signature._parts.clear()
    execute._placed_before.clear()
    Device["NULL"].caches.clear()


@pytest.fixture
def cold() -> Iterator[None]:
    """Nothing is kept before the test, and nothing of it afterwards."""
    clear()
    with settings.override(cache_dir=None, verify="off"):
        yield
    clear()


def graph(number: int) -> Tensor:
    """A graph that no other number has."""
    return Tensor.ones(8, device="NULL") * (number + 1.5) + 2.0


@pytest.mark.parametrize("name", affecting(Affects.SCHEDULE))
def test_GEN_04_a_schedule_is_not_found_under_another_setting(name: str, cold: None) -> None:
    function = transform_to_call([(Tensor.ones(4) + 1)._storage.version.node]).function
    create_schedule(function)
    assert schedule_cache.lookup(function, DEFAULT_LIMITS) is not None
    with settings.override(**{name: other(name)}):
        assert schedule_cache.lookup(function, DEFAULT_LIMITS) is None


@pytest.mark.parametrize("name", [*affecting(Affects.CODE), "prove_accesses", "check_accesses"])
def test_GEN_04_a_kernel_is_not_found_under_another_setting(name: str, cold: None) -> None:
    x = Tensor(np.arange(7, dtype=np.float32)).realize()
    (x + 1).realize()
    before = COUNTERS.compiles
    link.CACHE.clear()
    (x + 1).realize()
    assert COUNTERS.compiles == before
    link.CACHE.clear()
    with settings.override(**{name: other(name)}):
        (x + 1).realize()
    assert COUNTERS.compiles == before + 1


def test_GEN_04_a_schedule_is_not_found_under_other_limits(cold: None) -> None:
    function = transform_to_call([(Tensor.ones(4) + 1)._storage.version.node]).function
    create_schedule(function)
    changed: dict[str, Any] = {fields(DEFAULT_LIMITS)[0].name: 3}
    limits = replace(DEFAULT_LIMITS, **changed)
    assert schedule_cache.lookup(function, limits) is None


@pytest.mark.parametrize(
    ("field", "value"), [("isa", "none"), ("features", frozenset()), ("vector_bits", 8)]
)
def test_GEN_04_another_target_is_another_key(field: str, value: Any) -> None:
    spec = Device["CPU"].spec
    other = replace(spec, **{field: value})
    assert compile_key(Settings(), spec).text() != compile_key(Settings(), other).text()


def sizes() -> dict[str, int]:
    """How much each cache of the path from a graph to a launch holds."""
    device = Device["NULL"]
    return {
        "schedules": len(schedule_cache._kept),
        "placed": len(execute._placed_before),
        "linked": len(link.CACHE._rows),
        "compiled": len(engine_compile._memory._rows),
        "loaded": len(device.caches.get("kernels", ())),
        "parts": len(signature._parts),
        "splits": len(splits._kept),
        "orders": len(ir_node._orders),
    }


def test_GEN_04_no_cache_outgrows_its_bound(cold: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_cache, "CAPACITY", 12)
    monkeypatch.setattr(execute, "_MOST_PLACED", 11)
    monkeypatch.setattr(link, "MAX_LINKED", 2)
    monkeypatch.setattr(engine_compile, "MAX_IN_MEMORY", 13)
    monkeypatch.setattr(signature, "_MOST_PARTS", 10)
    bounds = {
        "schedules": 12, "placed": 11, "linked": 2, "compiled": 13, "loaded": 16, "parts": 10,
        "splits": splits._MOST_KEPT, "orders": ir_node._MOST_ORDERS,
    }  # fmt: skip
    for number in range(40):
        graph(number).realize()
        found = sizes()
        assert [name for name, bound in bounds.items() if found[name] > bound] == []
    assert found["compiled"] == 13


def test_GEN_04_what_a_cache_lets_go_leaves_no_nodes(
    cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_cache, "CAPACITY", 8)
    monkeypatch.setattr(execute, "_MOST_PLACED", 8)
    monkeypatch.setattr(link, "MAX_LINKED", 8)
    monkeypatch.setattr(engine_compile, "MAX_IN_MEMORY", 8)
    found: list[int] = []
    for number in range(80):
        graph(number).realize()
        if number in {19, 79}:
            gc.collect()
            ir_node.sweep(force=True)
            found.append(ir_node.table_size())
    assert found[1] <= found[0] + 200


def resident_bytes() -> int:
    """What the process has in memory, by the operating system."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.slow
def test_GEN_04_memory_is_flat_over_a_hundred_thousand_graphs(cold: None) -> None:
    held: list[int] = []
    for number in range(100_000):
        graph(number).realize()
        if number % 20_000 == 19_999:
            gc.collect()
            ir_node.sweep(force=True)
            held.append(resident_bytes())
    assert held[-1] <= 1.1 * held[0]


def run_uncached(count: int, work: Callable[[int], None]) -> None:
    """`run_threads` without a cache on disk; settings are those of a thread."""

    def uncached(number: int) -> None:
        with settings.override(cache_dir=None, verify="off"):
            work(number)

    run_threads(count, uncached)


def test_GEN_04_16_threads_compile_each_kernel_once(cold: None) -> None:
    x = Tensor(np.arange(6, dtype=np.float32)).realize()
    before = COUNTERS.compiles

    def work(number: int) -> None:
        for step in range(6):
            factor = (number + step) % 6 + 0.25
            assert (x * factor).tolist() == [float(np.float32(at * factor)) for at in range(6)]

    run_uncached(16, work)
    assert COUNTERS.compiles == before + 6


def test_GEN_04_16_threads_share_caches_that_are_too_small(
    cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_cache, "CAPACITY", 2)
    monkeypatch.setattr(execute, "_MOST_PLACED", 2)
    monkeypatch.setattr(link, "MAX_LINKED", 1)
    monkeypatch.setattr(engine_compile, "MAX_IN_MEMORY", 2)
    monkeypatch.setattr(signature, "_MOST_PARTS", 2)
    x = Tensor(np.arange(6, dtype=np.float32), device="PYTHON").realize()

    def work(number: int) -> None:
        for step in range(4):
            factor = (number + step) % 5 + 0.5
            assert (x[1:] * factor).tolist() == [at * factor for at in range(1, 6)]

    run_uncached(16, work)


def test_GEN_04_the_disk_cache_is_keyed_on_the_compiler(tmp_path: Path) -> None:
    key = compile_key(Settings(cache_dir=tmp_path), Device["CPU"].spec)
    assert key.text() != replace(key, compiler="of another version").text()
