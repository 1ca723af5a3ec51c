"""Devices by name: the grammar, lazy opening, the default, closing."""

import gc

import pytest

from tilework import Tensor
from tilework.base import settings, trace
from tilework.base.errors import (
    DeviceError,
    DeviceUnavailableError,
    StaleHandleError,
    UnsupportedError,
)
from tilework.base.ledger import LEDGER, Kind, difference
from tilework.engine.device import Device, DeviceOpened, OpenDevice
from tilework.runtime.registry import DeviceName, Registry, parse_device_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CPU", DeviceName("CPU")),
        ("cpu:0", DeviceName("CPU")),
        ("CUDA:1", DeviceName("CUDA", 1)),
        ("CPU:llvm:x86-64-v2", DeviceName("CPU", renderer="LLVM", arch="x86-64-v2")),
        ("usb+amd:llvm", DeviceName("AMD", interface="USB", renderer="LLVM")),
        ("CUDA:1:NVRTC:sm_90a", DeviceName("CUDA", 1, "", "NVRTC", "sm_90a")),
    ],
)
def test_a_name_is_read_into_its_parts(text: str, name: DeviceName) -> None:
    assert parse_device_name(text) == name


@pytest.mark.parametrize("text", ["", ":", "CPU:", "1", "+CPU", "CPU:1:2", "CPU:A:B:C", "C PU"])
def test_a_malformed_name_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(DeviceUnavailableError, match="not the name of a device"):
        parse_device_name(text)


def test_a_canonical_name_is_read_back_as_itself() -> None:
    name = parse_device_name("usb+amd:3:llvm:gfx1100")
    assert parse_device_name(str(name)) == name


def test_BKE_02_the_default_renderer_is_the_same_device() -> None:
    assert Device["CPU"] is Device["CPU:LLVM"]
    assert Device["CPU"] is Device["cpu:0"]


def test_BKE_02_opening_is_told_with_back_end_and_target() -> None:
    events: list[trace.Event] = []
    if "PYTHON" in Device.opened():
        Device["PYTHON"].close()
    with trace.subscribe(events.append):
        _ = Device["PYTHON"]
    opened = [event for event in events if isinstance(event, DeviceOpened)]
    assert [(event.name, event.backend) for event in opened] == [("PYTHON", "PYTHON:INTERPRETER")]


def test_BKE_02_an_unknown_device_is_refused_and_nothing_else_is_opened() -> None:
    before = Device.opened()
    with pytest.raises(DeviceUnavailableError, match="there is no back end CPX") as caught:
        _ = Device["CPX"]
    assert caught.value.try_ == "`CPU`"
    assert Device.opened() == before


def test_BKE_02_an_unknown_renderer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DeviceUnavailableError, match="no renderer METAL") as caught:
        _ = Device["CPU:METAL"]
    assert "LLVM" in str(caught.value.expected)


def test_the_default_device_is_the_setting() -> None:
    with settings.override(dev="python"):
        assert Device.DEFAULT == "PYTHON"
    assert Device.DEFAULT == "CPU"


def test_the_default_device_can_be_set() -> None:
    Device.DEFAULT = "null"
    assert Device.DEFAULT == "NULL"


def test_BKE_01_a_probe_opens_nothing() -> None:
    before = Device.opened()
    rows = Device.probe()
    assert {backend.kind for backend, _ in rows} >= {"CPU", "PYTHON", "NULL"}
    assert Device.opened() == before


def test_a_closed_device_refuses_memory_and_opens_again() -> None:
    device = Device["PYTHON"]
    device.close()
    with pytest.raises(StaleHandleError, match="was closed"):
        device.allocate(64)
    assert Device["PYTHON"] is not device


def test_bytes_go_in_and_come_out() -> None:
    device = Device["CPU"]
    buffer = device.allocate(16)
    device.copy_in(buffer, memoryview(b"0123456789abcdef"))
    result = bytearray(16)
    device.copy_out(buffer, memoryview(result))
    assert result == b"0123456789abcdef"


def test_the_memory_of_the_null_device_cannot_be_viewed() -> None:
    device = Device["NULL"]
    with pytest.raises(UnsupportedError, match="cannot see the memory"):
        device.view(device.allocate(16))


NAMES = ["CPU:11", "CPU:12", "PYTHON:3"]


def compute_on_three() -> None:
    for name in NAMES:
        total = Tensor([1.0, 2.0], device=name).sum()
        assert total.item() == 3.0
        del total
    gc.collect()


def open_three() -> dict[tuple[str, Kind], int]:
    """Three devices that have computed; what the ledger held before they were opened."""
    compute_on_three()  # what earlier tests left in caches of a fixed size makes room here
    for name in NAMES:
        Device[name].close()
    gc.collect()
    before = LEDGER.snapshot()
    compute_on_three()
    return before


def test_GEN_08_closing_all_devices_leaves_the_ledger_as_it_was() -> None:
    before = open_three()
    for name in NAMES:
        Device[name].close()
    assert difference(before, LEDGER.snapshot()) == {}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("victim", NAMES)
def test_GEN_08_a_device_that_fails_to_close_does_not_stop_the_others(
    victim: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_three()
    opened = {name: Device[name] for name in NAMES}
    registry: Registry[OpenDevice] = Registry(lambda name: opened[str(name)])
    for name in NAMES:
        registry.get(parse_device_name(name))
    driver = opened[victim].driver
    close = driver.close

    def fail() -> None:
        if when == "after":
            close()
        raise DeviceError(f"{victim}: injected")

    with monkeypatch.context() as patch:
        patch.setattr(driver, "close", fail)
        with pytest.raises(DeviceError, match=f"{victim}: injected"):
            registry.close_all()
    assert all(device.is_closed for device in opened.values())
    assert registry.names() == ()
    left = difference(before, LEDGER.snapshot())
    if when == "after":
        assert left == {}
    close()  # what the failing one still held
    assert difference(before, LEDGER.snapshot()) == {}
    for name in NAMES:  # and all of them open again
        assert Tensor([1.0, 2.0], device=name).sum().item() == 3.0
