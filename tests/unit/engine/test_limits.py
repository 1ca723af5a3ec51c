"""What is scheduled for a card depends on what its matrix instructions can do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilework import Tensor, dtypes
from tilework.backends import cuda
from tilework.base.settings import override
from tilework.engine.device import Device
from tilework.engine.execute import schedule_of
from tilework.engine.limits import limits_of_devices
from tilework.schedule.call import transform_to_call
from tilework.schedule.schedule import DEFAULT_LIMITS
from tilework.target.known.cpu import x86_level_spec
from tilework.target.known.cuda import cuda_spec
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.cuda_device import emulated_backend


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setattr(cuda, "BACKEND", emulated_backend(EmulatedCuda()))
    yield monkeypatch
    for name in Device.opened():
        if name.startswith("CUDA"):
            Device[name].close()


def kernels_of_attention() -> int:
    q, k, v = (Tensor.empty(1, 2, 256, 64, dtype=dtypes.bfloat16, device="CUDA") for _ in range(3))
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    return len(schedule_of(transform_to_call([out.node]).function).linear.src)


def test_cards_without_products_of_all_narrow_floats_store_scores(
    card: pytest.MonkeyPatch,
) -> None:
    card.setattr(Device, "specs", lambda: [("CUDA", cuda_spec(75))])
    assert limits_of_devices().matrix_units_on == ()
    assert [kind for kind, _ in limits_of_devices().recomputed_from] == ["CPU"]
    assert kernels_of_attention() > 1


@pytest.mark.parametrize("capability", [80, 86, 89, 90, 100, 120])
def test_cards_from_ampere_on_keep_attention_in_one_kernel(
    card: pytest.MonkeyPatch, capability: int
) -> None:
    card.setattr(Device, "specs", lambda: [("CUDA", cuda_spec(capability)), ("CPU", cuda_spec(75))])
    assert limits_of_devices() is DEFAULT_LIMITS
    assert kernels_of_attention() == 1


def attention(rows: int, keys: int) -> int:
    """How many kernels attention takes on a processor."""
    q, k, v = (
        Tensor.empty(1, 2, length, 64, dtype=dtypes.bfloat16, device="CPU")
        for length in (rows, keys, keys)
    )
    out = q.scaled_dot_product_attention(k, v)
    return len(schedule_of(transform_to_call([out.node]).function).linear.src)


def test_processors_with_matrix_registers_store_scores_that_are_not_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    amx = x86_level_spec("x86-64-v4", extra=("amx-tile", "amx-bf16"))
    monkeypatch.setattr(Device, "specs", lambda: [("CPU", amx)])
    assert [kind for kind, _, _ in limits_of_devices().scores_stored_on] == ["CPU"]
    assert attention(128, 128) > 1
    assert attention(12, 128) == attention(8192, 8192) == 1
    with override(keep_subnormals=True):
        assert attention(128, 128) == 1
    monkeypatch.setattr(Device, "specs", lambda: [("CPU", amx), ("CPU", x86_level_spec("x86-64"))])
    assert attention(128, 128) == 1


def test_the_limits_of_open_devices_are_found_without_opening_any() -> None:
    before = Device.opened()
    assert limits_of_devices() is limits_of_devices()
    assert Device.opened() == before
