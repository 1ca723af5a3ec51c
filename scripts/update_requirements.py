"""Bring tests/requirements.toml and docs/contracts-status.md up to date.

An open row becomes covered if a test with its id exists that asserts something, unless its reason
begins with "partly:".  Nothing is ever flipped back.
"""

import re
import sys
from pathlib import Path

from tilework.testing import evidence

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "requirements.toml"
PAGE = ROOT / "docs" / "contracts-status.md"


def flip(text: str, identifier: str) -> str:
    """Return the list with one open row covered."""
    pattern = rf"(?m)^(\[{identifier}\]\n(?:(?!^\[|^open).*\n)*?)^open = .*$"
    flipped, count = re.subn(pattern, r"\1covered = true", text, count=1)
    if count != 1:
        sys.exit(f"{identifier}: the row is not written as expected")
    return flipped


def main() -> int:
    """Update both files and print what changed; return the exit status."""
    text = LIST.read_text(encoding="utf-8")
    rows = evidence.parse_requirements(text)
    tests = evidence.tests_by_id(evidence.find_tests(ROOT / "tests"))
    for identifier, row in rows.items():
        found = tests.get(identifier, [])
        if row.is_covered or not any(test.asserts for test in found):
            continue
        if row.is_partly:
            print(f"{identifier} stays open ({row.reason}); tests: {len(found)}")
            continue
        text = flip(text, identifier)
        print(f"{identifier} is covered now, by {found[0].path}")
    LIST.write_text(text, encoding="utf-8")
    rows = evidence.parse_requirements(text)
    PAGE.write_text(evidence.render_status(rows), encoding="utf-8")
    covered = sum(row.is_covered for row in rows.values())
    print(f"{covered} of {len(rows)} requirements are covered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
