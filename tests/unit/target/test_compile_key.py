"""The compiler's part of the keys of caches."""

import os
from pathlib import Path
from time import time_ns

import pytest

from tilework.target import compile_key
from tilework.target.compile_key import stamp_of

HOUR_NS = 3600 * 10**9


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Some sources of a compiler, an hour old."""
    for name in ("codegen/plan/tiles.py", "render/text.py", "engine/run.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("number = 1\n")
        age(path, 1)
    return tmp_path


def age(path: Path, hours: int) -> None:
    then = time_ns() // HOUR_NS * HOUR_NS - hours * HOUR_NS
    os.utime(path, ns=(then, then))


def test_EXE_25_the_same_sources_have_the_same_stamp(sources: Path) -> None:
    assert stamp_of(sources, time_ns()) == stamp_of(sources, time_ns())


def test_EXE_25_an_edit_of_the_same_length_gives_another_stamp(sources: Path) -> None:
    before = stamp_of(sources, time_ns())
    (sources / "render/text.py").write_text("number = 2\n")
    age(sources / "render/text.py", 2)
    assert stamp_of(sources, time_ns()) != before


def test_EXE_25_a_new_source_gives_another_stamp(sources: Path) -> None:
    before = stamp_of(sources, time_ns())
    (sources / "codegen/plan/blocks.py").write_text("")
    age(sources / "codegen/plan/blocks.py", 1)
    assert stamp_of(sources, time_ns()) != before


def test_EXE_25_another_version_of_the_package_has_another_stamp(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stamp_of(sources, time_ns())
    monkeypatch.setattr(compile_key, "__version__", "99.0.0")
    assert stamp_of(sources, time_ns()) != before


def test_EXE_25_a_process_that_may_run_older_sources_shares_nothing(sources: Path) -> None:
    loaded_at = time_ns()
    (sources / "render/text.py").write_text("number = 2\n")
    stale = stamp_of(sources, loaded_at)
    assert stale != stamp_of(sources, loaded_at)
    age(sources / "render/text.py", 1)
    assert stamp_of(sources, time_ns()) not in {stale, stamp_of(sources, loaded_at - 2 * HOUR_NS)}


def test_sources_from_the_future_are_cached_all_the_same(sources: Path) -> None:
    age(sources / "render/text.py", -24)
    assert stamp_of(sources, time_ns()) == stamp_of(sources, time_ns())
