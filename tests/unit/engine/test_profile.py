"""The kernels of a captured program with their times and rates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilework import Tensor, jit
from tilework.backends import cuda
from tilework.base.errors import CaptureError
from tilework.engine.device import Device
from tilework.engine.profile import Profile
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.cuda_device import emulated_backend


@pytest.fixture
def _card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cuda, "BACKEND", emulated_backend(EmulatedCuda()))
    yield
    for name in Device.opened():
        if name.startswith("CUDA"):
            Device[name].close()


def profile_of(device: str) -> Profile:
    """Two products and a sum, three times."""

    @jit
    def function(x: Tensor) -> Tensor:
        for _ in range(2):
            x = (x @ x).contiguous()
        return x.sum(0)

    x = Tensor.ones(64, 64, device=device).contiguous().realize()
    function(x)
    function.measure(kernels=True)
    for _ in range(3):
        function(x)
    return function.profile()


def check(found: Profile, device: str) -> None:
    launches = sum(row.launches for row in found.rows)
    assert launches >= 2
    assert {row.device for row in found.rows} == {device}
    assert sum(row.seconds for row in found.rows) == pytest.approx(found.seconds)
    assert sum(row.share for row in found.rows) == pytest.approx(1.0)
    assert [row.seconds for row in found.rows] == sorted(
        (row.seconds for row in found.rows), reverse=True
    )
    assert all(row.moved_bytes >= 64 * 64 * 4 and row.operations > 0 for row in found.rows)
    assert all(row.bandwidth_share > 0 for row in found.rows)
    assert str(found).count("\n") == 1 + len(found.rows)


def test_the_kernels_of_a_capture_have_times_and_rates() -> None:
    check(profile_of("CPU"), "CPU")


@pytest.mark.usefixtures("_card")
def test_kernels_of_a_card_are_timed_by_its_events() -> None:
    found = profile_of("CUDA")
    check(found, "CUDA")
    # The card in software says that each launch takes a microsecond.
    assert all(row.seconds == pytest.approx(1e-6 * row.launches) for row in found.rows)


def test_a_function_that_was_not_measured_has_no_profile() -> None:
    function = jit(lambda x: x + 1)
    with pytest.raises(CaptureError, match="no kernel has been timed"):
        function.profile()
