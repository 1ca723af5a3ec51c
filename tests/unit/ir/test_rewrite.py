from typing import Any

import pytest

from tilework.base import trace
from tilework.base.errors import InternalError, RewriteLoopError
from tilework.dtypes import float32, int32, int64
from tilework.ir import compiled
from tilework.ir.build import cast, const
from tilework.ir.node import Node, OpDef, sweep, toposort
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import math, memory
from tilework.ir.pattern import Pat, Rule, RuleSet, Var, joined, match
from tilework.ir.rewrite import rewrite, rewrite_all
from tilework.ir.rules import SIMPLIFY


def array(number: int) -> Node:
    return memory.BUFFER(attrs=memory.BufferAttrs(number, (), int32, "CPU"))


A, B, C = array(1), array(2), array(3)
ZERO, ONE, TWO = (const(n, int32) for n in range(3))


def negations() -> RuleSet:
    rules = RuleSet("negations")

    @rules.rule(math.NEG, Pat(math.NEG, Var("x")))
    def twice(x: Node) -> Node | None:
        """-(-x)  ->  x"""
        return x

    return rules


def test_rules_are_applied_everywhere_until_none_applies() -> None:
    node = math.ADD(math.NEG(math.NEG(math.NEG(A))), math.NEG(math.NEG(B)))
    assert rewrite(node, negations()) is math.ADD(math.NEG(A), B)


def test_a_graph_in_which_nothing_matches_is_returned_itself() -> None:
    node = math.ADD(A, B)
    assert rewrite(node, negations()) is node


def test_roots_that_share_nodes_are_rewritten_together() -> None:
    shared = math.NEG(math.NEG(A))
    roots = [math.ADD(shared, B), shared, math.ADD(shared, B)]
    assert rewrite_all(roots, negations()) == [math.ADD(A, B), A, math.ADD(A, B)]


def test_results_may_be_shared_between_calls() -> None:
    memo: dict[Node, Node] = {}
    rewrite(math.NEG(math.NEG(A)), negations(), memo=memo)
    assert memo[math.NEG(math.NEG(A))] is A


@pytest.mark.parametrize("length", [100_001])
def test_a_long_chain_needs_no_recursion(length: int) -> None:
    node = A
    for _ in range(length):
        node = math.NEG(node)
    assert rewrite(node, negations()) is math.NEG(A)


def test_what_a_rule_gives_is_rewritten_again() -> None:
    rules = RuleSet("down")

    @rules.rule(math.ADD, Var("x"), Var("c", math.CONST))
    def count_down(x: Node, c: Node) -> Node | None:
        """x + c  ->  x + (c - 1)"""
        return x if c.attrs.bits == 0 else math.ADD(x, const(c.attrs.bits - 1, int32))

    assert rewrite(math.ADD(A, const(9_000, int32)), rules) is A


def test_rules_that_undo_each_other_are_named() -> None:
    rules = RuleSet("loop")

    @rules.rule(math.ADD, Var("x"), Var("y"))
    def there(x: Node, y: Node) -> Node | None:
        """x + y  ->  x - -y"""
        return math.SUB(x, math.NEG(y))

    @rules.rule(math.SUB, Var("x"), Pat(math.NEG, Var("y")))
    def back(x: Node, y: Node) -> Node | None:
        """x - -y  ->  x + y"""
        return math.ADD(x, y)

    with pytest.raises(RewriteLoopError, match="there") as caught:
        rewrite(math.ADD(A, B), rules)
    assert set(caught.value.rules) == {"there", "back"}


def test_rules_that_grow_without_end_run_out_of_fuel() -> None:
    rules = RuleSet("growth")

    @rules.rule(math.ADD, Var("x"), Var("c", math.CONST))
    def grow(x: Node, c: Node) -> Node | None:
        """x + c  ->  x + (c + 1)"""
        return math.ADD(x, const(c.attrs.bits + 1, int32))

    with pytest.raises(RewriteLoopError, match="do not come to an end"):
        rewrite(math.ADD(A, ONE), rules)


def test_a_rule_whose_result_contains_its_match_is_a_loop() -> None:
    rules = RuleSet("nesting")

    @rules.rule(math.ADD, Var("x"), Var("y"))
    def wrap(node: Node, x: Node, y: Node) -> Node | None:
        """x + y  ->  -(-(x + y))"""
        return math.NEG(math.NEG(node))

    with pytest.raises(RewriteLoopError, match="wrap"):
        rewrite(math.ADD(A, B), rules)


def test_a_rule_that_changes_the_type_is_refused() -> None:
    rules = RuleSet("types")

    @rules.rule(math.NEG, Var("x"))
    def widen(x: Node) -> Node | None:
        """-x  ->  x as another dtype"""
        return cast(x, float32)

    with pytest.raises(InternalError, match=r"types\.widen changes the type"):
        rewrite(math.NEG(A), rules)


def test_a_rule_that_raises_the_cost_is_found_when_asked() -> None:
    rules = RuleSet("dear")

    @rules.rule(math.ADD, Var("x"), Var("x"))
    def double(x: Node) -> Node | None:
        """x + x  ->  x * 2"""
        return math.MUL(x, TWO)

    node = math.ADD(A, A)
    assert rewrite(node, rules) is math.MUL(A, TWO)
    with pytest.raises(InternalError, match=r"dear\.double raises the cost"):
        rewrite(node, rules, check_costs=True)


def test_firings_are_events_when_someone_listens() -> None:
    events: list[object] = []
    node = math.NEG(math.NEG(C))
    with trace.subscribe(events.append):
        rewrite(node, negations())
    assert events == [trace.RuleFired("negations.twice", node, C)]


def test_rules_may_ask_for_the_context() -> None:
    rules = RuleSet("context")

    @rules.rule(math.NEG, Var("x"))
    def swap(x: Node, context: Node) -> Node | None:
        """-x  ->  the context"""
        return context

    assert rewrite(math.NEG(A), rules, context=B) is B


def test_no_sweep_runs_during_a_rewrite() -> None:
    rules = RuleSet("sweeping")

    @rules.rule(math.NEG, Var("x"))
    def sweep_now(x: Node) -> Node | None:
        """-x  ->  x, with an attempt to sweep"""
        assert sweep(force=True) == 0
        return x

    assert rewrite(math.NEG(A), rules) is A


# --- registration --------------------------------------------------------------------------------


def test_a_rule_without_a_docstring_is_refused() -> None:
    rules = RuleSet("silent")
    with pytest.raises(InternalError, match=r"silent\.rule_of_thumb has no docstring"):

        @rules.rule(math.NEG, Var("x"))
        def rule_of_thumb(x: Node) -> Node | None:
            return x

    with pytest.raises(InternalError, match="before  ->  after"):

        @rules.rule(math.NEG, Var("x"))
        def vague(x: Node) -> Node | None:
            """Make it better."""
            return x


def test_a_parameter_that_the_pattern_does_not_name_is_refused() -> None:
    rules = RuleSet("typo")
    with pytest.raises(InternalError, match="does not name"):

        @rules.rule(math.NEG, Var("x"))
        def misnamed(z: Node) -> Node | None:
            """-x  ->  x"""
            return z


def test_a_name_is_taken_once() -> None:
    rules = negations()
    with pytest.raises(InternalError, match="defined twice"):

        @rules.rule(math.ABS, Var("x"))
        def twice(x: Node) -> Node | None:
            """|x|  ->  x"""
            return x


def test_every_rule_says_what_it_does() -> None:
    for rule in SIMPLIFY:
        assert "->" in rule.doc.splitlines()[0]


def test_rules_for_an_op_are_compiled_when_a_node_of_it_is_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled_for: list[OpDef] = []
    real = compiled._compile

    def counted(op: OpDef, rules: list[Rule]) -> Any:
        compiled_for.append(op)
        return real(op, rules)

    monkeypatch.setattr(compiled, "_compile", counted)
    rules = RuleSet("probe")
    for op in (math.ADD, math.MUL, math.SUB):

        def probe(node: Node) -> Node | None:
            """a  ->  a"""
            return None

        probe.__name__ = f"of_{op.name}"
        rules.rule(op, Var("x"), Var("y"))(probe)
    rewrite(math.MUL(math.MUL(A, B), B), rules)
    assert compiled_for == [math.MUL]


# --- patterns ------------------------------------------------------------------------------------


def fires(pattern: Pat, node: Node) -> bool:
    """Does the compiled pattern match?  The slow matcher must agree."""
    rules = RuleSet("probe")

    def probe(node: Node) -> Node | None:
        """anything  ->  the same dtype's zero"""
        return ZERO

    rules._add(probe, pattern)
    matcher = rules.matchers().get(node.op)
    found = matcher is not None and matcher(node, None) is not None
    assert found == (match(pattern, node) is not None)
    return found


@pytest.mark.parametrize(
    ("pattern", "node", "expected"),
    [
        (Pat(math.ADD, Var("x"), Var("y")), math.ADD(A, B), True),
        (Pat(math.ADD, Var("x"), Var("x")), math.ADD(A, B), False),
        (Pat(math.ADD, Var("x"), Var("x")), math.ADD(A, A), True),
        (Pat(math.ADD, Var("x"), Var("c", math.CONST)), math.ADD(A, ONE), True),
        (Pat(math.ADD, Var("x"), Var("c", math.CONST)), math.ADD(ONE, A), False),
        (
            Pat(math.ADD, Var("x"), Var("c", math.CONST), either_order=True),
            math.ADD(ONE, A),
            True,
        ),
        (
            Pat(math.ADD, Pat(math.MUL, Var("x"), Var("y")), Var("x")),
            math.ADD(math.MUL(A, B), A),
            True,
        ),
        (
            Pat(math.ADD, Pat(math.MUL, Var("x"), Var("y")), Var("x")),
            math.ADD(math.MUL(A, B), B),
            False,
        ),
        (
            Pat(math.ADD, Pat(math.MUL, Var("x"), Var("y"), either_order=True), Var("x")),
            math.ADD(math.MUL(A, B), B),
            True,
        ),
        (Pat((math.ADD, math.SUB), Var("x"), Var("y")), math.SUB(A, B), True),
        (Pat((math.ADD, math.SUB), Var("x"), Var("y")), math.MUL(A, B), False),
        (Pat(math.ADD, Var("x", math.ADD, math.MUL), Var("y")), math.ADD(math.MUL(A, B), B), True),
        (Pat(math.ADD, Var("x", math.ADD, math.MUL), Var("y")), math.ADD(A, B), False),
        (Pat(math.WHERE, ...), math.ADD(A, B), False),
        (Pat(math.ADD, Var("x"), ...), math.ADD(A, B), True),
    ],
)
def test_patterns_match_what_they_say(pattern: Pat, node: Node, expected: bool) -> None:
    assert fires(pattern, node) == expected


def test_ops_with_any_number_of_sources_match_by_count_unless_open() -> None:
    place = memory.INDEX(memory.PARAM(attrs=memory.ParamAttrs(0, (4,), int32)), A)
    gated = memory.LOAD(place, math.LT(A, B))
    assert fires(Pat(memory.LOAD, Var("x")), memory.LOAD(place))
    assert not fires(Pat(memory.LOAD, Var("x")), gated)
    assert fires(Pat(memory.LOAD, Var("x"), ...), gated)


def test_a_pattern_names_inner_nodes() -> None:
    inner = math.MUL(A, B)
    pattern = Pat(math.NEG, Pat(math.MUL, Var("x"), Var("y"), name="product"))
    assert match(pattern, math.NEG(inner)) == {"product": inner, "x": A, "y": B}


def test_dots_come_last() -> None:
    with pytest.raises(InternalError, match="may only come last"):
        Pat(math.ADD, ..., Var("x"))


def test_joined_sets_try_their_rules_in_order() -> None:
    first, second = RuleSet("first"), RuleSet("second")

    @first.rule(math.NEG, Var("x"))
    def to_one(x: Node) -> Node | None:
        """-x  ->  1"""
        return ONE

    @second.rule(math.NEG, Var("x"))
    def to_two(x: Node) -> Node | None:
        """-x  ->  2"""
        return TWO

    assert rewrite(math.NEG(A), joined("both", first, second)) is ONE
    assert rewrite(math.NEG(A), joined("both", second, first)) is TWO
    assert len(joined("both", first, second)) == 2


def test_index_arithmetic_keeps_its_normal_form() -> None:
    i = index_ops.RANGE(cast(const(6, int32), int64), attrs=index_ops.RangeAttrs(0))
    node = math.ADD(math.MUL(i, const(8, int64)), const(3, int64))
    assert rewrite(node, SIMPLIFY).op is math.ADD
    assert math.SHL not in {n.op for n in toposort(rewrite(node, SIMPLIFY))}
