"""Products of narrow integers in words: which are, and that the sums are exact."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.codegen.analysis import analyse
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.contraction import load_count, loaded_share, orientations
from tilework.codegen.plan.dot_products import ready_for_plans
from tilework.dtypes import DType, int8, int16, int32, int64, uint8, uint32
from tilework.engine.device import Device
from tilework.ir.build import cast, const_index
from tilework.ir.node import Node, OpDef, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import aarch64_spec, x86_level_spec
from tilework.target.spec import TargetSpec
from tilework.testing.kernels import Case, can_run, run_on_machine
from tilework.toolchain.llvm import LlvmToolchain

QUADS = x86_level_spec("x86-64-v4", cores=2, extra=("avx512vnni",))
SHORT_QUADS = x86_level_spec("x86-64-v3", cores=2, extra=("avxvnni",))
PAIRS = x86_level_spec("x86-64-v3", cores=2)
LEVELS = [level for level in ("x86-64", "x86-64-v3", "host") if can_run(level)]
SIGNED_QUADS = aarch64_spec(("fp-armv8", "neon", "dotprod"), cores=2)
FACTORS = {
    math.DOT_PAIRS: (np.int16, np.int16),
    math.DOT_QUADS: (np.uint8, np.int8),
    math.DOT_SIGNED_QUADS: (np.int8, np.int8),
    math.DOT_UNSIGNED_QUADS: (np.uint8, np.uint8),
}
KINDS = ["llvm", pytest.param("clang", marks=pytest.mark.needs("program:cc"))]


def product(
    a: DType, b: DType, total: DType = int32, m: int = 12, n: int = 40, k: int = 64
) -> Node:
    """The kernel of a matrix product: ranges 0 and 1 are rows and columns, 2 is summed over."""
    i, j, p = (
        RANGE(const_index(size), attrs=RangeAttrs(number)) for number, size in enumerate((m, n, k))
    )
    x = PARAM(attrs=ParamAttrs(1, (m * k,), a))
    y = PARAM(attrs=ParamAttrs(2, (k * n,), b))
    left = LOAD(INDEX(x, simplify.add(simplify.scale(i, k), p)))
    right = LOAD(INDEX(y, simplify.add(simplify.scale(p, n), j)))
    terms = math.MUL(cast(left, total), cast(right, total))
    target = PARAM(attrs=ParamAttrs(0, (m * n,), total))
    offset = simplify.add(simplify.scale(i, n), j)
    return SINK(STORE(INDEX(target, offset), REDUCE(terms, p, attrs=ReduceAttrs(Fold.ADD))))


def dots(kernel: Node, target: TargetSpec) -> list[OpDef]:
    """The ops on words in the kernel that plans are made for, one for each sum."""
    sums = [node for node in toposort(ready_for_plans(kernel, target)) if node.op is REDUCE]
    return [node.src[0].op for node in sums if node.src[0].op in math.DOTS]


@pytest.mark.parametrize("target", [QUADS, SHORT_QUADS], ids=["512", "256"])
def test_unsigned_times_signed_bytes_are_one_sum_of_quads(target: TargetSpec) -> None:
    assert dots(product(uint8, int8), target) == [math.DOT_QUADS]
    assert dots(product(int8, uint8), target) == [math.DOT_QUADS]


def test_signed_bytes_are_quads_with_a_correction_for_columns() -> None:
    kernel = ready_for_plans(product(int8, int8), QUADS)
    assert dots(kernel, QUADS) == [math.DOT_QUADS, math.DOT_QUADS]
    (contraction, _) = orientations(analyse(kernel))
    assert len(contraction.corrections) == 1


@pytest.mark.parametrize(
    ("a", "b", "target"),
    [(int16, int8, QUADS), (int16, int16, QUADS), (int8, int8, PAIRS), (uint8, uint8, PAIRS)],
)
def test_other_narrow_products_are_pairs(a: DType, b: DType, target: TargetSpec) -> None:
    assert dots(product(a, b), target) == [math.DOT_PAIRS]


@pytest.mark.parametrize(
    ("kernel", "target"),
    [
        (product(int8, int8), aarch64_spec()),
        (product(int8, int8, total=int64), QUADS),
        (product(int32, int32), QUADS),
    ],
    ids=["no instruction", "wide sum", "wide factors"],
)
def test_everything_else_is_left_alone(kernel: Node, target: TargetSpec) -> None:
    assert dots(kernel, target) == []


@pytest.mark.parametrize(
    "kernel",
    [product(int8, int8, m=2), product(int8, int8, k=8), product(int8, int8, k=65)],
    ids=["few rows", "short", "odd"],
)
def test_products_that_are_not_grouped_take_a_word_each(kernel: Node) -> None:
    (total,) = [node for node in toposort(ready_for_plans(kernel, QUADS)) if node.op is REDUCE]
    assert total.src[0].op is math.DOT_PAIRS
    assert [factor.op for factor in total.src[0].src[:2]] == [math.AND, math.CAST]


def test_quads_that_do_not_fit_a_size_are_pairs() -> None:
    assert dots(product(int8, int8, k=66), QUADS) == [math.DOT_PAIRS]


def test_signed_bytes_are_one_sum_where_an_instruction_takes_both_signed() -> None:
    assert dots(product(int8, int8), SIGNED_QUADS) == [math.DOT_SIGNED_QUADS]
    assert dots(product(uint8, int8), SIGNED_QUADS) == []
    (contraction, _) = orientations(analyse(ready_for_plans(product(int8, int8), SIGNED_QUADS)))
    assert not contraction.corrections


def test_signed_bytes_are_multiplied_by_the_instruction_of_arm() -> None:
    text = LlvmRenderer().render(lower_kernel(product(int8, int8), SIGNED_QUADS))
    assert "llvm.aarch64.neon.sdot" in text
    assert "sdot" in LlvmToolchain(SIGNED_QUADS).assembly(text)


def test_the_instructions_are_in_the_text() -> None:
    text = LlvmRenderer().render(lower_kernel(product(int8, int8), QUADS))
    assert "llvm.x86.avx512.vpdpbusd.512" in text
    text = LlvmRenderer().render(lower_kernel(product(int8, int8), PAIRS))
    assert "llvm.x86.avx2.pmadd.wd" in text


# --- the ops --------------------------------------------------------------------------------------


def words() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All pairs of extreme words, and random ones."""
    generator = np.random.default_rng(0)
    parts = np.array([0, 1, 0x7F, 0x80, 0xFF], dtype=np.uint32)
    low, high = np.meshgrid(parts, parts)
    extreme = (low | high << 8 | low << 16 | high << 24).ravel().view(np.int32)
    extreme = np.append(extreme, np.array([-(1 << 31), 0x7FFF7FFF], dtype=np.int32))
    x, y = (grid.ravel() for grid in np.meshgrid(extreme, extreme))
    more = generator.integers(-(1 << 31), 1 << 31, (2, 999), dtype=np.int64).astype(np.int32)
    x, y = np.append(x, more[0]), np.append(y, more[1])
    return x, y, generator.integers(-(1 << 31), 1 << 31, x.size, dtype=np.int64).astype(np.int32)


def expected(op: OpDef, x: Any, y: Any, z: Any) -> np.ndarray[Any, Any]:
    kinds = FACTORS[op]
    left, right = (
        word.view(kind).reshape(x.size, -1).astype(np.int64)
        for word, kind in zip((x, y), kinds, strict=True)
    )
    total: np.ndarray[Any, Any] = np.sum(left * right, axis=1) + z
    return total.astype(np.int32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("op", list(FACTORS), ids=lambda op: op.name)
def test_sums_within_words_are_exact(op: OpDef, level: str, kind: str) -> None:
    inputs = words()
    count = inputs[0].size
    i = RANGE(const_index(count), attrs=RangeAttrs(0))
    params = [PARAM(attrs=ParamAttrs(slot, (count,), int32)) for slot in range(4)]
    value = op(*(LOAD(INDEX(param, i)) for param in params[1:]))
    sink = SINK(STORE(INDEX(params[0], i), value))
    case = Case(sink, [bytes(4 * count), *(x.tobytes() for x in inputs)])
    result = np.frombuffer(run_on_machine(case, kind, level).buffers[0], np.int32)
    np.testing.assert_array_equal(result, expected(op, *inputs))


# --- whole products -------------------------------------------------------------------------------


def filled(kind: str, dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    info = np.iinfo(dtype)
    if kind == "random":
        generator = np.random.default_rng(seed)
        return generator.integers(info.min, info.max + 1, shape).astype(dtype)
    return np.full(shape, info.min if kind == "least" else info.max, dtype)


@pytest.mark.parametrize("fill", ["random", "least", "greatest"])
@pytest.mark.parametrize(
    ("a", "b"),
    [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"),
     ("int16", "int16"), ("int16", "int8")],
)  # fmt: skip
def test_products_are_exact_modulo_the_width(a: str, b: str, fill: str) -> None:
    x, y = filled(fill, a, (33, 200), 0), filled(fill, b, (200, 71), 1)
    found = Tensor(x).matmul(Tensor(y), dtype=dtypes.int32).numpy()
    np.testing.assert_array_equal(found, (x.astype(np.int64) @ y.astype(np.int64)).astype(np.int32))


@pytest.mark.parametrize("shape", [(8, 16, 8), (9, 20, 17), (64, 256, 3), (40, 1000, 130)])
def test_sizes_of_every_kind_are_exact(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, y = filled("random", "int8", (m, k), 2), filled("random", "int8", (n, k), 3)
    found = Tensor(x).matmul(Tensor(y).T, dtype=dtypes.int32).numpy()
    np.testing.assert_array_equal(found, x.astype(np.int32) @ y.astype(np.int32).T)


def test_convolutions_are_exact() -> None:
    x, w = filled("random", "int8", (2, 12, 9, 10), 4), filled("least", "int8", (16, 12, 3, 3), 5)
    wide = Tensor(x).cast(int32).conv2d(Tensor(w).cast(int32), padding=1).numpy()
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    np.testing.assert_array_equal(wide, np.einsum("bchwij,ocij->bohw", windows, w.astype(np.int64)))


def test_weights_packed_at_capture_are_exact_and_follow_writes() -> None:
    first, second = (filled("random", "int8", (256, 192), seed) for seed in (6, 7))
    x = filled("random", "int8", (96, 256), 8)
    weight = Tensor(first).contiguous().realize()
    step: Callable[[Tensor], Tensor] = jit(lambda x: x.matmul(weight, dtype=dtypes.int32) + 1)
    given = Tensor(x).realize()
    for _ in range(3):
        found = step(given).numpy()
    np.testing.assert_array_equal(found, x.astype(np.int32) @ first.astype(np.int32) + 1)
    weight.assign(Tensor(second)).realize()
    np.testing.assert_array_equal(
        step(given).numpy(), x.astype(np.int32) @ second.astype(np.int32) + 1
    )


def test_the_host_takes_what_it_has() -> None:
    spec = Device["CPU"].spec
    wanted = {math.DOT_QUADS.name, math.DOT_PAIRS.name} & spec.native_ops
    assert bool(dots(product(int8, int8, total=uint32), spec)) == bool(wanted)


def test_a_word_of_bytes_that_lie_apart_reads_no_more_than_one_that_lies_together() -> None:
    (found, _) = orientations(analyse(ready_for_plans(product(uint8, int8), QUADS)))
    assert (load_count(found.a), load_count(found.b)) == (1, 4)
    assert loaded_share(found.a) == loaded_share(found.b) == 1.0
