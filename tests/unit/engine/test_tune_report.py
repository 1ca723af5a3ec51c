"""The report of the cost model counts what it should."""

import numpy as np
import pytest

from tilework import Tensor
from tilework.engine import tune
from tilework.engine.tune_report import Sample, by_class, sample


def made(kernel: str, predicted: float, seconds: float, *, is_default: bool = False) -> Sample:
    return Sample(kernel, "scan", predicted, None, seconds, is_default)


def test_ranks_are_taken_over_all_samples_and_within_kernels() -> None:
    samples = [made("a", n, n, is_default=n == 2) for n in range(1, 7)]
    samples += [made("b", 100 - n, 100 + n, is_default=n == 1) for n in range(1, 7)]
    report = by_class(samples)["scan"]
    assert (report.kernels, report.samples) == (2, 12)
    assert report.over_all is not None
    assert 0 < report.over_all < 1
    assert report.within == 0.0  # 1 and -1
    assert report.chosen_by is None


def test_pairs_that_are_too_near_do_not_count() -> None:
    near = [made("a", 5 - n, 1 + n / 100) for n in range(5)]
    report = by_class(near)["scan"]
    assert report.ordered is None
    apart = [made("a", n, n) for n in (1.0, 2.0)] + [made("a", 0.5, 4.0)]
    assert by_class(apart)["scan"].ordered == pytest.approx(1 / 3)


def test_what_the_default_loses_is_the_median_and_the_worst() -> None:
    samples = [made("a", 1, 3.0, is_default=True), made("a", 1, 2.0)]
    samples += [made("b", 1, 1.0, is_default=True), made("b", 1, 2.0)]
    samples += [made("c", 1, 4.0, is_default=True), made("c", 1, 1.0)]
    report = by_class(samples)["scan"]
    assert (report.lost, report.worst) == (1.5, 4.0)


def test_plans_of_a_real_kernel_are_measured() -> None:
    x = np.random.default_rng(0).standard_normal((256, 300), dtype=np.float32)
    calls = tune.collect(lambda: Tensor(x).softmax().realize())
    found = sample(calls, 60.0)
    assert len(found) >= 5
    assert sum(each.is_default for each in found) >= 1
    assert all(each.predicted > 0 and each.seconds > 0 for each in found)


def test_no_time_means_no_samples() -> None:
    x = np.ones((64, 64), dtype=np.float32)
    assert sample(tune.collect(lambda: (Tensor(x) + 1.0).realize()), 0.0) == []
