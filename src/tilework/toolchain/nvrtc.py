"""CUDA C -> cubin with NVIDIA's run-time compiler, from its wheel: no toolkit, no driver, no GPU.

    toolchain = NvrtcToolchain(cuda_spec(90))
    cubin = toolchain.cubin(source)
    code = toolchain.compile(source)  # with the head that the source's first line describes

Floating point is strict: no contraction, subnormal numbers kept, division and root rounded.
"""

from __future__ import annotations

import json
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, Final

from tilework.base.errors import (
    CompileError,
    DeviceUnavailableError,
    InternalError,
    UnsupportedError,
)
from tilework.target.cuda_code import SOURCE_HEAD, CudaHead, box_from, pack_code
from tilework.target.cuda_report import (
    REPORT_FLAG,
    Resources,
    check_head,
    check_report,
    read_report,
)
from tilework.target.known.cuda import ISA
from tilework.target.spec import TargetSpec
from tilework.toolchain.base import note_log

MISSING: Final = "cuda-bindings or nvidia-cuda-nvrtc is not installed"
EXTRA: Final = "pip install tilework[cuda]"
_FLAGS: Final = (
    *("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"),
    *("--disable-warnings", "--no-source-include", REPORT_FLAG),
)


@cache
def _module() -> Any:
    """NVIDIA's bindings, or None."""
    try:
        from cuda.bindings import nvrtc  # heavy, and only there with the extra
    except ImportError:
        return None
    return nvrtc


@cache
def compiler_version() -> tuple[int, int] | None:
    """The version of the run-time compiler, or None where it is not installed."""
    if find_spec("cuda") is None:
        return None
    module = _module()
    if module is None:
        return None
    try:
        status, major, minor = module.nvrtcVersion()
    except RuntimeError:  # the bindings are there, the library is not
        return None
    return (int(major), int(minor)) if int(status) == 0 else None


def is_installed() -> bool:
    """Whether kernels can be compiled here."""
    return compiler_version() is not None


class NvrtcToolchain:
    """Compiles CUDA C for one `target`.  Thread-safe.

    Args:
        target: The spec of a card.
    """

    def __init__(self, target: TargetSpec) -> None:
        if target.isa != ISA:
            raise UnsupportedError("nvrtc: no code generation for this target", got=target.isa)
        self.target = target

    @cached_property
    def key(self) -> str:
        """The compiler's version and the flags."""
        version = compiler_version()
        text = "none" if version is None else ".".join(map(str, version))
        return f"nvrtc;{text};{' '.join(self.arguments())}"

    def arguments(self) -> list[str]:
        """Return the flags."""
        return [f"--gpu-architecture={self.target.cpu_name}", *_FLAGS]

    def warm_up(self) -> None:
        """Load the compiler, so that the first kernel need not wait for it."""
        self.cubin("")

    def compile(self, source: str) -> bytes:
        """Compile a rendered kernel to code that a card's driver loads: its head and its cubin.

        Raises: As `cubin`; InternalError for a text without a head; CompileError for a kernel that
            takes more threads, registers or memory than a block of the target may have.
        """
        line = source.partition("\n")[0]
        if not line.startswith(SOURCE_HEAD):
            raise InternalError("nvrtc: the source has no head", got=line[:80])
        fields = json.loads(line.removeprefix(SOURCE_HEAD))
        fields["boxes"] = tuple(map(box_from, fields["boxes"]))
        head = CudaHead(arch=self.target.cpu_name, **fields)
        check_head(head, self.target)
        cubin, log = self._compiled(source)
        check_report(head, read_report(log), self.target)
        return pack_code(head, cubin)

    def resources(self, source: str) -> dict[str, Resources]:
        """Say what each entry point of a source takes, by its name, as the compiler reports it.

        Raises: As `cubin`.
        """
        return read_report(self._compiled(source)[1])

    def cubin(self, source: str) -> bytes:
        """Compile CUDA C to a cubin.

        Raises: CompileError with the compiler's log; DeviceUnavailableError when there is no
            compiler.
        """
        return self._compiled(source)[0]

    def _compiled(self, source: str) -> tuple[bytes, str]:
        """The cubin, and what the compiler said."""
        if not is_installed():
            raise DeviceUnavailableError(
                "CUDA: there is no compiler for kernels", reason=MISSING, try_=EXTRA
            )
        nvrtc = _module()
        status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
        if int(status):
            raise CompileError("nvrtc: no program could be made", got=str(status))
        try:
            options = [option.encode() for option in self.arguments()]
            (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
            if int(status):
                raise CompileError(
                    "nvrtc: the source was refused",
                    got=str(status),
                    command=self.arguments(),
                    log=_text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program),
                )
            log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            note_log(log)
            return _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log
        finally:
            nvrtc.nvrtcDestroyProgram(program)


def _bytes(measure: Any, read: Any, program: Any) -> bytes:
    status, size = measure(program)
    # Its own memory: the compiler writes into it, and all bytes objects of one character are one.
    data = bytearray(int(size))
    (other,) = read(program, data)
    if int(status) or int(other):
        raise CompileError("nvrtc: the result could not be read", got=f"{status}, {other}")
    return bytes(data)


def _text(measure: Any, read: Any, program: Any) -> str:
    return _bytes(measure, read, program).rstrip(b"\0 ").decode("utf-8", "replace")[-20_000:]
