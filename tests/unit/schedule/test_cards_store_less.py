"""On cards what is cheap beside memory is computed again, and what is stored is stored rounded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards
from tests.unit.schedule.schedule_builders import (
    expand,
    gather,
    kernels,
    like,
    linear,
    matmul,
    param,
    permute,
    reduce,
    reshape,
)

from tilework import Tensor, autocast, dtypes, nn
from tilework.dtypes import DType, bfloat16, float32, int64
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, memory
from tilework.ir.ops.tensor import REDUCE, Fold
from tilework.schedule.pipeline import build_schedule
from tilework.testing.emulators.cuda import EmulatedCuda

ROWS, COLUMNS, DEPTH = 2048, 1024, 256


def rounded(x: Node, dtype: DType = bfloat16) -> Node:
    return math.CAST(x, attrs=math.CastAttrs(dtype))


def sigmoid(x: Node) -> Node:
    return math.FDIV(like(1.0, x), math.ADD(like(1.0, x), math.EXP(math.NEG(x))))


def activated(device: str) -> tuple[Node, Node]:
    """A product and its bias with an activation, and what the gradient needs of it."""
    x = param(0, (ROWS, DEPTH), bfloat16, device)
    w, bias = param(1, (DEPTH, COLUMNS), bfloat16, device), param(2, (COLUMNS,), device=device)
    product = rounded(rounded(matmul(rounded(x, float32), rounded(w, float32))), float32)
    total = math.ADD(product, expand(reshape(bias, 1, COLUMNS), (ROWS, COLUMNS)))
    share = sigmoid(total)
    value = rounded(math.MUL(total, share))
    change = param(3, (COLUMNS, ROWS), device=device)  # read the other way: a kernel of its own
    gradient = math.MUL(permute(change, 1, 0), math.ADD(share, math.MUL(total, share)))
    return value, permute(gradient, 1, 0)


def stored_bytes(*outputs: Node) -> int:
    return build_schedule(memory.SINK(*outputs)).intermediates.unshared_bytes


def test_a_gradient_computes_an_activation_again_from_16_bits() -> None:
    assert stored_bytes(*activated("CUDA")) == 2 * ROWS * COLUMNS
    assert stored_bytes(*activated("CPU")) >= 4 * ROWS * COLUMNS


def test_an_activation_and_its_product_are_one_kernel() -> None:
    assert kernels(*activated("CUDA")) == 2


def test_what_is_gathered_is_no_part_of_the_kernel_of_a_product() -> None:
    table = param(0, (500, COLUMNS), device="CUDA")
    found = gather(table, param(1, (ROWS,), int64, "CUDA"))
    x, w, bias = (
        param(2 + n, shape, device="CUDA")
        for n, shape in enumerate([(ROWS, DEPTH), (DEPTH, COLUMNS), (COLUMNS,)])
    )
    total = math.ADD(found, linear(x, w, bias))
    factor = param(5, (COLUMNS, ROWS), device="CUDA")
    # The product, what reads the rows the other way, and before both: the rows.
    assert kernels(total, math.MUL(permute(found, 1, 0), factor)) == 3


def weighted(device: str) -> list[Node]:
    """Two products with one weight, once with its transpose; the weight stays float32."""
    w = param(0, (DEPTH, COLUMNS), device=device)
    x = param(1, (ROWS, DEPTH), bfloat16, device)
    y = param(2, (ROWS, COLUMNS), bfloat16, device)
    there = matmul(rounded(x, float32), rounded(rounded(w), float32))
    back = matmul(rounded(y, float32), rounded(rounded(permute(w, 1, 0)), float32))
    return [there, back]


def test_a_weight_and_its_transpose_are_rounded_once() -> None:
    made = build_schedule(memory.SINK(*weighted("CUDA")))
    assert len(made.linear.src) == 3
    assert made.intermediates.unshared_bytes == 2 * DEPTH * COLUMNS
    assert len(build_schedule(memory.SINK(*weighted("CPU"))).linear.src) == 2


def test_a_rounded_operand_is_a_second_result_of_the_kernel_before() -> None:
    x, w = param(0, (ROWS, DEPTH), device="CUDA"), param(1, (DEPTH, COLUMNS), bfloat16, "CUDA")
    raised = math.MUL(x, like(3.0, x))
    product = matmul(rounded(rounded(raised), float32), rounded(w, float32))
    total = reduce(raised, 0)
    made = build_schedule(memory.SINK(product, total, raised))
    assert len(made.linear.src) == 3
    assert made.intermediates.unshared_bytes == 2 * ROWS * DEPTH


def test_factors_of_few_products_are_rounded_where_they_are_read() -> None:
    w = param(0, (DEPTH, COLUMNS), device="CUDA")
    x = param(1, (8, DEPTH), bfloat16, "CUDA")
    product = matmul(rounded(x, float32), rounded(rounded(w), float32))
    assert kernels(product) == 1


def normalised(device: str) -> list[Node]:
    """Rows of deviation 1, rounded, and a sum of columns that needs what was folded of the rows."""
    x = param(0, (ROWS, COLUMNS), device=device)
    mean = expand(math.MUL(reduce(x, 1, keep=True), like(1 / COLUMNS, reduce(x, 1, keep=True))),
                  (ROWS, COLUMNS))  # fmt: skip
    apart = math.SUB(x, mean)
    spread = reduce(math.MUL(apart, apart), 1, keep=True)
    scale = expand(math.RECIPROCAL(math.SQRT(spread)), (ROWS, COLUMNS))
    value = math.MUL(apart, scale)
    return [rounded(value), reduce(math.MUL(value, param(1, (ROWS, COLUMNS), device=device)), 0)]


def test_folds_of_rows_are_results_of_the_kernel_that_reads_the_rows_anyway() -> None:
    made = build_schedule(memory.SINK(*normalised("CUDA")))
    first, _ = made.linear.src
    stores = [each for each in first.src[0].src if each.op is memory.STORE]
    # What is rounded, the mean and the scale.
    assert len(stores) == 3
    assert made.intermediates.unshared_bytes < 4 * ROWS * COLUMNS


def test_folds_of_rows_are_no_results_of_a_kernel_that_has_a_product_to_compute() -> None:
    """A product has its tile for itself: plain loops take a hundred times as long."""
    x, w = param(0, (2048, 64), bfloat16, "CUDA"), param(1, (64, 512), bfloat16, "CUDA")
    rows = param(2, (2048, 512), device="CUDA")
    total = expand(reduce(math.EXP(rows), 1, keep=True), (2048, 512))
    value = math.FDIV(matmul(rounded(x, float32), rounded(w, float32)), total)
    made = build_schedule(memory.SINK(rounded(value)))
    folds = [[n for n in toposort(each.src[0]) if n.op is REDUCE] for each in made.linear.src]
    assert [len(each) for each in folds] == [1, 1]


def test_folds_of_rows_keep_a_kernel_that_their_other_users_wait_for() -> None:
    x = param(0, (ROWS, COLUMNS), device="CUDA")
    total = reduce(x, 1, keep=True)
    most = expand(reduce(math.EXP(total), 0, fold=Fold.MAX, keep=True), (ROWS, COLUMNS))
    shares = math.MUL(math.MUL(x, most), math.EXP(expand(total, (ROWS, COLUMNS))))
    # `shares` needs the greatest of all sums, so it cannot be what gives the sums.
    assert kernels(rounded(shares), total) == 2


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_cards(monkeypatch) as found:
        yield found


class _Model:
    def __init__(self, device: str) -> None:
        draw = np.random.default_rng(3)

        def weight(*shape: int) -> Tensor:
            values = draw.standard_normal(shape).astype(np.float32) * 0.1
            return Tensor(values, device=device, requires_grad=True)

        self.table, self.up, self.bias = weight(40, 16), weight(16, 32), weight(32)
        self.down, self.out = weight(32, 16), weight(16, 37)

    def __call__(self, x: Tensor) -> Tensor:
        hidden = self.table[x]
        hidden = hidden + (hidden @ self.up + self.bias).gelu() @ self.down
        return hidden @ self.out


def losses(device: str) -> tuple[list[float], list[np.ndarray]]:
    model = _Model(device)
    optimizer = nn.optim.AdamW(nn.state.get_parameters(model), lr=1e-2)
    draw = np.random.default_rng(4)
    x, y = (
        Tensor(draw.integers(0, 37, 8).astype(np.int32), device=device).realize() for _ in range(2)
    )
    found = []
    with Tensor.train():
        for _ in range(2):
            optimizer.zero_grad()
            with autocast(dtypes.bfloat16):
                loss = model(x).float().sparse_categorical_crossentropy(y)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    return found, [each.numpy() for each in nn.state.get_parameters(model)]


def test_training_on_a_card_gives_the_losses_and_weights_of_a_processor(
    card: EmulatedCuda,
) -> None:
    given, expected = losses("CUDA"), losses("CPU")
    assert given[0] == pytest.approx(expected[0], rel=2e-3)
    for one, other in zip(given[1], expected[1], strict=True):
        # A step is 0.01 for each weight whose gradient is not all rounding.
        assert np.mean(np.abs(one - other)) < 1e-3


def test_norms_and_their_gradients_on_a_card_are_those_of_a_processor(card: EmulatedCuda) -> None:
    found = []
    values = np.random.default_rng(5).standard_normal((24, 64)).astype(np.float32)
    for device in ("CUDA", "CPU"):
        x = Tensor(values, device=device, requires_grad=True)
        weight = Tensor(values[0] + 1, device=device, requires_grad=True)
        y = x.layernorm() * weight
        (y * y * y).sum().backward()
        shares = (x * weight).softmax(-1)
        assert x.grad is not None
        assert weight.grad is not None
        found.append([each.numpy() for each in (y, x.grad, weight.grad, shares)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
