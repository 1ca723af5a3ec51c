"""Nodes that contradict what their operator takes."""

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.unit.frontends.onnx.models import model, node, untyped, value

from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.onnx import OnnxRunner


@pytest.mark.parametrize(
    ("operator", "inputs", "message"),
    [
        ("Add", ["x"], "lacks an input"),
        ("Add", ["x", ""], "lacks an input"),
        ("Add", ["x", "x", "x"], "too many inputs"),
        ("Conv", ["x", ""], "lacks an input"),
        ("Sum", [""], "lacks an input"),
        ("Sum", ["x", ""], "lacks an input"),
        ("Concat", [], "lacks an input"),
        ("QLinearMatMul", ["x", "x", "x", "x", "x", "", "x", "x"], "lacks an input"),
        ("QLinearConv", ["x", "x"], "lacks an input"),
        ("Relu", ["x", "x"], "too many inputs"),
    ],
)
def test_GEN_01_a_node_with_other_operands_than_its_operator_takes_is_refused(
    operator: str, inputs: list[str], message: str
) -> None:
    attributes = {"axis": 0} if operator == "Concat" else {}
    nodes = [node(operator, inputs, ["y"], **attributes)]
    runner = OnnxRunner(model(nodes, [value("x", shape=[2, 2])], [value("y")]))
    with pytest.raises(ModelFileError, match=message):
        runner({"x": np.ones((2, 2), np.float32)})


def test_GEN_01_a_branch_without_a_condition_is_refused() -> None:
    branch = helper.make_graph([node("Neg", ["x"], ["a"])], "branch", [], [untyped("a")])
    nodes = [node("If", [], ["y"], then_branch=branch, else_branch=branch)]
    runner = OnnxRunner(model(nodes, [value("x", shape=[2])], ["y"]))
    with pytest.raises(ModelFileError, match="lacks an input"):
        runner({"x": np.ones(2, np.float32)})


def test_GEN_01_operators_of_one_processors_layout_are_refused_with_what_to_save_instead() -> None:
    domain = "com.microsoft.nchwc"
    nodes = [node("ReorderInput", ["x"], ["y"], domain=domain)]
    with pytest.raises(UnsupportedError, match="ORT_ENABLE_EXTENDED"):
        OnnxRunner(model(nodes, [value("x")], [value("y")], domains=[domain]))


@pytest.mark.parametrize("opset", [0, 9999])
def test_GEN_01_an_operator_set_that_does_not_exist_is_refused(opset: int) -> None:
    data = model([node("Relu", ["x"], ["y"])], [value("x", shape=[2])], [value("y")])
    proto = onnx.load_model_from_string(data)
    proto.opset_import[0].version = opset
    with pytest.raises(UnsupportedError, match="operator set that nobody knows"):
        OnnxRunner(proto.SerializeToString())
