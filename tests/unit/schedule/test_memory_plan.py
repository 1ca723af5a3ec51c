"""The memory plan: no two live buffers overlap, and little is wasted."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from tests.property.schedule.schedule_graphs import check, random_value
from tests.unit.schedule.schedule_builders import (
    assign,
    like,
    param,
    reduce,
    resnet,
    schedule,
    softmax,
)

from tilework.dtypes import int32, uint8
from tilework.ir.node import Node
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.index import VARIABLE, VariableAttrs
from tilework.schedule import memory_plan
from tilework.schedule.free_space import BLOCK
from tilework.schedule.memory_plan import Lifetime, live_bytes, plan_memory
from tilework.schedule.schedule import SlotKind

ARENAS = st.sampled_from([("CPU", 0), ("CPU", 1), ("CUDA:0", 0)])
LIVES = st.lists(
    st.builds(
        lambda arena, size, first, more: Lifetime(arena, size, first, first + more),
        ARENAS,
        st.integers(0, 5000),
        st.integers(0, 12),
        st.integers(0, 6),
    ),
    max_size=30,
)


def overlaps(lives: list[Lifetime], offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    found = []
    for a in range(len(lives)):
        for b in range(a):
            x, y = lives[a], lives[b]
            together = x.arena == y.arena and x.first <= y.last and y.first <= x.last
            bytes_meet = (
                offsets[a] < offsets[b] + y.size_bytes and offsets[b] < offsets[a] + x.size_bytes
            )
            if together and bytes_meet:
                found.append((a, b))
    return found


@given(LIVES)
def test_MPL_01_buffers_that_live_at_one_call_never_overlap(lives: list[Lifetime]) -> None:
    plan = plan_memory(lives)
    assert overlaps(lives, plan.offsets) == []


@given(LIVES)
def test_MPL_03_offsets_and_arenas_are_whole_blocks_and_hold_their_buffers(
    lives: list[Lifetime],
) -> None:
    plan = plan_memory(lives)
    assert all(offset % BLOCK == 0 for offset in plan.offsets)
    assert all(size % BLOCK == 0 for size in plan.arena_bytes.values())
    for life, offset in zip(lives, plan.offsets, strict=True):
        assert offset + life.size_bytes <= plan.arena_bytes[life.arena]


@given(LIVES)
def test_MPL_08_a_plan_is_never_larger_than_all_buffers_together(lives: list[Lifetime]) -> None:
    plan = plan_memory(lives)
    whole = sum(memory_plan.rounded(life.size_bytes) for life in lives)
    assert sum(plan.arena_bytes.values()) <= whole


@given(LIVES)
def test_MPL_09_equal_lifetimes_give_equal_plans(lives: list[Lifetime]) -> None:
    assert plan_memory(lives) == plan_memory(list(lives))


def test_MPL_08_a_network_needs_little_more_than_what_lives_at_once() -> None:
    made = schedule(resnet(12))
    planned = made.arena_bytes
    views: dict[tuple[int, int], list[int]] = {}
    for number, call in enumerate(made.linear.src):
        for argument in call.src[1:]:
            if argument.op is memory.BUFFER_VIEW:
                key = (argument.attrs.offset_bytes, number)
                views.setdefault(key, []).append(number)
    live = max(
        sum(
            memory_plan.rounded(28 * 28 * 16 * 4)
            for argument in call.src[1:]
            if argument.op is memory.BUFFER_VIEW
        )
        for call in made.linear.src
    )
    assert planned <= 1.1 * live


@given(LIVES)
def test_MPL_08_the_lower_bound_is_one(lives: list[Lifetime]) -> None:
    one_arena = [Lifetime(("CPU", 0), x.size_bytes, x.first, x.last) for x in lives]
    plan = plan_memory(one_arena)
    assert sum(plan.arena_bytes.values()) >= live_bytes(one_arena)


def chain(count: int) -> Node:
    x = param(0, (64, 64))
    for _ in range(count):
        x = math.SUB(softmax(x), tensor.FLIP(x, attrs=tensor.AxesAttrs((0,))))
        x = tensor.CONTIGUOUS(x)
    return x


def test_a_chain_of_intermediates_reuses_their_memory() -> None:
    made = schedule(chain(12))
    assert len(made.linear.src) >= 12
    assert made.arena_bytes <= 3 * 64 * 64 * 4


def test_MPL_02_a_bitcast_keeps_its_source_alive() -> None:
    x = param(0, (64,), int32)
    y = tensor.CONTIGUOUS(math.NEG(x))
    z = tensor.CONTIGUOUS(math.MUL(tensor.FLIP(y, attrs=tensor.AxesAttrs((0,))), x))
    narrow = math.BITCAST(y, attrs=math.CastAttrs(uint8))
    total = math.ADD(z, reduce_to(narrow))
    check([total], {x: random_value(random.Random(1), (64,), int32)})


def reduce_to(narrow: Node) -> Node:
    wide = math.CAST(narrow, attrs=math.CastAttrs(int32))
    rows = tensor.RESHAPE(wide, attrs=tensor.ShapeAttrs((64, 4)))
    return reduce(rows, 1)


def test_MPL_04_copies_have_an_arena_of_their_own() -> None:
    x = param(0, (64,), int32)
    doubled = math.ADD(x, x)
    moved = tensor.COPY(doubled, attrs=tensor.DeviceAttrs("CUDA:1"))
    made = schedule(reduce(math.NEG(moved), 0), reduce(tensor.CONTIGUOUS(math.MUL(x, x)), 0))
    arenas = [slot for slot in made.slots if slot.kind is SlotKind.ARENA]
    assert sorted(slot.device for slot in arenas) == ["CPU", "CPU", "CUDA:1"]


def test_inputs_and_outputs_are_never_in_an_arena() -> None:
    x = param(0, (64,))
    state = param(1, (64,))
    y = math.EXP(x)
    made = schedule(y, assign(state, math.ADD(state, y)), math.ADD(y, like(1.0, y)))
    for slot in made.outputs:
        assert made.slots[slot].kind is not SlotKind.ARENA
    assert made.arena_bytes == 0


def test_MPL_13_a_symbolic_size_takes_the_memory_of_its_maximum() -> None:
    n = VARIABLE(attrs=VariableAttrs("n", 1, 100))
    x = memory.PARAM(attrs=memory.ParamAttrs(0, (n, 16), int32, "CPU"))
    made = schedule(math.ADD(x, x))
    assert [slot.size_bytes for slot in made.slots] == [6400, 6400]


def test_each_device_and_lane_is_planned_alone() -> None:
    lives = [
        Lifetime(("CPU", 0), 1000, 0, 1),
        Lifetime(("CPU", 1), 300, 0, 1),
        Lifetime(("CUDA:0", 0), 500, 0, 1),
        Lifetime(("CUDA:1", 0), 700, 0, 1),
    ]
    plan = plan_memory(lives)
    assert plan.arena_bytes == {
        ("CPU", 0): 1024, ("CPU", 1): 512, ("CUDA:0", 0): 512, ("CUDA:1", 0): 768,
    }  # fmt: skip
    assert plan.offsets == (0, 0, 0, 0)
