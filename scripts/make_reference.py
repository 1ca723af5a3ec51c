"""Write docs/reference/ from the tables in the sources; `--check` only compares."""

import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from tilework.base import settings
from tilework.ir.ops import OPS
from tilework.ir.stage import Stage

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTE = "Made by `python scripts/make_reference.py`; do not edit."


def settings_page() -> str:
    """Return the page of all settings."""
    return "\n".join(
        (
            "# Settings",
            "",
            NOTE,
            "",
            "An argument of a call wins over `settings.override(...)`, that over the variable,",
            "that over `tilework.toml` in the current folder, that over the default. `DEV` is",
            "short for `TILEWORK_DEV`. The cache is below `XDG_CACHE_HOME`",
            "or in `~/.cache/tilework`.",
            "",
            settings.describe(),
            "",
        )
    )


def stage_names(stages: Stage) -> str:
    """Return the stages as text."""
    return ", ".join(stage.name or "" for stage in Stage if stage & stages)


def attrs_of(kind: Any) -> str:
    """Return the attributes of an op as text."""
    if kind is None:
        return ""
    names = [row.name for row in fields(kind)] if is_dataclass(kind) else [kind.__name__]
    return ", ".join(f"`{name}`" for name in names)


def ops_page() -> str:
    """Return the page of all ops."""
    lines = ["# Ops", "", NOTE, "", "| op | operands | attributes | stages | meaning |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, op in OPS.items():
        operands = ", ".join(f"`{operand}`" for operand in op.operands)
        doc = " ".join(op.doc.split()).replace("|", "\\|")
        attrs = attrs_of(op.attrs)
        lines.append(f"| `{name}` | {operands} | {attrs} | {stage_names(op.stages)} | {doc} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or compare the pages; return the exit status."""
    is_check = "--check" in sys.argv[1:]
    stale = []
    for name, text in (("settings.md", settings_page()), ("ops.md", ops_page())):
        path = FOLDER / name
        if is_check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            stale.append(name)
        elif not is_check:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/reference/{name} is not current; run scripts/make_reference.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
