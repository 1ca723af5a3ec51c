"""Operators that ONNX Runtime's optimiser leaves, beside ONNX Runtime itself."""

import itertools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.unit.frontends.onnx.models import model, node, value

from tilework.base.errors import UnsupportedError
from tilework.onnx import OnnxRunner

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"
ACTIVATIONS = [
    ("Relu", ()),
    ("Tanh", ()),
    ("Sigmoid", ()),
    ("LeakyRelu", (0.3,)),
    ("Clip", (-0.5, 0.7)),
    ("HardSigmoid", (0.3, 0.4)),
]


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def agrees(operator: str, operands: list[Array], **attributes: Any) -> None:
    """Run one node here and there."""
    given = {f"x{at}": array for at, array in enumerate(operands)}
    infos = [value(name) for name in given]
    nodes = [node(operator, list(given), ["y"], domain=DOMAIN, **attributes)]
    text = model(nodes, infos, ["y"], domains=[DOMAIN])
    session = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    found = OnnxRunner(text)(given)["y"]
    np.testing.assert_allclose(
        found.numpy(),  # type: ignore[union-attr]
        session.run(None, given)[0],
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("flags", list(itertools.product((0, 1), repeat=4)))
def test_fused_products_take_batches_from_behind_the_rows(flags: tuple[int, ...]) -> None:
    names = ("transA", "transB", "transBatchA", "transBatchB")

    def operand(rows: int, columns: int, is_turned: int, is_first: int) -> Array:
        first, last = (columns, rows) if is_turned else (rows, columns)
        return normal(first, 2, last) if is_first else normal(2, first, last)

    a, b = operand(3, 4, flags[0], flags[2]), operand(4, 5, flags[1], flags[3])
    agrees("FusedMatMul", [a, b], alpha=0.5, **dict(zip(names, flags, strict=True)))


@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS)
@pytest.mark.parametrize("has_addend", [False, True])
def test_fused_convolutions_add_and_activate(
    activation: str, parameters: tuple[float, ...], has_addend: bool
) -> None:
    operands = [normal(1, 4, 5, 6), normal(4, 2, 3, 3), normal(4)]
    if has_addend:
        operands.append(normal(1, 4, 5, 6))
    more = {"activation_params": parameters} if parameters else {}
    agrees("FusedConv", operands, activation=activation, group=2, pads=[1, 1, 1, 1], **more)


@pytest.mark.parametrize("count", [2, 3])
def test_fused_gemms_activate(count: int) -> None:
    operands = [normal(6, 7), normal(5, 7), normal(5)][:count]
    slope = {"activation": "LeakyRelu", "activation_alpha": 0.3}
    agrees("FusedGemm", operands, alpha=0.5, beta=2.0, transB=1, **slope)


def test_attributes_that_no_rule_looks_at_are_refused() -> None:
    nodes = [node("QuickGelu", ["x"], ["y"], domain=DOMAIN, alpha=1.0, gamma=2.0)]
    runner = OnnxRunner(model(nodes, [value("x")], ["y"], domains=[DOMAIN]))
    with pytest.raises(UnsupportedError, match="attributes that tilework does not know") as caught:
        runner({"x": normal(3)})
    assert caught.value.got == "gamma"
