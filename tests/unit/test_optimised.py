"""GEN-01: what tilework does must not depend on `assert` being compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def passed_under_O(folder: Path, timeout_seconds: float) -> str:
    """Run a folder of tests without asserts in the sources; pytest keeps those of the tests."""
    command = [sys.executable, "-O", "-m", "pytest", str(folder), "-q", "-p", "no:randomly"]
    done = subprocess.run(
        [*command, "-W", "ignore", "--rootdir", str(TESTS.parent)],
        cwd=TESTS.parent,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_seconds,
    )
    return done.stdout.strip().splitlines()[-1]


def test_GEN_01_the_base_layer_passes_its_tests_under_O() -> None:
    summary = passed_under_O(TESTS / "unit" / "base", 300)
    assert "passed" in summary
    assert "failed" not in summary
    assert "error" not in summary


def test_it_computes_without_docstrings_too() -> None:
    script = "from tilework import Tensor; print((Tensor([1.0, 2.0]) * 3).sum().item())"
    command = [sys.executable, "-OO", "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "9.0\n"


@pytest.mark.slow
def test_GEN_01_all_unit_tests_pass_under_O() -> None:
    folders = [folder for folder in (TESTS / "unit").iterdir() if folder.is_dir()]
    summaries = {folder.name: passed_under_O(folder, 3600) for folder in folders}
    failing = {
        name: text for name, text in summaries.items() if "failed" in text or "error" in text
    }
    assert failing == {}
