"""What a kernel takes, by the compiler's report, beside what a card has."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tilework.base.errors import CompileError
from tilework.target.cuda_code import SOURCE_HEAD, CudaHead, unpack_code
from tilework.target.cuda_report import Resources, check_head, check_report, read_report
from tilework.target.known.cuda import CAPABILITIES, cuda_spec
from tilework.toolchain.nvrtc import NvrtcToolchain

AMPERE = cuda_spec(80)
HEAD = CudaHead(
    name="k",
    arch="sm_80",
    threads=256,
    shared=1024,
    scratch=0,
    buffers=1,
    variables=0,
    has_any=False,
)
LOG = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k_any' for 'sm_80'
ptxas info    : Function properties for k_any
ptxas         .     64 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 64 bytes cumulative stack size, 256 bytes smem
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 360 bytes cmem[0]
"""


def text(body: str, **changed: object) -> str:
    """The source of a kernel with a head."""
    fields = {name: getattr(HEAD, name) for name in HEAD.__dataclass_fields__ if name != "arch"}
    head = json.dumps(fields | changed)
    return (
        f'{SOURCE_HEAD}{head}\nextern "C" __global__ void __launch_bounds__(256) k(float *a) {{\n'
        f"{body}\n}}\n"
    )


def test_CST_14_the_report_of_every_entry_point_is_read() -> None:
    assert read_report(LOG) == {"k": Resources(32, 0, 0, 0), "k_any": Resources(40, 256, 64, 20)}
    assert read_report("nothing that is known") == {}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"threads": 1025}, "threads"),
        ({"shared": AMPERE.limits.shared_memory_bytes + 1}, "shared"),
        ({"scratch": AMPERE.limits.max_scratch_bytes + 1}, "scratch"),
    ],
)
def test_CST_14_what_a_launch_asks_for_is_checked_before_compiling(
    changed: dict[str, int], what: str
) -> None:
    check_head(HEAD, AMPERE)
    with pytest.raises(CompileError, match=what):
        check_head(replace(HEAD, **changed), AMPERE)  # type: ignore[arg-type]
    with pytest.raises(CompileError, match=what):
        NvrtcToolchain(AMPERE).compile(text("this does not even compile", **changed))


@pytest.mark.parametrize(
    ("threads", "found", "what"),
    [
        (256, Resources(256, 0, 0, 0), "registers of a thread"),
        (512, Resources(129, 0, 0, 0), "registers of a block"),
        (256, Resources(32, AMPERE.limits.shared_memory_bytes, 0, 0), "shared memory"),
        (256, Resources(32, 0, (512 << 10) + 8, 0), "thread's memory"),
    ],
)
def test_CST_14_what_the_compiler_reports_is_checked_after(
    threads: int, found: Resources, what: str
) -> None:
    head = replace(HEAD, threads=threads)
    check_report(head, {"k": Resources(128, 1024, 0, 0)}, AMPERE)
    with pytest.raises(CompileError, match=what):
        check_report(head, {"k": found}, AMPERE)


def test_CST_14_a_kernel_with_too_much_shared_memory_of_its_own_fails_where_it_is_made() -> None:
    # The code's own 40 KiB fit, and so does what the launch adds, but not both.
    body = "__shared__ float s[10240]; s[threadIdx.x] = a[0]; __syncthreads(); a[1] = s[3];"
    toolchain = NvrtcToolchain(cuda_spec(75))
    assert unpack_code(toolchain.compile(text(body)))[0].shared == HEAD.shared
    with pytest.raises(CompileError, match="bytes of shared memory"):
        toolchain.compile(text(body, shared=60 << 10))


def test_CST_14_more_threads_than_the_registers_suffice_for_are_refused() -> None:
    body = "float x[96]; for (int i = 0; i < 96; i++) x[i] = a[i * 7];\n" * 1
    body += "for (int r = 0; r < 99; r++)\n#pragma unroll\nfor (int i = 0; i < 96; i++)"
    body += " x[i] = x[i] * x[(i + 5) % 96] + r;\nfor (int i = 0; i < 96; i++) a[i] = x[i];"
    toolchain = NvrtcToolchain(AMPERE)
    found = toolchain.resources(text(body))["k"]
    assert found.registers > 64
    assert unpack_code(toolchain.compile(text(body)))[0].threads == HEAD.threads
    with pytest.raises(CompileError, match="registers of a block"):
        toolchain.compile(text(body, threads=1024))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_CST_14_every_card_says_what_a_block_may_have(capability: int) -> None:
    limits = cuda_spec(capability).limits
    assert limits.registers == 65536
    assert limits.max_thread_registers == 255
    assert limits.private_bytes == 512 << 10
