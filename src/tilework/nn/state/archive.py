"""Files inside of tar and zip archives, as tensors of their bytes."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilework import dtypes
from tilework.base.errors import DTypeError, ModelFileError
from tilework.nn.state.safetensors import map_file
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator


class TensorIO(io.BytesIO):
    """The bytes of a tensor as a file to read from.

    Args:
        t: a vector of uint8; the file holds a copy of what it is now.

    Raises:
        DTypeError: it is something else.

    Example:
        >>> TensorIO(Tensor(b"three words here")).read(5)
        b'three'
    """

    def __init__(self, t: Tensor) -> None:
        if t.ndim != 1 or t.dtype is not dtypes.uint8:
            raise DTypeError(
                "TensorIO: needs a vector of bytes",
                got=f"{t.dtype.name}{t.shape}",
                expected="uint8(n,)",
            )
        super().__init__(t.data().tobytes())

    def writable(self) -> bool:
        """It is only read."""
        return False

    def write(self, data: Any) -> int:
        """Refuse.  Raises: io.UnsupportedOperation, as files that are only read do."""
        raise io.UnsupportedOperation("not writable")


def _open(fn: str | Path | Tensor) -> Any:
    """A file to read from: one of the disk, or the bytes of a tensor."""
    if isinstance(fn, Tensor):
        return io.BytesIO(map_file(fn))
    return open(fn, "rb")  # the caller closes it


def tar_extract(fn: str | Path | Tensor) -> dict[str, Tensor]:
    """The files of a tar archive, compressed or not, as vectors of bytes.

    Args:
        fn: the archive, or a tensor of its bytes (uint8).

    Returns:
        The bytes by name; folders and links are left out.

    Raises:
        ModelFileError: it is no tar archive, or a damaged one.
    """
    try:
        with _open(fn) as file, tarfile.open(fileobj=file) as archive:
            return dict(_members(archive))
    except (tarfile.TarError, EOFError) as error:
        raise ModelFileError("tar_extract: this is no tar archive", got=error) from error


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, Tensor]]:
    for member in archive:
        content = archive.extractfile(member) if member.isreg() else None
        if content is not None:
            yield member.name, Tensor(content.read())


def zip_extract(fn: str | Path | Tensor) -> dict[str, Tensor]:
    """The files of a zip archive as vectors of bytes.

    Args:
        fn: the archive, or a tensor of its bytes (uint8).

    Returns:
        The bytes by name.

    Raises:
        ModelFileError: it is no zip archive, a damaged one, or packed in a way that is not known.
    """
    try:
        with _open(fn) as file, zipfile.ZipFile(file) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            return {name: Tensor(archive.read(name)) for name in names}
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise ModelFileError("zip_extract: this is no zip archive", got=error) from error
