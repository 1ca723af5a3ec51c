"""Decisions about packing are kept on disk, so that a warm start needs no code generator."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, TinyJit, override
from tilework.backends.native import NativeCompiler, code_cache
from tilework.base.errors import ModelFileError
from tilework.engine import compile as engine_compile
from tilework.engine import splits

SCRIPT = """
import sys
import numpy as np
from tilework import Tensor, TinyJit
weights = Tensor(np.ones((64, 64, 3, 3), np.float32)).realize()
layer = TinyJit(lambda x: x.conv2d(weights, padding=1).relu().realize())
x = Tensor(np.ones((1, 64, 14, 14), np.float32)).realize()
for _ in range(3):
    result = layer(x)
words = ("tilework.codegen", "tilework.render", "tilework.ir.rules", "tilework.ir.interpret")
print([name for name in sys.modules if name.startswith(words) or name == "llvmlite"])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    splits.clear_memory()
    with override(cache_dir=tmp_path):
        yield tmp_path
    splits.clear_memory()


def run_layer() -> Any:
    rng = np.random.default_rng(1)
    weights = Tensor(rng.standard_normal((64, 64, 3, 3)).astype(np.float32)).realize()
    image = Tensor(rng.standard_normal((1, 64, 14, 14)).astype(np.float32)).realize()
    layer: Any = TinyJit(lambda x: x.conv2d(weights, padding=1).realize())
    for _ in range(2):
        result = layer(image)
    return result.tolist()


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kernels that the compiler was asked about."""
    asked: list[Any] = []
    decide = NativeCompiler.split_packing

    def noted(self: NativeCompiler, kernel: Any, constants: frozenset[int]) -> Any:
        asked.append(kernel)
        return decide(self, kernel, constants)

    monkeypatch.setattr(NativeCompiler, "split_packing", noted)
    return asked


def test_a_decision_is_made_once_and_read_from_disk(decisions: list[Any]) -> None:
    first = run_layer()
    assert len(decisions) == 1
    splits.clear_memory()
    engine_compile.clear_memory()
    assert run_layer() == first
    assert len(decisions) == 1


def test_a_damaged_decision_is_made_again(
    decisions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_layer()
    splits.clear_memory()
    cache = code_cache()
    read = type(cache).get

    def damaged(self: Any, key: str) -> bytes | None:
        found = read(self, key)
        return b"[[1]]\n%0 = nothing" if key.startswith("split;") and found else found

    monkeypatch.setattr(type(cache), "get", damaged)
    assert run_layer() == first
    assert len(decisions) == 2


def test_a_decision_is_written_and_read_as_it_was(decisions: list[Any]) -> None:
    run_layer()
    (kept,) = splits._kept.values()
    assert kept is not None
    assert splits.from_bytes(splits.to_bytes(kept)) == kept
    assert splits.from_bytes(splits.to_bytes(None)) is None


def test_an_entry_that_contradicts_itself_is_refused() -> None:
    run_layer()
    (kept,) = splits._kept.values()
    text = splits.to_bytes(kept).partition(b"\n")[2]
    with pytest.raises(ModelFileError):
        splits.from_bytes(b"[]\n" + text)


def test_a_warm_start_imports_no_code_generator(tmp_path: Path) -> None:
    def start() -> str:
        return subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"TILEWORK_CACHE_DIR": str(tmp_path), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    assert start() != "[]"
    assert start() == "[]"
