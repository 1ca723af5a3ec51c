"""`tilework doctor`: what a bug report needs, and what is wrong with this installation."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilework.base import settings
from tilework.base.cores import available_cores
from tilework.base.errors import ModelFileError, TileworkError
from tilework.base.records import asdict
from tilework.base.text import plural
from tilework.ir import node
from tilework.testing import evidence
from tilework.tools import devices
from tilework.tools.console import Console

PACKAGES = (
    "tilework", "numpy", "llvmlite", "safetensors", "rich", "onnx", "onnxruntime", "torch",
    "matplotlib", "pillow",
)  # fmt: skip
_REQUIRED = frozenset(PACKAGES[:5])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework doctor`."""
    parser.add_argument(
        "--requirements",
        action="store_true",
        help="in a checkout: which numbered requirements are covered by tests, and which are open",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; the exit status is 1 where something needed is missing."""
    console = Console(is_json=arguments.json)
    if arguments.requirements:
        return _requirements(console)
    packages = {name: _version(name) for name in PACKAGES}
    problems = [
        f"the package {name} is missing; pip install tilework"
        for name, found in packages.items()
        if found is None and name in _REQUIRED
    ]
    problems += [
        f"the environment sets {name}, which is not a setting of tilework; unset it"
        for name in settings.unknown_variables()
    ]
    found_devices = devices.rows()
    cache = _check_cache()
    computed = _check_device()
    problems += [check for check in (cache["problem"], computed["problem"]) if check]
    machine = {
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": available_cores(),
        "compiler": compiled_modules(),
    }
    options = {name: str(value) for name, value in asdict(settings.current()).items()}
    document = {
        "machine": machine,
        "packages": packages,
        "devices": found_devices,
        "cache": cache,
        "default_device": computed,
        "settings": options,
        "problems": problems,
    }
    console.result(document)
    console.table("machine", ["what", "value"], [[k, str(v)] for k, v in machine.items()])
    console.table("packages", ["name", "version"], [[k, v or "-"] for k, v in packages.items()])
    console.table(
        "devices",
        ["device", "state", "why not"],
        [[row["device"], row["state"], row["reason"]] for row in found_devices],
    )
    console.table("settings", ["name", "value"], [[k, v] for k, v in options.items()])
    console.text(f"cache: {cache['folder'] or 'off'} ({cache['state']})")
    console.text(f"default device: {computed['device']} ({computed['state']})")
    for problem in problems:
        console.text(f"problem: {problem}")
    if not problems:
        console.text("no problem found")
    return 1 if problems else 0


def compiled_modules() -> str:
    """Whether the compiler's hot modules run as Python, or were compiled ahead."""
    package = Path(devices.__file__).parents[1]
    suffix = EXTENSION_SUFFIXES[0]  # of this Python alone
    found = [path for path in package.rglob(f"*{suffix}") if not path.name.startswith("_")]
    if not found:
        return "pure Python"
    used = node.__file__.endswith(suffix)
    return f"{plural(len(found), 'module')} compiled ahead{'' if used else ', but not used'}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _check_cache() -> dict[str, Any]:
    folder = settings.current().cache_dir
    if folder is None:
        return {"folder": None, "state": "off", "problem": None}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        problem = f"the cache folder {folder} cannot be written: {reason}; set TILEWORK_CACHE_DIR"
        return {"folder": str(folder), "state": "not writable", "problem": problem}
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"folder": str(folder), "state": f"{size} bytes", "problem": None, "size_bytes": size}


def _check_device() -> dict[str, Any]:
    """Compute 1 + 2 on the default device."""
    name = settings.current().dev
    try:
        from tilework.tensor.tensor import Tensor

        answer = (Tensor([1.0]) + Tensor([2.0])).numpy().tolist()
    except TileworkError as error:
        reason = str(error).replace("\n", ";")
        return {"device": name, "state": "fails", "problem": f"{name}: {reason}"}
    is_right = answer == [3.0]
    problem = None if is_right else f"{name} computes 1 + 2 = {answer[0]}"
    return {"device": name, "state": "works" if is_right else "wrong", "problem": problem}


# --- the numbered requirements --------------------------------------------------------------------


def find_checkout(start: Path) -> Path:
    """Return the folder of the checkout that holds `tests/requirements.toml`.

    Raises:
        ModelFileError: there is none above `start` nor above the installed package.
    """
    own = Path(__file__).resolve()
    for folder in (start, *start.parents, *own.parents):
        if (folder / "tests" / "requirements.toml").is_file():
            return folder
    raise ModelFileError(
        "doctor: there is no tests/requirements.toml here",
        got=str(start),
        try_="run this inside a checkout of tilework",
    )


def _requirements(console: Console) -> int:
    path = find_checkout(Path.cwd()) / "tests" / "requirements.toml"
    found = evidence.read_requirements(path)
    listed = list(found.values()) if isinstance(found, dict) else list(found)
    table: dict[str, list[int]] = {}
    for row in listed:
        counts = table.setdefault(row.id[:3], [0, 0])
        counts[0 if row.is_covered else 1] += 1
    covered = sum(counts[0] for counts in table.values())
    console.result(
        {
            "covered": covered,
            "open": len(listed) - covered,
            "rows": [
                {"id": row.id, "must": row.must, "covered": row.is_covered, "reason": row.reason}
                for row in listed
            ],
        }
    )
    console.table(
        "requirements",
        ["section", "about", "covered", "open"],
        [
            [
                name,
                evidence.SECTIONS[name][1] if name in evidence.SECTIONS else "",
                *map(str, counts),
            ]
            for name, counts in table.items()
        ],
    )
    console.text(f"{covered} covered by tests, {len(listed) - covered} open")
    for row in listed:
        if not row.is_covered:
            console.text(f"  {row.id}  {row.must}: {row.reason}")
    return 0
