"""For each rule an example, what it becomes, and a near miss that it must leave alone."""

from typing import Any

import pytest

from tilework.dtypes import (
    bool_,
    float32,
    float64,
    index,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint32,
)
from tilework.ir.build import bitcast, cast, const, const_bits
from tilework.ir.node import Node
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import memory, tensor
from tilework.ir.ops.math import (
    ABS,
    ADD,
    AND,
    CEIL,
    EQ,
    FDIV,
    FLOOR,
    IDIV,
    LE,
    LT,
    MAXIMUM,
    MINIMUM,
    MOD,
    MUL,
    MULACC,
    NE,
    NEG,
    OR,
    RECIPROCAL,
    SHL,
    SHR,
    SQRT,
    SUB,
    WHERE,
    XOR,
)
from tilework.ir.pattern import RuleSet
from tilework.ir.rewrite import check_cost
from tilework.ir.rules import (
    ALGEBRA,
    BOOLEAN,
    CASTS,
    DIVISION,
    FOLDING,
    INTEGER,
    MOVEMENT,
    STRENGTH,
)

SETS = {
    s.name: s for s in (ALGEBRA, INTEGER, STRENGTH, DIVISION, BOOLEAN, CASTS, FOLDING, MOVEMENT)
}


def array(number: int, dtype: Any, shape: tuple[int, ...] = ()) -> Node:
    return memory.BUFFER(attrs=memory.BufferAttrs(number, shape, dtype, "CPU"))


F, G, H = (array(n, float32) for n in range(3))
A, J = array(3, int32), array(4, int32)
U = array(5, uint8)
P, Q = array(6, bool_), array(7, bool_)
W = array(8, int64)
T = array(9, float32, (2, 3))
N = index_ops.VARIABLE(attrs=index_ops.VariableAttrs("n", 0, 7))
TRUE, FALSE = const(True, bool_), const(False, bool_)


def f(value: float) -> Node:
    return const(value, float32)


def i(value: int) -> Node:
    return const(value, int32)


def n(value: int) -> Node:
    return const(value, index)


def reshape(x: Node, *shape: int) -> Node:
    return tensor.RESHAPE(x, attrs=tensor.ShapeAttrs(shape))


def expand(x: Node, *shape: int) -> Node:
    return tensor.EXPAND(x, attrs=tensor.ShapeAttrs(shape))


def permute(x: Node, *axes: int) -> Node:
    return tensor.PERMUTE(x, attrs=tensor.AxesAttrs(axes))


def flip(x: Node, *axes: int) -> Node:
    return tensor.FLIP(x, attrs=tensor.AxesAttrs(axes))


def pad(x: Node, *pads: tuple[int, int]) -> Node:
    return tensor.PAD(x, attrs=tensor.PadAttrs(pads))


def shrink(x: Node, *bounds: tuple[int, int, int]) -> Node:
    return tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(bounds))


#: Rule -> (example, result or None where only its value matters, near miss).
EXAMPLES: dict[str, tuple[Node, Node | None, Node]] = {
    "algebra.constant_on_the_right": (ADD(f(1), F), ADD(F, f(1)), SUB(f(1), F)),
    "algebra.mul_by_one": (MUL(F, f(1)), F, MUL(F, f(0))),
    "algebra.add_negative_zero": (ADD(F, f(-0.0)), F, ADD(F, f(0.0))),
    "algebra.sub_zero": (SUB(F, f(0.0)), F, SUB(F, f(-0.0))),
    "algebra.div_by_power_of_two": (FDIV(F, f(4)), MUL(F, f(0.25)), FDIV(F, f(3))),
    "algebra.one_over": (FDIV(f(1), F), RECIPROCAL(F), FDIV(f(2), F)),
    "algebra.neg_neg": (NEG(NEG(F)), F, NEG(ABS(F))),
    "algebra.abs_of_sign": (ABS(NEG(F)), ABS(F), ABS(NEG(U))),
    "algebra.add_negative": (ADD(F, NEG(G)), SUB(F, G), ADD(P, NEG(Q))),
    "algebra.negative_add": (ADD(NEG(G), F), SUB(F, G), ADD(ABS(G), F)),
    "algebra.sub_negative": (SUB(F, NEG(G)), ADD(F, G), SUB(NEG(F), G)),
    "algebra.extreme_of_itself": (MAXIMUM(F, F), F, MAXIMUM(F, G)),
    "algebra.maximum_twice": (
        MAXIMUM(MAXIMUM(F, f(1)), f(2)), MAXIMUM(F, MAXIMUM(f(1), f(2))),
        MAXIMUM(MINIMUM(F, f(1)), f(2)),
    ),
    "algebra.minimum_twice": (
        MINIMUM(MINIMUM(F, f(1)), f(2)), MINIMUM(F, MINIMUM(f(1), f(2))),
        MINIMUM(MAXIMUM(F, f(1)), f(2)),
    ),
    "algebra.whole_of_whole": (FLOOR(CEIL(F)), CEIL(F), FLOOR(SQRT(F))),
    "algebra.mulacc_by_one": (MULACC(F, f(1), G), ADD(F, G), MULACC(F, f(2), G)),
    "algebra.mulacc_of_nothing": (MULACC(F, G, f(-0.0)), MUL(F, G), MULACC(F, G, f(0.0))),
    "integer.change_nothing": (ADD(A, i(0)), A, ADD(F, f(0))),
    "integer.times_zero": (MUL(A, i(0)), i(0), MUL(F, f(0))),
    "integer.and_all_ones": (AND(A, i(-1)), A, AND(A, i(1))),
    "integer.or_all_ones": (OR(A, i(-1)), i(-1), OR(A, i(1))),
    "integer.cancel": (SUB(A, A), i(0), SUB(F, F)),
    "integer.same_bits": (AND(A, A), A, AND(A, J)),
    "integer.sub_constant": (SUB(A, i(3)), ADD(A, i(-3)), SUB(F, f(3))),
    "integer.add_twice": (ADD(ADD(A, i(3)), i(4)), ADD(A, i(7)), ADD(ADD(F, f(3)), f(4))),
    "integer.mul_twice": (MUL(MUL(A, i(3)), i(4)), MUL(A, i(12)), MUL(MUL(F, f(3)), f(4))),
    "integer.bits_twice": (AND(AND(A, i(6)), i(3)), AND(A, i(2)), AND(OR(A, i(6)), i(3))),
    "integer.neg_of_difference": (NEG(SUB(A, J)), SUB(J, A), NEG(SUB(F, G))),
    "integer.shift_twice": (SHR(SHR(A, i(3)), i(4)), SHR(A, i(7)), SHR(SHR(A, i(30)), i(2))),
    "integer.idiv_by_unit": (IDIV(A, i(-1)), NEG(A), IDIV(A, i(2))),
    "integer.mod_by_unit": (MOD(A, i(1)), i(0), MOD(A, i(2))),
    "integer.idiv_twice": (IDIV(IDIV(A, i(3)), i(4)), IDIV(A, i(12)), IDIV(IDIV(A, i(3)), i(-4))),
    "integer.mod_of_multiple": (MOD(MOD(A, i(12)), i(4)), MOD(A, i(4)), MOD(MOD(A, i(4)), i(12))),
    "integer.idiv_within": (IDIV(N, n(8)), n(0), IDIV(N, n(7))),
    "integer.mod_within": (MOD(N, n(8)), N, MOD(N, n(7))),
    "integer.compare_by_bounds": (LT(N, n(8)), TRUE, LT(N, n(7))),
    "integer.equals_itself": (EQ(A, A), TRUE, EQ(F, F)),
    "integer.differs_from_itself": (LT(F, F), FALSE, NE(F, F)),
    "integer.extreme_by_bounds": (MAXIMUM(N, n(7)), n(7), MAXIMUM(N, n(6))),
    "integer.and_mask_within": (AND(N, n(7)), N, AND(N, n(3))),
    "integer.abs_of_positive": (ABS(N), N, ABS(A)),
    "strength.mul_by_power_of_two": (MUL(A, i(8)), SHL(A, i(3)), MUL(A, i(6))),
    "strength.idiv_by_power_of_two": (IDIV(A, i(8)), SHR(A, i(3)), IDIV(A, i(-8))),
    "strength.mod_by_power_of_two": (MOD(A, i(8)), AND(A, i(7)), MOD(A, i(7))),
    "division.idiv_by_constant": (IDIV(A, i(7)), None, IDIV(W, const(7, int64))),
    "division.mod_by_constant": (MOD(A, i(7)), None, MOD(A, J)),
    "boolean.neutral_literal": (AND(P, TRUE), P, AND(A, i(1))),
    "boolean.deciding_literal": (OR(P, TRUE), TRUE, OR(P, FALSE)),
    "boolean.comparison_as_negation": (EQ(P, FALSE), XOR(P, TRUE), EQ(A, i(0))),
    "boolean.negation_twice": (XOR(XOR(P, TRUE), TRUE), P, XOR(XOR(P, TRUE), FALSE)),
    "boolean.negated_equality": (XOR(EQ(F, G), TRUE), NE(F, G), XOR(EQ(F, G), FALSE)),
    "boolean.negated_order": (XOR(LT(A, J), TRUE), LE(J, A), XOR(LT(F, G), TRUE)),
    "boolean.absorb": (AND(P, OR(Q, P)), P, AND(P, XOR(Q, P))),
    "boolean.contradiction": (AND(XOR(P, TRUE), P), FALSE, AND(XOR(P, TRUE), Q)),
    "boolean.where_literal": (WHERE(TRUE, F, G), F, WHERE(P, F, G)),
    "boolean.where_same": (WHERE(P, F, F), F, WHERE(P, F, G)),
    "boolean.where_negated": (WHERE(XOR(P, TRUE), F, G), WHERE(P, G, F), WHERE(XOR(P, Q), F, G)),
    "boolean.where_of_literals": (WHERE(P, TRUE, FALSE), P, WHERE(P, i(1), i(0))),
    "boolean.where_inside_where": (
        WHERE(P, WHERE(P, F, H), G), WHERE(P, F, G), WHERE(P, WHERE(Q, F, H), G),
    ),
    "boolean.where_beside_where": (
        WHERE(P, F, WHERE(P, H, G)), WHERE(P, F, G), WHERE(P, F, WHERE(Q, H, G)),
    ),
    "casts.cast_to_itself": (
        # `cast` would not build it, so the op is applied itself.
        cast(A, int64).op(A, attrs=cast(F, int32).attrs), A, cast(F, int32),
    ),
    "casts.cast_twice": (
        cast(cast(U, int16), float32), cast(U, float32), cast(cast(A, int8), int16),
    ),
    "casts.bitcast_to_itself": (
        bitcast(F, int32).op(A, attrs=bitcast(F, int32).attrs), A, bitcast(F, int32),
    ),
    "casts.bitcast_twice": (bitcast(bitcast(F, int32), uint32), bitcast(F, uint32),
                            bitcast(bitcast(T, int16), uint32)),
    "casts.cast_of_minimum": (
        cast(MINIMUM(F, f(255)), uint8), cast(F, uint8), cast(MINIMUM(F, f(254)), uint8),
    ),
    "casts.cast_of_maximum": (
        cast(MAXIMUM(F, f(-128)), int8), cast(F, int8), cast(MAXIMUM(F, f(0)), int8),
    ),
    "casts.bool_back_again": (NE(cast(P, int32), i(0)), P, NE(cast(U, int32), i(0))),
    "folding.fold_unary": (SQRT(f(9)), f(3), SQRT(f(-1))),
    "folding.fold_binary": (ADD(f(1), f(2)), f(3), SUB(f(float("inf")), f(float("inf")))),
    "folding.fold_mulacc": (MULACC(f(2), f(3), f(4)), f(10), MULACC(f(2), f(3), F)),
    "folding.fold_bitcast": (
        bitcast(f(1), int32), const_bits(0x3F800000, int32),
        bitcast(const(1.0, float32, (2,)), float64),
    ),
    "movement.move_literal": (reshape(const(1.0, float32, (6,)), 2, 3), const(1.0, float32, (2, 3)),
                              pad(const(1.0, float32, (6,)), (1, 0))),
    "movement.same_shape": (reshape(T, 2, 3), T, reshape(T, 3, 2)),
    "movement.reshape_twice": (reshape(reshape(T, 6), 3, 2), reshape(T, 3, 2),
                               reshape(permute(T, 1, 0), 6)),
    "movement.expand_twice": (
        expand(expand(reshape(T, 2, 1, 3), 2, 1, 3), 2, 4, 3), expand(reshape(T, 2, 1, 3), 2, 4, 3),
        expand(reshape(T, 2, 1, 3), 2, 4, 3),
    ),
    "movement.permute_nothing": (permute(T, 0, 1), T, permute(T, 1, 0)),
    "movement.permute_twice": (permute(permute(T, 1, 0), 1, 0), permute(T, 0, 1),
                               permute(flip(T, 0), 1, 0)),
    "movement.flip_nothing": (flip(T), T, flip(T, 0)),
    "movement.flip_twice": (flip(flip(T, 0, 1), 1), flip(T, 0), flip(permute(T, 1, 0), 1)),
    "movement.pad_nothing": (pad(T, (0, 0), (0, 0)), T, pad(T, (0, 0), (0, 1))),
    "movement.pad_twice": (pad(pad(T, (1, 0), (0, 2)), (1, 1), (0, 3)), pad(T, (2, 1), (0, 5)),
                           pad(flip(T, 0), (1, 0), (0, 0))),
    "movement.shrink_nothing": (
        shrink(T, (0, 2, 1), (0, 3, 1)), T, shrink(T, (0, 2, 1), (0, 3, 2)),
    ),
    "movement.shrink_twice": (
        shrink(shrink(T, (1, 2, 1), (0, 3, 2)), (0, 1, 1), (1, 2, 1)),
        shrink(T, (1, 2, 1), (2, 3, 2)), shrink(flip(T, 0), (0, 1, 1), (0, 3, 1)),
    ),
}  # fmt: skip


def alone(name: str) -> tuple[RuleSet, Any]:
    """The rule of this name in a set of its own."""
    set_name, _, rule_name = name.partition(".")
    rules = RuleSet(set_name, SETS[set_name].cost)
    (rule,) = [rule for rule in SETS[set_name] if rule.name == rule_name]
    rules.rules.append(rule)
    return rules, rule


def apply_once(name: str, node: Node) -> Node | None:
    rules, _ = alone(name)
    matcher = rules.matchers().get(node.op)
    found = None if matcher is None else matcher(node, None)
    return None if found is None else found[0]


def test_every_rule_has_an_example() -> None:
    names = {f"{rules.name}.{rule.name}" for rules in SETS.values() for rule in rules}
    assert names == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_is_rewritten(name: str) -> None:
    before, expected, _ = EXAMPLES[name]
    found = apply_once(name, before)
    assert found is not None
    assert expected is None or found is expected
    rules, rule = alone(name)
    check_cost(rules, rule, before, found)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_near_miss_is_left_alone(name: str) -> None:
    assert apply_once(name, EXAMPLES[name][2]) is None
