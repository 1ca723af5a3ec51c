"""Fail if a source file is longer than its limit, or a class has too many public methods.

Function lengths are ruff's business (PLR0915, C901).  Generated bindings are exempt.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "scripts", "benchmarks")
FILE_LIMIT = 800
METHOD_LIMIT = 20
EXEMPT_FOLDERS = ("runtime/bindings",)
# A Tensor family holds what users know as methods of one class.
MANY_METHODS = ("src/tilework/tensor/", "tests/")


def public_methods(node: ast.ClassDef) -> int:
    """Count the methods of a class whose names are public."""
    return sum(
        isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith("_")
        for item in node.body
    )


def faults_of(path: Path) -> list[str]:
    """Return what is too large in one file."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    faults = []
    if (lines := text.count("\n")) > FILE_LIMIT:
        faults.append(f"{name}: {lines} lines, the limit is {FILE_LIMIT}; split it by topic")
    if name.startswith(MANY_METHODS):
        return faults
    classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    faults += [
        f"{name}:{node.lineno}: class {node.name} has {count} public methods,"
        f" the limit is {METHOD_LIMIT}"
        for node in classes
        if (count := public_methods(node)) > METHOD_LIMIT
    ]
    return faults


def main() -> int:
    """Check every folder; return the exit status."""
    faults: list[str] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(part in path.as_posix() for part in EXEMPT_FOLDERS):
                faults += faults_of(path)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
