"""Recording what a function computes, and turning it into one program that is run again.

    with capturing() as seen:              # in this execution context alone
        results = function(...)            # runs as usual; each engine run is seen as well
    program = seen.finish(inputs, outputs) # Buffers that each replay gets anew
    program.run(inputs, outputs, {"n": 3})

The kernels are those that the function has just run, so a replay gives the same bits.  Buffers
that the function found (weights, state) are held: read and written at their places.  What it made
and did not return lives in one arena, planned over the whole program (`engine.merging`), which
`engine.captured_program` runs.  `tensor.jit` knows tensors and decides when a program may be run
again; this module knows buffers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from tilework.base import faults, settings
from tilework.base.errors import CaptureError, InternalError
from tilework.engine import execute
from tilework.engine.captured_program import CapturedProgram
from tilework.engine.merging import ProgramBuilder, Run
from tilework.engine.overlap import contains, find_holder, share_a_byte
from tilework.engine.prepack import Copies, run_packed
from tilework.engine.steps import VariableBounds, written_slots
from tilework.schedule.schedule import SlotKind

if TYPE_CHECKING:
    from tilework.runtime.buffer import Buffer
    from tilework.schedule.schedule import Schedule


class Seen:
    """What one capture has seen so far."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._variables: dict[str, VariableBounds] = {}
        self.values: dict[str, int] = {}
        #: Names of variables whose values the function has looked at.
        self.pinned: set[str] = set()
        self._made: set[int] = set()
        #: Memory that a replay may find elsewhere, or changed: that of the arguments.
        self.arguments: list[Buffer] = []
        #: Whether what is found is taken for constant while the capture runs, since that is likely.
        self.trusts = True
        self._copies = Copies()
        #: Called around each run: whatever watches Python code need not see the compiler's.
        self.pause: Callable[[], AbstractContextManager[None]] = nullcontext

    def run_packed(
        self, plan: execute.Plan, slots: Sequence[Buffer], values: Mapping[str, int]
    ) -> bool:
        """Run what reads constants as the captured program will; see `execute.Recorder`.

        What is packed here holds for this run, whether or not it stays constant.
        """
        if not self.trusts or settings.current().validate:
            return False
        unsure = self._made | {id(buffer.memory) for buffer in self.arguments}
        written = [slots[slot] for slot in plan.written]
        constants = [
            None
            if id(buffer.memory) in unsure or any(share_a_byte(buffer, other) for other in written)
            else buffer
            for buffer in slots
        ]
        return run_packed(plan.steps, plan.variables, slots, constants, values, self._copies)

    def record(
        self,
        schedule: Schedule,
        plan: execute.Plan,
        slots: Sequence[Buffer],
        values: Mapping[str, int],
    ) -> None:
        """Note one run; see `execute.Recorder`."""
        for row in plan.variables:
            self._variables.setdefault(row.name, row)
            value = values[row.name]
            if self.values.setdefault(row.name, value) != value:
                raise CaptureError(
                    f"capture: the variable {row.name} has two values in one call",
                    field=row.name,
                    got=f"{self.values[row.name]} and {value}",
                    try_="use variables of different names",
                )
        kept = [
            None if slot.kind is SlotKind.ARENA else buffer
            for slot, buffer in zip(schedule.slots, slots, strict=True)
        ]
        for slot, buffer in zip(schedule.slots, kept, strict=True):
            if slot.kind is SlotKind.OUTPUT and buffer is not None:
                self._made.add(id(buffer.memory))
        self._runs.append(Run(plan.steps, schedule.slots, kept))

    def has_made(self, buffer: Buffer) -> bool:
        """Whether a run of this capture has made the memory of `buffer`."""
        return id(buffer.memory) in self._made

    def found(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """Return the buffers that runs read or wrote, and that are neither inputs nor made."""
        rows: dict[int, Buffer] = {}
        for run in self._runs:
            for slot, buffer in zip(run.slots, run.buffers, strict=True):
                if buffer is None or slot.kind is not SlotKind.INPUT:
                    continue
                if id(buffer.memory) in self._made or find_holder(inputs, buffer) is not None:
                    continue
                # The whole memory is held, since other parts of it may be used too.
                rows.setdefault(id(buffer.memory), buffer.base or buffer)
        return list(rows.values())

    def movable(self, ranges: Sequence[Buffer]) -> list[bool]:
        """Return for each range of memory whether a replay may use other memory in its place.

        That is so if everything that the runs touch in this memory is only read, and lies within
        exactly one of the ranges.
        """
        memories = {id(buffer.memory) for buffer in ranges}
        fixed: set[int] = set()
        for run in self._runs:
            written = written_slots(run.steps)
            for number, (slot, buffer) in enumerate(zip(run.slots, run.buffers, strict=True)):
                if buffer is None or slot.kind is not SlotKind.INPUT:
                    continue
                key = id(buffer.memory)
                if key in memories and key not in fixed:
                    inside = [r for r in ranges if r.memory is buffer.memory]
                    owners = sum(contains(range_, buffer) for range_ in inside)
                    if number in written or owners != 1:
                        fixed.add(key)
        return [id(buffer.memory) not in fixed for buffer in ranges]

    def finish(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> CapturedProgram:
        """Return the program that computes `outputs` from `inputs` again.

        Args:
            inputs: buffers that each replay gets anew; those that overlap must be only read.
            outputs: buffers made by the capture that each replay makes anew.

        Raises: AliasError when inputs overlap in part; InternalError when an output was not made
        here.
        """
        faults.hit("capture.finish")
        builder = ProgramBuilder(inputs, outputs, self.found(inputs), self._copies)
        for time, run in enumerate(self._runs):
            builder.add(time, run)
        return builder.build(tuple(self._variables[name] for name in sorted(self._variables)))


#: What is captured in this execution context.
active: Final[ContextVar[Seen | None]] = ContextVar("tilework_capture", default=None)


@contextmanager
def capturing() -> Iterator[Seen]:
    """See every run of this execution context while the block runs.

    Raises: InternalError inside another capture, which the caller must inline.
    """
    if active.get() is not None:
        raise InternalError("capture: a capture inside a capture")
    seen = Seen()
    token = active.set(seen)
    watcher = execute.recorder.set(seen)
    try:
        yield seen
    finally:
        execute.recorder.reset(watcher)
        active.reset(token)


def is_capturing() -> bool:
    """Whether this execution context captures."""
    return active.get() is not None


def refuse_host_read(what: str) -> None:
    """Refuse to hand a value to the host during a capture: a replay would not do it again.

    Raises: CaptureError.
    """
    if active.get() is not None:
        raise CaptureError(
            f"{what}: a value is read on the host inside a captured function",
            field=what,
            expected="a function whose Python code does not depend on values of tensors",
            try_="return the tensor and read it outside, or call the function without jit",
        )


def note_variable_read(name: str) -> None:
    """Note that Python code looks at the value of a variable: a capture then holds for it alone."""
    seen = active.get()
    if seen is not None:
        seen.pinned.add(name)
