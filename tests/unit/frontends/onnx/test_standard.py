"""Nodes that the standard does not allow are refused, and those that mean one thing are read."""

from typing import Any

import numpy as np
import pytest
from tests.unit.frontends.onnx.models import model, node, run_node, value

from tilework import Tensor
from tilework.base.errors import BoundsError, IndexingError, ModelFileError
from tilework.onnx import OnnxRunner

X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = np.ones((1, 1, 4, 4), np.float32)
ONE = np.array([1])


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("Softmax", {"aXis": 0}, "does not take"),
        ("Clip", {"min": 1.0}, "does not take"),
        ("Softmax", {"axis": 0.0}, "another kind"),
        ("Softmax", {"axis": "0"}, "another kind"),
        ("Transpose", {"perm": [1.0, 0.0]}, "another kind"),
        ("Concat", {}, "lacks the attribute 'axis'"),
        ("DepthToSpace", {"blocksize": 2, "mode": "XYZ"}, "a word"),
        ("MaxPool", {"kernel_shape": [2, 2], "auto_pad": "SAME"}, "a word"),
    ],
)
def test_attributes_that_an_operator_does_not_have_are_refused_on_opening(
    operator: str, attributes: dict[str, Any], message: str
) -> None:
    text = model([node(operator, ["x"], ["y"], **attributes)], [value("x")], ["y"])
    with pytest.raises(ModelFileError, match=message):
        OnnxRunner(text)


def test_an_integer_is_a_value_of_a_float_attribute() -> None:
    (found,) = run_node("LeakyRelu", {"x": -X}, alpha=2)
    assert np.array_equal(found, -2 * X)


def test_more_outputs_than_an_operator_gives_are_refused_on_opening() -> None:
    with pytest.raises(ModelFileError, match="more outputs"):
        OnnxRunner(model([node("Relu", ["x"], ["y", "z"])], [value("x")], ["y", "z"]))


@pytest.mark.parametrize(
    ("operator", "dtypes", "expected"),
    [
        ("Add", ("float32", "int64"), "float32, as the one before"),
        ("MatMul", ("float32", "float16"), "float32, as the one before"),
        ("Max", ("float32", "float64"), "float32, as the one before"),
        ("Add", ("bool", "bool"), "one of"),
        ("Mul", ("uint8", "bool"), "one of"),
        ("CumSum", ("bool", "int64"), "one of"),
        ("Reshape", ("float32", "float32"), "one of"),
        ("Exp", ("int64",), "one of"),
        ("Not", ("int64",), "one of"),
        ("Neg", ("uint8",), "one of"),
    ],
)
def test_operands_of_element_types_that_an_operator_does_not_take_are_refused(
    operator: str, dtypes: tuple[str, ...], expected: str
) -> None:
    operands = {f"x{at}": np.ones((1,), dtype) for at, dtype in enumerate(dtypes)}
    with pytest.raises(ModelFileError, match="element types") as caught:
        run_node(operator, operands)
    assert expected in str(caught.value.expected)


def test_nodes_of_operators_that_the_model_defines_may_have_any_attribute() -> None:
    import onnx
    from onnx import helper

    body = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    nodes = [node("Twice", ["x"], ["y"], domain="own", colour="red")]
    proto = onnx.load_from_string(model(nodes, [value("x")], ["y"], domains=["own"]))
    proto.functions.append(body)
    found = OnnxRunner(proto.SerializeToString())({"x": X})["y"]
    assert isinstance(found, Tensor)
    assert np.array_equal(found.numpy(), X + X)


def test_sizes_and_places_may_be_any_integers() -> None:
    (found,) = run_node("Reshape", {"x": X}, constants={"shape": np.array([3, -1], np.int32)})
    assert found.shape == (3, 2)


@pytest.mark.parametrize(
    ("operator", "constants", "attributes"),
    [
        ("Gather", {"i": np.array([0])}, {"axis": 5}),
        ("ReduceSum", {"axes": np.array([2])}, {}),
        ("Flatten", {}, {"axis": 3}),
        ("Split", {}, {"axis": 2, "num_outputs": 1}),
        ("Unsqueeze", {"axes": np.array([4])}, {}),
        ("LayerNormalization", {"scale": np.ones(3, np.float32)}, {"axis": 2}),
    ],
)
def test_an_axis_that_the_operand_does_not_have_is_refused(
    operator: str, constants: dict[str, Any], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ModelFileError, match="names an axis"):
        run_node(operator, {"x": X}, constants=constants, **attributes)


@pytest.mark.parametrize(
    ("operator", "operand", "constants", "attributes"),
    [
        ("Slice", X, {"s": ONE - 1, "e": ONE + 1, "a": ONE - 1, "t": ONE - 1}, {}),
        ("Slice", X, {"s": np.array([0, 1]), "e": np.array([2, 2]), "a": np.array([0, -2])}, {}),
        ("Expand", X, {"shape": np.array([5, 3])}, {}),
        ("Tile", X, {"repeats": np.array([2])}, {}),
        ("Conv", IMAGE, {"w": np.ones((1, 1, 3, 3), np.float32)}, {"kernel_shape": [2, 2]}),
        ("Conv", IMAGE, {"w": np.ones((1, 1, 3, 3), np.float32)}, {"pads": [1, 1]}),
        ("Conv", IMAGE, {"w": np.ones((1, 1, 3, 3), np.float32)}, {"strides": [0, 1]}),
        ("AveragePool", IMAGE, {}, {"kernel_shape": [2, 2], "pads": [2, 2, 2, 2]}),
        ("Trilu", X[0], {}, {}),
        ("ConstantOfShape", np.array([-2]), {}, {}),
        ("OneHot", np.array([1]), {"d": np.array(0), "v": np.array([0, 1])}, {}),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused_with_the_node(
    operator: str, operand: Any, constants: dict[str, Any], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ModelFileError, match=operator):
        run_node(operator, {"x": operand}, constants=constants, **attributes)


def test_a_range_in_steps_of_zero_is_refused() -> None:
    with pytest.raises(ModelFileError, match="Range"):
        run_node("Range", {"a": np.array(0), "b": np.array(3), "c": np.array(0)})


def test_resizing_by_both_scales_and_sizes_is_refused() -> None:
    scales, sizes = np.ones(4, np.float32), np.array([1, 1, 4, 4])
    nodes = [node("Resize", ["x", "", "scales", "sizes"], ["y"])]
    text = model(nodes, [value("x")], ["y"], {"scales": scales, "sizes": sizes})
    with pytest.raises(ModelFileError, match="both scales and sizes"):
        OnnxRunner(text)({"x": IMAGE})


@pytest.mark.parametrize("place", [-3, 2])
def test_an_element_outside_of_its_axis_is_reported(place: int) -> None:
    with pytest.raises(BoundsError):
        run_node("GatherElements", {"x": X, "i": np.array([[place]])}, axis=0)


@pytest.mark.parametrize("place", [[0, 5], [1, -4], [-3, 0]])
def test_an_index_tuple_outside_of_one_axis_is_reported_though_it_lies_inside_of_all(
    place: list[int],
) -> None:
    with pytest.raises(BoundsError):
        run_node("GatherND", {"x": X, "i": np.array([place])})
    with pytest.raises(BoundsError):
        run_node("ScatterND", {"x": X, "i": np.array([place]), "u": np.ones(1, np.float32)})


def test_a_constant_index_tuple_outside_of_one_axis_is_refused_while_tracing() -> None:
    with pytest.raises(IndexingError):
        run_node("GatherND", {"x": X}, constants={"i": np.array([[0, 5]])})


def test_a_recurrent_cell_with_softplus_does_not_overflow() -> None:
    weights = {"w": np.full((1, 1, 1), 200, np.float32), "r": np.zeros((1, 1, 1), np.float32)}
    x = np.ones((1, 1, 1), np.float32)
    (found,) = run_node("RNN", {"x": x}, constants=weights, hidden_size=1, activations=["Softplus"])
    assert found.item() == 200


def test_a_recurrent_cell_whose_weights_have_another_size_is_refused() -> None:
    weights = {"w": np.ones((1, 8, 2), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    with pytest.raises(ModelFileError, match="hidden_size"):
        run_node("LSTM", {"x": np.ones((3, 1, 2), np.float32)}, constants=weights, hidden_size=3)
