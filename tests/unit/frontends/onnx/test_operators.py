"""Operators whose values ONNX's own cases cannot state."""

import numpy as np
from onnx import helper
from tests.unit.frontends.onnx.models import Array, model, node, run_node, value

from tilework import Tensor, dtypes
from tilework.frontends.onnx.runner import OnnxRunner


def test_dropout_keeps_everything_unless_the_model_trains() -> None:
    x = np.ones((64, 64), np.float32)
    constants: dict[str, Array] = {"ratio": np.array(0.25, np.float32), "t": np.array(False)}
    assert np.array_equal(run_node("Dropout", {"x": x}, constants=constants)[0], x)
    constants["t"] = np.array(True)
    values, kept = run_node("Dropout", {"x": x}, outputs=2, constants=constants)
    assert 0.65 < kept.mean() < 0.85
    assert np.allclose(values, kept / np.float32(0.75))


def test_a_reduction_over_no_axes_still_changes_each_element() -> None:
    x = np.array([[-2.0, 3.0], [0.5, -0.25]], np.float32)
    wanted = {
        "ReduceL1": np.abs(x),
        "ReduceL2": np.abs(x),
        "ReduceSumSquare": x * x,
        "ReduceSum": x,
        "ReduceMax": x,
    }
    for name, expected in wanted.items():
        none: dict[str, Array] = {"axes": np.zeros(0, np.int64)}
        found = run_node(name, {"x": x}, constants=none, noop_with_empty_axes=1)[0]
        assert np.array_equal(found, expected), name
    none = {"axes": np.zeros(0, np.int64)}
    found = run_node("ReduceLogSum", {"x": x}, constants=none, noop_with_empty_axes=1)[0]
    with np.errstate(invalid="ignore"):
        assert np.allclose(found, np.log(x), equal_nan=True)


def test_what_a_pad_cuts_off_does_not_come_back_at_the_other_end() -> None:
    x = np.arange(5, dtype=np.float32)
    wanted = {"wrap": [1, 2, 3, 4, 1, 2], "reflect": [1, 2, 3, 4, 3, 2], "edge": [1, 2, 3, 4, 4, 4]}
    for mode, values in wanted.items():
        pads: dict[str, Array] = {"pads": np.array([-1, 2], np.int64)}
        found = run_node("Pad", {"x": x}, constants=pads, opset=19, mode=mode)[0]
        assert found.tolist() == values, mode


def test_a_transposed_convolution_of_a_given_shape_cuts_the_odd_row_at_the_start() -> None:
    x = np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3)
    weight: dict[str, Array] = {"w": np.array([[[1.0, 10.0, 100.0]]], np.float32)}
    whole = [1.0, 10.0, 102.0, 20.0, 203.0, 30.0, 300.0]
    for mode, first in (("NOTSET", 1), ("SAME_LOWER", 1), ("SAME_UPPER", 0)):
        found = run_node(
            "ConvTranspose",
            {"x": x},
            constants=weight,
            opset=11,
            strides=[2],
            output_shape=[6],
            auto_pad=mode,
        )[0]
        assert found.reshape(-1).tolist() == whole[first : first + 6], mode


def test_a_loop_of_no_step_gives_what_its_body_declares() -> None:
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["go_on"]),
            node("Identity", ["state"], ["next"]),
            node("Cast", ["state"], ["seen"], to=7),
        ],
        "body",
        [value("i", "int64", []), value("go", "bool", []), value("state", shape=[2, 3])],
        [value("go_on", "bool", []), value("next", shape=[2, 3]), value("seen", "int64", [2, 3])],
    )
    nodes = [node("Loop", ["n", "", "x"], ["last", "all"], body=body)]
    inputs = [value("x", shape=[2, 3]), value("n", "int64", [])]
    runner = OnnxRunner(model(nodes, inputs, ["last", "all"]))
    found = runner({"x": np.ones((2, 3), np.float32), "n": 0})["all"]
    assert isinstance(found, Tensor)
    assert (found.shape, found.dtype) == ((0, 2, 3), dtypes.int64)
