"""Products of bfloat16 in matrix registers: chosen, added up as the machine does, their bound."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.base.settings import override
from tilework.codegen.analysis import analyse
from tilework.codegen.passes.decompose import decompose
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.dot_products import ready_for_plans
from tilework.codegen.plan.tilings import tilings
from tilework.dtypes import bfloat16, float32, int32
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.interpret.kernels import run_kernel
from tilework.ir.interpret.linear import run_linear
from tilework.ir.node import Node, in_use, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.program import FAULT_IF, FaultAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.render.llvm_ir import LlvmRenderer
from tilework.runtime.host import host_spec
from tilework.target.known.cpu import x86_level_spec
from tilework.testing.kernels import Case, run_on_machine
from tilework.toolchain.llvm import LlvmToolchain

AMX = x86_level_spec("x86-64-v4", cores=2, extra=("amx-tile", "amx-bf16"))
PLAIN = x86_level_spec("x86-64-v4", cores=2)
BITS = np.dtype(ml_dtypes.bfloat16)
#: The least float32 that is not subnormal.
NORMAL = 2.0**-126
Floats = np.ndarray[Any, Any]


def product(m: int, n: int, k: int, *, flipped: bool = False) -> Node:
    """The kernel of a product in float32; with `flipped` the second one has its rows along k."""
    i, j, p = (
        RANGE(const_index(size), attrs=RangeAttrs(number)) for number, size in enumerate((m, n, k))
    )
    x = PARAM(attrs=ParamAttrs(1, (m * k,), bfloat16))
    y = PARAM(attrs=ParamAttrs(2, (k * n,), bfloat16))
    left = LOAD(INDEX(x, simplify.add(simplify.scale(i, k), p)))
    row, size, column = (j, k, p) if flipped else (p, n, j)
    right = LOAD(INDEX(y, simplify.add(simplify.scale(row, size), column)))
    terms = math.MUL(cast(left, float32), cast(right, float32))
    target = PARAM(attrs=ParamAttrs(0, (m * n,), float32))
    total = REDUCE(terms, p, attrs=ReduceAttrs(Fold.ADD))
    return SINK(STORE(INDEX(target, simplify.add(simplify.scale(i, n), j)), total))


def plan_of(kernel: Node) -> str:
    return lower_kernel(kernel, AMX).plan


def normal(shape: tuple[int, ...], seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(BITS)


def any_bits(shape: tuple[int, ...], seed: int, exponents: tuple[int, int]) -> Floats:
    """Numbers of either sign whose exponents lie in a range of stored ones (0: subnormal)."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, shape) << 15 | rng.integers(*exponents, shape) << 7
    return (bits | rng.integers(0, 128, shape)).astype(np.uint16).view(BITS)


def case(x: Floats, y: Floats) -> Case:
    (m, k), n = x.shape, y.shape[1]
    return Case(product(m, n, k), [bytes(4 * m * n), x.tobytes(), y.tobytes()])


def statements(x: Floats, y: Floats, target: Any, *, keeps: bool = False) -> Floats:
    """What the statements for a target compute, by the interpreter."""
    with override(keep_subnormals=keeps):
        own = case(x, y)
        buffers = own.copies()
        assert run_linear(lower_kernel(own.sink, target).linear, buffers) == []
    return np.frombuffer(buffers[0], np.float32).reshape(x.shape[0], y.shape[1])


def exact_and_bound(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The product in float64, and the bound of docs/fp-modes.md of its error."""
    a, b = x.astype(np.float64), y.astype(np.float64)
    k = x.shape[1]
    relative = (k + 2) * 2.0**-24 * (np.abs(a) @ np.abs(b))
    flushed = np.abs(a).sum(1)[:, None] + np.abs(b).sum(0)[None, :] + 2 * k
    return a @ b, relative + NORMAL * flushed


def as_float32(x: Tensor) -> Floats:
    return x.cast(dtypes.float32).numpy()


def tensor(x: Floats) -> Tensor:
    return Tensor(x.astype(np.float32)).cast(dtypes.bfloat16).realize()


# --- the choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k"), [(256, 256, 256), (64, 64, 63), (128, 128, 75)])
def test_products_of_bfloat16_have_an_instruction(m: int, n: int, k: int) -> None:
    assert "tdpbf16ps" in plan_of(product(m, n, k))


def test_who_keeps_subnormal_numbers_multiplies_by_vectors() -> None:
    with override(keep_subnormals=True):
        assert "tdp" not in plan_of(product(256, 256, 256))


def test_targets_without_the_instruction_multiply_by_vectors() -> None:
    bytes_alone = x86_level_spec("x86-64-v4", cores=2, extra=("amx-tile", "amx-int8"))
    for target in (PLAIN, bytes_alone):
        assert "tdp" not in lower_kernel(product(64, 64, 64), target).plan


def test_one_row_stays_with_vectors() -> None:
    assert "tdp" not in plan_of(product(1, 4096, 512))


def test_compiled_text_has_the_instruction() -> None:
    text = LlvmRenderer().render(lower_kernel(product(64, 64, 64), AMX))
    assert "tdpbf16ps" in LlvmToolchain(AMX).assembly(text)


def test_pairs_that_lie_side_by_side_are_read_as_words() -> None:
    with in_use():
        loads = analyse(ready_for_plans(product(64, 64, 64, flipped=True), AMX)).loads
    assert {load.dtype for load in loads} == {int32}


# --- what statements mean -------------------------------------------------------------------------


def test_pairs_are_added_one_after_the_other() -> None:
    """The op means what its decomposition computes."""
    values = np.array([1.5, 2.0**-9, -3.0, 1.0], BITS)
    words = [int(word) for word in values.view(np.uint32)]
    target = PARAM(attrs=ParamAttrs(0, (1,), float32))
    pair = math.DOT_BFLOAT16_PAIRS(
        *(const_bits(word, int32) for word in words), const_bits(0x3F80_0000, float32)
    )
    found = []
    for node in (pair, decompose(pair, PLAIN)):
        buffers = [bytearray(4)]
        run_kernel(SINK(STORE(INDEX(target, const_index(0)), node)), buffers)
        found.append(float(np.frombuffer(buffers[0], np.float32)[0]))
    assert found == [1.0 - 4.5 + 2.0**-9] * 2


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 32), (17, 40, 63), (9, 33, 75), (33, 9, 130)])
def test_statements_keep_the_bound(m: int, n: int, k: int) -> None:
    x, y = normal((m, k), 0), normal((k, n), 1)
    wanted, bound = exact_and_bound(x, y)
    assert (np.abs(statements(x, y, AMX) - wanted) <= bound).all()


def test_every_shape_of_tile_keeps_the_bound() -> None:
    x, y = normal((33, 50), 2), normal((50, 70), 3)
    wanted, bound = exact_and_bound(x, y)
    own = case(x, y)
    with in_use():
        kernel = analyse(ready_for_plans(own.sink, AMX))
        plans = {plan.splits: plan for _, plan in tilings(kernel, AMX) if plan.matrix}
    assert len(plans) > 5
    for plan in list(plans.values())[:: max(len(plans) // 4, 1)]:
        buffers = own.copies()
        assert run_linear(lower_kernel(own.sink, AMX, plan).linear, buffers) == []
        found = np.frombuffer(buffers[0], np.float32).reshape(33, 70)
        assert (np.abs(found - wanted) <= bound).all()


@pytest.mark.parametrize(
    "exponents",
    [(120, 134), (60, 67), (0, 3), (100, 150), (0, 256)],
    ids=["near one", "products at the least normal number", "subnormal", "wide", "all"],
)
def test_the_machine_computes_what_statements_mean(exponents: tuple[int, int]) -> None:
    """Bit for bit, on this machine: with matrix registers where it has them, else with vectors."""
    x, y = any_bits((18, 66), 4, exponents), any_bits((66, 20), 5, exponents)
    found = np.frombuffer(run_on_machine(case(x, y), "llvm").buffers[0], np.float32)
    wanted = statements(x, y, host_spec(2)).ravel()
    is_nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), is_nan)
    np.testing.assert_array_equal(found[~is_nan].view(np.int32), wanted[~is_nan].view(np.int32))


def test_subnormal_factors_are_zeros_unless_they_are_to_be_kept() -> None:
    x, y = np.full((16, 32), 2.0**-127).astype(BITS), np.full((32, 16), 2.0**100).astype(BITS)
    assert (statements(x, y, AMX) == 0).all()
    assert (statements(x, y, AMX, keeps=True) == 32 * 2.0**-27).all()


# --- whole products, on this machine --------------------------------------------------------------


def infinite(x: Floats) -> Floats:
    """With infinities, NaN, zeros of both signs and a large number in places of their own."""
    x = x.copy()
    rows = x.shape[0]
    for at, value in enumerate((np.inf, -np.inf, np.nan, 0.0, -0.0, 2.0**120)):
        x[(at * 5) % rows, at * 3] = value
    return x


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("transposed", [(False, False), (True, True)])
def test_products_keep_the_bound_and_what_is_not_finite(
    special: bool, transposed: tuple[bool, bool]
) -> None:
    x, y = normal((37, 63), 6), normal((63, 50), 7)
    if special:
        x, y = infinite(x), infinite(y)
    first = tensor(x.T.copy()).T if transposed[0] else tensor(x)
    second = tensor(y.T.copy()).T if transposed[1] else tensor(y)
    found = first.matmul(second, dtype=dtypes.float32).numpy()
    with np.errstate(all="ignore"):
        wanted, bound = exact_and_bound(x, y)
        known = np.isfinite(wanted) & (np.abs(wanted) < 3e38)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_array_equal(found[np.isinf(wanted)], wanted[np.isinf(wanted)])
        assert (np.abs(found - wanted) <= bound)[known].all()


def test_what_is_too_large_is_infinite() -> None:
    x, y = np.full((16, 32), 2.0**100).astype(BITS), np.full((32, 16), -(2.0**100)).astype(BITS)
    assert (as_float32(tensor(x) @ tensor(y)) == -np.inf).all()


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x, y = normal((100, 200), 8), normal((200, 90), 9)
    found = []
    for threads in (1, 2):
        with override(num_threads=threads):
            found.append((tensor(x).matmul(tensor(y), dtype=dtypes.float32)).numpy())
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_windows_that_are_made_words_once_are_those_of_the_convolution(
    stride: int, dilation: int
) -> None:
    x, w = normal((2, 40, 16, 14), 12), normal((32, 40, 3, 3), 13)
    weights = tensor(w)
    step = jit(lambda x: x.conv2d(weights, stride=stride, dilation=dilation, padding=1))
    with override(keep_subnormals=True):
        plain = tensor(x).conv2d(tensor(w), stride=stride, dilation=dilation, padding=1)
        wanted = as_float32(plain)
    for _ in range(3):
        found = as_float32(step(tensor(x)))
    np.testing.assert_allclose(found, wanted, rtol=2.0**-7, atol=2.0**-9)


def test_a_convolution_with_its_gradients_keeps_the_bound() -> None:
    x, w = normal((2, 20, 9, 11), 10), normal((24, 20, 3, 3), 11)
    image, weights = tensor(x).requires_grad_(), tensor(w).requires_grad_()
    result = image.conv2d(weights, padding=1)
    result.cast(dtypes.float32).sum().backward()
    edges = ((0, 0), (0, 0), (1, 1), (1, 1))
    patches = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.float64), edges), (3, 3), axis=(2, 3)
    )
    wanted = np.einsum("bchwij,ocij->bohw", patches, w.astype(np.float64))
    scale = np.einsum("bchwij,ocij->bohw", np.abs(patches), np.abs(w.astype(np.float64)))
    assert (np.abs(as_float32(result) - wanted) <= 2.0**-8 * np.abs(wanted) + 1e-5 * scale).all()
    of_weights = np.broadcast_to(patches.sum((0, 2, 3)), w.shape)
    limit = 2.0**-8 * np.abs(of_weights) + 1e-4 * np.abs(patches).sum((0, 2, 3))
    assert weights.grad is not None
    assert (np.abs(as_float32(weights.grad) - of_weights) <= limit).all()


def test_a_product_beside_which_something_is_checked_stays_with_vectors() -> None:
    """Results of matrix registers go through memory, where only stores find them."""
    sink = product(64, 64, 64)
    (store,) = sink.src
    row = next(node for node in toposort(sink) if node.op is RANGE)
    limits = math.LT(const_index(64), row)
    checked = SINK(store, FAULT_IF(limits, attrs=FaultAttrs(1)))
    assert "matrix='tdpbf16ps'" in plan_of(sink)
    assert "matrix=''" in plan_of(checked)
