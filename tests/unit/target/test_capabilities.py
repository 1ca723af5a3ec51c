"""Each capability that a spec has is used, and one that it lacks is refused or done without."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.codegen.matrix.test_ring import product
from tests.unit.codegen.sort.test_sort_rows import sort_kernel

from tilework.base.errors import BoundsError, TileworkError, UnsupportedError
from tilework.base.records import fields, replace
from tilework.base.settings import override
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.runtime.driver import Launch, check_commands
from tilework.target.known.cpu import x86_level_spec
from tilework.target.known.cuda import cuda_spec
from tilework.target.spec import (
    CopyEngine,
    Limits,
    MatrixInstruction,
    Memory,
    ParallelUnit,
    TargetSpec,
)

LAPTOP, HOPPER = x86_level_spec("x86-64-v3", cores=2), cuda_spec(90)


@cache
def attributes_read() -> frozenset[str]:
    """Names that follow a point in some module: each attribute that is read, and some more."""
    source = Path(inspect.getfile(TargetSpec)).parents[1]
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    return frozenset(name for text in texts for name in re.findall(r"(?<=\w)\.(\w+)", text))


def ops_of(sink: Node, target: TargetSpec) -> set[object]:
    """The ops of the statements that a kernel becomes."""
    return {node.op for node in toposort(lower_kernel(sink, target).linear)}


def elementwise(make: Callable[[Node, Node], Node]) -> Node:
    place = RANGE(const_index(64), attrs=RangeAttrs(0))
    out, x, y = (INDEX(PARAM(attrs=ParamAttrs(slot, (64,), float32)), place) for slot in range(3))
    return SINK(STORE(out, make(LOAD(x), LOAD(y))))


@pytest.mark.parametrize(
    "record", [ParallelUnit, Memory, MatrixInstruction, CopyEngine, Limits, TargetSpec]
)
def test_BKE_03_each_field_of_a_spec_has_a_reader(record: type) -> None:
    assert [each.name for each in fields(record) if each.name not in attributes_read()] == []


def test_BKE_03_fused_products_and_sums_are_used_where_there_are_some() -> None:
    kernel = elementwise(lambda x, y: math.ADD(math.MUL(x, y), y))
    with override(fp_mode="contract"):
        assert math.MULACC in ops_of(kernel, LAPTOP)
        assert math.MULACC not in ops_of(kernel, replace(LAPTOP, has_fma=False))


def test_BKE_03_an_op_that_is_not_native_is_made_of_others() -> None:
    kernel = elementwise(lambda x, y: math.SQRT(x))
    assert math.SQRT in ops_of(kernel, LAPTOP)
    without = replace(LAPTOP, native_ops=LAPTOP.native_ops - {"sqrt"})
    assert math.SQRT not in ops_of(kernel, without)


def test_BKE_03_vectors_have_the_width_that_the_spec_says() -> None:
    kernel = elementwise(math.ADD)
    for bits in (128, 256):
        linear = lower_kernel(kernel, replace(LAPTOP, vector_bits=bits)).linear
        lanes = {node.type.lanes for node in linear.src if node.op is LOAD}
        assert bits // 32 in lanes
        assert max(lanes) * 32 <= 8 * bits  # several registers side by side at most


def test_BKE_03_matrix_instructions_are_used_where_there_are_some() -> None:
    assert "wgmma" in lower_kernel(product(256, 256, 256), HOPPER).plan
    plain = lower_kernel(product(256, 256, 256), replace(HOPPER, matrix_instructions=())).plan
    assert "wgmma" not in plain
    assert "mma" not in plain


@pytest.mark.parametrize("size", [1 << 14, 48 << 10, 227 << 10])
def test_BKE_03_no_block_takes_more_shared_memory_than_there_is(size: int) -> None:
    small = replace(HOPPER, limits=replace(HOPPER.limits, shared_memory_bytes=size))
    lowered = lower_kernel(product(256, 256, 256), small)
    assert lowered.scratch_bytes <= size


@pytest.mark.parametrize("threads", [256, 512, 1024])
def test_BKE_03_no_block_has_more_threads_than_there_may_be(threads: int) -> None:
    limits = replace(HOPPER.limits, max_workgroup_threads=threads)
    small = replace(HOPPER, limits=limits)
    for kernel in (elementwise(math.ADD), sort_kernel(float32, 2, 3000), product(256, 256, 256)):
        assert 0 < lower_kernel(kernel, small).threads <= threads


def test_BKE_03_rows_beyond_the_scratch_of_a_task_are_refused() -> None:
    kernel = sort_kernel(float32, 1, 100_000)
    assert lower_kernel(kernel, LAPTOP).scratch_bytes <= LAPTOP.limits.max_scratch_bytes
    small = replace(LAPTOP, limits=replace(LAPTOP.limits, max_scratch_bytes=1 << 20))
    with pytest.raises(UnsupportedError, match="too long for the scratch memory"):
        lower_kernel(kernel, small)


def launch(
    buffers: int, variables: int, grid: tuple[int, ...], workgroup: tuple[int, ...]
) -> Launch:
    memory = SimpleNamespace(memory=SimpleNamespace(is_readonly=False))
    kernel: Any = SimpleNamespace(name="k", num_buffers=buffers, num_variables=variables, writes=())
    return Launch(kernel, (memory,) * buffers, (0,) * variables, grid=grid, workgroup=workgroup)  # type: ignore[arg-type]


LIMITS: dict[str, Any] = {
    "max_kernel_buffers": 4,
    "max_variables": 3,
    "max_grid": (8, 6, 4),
    "max_workgroup": (16, 8, 2),
}
INSIDE: dict[str, Any] = {"buffers": 4, "variables": 3, "grid": (8, 6, 4), "workgroup": (16, 8, 2)}


@pytest.mark.parametrize(
    "beyond",
    [
        {"buffers": 5},
        {"variables": 4},
        *({"grid": tuple(9 if at == axis else 1 for at in range(3))} for axis in range(3)),
        *({"workgroup": tuple(17 if at == axis else 1 for at in range(3))} for axis in range(3)),
        {"grid": (1, 1, 1, 1)},
    ],
)
def test_BKE_03_launches_up_to_each_limit_pass_and_those_beyond_are_refused(
    beyond: dict[str, Any],
) -> None:
    spec = replace(HOPPER, limits=replace(HOPPER.limits, **LIMITS))
    check_commands(spec, "CARD", [launch(**INSIDE)])
    with pytest.raises(TileworkError) as caught:
        check_commands(spec, "CARD", [launch(**{**INSIDE, **beyond})])
    assert isinstance(caught.value, (UnsupportedError, BoundsError))
