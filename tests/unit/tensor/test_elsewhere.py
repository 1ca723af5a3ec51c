"""Names that PyTorch's programs ask for in vain: the error says what to write instead."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

import tilework
from tilework import Tensor, nn
from tilework.base.errors import DTypeError, ShapeError
from tilework.tensor.elsewhere import OF_LAYERS, OF_NN, OF_TENSORS

LAYER: Any = nn.Linear(2, 2)
SEQUENCE: Any = nn.Sequential(LAYER)
X: Any = Tensor([1.0])
ASKED: dict[str, tuple[Callable[[], Any], str]] = {
    "an address": (lambda: X.data_ptr, "x.numpy"),
    "a named pair": (lambda: X.max(0).values, "argmax"),
    "parameters": (lambda: LAYER.parameters(), r"get_parameters\(layer\)"),
    "modes": (lambda: SEQUENCE.eval(), "Tensor.training"),
    "a base class": (lambda: nn.Module, "plain objects"),
    "a function of tensors": (lambda: tilework.no_grad, "Tensor.no_grad"),
    "nothing known": (lambda: X.frobnicate, "no attribute 'frobnicate'$"),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_name_from_elsewhere_is_answered(name: str) -> None:
    ask, words = ASKED[name]
    with pytest.raises(AttributeError, match=words):
        ask()


def test_no_answer_is_given_for_what_exists() -> None:
    tables = ((Tensor, OF_TENSORS), (nn.Linear, OF_LAYERS), (nn, OF_NN))
    assert [name for place, table in tables for name in table if hasattr(place, name)] == []


def test_answers_name_what_exists() -> None:
    text = " ".join([*OF_TENSORS.values(), *OF_LAYERS.values(), *OF_NN.values()])
    asked = re.findall(r"nn\.state\.(\w+)", text)
    assert [name for name in asked if not hasattr(nn.state, name)] == []
    methods = set(re.findall(r"\bx\.(\w+)", text)) | set(re.findall(r"Tensor\.(\w+)", text))
    assert [name for name in methods if not hasattr(Tensor([1.0]), name)] == []
    assert len(methods) > 5


def test_layers_are_copied_as_before() -> None:
    assert copy.deepcopy(LAYER).weight.tolist() == LAYER.weight.tolist()


def test_wrong_operands_are_told_in_the_users_words() -> None:
    with pytest.raises(ShapeError, match="queries, keys and values don't fit"):
        Tensor.ones(1, 2, 3, 4).scaled_dot_product_attention(
            Tensor.ones(1, 2, 3, 5), Tensor.ones(1, 2, 3, 4)
        )
    with pytest.raises(DTypeError, match=r"get_parameters\(layer\)"):
        nn.optim.Adam(LAYER)
