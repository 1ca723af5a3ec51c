"""What NVIDIA's compiler says a kernel takes, and whether a card has that much.

A kernel's head says how many threads and how much shared memory a launch will ask for: that is
checked before the text is compiled.  What each entry point then really takes (registers, memory of
a thread, shared memory that the code declares itself) stands in the compiler's report.  A kernel
that asks for more than a block may have would fail at its first launch; here it fails with the
numbers, where it is made.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tilework.base.errors import CompileError
from tilework.base.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.target.cuda_code import CudaHead
    from tilework.target.spec import TargetSpec

#: Asks the assembler for its report.
REPORT_FLAG: Final = "--ptxas-options=--verbose"
#: A warp's registers are handed out by so many; a thread's therefore by 8.
_GRANULE: Final = 8
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one entry point takes.

    Attributes:
        registers: Registers of a thread.
        shared_bytes: Shared memory of a block that the code itself declares.
        private_bytes: Memory of one thread beside its registers.
        spilled_bytes: How much of that is stored and loaded for want of registers.
    """

    registers: int
    shared_bytes: int
    private_bytes: int
    spilled_bytes: int


def read_report(log: str) -> dict[str, Resources]:
    """What each entry point takes, by its name; one without numbers is left out."""
    found: dict[str, Resources] = {}
    for part in re.split(r"(?=Compiling entry function)", log):
        entry, used = _ENTRY.search(part), _USED.search(part)
        if entry is None or used is None:
            continue
        frame, shared = _FRAME.search(part), _SHARED.search(part)
        stack, stores, loads = (0, 0, 0) if frame is None else map(int, frame.groups())
        shared_bytes = 0 if shared is None else int(shared[1])
        found[entry[1]] = Resources(int(used[1]), shared_bytes, stack, stores + loads)
    return found


def check_head(head: CudaHead, target: TargetSpec) -> None:
    """Check what a launch will ask for, before the text is compiled.

    Raises: CompileError for more threads or shared memory than a block may have.
    """
    limits = target.limits
    _at_most(head.name, "threads of a block", head.threads, limits.max_workgroup_threads)
    _at_most(head.name, "bytes of shared memory", head.shared, limits.shared_memory_bytes)
    _at_most(head.name, "bytes of scratch memory", head.scratch, limits.max_scratch_bytes)


def check_report(head: CudaHead, report: Mapping[str, Resources], target: TargetSpec) -> None:
    """Check what the compiler says of each entry point, with what a launch adds.

    Raises: CompileError for more than a thread or a block may have.
    """
    limits = target.limits
    for name, found in report.items():
        registers = -(-found.registers // _GRANULE) * _GRANULE * head.threads
        shared = found.shared_bytes + head.shared
        _at_most(name, "registers of a thread", found.registers, limits.max_thread_registers)
        _at_most(name, "registers of a block", registers, limits.registers)
        _at_most(name, "bytes of shared memory", shared, limits.shared_memory_bytes)
        _at_most(name, "bytes of a thread's memory", found.private_bytes, limits.private_bytes)


def _at_most(name: str, what: str, got: int, most: int) -> None:
    if most and got > most:
        raise CompileError(
            f"nvrtc: kernel {name} takes more {what} than the card has",
            got=got,
            expected=f"at most {most}",
        )
