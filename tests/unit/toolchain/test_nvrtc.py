"""NVIDIA's compiler without a GPU: what it makes of kernels, and what its machine code is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.machine_code import instructions

from tilework import Tensor, dtypes
from tilework.backends.contract import KernelSource
from tilework.backends.cuda import CudaCompiler
from tilework.base.errors import CompileError, InternalError, UnsupportedError
from tilework.codegen.pipeline import lower_kernel
from tilework.engine.workers import WorkerPool
from tilework.ir.build import const_index
from tilework.render.c_family.cuda import CudaRenderer
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import create_schedule
from tilework.target.known.cpu import x86_level_spec
from tilework.target.known.cuda import CAPABILITIES, cuda_spec
from tilework.toolchain.nvrtc import NvrtcToolchain, compiler_version

HOPPER = cuda_spec(90)


def source_of(function: Callable[[], Tensor], capability: int = 90) -> str:
    target = cuda_spec(capability)
    call = transform_to_call([function().node])
    sink = create_schedule(call.function).linear.src[-1].src[0]
    return CudaRenderer(target.limits.shared_memory_bytes).render(lower_kernel(sink, target))


def test_the_compiler_is_there() -> None:
    version = compiler_version()
    assert version is not None
    assert version >= (12, 6)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_kernels_compile_for_every_capability(capability: int) -> None:
    text = source_of(lambda: Tensor.empty(64, 64).cast(dtypes.float16).softmax(-1), capability)
    assert NvrtcToolchain(cuda_spec(capability)).cubin(text)[:4] == b"\x7fELF"


def test_elementwise_work_moves_sixteen_bytes_an_instruction(tmp_path: Path) -> None:
    cubin = NvrtcToolchain(HOPPER).cubin(source_of(lambda: Tensor.empty(4096).exp()))
    code = instructions(cubin, tmp_path, first=True)
    assert code["LDG.E.128"] == 1
    assert code["STG.E.128"] == 1


def test_a_contraction_keeps_its_results_in_registers(tmp_path: Path) -> None:
    cubin = NvrtcToolchain(HOPPER).cubin(
        source_of(lambda: Tensor.empty(4096, 1024) @ Tensor.empty(1024, 4096))
    )
    code = instructions(cubin, tmp_path, first=True)
    assert code["FFMA"] >= 1024
    assert code["LDS.128"] >= 64
    assert not [name for name in code if name.startswith(("LDL", "STL"))]


def test_long_chains_of_integers_compile_at_once() -> None:
    text = source_of(lambda: Tensor.empty(67, dtype=dtypes.float64).sin())
    assert not re.search(r"^\s*const (u|i)(32|64) ", text, re.MULTILINE)
    assert NvrtcToolchain(HOPPER).cubin(text)


def test_a_source_that_is_wrong_is_refused_with_the_log() -> None:
    with pytest.raises(CompileError) as caught:
        NvrtcToolchain(HOPPER).cubin("this is no program")
    assert "error" in (caught.value.log or "")


class SilentCompiler:
    """Answers as NVIDIA's does whose log is empty: a log of one character, which ends it."""

    def nvrtcCreateProgram(self, *arguments: Any) -> tuple[int, str]:
        return 0, "program"

    def nvrtcCompileProgram(self, *arguments: Any) -> tuple[int]:
        return (0,)

    def nvrtcDestroyProgram(self, program: str) -> tuple[int]:
        return (0,)

    def size(self, program: str) -> tuple[int, int]:
        return 0, 1

    def write(self, program: str, memory: bytearray) -> tuple[int]:
        memoryview(memory)[:] = b"\0"
        return (0,)

    nvrtcGetProgramLogSize = nvrtcGetCUBINSize = size
    nvrtcGetProgramLog = nvrtcGetCUBIN = write


def test_the_compiler_writes_into_memory_that_nobody_else_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python has one object for all bytes objects of one character."""
    monkeypatch.setattr("tilework.toolchain.nvrtc.is_installed", lambda: True)
    monkeypatch.setattr("tilework.toolchain.nvrtc._module", SilentCompiler)
    assert NvrtcToolchain(HOPPER).cubin("") == b"\0"
    assert bytes(bytearray([32])).hex() == "20"


def test_a_target_that_is_no_card_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        NvrtcToolchain(x86_level_spec("x86-64"))


def test_a_card_that_is_too_old_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="compute capability"):
        cuda_spec(61)


def test_a_card_newer_than_the_table_takes_the_code_of_its_family() -> None:
    assert cuda_spec(87).cpu_name == "sm_87"
    assert cuda_spec(90).cpu_name == "sm_90a"


def test_a_worker_process_makes_the_same_code() -> None:
    compiler = CudaCompiler(HOPPER)
    how = compiler.worker()
    assert how is not None
    text = source_of(lambda: Tensor.empty(4096).exp())
    source = KernelSource(
        name="k", text=text, tasks=const_index(1), variables=(), num_buffers=2, scratch_bytes=0
    )
    pool = WorkerPool(how, 1)
    try:
        code = pool.result(pool.submit(source))
    finally:
        pool.close()
    assert code == compiler.build(source)


def test_a_text_without_a_head_is_no_kernel() -> None:
    with pytest.raises(InternalError, match="no head"):
        NvrtcToolchain(HOPPER).compile('extern "C" __global__ void k() {}')


def test_rounds_that_wait_are_not_written_out(tmp_path: Path) -> None:
    def product() -> Tensor:
        return Tensor.empty(2048, 512, dtype=dtypes.bfloat16) @ Tensor.empty(
            512, 2048, dtype=dtypes.bfloat16
        )

    text = source_of(product)
    assert "signal_wait" in text
    assert "#pragma unroll 1\n" in text
    # One round has a depth of 64, which is four instructions.
    code = instructions(NvrtcToolchain(HOPPER).cubin(text), tmp_path, first=True)
    assert 4 <= sum(n for name, n in code.items() if name.startswith("HGMMA")) <= 8


def test_a_kernel_waits_for_the_one_before_it_ahead_of_all_it_reads(tmp_path: Path) -> None:
    for count, lets_others_start in ((4096, 2), (1 << 24, 0)):
        text = source_of(lambda count=count: Tensor.empty(count).exp())  # type: ignore[misc]
        code = instructions(NvrtcToolchain(HOPPER).cubin(text), tmp_path)
        assert code["ACQBULK"] == 2  # of both entry points
        assert code["PREEXIT"] == lets_others_start
    older = cuda_spec(80)
    code = instructions(NvrtcToolchain(older).cubin(source_of(lambda: Tensor.empty(64).exp(), 80)),
                        tmp_path)  # fmt: skip
    assert not code["ACQBULK"]
