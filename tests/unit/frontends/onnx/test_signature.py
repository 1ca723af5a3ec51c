"""What a call must give, and what a model may not use."""

from typing import Any

import numpy as np
import pytest
from onnx import helper
from tests.unit.frontends.onnx.models import model, node, untyped, value

from tilework import Tensor
from tilework.base.errors import DTypeError, ShapeError, UnsupportedError, UserError
from tilework.frontends.onnx.load import load_model
from tilework.frontends.onnx.runner import OnnxRunner
from tilework.frontends.onnx.signature import host_inputs

ADD = model(
    [node("Add", ["x", "b"], ["y"])],
    [value("x", shape=["n", 3])],
    ["y"],
    {"b": np.ones(3, np.float32)},
)


def test_all_unsupported_operators_are_listed_at_once() -> None:
    branch = helper.make_graph(
        [helper.make_node("Inner", ["x"], ["i"], name="deep", domain="org.test")],
        "branch",
        [],
        [untyped("i")],
    )
    nodes = [
        helper.make_node("Strange", ["x"], ["a"], name="first", domain="org.test"),
        helper.make_node("Strange", ["a"], ["b"], name="second", domain="org.test"),
        node("StringConcat", ["s", "s"], ["t"]),
        node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    inputs = [value("x"), value("s"), value("c", "bool", [])]
    with pytest.raises(UnsupportedError) as caught:
        OnnxRunner(model(nodes, inputs, ["y"], domains=["org.test"], opset=20))
    text = str(caught.value)
    assert "the model uses 3 operators that tilework does not have" in text
    assert "Strange (domain org.test, version 1): first, second" in text
    assert "StringConcat (domain ai.onnx, version 20): StringConcat_t" in text
    assert "Inner (domain org.test, version 1): deep" in text


@pytest.mark.parametrize("rank", [1, 3])
def test_a_wrong_rank_is_refused(rank: int) -> None:
    with pytest.raises(ShapeError, match="input 'x' has the wrong shape"):
        OnnxRunner(ADD)({"x": np.zeros((3,) * rank, np.float32)})


def test_a_wrong_fixed_size_is_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        OnnxRunner(ADD)({"x": np.zeros((2, 4), np.float32)})
    assert caught.value.expected == "x: float32[n, 3]"


def test_a_wrong_dtype_is_refused_with_the_remedy() -> None:
    with pytest.raises(DTypeError, match="wrong dtype") as caught:
        OnnxRunner(ADD)({"x": np.zeros((2, 3))})
    assert caught.value.got == "float64"
    assert 'astype("float32")' in str(caught.value.try_)


def test_a_tensor_of_the_wrong_dtype_is_refused() -> None:
    with pytest.raises(DTypeError, match="wrong dtype"):
        OnnxRunner(ADD)({"x": Tensor(np.zeros((2, 3), np.int32))})


def test_an_unknown_input_is_refused_with_the_nearest_name() -> None:
    text = model([node("Relu", ["image"], ["y"])], [value("image")], ["y"])
    with pytest.raises(UserError, match="no input 'imgae'") as caught:
        OnnxRunner(text)({"imgae": np.zeros(2, np.float32)})
    assert caught.value.try_ == "`image`"


def test_a_missing_input_is_named() -> None:
    with pytest.raises(UserError, match="inputs are missing") as caught:
        OnnxRunner(ADD)({})
    assert caught.value.got == "x"


@pytest.mark.parametrize("given", [[[1, 2, 3]], [(1.0, 2.0, 3.0)]])
def test_plain_numbers_are_taken_in_the_declared_dtype(given: Any) -> None:
    found = OnnxRunner(ADD)({"x": given})["y"].numpy()  # type: ignore[union-attr]
    assert found.tolist() == [[2, 3, 4]]


def test_big_endian_arrays_are_converted() -> None:
    given = np.array([[1, 2, 3]], ">f4")
    found = OnnxRunner(ADD)({"x": given})["y"].numpy()  # type: ignore[union-attr]
    assert found.tolist() == [[2, 3, 4]]


def test_inputs_may_be_given_by_keyword() -> None:
    found = OnnxRunner(ADD)(x=np.zeros((1, 3), np.float32))["y"].numpy()  # type: ignore[union-attr]
    assert found.tolist() == [[1, 1, 1]]


def test_inputs_that_decide_shapes_are_found_through_arithmetic() -> None:
    nodes = [
        node("Add", ["n", "one"], ["m"]),
        node("Unsqueeze", ["m", "zero"], ["s"]),
        node("Expand", ["x", "s"], ["y"]),
    ]
    constants = {"one": np.array(1, np.int64), "zero": np.array([0], np.int64)}
    text = model(nodes, [value("x"), value("n", "int64", [])], ["y"], constants)
    assert host_inputs(load_model(text)) == {"n"}


def test_an_input_that_only_gives_its_shape_may_stay_on_the_device() -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("Expand", ["z", "s"], ["y"])]
    text = model(nodes, [value("x"), value("z")], ["y"])
    assert host_inputs(load_model(text)) == frozenset()
