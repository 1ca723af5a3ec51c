"""The tour's printed IR is what the compiler makes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_tour", ROOT / "scripts" / "make_tour.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tour_shows_what_the_compiler_makes() -> None:
    script = _script()
    assert script.PAGE.read_text(encoding="utf-8") == script.make_page(), (
        "run scripts/make_tour.py and read the difference"
    )


def test_the_tour_is_the_same_when_made_twice() -> None:
    script = _script()
    assert script.make_page() == script.make_page()
