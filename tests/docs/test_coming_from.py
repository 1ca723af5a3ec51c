"""The examples of the pages for users of other libraries run, and print what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
PROMISED = re.compile(r"^print\(.*\)  # (.*)$", re.MULTILINE)


@pytest.mark.parametrize("page", ["coming-from-pytorch.md", "coming-from-tinygrad.md"])
def test_the_examples_of_the_page_run_and_print_what_they_say(page: str) -> None:
    code = "\n".join(EXAMPLE.findall((DOCS / page).read_text(encoding="utf-8")))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    promised = PROMISED.findall(code)
    assert promised
    assert done.stdout.splitlines() == promised
