"""The calls of a schedule as data: which kernel runs or what is copied, on which bytes of slots.

steps = planned_steps(schedule.linear, devices)      # nothing is compiled yet
steps = compile_steps(steps)                         # all kernels at once
variables = variables_of(schedule.linear)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import BoundsError, InternalError
from tilework.base.records import dataclass
from tilework.engine.compile import CompiledKernel, compile_kernels
from tilework.engine.device import Device
from tilework.engine.kernels import written_slots as written_parameters
from tilework.ir.node import Node, toposort
from tilework.ir.ops.index import VARIABLE
from tilework.ir.ops.memory import BUFFER_VIEW, PARAM, SINK
from tilework.ir.ops.multi import ALLREDUCE
from tilework.ir.ops.program import CALL
from tilework.ir.ops.tensor import COPY
from tilework.ir.symbolic import dims

if TYPE_CHECKING:
    from tilework.runtime.buffer import Buffer
    from tilework.schedule.schedule import SlotBytes

#: A kernel of fewer scalar operations stays on the calling thread.
SERIAL_WORK: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class Operand:
    """Bytes of a slot: what a kernel's buffer is, or one side of a copy."""

    slot: int
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch with its operands still as slots."""

    device: str
    code: CompiledKernel
    operands: tuple[Operand, ...]
    is_serial: bool
    kernel: Node | None = None  # what it was compiled from, where that is known


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A launch whose kernel need not be compiled yet."""

    device: str
    kernel: Node
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class CopyCall:
    """A copy of all bytes of one slot to another, between devices."""

    target_device: str
    source_device: str
    target: Operand
    source: Operand


@dataclass(frozen=True, slots=True)
class FoldCall:
    """What each of several devices has, folded to some of them by a library, all at once.

    `operands` are the results, each on the device of number `receivers[n]`, then the sources.
    """

    devices: tuple[str, ...]
    fold: str
    dtype: str
    operands: tuple[Operand, ...]
    receivers: tuple[int, ...]

    @property
    def writes(self) -> range:
        """The positions of the operands that are results."""
        return range(len(self.receivers))

    @property
    def results(self) -> tuple[Operand, ...]:
        """Where each receiver gets the fold."""
        return self.operands[: len(self.receivers)]

    @property
    def sources(self) -> tuple[Operand, ...]:
        """What each device has."""
        return self.operands[len(self.receivers) :]


@dataclass(frozen=True, slots=True)
class PoisonCall:
    """Fill bytes that hold nothing any more with a pattern; made by the setting `poison` alone."""

    device: str
    target: Operand


Step = KernelCall | CopyCall | FoldCall | PoisonCall
PlannedStep = PlannedCall | CopyCall | FoldCall | PoisonCall


def operands_of(step: Step | PlannedStep) -> tuple[Operand, ...]:
    """Return what a step touches; of a copy the target first."""
    if isinstance(step, PoisonCall):
        return (step.target,)
    return (step.target, step.source) if isinstance(step, CopyCall) else step.operands


def buffer_of(slots: Sequence[Buffer | None], slot: int) -> Buffer:
    """Return the buffer of a slot, which a run must have."""
    buffer = slots[slot]
    if buffer is None:
        raise InternalError("link: a slot has no buffer", got=slot)
    return buffer


def part_of(slots: Sequence[Buffer | None], operand: Operand) -> Buffer:
    """Return the bytes that an operand is."""
    buffer = buffer_of(slots, operand.slot)
    if operand.offset_bytes == 0 and operand.size_bytes == buffer.size_bytes:
        return buffer
    return buffer.view(operand.offset_bytes, operand.size_bytes)


@dataclass(frozen=True, slots=True)
class VariableBounds:
    """The inclusive bounds within which a variable may be bound."""

    name: str
    minimum: int
    maximum: int


def planned_steps(
    linear: Node, devices: Sequence[str], dead: Sequence[Sequence[SlotBytes]] = ()
) -> tuple[PlannedStep, ...]:
    """Return the calls of a LINEAR in order.

    Args:
        linear: LINEAR of CALLs over PARAM(slot) and BUFFER_VIEW(PARAM(slot)).
        devices: the device of each slot.
        dead: for each call the bytes to be poisoned after it; empty for no poison.

    Raises: InternalError for a call of an unknown kind, so that none is ever skipped.
    """
    steps: list[PlannedStep] = []
    for number, call in enumerate(linear.src):
        kind = _kind_of(call)
        operands = tuple([_operand(argument) for argument in call.src[1:]])
        device = _device_of(call, devices)
        if kind is SINK:
            steps.append(PlannedCall(device, call.src[0], operands))
        elif kind is ALLREDUCE:
            steps.append(_fold_call(call, operands, devices))
        else:
            target, source = operands
            steps.append(CopyCall(device, devices[source.slot], target, source))
        if dead:
            steps += [PoisonCall(devices[row[0]], Operand(*row)) for row in dead[number]]
    return tuple(steps)


def compile_steps(steps: Sequence[PlannedStep]) -> tuple[Step, ...]:
    """Compile the kernels of `steps`, all at once.  Raises what compiling raises."""
    wanted: dict[str, list[Node]] = {}
    for step in steps:
        if isinstance(step, PlannedCall):
            wanted.setdefault(step.device, []).append(step.kernel)
    compiled = {
        name: dict(zip(rows, compile_kernels(Device[name], rows), strict=True))
        for name, rows in wanted.items()
    }
    found: list[Step] = []
    for step in steps:
        if isinstance(step, PlannedCall):
            code = compiled[step.device][step.kernel]
            # A short kernel stays on the calling thread.
            is_serial = code.work < SERIAL_WORK
            found.append(KernelCall(step.device, code, step.operands, is_serial, step.kernel))
        else:
            found.append(step)
    return tuple(found)


def _fold_call(call: Node, operands: tuple[Operand, ...], devices: Sequence[str]) -> FoldCall:
    body = call.src[0]
    count = len(operands) - len(body.src)
    names = tuple([devices[operand.slot] for operand in operands[count:]])
    receivers = tuple([names.index(devices[operand.slot]) for operand in operands[:count]])
    return FoldCall(names, body.attrs.fold.value, body.type.dtype.name, operands, receivers)


def _kind_of(call: Node) -> Any:
    if call.op is CALL and call.src and call.src[0].op in (SINK, COPY, ALLREDUCE):
        if call.src[0].op is COPY and len(call.src) != 3:
            raise InternalError("link: a copy has a target and a source", got=repr(call))
        return call.src[0].op
    raise InternalError("link: this is no call that can be run", got=repr(call))


def _device_of(call: Node, devices: Sequence[str]) -> str:
    if len(call.src) < 2:
        raise InternalError("link: a call without buffers", got=repr(call))
    return devices[_operand(call.src[1]).slot]


def _operand(argument: Node) -> Operand:
    offset = 0
    base = argument
    if base.op is BUFFER_VIEW:
        offset = base.attrs.offset_bytes
        base = base.src[0]
    if base.op is not PARAM:
        raise InternalError("link: an argument is neither a slot nor a part of one", got=repr(base))
    count = dims.greatest(dims.product(argument.type.shape))
    return Operand(base.attrs.slot, offset, count * argument.type.dtype.itemsize)


def variables_of(*roots: Node) -> tuple[VariableBounds, ...]:
    """Return the variables below `roots`, also in the sizes of shapes, by name.

    Raises: InternalError when one name has different bounds.
    """
    found: dict[str, VariableBounds] = {}
    seen: set[Node] = set()
    waiting = list(roots)
    while waiting:
        for node in toposort(waiting.pop()):
            if node in seen:
                continue
            seen.add(node)
            if node.op is VARIABLE:
                row = VariableBounds(node.attrs.name, node.attrs.minimum, node.attrs.maximum)
                if found.setdefault(row.name, row) != row:
                    raise InternalError(
                        "link: a variable has two ranges", got=f"{row} and {found[row.name]}"
                    )
            waiting.extend(
                size for size in node.type.shape if not isinstance(size, int) and size not in seen
            )
    return tuple(found[name] for name in sorted(found))


def check_variables(bounds: Sequence[VariableBounds], values: Mapping[str, int]) -> None:
    """Refuse values that are missing or out of range.  Raises: BoundsError."""
    for row in bounds:
        value = values.get(row.name)
        if value is None:
            raise BoundsError(
                f"variable {row.name}: it has no value in this call",
                expected=f"an integer in [{row.minimum}, {row.maximum}]",
                try_=f"bind it: {row.name}.bind(...)",
            )
        if not row.minimum <= value <= row.maximum:
            raise BoundsError(
                f"variable {row.name}: the value is out of range",
                got=value,
                expected=f"an integer in [{row.minimum}, {row.maximum}]",
            )


def written_slots(steps: Sequence[Step | PlannedStep]) -> frozenset[int]:
    """Return the slots that steps store to."""
    found: set[int] = set()
    for step in steps:
        if isinstance(step, KernelCall):
            found.update(step.operands[position].slot for position in step.code.writes)
        elif isinstance(step, PlannedCall):
            writes = written_parameters(step.kernel)
            found.update(step.operands[position].slot for position in writes)
        elif isinstance(step, FoldCall):
            found.update(operand.slot for operand in step.results)
        else:
            found.add(step.target.slot)
    return frozenset(found)
