"""What NVIDIA's compiler makes of products of warps for every card that has them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.machine_code import instructions

from tilework import Tensor, dtypes
from tilework.base.settings import override
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import DType
from tilework.render.c_family.cuda import CudaRenderer
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import create_schedule
from tilework.target.cuda_report import Resources
from tilework.target.known.cuda import cuda_spec
from tilework.toolchain.nvrtc import NvrtcToolchain


def compiled(
    result: Tensor, capability: int, folder: Path
) -> tuple[Counter[str], dict[str, Resources]]:
    """The instructions of the kernel of a tensor, and what it takes."""
    target = cuda_spec(capability)
    call = transform_to_call([result.node])
    sink = create_schedule(call.function).linear.src[-1].src[0]
    renderer = CudaRenderer(target.limits.shared_memory_bytes)
    text = renderer.render(lower_kernel(sink, target))
    toolchain = NvrtcToolchain(target)
    code = toolchain.compile(text)
    cubin = code[code.index(b"\x7fELF") :]
    return instructions(cubin, folder), toolchain.resources(text)


def count(code: Counter[str], start: str) -> int:
    return sum(number for name, number in code.items() if re.match(start, name))


def product(dtype: DType, kind: str = "nn", size: int = 2048, total: DType | None = None) -> Tensor:
    a = Tensor.empty(size, size, dtype=dtype)
    b = Tensor.empty(size, size, dtype=dtype)
    return (a.T if kind[0] == "t" else a).matmul(b.T if kind[1] == "t" else b, dtype=total)


ROWS = [
    (75, dtypes.float16, "nn", None, r"HMMA\.1688"),
    (75, dtypes.int8, "nt", dtypes.int32, r"IMMA\.8816"),
    (80, dtypes.bfloat16, "tt", None, r"HMMA\.16816.*BF16"),
    (80, dtypes.int8, "nt", dtypes.int32, r"IMMA\.16832"),
    (80, dtypes.float32, "nn", None, r"HMMA\.1688.*TF32"),
    (80, dtypes.float64, "nn", None, r"DMMA\.884"),
    (86, dtypes.float16, "nt", None, r"HMMA\.16816"),
    (89, dtypes.fp8e4m3, "nt", dtypes.float32, r"QMMA\.16832.*E4M3"),
    (89, dtypes.fp8e5m2, "nt", dtypes.float32, r"QMMA\.16832.*E5M2"),
    (100, dtypes.float16, "tn", None, r"HMMA\.16816"),
    (120, dtypes.bfloat16, "nn", None, r"HMMA\.16816.*BF16"),
    (120, dtypes.fp8e4m3, "nt", dtypes.float32, r"QMMA\.16832"),
]


@pytest.mark.parametrize(("capability", "dtype", "kind", "total", "wanted"), ROWS)
def test_products_take_matrix_instructions_copies_that_run_beside_and_no_memory_for_registers(
    capability: int, dtype: DType, kind: str, total: DType | None, wanted: str, tmp_path: Path
) -> None:
    with override(allow_tf32=True):
        code, resources = compiled(product(dtype, kind, total=total), capability, tmp_path)
    assert count(code, wanted) >= 32
    assert not count(code, r"FFMA|DFMA|IMAD\.WIDE\.S8")
    if dtype.itemsize < 8:
        assert count(code, "LDSM") >= 4
    assert bool(count(code, "LDGSTS")) is (capability >= 80)
    assert not count(code, "LDL|STL")
    for found in resources.values():
        assert found.spilled_bytes == 0
        assert found.private_bytes == 0
        assert found.registers <= 255


@pytest.mark.parametrize("capability", [75, 86, 120])
def test_what_follows_a_product_stays_in_registers(capability: int, tmp_path: Path) -> None:
    x = Tensor.empty(2048, 1024, dtype=dtypes.float16)
    w = Tensor.empty(1024, 4096, dtype=dtypes.float16)
    bias = Tensor.empty(4096, dtype=dtypes.float16)
    code, resources = compiled((x @ w + bias).relu(), capability, tmp_path)
    assert count(code, "HMMA")
    assert not count(code, "LDL|STL")
    assert all(found.spilled_bytes == 0 for found in resources.values())


def test_pixels_and_channels_of_a_convolution_are_copied_in_pieces(tmp_path: Path) -> None:
    images = Tensor.empty(8, 28, 28, 64, dtype=dtypes.float16).permute(0, 3, 1, 2)
    weights = Tensor.empty(64, 3, 3, 64, dtype=dtypes.float16).permute(0, 3, 1, 2)
    code, resources = compiled(images.conv2d(weights, padding=1), 80, tmp_path)
    assert count(code, "HMMA")
    assert count(code, "LDGSTS")
    assert all(found.spilled_bytes == 0 for found in resources.values())
