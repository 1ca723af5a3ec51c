"""What a run reports: a found schedule is one thing; compiled, linked and allocated are others."""

from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor, Variable
from tilework.base import settings, trace
from tilework.base.errors import BoundsError, UserError
from tilework.engine import compile as engine_compile
from tilework.engine import execute, link
from tilework.engine.device import Device
from tilework.schedule import cache


def reports(tensor: Tensor) -> list[trace.Ran]:
    found: list[trace.Ran] = []

    def note(event: trace.Event) -> None:
        if isinstance(event, trace.Ran):
            found.append(event)

    with trace.subscribe(note):
        tensor.realize()
    return found


def work(size: int, factor: float) -> Tensor:
    x = Tensor(np.ones(size, np.float32)).realize()
    return (x * factor).cumsum(0).exp().sum()


def forget_code() -> None:
    engine_compile.clear_memory()
    link.CACHE.clear()
    Device["CPU"].caches.clear()


def test_SCH_13_the_first_run_finds_nothing(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path):
        (first,) = reports(work(31, 1.5))
        (second,) = reports(work(31, 1.5))
    assert not first.schedule_found
    assert first.compiled > 0
    assert first.linked
    assert second.schedule_found
    assert (second.compiled, second.linked) == (0, False)
    assert second.allocated == first.allocated > 0  # memory is never cached by a schedule


def test_SCH_13_a_found_schedule_with_no_code_compiles(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path):
        (first,) = reports(work(33, 2.5))
    forget_code()
    with settings.override(cache_dir=None):
        (again,) = reports(work(33, 2.5))
    assert again.schedule_found
    assert again.compiled == first.compiled
    assert again.linked


def test_SCH_13_a_found_schedule_with_code_on_disk_links_alone(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path):
        reports(work(35, 3.5))
        forget_code()
        (again,) = reports(work(35, 3.5))
    assert again.schedule_found
    assert (again.compiled, again.linked) == (0, True)


def test_SCH_13_the_schedule_alone_can_be_missing(tmp_path: Path) -> None:
    with settings.override(cache_dir=None):
        reports(work(37, 4.5))
        cache.clear()
        (again,) = reports(work(37, 4.5))
    assert not again.schedule_found
    assert again.compiled == 0  # the kernels are known by their structure


# ---- variables


def test_SCH_17_conflicting_values_for_one_variable_are_refused() -> None:
    n = Variable("n", 1, 8)
    x = Tensor(np.arange(8, dtype=np.float32)).realize()
    with pytest.raises((UserError, BoundsError)):
        (x[: n.bind(3)].sum() + x[: n.bind(5)].sum()).item()
    assert (x[: n.bind(3)].sum() + x[: n.bind(3)].max()).item() == 5.0


def test_SCH_17_values_that_nothing_uses_are_dropped() -> None:
    x = Tensor([1.0, 2.0]).realize()
    node = (x + 1)._version_to_realize().node
    buffer = x._storage.version.buffer
    assert buffer is not None
    (result,) = execute.run([node], lambda _: buffer, {"unused": 10**12})
    assert bytes(result.as_memoryview()) == np.array([2.0, 3.0], np.float32).tobytes()


def test_SCH_17_a_variable_of_launch_sizes_alone_is_kept() -> None:
    n = Variable("rows", 1, 50)
    x = Tensor(np.arange(150, dtype=np.float32).reshape(50, 3)).realize()
    for rows in (1, 7, 50):
        part = (x[: n.bind(rows)] * 2).contiguous().realize()
        assert part.shape[1] == 3
        assert part.sum().item() == float(np.arange(rows * 3).sum() * 2)
    with pytest.raises(BoundsError):
        n.bind(51)
