"""Which numbered requirement is proven by which test.

`tests/requirements.toml` lists every requirement as covered or open.  A test proves a row if its
name contains the id, written with an underscore: `test_SCH_07_...` is for SCH-07.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tilework.base.errors import ModelFileError
from tilework.base.records import dataclass
from tilework.base.sequences import group_by

SECTIONS: Mapping[str, tuple[int, str]] = {
    "GEN": (12, "all subsystems"),
    "EXE": (26, "execution engine and capture"),
    "BKE": (16, "device layer"),
    "SCH": (23, "scheduling"),
    "MPL": (16, "memory planning"),
    "MDV": (15, "several devices and collectives"),
    "PCI": (22, "local PCI memory and ownership"),
    "RPC": (18, "remote device service"),
    "BNX": (28, "RoCE NIC"),
    "TRN": (21, "transcendental functions"),
    "DSP": (20, "Hexagon DSP"),
    "CST": (23, "C-style renderer"),
    "TOR": (21, "PyTorch frontend"),
    "QCM": (24, "QCOM back end"),
    "NVD": (23, "NVIDIA back end"),
    "RTP": (24, "real-time model runner"),
    "PLG": (10, "plugin permissions"),
}
"""The number of requirements of each section, and what the section is about."""

_ID_IN_NAME = re.compile(r"(?<![A-Za-z0-9])([A-Z]{3})_(\d{2})(?![A-Za-z0-9])")
_PARTLY = "partly:"
# What a test may call to assert, besides `assert` itself.
_ASSERTING = re.compile(r"^(assert|check|expect|raises|warns|fail)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One row; `reason` says why it is open, and is None where it is covered."""

    id: str
    must: str
    proof: tuple[str, ...]
    reason: str | None

    @property
    def is_covered(self) -> bool:
        """Whether the row claims a proof."""
        return self.reason is None

    @property
    def is_partly(self) -> bool:
        """Whether the row is held open although tests for parts of it exist."""
        return self.reason is not None and self.reason.startswith(_PARTLY)


@dataclass(frozen=True, slots=True)
class TestName:
    """A test function, where it stands, and whether it asserts anything."""

    __test__ = False  # it is not a test itself, whatever a collector makes of its name

    name: str
    path: str
    line: int
    asserts: bool

    @property
    def ids(self) -> tuple[str, ...]:
        """The requirements that it is for."""
        return ids_in(self.name)


def ids_in(name: str) -> tuple[str, ...]:
    """Return the requirement ids in the name of a test.

    Example:
        >>> ids_in("test_SCH_07_a_reader_waits"), ids_in("test_plain")
        (('SCH-07',), ())
    """
    return tuple(f"{section}-{number}" for section, number in _ID_IN_NAME.findall(name))


def known_ids() -> tuple[str, ...]:
    """Return every id that exists."""
    return tuple(
        f"{section}-{number:02d}"
        for section, (count, _) in SECTIONS.items()
        for number in range(1, count + 1)
    )


def parse_requirements(text: str) -> dict[str, Requirement]:
    """Read the text of a requirements file.

    Raises:
        ModelFileError: it is not TOML, or a row has neither or both of `covered` and `open`.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ModelFileError("requirements: this is not TOML", got=str(error)) from error
    return {identifier: _row(identifier, row) for identifier, row in table.items()}


def _row(identifier: str, row: Mapping[str, object]) -> Requirement:
    must, proof, reason = row.get("must"), row.get("proof"), row.get("open")
    covered = row.get("covered", False)
    if not isinstance(must, str) or not isinstance(proof, str):
        raise ModelFileError(f"requirements: {identifier} lacks `must` or `proof`", got=repr(row))
    if (covered is True) == (reason is not None):
        raise ModelFileError(
            f"requirements: {identifier} must be covered or open",
            got=repr({"covered": covered, "open": reason}),
            expected="`covered = true`, or `open` with the reason",
        )
    if reason is not None and (not isinstance(reason, str) or not reason.strip()):
        raise ModelFileError(f"requirements: {identifier} is open without a reason")
    return Requirement(identifier, must, tuple(proof.split()), reason)


def read_requirements(path: Path) -> dict[str, Requirement]:
    """Read a requirements file; see `parse_requirements`."""
    return parse_requirements(path.read_text(encoding="utf-8"))


def find_tests(folder: Path) -> Iterator[TestName]:
    """Yield every test function below `folder`, by reading the files, not by importing them."""
    for path in sorted(folder.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test"
            ):
                name = path.relative_to(folder).as_posix()
                yield TestName(node.name, name, node.lineno, _asserts(node))


def _asserts(function: ast.AST) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and _ASSERTING.match(_called_name(node)):
            return True
    return False


def _called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.lstrip("_")
        case _:
            return ""


def tests_by_id(tests: Iterable[TestName]) -> dict[str, list[TestName]]:
    """Return the tests for each id that some test names."""
    pairs = [(identifier, test) for test in tests for identifier in test.ids]
    grouped = group_by(pairs, lambda pair: pair[0])
    return {identifier: [test for _, test in rows] for identifier, rows in grouped.items()}


def static_faults(
    requirements: Mapping[str, Requirement], tests: Mapping[str, list[TestName]]
) -> list[str]:
    """Return what is wrong with the list and the names of the tests, without running them."""
    known = set(known_ids())
    faults = [f"{name} is not listed" for name in known_ids() if name not in requirements]
    faults += [
        f"{name} is listed, but no such id exists" for name in requirements if name not in known
    ]
    for identifier, found in sorted(tests.items()):
        if identifier not in known:
            faults.append(f"{found[0].path}:{found[0].line}: no requirement {identifier} exists")
    for identifier, row in requirements.items():
        found = tests.get(identifier, [])
        if row.is_covered and not any(test.asserts for test in found):
            faults.append(f"{identifier} is covered, but no test of that name asserts anything")
        if not row.is_covered and not row.is_partly and found:
            faults.append(
                f"{identifier} has tests, but is open; run scripts/update_requirements.py"
            )
    return faults


def reopened(
    before: Mapping[str, Requirement], after: Mapping[str, Requirement]
) -> tuple[str, ...]:
    """Return the rows that were covered and no longer are."""
    return tuple(
        identifier
        for identifier, row in before.items()
        if row.is_covered and not (identifier in after and after[identifier].is_covered)
    )


def unproven(requirements: Mapping[str, Requirement], passed: Iterable[str]) -> tuple[str, ...]:
    """Return the covered rows for which none of the tests named in `passed` speaks."""
    proven = {identifier for name in passed for identifier in ids_in(name)}
    return tuple(i for i, row in requirements.items() if row.is_covered and i not in proven)


def render_status(requirements: Mapping[str, Requirement]) -> str:
    """Return the status of all requirements as a Markdown page."""
    lines = [
        "# Status of the system contracts",
        "",
        "Made by `python scripts/update_requirements.py` from `tests/requirements.toml`; do not",
        "edit.  A covered row has tests whose names contain its id, and they pass; a row that asks",
        "for hardware (H) or timing (T) is not proven in that class by an ordinary test run.",
        "",
        "| section | about | covered | partly | open |",
        "| --- | --- | --- | --- | --- |",
    ]
    for section, (count, about) in SECTIONS.items():
        rows = [row for row in requirements.values() if row.id.startswith(section)]
        covered = sum(row.is_covered for row in rows)
        partly = sum(row.is_partly for row in rows)
        lines.append(f"| {section} | {about} | {covered} | {partly} | {count - covered - partly} |")
    lines += ["", "| id | must | proof | status |", "| --- | --- | --- | --- |"]
    for row in requirements.values():
        status = "covered" if row.is_covered else f"open, {row.reason}"
        must = row.must.replace("|", "\\|")
        lines.append(f"| {row.id} | {must} | {' '.join(row.proof)} | {status} |")
    return "\n".join(lines) + "\n"
