"""Index arithmetic and bounds against Python integers, over every value of every range."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tilework.ir.build import const_index
from tilework.ir.digest import digest
from tilework.ir.interpret import evaluate
from tilework.ir.node import Node
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds
from tilework.testing.strategies import IndexGraphs, index_bindings

SEEDS = st.integers(0, 2**32)


@settings(max_examples=250, deadline=None)
@given(seed=SEEDS)
def test_simplified_indices_have_the_values_and_bounds_of_the_written_ones(seed: int) -> None:
    graphs = IndexGraphs(Random(seed))
    node, expected = graphs.expression(3)
    low, high = bounds(node)
    for env in graphs.environments():
        value = evaluate(node, index_bindings(env)).item()
        assert value == expected(env), (node, env)
        assert low <= value <= high


@settings(max_examples=250, deadline=None)
@given(seed=SEEDS)
def test_simplified_conditions_hold_where_the_written_ones_do(seed: int) -> None:
    graphs = IndexGraphs(Random(seed))
    node, expected = graphs.condition(2)
    low, high = bounds(node)
    for env in graphs.environments():
        value = evaluate(node, index_bindings(env)).item()
        assert value == expected(env), (node, env)
        assert low <= value <= high


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_conjunctions_hold_where_all_their_parts_do(seed: int) -> None:
    graphs = IndexGraphs(Random(seed))
    parts = [graphs.condition(1) for _ in range(3)]
    node = simplify.all_of([part for part, _ in parts])
    for env in graphs.environments():
        expected = all(function(env) for _, function in parts)
        assert evaluate(node, index_bindings(env)).item() == expected


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_substituting_a_range_gives_the_value_at_its_replacement(seed: int) -> None:
    random = Random(seed)
    graphs = IndexGraphs(random)
    node, expected = graphs.expression(3)
    number = random.randrange(graphs.sizes[0])
    replaced = const_index(number)
    (found,) = simplify.substitute([node], {graphs.ranges[0]: replaced})
    for env in graphs.environments():
        at = {**env, graphs.ranges[0]: number}
        assert evaluate(found, index_bindings(env)).item() == expected(at)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_the_order_of_a_sum_does_not_matter(seed: int) -> None:
    random = Random(seed)
    graphs = IndexGraphs(random)
    parts = [graphs.expression(1)[0] for _ in range(4)]
    shuffled = random.sample(parts, len(parts))

    def total(nodes: list[Node]) -> Node:
        node = nodes[0]
        for other in nodes[1:]:
            node = simplify.add(node, other)
        return node

    assert digest(total(parts)) == digest(total(shuffled))
    assert total(parts) is total(shuffled)
