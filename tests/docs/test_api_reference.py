"""The pages of the interface are what the docstrings say now."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "reference" / "api").glob("*.md"))


def test_the_pages_of_the_interface_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/make_api_reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_of_the_interface_has_an_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page.stem == "README" or "```python\n>>> " in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_entry_says_what_it_does(page: Path) -> None:
    entries = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert [
        entry.splitlines()[0] for entry in entries if len(entry.split("\n", 2)[2].strip()) < 3
    ] == []
