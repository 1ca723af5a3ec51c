"""Every rewrite rule against the interpreter, on graphs made from its own pattern."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework.dtypes import ALL
from tilework.ir.interpret import Value, evaluate
from tilework.ir.node import Node
from tilework.ir.pattern import Rule, RuleSet
from tilework.ir.rewrite import check_cost, rewrite
from tilework.ir.rules import (
    ALGEBRA,
    BOOLEAN,
    CASTS,
    DIVISION,
    FOLDING,
    INTEGER,
    MOVEMENT,
    SIMPLIFY,
    SIMPLIFY_TENSORS,
    STRENGTH,
)
from tilework.ir.symbolic.bounds import bounds
from tilework.testing.strategies import (
    LENGTH,
    PatternGraphs,
    assert_same_meaning,
    leaf,
    literal,
    random_view,
)

SCALAR_SETS = (ALGEBRA, INTEGER, STRENGTH, DIVISION, BOOLEAN, CASTS, FOLDING)
RULES = [(rules, rule) for rules in SCALAR_SETS for rule in rules]
NAMES = [f"{rules.name}.{rule.name}" for rules, rule in RULES]


def fire(rules: RuleSet, rule: Rule, seed: int) -> bool:
    """Try one random instance; a firing is judged.  Returns whether the rule fired."""
    alone = RuleSet(rules.name, rules.cost)
    alone.rules.append(rule)
    graphs = PatternGraphs(Random(seed))
    node = graphs.instance(rule)
    if node is None:
        return False
    matcher = alone.matchers().get(node.op)
    found = None if matcher is None else matcher(node, None)
    if found is None:
        return False
    check_cost(alone, rule, node, found[0])
    assert_same_meaning(node, found[0], graphs.bindings)
    return True


@pytest.mark.parametrize(("rules", "rule"), RULES, ids=NAMES)
def test_a_rule_keeps_the_value(rules: RuleSet, rule: Rule) -> None:
    fired = 0
    for seed in range(4000):
        fired += fire(rules, rule, seed)
        if fired == 30:
            break
    assert fired >= 3, "the rule hardly ever fires on graphs that match its pattern"


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), pick=st.sampled_from(RULES))
def test_no_seed_breaks_a_rule(seed: int, pick: tuple[RuleSet, Rule]) -> None:
    fire(*pick, seed)


def random_expression(random: Random, graphs: PatternGraphs, steps: int) -> list[Node]:
    """Nodes, each made by a random op from earlier ones."""
    ops = sorted(
        {op for rule in SIMPLIFY for op in rule.pattern.ops if op.attrs is None},
        key=lambda op: op.name,
    )
    nodes = []
    for _ in range(4):
        dtype = random.choice(ALL)
        nodes += [leaf(random, dtype, graphs.bindings), literal(random, dtype)]
        nodes.append(leaf(random, dtype, graphs.bindings))
    for _ in range(steps):
        op = random.choice(ops)
        operands = [random.choice(nodes)]
        kin = [node for node in nodes if node.dtype is operands[0].dtype]
        operands += [random.choice(kin) for _ in op.operands[1:]]
        if op.name == "where":
            conditions = [node for node in nodes if node.dtype.is_bool]
            if not conditions:
                continue
            operands[0] = random.choice(conditions)
            operands[1:] = [random.choice(kin), random.choice(kin)]
        try:
            node = op(*operands)
        except TypeError:
            continue
        if node.dtype.is_bool and op.name in ("idiv", "mod", "shl", "shr"):
            continue
        nodes.append(node)
    return nodes


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_TRN_19_simplified_expressions_have_the_bits_of_the_written_ones(seed: int) -> None:
    random = Random(seed)
    graphs = PatternGraphs(random)
    for node in random_expression(random, graphs, 24)[-8:]:
        simple = rewrite(node, SIMPLIFY, check_costs=True)
        assert_same_meaning(node, simple, graphs.bindings)
        assert rewrite(simple, SIMPLIFY) is simple


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_chains_of_movement_ops_keep_their_value(seed: int) -> None:
    random = Random(seed)
    bindings: dict[Node, Value] = {}
    dtype = random.choice(ALL)
    shape = random.choice([(2, 3, 4), (4, 1, 6), (LENGTH,), (1, 5), (3, 2, 1, 2)])
    node = literal(random, dtype, shape) if random.random() < 0.1 else None
    node = node or leaf(random, dtype, bindings, shape)
    for _ in range(random.randint(1, 6)):
        node = random_view(random, node)
    simple = rewrite(node, SIMPLIFY_TENSORS, check_costs=True)
    assert_same_meaning(node, simple, bindings)


def test_every_movement_rule_fires_in_random_chains() -> None:
    fired = set()
    for seed in range(400):
        random = Random(seed)
        node = leaf(random, ALL[-1], {}, random.choice([(2, 3), (1, 4), (6,)]))
        if seed % 10 == 0:
            node = literal(random, ALL[-1], (2, 1))
        for _ in range(4):
            node = random_view(random, node)
            matcher = MOVEMENT.matchers().get(node.op)
            found = matcher(node, None) if matcher is not None else None
            if found is not None:
                fired.add(found[1].name)
    assert fired == {rule.name for rule in MOVEMENT}


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_bounds_hold_every_value_of_wrapping_integers(seed: int) -> None:
    random = Random(seed)
    graphs = PatternGraphs(random)
    for node in random_expression(random, graphs, 24)[-12:]:
        if not node.dtype.is_float:
            low, high = bounds(node)
            elements = evaluate(node, graphs.bindings).elements
            assert low <= min(elements), node
            assert max(elements) <= high, node
