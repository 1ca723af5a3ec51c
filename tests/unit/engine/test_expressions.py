"""Expressions over variables as Python text give what their evaluation gives."""

import pytest

from tilework.engine.expressions import FUNCTIONS, Expression

BINARY = [name.removeprefix("op_") for name in FUNCTIONS]


@pytest.mark.parametrize("op", [op for op in BINARY if op not in ("neg", "abs", "where")])
@pytest.mark.parametrize("pair", [(7, 3), (3, 7), (12, 0), (0, 5), (6, 6)])
def test_the_text_of_two_operands_gives_the_value(op: str, pair: tuple[int, int]) -> None:
    steps = (("variable", "n"), ("variable", "m"), (op, 0))
    constants = (("const", pair[0]), ("const", pair[1]), (op, 0))
    values = {"n": pair[0], "m": pair[1]}
    for expression in (Expression(steps), Expression(constants)):
        text = expression.as_text({"n": "first", "m": "second"})
        scope = {**FUNCTIONS, "first": pair[0], "second": pair[1]}
        assert int(eval(text, scope)) == expression.evaluate(values)


@pytest.mark.parametrize("value", [-4, 0, 9])
def test_the_text_of_a_choice_gives_the_value(value: int) -> None:
    steps = (
        ("variable", "n"), ("neg", 0), ("const", 2), ("lt", 0),
        ("variable", "n"), ("abs", 0), ("const", 5), ("where", 0),
    )  # fmt: skip
    expression = Expression(steps)
    text = expression.as_text({"n": "n"})
    assert int(eval(text, {**FUNCTIONS, "n": value})) == expression.evaluate({"n": value})
