"""A captured program as a table: each launch with its time, its work, and the memory it uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilework.base.text import format_bytes, format_seconds, plural
from tilework.engine.steps import CopyCall, FoldCall, KernelCall, Operand, PoisonCall

if TYPE_CHECKING:
    from tilework.engine.captured_program import CapturedProgram

_HEAD = ("", "kernel", "device", "threads", "time", "operations", "per s", "bytes", "per s")


def explain_program(
    program: CapturedProgram, seconds: Sequence[float] = (), more: str | None = None
) -> str:
    """Return the launches of a program as a table.

    Args:
        program: what was captured.
        seconds: of each step, if they were measured.
        more: added to the first line.
    """
    packed = 0 if program.packed is None else program.packed.size_bytes
    # What fills dead memory is no part of what the program computes.
    steps = [step for step in program.steps if not isinstance(step, PoisonCall)]
    if seconds:
        seconds = [
            taken
            for step, taken in zip(program.steps, seconds, strict=True)
            if not isinstance(step, PoisonCall)
        ]
    facts = [
        plural(len(steps), "step"),
        plural(program.num_inputs, "input"),
        plural(len(program.held), "held buffer"),
        plural(len(program.outputs), "output"),
        f"{format_bytes(program.arena_bytes)} of intermediates",
        *([f"{format_bytes(packed)} of packed constants"] if packed else []),
        *([f"{format_seconds(sum(seconds))} in kernels"] if seconds else []),
        *([more] if more else []),
    ]
    rows: list[tuple[str, ...]] = [(*_HEAD, "writes", "reads")]
    for number, step in enumerate(steps):
        time = seconds[number] if number < len(seconds) else None
        rows.append((str(number), *_row(program, step, time)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([", ".join(facts), *lines])


def _row(
    program: CapturedProgram, step: KernelCall | CopyCall | FoldCall, seconds: float | None
) -> tuple[str, ...]:
    time = "" if seconds is None else format_seconds(seconds)
    if isinstance(step, FoldCall):
        size = step.operands[-1].size_bytes
        return (
            f"all-reduce ({step.fold})", ", ".join(step.devices), "", time, "", "",
            format_bytes(size), _rate(size, seconds, bytes_=True),
            _place(program, step.operands[0]), _place(program, step.operands[-1]),
        )  # fmt: skip
    if not isinstance(step, KernelCall):
        route = f"{step.source_device} to {step.target_device}"
        size = step.target.size_bytes
        return (
            "copy", route, "", time, "", "", format_bytes(size), _rate(size, seconds, bytes_=True),
            _place(program, step.target), _place(program, step.source),
        )  # fmt: skip
    code = step.code
    moved = sum(operand.size_bytes for operand in step.operands)
    operands = list(enumerate(step.operands))
    return (
        code.name,
        step.device,
        "one" if step.is_serial else "all",
        time,
        str(code.work),
        _rate(code.work, seconds),
        format_bytes(moved),
        _rate(moved, seconds, bytes_=True),
        " ".join(_place(program, operand) for n, operand in operands if n in code.writes),
        " ".join(_place(program, operand) for n, operand in operands if n not in code.writes),
    )


def _rate(amount: int, seconds: float | None, *, bytes_: bool = False) -> str:
    if not seconds:
        return ""
    return format_bytes(int(amount / seconds)) if bytes_ else f"{amount / seconds / 1e9:.2f} G"


def _place(program: CapturedProgram, operand: Operand) -> str:
    """What an operand is: an input, a held buffer, an output, or a place in an arena."""
    slot = operand.slot
    groups = (
        ("input", program.num_inputs),
        ("held", program.first_output - program.num_inputs),
        ("output", len(program.outputs)),
    )
    for name, count in groups:
        if slot < count:
            return f"{name}{slot}" + (f"+{operand.offset_bytes}" if operand.offset_bytes else "")
        slot -= count
    return f"arena{slot}+{operand.offset_bytes}"
