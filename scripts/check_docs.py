"""Fail if a page links to, or names, a file that is not there."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
#: A source file as a page names it: from the root, or from the package.
SOURCE = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)+\.py)`")
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


def missing_sources(page: Path) -> list[str]:
    """Return the source files that a page names and that are not there."""
    name = page.relative_to(ROOT).as_posix()
    roots = (ROOT, ROOT / "src", ROOT / "src/tilework", page.parent)
    return [
        f"{name}: there is no {source}"
        for source in SOURCE.findall(page.read_text(encoding="utf-8"))
        if not any((root / source).exists() for root in roots)
    ]


def main() -> int:
    """Check every page; return the exit status."""
    found = pages()
    faults = [fault for page in found for fault in broken_links(page)]
    faults += [fault for page in found for fault in missing_sources(page)]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
