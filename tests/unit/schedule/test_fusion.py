"""How many kernels well-known functions take, and why each value is stored."""

from __future__ import annotations

import random

import pytest
from tests.property.schedule.schedule_graphs import check, random_value
from tests.unit.schedule.schedule_builders import (
    adam_step,
    attention,
    batch_norm,
    conv2d,
    cross_entropy,
    expand,
    kernels,
    layer_norm,
    like,
    linear,
    matmul,
    param,
    permute,
    reasons,
    reduce,
    relu,
    reshape,
    resnet,
    schedule,
    softmax,
)

from tilework.dtypes import int8, int32, int64, uint8
from tilework.ir.build import cast
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, tensor
from tilework.ir.ops.tensor import Fold
from tilework.schedule.schedule import Limits, SlotKind, explain_schedule

ROWS = [(4, 8), (64, 1000), (2, 3, 16, 128)]


@pytest.mark.parametrize("shape", ROWS)
def test_SCH_22_softmax_is_one_kernel(shape: tuple[int, ...]) -> None:
    assert kernels(softmax(param(0, shape))) == 1


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("center", [True, False])
def test_SCH_22_layer_norm_and_rms_norm_are_one_kernel(
    shape: tuple[int, ...], center: bool
) -> None:
    x, weight, bias = param(0, shape), param(1, shape[-1:]), param(2, shape[-1:])
    assert kernels(layer_norm(x, weight, bias, center=center)) == 1


@pytest.mark.parametrize("shape", [(4, 8), (64, 1000)])
def test_SCH_22_cross_entropy_is_one_kernel(shape: tuple[int, int]) -> None:
    assert kernels(cross_entropy(param(0, shape), param(1, shape[:1], int64))) == 1


def test_SCH_22_the_gradient_of_softmax_is_one_kernel() -> None:
    x, upstream = param(0, (64, 1000)), param(1, (64, 1000))
    y = softmax(x)
    weighted = reduce(math.MUL(y, upstream), 1, keep=True)
    assert kernels(math.MUL(y, math.SUB(upstream, expand(weighted, (64, 1000))))) == 1


def test_SCH_22_statistics_over_one_axis_of_one_array_are_one_kernel() -> None:
    x, y = param(0, (64, 256)), param(1, (64, 256))
    assert kernels(reduce(x, 0), reduce(math.MUL(x, y), 0)) == 1


def test_SCH_22_a_perceptron_is_one_kernel_for_each_layer() -> None:
    x = param(0, (64, 784))
    h = relu(linear(x, param(1, (784, 256)), param(2, (256,))))
    h = relu(linear(h, param(3, (256, 128)), param(4, (128,))))
    assert kernels(linear(h, param(5, (128, 10)), param(6, (10,)))) == 3


@pytest.mark.parametrize("batch", [1, 8])
def test_SCH_22_convolution_norm_and_relu_are_one_kernel(batch: int) -> None:
    y = conv2d(param(0, (batch, 16, 32, 32)), param(1, (32, 16, 3, 3)))
    assert kernels(relu(batch_norm(y, *[param(2 + n, (32,)) for n in range(4)]))) == 1


def test_SCH_22_attention_is_one_kernel() -> None:
    assert kernels(attention(*[param(n, (2, 4, 64, 32)) for n in range(3)])) == 1


def test_SCH_22_an_optimizer_step_over_twenty_parameters_is_two_kernels() -> None:
    outputs = []
    for number in range(20):
        outputs += adam_step(4 * number, (64, 64) if number % 2 else (64,))
    made = schedule(*outputs)
    assert len(made.linear.src) == 2
    assert made.arena_bytes == 0


def test_large_kernels_that_share_a_scalar_are_calls_of_few_bodies() -> None:
    rate = expand(reshape(param(9, ()), 1, 1), (512, 256))
    made = schedule(*[math.MUL(math.EXP(param(number, (512, 256))), rate) for number in range(6)])
    assert len(made.linear.src) == 6
    # Buffers are numbered as the schedule meets them: the scalar comes after the first array only.
    assert len({call.src[0] for call in made.linear.src}) == 2


def test_small_kernels_for_a_gpu_are_joined_where_their_loops_are_equal() -> None:
    def outputs(device: str) -> list[Node]:
        return [math.EXP(param(number, (64 << number % 2,), device=device)) for number in range(4)]

    assert kernels(*outputs("CPU")) == 1
    assert kernels(*outputs("CUDA")) == 2


def test_kernels_along_rows_are_small_for_a_gpu_up_to_a_million_elements() -> None:
    def outputs(device: str, rows: int, *, turned: bool = False) -> list[Node]:
        found = [param(number, (rows, 512), device=device) for number in range(4)]
        return [math.EXP(permute(each, 1, 0) if turned else each) for each in found]

    assert kernels(*outputs("CUDA", 1024)) == 1
    assert kernels(*outputs("CUDA", 4096)) == 4
    assert kernels(*outputs("CUDA", 1024, turned=True)) == 4
    assert kernels(*outputs("CPU", 1024)) == 4


def test_folds_that_share_less_than_they_read_are_calls_of_their_own() -> None:
    weight = param(9, (256,))
    large = [math.MUL(reduce(param(n, (512, 256)), 0), weight) for n in range(2)]
    assert kernels(*large) == 2
    x = param(0, (512, 256))
    shared = [reduce(x, 0), reduce(math.MUL(x, param(1, (512, 256))), 0)]
    assert kernels(*shared) == 1


def test_long_rows_inside_of_a_sum_of_few_results_are_reduced_first() -> None:
    made = schedule(cross_entropy(param(0, (1024, 1000)), param(1, (1024,), int64)))
    assert len(made.linear.src) == 2
    assert any("few results" in reason for reason in reasons(made))


def test_large_kernels_that_share_an_array_are_one_call() -> None:
    weight = param(9, (512, 256))
    made = schedule(*[math.MUL(param(number, (512, 256)), weight) for number in range(6)])
    assert len(made.linear.src) == 1


def test_SCH_22_a_residual_network_is_one_kernel_for_each_convolution() -> None:
    made = schedule(resnet(8))
    assert len(made.linear.src) == 17


def test_equal_layers_share_one_kernel_body() -> None:
    made = schedule(resnet(20))
    # The last layer has a body of its own: its result is stored in the order that a user sees.
    assert len({call.src[0] for call in made.linear.src}) == 4


def test_outputs_of_one_shape_are_stored_by_one_kernel() -> None:
    x = param(0, (8, 8))
    y = math.EXP(x)
    assert kernels(y, math.ADD(y, x), math.MUL(y, y)) == 1


def test_a_column_statistic_is_not_computed_for_each_row() -> None:
    x = param(0, (64, 32))
    made = schedule(math.SUB(x, expand(reduce(x, 0, keep=True), (64, 32))))
    assert len(made.linear.src) == 2


def test_a_contraction_is_never_computed_twice() -> None:
    x = matmul(param(0, (16, 16)), param(1, (16, 16)))
    made = schedule(matmul(relu(x), math.NEG(x)))
    assert len(made.linear.src) == 2


def test_a_slow_function_of_a_contraction_operand_is_stored_first() -> None:
    x = param(0, (256, 256))
    made = schedule(matmul(math.EXP(x), param(1, (256, 256))))
    assert len(made.linear.src) == 2


def test_a_cheap_operand_is_computed_where_it_is_read() -> None:
    x = param(0, (256, 256))
    made = schedule(matmul(math.MUL(x, like(2.0, x)), param(1, (256, 256))))
    assert len(made.linear.src) == 1


def test_the_index_space_follows_the_reshapes_below_an_output() -> None:
    x = param(0, (6, 4, 5))
    made = schedule(math.EXP(reshape(reduce(x, 2), 3, 8)))
    body = made.linear.src[0].src[0]
    assert not any(node.op in (math.IDIV, math.MOD) for node in toposort(body))


def test_doubling_reads_do_not_double_the_work_again_and_again() -> None:
    x = param(0, (64,))
    for _ in range(40):
        x = math.ADD(math.MUL(x, x), tensor.FLIP(x, attrs=tensor.AxesAttrs((0,))))
    made = schedule(x)
    assert sum(report.nodes for report in made.reports) < 2000


def test_SCH_06_every_call_has_a_report_of_what_it_stores_and_why() -> None:
    x = param(0, (64, 32))
    made = schedule(math.SUB(x, expand(reduce(x, 0, keep=True), (64, 32))))
    assert reasons(made) == [
        "a reduction whose index is not an outer loop of its consumer",
        "output of the function",
    ]
    first = made.reports[0]
    assert (first.kind, first.buffers, first.read_bytes, first.written_bytes) == (
        "reduction", 2, 8192, 128,
    )  # fmt: skip
    text = explain_schedule(made)
    assert "reduction, 2 buffers, reads 8192 B, writes 128 B" in text
    assert "intermediates: 256 B, 256 B of them alive at once, 256 B without sharing" in text


@pytest.mark.parametrize("count", [2, 40, 300])
@pytest.mark.parametrize("balanced", [True, False])
def test_SCH_19_no_kernel_has_more_buffers_than_the_limit(count: int, balanced: bool) -> None:
    inputs = [param(number, (8,), int64) for number in range(count)]
    terms: list[Node] = list(inputs)
    while len(terms) > 1:
        step = 2 if balanced else len(terms)
        sums = []
        for start in range(0, len(terms), step):
            total = terms[start]
            for term in terms[start + 1 : start + step]:
                total = math.ADD(total, term)
            sums.append(total)
        terms = sums
    rng = random.Random(count)
    made = check([terms[0]], {x: random_value(rng, (8,), int64) for x in inputs})
    most = Limits().buffers
    assert max(report.buffers for report in made.reports) <= most


def test_a_large_kernel_is_cut() -> None:
    x = param(0, (16,))
    y = x
    for _ in range(1000):
        y = math.MUL(math.ADD(y, x), x)
    made = schedule(y)
    assert max(report.nodes for report in made.reports) <= Limits().nodes
    assert len(made.linear.src) <= 8


def test_max_of_a_transposed_sum_stays_one_kernel() -> None:
    x = param(0, (4, 5, 6))
    assert kernels(reduce(permute(reduce(x, 2), 1, 0), 1, fold=Fold.MAX)) == 1


def test_intermediates_are_the_only_arena() -> None:
    x = param(0, (64, 32))
    made = schedule(math.SUB(x, expand(reduce(x, 0, keep=True), (64, 32))))
    kinds = [slot.kind for slot in made.slots]
    assert kinds == [SlotKind.INPUT, SlotKind.OUTPUT, SlotKind.ARENA]


def test_a_relu_is_computed_where_its_operand_is_and_not_by_each_reader() -> None:
    x = conv2d(param(0, (1, 16, 16, 16)), param(1, (16, 16, 3, 3)))
    zero = like(0.0, x)
    positive = math.WHERE(math.LT(zero, x), x, zero)
    made = schedule(conv2d(positive, param(2, (16, 16, 3, 3))))
    assert made.reports[0].stores[0].startswith("where")


def test_what_a_zero_point_is_taken_from_is_stored_in_bytes() -> None:
    x, point = param(0, (64, 256)), param(1, (), uint8)
    scaled = math.FDIV(x, like(0.5, x))
    quantised = cast(math.ROUND(scaled), uint8)
    wide = math.SUB(cast(quantised, int32), expand(reshape(cast(point, int32), 1, 1), (64, 256)))
    made = schedule(matmul(wide, cast(param(2, (256, 128), int8), int32)))
    assert [call.src[1].type.dtype for call in made.linear.src] == [uint8, int32]


def test_what_a_different_integer_for_each_element_is_taken_from_is_stored_whole() -> None:
    x, others = param(0, (64, 256)), param(1, (64, 256), uint8)
    quantised = cast(math.ROUND(math.FDIV(x, like(0.5, x))), uint8)
    wide = math.SUB(cast(quantised, int32), cast(others, int32))
    made = schedule(matmul(wide, cast(param(2, (256, 128), int8), int32)))
    assert [call.src[1].type.dtype for call in made.linear.src] == [int32, int32]
