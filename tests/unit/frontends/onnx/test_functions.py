"""Functions that a model brings itself, written in ONNX's own text form."""

from typing import Any

import numpy as np
import pytest
from onnx import helper, parser

from tilework.base.errors import ModelFileError, TileworkError, UnsupportedError
from tilework.onnx import OnnxRunner

HEAD = '<ir_version: 10, opset_import: ["": 18, "d": 1]>\ng (float[2,3] x) => (float y) '
CALL = HEAD + "{ y = d.f(x) }\n"
NEG = '<domain: "d", opset_import: ["": 18]>\nf (a) => (b) { b = Neg(a) }\n'
X = np.array([[1, 2, 4], [3, 5, 7]], np.float32)


def run(proto: Any) -> Any:
    """What the model gives for X."""
    found: Any = OnnxRunner(proto.SerializeToString())({"x": X})
    return found["y"].numpy()


def refused(proto: Any, error: type[TileworkError], words: str) -> None:
    """Expect that the model is refused when it is opened."""
    with pytest.raises(error, match=words):
        OnnxRunner(proto.SerializeToString())


def overloaded(called: str) -> Any:
    """A model whose function f negates, and has an overload that takes absolute values."""
    proto = parser.parse_model(CALL + NEG)
    other = proto.functions.add()
    other.CopyFrom(proto.functions[0])
    other.overload = "two"
    other.node[0].op_type = "Identity"
    proto.graph.node[0].overload = called
    return proto


@pytest.mark.parametrize(("called", "wanted"), [("", -X), ("two", X)])
def test_a_call_finds_the_function_of_its_overload(called: str, wanted: Any) -> None:
    np.testing.assert_array_equal(run(overloaded(called)), wanted)


def test_an_overload_that_the_model_does_not_define_is_refused() -> None:
    refused(overloaded("three"), UnsupportedError, "does not have")
    proto = parser.parse_model(HEAD + "{ y = Neg(x) }")
    proto.graph.node[0].overload = "two"
    refused(proto, UnsupportedError, "does not have")


def test_a_function_without_an_opset_has_the_models_and_one_with_another_its_own() -> None:
    text = CALL + '<domain: "d", opset_import: ["": 12]>\nf (a) => (b) { b = Hardmax(a) }'
    proto = parser.parse_model(text.replace("float[2,3] x", "float[1,2,3] x"))

    def rows() -> Any:
        found: Any = OnnxRunner(proto.SerializeToString())({"x": X[None]})
        return found["y"].numpy().sum()

    assert rows() == 1  # version 11 takes all axes from the second as one
    del proto.functions[0].opset_import[:]
    assert rows() == 2  # version 13 takes the last alone


@pytest.mark.parametrize("version", [0, 99])
def test_a_function_of_an_opset_that_nobody_knows_is_refused(version: int) -> None:
    proto = parser.parse_model(CALL + NEG)
    proto.functions[0].opset_import[0].version = version
    refused(proto, UnsupportedError, "function 'f' is of an operator set")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CALL + NEG + NEG, "defined twice"),
        (CALL + NEG.replace("Neg", "d.f"), r"part of itself\n  got: d.f calls d.f"),
        (CALL + NEG.replace("Neg", "d.e") + NEG.replace("f (", "e (").replace("Neg", "d.f"),
         "d.f calls d.e calls d.f"),
        (CALL.replace("f(x)", "f(x, x)") + NEG, "too many inputs"),
        (CALL.replace("y =", "y, z =") + NEG, "too many outputs"),
        (CALL + NEG.replace("=> (b)", "=> (q)"), "an output that nothing computes"),
        (CALL + NEG.replace("Neg(a)", "Neg(a) \n b = Exp(a)"), "stands for several values"),
    ],
)  # fmt: skip
def test_functions_and_calls_that_contradict_themselves_are_refused(text: str, words: str) -> None:
    refused(parser.parse_model(text), ModelFileError, words)


BODY = "b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] e) { d = Identity(c) e = Neg(a) }"


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(", float[2,3] a)", ", float[2,3] a, float[2,3] h)"),
        BODY.replace(", float[2,3] e)", ")"),
    ],
)
def test_a_body_that_takes_or_gives_other_numbers_than_its_node_is_refused(body: str) -> None:
    text = HEAD.replace("(float y)", "(float y) <int64 n = {2}>")
    proto = parser.parse_model(text + f"{{ y = Loop(n, , x)<body = {body}> }}")
    refused(proto, ModelFileError, "does not fit it")


def test_branches_that_give_different_numbers_of_values_are_refused() -> None:
    text = (
        "{ c = Constant<value = bool {1}>() y = If(c)<"
        "then_branch = p () => (float u) { u = Neg(x) },"
        "else_branch = q () => (float u, float v) { u = Neg(x) v = Neg(x) }> }"
    )
    refused(parser.parse_model(HEAD + text), ModelFileError, "different numbers of values")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{ k = Constant<value = int64[2] {1, -2}>() y = Tile(x, k) }", "negative"),
        ("{ k = Constant<value = int64[1] {4}>() y, i = TopK(x, k) }", "asks for a number"),
        ("{ y, z = Split<axis = 1, num_outputs = 3>(x) }", "more or fewer parts"),
    ],
)
def test_counts_that_do_not_fit_are_refused_at_the_first_call(body: str, words: str) -> None:
    with pytest.raises(TileworkError, match=words):
        run(parser.parse_model(HEAD + body))


def test_weights_in_another_file_are_refused_where_only_bytes_are_given() -> None:
    proto = parser.parse_model(HEAD + "{ y = Add(x, w) }")
    weights = proto.graph.initializer.add(name="w", data_type=1, dims=[2, 3], data_location=1)
    weights.external_data.add(key="location", value="weights.bin")
    refused(proto, ModelFileError, "'w' is malformed")


def test_the_first_versions_of_cast_and_dropout() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to="INT32"),
        helper.make_node("Cast", ["i"], ["d"], to="FLOAT"),
        helper.make_node("Dropout", ["d"], ["y", "mask"]),
    ]
    for opset in (1, 5):
        names = [helper.make_empty_tensor_value_info(name) for name in ("i", "y", "mask")]
        given = [helper.make_tensor_value_info("x", 1, [2, 3])]
        graph = helper.make_graph(nodes, "g", given, names)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        found: Any = OnnxRunner(proto.SerializeToString())({"x": X + 0.75})
        assert [found[name].dtype.name for name in ("i", "y", "mask")] == [
            "int32", "float32", "float32"
        ]  # fmt: skip
        np.testing.assert_array_equal(found["y"].numpy(), X)
