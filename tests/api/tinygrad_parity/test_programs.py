"""Programs written for tinygrad give the same output when tilework serves it.

What tinygrad itself prints is recorded in `programs/*.out`; `--update-golden` runs it again.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
MODEL = Path(__file__).parents[2] / "data" / "mnist_cnn_opset8.onnx"
SOURCES = Path(__file__).parents[3] / "src"
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")

#: Program -> its arguments, and variables for it, with which tinygrad gives the losses of the
#: weights that they were computed from.
CASES: dict[str, tuple[list[str], dict[str, str]]] = {
    "quickstart": ([], {}),
    "digits": (["unused"], {"JIT": "0"}),
    "generate": ([], {}),
    "variables": ([], {}),
    "state": (["first", "--second=2"], {}),
    "pickled": ([], {}),
    "model": ([str(MODEL)], {}),
    "operations": ([], {}),
    "layers": ([], {}),
    "decode": ([], {}),
    "tensors": ([], {}),
    "helpers": ([], {}),
    "speech": ([], {}),
    "mamba": ([], {}),
    "diffusion": ([], {}),
    "detector": ([], {}),
    "adversaries": ([], {}),
    "training": ([], {}),
    "volume": ([], {}),
    "vision": ([], {}),
    "sharded": ([], {}),
    "bert": ([], {}),
    "gan": ([], {}),
    "cartpole": ([], {}),
    "transducer": ([], {}),
}


def output_of(command: list[str], variables: dict[str, str], home: Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "XDG_CACHE_HOME": str(home)}
    finished = subprocess.run(
        [sys.executable, *command],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.parametrize("name", CASES)
def test_a_program_for_tinygrad_prints_the_same(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    arguments, variables = CASES[name]
    script = [str(PROGRAMS / f"{name}.py"), *arguments]
    recorded = PROGRAMS / f"{name}.out"
    if request.config.getoption("--update-golden"):
        recorded.write_text("\n".join(output_of(script, variables, tmp_path)) + "\n")
    want = recorded.read_text().splitlines()
    got = output_of(["-m", "tilework.compat.tinygrad", *script], {}, tmp_path)
    assert [NUMBER.sub("#", line) for line in got] == [NUMBER.sub("#", line) for line in want]
    numbers = [[float(text) for line in lines for text in NUMBER.findall(line)]
               for lines in (got, want)]  # fmt: skip
    assert numbers[0] == pytest.approx(numbers[1], rel=2e-3, abs=0.0101)


def test_the_command_without_a_script_says_how_it_is_used(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "tilework.compat.tinygrad"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert "usage: python -m tilework.compat.tinygrad" in finished.stderr
