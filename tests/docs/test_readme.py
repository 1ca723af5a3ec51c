"""The examples of the README run one after the other, and print what their comments say."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
PRINTED = re.compile(r"^print\(.*\)  # (\[.*\])$", re.MULTILINE)


def test_the_examples_of_the_readme_run_and_print_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    code = "\n".join(EXAMPLE.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    # Warnings are errors here as in every other test.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    promised = PRINTED.findall(code)
    assert len(promised) >= 3
    assert [line for line in done.stdout.splitlines() if line in promised] == promised
