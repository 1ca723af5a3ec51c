"""Reading model files: what real files bend, and what is refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.unit.frontends.onnx.models import model, node, untyped, value

from tilework import dtypes
from tilework.base.errors import ModelFileError
from tilework.frontends.onnx.load import load_model


def test_sizes_below_one_mean_any_size() -> None:
    text = model([node("Relu", ["x"], ["y"])], [value("x", shape=[-1, 3, 0, "w"])], ["y"])
    assert load_model(text).graph.inputs[0].shape == (None, 3, None, "w")


def test_a_signature_prints_as_dtype_and_sizes() -> None:
    text = model([node("Relu", ["x"], ["y"])], [value("x", shape=["n", 3, None])], ["y"])
    assert str(load_model(text).graph.inputs[0]) == "x: float32[n, 3, ?]"


def test_an_empty_constant_with_dims_of_zero_is_an_empty_array() -> None:
    empty = onnx.TensorProto(data_type=onnx.TensorProto.FLOAT, dims=[0], name="c")
    text = model([node("Constant", [], ["c"], value=empty)], [], ["c"])
    (found,) = load_model(text).graph.nodes
    assert found.attributes["value"].shape == (0,)


def test_imported_operator_sets_that_no_node_uses_are_ignored() -> None:
    nodes = [node("Relu", ["x"], ["y"])]
    text = model(nodes, [value("x")], ["y"], domains=["com.example.unknown"])
    assert load_model(text).opsets == {"": 18, "com.example.unknown": 1}


def test_subgraph_outputs_need_no_type() -> None:
    branch = helper.make_graph([node("Relu", ["x"], ["a"])], "branch", [], [untyped("a")])
    nodes = [node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    found = load_model(model(nodes, [value("c", "bool", []), value("x")], ["y"]))
    assert found.graph.nodes[0].attributes["then_branch"].outputs[0].dtype is None


def test_nodes_are_put_after_what_they_read() -> None:
    nodes = [node("Relu", ["a"], ["y"]), node("Neg", ["x"], ["a"])]
    assert [n.op for n in load_model(model(nodes, [value("x")], ["y"])).graph.nodes] == [
        "Neg",
        "Relu",
    ]


def test_a_node_that_depends_on_itself_is_refused() -> None:
    nodes = [node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"])]
    with pytest.raises(ModelFileError, match="depends on itself"):
        load_model(model(nodes, [value("x")], ["b"]))


def test_a_value_that_nothing_computes_is_named() -> None:
    with pytest.raises(ModelFileError, match="reads a value that nothing computes") as caught:
        load_model(model([node("Relu", ["lost"], ["y"])], [], ["y"]))
    assert caught.value.got == "lost"


def test_an_output_that_nothing_computes_is_named() -> None:
    with pytest.raises(ModelFileError, match="lists an output that nothing computes"):
        load_model(model([node("Relu", ["x"], ["y"])], [value("x")], ["z"]))


def test_a_missing_file_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="there is no such file"):
        load_model(tmp_path / "none.onnx")


@pytest.mark.parametrize("text", [b"", b"not a model", b"\x08\x08\x12\xff\xff"])
def test_bytes_that_are_no_model_are_refused(text: bytes) -> None:
    with pytest.raises(ModelFileError, match="onnx"):
        load_model(text)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    weights = {"w": np.ones((64, 64), np.float32)}
    text = model([node("MatMul", ["x", "w"], ["y"])], [value("x")], ["y"], weights)
    path.write_bytes(text[: len(text) // 2])
    with pytest.raises(ModelFileError, match="not a model file"):
        load_model(path)


def test_weights_may_lie_in_a_file_beside_the_model(tmp_path: Path) -> None:
    weights = {"w": np.arange(4096, dtype=np.float32).reshape(64, 64)}
    text = model([node("MatMul", ["x", "w"], ["y"])], [value("x")], ["y"], weights)
    onnx.save(
        onnx.load_from_string(text),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    assert (tmp_path / "weights.bin").stat().st_size == 4096 * 4
    found = load_model(tmp_path / "m.onnx").graph.constants["w"]
    assert np.array_equal(found, weights["w"])


def test_missing_external_weights_are_a_typed_error(tmp_path: Path) -> None:
    weights = {"w": np.zeros((64, 64), np.float32)}
    text = model([node("MatMul", ["x", "w"], ["y"])], [value("x")], ["y"], weights)
    onnx.save(
        onnx.load_from_string(text),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelFileError, match="onnx"):
        load_model(tmp_path / "m.onnx")


def test_external_weights_outside_the_model_s_folder_are_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    text = model([node("Add", ["x", "w"], ["y"])], [value("x")], ["y"], {"w": np.zeros(4, "f4")})
    proto = onnx.load_from_string(text)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.bin")
    (inner / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelFileError):
        load_model(inner / "m.onnx")


def test_metadata_and_dtypes_are_kept() -> None:
    proto = onnx.load_from_string(model([node("Not", ["x"], ["y"])], [value("x", "bool")], ["y"]))
    proto.metadata_props.add(key="character", value="abc")
    found = load_model(proto.SerializeToString())
    assert (found.metadata, found.graph.inputs[0].dtype) == ({"character": "abc"}, dtypes.bool_)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])], {}),
        ([node("Neg", ["x"], ["x"]), node("Abs", ["x"], ["y"])], {}),
        ([node("Neg", ["x"], ["w"]), node("Add", ["x", "w"], ["y"])], {"w": np.ones(1)}),
    ],
)
def test_a_name_that_stands_for_several_values_is_refused(
    nodes: list[object], constants: dict[str, np.ndarray]
) -> None:
    with pytest.raises(ModelFileError, match="several values"):
        load_model(model(nodes, [value("x")], ["y"], constants))


def test_an_initialiser_with_a_size_below_zero_is_refused() -> None:
    proto = onnx.load_from_string(model([node("Abs", ["w"], ["y"])], [], ["y"], {"w": np.ones(6)}))
    proto.graph.initializer[0].dims[:] = [2, -3]
    with pytest.raises(ModelFileError, match="malformed"):
        load_model(proto.SerializeToString())


def test_a_name_that_is_not_text_is_refused() -> None:
    text = model([node("Relu", ["x"], ["y"])], [value("x")], ["y"])
    with pytest.raises(ModelFileError, match="not text"):
        load_model(text.replace(b"Relu", b"Re\xffu"))
