"""Tuning keeps what is right and faster, goes on where it stopped, and is used afterwards."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor
from tilework.base import settings
from tilework.base.errors import DeviceLostError, PlanError
from tilework.codegen.plan.database import Record, database, plan_digest, tuned_plan
from tilework.codegen.plan.kinds import AnyPlan
from tilework.codegen.plan.plan import Plan
from tilework.engine import link, tune
from tilework.engine.compile import clear_memory, compile_with_plan, kernel_key
from tilework.engine.device import Device
from tilework.engine.kernel_bench import KernelBench
from tilework.engine.steps import KernelCall
from tilework.schedule import cache

X = np.arange(96 * 64, dtype=np.float32).reshape(96, 64) % 7
Y = np.arange(64 * 80, dtype=np.float32).reshape(64, 80) % 5


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with settings.override(cache_dir=tmp_path):
        yield


def work() -> np.ndarray:
    """The product, linked anew."""
    cache.clear()
    link.CACHE.clear()
    return (Tensor(X) @ Tensor(Y)).numpy()


def product() -> KernelCall:
    (call,) = [call for call in tune.collect(work) if "contraction" in call.code.name]
    return call


class Scripted:
    """Measures by a table instead of by the clock: plans by their order of appearance."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.seconds_of = seconds
        self.order: list[str] = []

    def __call__(self, plan: AnyPlan) -> float:
        name = plan_digest(plan)
        if name not in self.order:
            self.order.append(name)
        return self.seconds_of(self.order.index(name))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], Scripted]:
    def script(seconds: Callable[[int], float]) -> Scripted:
        made = Scripted(seconds)
        monkeypatch.setattr(KernelBench, "seconds", lambda bench, plan, below=0.0: made(plan))
        monkeypatch.setattr(
            KernelBench, "compared", lambda bench, plan, other: (made(plan), made(other))
        )
        monkeypatch.setattr(KernelBench, "results", lambda bench: [])
        return made

    return script


def test_the_kernels_of_a_run_are_collected_once() -> None:
    calls = tune.collect(lambda: (work(), work()))
    assert len([call for call in calls if "contraction" in call.code.name]) == 1


def test_a_faster_plan_is_kept_and_used(
    measured: Callable[[Callable[[int], float]], Scripted],
) -> None:
    call = product()
    assert call.kernel is not None
    before = kernel_key(Device["CPU"], call.kernel)
    measured(lambda place: 1e-3 if place != 2 else 1e-4)
    (row,) = tune.Tuner(1e9).run({call: 1})
    assert (row.default_seconds, row.seconds, row.is_done) == (1e-3, 1e-4, True)
    assert tuned_plan(call.kernel, Device["CPU"].spec) is not None
    assert kernel_key(Device["CPU"], call.kernel) != before
    clear_memory()
    np.testing.assert_allclose(work(), X @ Y, rtol=1e-5)


def test_a_gain_within_the_noise_is_left(
    measured: Callable[[Callable[[int], float]], Scripted],
) -> None:
    call = product()
    measured(lambda place: 1e-3 if place != 2 else 0.99e-3)
    (row,) = tune.Tuner(1e9).run({call: 1})
    assert call.kernel is not None
    assert tuned_plan(call.kernel, Device["CPU"].spec) is None
    assert row.is_done


def test_a_run_that_was_stopped_goes_on_where_it_was(
    measured: Callable[[Callable[[int], float]], Scripted],
) -> None:
    call = product()
    measured(lambda place: 1e-3)
    ticks = iter(range(10**9))
    (first,) = tune.Tuner(40, now=lambda: float(next(ticks))).run({call: 1})
    assert first.tried > 1
    assert not first.is_done
    second = measured(lambda place: 1e-3)
    (row,) = tune.Tuner(1e9).run({call: 1})
    assert row.is_done
    # The default is measured again, what was tried is not.
    assert len(second.order) == row.tried - first.tried + 1


def test_a_finished_kernel_is_not_searched_again(
    measured: Callable[[Callable[[int], float]], Scripted],
) -> None:
    call = product()
    measured(lambda place: 1e-3)
    tune.Tuner(1e9).run({call: 1})
    again = measured(lambda place: 1e-3)
    tune.Tuner(1e9).run({call: 1})
    assert len(again.order) == 1


def test_a_kernel_that_does_not_run_is_named_and_the_others_are_tuned(
    measured: Callable[[Callable[[int], float]], Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = product(), tune.collect(lambda: (Tensor(X) @ Tensor(X).transpose()).numpy())
    measured(lambda place: 1e-3)
    seconds = KernelBench.seconds

    def failing(bench: KernelBench, plan: AnyPlan, below: float = 0.0) -> float:
        if bench._sink is first.kernel:
            raise PlanError("it does not run")
        return seconds(bench, plan, below)

    monkeypatch.setattr(KernelBench, "seconds", failing)
    tuner = tune.Tuner(1e9)
    rows = tuner.run({first: 1, **second})
    assert [name for name, _ in tuner.failed] == [first.code.name]
    assert rows
    assert all(row.is_done for row in rows)


def test_other_plans_are_measured_with_their_accesses_proven(
    measured: Callable[[Callable[[int], float]], Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = product()
    measured(lambda place: 1e-3)
    seconds = KernelBench.seconds
    proven: list[bool] = []

    def noting(bench: KernelBench, plan: AnyPlan, below: float = 0.0) -> float:
        proven.append(settings.current().prove_accesses)
        return seconds(bench, plan, below)

    monkeypatch.setattr(KernelBench, "seconds", noting)
    tune.Tuner(1e9).run({call: 1})
    assert proven[:2] == [False, False]  # the default's
    assert all(proven[2:])
    assert len(proven) > 3


def test_a_lost_device_ends_the_run_and_its_plan_is_not_tried_again(
    measured: Callable[[Callable[[int], float]], Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = product()
    measured(lambda place: 1e-3)
    seconds = KernelBench.seconds
    fatal: list[AnyPlan] = []

    def losing(bench: KernelBench, plan: AnyPlan, below: float = 0.0) -> float:
        if fatal or below == 1e-3 * tune.GAIN:
            fatal.append(plan)
            raise DeviceLostError("the device is lost")
        return seconds(bench, plan, below)

    with monkeypatch.context() as patch:
        patch.setattr(KernelBench, "seconds", losing)
        tuner = tune.Tuner(1e9)
        (row,) = tuner.run({call: 1})
    assert len(fatal) == 1
    assert not row.is_done
    assert [type(error) for _, error in tuner.failed] == [DeviceLostError]
    second = measured(lambda place: 1e-3)
    tune.Tuner(1e9).run({call: 1})
    assert plan_digest(fatal[0]) not in second.order


def test_real_measurements_end_in_time_and_give_right_results() -> None:
    (row,) = tune.Tuner(1.0).run({product(): 1})
    assert row.kind == "contraction"
    assert 0 < row.seconds <= row.default_seconds
    clear_memory()
    np.testing.assert_allclose(work(), X @ Y, rtol=1e-5)


def test_a_plan_of_another_version_is_not_used() -> None:
    call = product()
    assert call.kernel is not None
    spec = Device["CPU"].spec
    database().put(call.kernel, spec, Record(Plan((), ((9, 9),), 1), 1.0, 2.0))
    clear_memory()
    np.testing.assert_allclose(work(), X @ Y, rtol=1e-5)


def test_an_illegal_plan_that_is_given_is_refused() -> None:
    call = product()
    assert call.kernel is not None
    with pytest.raises(PlanError):
        compile_with_plan(Device["CPU"], call.kernel, Plan((), ((9, 9),), 1))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 1, 2, 2], [1, 2, 1, 2], 0.0),
        ([1, 2], [1, 2], None),
        ([1, 1, 1], [1, 2, 3], None),
    ],
)
def test_rank_correlations(x: list[float], y: list[float], expected: float | None) -> None:
    assert tune.correlation(x, y) == expected
