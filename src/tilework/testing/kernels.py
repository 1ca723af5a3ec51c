"""Runs one kernel at every stage of code generation and on the machine, for comparing results.

Buffers of machine runs end at (or begin after) a page that may not be touched, so a load or store
outside of a buffer ends the process instead of passing unseen.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import TYPE_CHECKING, Any

from tilework.base.records import dataclass, replace
from tilework.codegen.analysis import analyse
from tilework.codegen.linearize.order import linearise
from tilework.codegen.linearize.short_loops import write_out
from tilework.codegen.passes.decompose import decompose, decompose_node
from tilework.codegen.passes.expand import expand
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.apply import apply_plan
from tilework.codegen.plan.check import check
from tilework.codegen.plan.choose import choose_plan
from tilework.ir.digest import digest
from tilework.ir.interpret import evaluate, run_kernel, run_linear
from tilework.ir.node import toposort
from tilework.ir.ops.index import VARIABLE
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.render.c_family.clang import ClangRenderer
from tilework.render.llvm_ir import LlvmRenderer
from tilework.runtime.host import host_spec
from tilework.runtime.loader import load_object
from tilework.target.known.cpu import x86_level_spec
from tilework.toolchain.clang import ClangToolchain
from tilework.toolchain.llvm import LlvmToolchain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tilework.codegen.plan.plan import Plan
    from tilework.ir.lowered import LoweredKernel
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

PAGE = mmap.PAGESIZE


class Case:
    """A kernel with the bytes of its buffers before it runs and the values of its variables.

    No dataclass, so that tools which print the fields of those do not print the buffers.
    """

    def __init__(
        self, sink: Node, buffers: list[bytes], variables: dict[str, int] | None = None
    ) -> None:
        self.sink = sink
        self.buffers = buffers
        self.variables = variables or {}

    def __repr__(self) -> str:
        sizes = ", ".join(str(len(buffer)) for buffer in self.buffers)
        name = digest(self.sink).hex()[:12]
        return f"<case {name}, buffers of {sizes} bytes, {self.variables}>"

    def copies(self) -> list[bytearray]:
        """The buffers, to be written."""
        return [bytearray(buffer) for buffer in self.buffers]


@dataclass
class Outcome:
    """The buffers after a run, and the codes of the faults met."""

    stage: str
    buffers: list[bytes]
    faults: list[int]


def interpret(case: Case, sink: Node, stage: str) -> Outcome:
    """Run a form of the kernel at the stages KERNEL, TILED or LOWERED."""
    buffers = case.copies()
    faults = run_kernel(sink, buffers, case.variables)
    return Outcome(stage, [bytes(buffer) for buffer in buffers], sorted(faults))


def interpret_linear(case: Case, linear: Node) -> Outcome:
    """Run a LINEAR form of the kernel."""
    buffers = case.copies()
    faults = run_linear(linear, buffers, case.variables)
    return Outcome("linear", [bytes(buffer) for buffer in buffers], sorted(faults))


def stages(case: Case, target: TargetSpec, plan: Plan | None = None) -> Iterator[tuple[str, Node]]:
    """The forms that a kernel passes through on the way to LINEAR, with their names."""
    normal = normalise_ranges(rewrite(case.sink, SIMPLIFY))
    yield "normalise", normal
    kernel = analyse(normal)
    chosen = plan or choose_plan(kernel, target)
    check(chosen, kernel, target)
    tiled = apply_plan(kernel, chosen)
    yield "apply", tiled
    lowered, _ = expand(tiled, target)
    yield "expand", lowered
    decomposed = decompose(lowered, target)
    yield "decompose", decomposed
    linear = linearise(decomposed, lambda node: decompose_node(node, target))
    yield "linear", linear
    yield "short loops", write_out(linear, target)


def outcomes(case: Case, target: TargetSpec, plan: Plan | None = None) -> Iterator[Outcome]:
    """What each stage computes, by the interpreter."""
    for name, form in stages(case, target, plan):
        if name in ("linear", "short loops"):
            yield interpret_linear(case, form)
        else:
            yield interpret(case, form, name)


# ---- the machine


@cache
def target(level: str) -> TargetSpec:
    """The spec of this machine (`host`) or of one of the x86-64 levels."""
    return host_spec(2) if level == "host" else x86_level_spec(level, cores=2)


def can_run(level: str) -> bool:
    """Does this machine run code of a level?"""
    return target(level).features <= host_spec(2).features


@cache
def _toolchain(kind: str, level: str) -> Any:
    made = LlvmToolchain if kind == "llvm" else ClangToolchain
    return made(target(level))


def compile_to(kind: str, level: str, kernel: LoweredKernel) -> bytes:
    """Object code through `llvm` or `clang`."""
    renderer = LlvmRenderer() if kind == "llvm" else ClangRenderer()
    code: bytes = _toolchain(kind, level).compile(renderer.render(kernel))
    return code


class GuardedBuffer:
    """Bytes that end right before a page without access, or begin right after one.

    Args:
        content: The bytes.
        at_start: Guard the first byte instead of the last.
    """

    def __init__(self, content: bytes, *, at_start: bool = False) -> None:
        self.size = len(content)
        pages = max(-(-self.size // PAGE), 1)
        self._map = mmap.mmap(-1, (pages + 2) * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (0, pages + 1):
            if libc.mprotect(ctypes.c_void_p(base + page * PAGE), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.address = base + PAGE + (0 if at_start else pages * PAGE - self.size)
        ctypes.memmove(self.address, content, self.size)

    def read(self) -> bytes:
        """The bytes now."""
        return ctypes.string_at(self.address, self.size)


def execute(
    kernel: LoweredKernel,
    code: bytes,
    case: Case,
    *,
    at_start: bool = False,
    split_tasks: bool = False,
) -> Outcome:
    """Run object code on this machine between guard pages.

    Args:
        kernel: The kernel that the code was made from.
        code: The object.
        case: Buffers and variables.
        at_start: Which end of each buffer lies at the guard page.
        split_tasks: Launch each task by itself, last first, instead of all at once.
    """
    held = [GuardedBuffer(buffer, at_start=at_start) for buffer in case.buffers]
    pointers = (ctypes.c_void_p * max(len(held), 1))(*[buffer.address for buffer in held])
    fault = ctypes.c_int64(0)
    words = [ctypes.addressof(fault), *(case.variables[name] for name in kernel.variables)]
    variables = (ctypes.c_int64 * len(words))(*words)
    scratch = GuardedBuffer(b"\xa5" * (-(-kernel.scratch_bytes // 64) * 64))
    with load_object(code, [kernel.name]) as loaded:
        function = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        )(loaded.address_of(kernel.name))
        for begin, end in _parts(_task_count(kernel, case), split_tasks):
            arguments = ctypes.addressof(pointers), ctypes.addressof(variables)
            function(*arguments, begin, end, scratch.address)
    return Outcome(
        "machine", [buffer.read() for buffer in held], [fault.value] if fault.value else []
    )


def _parts(count: int, split: bool) -> Sequence[tuple[int, int]]:
    return [(at, at + 1) for at in reversed(range(count))] if split else [(0, count)]


def _task_count(kernel: LoweredKernel, case: Case) -> int:
    variables = [node for node in toposort(kernel.tasks) if node.op is VARIABLE]
    bindings = {node: case.variables[node.attrs.name] for node in variables}
    return int(evaluate(kernel.tasks, bindings).item())


def run_on_machine(
    case: Case, kind: str, level: str = "host", plan: Plan | None = None, **options: bool
) -> Outcome:
    """Lower, render, compile and run a kernel."""
    machine = target(level)
    if kind == "clang":
        machine = replace(machine, matrix_instructions=())  # its text has no words for them
    lowered = lower_kernel(case.sink, machine, plan)
    outcome = execute(lowered, compile_to(kind, level, lowered), case, **options)
    outcome.stage = f"{kind} on {level}"
    return outcome
