"""Rules of the looser floating-point modes: what they do, and that strict never applies one."""

from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor, nn
from tilework.base import trace
from tilework.base.settings import override
from tilework.codegen.pipeline import loosen, lower_kernel
from tilework.dtypes import float16, float32, int32
from tilework.ir.build import const, const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.math import ADD, FDIV, MUL, MULACC, NEG, RECIPROCAL, SUB
from tilework.ir.ops.memory import BUFFER, INDEX, LOAD, PARAM, SINK, STORE, BufferAttrs, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import CONTRACT, REASSOCIATE
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v3", cores=2)
WITHOUT_FMA = x86_level_spec("x86-64-v2", cores=2)
ROOT = Path(__file__).resolve().parents[4]


def value(number: int, dtype: object = float32) -> Node:
    return BUFFER(attrs=BufferAttrs(number, (), dtype, "CPU"))  # type: ignore[arg-type]


def f(number: float) -> Node:
    return const(number, float32)


X, Y, Z = (value(number) for number in range(3))
HALF, INTEGER = value(3, float16), value(4, int32)
ROW = RANGE(const_index(4), attrs=RangeAttrs(0))
COLUMN = RANGE(const_index(8), attrs=RangeAttrs(1))


def element(slot: int, *ranges: Node) -> Node:
    offset = ranges[0]
    for one in ranges[1:]:
        offset = ADD(MUL(offset, const_index(8)), one)
    return LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (32,), float32)), offset))


def total(node: Node, fold: Fold = Fold.ADD) -> Node:
    return REDUCE(node, COLUMN, attrs=ReduceAttrs(fold))


E = element(1, ROW, COLUMN)
S = element(2, ROW)
THIRD = float(np.float32(1) / np.float32(3))

# name -> an example, what becomes of it, and a near miss
EXAMPLES = {
    "product_plus": (ADD(MUL(X, Y), Z), MULACC(X, Y, Z), ADD(MUL(HALF, HALF), HALF)),
    "product_minus": (SUB(MUL(X, Y), Z), MULACC(X, Y, NEG(Z)), SUB(MUL(INTEGER, INTEGER), INTEGER)),
    "minus_product": (SUB(Z, MUL(X, Y)), MULACC(NEG(X), Y, Z), SUB(Z, FDIV(X, Y))),
    "add_twice": (ADD(ADD(X, f(1)), f(2)), ADD(X, f(3)), ADD(ADD(X, f(1)), f(-1))),
    "mul_twice": (MUL(MUL(X, f(3)), f(2)), MUL(X, f(6)), MUL(MUL(X, f(1e30)), f(1e30))),
    "div_by_literal": (FDIV(X, f(3)), MUL(X, f(THIRD)), FDIV(X, f(0))),
    "div_by_invariant": (FDIV(E, S), MUL(E, RECIPROCAL(S)), FDIV(S, S)),
    "common_factor": (
        ADD(MUL(X, f(3)), MUL(Y, f(3))), MUL(ADD(X, Y), f(3)), ADD(MUL(X, Z), MUL(Y, Z)),
    ),
    "sum_of_scaled": (
        total(MUL(E, f(3))), MUL(total(E), f(3)), total(MUL(E, f(3)), Fold.MAX),
    ),
}  # fmt: skip
LOOSE = {rule.name: (rules, rule) for rules in (CONTRACT, REASSOCIATE) for rule in rules}


def test_each_loose_rule_has_an_example() -> None:
    assert EXAMPLES.keys() == LOOSE.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_TRN_02_a_loose_rule_does_what_it_says(name: str) -> None:
    before, after, near_miss = EXAMPLES[name]
    rules = LOOSE[name][0]
    assert rewrite(before, rules, check_costs=True) is after
    assert rewrite(near_miss, rules) is near_miss


def kernel(body: Node) -> Node:
    """A kernel that stores the body's value: once a row, or once an element."""
    inside = ROW if body.op is REDUCE or body is S else ADD(MUL(ROW, const_index(8)), COLUMN)
    return SINK(STORE(INDEX(PARAM(attrs=ParamAttrs(0, (32,), float32)), inside), body))


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("mode", ["strict", "contract"])
def test_TRN_02_no_looser_rule_is_applied_than_the_mode_allows(name: str, mode: str) -> None:
    before = EXAMPLES[name][0]
    fired: set[str] = set()

    def note(event: trace.Event) -> None:
        if isinstance(event, trace.RuleFired):
            fired.add(event.rule)

    with override(fp_mode=mode), trace.subscribe(note):
        after = loosen(before, TARGET)
    assert (after is before) or mode == "contract"
    assert {one.rpartition(".")[2] for one in fired} <= {rule.name for rule in CONTRACT}
    assert bool(fired) == (after is not before)


def test_TRN_02_strict_fires_no_loose_rule_in_whole_models() -> None:
    fired: set[str] = set()

    def note(event: trace.Event) -> None:
        if isinstance(event, trace.RuleFired):
            fired.add(event.rule)

    def work() -> None:
        x = Tensor(np.linspace(-2, 2, 96, dtype=np.float32).reshape(6, 16))
        layer = nn.LayerNorm(16)
        y = layer(x).softmax(-1) / 3.0 + x * 0.25 - x.gelu()
        y.sum().realize()

    with trace.subscribe(note):
        work()
        assert not {name for name in fired if name.rpartition(".")[2] in LOOSE}
        with override(fp_mode="fast"):
            work()
    assert {name for name in fired if name.rpartition(".")[2] in LOOSE}


def test_TRN_02_contract_rounds_a_product_and_a_sum_once() -> None:
    a, b = 1 + 2**-12, -(1 + 2**-11)
    x, y, z = (Tensor(np.full(5, number, np.float32)) for number in (a, a, b))
    assert (x * y + z).tolist() == [0.0] * 5
    with override(fp_mode="contract"):
        found = (x * y + z).tolist()
    assert found == [2.0**-24] * 5


def test_TRN_02_contract_needs_a_multiply_add_of_the_target() -> None:
    with override(fp_mode="contract"):
        assert loosen(ADD(MUL(X, Y), Z), WITHOUT_FMA) is ADD(MUL(X, Y), Z)


def test_TRN_02_fast_divides_a_row_by_one_reciprocal() -> None:
    sink = kernel(FDIV(E, S))
    with override(fp_mode="fast"):
        fast = lower_kernel(sink, TARGET)
    strict = lower_kernel(sink, TARGET)

    def lanes_divided(linear: Node) -> list[tuple[object, ...]]:
        return [node.shape for node in toposort(linear) if node.op in (FDIV, RECIPROCAL)]

    assert lanes_divided(fast.linear) == [()]
    assert lanes_divided(strict.linear) == [(8,)]


@pytest.mark.parametrize("mode", ["contract", "fast"])
def test_TRN_02_an_elementary_function_is_never_loosened(mode: str) -> None:
    x = np.linspace(-30, 30, 4097, dtype=np.float32)
    names = ("exp", "sin", "tanh", "erf", "log1p", "expm1")
    strict = {name: getattr(Tensor(np.abs(x)), name)().numpy() for name in names}
    with override(fp_mode=mode):
        for name in names:
            found = getattr(Tensor(np.abs(x)), name)().numpy()
            assert found.tobytes() == strict[name].tobytes(), name


@pytest.mark.parametrize("mode", ["contract", "fast"])
def test_special_values_pass_through_the_looser_modes(mode: str) -> None:
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 1e-40]
    a = np.array(special, np.float32)[:, None].repeat(8, 1)
    b = a.T.copy()
    with np.errstate(all="ignore"):
        expected = [a * b + 0.5, a / b, (a + 1) + 2, (a * 3) * 2, a / 3, a * 3 + b * 3]
    x, y = Tensor(a), Tensor(b)
    with override(fp_mode=mode):
        found = [x * y + 0.5, x / y, (x + 1) + 2, (x * 3) * 2, x / 3, x * 3 + y * 3]
        arrays = [one.numpy() for one in found]
    for one, other in zip(arrays, expected, strict=True):
        assert (np.isnan(one) == np.isnan(other)).all()
        kept = ~np.isnan(other)
        assert (np.signbit(one) == np.signbit(other))[kept].all()
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-44)


def test_each_loose_rule_is_listed_for_users() -> None:
    page = (ROOT / "docs" / "fp-modes.md").read_text(encoding="utf-8")
    assert [name for name in LOOSE if f"`{name}`" not in page] == []
