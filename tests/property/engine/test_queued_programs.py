"""Random programs of kernels and copies over three cards whose work is done early or late."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from random import Random

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards
from tests.property.engine.test_hazards import is_ordered, unneeded_waits

from tilework import Tensor, jit
from tilework.dtypes import int32
from tilework.engine import queued
from tilework.engine.device import Device
from tilework.engine.hazards import QueuedStep, plan_waits
from tilework.engine.link import LinkedSteps
from tilework.engine.steps import CopyCall, Operand, PlannedCall, PlannedStep, compile_steps
from tilework.ir.build import const, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.runtime import reclaim
from tilework.testing.emulators.cuda import EmulatedCuda, Span

CARDS = ("CUDA", "CUDA:1", "CUDA:2")
ELEMENTS = 24  # of each slot
LENGTHS = (4, 7, 12)
#: Slots of each card: a buffer, two views of another one that share bytes, and an arena.
KINDS = 4
TEMPORARY = frozenset(range(KINDS - 1, KINDS * len(CARDS), KINDS))
Plans = list[tuple[list[QueuedStep], list[dict[Hashable, int]]]]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_cards(monkeypatch, cards=len(CARDS)) as found:
        yield found
        gc.collect()
        reclaim.run()


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    """Every plan of waits that the engine makes."""
    found: Plans = []

    def noted(steps: Sequence[QueuedStep]) -> list[dict[Hashable, int]]:
        waits = plan_waits(steps)
        found.append((list(steps), waits))
        return waits

    monkeypatch.setattr(queued, "plan_waits", noted)
    return found


def kernel(length: int) -> Node:
    """out = 3 a + b + 1, element by element."""
    i = RANGE(const_index(length), attrs=RangeAttrs(0))
    out, a, b = (INDEX(PARAM(attrs=ParamAttrs(slot, (length,), int32)), i) for slot in range(3))
    tripled = math.MUL(LOAD(a), const(3, int32))
    return SINK(STORE(out, math.ADD(math.ADD(tripled, LOAD(b)), const(1, int32))))


KERNELS = {length: kernel(length) for length in LENGTHS}


class Memory:
    """The slots of all cards: on the cards, and as a model that runs step by step."""

    def __init__(self, choose: Random) -> None:
        self.slots = []
        self.model: list[np.ndarray] = []
        for card in CARDS:
            device = Device[card]
            bases = [np.array(choose.choices(range(1 << 30), k=count), np.int32) for count in
                     (ELEMENTS, 2 * ELEMENTS, ELEMENTS)]  # fmt: skip
            buffers = []
            for base in bases:
                buffer = device.allocate(base.nbytes)
                device.copy_in(buffer, base.data)
                buffers.append(buffer)
            shared, size, shift = buffers[1], 4 * ELEMENTS, 10
            views = [shared.view(0, size), shared.view(4 * shift, size)]
            self.slots += [buffers[0], *views, buffers[2]]
            self.model += [
                bases[0], bases[1][:ELEMENTS], bases[1][shift : shift + ELEMENTS], bases[2]
            ]  # fmt: skip

    def part(self, operand: Operand) -> np.ndarray:
        first = operand.offset_bytes // 4
        return self.model[operand.slot][first : first + operand.size_bytes // 4]

    def do(self, step: PlannedStep) -> None:
        """What a step means, at once."""
        if isinstance(step, CopyCall):
            self.part(step.target)[:] = self.part(step.source)
        elif isinstance(step, PlannedCall):
            out, a, b = (self.part(operand) for operand in step.operands)
            out[:] = a * np.int32(3) + b + np.int32(1)

    def overlap(self, one: Operand, other: Operand) -> bool:
        return np.may_share_memory(self.part(one), self.part(other))

    def check(self) -> None:
        """Compare all but the arenas, whose contents nobody reads after a program."""
        for slot, (buffer, expected) in enumerate(zip(self.slots, self.model, strict=True)):
            if slot % KINDS != KINDS - 1:
                found = np.empty(ELEMENTS, np.int32)
                Device[buffer.device].copy_out(buffer, found.data)
                assert np.array_equal(found, expected), slot


def operand(choose: Random, card: int, length: int) -> Operand:
    slot = card * KINDS + choose.randrange(KINDS)
    return Operand(slot, 4 * choose.randrange(ELEMENTS - length + 1), 4 * length)


def holds_something(written: set[tuple[int, int]], read: Operand) -> bool:
    """Whether what is read is no arena, or all of it was written before by the same program."""
    if read.slot not in TEMPORARY:
        return True
    bytes_read = range(read.offset_bytes, read.offset_bytes + read.size_bytes)
    return all((read.slot, at) in written for at in bytes_read)


def random_program(choose: Random, memory: Memory) -> list[PlannedStep]:
    steps: list[PlannedStep] = []
    written: set[tuple[int, int]] = set()

    def add(step: PlannedStep, target: Operand) -> None:
        steps.append(step)
        end = target.offset_bytes + target.size_bytes
        written.update((target.slot, at) for at in range(target.offset_bytes, end))

    while len(steps) < 4 or choose.random() < 0.9:
        length = choose.choice(LENGTHS)
        if choose.random() < 0.45:
            card, other = choose.sample(range(len(CARDS)), 2)
            target, source = operand(choose, card, length), operand(choose, other, length)
            if holds_something(written, source):
                add(CopyCall(CARDS[card], CARDS[other], target, source), target)
            continue
        card = choose.randrange(len(CARDS))
        out, a, b = (operand(choose, card, length) for _ in range(3))
        # A kernel may write in place, but not beside what it reads.
        if all(
            holds_something(written, each) and (each == out or not memory.overlap(out, each))
            for each in (a, b)
        ):
            add(PlannedCall(CARDS[card], KERNELS[length], (out, a, b)), out)
    return steps


def run_programs(library: EmulatedCuda, plans: Plans, seed: int) -> int:
    """Two programs over the same memory, the first run twice; returns the waits that were made."""
    choose = Random(seed)
    memory = Memory(choose)
    programs = [random_program(choose, memory) for _ in range(2)]
    linked = [LinkedSteps(compile_steps(steps), (), TEMPORARY) for steps in programs]
    plans.clear()
    with library.late(choose if seed % 3 else None):
        for number in (0, 1, 0):
            linked[number].run(memory.slots, {})
            for step in programs[number]:
                memory.do(step)
        memory.check()
    for steps, waits in plans:
        assert is_ordered(steps, waits)
        assert not unneeded_waits(steps, waits)
    return sum(len(row) for _, waits in plans for row in waits)


@pytest.mark.parametrize("part", range(4))
def test_EXE_18_EXE_19_random_programs_over_cards_keep_every_hazard_in_order(
    library: EmulatedCuda, plans: Plans, part: int
) -> None:
    assert sum(run_programs(library, plans, seed) for seed in range(30 * part, 30 * part + 30)) > 60


@pytest.mark.slow
def test_EXE_18_EXE_19_two_thousand_programs_over_cards_keep_every_hazard_in_order(
    library: EmulatedCuda, plans: Plans
) -> None:
    for seed in range(1000, 3000):
        run_programs(library, plans, seed)


def test_EXE_19_a_wait_that_is_left_out_gives_wrong_numbers_on_cards(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge itself: cards without one of the waits compute something else now and then."""
    caught = tried = 0
    for seed in range(40):
        choose = Random(seed)
        dropped: list[bool] = []

        def careless(steps: Sequence[QueuedStep], choose: Random = choose, dropped: list[bool] =
                     dropped) -> list[dict[Hashable, int]]:  # fmt: skip
            waits = plan_waits(steps)
            places = [(number, queue) for number, row in enumerate(waits) for queue in row]
            if places:
                number, queue = choose.choice(places)
                del waits[number][queue]
                dropped.append(True)
            return waits

        monkeypatch.setattr(queued, "plan_waits", careless)
        memory = Memory(choose)
        steps = random_program(choose, memory)
        linked = LinkedSteps(compile_steps(steps), (), TEMPORARY)
        with library.late(choose if seed % 3 else None):
            linked.run(memory.slots, {})
            for step in steps:
                memory.do(step)
            try:
                memory.check()
            except AssertionError:
                caught += 1
                assert dropped
        tried += bool(dropped)
    assert tried > 20
    assert caught > tried // 8


def random_tensors(choose: Random, given: Sequence[Tensor]) -> list[Tensor]:
    """Intermediates that die at various times, moved from card to card."""
    values = list(given)
    for _ in range(choose.randint(4, 10)):
        value = choose.choice(values[-4:])
        if choose.random() < 0.5:
            made = value.to(choose.choice(CARDS))
        else:
            other = choose.choice(values).to(value.device)
            made = (value * 3 + other.flip(0)).contiguous() if choose.random() < 0.6 else (
                value.cumsum(0) - other
            ).contiguous()  # fmt: skip
        values.append(made)
    return values[-3:]


def model_of(choose: Random, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same choices as `random_tensors`, in NumPy."""
    values = list(given)
    for _ in range(choose.randint(4, 10)):
        value = choose.choice(values[-4:])
        if choose.random() < 0.5:
            choose.choice(CARDS)
            made = value
        else:
            other = choose.choice(values)
            made = value * np.int32(3) + other[::-1] if choose.random() < 0.6 else (
                value.cumsum(0, dtype=np.int32) - other
            )  # fmt: skip
        values.append(made)
    return values[-3:]


@pytest.mark.parametrize("seed", range(12))
def test_MPL_05_EXE_19_arenas_of_programs_over_cards_are_reused_in_order(
    library: EmulatedCuda, plans: Plans, seed: int
) -> None:
    choose = Random(seed)
    rows = [np.array(choose.choices(range(1 << 20), k=40), np.int32) for _ in range(3)]
    expected = model_of(Random(seed), rows)
    captured = jit(lambda *given: random_tensors(Random(seed), given))
    with library.late(choose):
        for call in range(5):
            given = [Tensor(row, device=card) for row, card in zip(rows, CARDS, strict=True)]
            made = captured(*given) if call else random_tensors(Random(seed), given)
            for found, wanted in zip(made, expected, strict=True):
                assert np.array_equal(found.numpy(), wanted)
    for steps, waits in plans:
        assert is_ordered(steps, waits)


@pytest.mark.parametrize("seed", range(12))
def test_BKE_10_memory_that_is_freed_waits_for_its_last_use_on_every_card(
    library: EmulatedCuda, seed: int
) -> None:
    """Each step runs by itself, and what is freed goes to new tensors while copies are late."""
    choose = Random(seed)
    values: list[tuple[Tensor, np.ndarray]] = []
    addresses: set[tuple[str, int]] = set()
    reused = 0
    with library.late(choose if seed % 3 else None):
        for _ in range(60):
            kind = choose.random()
            if kind < 0.3 or len(values) < 3:
                row = np.array(choose.choices(range(1 << 20), k=64), np.int32)
                made = Tensor(row, device=choose.choice(CARDS)).realize(), row
            elif kind < 0.65:
                value, model = choose.choice(values)
                made = value.to(choose.choice(CARDS)).realize(), model
            else:
                (value, model), (other, second) = choose.choices(values, k=2)
                moved = other.to(value.device)
                made = (value * 3 - moved).realize(), model * np.int32(3) - second
            buffer = made[0]._storage.version.buffer
            assert buffer is not None
            place = (buffer.device, buffer.address)
            reused += place in addresses
            addresses.add(place)
            values.append(made)
            while len(values) > choose.randint(3, 6):
                values.pop(choose.randrange(len(values) - 1))
        for value, model in values:
            assert np.array_equal(value.numpy(), model)
    assert reused > 5


def spans_of(library: EmulatedCuda, call: Callable[[], Sequence[Tensor]]) -> list[Span]:
    """The kernels and copies of one call, when all that came before is done."""
    for card in CARDS:
        Device[card].synchronize()
    library.timeline.clear()
    made = call()
    found = list(library.timeline)
    for each in made:
        each.numpy()
    return found


def overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def test_MDV_13_a_copy_runs_beside_kernels_that_do_not_need_it(library: EmulatedCuda) -> None:
    x = Tensor(np.arange(64, dtype=np.int32), device=CARDS[1]).realize()
    y = Tensor(np.arange(64, dtype=np.int32), device=CARDS[0]).realize()

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        moved = x.to(CARDS[0])
        for _ in range(4):
            y = (y * 3 + y.flip(0)).contiguous()
        return moved, y

    step = jit(program)
    for _ in range(3):
        step(x, y)
    spans = spans_of(library, lambda: step(x, y))
    copies = [span for span in spans if span.what == "copy_between_cards"]
    kernels = [span for span in spans if span.what == "kernel"]
    assert len(copies) == 1
    assert len(kernels) >= 4
    assert any(overlap(copies[0], kernel) for kernel in kernels)
    assert {copies[0].stream}.isdisjoint(kernel.stream for kernel in kernels)
    # All together takes no longer than the kernels alone.
    first, last = min(span.start for span in spans), max(span.end for span in spans)
    assert last - first == len(kernels)


def test_MDV_13_a_kernel_waits_for_the_copy_that_it_needs_and_for_no_other(
    library: EmulatedCuda,
) -> None:
    x = Tensor(np.arange(64, dtype=np.int32), device=CARDS[1]).realize()
    z = Tensor(np.arange(64, dtype=np.int32), device=CARDS[2]).realize()

    def program(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        moved, other = x.to(CARDS[0]), z.to(CARDS[1])
        again = (moved * 3 + moved.flip(0)).contiguous()
        return again, other, moved

    step = jit(program)
    for _ in range(3):
        step(x, z)
    spans = spans_of(library, lambda: step(x, z))
    copies = [span for span in spans if span.what == "copy_between_cards"]
    (kernel,) = [span for span in spans if span.what == "kernel"]
    assert len(copies) == 2
    assert overlap(*copies)  # they are of different cards
    assert kernel.start == min(copy.end for copy in copies)
