"""Which names code reads."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from tilework.engine.names import asked_by, names_of, reads_any

PLAIN: list[Callable[..., object]] = [
    lambda layer: hasattr(layer, "bias"),
    lambda layer: getattr(layer, "bias", None),
    lambda model: getattr(model.layers.first, "bias", 1.0),
    lambda model: [getattr(layer, "bias") for layer in model],  # noqa: B009 - that is what is tested
]
COMPUTED: list[Callable[..., object]] = [
    lambda layer, name: hasattr(layer, name),
    lambda layer, name: getattr(layer, "bias" + name),
    lambda layer, name: getattr(layer, "bias" if name else "scale"),
    lambda layer, name: getattr(layer, name("bias"), None),
    lambda layer, name: getattr(layer.get("bias", name), name),
    lambda layers: [hasattr(layer, key) for layer, key in layers],
    lambda layers: map(hasattr, layers, "bias"),
    lambda layer: operator.attrgetter("bias")(layer),
    lambda layer: (hasattr(layer, "bias"), vars(layer)),
    lambda layer, name: (hasattr(layer, "bias"), getattr(layer, name)),
]


@pytest.mark.parametrize("function", PLAIN)
def test_a_name_that_is_asked_for_is_one_that_code_reads(function: Any) -> None:
    names = names_of(function.__code__)
    assert asked_by(function.__code__) == {"bias"}
    assert "bias" in names
    assert not reads_any(names)


@pytest.mark.parametrize("function", COMPUTED)
def test_code_that_computes_the_name_it_asks_for_may_read_any(function: Any) -> None:
    assert reads_any(names_of(function.__code__))


def test_attributes_and_globals_are_read_and_variables_and_text_are_not() -> None:
    def function(layer: Any) -> object:
        text = "bias"
        return layer.scale, operator, text

    assert names_of(function.__code__) == {"scale", "operator"}
    assert asked_by(function.__code__) == frozenset()
