"""The table of promotions, entry by entry, with NumPy's and PyTorch's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tilework import Tensor, dtypes

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "write_promotion.py"


def the_script() -> Any:
    """The script that writes the page."""
    spec = importlib.util.spec_from_file_location("write_promotion", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_writes() -> None:
    """A pair that differs from both libraries without a known reason makes the script raise."""
    script = the_script()
    written, made = (
        dict(part.partition("\n")[::2] for part in text.split("\n## "))
        for text in (script.PAGE.read_text(encoding="utf-8"), script.page())
    )
    # What ml_dtypes promotes differs from version to version; the title says which it was.
    assert made.keys() - written.keys() <= {_narrow_title(made)}
    assert written.keys() - made.keys() <= {_narrow_title(written)}
    for title in made.keys() & written.keys():
        assert made[title] == written[title]


def _narrow_title(parts: dict[str, str]) -> str:
    (found,) = (title for title in parts if title.startswith("Against NumPy and ml_dtypes"))
    return found


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_no_pair_that_a_library_promotes_differs_but_for_the_stated_kinds(library: str) -> None:
    found = [row for row in the_script().differences(library) if row[3] is not None]
    if library == "torch":
        assert found == []
    else:
        assert {row[0].split(",")[0] for row in found} == {
            "an integer takes the dtype of the float",
            "no integer holds both; the default float stands for numbers everywhere",
            "float16 holds all values of e5m2; no float32 is needed",
        }


@pytest.mark.parametrize("a", dtypes.ALL, ids=lambda dtype: dtype.name)
def test_operations_on_tensors_follow_the_table(a: dtypes.DType) -> None:
    for b in dtypes.ALL:
        if a.is_packed or b.is_packed:
            continue
        both = Tensor([1, 0], dtype=a) * Tensor([1, 1], dtype=b)
        assert both.dtype is dtypes.promote(a, b)
        assert both.tolist() == [1, 0]
