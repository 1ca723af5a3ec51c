"""The behaviour suite against every device of this machine: one test per case."""

import pytest
from tests.published import published

from tilework.base.errors import DeviceUnavailableError
from tilework.engine.device import Device
from tilework.testing.conformance import Case, all_cases, run_case
from tilework.toolchain.clang import find_compiler

DEVICES = ["CPU", "PYTHON", "NULL"]
CASES = {case.name: case for case in all_cases()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("device", DEVICES)
def test_BKE_04_a_device_behaves_as_the_interpreter(device: str, case: Case) -> None:
    result = run_case(device, case)
    assert result.status == published()[device][case.name], result.detail
    if result.status in ("skipped", "unsupported"):
        assert device == "NULL" or result.status == "unsupported"
        return
    assert result.status == "passed", result.detail


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_BKE_04_the_c_compiler_behaves_as_the_interpreter(case: Case) -> None:
    if find_compiler() is None:
        with pytest.raises(DeviceUnavailableError):
            _ = Device["CPU:CLANG"]
        return
    result = run_case("CPU:CLANG", case)
    assert result.status == published()["CPU:CLANG"][case.name] == "passed", result.detail


def test_BKE_04_the_published_table_has_every_case() -> None:
    table = published()
    assert set(table) == {*DEVICES, "CPU:CLANG", "CUDA"}
    for device, cases in table.items():
        assert list(cases) == list(CASES), device
        assert set(cases.values()) <= {"passed", "unsupported", "skipped"}, device


def test_BKE_16_the_null_device_runs_nothing_and_refuses_results() -> None:
    statuses = {name: run_case("NULL", case).status for name, case in CASES.items()}
    assert set(statuses.values()) == {"passed", "skipped"}
    assert statuses["driver/refusals"] == "passed"


def test_BKE_03_the_capabilities_of_each_device_are_data() -> None:
    specs = {name: Device[name].spec for name in DEVICES}
    assert len({spec.key() for spec in specs.values()}) >= 2
    for spec in specs.values():
        assert spec.storage_dtypes
        assert spec.native_ops
        assert spec.limits.max_kernel_buffers > 0
