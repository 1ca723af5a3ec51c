"""Kernels -> object code: each different kernel once, from memory, from disk, or compiled now.

The key of a kernel is the digest of its graph, every setting and target that changes code
(`target.compile_key`), and the key of the compiler that the device uses.  Many cold kernels are
built while this thread lowers the next ones: by threads, since compilers work outside of Python's
lock, and very many of them by worker processes.
"""

from __future__ import annotations

import json
import struct
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final

from tilework.backends.contract import Compiler, KernelSource
from tilework.backends.native import code_cache
from tilework.base import faults, settings, trace
from tilework.base.collection import no_collection
from tilework.base.errors import ModelFileError, TileworkError
from tilework.base.forks import new_lock, new_outer_lock
from tilework.base.records import dataclass
from tilework.base.switching import prompt_switching
from tilework.engine.build_records import has_record, keep_record
from tilework.engine.device import OpenDevice
from tilework.engine.expressions import Expression, from_plain, from_size
from tilework.engine.kernels import estimate_work, written_slots
from tilework.engine.stats import COUNTERS
from tilework.ir.digest import digest
from tilework.ir.node import Node, in_use
from tilework.runtime.driver import KernelCode
from tilework.target.compile_key import compile_key
from tilework.toolchain.base import keeping_log

if TYPE_CHECKING:
    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.engine.workers import BuildThreads, WorkerPool

MAX_IN_MEMORY: Final = 8192
#: One worker process for so many kernels: its start takes as long as LLVM needs for about four.
KERNELS_A_WORKER: Final = 12
#: Workers are started once so many kernels wait for the thread that builds them here.
PATIENCE: Final = 4
_MIN_FOR_THREADS: Final = 2
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One kernel as object code.

    `tasks` is the trip count of its parallel loop, `writes` the slots that it stores to, `work`
    about how many scalar operations it does, `key` its key in the caches.
    """

    key: str
    name: str
    data: bytes
    tasks: Expression
    variables: tuple[str, ...]
    num_buffers: int
    writes: tuple[int, ...]
    scratch_bytes: int
    work: int

    def as_code(self) -> KernelCode:
        """What a driver loads."""
        return KernelCode(
            name=self.name,
            data=self.data,
            num_buffers=self.num_buffers,
            num_variables=len(self.variables),
            writes=self.writes,
            scratch_bytes=self.scratch_bytes,
        )

    def head(self) -> dict[str, object]:
        """Everything but the object code, as plain data."""
        return {
            "name": self.name,
            "tasks": self.tasks.to_plain(),
            "variables": list(self.variables),
            "num_buffers": self.num_buffers,
            "writes": list(self.writes),
            "scratch_bytes": self.scratch_bytes,
            "work": self.work,
        }


def pack_kernel(kernel: CompiledKernel) -> bytes:
    """Return the bytes under which a kernel is kept on disk."""
    head = json.dumps(kernel.head(), separators=(",", ":")).encode()
    return _LENGTH.pack(len(head)) + head + kernel.data


def unpack_kernel(key: str, raw: bytes) -> CompiledKernel:
    """Rebuild what `pack_kernel` gave.

    Raises: ModelFileError when it is malformed.
    """
    try:
        (length,) = _LENGTH.unpack_from(raw)
        head = json.loads(raw[_LENGTH.size : _LENGTH.size + length])
    except (struct.error, ValueError) as error:
        raise ModelFileError("kernel: the entry is malformed", got=str(error)) from error
    return kernel_from_head(key, head, raw[_LENGTH.size + length :])


def kernel_from_head(key: str, head: object, data: bytes) -> CompiledKernel:
    """Rebuild a kernel from `CompiledKernel.head` and its object code.

    Raises: ModelFileError when a field is missing or of another type.
    """
    if not isinstance(head, dict):
        raise ModelFileError("kernel: the entry is malformed", got=type(head).__name__)
    numbers: dict[str, int] = {}
    for field in ("num_buffers", "scratch_bytes", "work"):
        value = head.get(field)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ModelFileError(f"kernel: field {field} is malformed", got=repr(value))
        numbers[field] = value
    name, variables, writes = head.get("name"), head.get("variables"), head.get("writes")
    if not isinstance(name, str) or not isinstance(variables, list) or not isinstance(writes, list):
        raise ModelFileError("kernel: the entry is malformed", got=repr(name))
    if not all(isinstance(item, str) for item in variables) or not all(
        isinstance(item, int) and 0 <= item < numbers["num_buffers"] for item in writes
    ):
        raise ModelFileError("kernel: its variables or writes are malformed", got=name)
    return CompiledKernel(
        key=key,
        name=name,
        data=data,
        tasks=from_plain(head.get("tasks")),
        variables=tuple(variables),
        writes=tuple(writes),
        **numbers,
    )


class _Memory:
    """Compiled kernels of this process by key, the last used last.  Thread-safe."""

    def __init__(self) -> None:
        self._rows: OrderedDict[str, CompiledKernel] = OrderedDict()
        self._lock = new_lock()

    def get(self, key: str) -> CompiledKernel | None:
        with self._lock:
            found = self._rows.get(key)
            if found is not None:
                self._rows.move_to_end(key)
            return found

    def put(self, kernel: CompiledKernel) -> None:
        with self._lock:
            self._rows[kernel.key] = kernel
            while len(self._rows) > MAX_IN_MEMORY:
                self._rows.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._rows.clear()


_memory: Final = _Memory()
_compiling: Final = new_outer_lock(3)


def clear_memory() -> None:
    """Forget all compiled kernels of this process; the disk keeps its own."""
    _memory.clear()


def kernel_key(device: OpenDevice, kernel: Node, prefix: str | None = None) -> str:
    """Return the key of `kernel` on `device` under the settings in force."""
    plan_key = getattr(device.compiler, "plan_key", None)
    plan = "" if plan_key is None else plan_key(kernel)
    return f"{prefix or _prefix(device)}{plan}{digest(kernel).hex()}"


def _prefix(device: OpenDevice) -> str:
    current = settings.current()
    key = compile_key(current, device.spec)
    # What was compiled without a proof of its accesses is not what somebody gets who asks for one.
    proven = "proven;" if current.prove_accesses else ""
    proven += "checked;" if current.check_accesses else ""
    return f"{proven}{device.backend.renderer};{device.compiler.key};{key.text()};"


def compile_kernels(device: OpenDevice, kernels: Sequence[Node]) -> list[CompiledKernel]:
    """Return the code of each of `kernels`, in their order; equal ones are compiled once.

    Raises: CompileError or ToolchainError with the kernel's name; UnsupportedError when the
    target cannot do what a kernel asks for.
    """
    prefix = _prefix(device)
    keys = [kernel_key(device, kernel, prefix) for kernel in kernels]
    found: dict[str, CompiledKernel] = {}
    missing: dict[str, Node] = {}
    for key, kernel in zip(keys, kernels, strict=True):
        known = found.get(key) or _memory.get(key)
        if known is not None:
            found[key] = known
        else:
            missing[key] = kernel
    if missing:
        with _compiling:
            for compiled in _find_or_compile(device, missing):
                found[compiled.key] = compiled
                _memory.put(compiled)
    return [found[key] for key in keys]


def compile_as_named(device: OpenDevice, kernels: Iterable[Node], at_most: int) -> None:
    """Compile kernels while it is still being found out which they are.

    Args:
        device: what they are for.
        kernels: gives one after the other; while it thinks, those before are built.
        at_most: about how many there will be.

    Raises: as `compile_kernels`, which finds them compiled afterwards.
    """
    with _compiling:
        cold = _cold(device, kernels)
        first = next(cold, None)
        if first is None:
            return
        for compiled in _compile_all(device, chain((first,), cold), at_most):
            _memory.put(compiled)


def _cold(device: OpenDevice, kernels: Iterable[Node]) -> Iterator[tuple[str, Node]]:
    """Those that are neither in memory nor on disk, each once; the rest is brought into memory."""
    prefix = _prefix(device)
    seen: set[str] = set()
    for kernel in kernels:
        key = kernel_key(device, kernel, prefix)
        if key in seen or _memory.get(key) is not None:
            continue
        seen.add(key)
        known = _from_disk(device, key)
        if known is None:
            yield key, kernel
        else:
            _memory.put(known)


def compile_without_plan(device: OpenDevice, kernel: Node) -> CompiledKernel | None:
    """Return `kernel` as plain loops, to compare with; None where the compiler knows no plans."""
    lower = getattr(device.compiler, "lower_plainly", None)
    if lower is None:
        return None
    key = f"plain;{kernel_key(device, kernel)}"
    with _compiling:
        found = _memory.get(key)
        if found is None:
            source = lower(kernel)
            found = _finish(key, kernel, source, _build(device.compiler, source))
            _memory.put(found)
    return found


def compile_with_plan(device: OpenDevice, kernel: Node, plan: AnyPlan) -> CompiledKernel:
    """Return `kernel` under a plan that is only tried, so that it is kept nowhere.

    Raises: PlanError for a plan that is not legal; what compiling raises.
    """
    source = device.compiler.lower(kernel, plan)  # type: ignore[call-arg]  # it has plans
    return _tried(kernel, source, _build(device.compiler, source))


def compile_with_plans(
    device: OpenDevice, kernel: Node, plans: Sequence[AnyPlan]
) -> list[CompiledKernel | None]:
    """Return `kernel` under each of some plans, built beside each other; None where one fails."""
    sources = [_lowered(device, kernel, plan) for plan in plans]
    with in_use(), _builder(device.compiler, len(sources)) as pool:
        tickets = [
            None if source is None or pool is None else pool.submit(source) for source in sources
        ]
        return [
            None if source is None else _tried_or_none(device, kernel, source, pool, ticket)
            for source, ticket in zip(sources, tickets, strict=True)
        ]


def _tried_or_none(
    device: OpenDevice,
    kernel: Node,
    source: KernelSource,
    pool: WorkerPool | BuildThreads | None,
    ticket: int | None,
) -> CompiledKernel | None:
    try:
        data = None if pool is None or ticket is None else pool.result(ticket)
        return _tried(kernel, source, data or _build(device.compiler, source))
    except TileworkError:
        return None


def _lowered(device: OpenDevice, kernel: Node, plan: AnyPlan) -> KernelSource | None:
    try:
        found: KernelSource = device.compiler.lower(kernel, plan)  # type: ignore[call-arg]
    except TileworkError:
        return None
    return found


def _tried(kernel: Node, source: KernelSource, data: bytes) -> CompiledKernel:
    return _finish(f"tried;{digest(kernel).hex()}", kernel, source, data)


def _find_or_compile(device: OpenDevice, missing: dict[str, Node]) -> Iterable[CompiledKernel]:
    cold: dict[str, Node] = {}
    for key, kernel in missing.items():
        # Another thread may have compiled it while we waited.
        known = _memory.get(key) or _from_disk(device, key)
        if known is not None:
            yield known
        else:
            cold[key] = kernel
    if cold:
        yield from _compile_all(device, cold.items(), len(cold))


def _from_disk(device: OpenDevice, key: str) -> CompiledKernel | None:
    raw = code_cache().get(key) if device.compiler.is_cacheable else None
    if raw is None:
        return None
    known = unpack_kernel(key, raw)
    if settings.current().keep_builds and not has_record(known.data):
        return None  # it is built again, for what is to be kept of that
    _report(device, known, 0.0, cached=True)
    return known


def _compile_all(
    device: OpenDevice, cold: Iterable[tuple[str, Node]], count: int
) -> Iterator[CompiledKernel]:
    is_cacheable = device.compiler.is_cacheable
    with in_use(), no_collection(), _builder(device.compiler, count) as build:
        started = time.perf_counter()
        for compiled in _compile(device.compiler, cold, build):
            COUNTERS.compiles += 1
            if is_cacheable:
                code_cache().put(compiled.key, pack_kernel(compiled))
            now = time.perf_counter()
            _report(device, compiled, now - started, cached=False)
            started = now
            yield compiled


def _report(device: OpenDevice, kernel: CompiledKernel, seconds: float, *, cached: bool) -> None:
    if trace.enabled():
        trace.emit(
            trace.KernelCompiled(kernel.name, device.name, seconds, len(kernel.data), cached)
        )


def _compile(
    compiler: Compiler, cold: Iterable[tuple[str, Node]], pool: WorkerPool | BuildThreads | None
) -> Iterator[CompiledKernel]:
    """Lower all of `cold`; build each here, or elsewhere while the next one is lowered."""
    waiting: list[tuple[str, Node, KernelSource, int]] = []
    for key, kernel in cold:
        faults.hit("compile.lower")
        source = compiler.lower(kernel)
        if pool is None:
            faults.hit("compile.build")
            yield _finish(key, kernel, source, _build_here(compiler, key, source))
        else:
            faults.hit("compile.submit")
            waiting.append((key, kernel, source, pool.submit(source)))
    for key, kernel, source, ticket in waiting:
        data = None if pool is None else pool.result(ticket)
        # Where no worker could be started, the kernel is left to this process.
        yield _finish(key, kernel, source, data or _build(compiler, source))


def _build(compiler: Compiler, source: KernelSource) -> bytes:
    try:
        return compiler.build(source)
    except TileworkError as error:
        error.add_note(f"while compiling the kernel {source.name}")
        raise


def _build_here(compiler: Compiler, key: str, source: KernelSource) -> bytes:
    """Build, and keep what it was made from if the settings say so."""
    if not (settings.current().keep_builds and compiler.is_cacheable):
        return _build(compiler, source)
    with keeping_log() as log:
        data = _build(compiler, source)
    keep_record(source.name, key, source.text, data, "\n".join(log))
    return data


def _finish(key: str, kernel: Node, source: KernelSource, data: bytes) -> CompiledKernel:
    return CompiledKernel(
        key=key,
        name=source.name,
        data=data,
        tasks=from_size(source.tasks),
        variables=source.variables,
        num_buffers=source.num_buffers,
        writes=written_slots(kernel),
        scratch_bytes=source.scratch_bytes,
        work=estimate_work(kernel),
    )


@contextmanager
def _builder(compiler: Compiler, count: int) -> Iterator[WorkerPool | BuildThreads | None]:
    """Give what builds kernels beside this thread, where that is worth its start."""
    width = 1 if settings.current().keep_builds else settings.current().worker_count()
    if width < 2 or count < _MIN_FOR_THREADS or not compiler.is_cacheable:
        yield None
        return
    from tilework.engine.workers import BuildThreads, WorkerPool  # a warm start needs neither

    def build(source: KernelSource) -> bytes:
        return _build(compiler, source)

    how = compiler.worker()
    each = (how and how.kernels_each) or KERNELS_A_WORKER
    processes = 0 if how is None else min(width - 1, count // each)
    pool: WorkerPool | BuildThreads
    if how is not None and processes > 0:
        pool = WorkerPool(how, processes, build=build, patience=min(PATIENCE, each))
    else:
        # Compilers in this process hold one lock; outside ones are processes of their own.
        pool = BuildThreads(build, 1 if how else width)
    try:
        with prompt_switching():
            yield pool
    finally:
        pool.close()
