import pytest

from tilework.dtypes import bool_, float32, index, int8, int32, uint8
from tilework.ir.build import cast, const, const_index
from tilework.ir.node import Node, make, toposort
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import math, memory
from tilework.ir.symbolic import dims, simplify
from tilework.ir.symbolic.bounds import bounds


def range_(size: Node | int, number: int) -> Node:
    size = const_index(size) if isinstance(size, int) else size
    return index_ops.RANGE(size, attrs=index_ops.RangeAttrs(number))


def variable(name: str, low: int, high: int) -> Node:
    return index_ops.VARIABLE(attrs=index_ops.VariableAttrs(name, low, high))


N = variable("n", 1, 100)
I, J, K = range_(6, 0), range_(8, 1), range_(N, 2)  # noqa: E741 - as in formulas
FLAT = simplify.add(simplify.scale(I, 8), J)


def number(value: int) -> Node:
    return const_index(value)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (simplify.idiv(FLAT, number(8)), I),
        (simplify.mod(FLAT, number(8)), J),
        (simplify.idiv(FLAT, number(48)), number(0)),
        (simplify.mod(FLAT, number(48)), FLAT),
        (
            simplify.idiv(FLAT, number(4)),
            simplify.add(simplify.scale(I, 2), simplify.idiv(J, number(4))),
        ),
        (simplify.idiv(simplify.idiv(J, number(4)), number(2)), number(0)),
        (simplify.mod(simplify.scale(I, 4), number(4)), number(0)),
        (simplify.mod(FLAT, number(1)), number(0)),
        (simplify.idiv(FLAT, number(1)), FLAT),
        (simplify.add(FLAT, simplify.scale(J, -1)), simplify.scale(I, 8)),
        (simplify.sub(FLAT, FLAT), number(0)),
        (
            simplify.add(
                simplify.scale(simplify.idiv(K, number(4)), 4), simplify.mod(K, number(4))
            ),
            K,
        ),
        (
            simplify.idiv(simplify.idiv(K, number(3)), number(4)),
            simplify.idiv(K, number(12)),
        ),
        (simplify.idiv(simplify.add(simplify.mul(I, N), K), N), I),
        (simplify.mod(simplify.add(simplify.mul(I, N), K), N), K),
        (simplify.less(I, number(6)), simplify.TRUE),
        (simplify.less(I, number(0)), simplify.FALSE),
        (simplify.less(K, N), simplify.TRUE),
        (simplify.at_least(J, number(0)), simplify.TRUE),
        (simplify.equal(I, I), simplify.TRUE),
        (simplify.equal(I, number(9)), simplify.FALSE),
        (simplify.minimum(I, number(5)), I),
        (simplify.minimum(number(9), I), I),
        (simplify.minimum(K, N), K),
        (simplify.maximum(I, number(5)), number(5)),
        (simplify.maximum(number(0), I), I),
        (simplify.maximum(I, I), I),
        (simplify.where(simplify.TRUE, I, J), I),
        (simplify.where(simplify.FALSE, I, J), J),
        (simplify.where(simplify.less(I, number(3)), J, J), J),
    ],
)
def test_index_arithmetic_simplifies(found: Node, expected: Node) -> None:
    assert found is expected


def test_a_comparison_is_divided_by_what_its_terms_share() -> None:
    found = simplify.less(simplify.scale(I, 4), number(10))
    assert found is math.LT(I, number(3))


def test_a_mask_that_bounds_do_not_prove_stays() -> None:
    assert simplify.less(I, number(5)).op is math.LT
    assert simplify.mod(K, number(4)).op is math.MOD
    assert simplify.idiv(K, N).op is not math.IDIV


def test_equal_parts_of_a_conjunction_are_kept_once() -> None:
    a, b = simplify.less(I, number(3)), simplify.less(J, number(3))
    assert simplify.both(simplify.both(a, b), a) is simplify.both(a, b)
    assert simplify.all_of([]) is simplify.TRUE
    assert simplify.both(a, simplify.FALSE) is simplify.FALSE


def test_products_of_sizes_are_multiplied_out() -> None:
    wide = simplify.mul(simplify.add(N, number(1)), simplify.add(N, number(2)))
    square = simplify.mul(N, N)
    expected = simplify.add(simplify.add(square, simplify.scale(N, 3)), number(2))
    assert wide is expected


def test_substitution_simplifies_again() -> None:
    condition = simplify.less(simplify.add(I, J), number(7))
    chosen = simplify.where(condition, I, J)
    masked = simplify.both(condition, simplify.less(J, number(5)))
    found = simplify.substitute([condition, chosen, masked], {J: number(0)})
    assert found == [simplify.TRUE, I, simplify.TRUE]


def test_a_deep_graph_is_substituted_without_recursion() -> None:
    node = cast(J, int32)
    for _ in range(20_000):
        node = math.NEG(node)
    (found,) = simplify.substitute([node], {J: I})
    assert found is not node


def test_dims_stay_numbers_where_they_can() -> None:
    assert dims.add(2, 3) == 5
    assert dims.sub(dims.add(N, 3), N) == 3
    assert dims.mul(N, 0) == 0
    assert dims.floordiv(dims.mul(N, 4), 4) is N
    assert dims.product([2, 3, 4]) == 24
    assert dims.product([N, 2]) is simplify.scale(N, 2)
    assert (dims.least(N), dims.greatest(N)) == (1, 100)
    assert (dims.least(7), dims.greatest(7)) == (7, 7)


X = memory.BUFFER(attrs=memory.BufferAttrs(1, (), int8, "CPU"))
U = memory.BUFFER(attrs=memory.BufferAttrs(2, (), uint8, "CPU"))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (X, (-128, 127)),
        (math.AND(X, const(15, int8)), (0, 15)),
        (math.ADD(X, const(1, int8)), (-128, 127)),
        (math.ADD(math.AND(X, const(15, int8)), const(1, int8)), (1, 16)),
        (math.NEG(math.AND(X, const(15, int8))), (-15, 0)),
        (math.ABS(X), (-128, 127)),
        (math.ABS(math.SHR(X, const(1, int8))), (0, 64)),
        (math.SHL(const(3, int8), const(2, int8)), (12, 12)),
        (math.OR(const(3, int8), math.AND(X, const(4, int8))), (3, 7)),
        (math.MOD(X, const(-5, int8)), (-4, 0)),
        (math.IDIV(X, const(0, int8)), (-128, 127)),
        (cast(U, int8), (-128, 127)),
        (cast(U, index), (0, 255)),
        (cast(math.AND(X, const(15, int8)), bool_), (0, 1)),
        (math.CDIV(math.AND(X, const(15, int8)), const(4, int8)), (0, 3)),
        (math.CMOD(math.AND(X, const(15, int8)), const(4, int8)), (0, 3)),
        (math.CDIV(X, const(4, int8)), (-128, 127)),
        (math.NE(U, const(0, uint8)), (0, 1)),
        (math.EQ(const(1, int8), const(1, int8)), (1, 1)),
        (index_ops.LANES(attrs=index_ops.LanesAttrs(8)), (0, 7)),
        (index_ops.BIND(N, const_index(7)), (1, 100)),
    ],
)
def test_bounds_are_what_the_structure_proves(node: Node, expected: tuple[int, int]) -> None:
    assert bounds(node) == expected


def test_bounds_of_a_deep_graph_need_no_recursion() -> None:
    node = X
    for _ in range(20_000):
        node = math.MAXIMUM(node, math.NEG(node))
    low, high = bounds(node)
    assert low >= -128
    assert high <= 127


def test_a_product_that_shares_its_factors_stays_small() -> None:
    power = I
    for _ in range(60):
        power = simplify.mul(power, power)
    assert len(toposort(power)) < 200


def test_products_of_loaded_numbers_stay_as_written() -> None:
    loaded = cast(range_(6, 0), int32)
    number_ = cast(loaded, index)
    left, right = simplify.add(number_, number(1)), simplify.add(number_, number(2))
    assert simplify.mul(left, right) is math.MUL(left, right)


def gated(low: int, high: int, value: float) -> Node:
    inside = simplify.both(simplify.at_least(I, number(low)), simplify.less(I, number(high)))
    return simplify.where(inside, const(value, float32), const(0.0, float32))


def test_a_choice_by_position_does_not_ask_again_what_is_known() -> None:
    rest = simplify.choice(simplify.less(I, number(4)), gated(2, 4, 2.0), gated(4, 6, 3.0))
    found = simplify.choice(simplify.less(I, number(2)), gated(0, 2, 1.0), rest)
    assert [node.op for node in toposort(found)].count(math.WHERE) == 2
    assert {node for node in toposort(found) if node.op is math.LT} == {
        simplify.less(I, number(2)),
        simplify.less(I, number(4)),
    }


def test_a_choice_keeps_what_is_not_known() -> None:
    inside = gated(1, 4, 2.0)
    found = simplify.choice(simplify.less(I, number(4)), inside, const(5.0, float32))
    assert found.src[1].op is math.WHERE
    assert found.src[1].src[0] is simplify.at_least(I, number(1))


def test_a_choice_by_floats_knows_nothing_of_its_other_side() -> None:
    x, y = const(1.0, float32), param_value()
    condition = math.LT(y, x)
    other = simplify.where(math.LE(x, y), y, x)
    assert simplify.choice(condition, x, other).src[2] is other


def test_comparisons_of_numbers_far_apart_do_not_wrap() -> None:
    least, most = variable("a", index.minimum, index.minimum), variable("b", 1, index.maximum)
    assert simplify.less(least, most) is not simplify.FALSE
    assert simplify.less(most, least) is not simplify.TRUE
    assert simplify.at_least(most, least) is not simplify.FALSE
    assert simplify.at_least(least, most) is not simplify.TRUE


def param_value() -> Node:
    buffer = memory.PARAM(attrs=memory.ParamAttrs(0, (6,), float32))
    return memory.LOAD(memory.INDEX(buffer, I))


def test_of_limits_of_a_sum_the_least_is_kept() -> None:
    near, far = simplify.less(I, number(3)), simplify.less(I, number(5))
    assert simplify.both(far, near) is near
    assert simplify.both(near, far) is near
    assert simplify.implies(near, far)
    assert not simplify.implies(far, near)


def test_long_conjunctions_are_not_searched_again_for_each_part() -> None:
    parts = [make(math.NE, (I, number(value)), None) for value in range(3000)]
    assert len(simplify.conjuncts(simplify.all_of(parts))) == 3000
    assert len(simplify.conjuncts(simplify.all_of(parts), 10)) == 11
