from random import Random

import pytest

from tilework.dtypes import DType, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from tilework.ir.build import const
from tilework.ir.interpret import Value, evaluate
from tilework.ir.node import Node, toposort
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import memory
from tilework.ir.ops.math import AND, IDIV, MOD
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import DIVISION, SIMPLIFY, STRENGTH
from tilework.ir.rules.division import magic


def array(dtype: DType, count: int) -> Node:
    return memory.BUFFER(attrs=memory.BufferAttrs(1, (count,), dtype, "CPU"))


def check(x: Node, numbers: list[int], divisor: int) -> None:
    """Quotient and remainder of every number, decomposed, are those of Python."""
    dtype = x.dtype
    values = Value.from_list(numbers, dtype)
    source = x if x.op is memory.BUFFER else x.src[0]
    for op in (IDIV, MOD):
        node = op(x, const(divisor, dtype, x.shape))
        late = rewrite(node, DIVISION, check_costs=True)
        assert not {n.op for n in toposort(late)} & {IDIV, MOD}
        expected = evaluate(node, {source: values}).elements
        assert evaluate(late, {source: values}).elements == expected, (dtype, divisor, op)


@pytest.mark.parametrize("dtype", [int8, uint8])
def test_all_pairs_of_eight_bits(dtype: DType) -> None:
    numbers = list(range(dtype.minimum, dtype.maximum + 1))
    x = array(dtype, len(numbers))
    for divisor in numbers:
        if divisor not in (-1, 0, 1):
            check(x, numbers, divisor)


@pytest.mark.parametrize("rules", [SIMPLIFY, STRENGTH])
def test_all_pairs_of_int8_by_the_simple_rules(rules: object) -> None:
    numbers = list(range(-128, 128))
    x = array(int8, 256)
    for divisor in numbers:
        for op in (IDIV, MOD):
            node = op(x, const(divisor, int8, (256,)))
            expected = evaluate(node, {x: Value.from_list(numbers, int8)}).elements
            found = rewrite(node, rules)  # type: ignore[arg-type]
            assert evaluate(found, {x: Value.from_list(numbers, int8)}).elements == expected


def divisors(dtype: DType, random: Random) -> list[int]:
    special = [2, 3, 5, 7, 10, 641, 1000, dtype.maximum, dtype.maximum - 1, dtype.maximum // 2 + 1]
    special += [random.randint(2, dtype.maximum) for _ in range(20)]
    if dtype.is_signed:
        special += [-d for d in special] + [dtype.minimum]
    return [d for d in special if dtype.minimum <= d <= dtype.maximum]


@pytest.mark.parametrize("dtype", [int16, uint16, int32, uint32])
def test_wider_integers_at_the_edges_of_their_quotients(dtype: DType) -> None:
    random = Random(1)
    for divisor in divisors(dtype, random):
        numbers = [0, 1, dtype.maximum, dtype.minimum, dtype.maximum - 1]
        for _ in range(20):
            multiple = random.randint(dtype.minimum, dtype.maximum) // divisor * divisor
            numbers += [multiple - 1, multiple, multiple + 1]
        numbers = [m for m in numbers if dtype.minimum <= m <= dtype.maximum]
        check(array(dtype, len(numbers)), numbers, divisor)


@pytest.mark.parametrize("dtype", [int64, uint64])
def test_bounds_make_divisions_of_64_bits_possible(dtype: DType) -> None:
    mask = (1 << 31) - 1
    numbers = [0, 1, 6, 7, 8, mask, mask - 1, 12345678]
    x = array(dtype, len(numbers))
    masked = AND(x, const(mask, dtype, x.shape))
    for divisor in (3, 7, 1000, mask):
        check(masked, numbers, divisor)


def test_unbounded_64_bits_are_left_to_the_target() -> None:
    node = IDIV(array(int64, 1), const(7, int64, (1,)))
    assert rewrite(node, DIVISION) is node


def test_indices_divide_without_widening() -> None:
    n = index_ops.VARIABLE(attrs=index_ops.VariableAttrs("n", 0, 1_000_000))
    late = rewrite(IDIV(n, const(7, int64)), DIVISION)
    assert [node.op.name for node in toposort(late)].count("cast") == 0
    for value in (0, 6, 7, 999_999, 1_000_000):
        assert evaluate(late, {n: value}).item() == value // 7


@pytest.mark.parametrize("divisor", [3, 5, 7, 12, 100, 641])
def test_the_multiplier_is_exact_up_to_its_bound(divisor: int) -> None:
    for greatest in (divisor, 255, 1000):
        multiplier, shift = magic(divisor, greatest, halves=False)
        assert all(m * multiplier >> shift == m // divisor for m in range(greatest + 1))
        multiplier, shift = magic(divisor, greatest, halves=True)
        half = (1 << shift) // (2 * divisor)
        assert all(
            (m * multiplier + half) >> shift == m // divisor for m in range(-greatest, greatest + 1)
        )
