"""Steps of a captured program that depend on constants alone: they need not run again.

A captured program holds buffers that it only reads: weights.  A step that reads nothing else (a
factor that is copied into rows that a copy engine takes, a cast of weights, their scale) gives the
same at every replay.  Here such steps are found, with those that read what they leave; they run
once, into memory of their own (`engine.prepack`).

A step is taken only if it writes an intermediate, each element of it once and without a condition,
and if everybody who reads the intermediate before it is written again reads all of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tilework.base.records import dataclass
from tilework.engine.kernels import written_slots
from tilework.engine.steps import FoldCall, PlannedCall, PlannedStep, operands_of
from tilework.ir.node import toposort
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.math import CONST
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.symbolic.sums import terms

if TYPE_CHECKING:
    from tilework.engine.steps import Operand
    from tilework.ir.node import Node

#: What is kept has no more bytes than the constants that it is made from, or so many: it stays as
#: long as the program.
_SMALL_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Hoisted:
    """Steps that run once, by their numbers, and who reads what they leave.

    Attributes:
        results: The positions of the operands that each one writes.
        readers: (number, position) of an operand of a later step: those of what makes it.
    """

    results: Mapping[int, tuple[int, ...]]
    readers: Mapping[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Access:
    """What a step does to bytes of an intermediate."""

    step: int
    position: int
    operand: Operand
    reads: bool
    writes: bool


def constant_steps(
    steps: Sequence[PlannedStep],
    constant: frozenset[int],
    intermediates: range,
    others: Container[int] = (),
) -> Hoisted:
    """Find the steps that depend on constants alone.

    Args:
        steps: The program.
        constant: The slots whose contents never change.
        intermediates: The slots of memory that nobody sees, and that steps use one after the other.
        others: The numbers of steps that stay where they are.
    """
    results: dict[int, tuple[int, ...]] = {}
    readers: dict[tuple[int, int], tuple[int, int]] = {}
    accesses: dict[int, list[_Access]] | None = None
    for number, step in enumerate(steps):
        if not isinstance(step, PlannedCall) or number in others:
            continue
        written = written_slots(step.kernel)
        sources = [place for place in range(len(step.operands)) if place not in written]
        is_constant = all(
            step.operands[place].slot in constant or (number, place) in readers for place in sources
        )
        if not sources or not is_constant or not _is_whole(step, written, sources, intermediates):
            continue
        if accesses is None:
            accesses = _accesses(steps, intermediates)
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for place in written:
            target = step.operands[place]
            mine = _readers_of(target, number, accesses[target.slot])
            if mine is None:
                break
            found.update(dict.fromkeys(mine, (number, place)))
        else:
            if found:
                results[number] = written
                readers.update(found)
    return Hoisted(results, readers)


def _is_whole(
    step: PlannedCall, written: Sequence[int], sources: Sequence[int], intermediates: range
) -> bool:
    """Whether a step writes intermediates alone, all of each, and not much more than it reads."""
    targets = [step.operands[place] for place in written]
    if any(target.slot not in intermediates for target in targets):
        return False
    read = sum(operand.size_bytes for operand in {step.operands[place] for place in sources})
    if sum(target.size_bytes for target in targets) > max(read, _SMALL_BYTES):
        return False
    return _fills(step.kernel, {place: step.operands[place].size_bytes for place in written})


def _fills(kernel: Node, sizes: Mapping[int, int]) -> bool:
    """Whether a kernel writes each element of arguments once, always, and reads none of them.

    Args:
        kernel: at the KERNEL stage.
        sizes: the bytes of each argument that it writes, by its slot.
    """
    filled: set[int] = set()
    for node in toposort(kernel):
        if node.op is FAULT_IF or (node.op is LOAD and _slot_of(node.src[0]) in sizes):
            return False
        if node.op is STORE:
            slot = _slot_of(node.src[0])
            if slot in filled or not _covers(node, sizes.get(slot, -1)):
                return False
            filled.add(slot)
    return filled == sizes.keys()


def _covers(store: Node, size_bytes: int) -> bool:
    """Whether a store without a condition gives each element of so many bytes one value."""
    if len(store.src) != 2 or store.src[0].op is not INDEX:
        return False
    constant, parts = terms(store.src[0].src[1])
    size = 1
    # Strides that are the products of the shorter ranges: each element has one place.
    for node, factor in sorted(parts.items(), key=lambda item: item[1]):
        if node.op is not RANGE or node.src[0].op is not CONST or factor != size:
            return False
        size *= int(node.src[0].attrs.bits)
    return constant == 0 and size * store.type.dtype.itemsize == size_bytes


def _slot_of(address: Node) -> int:
    while address.op is not PARAM and address.src:
        address = address.src[0]
    return int(address.attrs.slot) if address.op is PARAM else -1


def _accesses(steps: Sequence[PlannedStep], intermediates: range) -> dict[int, list[_Access]]:
    """By slot, what is done to intermediates, in order."""
    found: dict[int, list[_Access]] = {slot: [] for slot in intermediates}
    for number, step in enumerate(steps):
        for access in _accesses_of(number, step):
            if access.operand.slot in found:
                found[access.operand.slot].append(access)
    return found


def _accesses_of(number: int, step: PlannedStep) -> Iterator[_Access]:
    """What a step does, reads first."""
    operands = operands_of(step)
    if isinstance(step, PlannedCall):
        written = set(written_slots(step.kernel))
        read = {_slot_of(n.src[0]) for n in toposort(step.kernel) if n.op is LOAD}
        # What is neither is looked at in some other way, perhaps.
        read |= set(range(len(operands))) - written
    else:
        written = set(step.writes) if isinstance(step, FoldCall) else {0}
        read = set(range(len(operands))) - written
    for position in sorted(range(len(operands)), key=lambda place: place in written):
        yield _Access(number, position, operands[position], position in read, position in written)


def _readers_of(
    target: Operand, number: int, accesses: Sequence[_Access]
) -> list[tuple[int, int]] | None:
    """Who reads what a step has written there; None where that is not known of all of it."""
    found: list[tuple[int, int]] = []
    over: list[tuple[int, int]] = []  # bytes that others have written since
    start, stop = target.offset_bytes, target.offset_bytes + target.size_bytes
    for access in accesses:
        first = access.operand.offset_bytes
        last = first + access.operand.size_bytes
        if access.step <= number or last <= start or stop <= first:
            continue
        if access.reads and not any(low <= first and last <= high for low, high in over):
            is_all = (first, last) == (start, stop) and not access.writes
            if not is_all or any(low < stop and start < high for low, high in over):
                return None
            found.append((access.step, access.position))
        if access.writes:
            over.append((first, last))
            if first <= start and stop <= last:
                break
    return found
