"""The command `tilework tune`."""

import json
from pathlib import Path

import pytest

from tilework.tools.cli import OK, USAGE, main

SCRIPT = """
from tilework import Tensor
x = Tensor.ones(64, 64).contiguous().realize()
(x @ x).realize()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_it_reports_each_kernel(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = f"cache_dir={tmp_path / 'cache'}"
    assert main(["--set", cache, "tune", script, "--seconds", "20", "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    (kernel,) = [row for row in found["kernels"] if row["class"] == "contraction"]
    assert 0 < kernel["seconds"] <= kernel["default_seconds"]
    assert kernel["plans"] > 1
    assert (tmp_path / "cache" / "plans").is_dir()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["tune", "nowhere.py"], USAGE, "there is no such script"),
        (["tune", "SCRIPT", "--seconds", "0"], USAGE, "a time above zero"),
        (["--set", "cache_dir=", "tune", "SCRIPT"], USAGE, "there is none"),
    ],
)
def test_what_cannot_be_is_refused(
    script: str, words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [script if word == "SCRIPT" else word for word in words]
    assert main(given) == status
    assert message in capsys.readouterr().err
