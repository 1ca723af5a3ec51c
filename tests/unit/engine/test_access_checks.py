"""Compiled checks of accesses: what is not proven is left out and reported, on every device."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.unit.codegen.test_audit import FORMS, Shift, at, loop, moved

from tilework import Tensor, dtypes, jit
from tilework.backends import cuda
from tilework.base.errors import BoundsError, VerifyError
from tilework.base.settings import override
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32, int64
from tilework.engine.device import Device
from tilework.engine.link import LinkedSteps
from tilework.engine.steps import Operand, PlannedCall, compile_steps, variables_of
from tilework.ir.build import cast, const, const_index
from tilework.ir.digest import digest
from tilework.ir.faults import AccessFault
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import dims, simplify
from tilework.runtime import reclaim
from tilework.target.known.cpu import x86_level_spec
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.cuda_device import emulated_backend

AROUND = 64  # elements before and after each buffer, which nothing may touch
UNTOUCHED = 0x5A
TARGET = x86_level_spec("x86-64-v3", cores=2)


@pytest.fixture(autouse=True)
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = EmulatedCuda()
    monkeypatch.setattr(cuda, "BACKEND", emulated_backend(found))
    with override(check_accesses=True):
        yield
    if "CUDA" in Device.opened():
        Device["CUDA"].close()
    gc.collect()
    reclaim.run()


def run(sink: Node, device: str, values: dict[str, int]) -> tuple[list[np.ndarray], str]:
    """Run a kernel over memory with a margin; return all memory, and the kernel's name."""
    params = {node.attrs.slot: node.attrs for node in toposort(sink) if node.op is PARAM}
    slots, operands, memory = [], [], []
    for slot in range(max(params) + 1):
        attrs = params.get(slot)
        count = 0 if attrs is None else dims.greatest(dims.product(attrs.shape))
        size = 1 if attrs is None else attrs.dtype.itemsize
        whole = np.full((count + 2 * AROUND) * size, UNTOUCHED, np.uint8)
        if attrs is not None:
            inside = np.arange(count, dtype=np.dtype(attrs.dtype.name))
            whole[AROUND * size : (AROUND + count) * size] = inside.view(np.uint8)
        buffer = Device[device].allocate(whole.nbytes)
        Device[device].copy_in(buffer, whole.data)
        slots.append(buffer)
        memory.append(whole)
        operands.append(Operand(slot, AROUND * size, count * size))
    steps = compile_steps([PlannedCall(device, sink, tuple(operands))])
    linked = LinkedSteps(steps, variables_of(sink))
    try:
        linked.run(slots, values)
        Device[device].synchronize()
    finally:
        for buffer, whole in zip(slots, memory, strict=True):
            Device[device].driver.copy_out(buffer, whole.data)
    return memory, steps[0].code.name  # type: ignore[union-attr]


@pytest.mark.parametrize("device", ["CPU", "CUDA"])
@pytest.mark.parametrize("form", FORMS)
def test_CST_06_what_lies_inside_runs_as_ever_with_checks(
    form: Callable[[Shift], Node], device: str
) -> None:
    kernel = form(lambda offset: offset)
    with override(check_accesses=False):
        plain, _ = run(kernel, device, {"n": 37})
    checked, _ = run(kernel, device, {"n": 37})
    for one, other in zip(plain, checked, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("device", ["CPU", "CUDA"])
@pytest.mark.parametrize("by", [-1, 1, 1 << 40, -(1 << 40)])
@pytest.mark.parametrize("form", FORMS)
def test_CST_06_an_index_that_is_off_names_kernel_and_buffer(
    form: Callable[[Shift], Node], by: int, device: str
) -> None:
    kernel = form(moved(by))
    with pytest.raises(BoundsError, match="outside of a buffer") as info:
        run(kernel, device, {"n": 50})
    name = lower_kernel(kernel, TARGET).name
    assert f"buffer 1 of {name}" in str(info.value)
    assert name.endswith(digest(kernel).hex()[:16])


@pytest.mark.parametrize("device", ["CPU", "CUDA"])
@pytest.mark.parametrize("by", [-3, 3, -(1 << 20)])
def test_CST_06_a_store_outside_touches_nothing(by: int, device: str) -> None:
    i = loop(0, 33)
    value = LOAD(at(1, 33, i))
    kernel = SINK(STORE(at(0, 33, moved(by)(i)), value))
    steps = compile_steps([PlannedCall(device, kernel, (Operand(0, 256, 132), Operand(1, 0, 132)))])
    target = Device[device].allocate(1024)
    source = Device[device].allocate(132)
    Device[device].copy_in(target, np.full(1024, UNTOUCHED, np.uint8).data)
    Device[device].copy_in(source, np.arange(33, dtype=np.float32).data)

    def launch() -> None:
        LinkedSteps(steps).run([target, source], {})
        Device[device].synchronize()

    with pytest.raises(BoundsError, match="buffer 0 of"):
        launch()
    whole = np.empty(1024, np.uint8)
    Device[device].driver.copy_out(target, whole.data)
    assert (whole[:256] == UNTOUCHED).all()
    assert (whole[256 + 132 :] == UNTOUCHED).all()
    inside = whole[256 : 256 + 132].view(np.float32)
    kept = np.full(132, UNTOUCHED, np.uint8).view(np.float32).copy()
    for place in range(33):
        if 0 <= place + by < 33:
            kept[place + by] = place
    assert np.array_equal(inside.view(np.int32), kept.view(np.int32))


def summed(gate_is_kept: bool) -> Node:
    """A sum of gathered numbers whose index has, or has lost, its gate."""
    i, j = loop(0, 5), loop(1, 8)
    place = cast(LOAD(at(2, 8, j, int64)), dtypes.index)
    gate = simplify.both(
        simplify.at_least(place, const_index(0)), simplify.less(place, const_index(3))
    )
    offset = simplify.add(simplify.scale(place, 5), i)
    source = (INDEX(PARAM(attrs=at(1, 15, i).src[0].attrs), offset),)
    value = LOAD(*source, gate) if gate_is_kept else LOAD(*source)
    return SINK(STORE(at(0, 5, i), REDUCE(value, j, attrs=ReduceAttrs(Fold.ADD))))


@pytest.mark.parametrize("device", ["CPU", "CUDA"])
def test_CST_06_an_index_from_memory_inside_of_a_sum_is_checked(device: str) -> None:
    run(summed(gate_is_kept=True), device, {})  # the gate leaves out what is outside
    with pytest.raises(BoundsError, match="buffer 1 of"):
        run(summed(gate_is_kept=False), device, {})


def test_CST_06_proven_kernels_get_no_checks() -> None:
    for form in FORMS:
        linear = lower_kernel(form(lambda offset: offset), TARGET).linear
        assert not any(node.op is FAULT_IF for node in toposort(linear))
        linear = lower_kernel(form(moved(1)), TARGET).linear
        assert any(node.op is FAULT_IF for node in toposort(linear))


def test_CST_06_an_index_that_its_kernel_overwrites_is_refused() -> None:
    i = loop(0, 8)
    place = cast(LOAD(at(0, 8, i, int64)), dtypes.index)
    kernel = SINK(STORE(at(0, 8, i, int64), LOAD(at(1, 4, place, int64))))
    with pytest.raises(VerifyError, match="memory that its kernel overwrites"):
        lower_kernel(kernel, TARGET)


def test_CST_06_a_fault_code_carries_buffer_and_kernel() -> None:
    fault = AccessFault(47, "00f3a9c1de")
    assert AccessFault.of(fault.code) == fault
    assert 0 < AccessFault((1 << 12) - 1, "f" * 10).code < 1 << 63


@pytest.mark.parametrize("device", ["CPU", "CUDA"])
def test_CST_06_programs_give_the_same_bits_with_checks(device: str) -> None:
    values = np.random.default_rng(3).standard_normal((2, 3, 12, 12)).astype(np.float32)
    weights = np.random.default_rng(4).standard_normal((4, 3, 3, 3)).astype(np.float32)
    rows = np.array([3, 0, -1, 2])

    def program(x: Tensor, w: Tensor, where: Tensor) -> Tensor:
        y = x.conv2d(w, padding=1).relu().max_pool2d(2).flatten(1)
        result: Tensor = (y @ y.permute(1, 0)).softmax(-1) + y[:, where].sum(1, keepdim=True)
        return result

    results = []
    for checks in (False, True):
        with override(check_accesses=checks):
            given = [Tensor(each, device=device) for each in (values, weights, rows)]
            captured = jit(program)
            results += [captured(*given).numpy() for _ in range(3)]
    assert all(np.array_equal(results[0], each) for each in results)


def test_a_constant_store_is_proven_without_a_gate() -> None:
    kernel = SINK(STORE(at(0, 4, loop(0, 4)), const(1.0, float32)))
    assert not any(node.op is math.LT for node in toposort(lower_kernel(kernel, TARGET).linear))
