"""The command line: exit status, messages, JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.frontends.onnx.models import model, node, value

import tilework
from tilework.base.errors import ShapeError, UserError
from tilework.testing.conformance import all_cases
from tilework.tools.cli import COMMANDS, FAILED, OK, USAGE, main
from tilework.tools.console import error_lines

DIGITS = Path(__file__).parents[2] / "data" / "mnist_cnn_opset8.onnx"


@pytest.fixture
def add_one(tmp_path: Path) -> str:
    """A small model with an open size."""
    text = model(
        [node("Add", ["x", "one"], ["y"])],
        [value("x", shape=["n", 2])],
        [value("y", shape=["n", 2])],
        {"one": np.array(1, np.float32)},
    )
    path = tmp_path / "add.onnx"
    path.write_bytes(text)
    return str(path)


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def only(rows: object) -> dict[str, Any]:
    assert isinstance(rows, list)
    assert len(rows) == 1
    found: dict[str, Any] = rows[0]
    return found


def test_no_command_prints_the_help_and_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == USAGE
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)


def test_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.strip() == f"tilework {tilework.__version__}"


def test_a_misspelt_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["devcies"])
    assert caught.value.code == USAGE
    assert "did you mean `devices`?" in capsys.readouterr().err


def test_an_error_of_ours_prints_as_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "none.onnx"]) == USAGE
    text = capsys.readouterr().err
    assert "error: onnx: there is no such file\n  got: none.onnx" in text
    assert "Traceback" not in text


def test_an_error_has_at_most_four_lines() -> None:
    error = ShapeError("a: b", got=1, expected=2, try_="3", created_at="f.py:1")
    error.add_note("note")
    lines = error_lines(error)
    assert lines == ["error: a: b", "  got: 1", "  expected: 2", "  try: 3"]


def test_a_short_error_shows_its_note() -> None:
    error = UserError("a: b", got=1)
    error.add_note("in the node")
    assert error_lines(error) == ["error: a: b", "  got: 1", "  in the node"]


def test_an_unknown_variable_of_the_environment_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWORK_THREADS", "2")
    assert main(["devices"]) == USAGE
    assert "TILEWORK_THREADS" in capsys.readouterr().err


def test_doctor_lists_an_unknown_variable_among_the_problems(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWORK_THREADS", "2")
    assert main(["doctor", "--json"]) == FAILED
    assert "TILEWORK_THREADS" in str(document(capsys)["problems"])


def test_devices_and_doctor_work_where_the_default_device_does_not_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--set", "dev=NONE", "devices", "--json"]) == OK
    rows = document(capsys)["devices"]
    assert isinstance(rows, list)
    assert not any(row["default"] for row in rows)
    assert main(["--set", "dev=NONE", "doctor", "--json"]) == FAILED
    assert "there is no back end NONE" in str(document(capsys)["problems"])


def test_a_size_that_the_model_does_not_leave_open_is_refused(
    add_one: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", add_one, "--dim", "m=3", "--repeat", "0"]) == USAGE
    assert "the model leaves open no size of this name" in capsys.readouterr().err


def test_export_tells_which_open_sizes_it_fixed(
    add_one: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", add_one, str(tmp_path / "add.twx")]) == OK
    assert "n was left open and is 1 in the file" in capsys.readouterr().out


def test_an_export_given_as_a_model_is_recognised(
    add_one: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "add.twx")
    assert main(["export", add_one, path, "--dim", "n=3"]) == OK
    assert main(["run", path]) == USAGE
    assert "try: tilework.load(path)" in capsys.readouterr().err


def test_a_setting_can_be_changed_for_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "num_threads=1", "doctor", "--json"]) in (OK, FAILED)
    assert document(capsys)["settings"]["num_threads"] == "1"  # type: ignore[index]


def test_an_unknown_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "threads=1", "devices"]) == USAGE
    assert "has no setting of this name" in capsys.readouterr().err


def test_devices_lists_every_back_end_and_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--json"]) == OK
    rows = document(capsys)["devices"]
    assert isinstance(rows, list)
    found = {row["device"]: row for row in rows}
    assert found["CPU"]["state"] == "ready"
    assert found["CPU"]["default"]
    assert {"PYTHON", "NULL"} <= set(found)
    assert all(row["reason"] for row in rows if row["state"] != "ready")


def test_doctor_computes_on_the_default_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == OK
    found = document(capsys)
    assert found["default_device"]["state"] == "works"  # type: ignore[index]
    assert found["problems"] == []


def test_doctor_lists_the_requirements_of_a_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--requirements", "--json"]) == OK
    found = document(capsys)
    rows = found["rows"]
    assert isinstance(rows, list)
    assert found["covered"] + found["open"] == len(rows) > 300  # type: ignore[operator]


def test_doctor_outside_of_a_checkout_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilework.base.errors import ModelFileError
    from tilework.tools import doctor

    monkeypatch.setattr(doctor, "__file__", str(tmp_path / "doctor.py"))
    with pytest.raises(ModelFileError, match=r"no tests/requirements\.toml"):
        doctor.find_checkout(tmp_path)


def test_run_reports_signature_kernels_stages_latency_and_memory(
    add_one: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", add_one, "--dim", "n=3", "--repeat", "4", "--json"]) == OK
    found = document(capsys)
    assert found["inputs"] == {"x": {"dtype": "float32", "shape": [3, 2]}}
    assert found["outputs"] == {"y": {"dtype": "float32", "shape": [3, 2]}}
    assert len(found["kernels"]) == 1  # type: ignore[arg-type]
    assert {"load", "first run"} <= set(found["stages_s"])  # type: ignore[call-overload]
    assert found["latency"]["count"] == 4  # type: ignore[index]
    assert found["memory"]["peak"] > 0  # type: ignore[index]
    assert found["check"] is None


def test_run_prints_tables_for_people(add_one: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", add_one, "--repeat", "2"]) == OK
    text = capsys.readouterr().out
    memory = ("memory", "predicted peak", "measured peak")
    for words in ("inputs", "float32[n, 2]", "1 kernel", "time per stage", "p50", "p99", *memory):
        assert words in text


def test_run_compares_with_onnx_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(DIGITS), "--check", "ort", "--repeat", "1", "--json"]) == OK
    row = only(document(capsys)["check"])
    assert row["agrees"]
    assert row["difference"] < 1e-4


def test_a_difference_is_exit_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(DIGITS), "--check", "ort", "--repeat", "0", "--json"]
    assert main([*words, "--tolerance", "0"]) in (OK, FAILED)
    row = only(document(capsys)["check"])
    assert row["agrees"] == (row["difference"] == 0)


def test_run_saves_its_results(add_one: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2]], np.float32))
    words = ["run", add_one, "--input", f"x={tmp_path / 'x.npy'}", "--repeat", "0"]
    assert main([*words, "--output", str(tmp_path / "out.npz")]) == OK
    with np.load(tmp_path / "out.npz") as found:
        assert found["y"].tolist() == [[2, 3]]


def test_run_on_another_device(add_one: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", add_one, "--device", "PYTHON", "--repeat", "1", "--json"]) == OK
    assert document(capsys)["device"] == "PYTHON"


def test_an_unknown_device_is_an_error(add_one: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", add_one, "--device", "CUPS"]) in (FAILED, USAGE)
    assert "CUPS" in capsys.readouterr().err


def test_explain_tells_every_pass_of_a_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "s.py"
    # A kernel that no other test of this process can have compiled.
    script.write_text("from tilework import Tensor\nprint((Tensor([1.0]) * 3.625).tolist())\n")
    assert main(["explain", str(script), "--json"]) == OK
    found = document(capsys)
    assert len(found["kernels"]) == 1  # type: ignore[arg-type]
    assert found["passes"]
    story = "\n".join(found["story"])  # type: ignore[arg-type]
    assert "compiled" in story
    assert "reduction" in story or "elementwise" in story
    assert "= store %" in story


def test_explain_of_a_missing_script_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "none.py"]) == USAGE
    assert "no such script" in capsys.readouterr().err


def test_export_writes_a_file_that_loads(
    add_one: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "add.tilework"
    assert main(["export", add_one, str(target), "--dim", "n=1", "--json"]) == OK
    assert document(capsys)["inputs"] == {"x": [1, 2]}
    (found,) = tilework.load(target)(tilework.Tensor([[1.0, 2.0]]))
    assert found.tolist() == [[2.0, 3.0]]


def test_EXE_23_export_writes_a_portable_file_that_is_signed(add_one: str, tmp_path: Path) -> None:
    target, key = tmp_path / "add.tilework", tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    arguments = ["export", add_one, str(target), "--dim", "n=1", "--portable", "--key", str(key)]
    assert main(arguments) == OK
    assert b"ELF" not in target.read_bytes()
    (found,) = tilework.load(target, key=key.read_bytes())(tilework.Tensor([[1.0, 2.0]]))
    assert found.tolist() == [[2.0, 3.0]]


def test_bench_times_a_model(add_one: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", add_one, "--repeat", "3", "--json"]) == OK
    row = only(document(capsys)["results"])
    assert row["count"] == 3


def test_bench_refuses_a_name_that_no_kernel_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "nothing"]) == USAGE
    assert "no kernel has such a name" in capsys.readouterr().err


def test_conformance_runs_the_suite_against_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    name = all_cases()[0].name
    assert main(["conformance", "PYTHON", "--only", name, "--json"]) == OK
    found = document(capsys)
    assert found["device"] == "PYTHON"
    assert found["counts"] == {"passed": len(found["cases"])}  # type: ignore[arg-type]


def test_conformance_refuses_a_name_that_no_case_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "PYTHON", "--only", "no such case"]) == USAGE
    assert "no case has such a name" in capsys.readouterr().err


def test_the_log_goes_to_standard_error_for_this_command_alone(
    add_one: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--log", "2", "run", add_one, "--dim", "n=1", "--json"]) == OK
    shown = capsys.readouterr()
    assert json.loads(shown.out)
    assert "tilework: CPU: ran" in shown.err
    assert main(["run", add_one, "--dim", "n=1", "--json"]) == OK
    assert "tilework: CPU: ran" not in capsys.readouterr().err
