"""Examples in docstrings are run."""

import doctest
import importlib
from pathlib import Path

import pytest

from tilework import Tensor

SOURCES = Path(__file__).parents[2] / "src"


def modules_with_examples() -> list[str]:
    names = []
    for path in sorted(SOURCES.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(SOURCES).with_suffix("").parts
            names.append(".".join(part for part in parts if part != "__init__"))
    return names


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_run(name: str) -> None:
    module = importlib.import_module(name)
    # The families of Tensor's methods cannot import Tensor, and each example of theirs needs it.
    names = {"Tensor": Tensor} if name.startswith("tilework.tensor.") else {}
    results = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0
