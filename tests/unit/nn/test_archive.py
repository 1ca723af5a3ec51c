"""Files of tar and zip archives as tensors."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tilework import Tensor, nn
from tilework.base.errors import DTypeError, ModelFileError

FILES = {"a.txt": b"alpha", "b/c.bin": bytes(range(200)), "empty": b""}


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    path = tmp_path / "files.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(_folder())
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def _folder() -> tarfile.TarInfo:
    info = tarfile.TarInfo("b")
    info.type = tarfile.DIRTYPE
    return info


@pytest.mark.parametrize("as_tensor", [False, True])
def test_the_files_of_a_tar_archive_come_by_name(tar: Path, as_tensor: bool) -> None:
    found = nn.state.tar_extract(Tensor(tar) if as_tensor else tar)
    assert {name: bytes(content.tolist()) for name, content in found.items()} == FILES


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_files_of_a_zip_archive_come_by_name(tmp_path: Path, packing: int) -> None:
    path = tmp_path / "files.zip"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.mkdir("folder")
        for name, content in FILES.items():
            archive.writestr(name, content)
    found = nn.state.zip_extract(Tensor(path))
    assert {name: bytes(content.tolist()) for name, content in found.items()} == FILES


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"no archive at all" * 100)
    with pytest.raises(ModelFileError, match="no tar archive"):
        nn.state.tar_extract(path)
    with pytest.raises(ModelFileError, match="no zip archive"):
        nn.state.zip_extract(Tensor(path))


def test_a_tensor_of_bytes_is_read_as_a_file() -> None:
    file = nn.state.TensorIO(Tensor(b"three words here"))
    assert file.read(5) == b"three"
    assert file.seek(-4, io.SEEK_END) == 12
    assert file.read() == b"here"
    assert not file.writable()
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"x")
    with pytest.raises(DTypeError, match="vector of bytes"):
        nn.state.TensorIO(Tensor([1.0]))


def test_from_url_takes_a_local_file(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(b"\x01\x02")
    assert Tensor.from_url(str(path)).tolist() == [1, 2]


def test_what_cannot_be_fetched_is_refused_with_its_address() -> None:
    with pytest.raises(ModelFileError, match="cannot be had") as caught:
        Tensor.from_url("http://localhost:9/nothing")
    assert "localhost:9" in str(caught.value.got)
