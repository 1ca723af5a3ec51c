"""The first small graphs of a process are kept on disk, so that a start loads no schedule pass."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from tilework import Tensor
print((Tensor([1.0, 2.0]) + Tensor([3.0, 4.0])).tolist())
words = ("tilework.schedule.passes", "tilework.schedule.pipeline", "tilework.codegen")
print([name for name in sys.modules if name.startswith(words)])
"""


def start(folder: Path) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "TILEWORK_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.splitlines()


def test_a_second_start_loads_no_pass_for_a_small_graph(tmp_path: Path) -> None:
    first, second = start(tmp_path), start(tmp_path)
    assert first[0] == second[0] == "[4.0, 6.0]"
    assert first[1] != "[]"
    assert second[1] == "[]"


def test_a_small_graph_needs_no_cache_folder() -> None:
    assert start(Path(os.devnull))[0] == "[4.0, 6.0]"
