"""Back ends: probing changes nothing, selection follows the name alone, reasons are told."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tilework.backends import cpu, cpu_clang, native, registry
from tilework.backends.contract import Backend
from tilework.base import settings
from tilework.base.errors import DeviceUnavailableError, UnsupportedError
from tilework.base.ledger import LEDGER, difference
from tilework.engine.device import Device
from tilework.runtime.registry import parse_device_name

OWN = ["CPU", "CPU:CLANG", "NULL", "PYTHON"]


@pytest.fixture
def without_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    Device["CPU"].close()
    for module in (cpu, native):
        monkeypatch.setattr(module, "is_installed", lambda: False)
    monkeypatch.setattr(native, "_provided", {})
    monkeypatch.setattr(cpu, "has_native_object", lambda isa: False)


def test_each_own_back_end_is_found_by_name() -> None:
    found = [str(registry.canonical(parse_device_name(f"{b.kind}:{b.renderer}")))
             for b in registry.backends()]  # fmt: skip
    assert sorted(found) == sorted([*OWN, "CUDA"])


@pytest.mark.parametrize("name", OWN)
def test_BKE_01_a_probe_takes_nothing(name: str) -> None:
    before = LEDGER.snapshot()
    probe = registry.find_backend(parse_device_name(name)).probe()
    assert probe.is_present
    assert difference(before, LEDGER.snapshot()) == {}


def test_BKE_01_a_missing_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_clang, "find_compiler", lambda: None)
    probe = cpu_clang.BACKEND.probe()
    assert not probe.is_openable
    assert "no C compiler" in probe.reason


@pytest.mark.usefixtures("without_llvm")
def test_BKE_01_a_missing_llvm_is_a_reason() -> None:
    probe = cpu.BACKEND.probe()
    assert not probe.is_openable
    assert "pip install llvmlite" in probe.reason


@pytest.mark.usefixtures("without_llvm")
def test_BKE_02_without_llvm_the_cpu_does_not_become_another_back_end() -> None:
    with (
        settings.override(cache_dir=""),
        pytest.raises(DeviceUnavailableError, match="cannot be opened") as caught,
    ):
        _ = Device["CPU"]
    assert "llvmlite" in caught.value.reason
    assert "CPU" not in Device.opened()


@pytest.mark.parametrize("missing", [set(), {"CPU"}, {"PYTHON"}, {"CPU", "PYTHON"}])
@pytest.mark.parametrize("name", ["CPU", "PYTHON"])
def test_BKE_02_what_opens_depends_on_the_name_alone(
    monkeypatch: pytest.MonkeyPatch, missing: set[str], name: str
) -> None:
    find: Callable[[Any], Backend] = registry.find_backend

    def refuse(device_name: Any) -> Any:
        raise DeviceUnavailableError("gone", reason="taken away by the test")

    def find_some(device_name: Any) -> Backend:
        found = find(device_name)
        return replace(found, open=refuse) if found.kind in missing else found

    monkeypatch.setattr(registry, "find_backend", find_some)
    if name in Device.opened():
        Device[name].close()
    if name in missing:
        with pytest.raises(DeviceUnavailableError, match="gone"):
            _ = Device[name]
    else:
        assert Device[name].backend.kind == name


def test_BKE_03_a_level_below_the_host_s_limits_the_features() -> None:
    host = Device["CPU"].spec
    if host.isa != "x86-64":
        return
    low = Device["CPU:LLVM:x86-64-v2"]
    assert low.spec.features < host.features
    assert low.spec.vector_bits == 128
    low.close()


def test_BKE_03_an_unknown_level_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no level x86-64-v9"):
        _ = Device["CPU:LLVM:x86-64-v9"]


def test_BKE_05_closing_gives_everything_back() -> None:
    Device["CPU:5"].close()
    before = LEDGER.snapshot()
    device = Device["CPU:5"]
    buffer = device.allocate(1 << 20)
    buffer.close()
    device.close()
    assert difference(before, LEDGER.snapshot()) == {}


def test_the_c_back_end_compiles_where_a_compiler_is() -> None:
    if shutil.which("clang") or shutil.which("cc"):
        assert Device["CPU:CLANG"].compiler.key.startswith("clang;")


def test_a_back_end_for_another_driver_contract_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = replace(registry.find_backend(parse_device_name("NULL")), driver_api=0)
    monkeypatch.setattr("tilework.backends.null.BACKEND", old)
    with pytest.raises(DeviceUnavailableError, match="another version of the driver contract"):
        registry.find_backend(parse_device_name("NULL"))
