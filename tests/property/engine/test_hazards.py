"""Hazards byte by byte, and waits of queues against devices that finish whenever they like."""

from collections.abc import Hashable, Sequence
from random import Random

import pytest

from tilework.engine.hazards import Access, HazardTracker, QueuedStep, plan_waits
from tilework.schedule.memory_plan import Lifetime, plan_memory

BYTES = 24


def random_accesses(random: Random, memories: int = 2) -> tuple[Access, ...]:
    found = []
    for _ in range(random.randint(1, 3)):
        start = random.randrange(BYTES)
        end = random.randint(start, BYTES)  # empty ranges too
        found.append(Access(random.randrange(memories), start, end, random.random() < 0.5))
    return tuple(found)


class ByteModel:
    """Each byte by itself: its last writer and the readers since then."""

    def __init__(self) -> None:
        self.writer: dict[tuple[Hashable, int], int] = {}
        self.readers: dict[tuple[Hashable, int], set[int]] = {}
        self.count = 0

    def add(self, accesses: Sequence[Access]) -> set[int]:
        step, found = self.count, set[int]()
        self.count += 1
        touched = [(a, (a.memory, at)) for a in accesses for at in range(a.start, a.end)]
        for access, byte in touched:
            if byte in self.writer:
                found.add(self.writer[byte])
            if access.writes:
                found |= self.readers.get(byte, set())
        for access, byte in touched:
            if not access.writes:
                self.readers.setdefault(byte, set()).add(step)
        for access, byte in touched:
            if access.writes:
                self.writer[byte] = step
                self.readers[byte] = set()
        return found - {step}


def check_tracker(sequences: int, seed: int) -> None:
    random = Random(seed)
    for _ in range(sequences):
        tracker, model = HazardTracker(), ByteModel()
        for _ in range(random.randint(1, 12)):
            accesses = random_accesses(random)
            assert tracker.add(accesses) == model.add(accesses)


def test_EXE_18_hazards_are_exact_to_the_byte() -> None:
    check_tracker(3000, 1)


@pytest.mark.slow
def test_EXE_18_a_million_sequences_are_exact_to_the_byte() -> None:
    check_tracker(1_000_000, 2)


def test_EXE_18_neighbours_do_not_wait_for_each_other() -> None:
    tracker = HazardTracker()
    assert tracker.add([Access("a", 0, 16, True)]) == frozenset()
    assert tracker.add([Access("a", 16, 32, True)]) == frozenset()
    assert tracker.add([Access("b", 0, 16, True)]) == frozenset()
    assert tracker.add([Access("a", 15, 17, False)]) == {0, 1}
    assert tracker.add([Access("a", 0, 8, True)]) == {0}
    assert tracker.add([Access("a", 8, 16, True)]) == {0, 3}


# ---- queues


class Violation(Exception):
    """A step began before one that it depends on was done."""


def simulate(
    steps: Sequence[QueuedStep], waits: Sequence[dict[Hashable, int]], random: Random
) -> None:
    """Run queues whose steps take as long as an adversary likes, and watch every hazard.

    An adversary picks, at each moment, which of the steps that may begin begins next, or which of
    those that run ends next; hazards are judged byte by byte, with a model of its own.
    """
    model = ByteModel()
    before = [model.add(step.accesses) for step in steps]
    queues: dict[Hashable, list[int]] = {}
    for number, step in enumerate(steps):
        queues.setdefault(step.queue, []).append(number)
    done = dict.fromkeys(queues, 0)
    running: dict[Hashable, int] = {}
    finished: set[int] = set()
    while len(finished) < len(steps):
        choices: list[tuple[str, Hashable]] = [("end", queue) for queue in running]
        for queue, order in queues.items():
            if queue in running or done[queue] == len(order):
                continue
            number = order[done[queue]]
            if all(done[other] >= count for other, count in waits[number].items()):
                choices.append(("begin", queue))
        assert choices, "the queues wait for each other"
        kind, queue = random.choice(choices)
        if kind == "end":
            finished.add(running.pop(queue))
            done[queue] += 1
            continue
        number = queues[queue][done[queue]]
        if not before[number] <= finished:
            raise Violation(f"step {number} began before {before[number] - finished}")
        running[queue] = number


def surely_before(
    steps: Sequence[QueuedStep], waits: Sequence[dict[Hashable, int]]
) -> list[set[int]]:
    """For each step the ones that are done when it begins, by the queues' order and the waits."""
    members: dict[Hashable, list[int]] = {}
    found: list[set[int]] = []
    for number, step in enumerate(steps):
        own = members.setdefault(step.queue, [])
        direct = own[-1:] + [members[queue][count - 1] for queue, count in waits[number].items()]
        found.append(set(direct).union(*[found[each] for each in direct]))
        own.append(number)
    return found


def is_ordered(steps: Sequence[QueuedStep], waits: Sequence[dict[Hashable, int]]) -> bool:
    """Whether each hazard of each byte is ordered, whatever the queues do."""
    model = ByteModel()
    return all(
        model.add(step.accesses) <= sure
        for step, sure in zip(steps, surely_before(steps, waits), strict=True)
    )


def unneeded_waits(steps: Sequence[QueuedStep], waits: Sequence[dict[Hashable, int]]) -> int:
    """How many waits could be left out, one at a time, with all hazards still in order."""
    found = 0
    for number, row in enumerate(waits):
        for queue in row:
            fewer = [dict(one) for one in waits]
            del fewer[number][queue]
            found += is_ordered(steps, fewer)
    return found


QUEUES = [(device, kind) for device in range(3) for kind in ("compute", "copy")]


def random_steps(random: Random) -> list[QueuedStep]:
    return [
        QueuedStep(random.choice(QUEUES), random_accesses(random, memories=4))
        for _ in range(random.randint(2, 16))
    ]


def check_queues(graphs: int, seed: int) -> None:
    random = Random(seed)
    for _ in range(graphs):
        steps = random_steps(random)
        waits = plan_waits(steps)
        for _ in range(4):
            simulate(steps, waits, random)


def test_EXE_19_waits_order_every_hazard_however_long_steps_take() -> None:
    check_queues(600, 3)


@pytest.mark.slow
def test_EXE_19_waits_order_every_hazard_of_many_graphs() -> None:
    check_queues(100_000, 4)


def test_EXE_19_a_wait_that_is_left_out_is_caught() -> None:
    """The simulator itself: without one wait, some graph and some adversary break a hazard."""
    random = Random(5)
    caught = tried = 0
    for _ in range(300):
        steps = random_steps(random)
        waits = plan_waits(steps)
        for number, row in enumerate(waits):
            for queue in row:
                fewer = [dict(one) for one in waits]
                del fewer[number][queue]
                tried += 1
                try:
                    for _ in range(12):
                        simulate(steps, fewer, random)
                except Violation:
                    caught += 1
    assert tried > 300
    assert caught > 0.9 * tried  # nearly every wait is needed: what is not needed was left out


def test_EXE_19_waits_are_enough_and_none_can_be_left_out() -> None:
    """Exactly, by what is reachable, instead of by adversaries that may miss an order."""
    random = Random(8)
    waited = 0
    for _ in range(1500):
        steps = random_steps(random)
        waits = plan_waits(steps)
        waited += sum(map(len, waits))
        assert is_ordered(steps, waits)
        assert not unneeded_waits(steps, waits)
    assert waited > 3000


def test_EXE_19_one_queue_waits_for_nothing() -> None:
    random = Random(6)
    steps = [QueuedStep("only", random_accesses(random)) for _ in range(40)]
    assert plan_waits(steps) == [{}] * 40


def test_EXE_19_only_the_latest_step_of_a_queue_is_waited_for() -> None:
    write = [QueuedStep("a", (Access("m", at, at + 1, True),)) for at in range(5)]
    read = QueuedStep("b", (Access("m", 0, 5, False),))
    again = QueuedStep("b", (Access("m", 2, 3, False),))
    assert plan_waits([*write, read, again])[5:] == [{"a": 5}, {}]


def check_arenas(programs: int, seed: int) -> None:
    """Buffers that share arena bytes, on several queues: the plan's order of reuse is kept."""
    random = Random(seed)
    for _ in range(programs):
        count = random.randint(2, 12)
        lives, makers = [], []
        for _ in range(random.randint(2, 8)):
            first = random.randrange(count)
            last = random.randint(first, min(first + 2, count - 1))  # freed at once: no extra hold
            lives.append(Lifetime(("CPU", 0), random.choice([100, 256, 700]), first, last))
            makers.append(first)
        plan = plan_memory(lives)
        steps = []
        for time in range(count):
            accesses = [
                Access("arena", offset, offset + life.size_bytes, life.first == time)
                for life, offset in zip(lives, plan.offsets, strict=True)
                if life.first <= time <= life.last
            ]
            steps.append(QueuedStep(random.choice(QUEUES), tuple(accesses)))
        waits = plan_waits(steps)
        for _ in range(4):
            simulate(steps, waits, random)


def test_MPL_05_reuse_of_arena_bytes_is_ordered_by_hazards_alone() -> None:
    check_arenas(60, 7)
