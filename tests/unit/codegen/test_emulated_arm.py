"""Kernels for 64-bit Arm compute under an emulator what the interpreter does, to the last bit."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import DType, float32, int8, int32
from tilework.ir.build import cast, const_index
from tilework.ir.lowered import LoweredKernel
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import aarch64_spec
from tilework.testing.kernels import Case, interpret_linear
from tilework.toolchain.llvm import LlvmToolchain

pytestmark = pytest.mark.needs("program:aarch64-linux-gnu-gcc", "program:qemu-aarch64-static")

NEON = aarch64_spec(cores=2)
DOTS = aarch64_spec(("fp-armv8", "neon", "dotprod"), cores=2)
ADD = ReduceAttrs(Fold.ADD)

#: Reads the buffers from one file, runs all tasks, and writes them back.
MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
void {name}(void **, int64_t *, int64_t, int64_t, void *);
int main(int count, char **words) {{
  static const int64_t sizes[] = {{{sizes}}};
  enum {{ buffers = sizeof sizes / sizeof sizes[0] }};
  void *held[buffers];
  FILE *file = fopen(words[1], "r+b");
  for (int at = 0; at < buffers; at++) {{
    held[at] = aligned_alloc(64, (sizes[at] + 127) / 64 * 64);
    if (fread(held[at], 1, sizes[at], file) != sizes[at]) return 1;
  }}
  int64_t fault = 0, variables[] = {{(int64_t)&fault}};
  {name}(held, variables, 0, {tasks}, aligned_alloc(64, {scratch}));
  rewind(file);
  for (int at = 0; at < buffers; at++)
    if (fwrite(held[at], 1, sizes[at], file) != sizes[at]) return 1;
  fclose(file);
  return fault != 0;
}}
"""


def ranges(*sizes: int) -> list[Node]:
    return [RANGE(const_index(size), attrs=RangeAttrs(at)) for at, size in enumerate(sizes)]


def at(slot: int, size: int, dtype: DType, *terms: tuple[Node, int]) -> Node:
    place = const_index(0)
    for term, step in terms:
        place = simplify.add(place, simplify.scale(term, step))
    return INDEX(PARAM(attrs=ParamAttrs(slot, (size,), dtype)), place)


def product(m: int, n: int, k: int, dtype: DType, total: DType) -> Node:
    """A product of matrices in rows."""
    i, j, p = ranges(m, n, k)
    left = LOAD(at(1, m * k, dtype, (i, k), (p, 1)))
    right = LOAD(at(2, k * n, dtype, (p, n), (j, 1)))
    terms = math.MUL(cast(left, total), cast(right, total))
    return SINK(STORE(at(0, m * n, total, (i, n), (j, 1)), REDUCE(terms, p, attrs=ADD)))


def convolution(channels: int, outputs: int, side: int) -> Node:
    """A 3 x 3 convolution of an image with its padding in memory."""
    wide = side + 2
    o, y, x, c, ky, kx = ranges(outputs, side, side, channels, 3, 3)
    pixel = ((c, wide * wide), (y, wide), (ky, wide), (x, 1), (kx, 1))
    left = LOAD(at(1, channels * wide * wide, float32, *pixel))
    weight = ((o, channels * 9), (c, 9), (ky, 3), (kx, 1))
    right = LOAD(at(2, outputs * channels * 9, float32, *weight))
    place = at(0, outputs * side * side, float32, (o, side * side), (y, side), (x, 1))
    return SINK(STORE(place, REDUCE(math.MUL(left, right), c, ky, kx, attrs=ADD)))


def emulated(lowered: LoweredKernel, code: bytes, case: Case, folder: Path) -> list[bytes]:
    """The buffers after a run of all tasks under the emulator."""
    tasks = simplify.value_of(lowered.tasks)
    sizes = [len(buffer) for buffer in case.buffers]
    text = MAIN.format(
        name=lowered.name,
        sizes=", ".join(map(str, sizes)),
        tasks=tasks,
        scratch=max(-(-lowered.scratch_bytes // 64) * 64, 64),
    )
    (folder / "main.c").write_text(text, encoding="utf-8")
    (folder / "kernel.o").write_bytes(code)
    program, data = folder / "program", folder / "data"
    data.write_bytes(b"".join(case.buffers))
    files = [str(folder / name) for name in ("program", "main.c", "kernel.o")]
    build = ["aarch64-linux-gnu-gcc", "-static", "-O1", "-o", *files]
    subprocess.run(build, check=True, timeout=60)
    run = ["qemu-aarch64-static", "-cpu", "max", str(program), str(data)]
    subprocess.run(run, check=True, timeout=60)
    left = data.read_bytes()
    found = []
    for size in sizes:
        found.append(left[:size])
        left = left[size:]
    return found


def random_bytes(generator: Any, size: int, dtype: DType) -> bytes:
    if dtype is float32:
        return bytes(generator.standard_normal(size).astype(np.float32).tobytes())
    return bytes(generator.integers(-128, 128, size).astype(np.int8).tobytes())


CASES = {
    "product": (product(13, 37, 70, float32, float32), NEON, "fmla", (481, 910, 2590), float32),
    "convolution": (convolution(6, 16, 12), NEON, "fmla", (2304, 1176, 864), float32),
    "bytes": (product(12, 40, 64, int8, int32), DOTS, "sdot", (480, 768, 2560), int8),
}


@pytest.mark.parametrize("name", list(CASES))
def test_a_kernel_for_arm_computes_under_an_emulator_what_the_interpreter_does(
    name: str, tmp_path: Path
) -> None:
    sink, target, instruction, sizes, dtype = CASES[name]
    generator = np.random.default_rng(0)
    inputs = [random_bytes(generator, size, dtype) for size in sizes[1:]]
    case = Case(sink, [bytes(4 * sizes[0]), *inputs])
    lowered = lower_kernel(sink, target)
    toolchain = LlvmToolchain(target)
    text = LlvmRenderer().render(lowered)
    assert instruction in toolchain.assembly(text)
    found = emulated(lowered, toolchain.compile(text), case, tmp_path)
    assert found == interpret_linear(case, lowered.linear).buffers
