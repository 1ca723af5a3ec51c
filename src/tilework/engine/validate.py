"""Running each kernel twice, and comparing: which kernel is it that computes something else?

    with override(validate=True):       # or TILEWORK_VALIDATE=1: every run, the first fault raises
        model(x)
    print(step.validate(x))             # one call of a jit, kernel by kernel

A kernel runs on its device, then the interpreter of the IR runs it on copies of the same operands.
So a fault is found where it arises, and not where it is seen.  What is too long for the interpreter
is compiled a second time without a plan: plain loops, in which no tile can be wrong.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilework import dtypes
from tilework.base import settings
from tilework.base.errors import InternalError
from tilework.base.records import dataclass, replace
from tilework.base.text import plural
from tilework.engine.compile import compile_kernels, compile_without_plan
from tilework.engine.device import Device
from tilework.engine.kernels import scan_words
from tilework.engine.link import LinkedSteps
from tilework.engine.steps import KernelCall, Operand, PoisonCall, Step
from tilework.ir.node import Node, toposort
from tilework.ir.ops.memory import PARAM

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.runtime.buffer import Buffer

#: Longer kernels are compared with their plain form instead of being interpreted.
MOST_INTERPRETED: Final = 1 << 18
#: How many units in the last place of the greatest result may be between two results: functions
#: are approximated differently, and other modes than strict also round sums in another order.
_UNITS: Final = {"strict": 64, "contract": 256, "fast": 4096}
_FORMATS: Final = {"float64": "d", "float32": "f", "float16": "e"}


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a kernel and its reference differ most.

    Attributes:
        number: Of the step.
        kernel: Its name.
        device: Where it ran.
        reference: What it was compared with.
        operand: The position of the result among its buffers.
        element: The first element that differs.
        got: What the kernel has stored there.
        expected: What the reference has stored.
        count: How many elements differ.
        text: The kernel as IR.
    """

    number: int
    kernel: str
    device: str
    reference: str
    operand: int
    element: int
    got: float
    expected: float
    count: int
    text: str

    def __str__(self) -> str:
        """One line."""
        return (
            f"step {self.number}: {self.kernel} on {self.device} stores {self.got!r} as element "
            f"{self.element} of buffer {self.operand}, {self.reference} {self.expected!r}; "
            f"{plural(self.count, 'element')} differ"
        )


@dataclass(slots=True)
class Report:
    """What a validated run has found."""

    checked: int = 0
    unchecked: int = 0
    first: Difference | None = None

    def __str__(self) -> str:
        """One line, or two."""
        done = f"{plural(self.checked, 'kernel')} compared"
        left = f", {self.unchecked} of unknown origin not" if self.unchecked else ""
        found = "no difference" if self.first is None else str(self.first)
        return f"{done}{left}: {found}"


def run_validated(
    steps: Sequence[Step],
    slots: Sequence[Buffer | None],
    values: Mapping[str, int],
    report: Report | None = None,
) -> Report:
    """Run all steps, each kernel on its reference too.

    Args:
        steps: what to run.
        slots: the buffers by slot.
        values: of the variables by name.
        report: gets the first difference; without one, a difference raises.

    Returns:
        What was found.

    Raises:
        InternalError: a kernel differs from its reference, and nobody wants a report.
    """
    found = report or Report()
    number = -1
    for step in steps:
        number += not isinstance(step, PoisonCall)  # the same numbers with poison and without
        linked = LinkedSteps([step])
        if not isinstance(step, KernelCall) or step.kernel is None:
            linked.run_plainly(slots, values)
            found.unchecked += isinstance(step, KernelCall)
            continue
        reference = _Reference(step, slots)
        linked.run_plainly(slots, values)
        found.checked += 1
        difference = reference.compare(number, slots, values)
        if difference is None:
            continue
        if report is None:
            raise InternalError(
                "validate: a kernel computes something else than its reference",
                got=str(difference),
                expected="the same up to rounding",
                try_=f"attach this kernel:\n{difference.text}",
            )
        found.first = found.first or difference
    return found


class _Reference:
    """Copies of the operands of a kernel, taken before it runs."""

    def __init__(self, step: KernelCall, slots: Sequence[Buffer | None]) -> None:
        self._step = step
        is_short = step.code.work <= MOST_INTERPRETED
        plain = None if is_short else compile_without_plan(Device[step.device], _kernel_of(step))
        self._code = plain
        self._device = Device["PYTHON"] if plain is None else Device[step.device]
        self.name = "the interpreter" if plain is None else "the kernel without a plan"
        # Operands that share memory share it in the copy as well.
        ranges: dict[int, tuple[int, int]] = {}
        for operand in step.operands:
            first, end = ranges.get(operand.slot, (operand.offset_bytes, 0))
            ranges[operand.slot] = (
                min(first, operand.offset_bytes),
                max(end, operand.offset_bytes + operand.size_bytes),
            )
        self._ranges = ranges
        self._copies: dict[int, Buffer] = {}
        for slot, (first, end) in ranges.items():
            copy = self._device.allocate(max(end - first, 1))
            data = _read(step.device, slots[slot], first, end)
            if data:
                self._device.copy_in(copy.view(0, len(data)), memoryview(data))
            self._copies[slot] = copy

    def compare(
        self, number: int, slots: Sequence[Buffer | None], values: Mapping[str, int]
    ) -> Difference | None:
        """Run the reference, and compare what both have stored."""
        step = self._step
        kernel = _kernel_of(step)
        code = self._code or compile_kernels(self._device, [kernel])[0]
        moved = [
            replace(
                operand,
                slot=position,
                offset_bytes=operand.offset_bytes - self._ranges[operand.slot][0],
            )
            for position, operand in enumerate(step.operands)
        ]
        call = KernelCall(self._device.name, code, tuple(moved), is_serial=True, kernel=kernel)
        copies = [self._copies[operand.slot] for operand in step.operands]
        LinkedSteps([call]).run_plainly(copies, values)
        kinds = {node.attrs.slot: node.type.dtype for node in toposort(kernel) if node.op is PARAM}
        words = scan_words(kernel)  # the reference scans alone, and has nobody to tell
        for position in step.code.writes:
            if position in words:
                continue
            operand = step.operands[position]
            end = operand.offset_bytes + operand.size_bytes
            got = _read(step.device, slots[operand.slot], operand.offset_bytes, end)
            expected = self._read_copy(moved[position], copies[position])
            where = first_difference(got, expected, kinds[position])
            if where is not None:
                element, count, value, wanted = where
                return Difference(
                    number, step.code.name, step.device, self.name, position, element, value,
                    wanted, count, _text(kernel),
                )  # fmt: skip
        return None

    def _read_copy(self, operand: Operand, copy: Buffer) -> bytearray:
        first = operand.offset_bytes
        return _read(self._device.name, copy, first, first + operand.size_bytes)


def _kernel_of(step: KernelCall) -> Node:
    if step.kernel is None:
        raise InternalError("validate: where this kernel comes from is not known", got=step.code)
    return step.kernel


def _text(kernel: Node) -> str:
    from tilework.ir.text import format_node  # only a difference is printed

    return format_node(kernel)


def _read(device: str, buffer: Buffer | None, first: int, end: int) -> bytearray:
    if buffer is None:
        raise InternalError("validate: a slot has no buffer")
    data = bytearray(end - first)
    if data:
        Device[device].copy_out(buffer.view(first, end - first), memoryview(data))
    return data


def first_difference(
    got: bytes | bytearray, expected: bytes | bytearray, dtype: DType
) -> tuple[int, int, float, float] | None:
    """Return (first element, how many, what it is, what it should be), or None.

    Integers must be equal; floats may differ by rounding, as their dtype and the mode allow.
    """
    if got == expected:
        return None
    values, wanted = numbers(got, dtype), numbers(expected, dtype)
    if not dtype.is_float:
        rows = [i for i, (a, b) in enumerate(zip(values, wanted, strict=True)) if a != b]
    else:
        finite = [abs(value) for value in wanted if math.isfinite(value)]
        unit = 2.0**-dtype.mantissa_bits * _UNITS[settings.current().fp_mode]
        limit = unit * max(finite, default=0.0)
        rows = [
            i
            for i, (a, b) in enumerate(zip(values, wanted, strict=True))
            if a != b and not (a != a and b != b) and not abs(a - b) <= limit + unit * abs(b)
        ]
    return (rows[0], len(rows), values[rows[0]], wanted[rows[0]]) if rows else None


def numbers(data: bytes | bytearray, dtype: DType) -> Sequence[Any]:
    """Return the elements that `data` holds, as Python numbers."""
    count = len(data) // dtype.itemsize
    code = _FORMATS.get(dtype.name)
    if code is not None:
        return struct.unpack(f"<{count}{code}", data)
    size = dtype.itemsize
    bits = [int.from_bytes(data[i * size : i * size + size], "little") for i in range(count)]
    return [dtypes.decode(each, dtype) for each in bits]
