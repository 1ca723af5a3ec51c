"""What NVIDIA's compiler makes of attention and its gradients by products of warps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.attention_kernels import attention, by_keys, by_queries
from tests.machine_code import instructions

from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import bfloat16, float16
from tilework.ir.node import Node
from tilework.render.c_family.cuda import CudaRenderer
from tilework.target.known.cuda import cuda_spec
from tilework.toolchain.nvrtc import NvrtcToolchain

KERNELS = [
    (75, attention(2048, 2048, causal=True, dtype=float16), r"HMMA\.1688"),
    (80, attention(2048, 2048, causal=True, dtype=float16), r"HMMA\.16816"),
    (86, by_keys(2048, 2048), r"HMMA\.16816.*BF16"),
    (89, by_queries(2048, 2048, 128), r"HMMA\.16816.*BF16"),
    (120, attention(2048, 2048, causal=True, dtype=bfloat16), r"HMMA\.16816.*BF16"),
    pytest.param(100, by_keys(2048, 2048), r"HMMA\.16816.*BF16", marks=pytest.mark.slow),
    pytest.param(80, by_queries(2048, 2048, 256), r"HMMA\.16816", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("capability", "sink", "product"), KERNELS)
def test_what_is_between_products_stays_in_registers(
    capability: int, sink: Node, product: str, tmp_path: Path
) -> None:
    target = cuda_spec(capability)
    text = CudaRenderer(target.limits.shared_memory_bytes).render(lower_kernel(sink, target))
    toolchain = NvrtcToolchain(target)
    code = toolchain.compile(text)
    found = instructions(code[code.index(b"\x7fELF") :], tmp_path)

    def count(start: str) -> int:
        return sum(number for name, number in found.items() if re.match(start, name))

    assert count(product) >= 32
    assert count("LDSM") >= 16
    assert bool(count("LDGSTS")) is (capability >= 80)
    assert count(r"MUFU\.EX2")
    assert not count("LDL|STL")
    for resources in toolchain.resources(text).values():
        assert resources.spilled_bytes == 0
        assert resources.registers <= 255
