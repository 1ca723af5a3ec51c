"""`fetch`: files of the network, kept in a folder of the cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilework.base import settings
from tilework.base.errors import ModelFileError
from tilework.base.late import late_module

if TYPE_CHECKING:
    import gzip
    import hashlib
    import shutil
    import tarfile
    import tempfile
else:
    gzip = late_module("gzip")
    hashlib = late_module("hashlib")
    shutil = late_module("shutil")
    tarfile = late_module("tarfile")
    tempfile = late_module("tempfile")

_SECONDS: Final = 10.0
_CHUNK_BYTES: Final = 1 << 16


def fetch(
    url: str,
    name: str | Path | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
    headers: Mapping[str, str] | None = None,
    sha256: str | None = None,
    extract: bool = False,
) -> Path:
    """The path of a copy of what is at `url`; a local path is given back as it is.

    Args:
        url: where it is.
        name: what the copy is called, or its whole path.
        subdir: a folder for it below the folder of downloads.
        gunzip: unpack it while it is copied.
        allow_caching: use a copy that is there already.
        headers: for the request.
        sha256: what its content must hash to.
        extract: unpack the tar archive that it is, and give the folder.

    Raises:
        ModelFileError: it cannot be had, or its content is not the expected one.
    """
    if url.startswith(("/", ".")):
        return Path(url)
    path = _place(url, name, subdir, gunzip, headers or {})
    is_good = allow_caching and path.is_file() and (sha256 is None or _sum_of(path) == sha256)
    if not is_good:
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy(url, path, gunzip, headers or {}, sha256)
    return _extracted(path, is_good) if extract else path


def _place(
    url: str, name: str | Path | None, subdir: str | None, gunzip: bool, headers: Mapping[str, str]
) -> Path:
    if isinstance(name, Path) or (name is not None and "/" in name):
        return Path(name)
    root = settings.current().cache_dir
    folder = Path(tempfile.gettempdir()) / "tilework" if root is None else root
    text = "\n".join([url, *(f"{key}:{headers[key]}" for key in sorted(headers))])
    found = name or hashlib.sha256(text.encode()).hexdigest()[:32]
    return folder / "downloads" / (subdir or "") / (found + (".gunzip" if gunzip else ""))


def _sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(
    url: str, path: Path, gunzip: bool, headers: Mapping[str, str], sha256: str | None
) -> None:
    """Write a file beside its place, check it, and put it there by a rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            _read(url, headers, gunzip, file)
        if sha256 is not None and _sum_of(Path(temporary)) != sha256:
            raise ModelFileError(
                "fetch: the content is not the expected one",
                got=f"{url} with sha256 {_sum_of(Path(temporary))}",
                expected=sha256,
            )
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _read(url: str, headers: Mapping[str, str], gunzip: bool, file: Any) -> None:
    import urllib.request  # 20 ms, which only a download should cost

    try:
        request = urllib.request.Request(url, headers={"User-Agent": "tilework", **headers})
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            source = gzip.GzipFile(fileobj=answer) if gunzip else answer
            shutil.copyfileobj(source, file, _CHUNK_BYTES)
            expected = answer.headers.get("content-length")
            is_cut = not gunzip and expected is not None and file.tell() < int(expected)
    except (OSError, ValueError) as error:
        raise ModelFileError(
            "fetch: this cannot be had",
            got=f"{url}: {error}",
            try_="check the connection, or give the path of a local copy",
        ) from error
    if is_cut:
        raise ModelFileError("fetch: the answer ended too early", got=url)


def _extracted(path: Path, is_old: bool) -> Path:
    folder = path.parent / f"{path.name}.extract"
    if folder.is_dir() and is_old:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    temporary = tempfile.mkdtemp(dir=path.parent)
    try:
        with tarfile.open(path) as archive:
            archive.extractall(temporary, filter="data")
        os.rename(temporary, folder)
    except (tarfile.TarError, OSError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise ModelFileError(
            "fetch: the archive cannot be unpacked", got=f"{path}: {error}"
        ) from error
    return folder
