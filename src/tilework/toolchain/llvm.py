"""LLVM IR text -> ELF object in memory, in process, by llvmlite.

    toolchain = LlvmToolchain(spec)
    code = toolchain.compile(ir_text)                      # bytes
    code = toolchain.compile(ir_text, passes=Passes.O2, speed_level=3)

The code is position independent ("small" code model, PC-relative), so that a loader may place it
anywhere.  llvmlite is imported at the first compile.  LLVM takes no floating-point liberty that
the text does not name: without fast-math flags no pass reassociates or contracts.

LLVM ends the process on an instruction that it cannot select or a processor name that it does not
know; names are checked here, and compiling in worker processes contains the rest.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from pathlib import Path
from threading import Thread
from typing import Any, Final

from tilework.base.errors import CompileError, ToolchainError, UnsupportedError
from tilework.base.forks import new_lock
from tilework.target.features import AARCH64, CPU_LEVELS, X86_64, check_names
from tilework.target.isa import NOTE_SECTION, IsaNote
from tilework.target.spec import TargetSpec
from tilework.toolchain.base import Passes

# Linux triples on every host: our own loader reads ELF wherever it runs, and this fixes the
# calling convention.
TRIPLES = {X86_64: "x86_64-unknown-linux-gnu", AARCH64: "aarch64-unknown-linux-gnu"}

#: A kernel has some thousand lines; what is far longer would stop this process for minutes.
MAX_SOURCE_CHARACTERS: Final = 64 << 20

# From how many accesses to memory on LLVM's instruction scheduler no longer compares all of them in
# a block with each other, which takes quadratic time: in the unrolled end of a tile there are a
# thousand.  It changes the order of instructions alone.  LLVM ends the process on an option that it
# does not know, so that it is given to the versions that were looked at.
_SHORT_REGIONS = "-dag-maps-huge-region=200"
_HAVE_OPTIONS = range(15, 23)

# LLVM's reduction of strengths in loops takes half of its time over squares of vectors that are
# transposed, for six scalar instructions less beside a hundred that move vectors.
_PLAIN_LOOPS = "-disable-lsr"
# Numbers in vectors are computed; bits of masks and scalar positions are not.
_COMPUTES = re.compile(
    r"= (?:fadd|fsub|fmul|fdiv|fneg) |"
    r"= call (?!<\d+ x float> @llvm\.arithmetic\.fence)|"
    r"= (?:add|sub|mul|[su]div|[su]rem|shl|[al]shr|and|or|xor) [^<\n]*<\d+ x i(?!1>)"
)

# One lock for all of LLVM: llvmlite serialises its calls anyway, and its contexts, target machines
# and pass builders must not be shared while in use.
_lock = new_lock()


class LlvmToolchain:
    """Compiles for one `target`; cheap to make, thread-safe.

    Args:
        target: an x86-64 or aarch64 spec.
        passes: the passes that `compile` runs when its caller names none.
        speed_level: LLVM's code generation level, 0 to 3.
    """

    def __init__(
        self, target: TargetSpec, *, passes: Passes = Passes.LIGHT, speed_level: int = 2
    ) -> None:
        if target.isa not in TRIPLES:
            raise UnsupportedError(
                "llvm: no code generation for this instruction set",
                got=target.isa,
                expected=f"one of {sorted(TRIPLES)}",
            )
        check_names(target.isa, target.features)
        known = [name for name, _ in CPU_LEVELS[target.isa]]
        if target.cpu_name not in known:
            raise UnsupportedError(
                "llvm: unknown processor name", got=target.cpu_name, expected=f"one of {known}"
            )
        self.target = target
        self.passes = passes
        self.speed_level = speed_level
        self._machines: dict[int, Any] = {}
        self._pipelines: dict[tuple[int, Passes], _Pipeline] = {}

    @cached_property
    def key(self) -> str:
        """Name, version and flags; does not import llvmlite."""
        version = installed_version() or "absent"
        return (
            f"llvmlite-{version};{TRIPLES[self.target.isa]};{self.target.cpu_name};"
            f"{self.target.feature_string()};pic;{self.passes.value};{self.speed_level}"
        )

    def compile(
        self, source: str, speed_level: int | None = None, passes: Passes | None = None
    ) -> bytes:
        """Compile the LLVM IR text `source` to an ELF object.

        Args:
            source: one module; triple and data layout are set here.
            speed_level: code generation level, 0 to 3.
            passes: the pass pipeline.

        Returns: the object file, with the note of the features that it needs.

        Raises: CompileError with LLVM's message; ToolchainError when llvmlite is not installed.
        """
        if len(source) > MAX_SOURCE_CHARACTERS:
            raise CompileError(
                "llvm: the module is too large to be compiled in this process",
                got=f"{len(source)} characters",
                expected=f"at most {MAX_SOURCE_CHARACTERS}",
            )
        level = self.speed_level if speed_level is None else speed_level
        with self._optimized(source, level, passes or self.passes) as (machine, module):
            return bytes(machine.emit_object(module))

    def warm_up(self) -> None:
        """Load LLVM, so that the first kernel need not wait for it."""
        _binding()
        with _lock:
            self._machine(self.speed_level)

    def assembly(self, source: str, passes: Passes | None = None) -> str:
        """Return the assembly text of `source`, for people and tests."""
        with self._optimized(source, self.speed_level, passes or self.passes) as (machine, module):
            return str(machine.emit_assembly(module))

    @contextmanager
    def _optimized(self, source: str, level: int, passes: Passes) -> Iterator[tuple[Any, Any]]:
        """Give the target machine and the module of `source` after `passes`, under the lock.

        The parts of LLVM are closed here in the right order: a module that the garbage collector
        closes after its context ends the process.
        """
        binding = _binding()
        with _lock, _loops_for(source), ExitStack() as stack:
            machine = self._machine(level)
            try:
                context = stack.enter_context(binding.create_context())
                module = stack.enter_context(binding.parse_assembly(source + self._note(), context))
                module.triple = TRIPLES[self.target.isa]
                module.data_layout = str(machine.target_data)
                module.verify()
                self._run_passes(level, module, passes)
                yield machine, module
            except RuntimeError as error:
                raise CompileError(
                    "llvm: the module was refused", got=_first_line(source), log=str(error)
                ) from error

    def _machine(self, level: int) -> Any:
        machine = self._machines.get(level)
        if machine is None:
            target = _target_of(_binding(), TRIPLES[self.target.isa])
            machine = target.create_target_machine(
                cpu=self.target.cpu_name,
                features=self.target.feature_string(),
                opt=level,
                reloc="pic",
                codemodel="small",
            )
            self._machines[level] = machine
        return machine

    def _run_passes(self, level: int, module: Any, passes: Passes) -> None:
        if passes is Passes.NONE:
            return
        pipeline = self._pipelines.get((level, passes))
        if pipeline is None:
            pipeline = _Pipeline(_binding(), self._machine(level), passes)
            self._pipelines[level, passes] = pipeline
        pipeline.run(module)

    def _note(self) -> str:
        note = IsaNote(self.target.isa, self.target.features).encode()
        return (
            f'\n@.tilework.isa = private constant [{len(note)} x i8] c"{note}", '
            f'section "{NOTE_SECTION}", align 1\n'
            "@llvm.compiler.used = appending global [1 x ptr] [ptr @.tilework.isa], "
            'section "llvm.metadata"\n'
        )


@cache
def installed_version() -> str | None:
    """The version of llvmlite, without importing it."""
    found = importlib.util.find_spec("llvmlite")
    if found is None or found.origin is None:
        return None
    # The folder of its metadata says so much faster than importlib.metadata is imported.
    packages = Path(found.origin).parent.parent
    for folder in packages.glob("llvmlite-*.dist-info"):
        return folder.name.removeprefix("llvmlite-").removesuffix(".dist-info")
    from importlib import metadata

    try:
        return metadata.version("llvmlite")
    except metadata.PackageNotFoundError:
        return "unknown"


def is_installed() -> bool:
    """Whether llvmlite can be found, without importing it."""
    return importlib.util.find_spec("llvmlite") is not None


_loaded: list[Any] = []
_mapping: list[Thread] = []


def map_beside() -> None:
    """Let a thread map LLVM's library, while this one imports what comes before LLVM."""
    if _mapping or _loaded:
        return
    thread = Thread(target=map_library, name="tilework-map-llvm", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the system gives no more threads; llvmlite maps it
        return
    _mapping.append(thread)


def map_library() -> None:
    """Map LLVM's library into this process, without Python's lock.

    Mapping and relocating it takes as long as importing fifty modules, and keeps others from that
    if `llvmlite` does it.  Where it cannot be done so, `llvmlite` does it, and says what is wrong.
    """
    found = importlib.util.find_spec("llvmlite")
    if os.name != "posix" or found is None or found.origin is None:
        return
    name = "libllvmlite.dylib" if sys.platform == "darwin" else "libllvmlite.so"
    path = Path(found.origin).parent / "binding" / name
    # `ctypes.CDLL` opens libraries under Python's lock, but calls their functions without.
    opens = getattr(ctypes.CDLL(None), "dlopen", None)
    if opens is not None and path.is_file():
        opens(os.fsencode(path), os.RTLD_NOW | os.RTLD_LOCAL)


def load() -> None:
    """Load LLVM, so that the first kernel need not wait for it."""
    _binding()


def _binding() -> Any:
    """Return `llvmlite.binding` with this machine's target set up; imported once, on first use."""
    if _loaded:
        return _loaded[0]
    for thread in _mapping:
        thread.join()
    try:
        from llvmlite import binding
    except ImportError as error:
        raise ToolchainError(
            "llvm: llvmlite cannot be imported", got=str(error), try_="pip install llvmlite"
        ) from error
    with _lock:
        if not _loaded:
            binding.initialize_native_target()
            binding.initialize_native_asmprinter()
            if binding.llvm_version_info[0] in _HAVE_OPTIONS:
                binding.set_option("tilework", _SHORT_REGIONS)
            _loaded.append(binding)
    return binding


def _target_of(binding: Any, triple: str) -> Any:
    """LLVM's target for a triple; those of other machines are set up when one is asked for."""
    try:
        return binding.Target.from_triple(triple)
    except RuntimeError:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        return binding.Target.from_triple(triple)


def only_moves(source: str) -> bool:
    """Does a module rearrange vectors, and compute none?"""
    return "shufflevector" in source and _COMPUTES.search(source) is None


@contextmanager
def _loops_for(source: str) -> Iterator[None]:
    """Leave the loops of a module that only moves vectors as they are; under the lock."""
    binding = _binding()
    if binding.llvm_version_info[0] not in _HAVE_OPTIONS or not only_moves(source):
        yield
        return
    binding.set_option("tilework", f"{_PLAIN_LOOPS}=true")
    try:
        yield
    finally:
        binding.set_option("tilework", f"{_PLAIN_LOOPS}=false")


class _Pipeline:
    """Passes for one machine, used for one module after the other.

    LLVM's pass builders are kept, since each one that is made leaves memory behind.
    """

    def __init__(self, binding: Any, machine: Any, passes: Passes) -> None:
        is_light = passes is Passes.LIGHT
        level = 1 if is_light else int(passes.value[1])
        options = binding.create_pipeline_tuning_options(speed_level=level)
        # Kernels come with their vectors chosen by the plan; a second opinion only costs time.
        options.loop_vectorization = False
        options.slp_vectorization = False
        self._options = options  # the builder refers to them
        self._builder = binding.create_pass_builder(machine, options)
        self._light = _light_pipeline(binding) if is_light else None

    def run(self, module: Any) -> None:
        """Run the passes over `module`."""
        if self._light is not None:
            self._light.run(module, self._builder)
            return
        # A pipeline with an inliner can run once only.
        with self._builder.getModulePassManager() as manager:
            manager.run(module, self._builder)


def _light_pipeline(binding: Any) -> Any:
    manager = binding.create_new_module_pass_manager()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    return manager


def _first_line(source: str) -> str:
    """Return the line by which a person finds the module: its first definition."""
    for line in source.splitlines():
        if line.startswith("define"):
            return line.strip()
    return source[:80]
