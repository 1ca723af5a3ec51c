"""Fail if a page links to a file that is not there, or if pages that must exist are missing."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def pages() -> list[Path]:
    """Return every Markdown page of the repository, hidden folders left out."""
    found = [*ROOT.glob("*.md")]
    for folder in ("docs", "changelog.d", "src", "tests", "benchmarks", "scripts"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(found)


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    name = page.relative_to(ROOT).as_posix()
    faults = []
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        if not (page.parent / target.split("#")[0]).exists():
            faults.append(f"{name}: the link {target} leads nowhere")
    return faults


def main() -> int:
    """Check every page; return the exit status."""
    faults = [fault for page in pages() for fault in broken_links(page)]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
