"""What the back ends of this machine's processor share: the pool's code, and their compiler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from tilework.backends.contract import WorkerToolchain
from tilework.backends.text_compiler import TextCompiler
from tilework.base import settings
from tilework.base.collection import no_collection
from tilework.base.diskcache import DiskCache
from tilework.base.errors import TileworkError, ToolchainError, UnsupportedError
from tilework.base.hashing import digest
from tilework.base.switching import prompt_switching
from tilework.ir.node import Node
from tilework.runtime.drivers.cpu import CpuDriver
from tilework.runtime.host import host_spec
from tilework.runtime.native.pool_source import pool_source
from tilework.runtime.native.shipped import shipped_object
from tilework.runtime.registry import DeviceName
from tilework.target.features import AARCH64, CPU_LEVELS, X86_64
from tilework.target.known.cpu import aarch64_spec, x86_level_spec
from tilework.target.spec import TargetSpec
from tilework.toolchain.base import Toolchain
from tilework.toolchain.llvm import LlvmToolchain, is_installed, load, map_beside

if TYPE_CHECKING:
    from tilework.codegen.plan.prepack import Prepacked
    from tilework.render.base import Renderer

_SHARE_OF_CACHE = (3, 4)  # of the disk caches together; schedules and plans have the rest


@lru_cache(maxsize=8)
def _code_cache(folder: Path | None, size_limit_bytes: int) -> DiskCache:
    return DiskCache(folder and folder / "programs", size_limit_bytes, "program")


def code_cache() -> DiskCache:
    """Return the cache on disk for object code, as the settings in force want it."""
    current = settings.current()
    share, whole = _SHARE_OF_CACHE
    return _code_cache(current.cache_dir, current.cache_size_bytes * share // whole)


@cache
def _baseline(isa: str) -> TargetSpec:
    return x86_level_spec("x86-64") if isa == X86_64 else aarch64_spec()


#: The pool's code that an export brought, by instruction set: at most one for each.
_provided: dict[str, bytes] = {}


def provide_native_object(isa: str, data: bytes) -> None:
    """Use `data` as the pool's object code if this process has none: an export brings its own."""
    _provided.setdefault(isa, data)


def has_native_object(isa: str) -> bool:
    """Whether the pool's code is there without a compiler."""
    source, toolchain = pool_source(isa), LlvmToolchain(_baseline(isa))
    return isa in _provided or code_cache().get(_pool_key(toolchain, source)) is not None


def _pool_key(toolchain: LlvmToolchain, source: str) -> str:
    return digest("native pool", source, toolchain.key)


def compiled_objects() -> dict[str, bytes]:
    """The object code of the pool for every instruction set, by its key, compiled now."""
    found: dict[str, bytes] = {}
    for isa in (X86_64, AARCH64):
        toolchain, source = LlvmToolchain(_baseline(isa)), pool_source(isa)
        found[_pool_key(toolchain, source)] = toolchain.compile(source)
    return found


def native_object(isa: str) -> bytes:
    """Return the object code of the pool for the baseline of `isa`.

    It comes with the package where that was made with the same LLVM, else it is compiled once per
    machine.
    """
    if isa in _provided and not is_installed():
        return _provided[isa]
    toolchain = LlvmToolchain(_baseline(isa))
    source = pool_source(isa)
    key = _pool_key(toolchain, source)
    found = shipped_object(key)
    if found is not None:
        if code_cache().is_new() and is_installed():
            _load_compiler()
        return found
    found = code_cache().get(key)
    if found is None:
        found = _compile_beside_imports(toolchain, source)
        code_cache().put(key, found)
    return found


def _load_compiler() -> None:
    """Import what the first kernel needs while LLVM is mapped: where caches are empty, one comes.

    What is wrong with LLVM is told to that kernel: there may be finished code to run.
    """
    with no_collection(), suppress(ToolchainError):
        map_beside()
        import tilework.codegen.pipeline
        import tilework.codegen.plan.database
        import tilework.render.llvm_ir
        import tilework.schedule.pipeline  # noqa: F401

        load()


def _compile_beside_imports(toolchain: LlvmToolchain, source: str) -> bytes:
    """Compile, and meanwhile import what the first kernel needs: where caches are empty, one comes.

    LLVM is mapped and computes without Python's lock, for as long as these imports take.  Its own
    modules are imported in between by this thread: two that import take turns, and LLVM would
    begin later.
    """
    compiling = _Compiling(toolchain, source)
    try:
        with no_collection():
            map_beside()
            import tilework.schedule.pipeline

            toolchain.warm_up()
            compiling.start()
    except RuntimeError:  # the system gives no more threads
        return toolchain.compile(source)
    with prompt_switching(), no_collection():
        import tilework.codegen.pipeline
        import tilework.codegen.plan.database
        import tilework.render.llvm_ir  # noqa: F401

        return compiling.result()


class _Compiling(Thread):
    """One source that is compiled by a thread of its own."""

    def __init__(self, toolchain: LlvmToolchain, source: str) -> None:
        super().__init__(name="tilework-pool-code", daemon=True)
        self._toolchain = toolchain
        self._source = source
        self._found: bytes | None = None
        self._error: TileworkError | None = None

    def run(self) -> None:
        """Compile, and keep what comes of it."""
        try:
            self._found = self._toolchain.compile(self._source)
        except TileworkError as error:  # raised by `result`, to the one that asks
            self._error = error

    def result(self) -> bytes:
        """Wait for the object code.  Raises what the compiler has raised."""
        self.join()
        if self._error is not None:
            raise self._error
        if self._found is None:  # the thread died of something else, which is raised here
            return self._toolchain.compile(self._source)
        return self._found


def target_of(name: DeviceName) -> TargetSpec:
    """Return the spec of this machine, or of the lower level that `name` asks for.

    Raises: UnsupportedError when the machine has no such level.
    """
    host = host_spec(settings.current().num_threads)
    if not name.arch:
        return host
    levels = dict(CPU_LEVELS[host.isa])
    if name.arch not in levels or not levels[name.arch] <= host.features or host.isa == AARCH64:
        raise UnsupportedError(
            f"device: this processor has no level {name.arch}",
            got=str(name),
            expected=f"one of {', '.join(level for level in levels if levels[level])}",
        )
    return x86_level_spec(name.arch, cores=host.cores)


def open_driver(name: DeviceName, target: TargetSpec) -> CpuDriver:
    """Open the processor as a device called `name`, as the settings in force want it."""
    current = settings.current()
    driver = CpuDriver(
        native_object(target.isa),
        target=target,
        num_threads=current.thread_count(),
        memory_limit=current.memory_limit,
        poison=current.poison,
    )
    driver.name = str(name)
    return driver


class NativeCompiler(TextCompiler):
    """Lower, render and compile kernels for this machine's processor.

    Args:
        toolchain: makes the object code.
        make_renderer: called at the first kernel, so that a warm start imports no renderer.
        worker_kind: the name of the toolchain for worker processes, or None.
    """

    def __init__(
        self, toolchain: Toolchain, make_renderer: Callable[[], Renderer], worker_kind: str | None
    ) -> None:
        super().__init__(toolchain, make_renderer)
        self._worker_kind = worker_kind

    def split_packing(self, kernel: Node, constants: frozenset[int]) -> Prepacked | None:
        """Split the packing of constant factors off a kernel, where that pays."""
        from tilework.codegen.plan.prepack import prepack

        return prepack(kernel, self.target, constants)

    def worker(self) -> WorkerToolchain | None:
        """The same toolchain for a worker process."""
        if self._worker_kind is None:
            return None
        features = tuple(sorted(self.target.features))
        return WorkerToolchain(self._worker_kind, self.target.isa, features, self._toolchain.key)


def _llvm_renderer() -> Renderer:
    map_beside()
    from tilework.render.llvm_ir import LlvmRenderer  # only when a kernel is compiled

    return LlvmRenderer()


def llvm_compiler(name: DeviceName) -> NativeCompiler:
    """Return the compiler through LLVM for the machine that `name` asks for."""
    return NativeCompiler(LlvmToolchain(target_of(name)), _llvm_renderer, "llvm")
