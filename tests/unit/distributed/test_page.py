"""The page of several devices runs as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "several-devices.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_programs_of_the_page_run_one_after_the_other() -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert len(blocks) > 5
    assert "alone" in names
