"""The behaviour suite that every back end passes: ops, views, ordering, copies, errors, contract.

    for row in run_suite("CPU"):
        print(row.status, row.name, row.detail)

Each case compares the device with the interpreter of the IR (`ir.interpret`), which no back end
shares code with but PYTHON.  A device that lacks a dtype says so in its `TargetSpec`; then the kit
checks that it refuses it.  Authors of back ends run `tilework conformance DEVICE`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilework.base.errors import TileworkError, UnsupportedError
from tilework.engine.device import Device
from tilework.testing.conformance import contract, memory, ops, views
from tilework.testing.conformance.harness import Bench, Case, Failed, Result

__all__ = ["Bench", "Case", "Failed", "Result", "all_cases", "run_case", "run_suite"]


def all_cases() -> tuple[Case, ...]:
    """Return every case, in the order in which they run."""
    return (*ops.cases(), *views.cases(), *memory.cases(), *contract.cases())


def run_case(device: str, case: Case) -> Result:
    """Run one case against a device, opened if it is not open."""
    bench = Bench(Device[device])
    if not case.runs_without_code and not bench.device.driver.target.runs_code:
        return Result(case.name, "skipped", "the device runs nothing")
    try:
        detail = case.run(bench)
    except Failed as failure:
        return Result(case.name, "failed", str(failure))
    except UnsupportedError as error:
        return Result(case.name, "unsupported", str(error).splitlines()[0])
    except TileworkError as error:
        return Result(case.name, "failed", f"{type(error).__name__}: {error}")
    return Result(case.name, "passed", detail or "")


def run_suite(
    device: str, *, only: str | None = None, on_case: Callable[[str], object] | None = None
) -> list[Result]:
    """Run the suite against a device.

    Args:
        device: its name.
        only: cases whose name contains this.
        on_case: called with the name of each case before it runs.

    Returns: one result per case: passed, failed, unsupported or skipped.

    Raises: DeviceUnavailableError when the device cannot be opened.
    """
    results: list[Result] = []
    for case in all_cases():
        if only is not None and only not in case.name:
            continue
        if on_case is not None:
            on_case(case.name)
        results.append(run_case(device, case))
    return results
