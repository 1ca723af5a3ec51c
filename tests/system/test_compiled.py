"""The hot modules compiled ahead: they build, are used, and pass the compiler's own tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The tests of what is compiled.
TESTS = (
    "tests/unit/ir",
    "tests/unit/schedule",
    "tests/unit/codegen/passes",
    "tests/unit/codegen/plan",
    "tests/unit/codegen/linearize",
    "tests/unit/render",
)
#: What compiled code cannot have: classes show no `__slots__`, a module is no source file, and the
#: interpreter does not count calls of functions or see the types of fields.
NOT_OF_COMPILED = (
    "no_dictionary_and_no_weak_references",
    "only_its_own_module_sets_the_fields",
    "verifying_grows_linearly",
    "attributes_hold_only_what_can_be_printed",
    "a_contraction_is_looked_into_once",
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout whose hot modules have been compiled."""
    folder = tmp_path_factory.mktemp("compiled")
    kept = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("src", "tests", "docs", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=kept)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    done = run(folder, "setup.py", "build_ext", "--inplace", TILEWORK_COMPILED="1")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), **more}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.needs("program:cc")
def test_the_compiled_modules_are_used(compiled: Path) -> None:
    code = "import tilework.ir.node as n, tilework.ir.rewrite as r; print(n.__file__, r.__file__)"
    done = run(compiled, "-c", code)
    files = done.stdout.split()
    assert len(files) == 2, done.stderr
    assert all(name.endswith(".so") and name.startswith(str(compiled)) for name in files)
    doctor = run(
        compiled, "-c", "from tilework.tools import doctor as d; print(d.compiled_modules())"
    )
    assert doctor.stdout.strip().endswith("modules compiled ahead")


@pytest.mark.needs("program:cc")
def test_the_core_passes_its_tests_when_compiled(compiled: Path) -> None:
    left_out = " and ".join(f"not {name}" for name in NOT_OF_COMPILED)
    words = ["-m", "pytest", "-q", "-n", "2", "-p", "no:randomly", "-k", left_out, *TESTS]
    done = run(compiled, *words, TILEWORK_CACHE_DIR=str(compiled / "cache"))
    assert done.returncode == 0, done.stdout[-3000:]


def test_without_the_variable_nothing_is_compiled() -> None:
    code = "import setup; print(setup.extensions())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "TILEWORK_COMPILED"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
