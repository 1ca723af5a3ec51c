"""GEN-12: the list of requirements and the tests agree."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tilework.base.errors import ModelFileError
from tilework.testing import evidence
from tilework.testing.evidence import Requirement, TestName

FOLDER = Path(__file__).parent
LIST = FOLDER / "requirements.toml"
OPEN = Requirement("GEN-01", "m", ("U",), "no test yet")
COVERED = Requirement("GEN-01", "m", ("U",), None)
PARTLY = Requirement("GEN-01", "m", ("U",), "partly: half of it")
TEST = TestName("test_GEN_01_x", "test_x.py", 3, asserts=True)
IDLE = TestName("test_GEN_01_x", "test_x.py", 3, asserts=False)


def faults_about(identifier: str, row: Requirement, tests: list[TestName]) -> list[str]:
    faults = evidence.static_faults({identifier: row}, evidence.tests_by_id(tests))
    return [fault for fault in faults if identifier in fault and "not listed" not in fault]


def test_GEN_12_the_list_and_the_tests_agree() -> None:
    tests = evidence.tests_by_id(evidence.find_tests(FOLDER))
    assert evidence.static_faults(evidence.read_requirements(LIST), tests) == []


def test_GEN_12_the_status_page_is_current() -> None:
    page = FOLDER.parent / "docs" / "contracts-status.md"
    assert page.read_text() == evidence.render_status(evidence.read_requirements(LIST)), (
        "run scripts/update_requirements.py"
    )


@pytest.mark.parametrize("revision", ["HEAD", "HEAD~1"])
def test_GEN_12_no_row_went_back_to_open(revision: str) -> None:
    if shutil.which("git") is None or not (FOLDER.parent / ".git").exists():
        pytest.skip("not a git checkout")
    shown = subprocess.run(
        ["git", "show", f"{revision}:tests/requirements.toml"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    if shown.returncode:
        pytest.skip("no earlier list")
    before = evidence.parse_requirements(shown.stdout)
    assert evidence.reopened(before, evidence.read_requirements(LIST)) == ()


def test_GEN_12_a_covered_row_without_a_test_is_a_fault() -> None:
    assert faults_about("GEN-01", COVERED, []) != []


def test_GEN_12_a_test_that_asserts_nothing_covers_nothing() -> None:
    assert faults_about("GEN-01", COVERED, [IDLE]) != []
    assert faults_about("GEN-01", COVERED, [TEST]) == []


def test_GEN_12_an_open_row_with_tests_is_a_fault_unless_partly() -> None:
    assert faults_about("GEN-01", OPEN, [TEST]) != []
    assert faults_about("GEN-01", PARTLY, [TEST]) == []


def test_GEN_12_an_unknown_id_is_a_fault() -> None:
    stray = TestName("test_GEN_99_x", "test_x.py", 3, asserts=True)
    assert evidence.static_faults({}, evidence.tests_by_id([stray]))[-1] == (
        "test_x.py:3: no requirement GEN-99 exists"
    )


def test_GEN_12_an_unlisted_id_is_a_fault() -> None:
    assert "GEN-01 is not listed" in evidence.static_faults({}, {})


def test_GEN_12_a_row_that_reopens_is_found() -> None:
    assert evidence.reopened({"GEN-01": COVERED}, {"GEN-01": OPEN}) == ("GEN-01",)
    assert evidence.reopened({"GEN-01": COVERED}, {}) == ("GEN-01",)
    assert evidence.reopened({"GEN-01": OPEN}, {"GEN-01": COVERED}) == ()


def test_GEN_12_a_covered_row_whose_tests_did_not_pass_is_unproven() -> None:
    rows = {"GEN-01": COVERED}
    assert evidence.unproven(rows, ["test_GEN_02_x"]) == ("GEN-01",)
    assert evidence.unproven(rows, ["test_GEN_01_x[a-b]"]) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "not TOML"),
        ("[GEN-01]\nproof = 'U'\nopen = 'x'", "lacks"),
        ("[GEN-01]\nmust = 'm'\nproof = 'U'", "must be covered or open"),
        ("[GEN-01]\nmust = 'm'\nproof = 'U'\ncovered = true\nopen = 'x'", "covered or open"),
        ("[GEN-01]\nmust = 'm'\nproof = 'U'\nopen = ' '", "without a reason"),
    ],
)
def test_a_malformed_list_is_refused(text: str, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        evidence.parse_requirements(text)


def test_tests_are_found_without_importing_them(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "raise SystemExit\n"
        "def test_GEN_01_a(): assert True\n"
        "def test_GEN_01_b(): pass\n"
        "def test_c(): pytest.raises(X, f)\n"
        "def helper(): assert True\n"
    )
    found = [(test.name, test.asserts) for test in evidence.find_tests(tmp_path)]
    assert found == [("test_GEN_01_a", True), ("test_GEN_01_b", False), ("test_c", True)]
