"""Collecting the tensors of models, and files of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from tilework import Tensor, dtypes, nn
from tilework.base.errors import ModelFileError, ShapeError, TileworkWarning, UnsupportedError
from tilework.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)


class Model:
    def __init__(self) -> None:
        self.layers = [nn.Linear(2, 3), {"inner": nn.Linear(3, 1, bias=False)}]
        self.scale = Tensor([2.0])
        self.name = "model"
        self.itself = self


def test_names_join_attributes_keys_and_positions() -> None:
    assert list(get_state_dict(Model())) == [
        "layers.0.weight", "layers.0.bias", "layers.1.inner.weight", "scale",
    ]  # fmt: skip


def test_parameters_are_all_tensors() -> None:
    assert len(get_parameters(Model())) == 4


def test_a_state_is_loaded_into_another_model(tmp_path: Path) -> None:
    a, b = Model(), Model()
    safe_save(get_state_dict(a), tmp_path / "m.safetensors")
    load_state_dict(b, safe_load(tmp_path / "m.safetensors"))
    for own, other in zip(get_parameters(a), get_parameters(b), strict=True):
        np.testing.assert_array_equal(own.numpy(), other.numpy())


def test_a_missing_name_is_refused() -> None:
    with pytest.raises(ModelFileError, match="names are missing"):
        load_state_dict(nn.Linear(2, 3), {})


def test_an_unknown_name_is_warned_about() -> None:
    layer = nn.Linear(1, 1)
    state = {**get_state_dict(nn.Linear(1, 1)), "other": Tensor([1.0])}
    with pytest.warns(TileworkWarning, match="the model has no other"):
        load_state_dict(layer, state)


def test_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match="weight has another shape"):
        load_state_dict(nn.Linear(2, 3), get_state_dict(nn.Linear(3, 3)))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
def test_every_dtype_survives_a_file(dtype: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    t = Tensor([0, 1, 1, 0], dtype=dtype)
    safe_save({"t": t, "empty": Tensor.zeros(0, 2, dtype=dtype)}, path)
    found = safe_load(path)
    assert (found["t"].dtype, found["t"].shape) == (dtype, (4,))
    assert found["t"].tolist() == t.tolist()
    assert found["empty"].shape == (0, 2)


def test_others_read_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    base = np.arange(6, dtype=np.float32).reshape(2, 3)
    safe_save({"view": Tensor(base).T, "half": Tensor(base).bfloat16()}, path, {"format": "pt"})
    found = safetensors.torch.load_file(path)
    assert found["view"].tolist() == base.T.tolist()
    assert found["half"].dtype is torch.bfloat16


def test_we_read_what_others_write(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    safetensors.numpy.save_file({"a": np.arange(5, dtype=np.int16)}, path, {"by": "others"})
    assert safe_load(path)["a"].tolist() == [0, 1, 2, 3, 4]
    assert safe_load_metadata(path)["__metadata__"] == {"by": "others"}


def test_what_was_loaded_does_not_change_when_the_file_is_saved_again(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    safe_save({"a": Tensor([1.0, 2.0])}, path)
    old = safe_load(path)["a"]
    safe_save({"a": Tensor([7.0, 8.0])}, path)
    assert old.tolist() == [1, 2]


def test_a_file_can_be_saved_over_the_one_that_its_tensors_are_from(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    safe_save({"a": Tensor([1.0, 2.0])}, path)
    state = safe_load(path)
    safe_save({"a": state["a"], "b": state["a"] * 2}, path)
    assert safe_load(path)["b"].tolist() == [2, 4]


def test_writing_to_a_loaded_tensor_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    safe_save({"a": Tensor([1.0, 2.0])}, path)
    before = path.read_bytes()
    a = safe_load(path)["a"]
    a[0] = 9
    assert a.tolist() == [9, 2]
    assert path.read_bytes() == before


def test_loading_copies_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    safe_save({"a": Tensor(np.zeros(1000, np.float32))}, path)
    buffer = safe_load(path)["a"]._storage.version.buffer
    assert buffer is not None
    assert buffer.lease is not None
    assert buffer.lease.is_readonly


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.safetensors"
    safe_save({"a": Tensor([1.0])}, path)

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        safe_save({"a": Tensor([2.0])}, path)
    assert [each.name for each in tmp_path.iterdir()] == ["t.safetensors"]
    assert safe_load(path)["a"].tolist() == [1]


def _file(tmp_path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    "row",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2.5], "data_offsets": [0, 10]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [2]},
        "text",
    ],
)
def test_GEN_09_a_row_that_contradicts_the_file_is_refused(row: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        safe_load(_file(tmp_path, {"a": row}, bytes(16)))


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 40, struct.pack("<Q", 2) + b"[]"])
def test_GEN_09_what_is_no_safetensors_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFileError):
        safe_load(path)


def test_an_unknown_dtype_is_named(tmp_path: Path) -> None:
    row = {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}
    with pytest.raises(UnsupportedError, match="a dtype that is not known"):
        safe_load(_file(tmp_path, {"a": row}, bytes(8)))
