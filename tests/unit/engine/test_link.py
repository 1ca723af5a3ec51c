"""Linked schedules: hand-made calls on each device, variables, faults of the caller."""

import array
import threading

import pytest

from tilework.base.errors import BoundsError, InternalError
from tilework.dtypes import float32
from tilework.engine import compile as engine_compile
from tilework.engine.device import Device
from tilework.engine.execute import allocate_slots, link_schedule
from tilework.engine.stats import COUNTERS, difference
from tilework.engine.steps import planned_steps
from tilework.ir.node import Node
from tilework.ir.ops.program import CALL, LINEAR
from tilework.runtime.buffer import Buffer
from tilework.schedule.schedule import Schedule, Slot, SlotKind
from tilework.testing import chains

DEVICES = ["CPU", "PYTHON"]


def put(device: str, values: list[float]) -> Buffer:
    raw = memoryview(array.array("f", values)).cast("B")
    buffer = Device[device].allocate(raw.nbytes)
    Device[device].copy_in(buffer, raw)
    return buffer


def get(device: str, buffer: Buffer) -> list[float]:
    return list(Device[device].view(buffer).cast("f"))


def run(
    device: str, schedule: Schedule, values: list[float], variables: dict[str, int] | None = None
) -> list[float]:
    slots = [put(device, values), *allocate_slots(schedule)]
    link_schedule(schedule).run(slots, variables or {})
    return get(device, slots[schedule.outputs[0]])


@pytest.mark.parametrize("device", DEVICES)
def test_a_chain_of_kernels_runs_in_order(device: str) -> None:
    schedule = chains.chain(device, 8, [2.0, 3.0, 0.5])
    assert run(device, schedule, [float(i) for i in range(8)]) == [3.0 * i for i in range(8)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 5, 64])
def test_EXE_16_a_variable_takes_both_ends_of_its_range(device: str, count: int) -> None:
    schedule = chains.chain(device, chains.variable(), [2.0])
    result = run(device, schedule, [1.0] * 64, {"n": count})
    assert result[:count] == [2.0] * count


@pytest.mark.parametrize("count", [-1, 0, 65])
def test_EXE_16_a_variable_out_of_its_range_is_refused(count: int) -> None:
    schedule = chains.chain("CPU", chains.variable(), [2.0])
    with pytest.raises(BoundsError, match="variable n: the value is out of range"):
        run("CPU", schedule, [1.0] * 64, {"n": count})


def test_EXE_16_a_variable_without_a_value_is_refused() -> None:
    schedule = chains.chain("CPU", chains.variable(), [2.0])
    with pytest.raises(BoundsError, match="variable n: it has no value"):
        run("CPU", schedule, [1.0] * 64)


def test_EXE_10_a_call_of_an_unknown_kind_is_refused() -> None:
    kernel = chains.scale_kernel(8)
    strange = CALL(LINEAR(), chains.param(1, 8), chains.param(0, 8))
    linear = LINEAR(CALL(kernel, chains.param(1, 8), chains.param(0, 8)), strange)
    with pytest.raises(InternalError, match="no call that can be run"):
        planned_steps(linear, ["CPU", "CPU"])


@pytest.mark.parametrize("argument", [chains.variable(), chains.scale_kernel(8)])
def test_EXE_10_an_argument_that_is_no_slot_is_refused(argument: Node) -> None:
    linear = LINEAR(CALL(chains.scale_kernel(8), argument, chains.param(0, 8)))
    with pytest.raises(InternalError, match="neither a slot nor a part of one"):
        planned_steps(linear, ["CPU"])


def test_EXE_01_equal_kernels_are_compiled_once() -> None:
    engine_compile.clear_memory()
    before = COUNTERS.snapshot()
    factor = 1.0078125  # a kernel that no other test compiles
    run("CPU", chains.chain("CPU", 24, [factor] * 500), [1.0] * 24)
    assert difference(before)["compiles"] == 1


def test_EXE_01_the_second_run_links_and_compiles_nothing() -> None:
    schedule = chains.chain("CPU", 8, [2.0, 4.0])
    run("CPU", schedule, [1.0] * 8)
    before = COUNTERS.snapshot()
    run("CPU", schedule, [1.0] * 8)
    done = difference(before)
    assert "compiles" not in done
    assert "links" not in done
    assert done["launches"] == 1


def test_EXE_02_one_schedule_runs_on_many_threads_at_once() -> None:
    schedule = chains.chain("CPU", 64, [2.0, 0.5, 4.0])
    wrong: list[float] = []

    def work(number: float) -> None:
        results = [run("CPU", schedule, [number] * 64) for _ in range(50)]
        wrong.extend(result[0] for result in results if result != [4.0 * number] * 64)

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_closed_device_is_linked_again() -> None:
    schedule = chains.chain("PYTHON", 8, [2.0])
    run("PYTHON", schedule, [1.0] * 8)
    Device["PYTHON"].close()
    assert run("PYTHON", schedule, [1.0] * 8) == [2.0] * 8


def test_a_copy_between_devices_runs_between_their_kernels() -> None:
    from tilework.ir.ops.tensor import COPY, DeviceAttrs

    slots = (
        Slot(SlotKind.INPUT, 32, (8,), float32, "PYTHON"),
        Slot(SlotKind.OUTPUT, 32, (8,), float32, "CPU"),
        Slot(SlotKind.ARENA, 32, (8,), float32, "PYTHON"),
        Slot(SlotKind.ARENA, 32, (8,), float32, "CPU"),
    )
    p = [chains.param(number, 8) for number in range(4)]
    linear = LINEAR(
        CALL(chains.scale_kernel(8), p[2], p[0]),
        CALL(COPY(p[2], attrs=DeviceAttrs("CPU")), p[3], p[2]),
        CALL(chains.scale_kernel(8), p[1], p[3]),
    )
    schedule = Schedule(linear, slots, (1,), ())
    buffers = [put("PYTHON", [1.0] * 8), *allocate_slots(schedule)]
    link_schedule(schedule).run(buffers, {})
    assert get("CPU", buffers[1]) == [4.0] * 8
