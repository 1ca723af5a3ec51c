"""Checkpoints of PyTorch, read without running anything that they hold."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from tilework import Tensor, dtypes, nn
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.nn.state import torch_load


def saved(value: Any, tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.pth"
    torch.save(value, path)
    return path


def test_containers_numbers_and_text_come_back(tmp_path: Path) -> None:
    tree = {"a": [1, 2.5, -7, 2**40, "x", None, True], "b": (1, (2,)), "c": {}, 3: set()}
    assert torch_load(saved(tree, tmp_path)) == tree


@pytest.mark.parametrize(
    "name",
    ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
     "bool", "uint16", "float8_e4m3fn"],
)  # fmt: skip
def test_tensors_of_every_dtype_come_back(name: str, tmp_path: Path) -> None:
    value = torch.tensor([0, 1, 1, 0]).to(getattr(torch, name))
    found = torch_load(saved({"t": value}, tmp_path))["t"]
    assert found.float().tolist() == [0, 1, 1, 0]


def test_strides_and_offsets_are_honoured(tmp_path: Path) -> None:
    base = torch.arange(24).reshape(2, 3, 4)
    found = torch_load(saved([base[1].T, base[:, 1:, ::2]], tmp_path))
    assert found[0].tolist() == base[1].T.tolist()
    assert found[1].tolist() == base[:, 1:, ::2].tolist()


def test_parameters_and_state_dictionaries_come_back(tmp_path: Path) -> None:
    layer = torch.nn.BatchNorm2d(3)
    found = torch_load(
        saved({"p": torch.nn.Parameter(torch.ones(2)), **layer.state_dict()}, tmp_path)
    )
    assert found["p"].tolist() == [1, 1]
    assert found["num_batches_tracked"].dtype is dtypes.int64
    assert found["running_var"].tolist() == [1, 1, 1]


def test_a_whole_model_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="an object that is no tensor") as error:
        torch_load(saved(torch.nn.Linear(2, 2), tmp_path))
    assert "state_dict" in str(error.value)


class Hostile:
    """Would run a command when unpickled."""

    def __reduce__(self) -> Any:
        return print, ("this must not run",)


def hostile_file(tmp_path: Path, code: bytes) -> Path:
    path = tmp_path / "hostile.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", code)
    return path


def test_GEN_09_code_in_a_checkpoint_is_never_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnsupportedError, match="an object that is no tensor"):
        torch_load(hostile_file(tmp_path, pickle.dumps(Hostile(), protocol=2)))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("code", [b"", b"\x80\x02", b"\x80\x02}u.", b"\x80\x02h\x05.", b"("])
def test_GEN_09_a_damaged_program_is_refused(code: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        torch_load(hostile_file(tmp_path, code))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.pth"
    path.write_text("no archive")
    with pytest.raises(ModelFileError, match="no zip archive and no older file"):
        torch_load(path)


def test_the_format_before_pytorch_1_6_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pth"
    base = torch.arange(6.0).reshape(2, 3)
    tree = {"shared": [base, base.T], "half": torch.ones(2).half(), "step": 3}
    torch.save(tree, path, _use_new_zipfile_serialization=False)
    found = torch_load(path)
    assert found["shared"][0].tolist() == base.tolist()
    assert found["shared"][1].tolist() == base.T.tolist()
    assert found["half"].dtype is dtypes.float16
    assert found["half"].tolist() == [1, 1]
    assert found["step"] == 3


@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128])
def test_a_dtype_that_is_not_known_is_refused(kind: torch.dtype, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="a dtype that is not known"):
        torch_load(saved({"t": torch.ones(2, dtype=kind)}, tmp_path))


def test_buffers_and_bytes_come_back(tmp_path: Path) -> None:
    found = torch_load(saved({"b": torch.nn.Buffer(torch.ones(2)), "raw": b"\xff\x00"}, tmp_path))
    assert found["b"].tolist() == [1, 1]
    assert found["raw"] == b"\xff\x00"


def test_a_checkpoint_with_statistics_is_loaded_into_a_model(tmp_path: Path) -> None:
    theirs = torch.nn.BatchNorm2d(3)
    theirs(torch.arange(24.0).reshape(2, 3, 2, 2))
    ours = nn.BatchNorm2d(3)
    nn.state.load_state_dict(ours, torch_load(saved(theirs.state_dict(), tmp_path)))
    assert ours.num_batches_tracked.shape == ()
    assert ours.num_batches_tracked.item() == 1
    assert ours.running_mean.tolist() == theirs.running_mean.tolist()  # type: ignore[union-attr]


def test_a_count_of_shape_1_is_loaded_as_a_scalar() -> None:
    layer = nn.BatchNorm2d(3)
    state = nn.state.get_state_dict(layer)
    nn.state.load_state_dict(layer, state | {"num_batches_tracked": Tensor([7])})
    assert layer.num_batches_tracked.tolist() == 7
