"""Inputs from the command line: files, numbers, and what is made up by the signature."""

import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.unit.frontends.onnx.models import Array, model, node, value

from tilework import dtypes
from tilework.base.errors import ModelFileError, ShapeError, UserError
from tilework.frontends.onnx.graph import ValueInfo
from tilework.frontends.onnx.load import load_model
from tilework.onnx import OnnxRunner
from tilework.tools.inputs import index_bounds, read_input, seeded_inputs
from tilework.tools.run import parse_sizes

PICTURE = ValueInfo("x", dtypes.float32, (None, 3, 4, "w"))


def test_an_array_file_is_read_as_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(4))
    name, found = read_input(f"x={tmp_path / 'a.npy'}", [ValueInfo("x")])
    assert (name, found.tolist()) == ("x", [0, 1, 2, 3])


def test_a_pickled_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(ModelFileError, match="not a NumPy array"):
        read_input(f"x={tmp_path / 'a.npy'}", [ValueInfo("x")])


def test_a_number_fills_the_declared_shape() -> None:
    _, found = read_input("sr=16000", [ValueInfo("sr", dtypes.int64, ())])
    assert (found.dtype, found.shape, int(found)) == (np.int64, (), 16000)


def test_a_picture_is_scaled_and_laid_out_as_the_input_wants(tmp_path: Path) -> None:
    Image.new("RGB", (6, 8), (255, 0, 51)).save(tmp_path / "p.png")
    _, found = read_input(f"x={tmp_path / 'p.png'}", [PICTURE])
    assert (found.shape, found.dtype) == ((1, 3, 4, 6), np.float32)
    assert found[0, :, 0, 0].tolist() == [1.0, 0.0, np.float32(0.2)]


def test_a_picture_keeps_its_channels_last_where_the_input_does(tmp_path: Path) -> None:
    Image.new("RGB", (6, 8)).save(tmp_path / "p.png")
    info = ValueInfo("x", dtypes.uint8, ("n", "h", "w", 3))
    assert read_input(f"x={tmp_path / 'p.png'}", [info])[1].shape == (1, 8, 6, 3)


def test_a_sound_becomes_mono_samples(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "s.wav"), "wb") as sound:
        sound.setnchannels(2)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(np.array([[16384, 0], [-32768, -32768]], "<i2").tobytes())
    info = ValueInfo("x", dtypes.float32, (1, "t"))
    _, found = read_input(f"x={tmp_path / 's.wav'}", [info])
    assert found.tolist() == [[0.25, -1.0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [("x", "not NAME=VALUE"), ("y=a.npy", "no input 'y'"), ("x=a.txt", "kind of file")],
)
def test_what_cannot_be_read_is_a_typed_error(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_input(text, [ValueInfo("x")])


def test_a_missing_input_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        read_input(f"x={tmp_path / 'none.npy'}", [ValueInfo("x")])


@pytest.mark.parametrize("pair", ["n=0", "n=-1", "n=two"])
def test_a_size_must_be_a_whole_number_above_zero(pair: str) -> None:
    with pytest.raises(UserError, match="whole number above 0"):
        parse_sizes([pair])


LOOK_UP = model(
    [
        node("Cast", ["ids"], ["wide"], to=7),
        node("Gather", ["table", "wide"], ["rows"]),
        node("Add", ["rows", "x"], ["y"]),
    ],
    [value("ids", "int32", ["n"]), value("x", shape=["n", 2])],
    ["y"],
    {"table": np.zeros((5, 2), np.float32)},
)


def test_integers_stay_below_the_size_of_every_table_that_they_index() -> None:
    assert index_bounds(load_model(LOOK_UP).graph) == {"ids": 5}


def test_made_up_inputs_are_the_same_for_one_seed() -> None:
    runner = OnnxRunner(LOOK_UP)
    first = seeded_inputs(runner, {}, {"n": 7}, seed=3)
    second = seeded_inputs(runner, {}, {"n": 7}, seed=3)
    other = seeded_inputs(runner, {}, {"n": 7}, seed=4)
    assert first["ids"].shape == (7,)
    assert first["ids"].max() < 5
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["x"], other["x"])


def test_a_named_size_follows_the_input_that_is_given() -> None:
    given = {"ids": np.zeros(9, np.int32)}
    assert seeded_inputs(OnnxRunner(LOOK_UP), given, {}, 0)["x"].shape == (9, 2)


def test_open_sizes_are_guessed_until_the_graph_accepts_them() -> None:
    nodes = [node("Reshape", ["x", "s"], ["r"]), node("MatMul", ["r", "w"], ["y"])]
    constants: dict[str, Array] = {
        "s": np.array([-1, 64], np.int64),
        "w": np.zeros((64, 2), np.float32),
    }
    text = model(nodes, [value("x", shape=["n", "m"])], ["y"], constants)
    assert seeded_inputs(OnnxRunner(text), {}, {}, 0)["x"].shape == (1, 64)


def test_sizes_that_do_not_fit_raise_what_the_graph_says() -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    text = model(nodes, [value("x", shape=["n", "m"])], ["y"], {"w": np.zeros((7, 2), "f4")})
    with pytest.raises(ShapeError) as caught:
        seeded_inputs(OnnxRunner(text), {}, {"m": 8}, 0)
    assert "give them with --dim" in "".join(caught.value.__notes__)
