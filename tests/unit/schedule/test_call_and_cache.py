"""Calls are canonical; schedules are cached by structure and settings, in memory and on disk."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.schedule.schedule_builders import (
    assign,
    like,
    linear,
    param,
    relu,
    resnet,
    sizes_of,
    softmax,
)

from tilework.base import settings, trace
from tilework.base.errors import InternalError, VerifyError
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.index import BIND, VARIABLE, VariableAttrs
from tilework.ir.ops.program import LINEAR
from tilework.schedule import cache, pipeline
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import build_schedule, create_schedule
from tilework.schedule.schedule import Limits, Schedule


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path: Path) -> Iterator[None]:
    cache.clear()
    with settings.override(cache_dir=tmp_path):
        yield
    cache.clear()


def buffer(number: int, shape: tuple[int, ...] = (4,)) -> Node:
    return memory.BUFFER(attrs=memory.BufferAttrs(number, shape, float32, "CPU"))


def large() -> Node:
    return memory.SINK(resnet(6))


def lookups(function: Node) -> tuple[Schedule, list[tuple[str, bool]]]:
    seen: list[tuple[str, bool]] = []

    def listen(event: trace.Event) -> None:
        if isinstance(event, trace.CacheLookup):
            seen.append((event.cache, event.hit))

    with trace.subscribe(listen):
        made = create_schedule(function)
    return made, seen


# --- calls ---------------------------------------------------------------------------------------


def test_SCH_02_equal_structure_over_other_buffers_is_one_function() -> None:
    def program(a: Node, b: Node) -> list[Node]:
        return [math.ADD(math.MUL(a, b), a)]

    first = transform_to_call(program(buffer(1), buffer(2)))
    second = transform_to_call(program(buffer(7), buffer(5)))
    assert first.function is second.function
    assert second.arguments == (buffer(7), buffer(5))


def test_SCH_02_another_alias_pattern_is_another_function() -> None:
    first = transform_to_call([math.ADD(buffer(1), buffer(2))])
    second = transform_to_call([math.ADD(buffer(1), buffer(1))])
    assert first.function is not second.function


def test_SCH_02_the_value_of_a_variable_does_not_matter() -> None:
    n = VARIABLE(attrs=VariableAttrs("n", 1, 9))
    calls = [
        transform_to_call([math.ADD(BIND(n, const_index(value)), const_index(1))])
        for value in (3, 4)
    ]
    assert calls[0].function is calls[1].function


def test_slots_count_first_uses() -> None:
    a, b, c = buffer(30), buffer(10), buffer(20)
    call = transform_to_call([math.SUB(b, a), math.ADD(c, b)])
    assert call.arguments == (b, a, c)


def test_a_long_chain_is_no_problem() -> None:
    x = buffer(1)
    y = x
    for _ in range(20_000):
        y = math.ADD(y, x)
    assert transform_to_call([y]).arguments == (x,)


def test_outputs_may_repeat() -> None:
    y = math.NEG(buffer(1))
    assert len(transform_to_call([y, y]).function.src) == 2


# --- caches --------------------------------------------------------------------------------------


def test_SCH_01_scheduling_twice_gives_the_same_schedule() -> None:
    function = memory.SINK(softmax(param(0, (4, 8))))
    first, _ = lookups(function)
    second, seen = lookups(function)
    assert second is first
    assert seen == [("schedule-memory", True)]


def test_SCH_01_a_realized_value_is_not_computed_again() -> None:
    realized = buffer(3, (4, 8))
    call = transform_to_call([math.ADD(realized, like(1.0, realized))])
    made = create_schedule(call.function)
    assert [report.nodes for report in made.reports] == [1]


def test_a_schedule_from_disk_equals_the_one_that_was_made() -> None:
    first, seen = lookups(large())
    assert seen == [("schedule-memory", False), ("schedule", False)]
    cache.clear()
    second, seen = lookups(large())
    assert seen == [("schedule-memory", False), ("schedule", True)]
    assert second == first


def test_a_damaged_schedule_on_disk_is_made_again(tmp_path: Path) -> None:
    first = create_schedule(large())
    cache.clear()
    disk = cache._disk(tmp_path, settings.current().cache_size_bytes)
    name = cache._disk_key(large(), Limits(), settings.current())
    disk.put(name, b"{} \nnonsense")
    assert create_schedule(large()) == first


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"slots": []}\nreturn', b"\xff"])
def test_what_is_no_schedule_is_refused(raw: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, IndexError)):
        cache.from_bytes(raw)


@pytest.mark.parametrize(
    ("name", "values"), [("fp_mode", ("strict", "contract")), ("deterministic", (False, True))]
)
def test_SCH_15_each_setting_that_affects_schedules_is_in_the_key(
    name: str, values: tuple[Any, ...]
) -> None:
    function = large()
    for value in (*values, *reversed(values)):
        with settings.override(**{name: value}):
            create_schedule(function)
    assert len(cache._kept) == 2
    current = settings.current()
    with settings.override(**{name: values[1]}) as other:
        assert cache._disk_key(function, Limits(), current) != cache._disk_key(
            function, Limits(), other
        )


def test_SCH_15_the_limits_are_in_the_key() -> None:
    function = memory.SINK(relu(linear(param(0, (4, 8)), param(1, (8, 4)), param(2, (4,)))))
    assert create_schedule(function) is not create_schedule(function, Limits(nodes=2))
    assert len(create_schedule(function, Limits(nodes=2)).linear.src) > 1


def test_the_cache_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "CAPACITY", 3)
    x = param(0, (4,))
    for number in range(6):
        create_schedule(memory.SINK(math.ADD(x, like(float(number), x))))
    assert len(cache._kept) == 3


# --- checks --------------------------------------------------------------------------------------


def broken(made: Schedule) -> Schedule:
    calls = tuple(call.src[0] for call in made.linear.src)
    return dataclasses.replace(made, linear=LINEAR(*calls))


def test_SCH_14_a_stricter_check_applies_to_what_is_cached() -> None:
    function = memory.SINK(softmax(param(0, (4, 8))))
    with settings.override(verify="off"):
        cache.remember(function, Limits(), broken(build_schedule(function)))
        create_schedule(function)
    with settings.override(verify="stage"), pytest.raises(VerifyError):
        create_schedule(function)


def test_SCH_23_a_function_that_is_not_legal_is_not_cached() -> None:
    x = param(0, (4,))
    wrong = memory.SINK(memory.LOAD(memory.INDEX(x, const_index(0))))
    for _ in range(2):
        with settings.override(verify="stage"), pytest.raises(VerifyError):
            create_schedule(wrong)
    assert len(cache._kept) == 0


@pytest.mark.parametrize(
    "stage", ["Layout", "Rangeify", "Ordering", "group_kernels", "assemble", "check_schedule"]
)
def test_SCH_23_a_failure_in_any_stage_changes_nothing(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise InternalError(f"{stage} fails")

    function = memory.SINK(softmax(param(0, (4, 8))))
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, stage, fail)
        with settings.override(verify="stage"), pytest.raises(InternalError, match=stage):
            create_schedule(function)
    assert len(cache._kept) == 0
    assert gc.isenabled()
    assert len(create_schedule(function).linear.src) == 1


def test_every_pass_is_told_to_subscribers() -> None:
    names = []

    def listen(event: trace.Event) -> None:
        if isinstance(event, trace.PassEnded):
            names.append(event.name)

    with trace.subscribe(listen):
        build_schedule(memory.SINK(assign(param(0, (4,)), const(0.0, float32, (4,)))))
    assert [name for name in names if name.startswith("schedule.")][-6:] == [
        "schedule.prepare",
        "schedule.rangeify",
        "schedule.order",
        "schedule.layouts",
        "schedule.group",
        "schedule.assemble",
    ]


def test_a_contiguous_part_that_is_only_read_is_an_argument_of_its_own() -> None:
    x = buffer(1)
    rows, *_ = shape = sizes_of(x)

    def part(start: int) -> Node:
        bounds = ((start, start + 1, 1), *((0, size, 1) for size in shape[1:]))
        return tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(bounds))

    first, last = (
        transform_to_call([tensor.CONTIGUOUS(part(start))]) for start in (0, rows - 1)
    )  # fmt: skip
    assert first.function is last.function
    size = x.type.dtype.itemsize
    for dim in shape[1:]:
        size *= dim
    assert (first.parts, last.parts) == ({0: (0, size)}, {0: ((rows - 1) * size, size)})
    assert last.arguments == (x,)


def test_a_part_of_a_buffer_that_is_written_stays_a_view() -> None:
    x = buffer(1)
    bounds = tuple((0, size - 1 if axis == 0 else size, 1) for axis, size in enumerate(sizes_of(x)))
    part = tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(bounds))
    after = memory.AFTER(x, memory.STORE(x, math.ADD(x, x)))
    assert not transform_to_call([tensor.CONTIGUOUS(part), after]).parts


@pytest.mark.parametrize("threads", [1, 2, 7, 64])
def test_SCH_12_a_schedule_does_not_depend_on_the_number_of_threads(threads: int) -> None:
    function = memory.SINK(resnet(3))
    with settings.override(num_threads=3):
        wanted = build_schedule(function)
    with settings.override(num_threads=threads):
        found = build_schedule(function)
    assert found.linear is wanted.linear
    assert found.slots == wanted.slots
