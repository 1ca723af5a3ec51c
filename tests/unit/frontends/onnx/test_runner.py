"""`OnnxRunner`: captures per signature, control flow, outputs, export."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tests.unit.frontends.onnx.models import Array, model, node, untyped, value

import tilework
from tilework import Tensor, dtypes
from tilework.base.errors import UnsupportedError
from tilework.engine.stats import COUNTERS, difference
from tilework.frontends.onnx.runner import CAPTURE_LIMIT, OnnxRunner

# y = x reshaped to (its first size, everything else), plus one
FLATTEN = model(
    [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Concat", ["n", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["f"]),
        node("Add", ["f", "one"], ["y"]),
    ],
    [value("x", shape=["n", "h", "w"])],
    ["y"],
    {
        "zero": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
        "one": np.array(1, np.float32),
    },
)


def array(runner: OnnxRunner, name: str = "y", **inputs: object) -> Array:
    found = runner(inputs)[name]
    assert isinstance(found, Tensor)
    return found.numpy()


def test_shapes_may_change_from_call_to_call_without_loading_again() -> None:
    runner = OnnxRunner(FLATTEN)
    for shape in [(2, 3, 4), (1, 5, 2), (2, 3, 4)]:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        assert np.array_equal(array(runner, x=x), x.reshape(shape[0], -1) + 1)


def test_a_signature_is_captured_once() -> None:
    runner = OnnxRunner(FLATTEN)
    x = np.ones((2, 3, 4), np.float32)
    array(runner, x=x)
    before = COUNTERS.snapshot()
    assert array(runner, x=x + 1).tolist() == [[3.0] * 12] * 2
    changed = difference(before)
    assert (changed.get("captures", 0), changed["replays"]) == (0, 1)


def test_captures_are_bounded() -> None:
    runner = OnnxRunner(FLATTEN)
    for size in range(1, CAPTURE_LIMIT + 4):
        array(runner, x=np.zeros((1, 1, size), np.float32))
    assert len(runner._traces) == CAPTURE_LIMIT


def test_a_tensor_is_taken_as_input_and_not_changed() -> None:
    x = Tensor(np.ones((1, 2, 2), np.float32))
    assert array(OnnxRunner(FLATTEN), x=x).tolist() == [[2.0] * 4]
    assert x.numpy().tolist() == [[[1.0, 1.0], [1.0, 1.0]]]


def test_results_of_earlier_calls_keep_their_values() -> None:
    runner = OnnxRunner(FLATTEN)
    kept = [runner({"x": np.full((1, 1, 1), i, np.float32)})["y"] for i in range(5)]
    assert [t.numpy().item() for t in kept] == [1, 2, 3, 4, 5]  # type: ignore[union-attr]


def test_an_output_that_is_an_input_is_a_value_of_its_own() -> None:
    text = model(
        [node("Identity", ["x"], ["y"]), node("Neg", ["x"], ["z"])], [value("x")], ["y", "z"]
    )
    runner = OnnxRunner(text)
    for start in (1, 2, 3):
        found = runner({"x": np.array([start], np.float32)})
        assert found["y"].numpy().tolist() == [start]  # type: ignore[union-attr]


def test_an_output_that_shapes_alone_decide_is_given() -> None:
    text = model(
        [node("Shape", ["x"], ["s"]), node("Relu", ["x"], ["y"])], [value("x")], ["s", "y"]
    )
    runner = OnnxRunner(text)
    for shape in [(2, 3), (4, 1), (2, 3)]:
        found = runner({"x": np.zeros(shape, np.float32)})["s"]
        assert found.numpy().tolist() == list(shape)  # type: ignore[union-attr]


def _choice() -> bytes:
    def branch(name: str, op: str) -> object:
        return helper.make_graph([node(op, ["x"], [name])], name, [], [untyped(name)])

    nodes = [
        node("Equal", ["rate", "fast"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch("t", "Neg"), else_branch=branch("e", "Relu")),
    ]
    fast = {"fast": np.array(16000, np.int64)}
    return model(nodes, [value("x"), value("rate", "int64", [])], ["y"], fast)


@pytest.mark.parametrize(("rate", "wanted"), [(16000, [-1.0, 2.0]), (8000, [1.0, 0.0])])
def test_a_condition_on_an_input_chooses_the_branch(rate: int, wanted: list[float]) -> None:
    x = np.array([1, -2], np.float32)
    assert array(OnnxRunner(_choice()), x=x, rate=rate).tolist() == wanted


def test_a_condition_that_changes_between_calls_is_seen() -> None:
    runner = OnnxRunner(_choice())
    x = np.array([1, -2], np.float32)
    found = [array(runner, x=x, rate=np.array(rate)).tolist() for rate in (16000, 8000, 16000)]
    assert found == [[-1.0, 2.0], [1.0, 0.0], [-1.0, 2.0]]


def test_a_condition_computed_on_the_device_is_read() -> None:
    graph = helper.make_graph([node("Neg", ["x"], ["t"])], "t", [], [untyped("t")])
    other = helper.make_graph([node("Relu", ["x"], ["e"])], "e", [], [untyped("e")])
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=graph, else_branch=other),
    ]
    runner = OnnxRunner(model(nodes, [value("x")], ["y"], {"zero": np.array(0, np.float32)}))
    assert array(runner, x=np.array([1, 2], np.float32)).tolist() == [-1, -2]
    assert array(runner, x=np.array([-1, -2], np.float32)).tolist() == [0, 0]


def test_a_size_that_is_data_is_read_at_each_call() -> None:
    text = model(
        [node("NonZero", ["x"], ["p"]), node("Transpose", ["p"], ["y"])], [value("x")], ["y"]
    )
    runner = OnnxRunner(text)
    assert array(runner, x=np.array([0, 3, 0, 5], np.float32)).tolist() == [[1], [3]]
    assert array(runner, x=np.array([1, 0, 0, 0], np.float32)).tolist() == [[0]]


def test_a_loop_is_unrolled_as_often_as_its_count_says() -> None:
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["go_on"]),
            node("Add", ["state", "x"], ["next"]),
            node("Identity", ["next"], ["seen"]),
        ],
        "body",
        [value("i", "int64", []), value("go", "bool", []), value("state")],
        [untyped("go_on"), untyped("next"), untyped("seen")],
    )
    nodes = [node("Loop", ["n", "", "x"], ["last", "all"], body=body)]
    runner = OnnxRunner(model(nodes, [value("x"), value("n", "int64", [])], ["last", "all"]))
    found = runner({"x": np.array([1.0], np.float32), "n": 3})
    assert found["last"].numpy().tolist() == [4]  # type: ignore[union-attr]
    assert found["all"].numpy().tolist() == [[2], [3], [4]]  # type: ignore[union-attr]


def test_sequences_are_lists_of_tensors() -> None:
    text = model([node("SplitToSequence", ["x"], ["y"], axis=0)], [value("x", shape=[2, 2])], ["y"])
    found = OnnxRunner(text)({"x": np.array([[1, 2], [3, 4]], np.float32)})["y"]
    assert isinstance(found, list)
    assert [item.numpy().tolist() for item in found] == [[[1, 2]], [[3, 4]]]


def test_initialisers_that_are_inputs_are_defaults() -> None:
    weights = {"w": np.array([2], np.float32)}
    text = model([node("Mul", ["x", "w"], ["y"])], [value("x"), value("w")], ["y"], weights)
    runner = OnnxRunner(text)
    x = np.array([3], np.float32)
    assert [info.name for info in runner.inputs] == ["x"]
    assert array(runner, x=x).tolist() == [6]
    assert array(runner, x=x, w=np.array([5], np.float32)).tolist() == [15]
    assert array(runner, x=x).tolist() == [6]


def test_a_function_of_the_model_is_expanded_with_its_attributes() -> None:
    import onnx

    inner = helper.make_node("LeakyRelu", ["a"], ["b"])
    attribute = onnx.AttributeProto(
        name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT
    )
    inner.attribute.append(attribute)
    function = helper.make_function(
        "own", "Leak", ["a"], ["b"], [inner], [helper.make_opsetid("", 18)], ["slope"]
    )
    graph = helper.make_graph(
        [helper.make_node("Leak", ["x"], ["y"], domain="own", slope=0.5)],
        "g",
        [value("x")],
        [untyped("y")],
    )
    proto = helper.make_model(
        graph,
        functions=[function],
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
    )
    found = array(OnnxRunner(proto.SerializeToString()), x=np.array([-2, 2], np.float32))
    assert found.tolist() == [-1, 2]


def test_what_depends_on_constants_alone_is_computed_once() -> None:
    nodes = [
        node("Cast", ["w"], ["f"], to=1),
        node("Mul", ["f", "scale"], ["real"]),
        node("MatMul", ["x", "real"], ["y"]),
    ]
    constants: dict[str, Array] = {
        "w": np.arange(-8, 8, dtype=np.int8).reshape(4, 4),
        "scale": np.array(0.5, np.float32),
    }
    runner = OnnxRunner(model(nodes, [value("x", shape=["n", 4])], ["y"], constants))
    runner.prepare()
    kept = runner._program.folded()
    assert "real" in kept
    assert "w" not in kept
    x = np.eye(4, dtype=np.float32)
    assert np.array_equal(array(runner, x=x), constants["w"] * np.float32(0.5))


def test_errors_name_the_node() -> None:
    nodes = [node("Reshape", ["x", "s"], ["y"])]
    text = model(nodes, [value("x")], ["y"], {"s": np.array([3], np.int64)})
    with pytest.raises(tilework.errors.ShapeError) as caught:
        array(OnnxRunner(text), x=np.zeros(4, np.float32))
    assert "in the ONNX node Reshape 'Reshape_y'" in "".join(caught.value.__notes__)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(UnsupportedError, match="needs the package `onnx`") as caught:
        OnnxRunner(FLATTEN)
    assert caught.value.try_ == "pip install 'tilework[onnx]'"


def test_an_exported_model_gives_the_same_bits(tmp_path: Path) -> None:
    runner = OnnxRunner(FLATTEN)
    x = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
    wanted = array(runner, x=x)
    runner.export({"x": x}, tmp_path / "flatten.tilework")
    run = tilework.load(tmp_path / "flatten.tilework")
    (found,) = run(Tensor(x))
    assert np.array_equal(found.numpy(), wanted)
    assert [name for name, _ in run.inputs] == ["x"]
    (found,) = run(x=Tensor(x))
    assert np.array_equal(found.numpy(), wanted)


def test_a_model_whose_shapes_are_data_is_not_exported(tmp_path: Path) -> None:
    runner = OnnxRunner(model([node("NonZero", ["x"], ["y"])], [value("x")], ["y"]))
    with pytest.raises(UnsupportedError, match="cannot be exported"):
        runner.export({"x": np.ones(3, np.float32)}, tmp_path / "no.tilework")


def test_the_device_is_the_default_one() -> None:
    runner = OnnxRunner(FLATTEN)
    assert runner.device == tilework.Device.DEFAULT
    found = runner({"x": np.zeros((1, 1, 1), np.float32)})["y"]
    assert isinstance(found, Tensor)
    assert found.dtype is dtypes.float32
