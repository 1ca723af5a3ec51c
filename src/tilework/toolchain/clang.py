"""C source -> ELF object with the clang (or gcc) that is installed.

    toolchain = ClangToolchain(spec)          # finds `clang`, else `cc`, in PATH
    code = toolchain.compile(c_source)        # bytes, with the note of the features it needs

The compiler is run as a subprocess with an argument list and limits of time, memory and the size of
its object; source and object live in a temporary folder that is removed.  Floating point is strict:
no contraction, no reassociation.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
from functools import cached_property
from pathlib import Path
from typing import IO, Final

from tilework.base.errors import CompileError, DeviceUnavailableError, UnsupportedError
from tilework.target.features import AARCH64, CPU_LEVELS, X86_64, check_names
from tilework.target.isa import NOTE_SECTION, IsaNote
from tilework.target.spec import TargetSpec
from tilework.toolchain.base import note_log

CANDIDATES: Final = ("clang", "cc", "gcc")
TIME_LIMIT_SECONDS: Final = 120.0
MEMORY_LIMIT_BYTES: Final = 4 << 30
OBJECT_LIMIT_BYTES: Final = 256 << 20
_LOG_BYTES: Final = 20_000
_FLAGS: Final = (
    *("-x", "c", "-std=gnu11", "-c", "-fPIC", "-ffreestanding", "-fno-math-errno"),
    *("-ffp-contract=off", "-fno-stack-protector", "-fno-asynchronous-unwind-tables"),
    *("-fno-ident", "-fvisibility=hidden", "-w"),
)

# What compilers of the last years have a flag for; `cmov` and `cx8` are in every x86-64.
_X86_FLAGS: Final = dict(CPU_LEVELS[X86_64])["x86-64-v4"] - {"cmov", "cx8"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a compiler and what it has started: a driver runs the compiler proper as a child."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _tail(file: IO[bytes]) -> str:
    """The end of what was written to a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _LOG_BYTES, 0))
    return file.read().decode("utf-8", "replace")


def find_compiler() -> str | None:
    """Return the path of the first of `CANDIDATES` that is installed."""
    return next((path for name in CANDIDATES if (path := shutil.which(name))), None)


def require_compiler() -> str:
    """Return the path of a C compiler.

    Raises: DeviceUnavailableError that names what is missing.
    """
    found = find_compiler()
    if found is None:
        raise DeviceUnavailableError(
            "CPU:CLANG: no C compiler is installed",
            reason=f"none of {', '.join(CANDIDATES)} is in PATH",
            try_="install clang, or use the device CPU, which needs none",
        )
    return found


class ClangToolchain:
    """Compiles C for one `target`.  Thread-safe.

    Args:
        target: an x86-64 or aarch64 spec of this machine's instruction set.
        compiler: the path of the compiler; found in PATH by default.
        speed_level: the level of `-O`.
        time_limit_seconds: after this the compiler is stopped.
        memory_limit_bytes: what the compiler may take.
    """

    def __init__(
        self,
        target: TargetSpec,
        *,
        compiler: str | None = None,
        speed_level: int = 2,
        time_limit_seconds: float = TIME_LIMIT_SECONDS,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    ) -> None:
        if target.isa not in (X86_64, AARCH64):
            raise UnsupportedError("clang: no code generation for this target", got=target.isa)
        check_names(target.isa, target.features)
        self.target = target
        self.compiler = compiler or require_compiler()
        self.speed_level = speed_level
        self.time_limit_seconds = time_limit_seconds
        self.memory_limit_bytes = memory_limit_bytes

    @cached_property
    def key(self) -> str:
        """The compiler's version and the flags."""
        first = self._run([self.compiler, "--version"]).stdout.splitlines()[:1]
        version = first[0].strip() if first else "unknown"
        return f"clang;{version};{' '.join(self.arguments())};{self.target.isa}"

    def arguments(self) -> list[str]:
        """Return the flags, without the names of files."""
        return [*_FLAGS, f"-O{self.speed_level}", *self._machine_flags()]

    def compile(self, source: str) -> bytes:
        """Compile C to an object.

        Raises: CompileError with the command and the compiler's log; it also ends a compiler that
        takes too long.
        """
        with tempfile.TemporaryDirectory(prefix="tilework-") as folder:
            source_path, object_path = Path(folder, "kernel.c"), Path(folder, "kernel.o")
            source_path.write_text(source + self._note(), encoding="utf-8")
            command = [
                *(self.compiler, *self.arguments()),
                *("-o", str(object_path), str(source_path)),
            ]
            result = self._run(command)
            if result.returncode != 0 or not object_path.exists():
                raise CompileError(
                    "clang: the source was refused",
                    got=f"exit status {result.returncode}",
                    command=command,
                    log=result.stderr,
                )
            note_log(result.stderr)
            return object_path.read_bytes()

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        # Code between fork and exec is not safe with threads, so the limits are set from outside,
        # at once after the start.  Output goes to files, which have a limit too.
        try:
            with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as log:
                with subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=log,
                    start_new_session=True,
                ) as process:
                    try:
                        self._limit(process.pid)
                        process.wait(self.time_limit_seconds)
                    except BaseException:
                        _end(process)
                        raise
                texts = [_tail(output), _tail(log)]
            return subprocess.CompletedProcess(command, process.returncode, *texts)
        except subprocess.TimeoutExpired as error:
            raise CompileError(
                "clang: the compiler took too long and was stopped",
                got=f"more than {self.time_limit_seconds} s",
                command=command,
            ) from error
        except OSError as error:
            raise DeviceUnavailableError(
                "CPU:CLANG: the C compiler cannot be run", reason=str(error), got=self.compiler
            ) from error

    def _limit(self, process: int) -> None:
        """Bound the memory of a process and of those that it starts, and what it writes."""
        if not hasattr(resource, "prlimit"):  # Linux alone has it
            return
        try:
            for kind, limit in (
                (resource.RLIMIT_AS, self.memory_limit_bytes),
                (resource.RLIMIT_FSIZE, OBJECT_LIMIT_BYTES),
            ):
                resource.prlimit(process, kind, (limit, limit))
        except ProcessLookupError:  # it has ended already
            return

    def _machine_flags(self) -> list[str]:
        if self.target.isa == AARCH64:
            names = {"neon": "", "fp-armv8": "", "fullfp16": "fp16"}
            extras = [names.get(name, name) for name in sorted(self.target.features)]
            return ["-march=armv8-a" + "".join(f"+{name}" for name in extras if name)]
        used = sorted(self.target.features & _X86_FLAGS)
        return ["-march=x86-64", "-mtune=generic", *(f"-m{name}" for name in used)]

    def _note(self) -> str:
        features = self.target.features
        if self.target.isa == X86_64:
            features &= _X86_FLAGS
        text = IsaNote(self.target.isa, features).encode()
        return (
            f'\n__attribute__((section("{NOTE_SECTION}"), used))'
            f'\nstatic const char tilework_isa_note[] = "{text}";\n'
        )
