"""Whole lines of large arrays are stored past the caches; the rest, and small ones, are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilework import Device, Tensor
from tilework.codegen.analysis import analyse
from tilework.codegen.linearize.large import leaves_caches
from tilework.codegen.linearize.past_caches import store_past_caches
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.choose import choose_plan
from tilework.dtypes import DType, float32, uint8
from tilework.ir.build import const, const_index
from tilework.ir.lowered import LoweredKernel
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.control import BROADCAST, END
from tilework.ir.ops.index import RANGE, LanesAttrs, RangeAttrs, Unit
from tilework.ir.ops.memory import FETCH, INDEX, STORE
from tilework.ir.ops.program import LINEAR
from tilework.ir.symbolic import simplify
from tilework.render.llvm_ir import LlvmRenderer
from tilework.runtime.lease import Lease
from tilework.schedule.pipeline import build_schedule
from tilework.target.spec import TargetSpec
from tilework.tensor.version import from_buffer
from tilework.testing.kernels import target

SIDE = 4096


def param(slot: int, *shape: int, dtype: DType = float32) -> Node:
    return memory.PARAM(attrs=memory.ParamAttrs(slot, shape, dtype, "CPU"))


def turned(x: Node) -> Node:
    return tensor.PERMUTE(x, attrs=tensor.AxesAttrs((1, 0)))


def lowered(value: Node, level: str = "x86-64-v4") -> LoweredKernel:
    (call,) = build_schedule(memory.SINK(tensor.CONTIGUOUS(value))).linear.src
    return lower_kernel(call.src[0], target(level))


def marks(kernel: LoweredKernel) -> set[bool]:
    """Whether stores are marked: of all, of none, or of some of them."""
    stores = [node for node in kernel.linear.src if node.op is STORE]
    return {node.attrs is not None and node.attrs.past_lines == 64 for node in stores}


def large() -> tuple[int, int]:
    spec = target("x86-64-v4")
    rows = SIDE
    while not leaves_caches(param(0, rows, SIDE), spec):
        rows *= 2
    return rows, SIDE


def test_large_transposes_and_copies_go_past_the_caches() -> None:
    shape = large()
    assert marks(lowered(turned(param(0, *shape)))) == {True}
    assert marks(lowered(math.NEG(param(0, *shape)))) == {True}


def test_small_ones_stay_in_them() -> None:
    assert marks(lowered(turned(param(0, 512, 512)))) == {False}
    assert marks(lowered(math.NEG(param(0, 512, 512)))) == {False}


def test_rows_that_end_within_a_line_stay_in_them() -> None:
    rows, columns = large()
    assert marks(lowered(turned(param(0, rows + 8, columns)))) == {False}
    assert marks(lowered(turned(param(0, rows + 16, columns)))) == {True}


def test_halves_of_lines_stay_in_them() -> None:
    assert marks(lowered(math.NEG(param(0, *large())), "x86-64-v3")) == {False}


@pytest.mark.parametrize(("lanes", "is_marked"), [((4, 4, 8), True), ((4, 8, 4), False)])
def test_a_vector_that_begins_within_one_of_its_length_stays(
    lanes: tuple[int, ...], is_marked: bool
) -> None:
    rows, columns = large()
    array = param(0, rows * columns)
    line = RANGE(const_index(rows * columns // 16), attrs=RangeAttrs(0, Unit.THREAD))
    first = simplify.scale(line, 16)
    stores, start = [], 0
    for count in lanes:
        value = BROADCAST(const(1.0, float32), attrs=LanesAttrs(count))
        stores.append(STORE(INDEX(array, simplify.plus(first, start)), value))
        start += count
    body = [node for node in toposort(*stores) if node.src and node is not line]
    marked = store_past_caches(LINEAR(line, *body, END(line)), target("x86-64-v4"))
    found = [node.attrs is not None for node in marked.src if node.op is STORE]
    assert found == [is_marked] * len(lanes)


def blocks_of(value: Node, level: str) -> set[int]:
    """How many squares a block of a transpose has along each side."""
    (call,) = build_schedule(memory.SINK(tensor.CONTIGUOUS(value))).linear.src
    machine = target(level)
    plan = choose_plan(analyse(normalise_ranges(call.src[0])), machine)
    return {split.outer[1].size for split in plan.splits}


def test_blocks_are_long_where_vectors_are_lines_of_large_arrays() -> None:
    rows, columns = large()
    assert blocks_of(turned(param(0, rows, columns)), "x86-64-v4") == {64, 1}
    assert blocks_of(turned(param(0, rows + 8, columns)), "x86-64-v4") == {64, 1}
    assert blocks_of(turned(param(0, 512, 512)), "x86-64-v4") == {4}
    assert blocks_of(turned(param(0, rows, columns)), "x86-64-v3") == {4}


def test_lines_are_as_long_for_bytes() -> None:
    rows, columns = large()
    assert marks(lowered(turned(param(0, 4 * rows, columns, dtype=uint8)))) == {True}


def test_what_goes_past_the_caches_is_not_fetched_into_them() -> None:
    kernel = lowered(math.NEG(param(0, *large())))
    assert not any(node.op is FETCH for node in kernel.linear.src)


def test_the_text_has_both_forms_and_a_fence_after_the_one() -> None:
    text = LlvmRenderer().render(lowered(turned(param(0, *large()))))
    assert text.count("define ") == 3
    start = text.index("past:")
    assert "fence seq_cst" in text[start : text.index("plain:", start)]
    past = [block for block in text.split("define ") if "!nontemporal" in block]
    assert len(past) == 1
    assert "store <16 x float>" in past[0]
    assert "align 1," not in past[0].replace("load", "")
    assert all("align 64" in line for line in past[0].split("\n") if "!nontemporal" in line)


def on_loan(lent: np.ndarray, offset: int, shape: tuple[int, ...]) -> Tensor:
    size_bytes = int(np.prod(shape)) * 4
    lease = Lease(lent.ctypes.data + offset, size_bytes, owner="test")
    return Tensor._over(from_buffer(Device["CPU"].map(lease), "CPU", shape, float32))


@pytest.mark.parametrize("offset", [0, 4, 20, 32, 63, 64])
def test_results_may_begin_anywhere(offset: int) -> None:
    shape = large()
    count = shape[0] * shape[1]
    lent = np.full(4 * count + 192, 0xA5, np.uint8)
    offset += -lent.ctypes.data % 64
    x = np.arange(count, dtype=np.float32).reshape(shape)
    result = on_loan(lent, offset, shape[::-1])
    result.assign(Tensor(x).permute(1, 0)).realize()
    got = np.frombuffer(lent.data, np.uint8, 4 * count, offset).copy().view(np.float32)
    np.testing.assert_array_equal(got.reshape(shape[::-1]), x.T)
    assert set(lent[:offset]) <= {0xA5}
    assert set(lent[offset + 4 * count :]) == {0xA5}


def test_what_was_stored_past_the_caches_is_seen_by_the_next_kernel() -> None:
    rows, columns = large()
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) % 251
    value, wanted = Tensor(x).realize(), x
    for _ in range(4):
        value, wanted = (value.permute(1, 0).contiguous() + 1).realize(), wanted.T + 1
        ends = [(0, 0), (-1, -1), (7, 5), (-3, 2)]
        assert [value[at].item() for at in ends] == [wanted[at] for at in ends]
    np.testing.assert_array_equal(value.numpy(), wanted)


def test_thresholds_follow_the_second_cache_and_are_never_small() -> None:
    known = target("x86-64-v4")

    def least(size_bytes: int) -> int:
        memories = tuple(
            [replace(m, size_bytes=size_bytes) if m.name == "L2" else m for m in known.memories]
        )
        machine: TargetSpec = replace(known, memories=memories)
        sizes = [1 << n for n in range(10, 32)]
        return next(n for n in sizes if leaves_caches(param(0, n // 4), machine))

    found = [least(size_bytes) for size_bytes in (1 << 18, 1 << 21, 1 << 22)]
    assert found == [32 << 20, 32 << 20, 64 << 20]
