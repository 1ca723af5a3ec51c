"""The command `tilework tune`."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tilework.engine import tune
from tilework.tools.cli import OK, USAGE, main

STOPPED = 130
SCRIPT = """
from tilework import Tensor
x = Tensor.ones(160, 160).contiguous().realize()
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


def test_it_shows_the_program_before_and_after(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = f"cache_dir={tmp_path / 'cache'}"
    assert main(["--set", cache, "tune", script, "--seconds", "2"]) == OK
    shown = capsys.readouterr().out
    assert "all kernels together" in shown
    assert "before" in shown
    assert "launches" in shown


def test_a_model_is_tuned_and_called_before_and_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(__file__).parents[2] / "data" / "mnist_cnn_opset8.onnx"
    cache = f"cache_dir={tmp_path / 'cache'}"
    assert main(["--set", cache, "tune", str(model), "--seconds", "2", "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert found["latency"]["default_seconds"] > 0
    assert found["latency"]["seconds"] > 0
    assert found["program"]["seconds"] <= found["program"]["default_seconds"]


def test_a_stopped_run_keeps_and_prints_what_it_has(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def interrupted(search: tune._Search, plan: object) -> bool:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr(tune._Search, "_try", interrupted)
    cache = f"cache_dir={tmp_path / 'cache'}"
    assert main(["--set", cache, "tune", script, "--seconds", "60", "--json"]) == STOPPED
    found = json.loads(capsys.readouterr().out)
    (kernel,) = [row for row in found["kernels"] if row["class"] == "contraction"]
    assert kernel["plans"] == 3  # the default, and two that were measured before
    assert any((tmp_path / "cache" / "plans").rglob("*"))


def test_a_report_compares_predictions_with_measurements(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "report"
    assert main(["tune", script, "--report", str(folder), "--seconds", "20", "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((folder / "report.json").read_text())
    assert found["classes"]["contraction"]["samples"] >= 5
    assert all(sample["predicted"] > 0 for sample in found["samples"])
    if find_spec("matplotlib") is not None:
        assert (folder / "cost-model.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["tune"], USAGE, "nothing to tune"),
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
