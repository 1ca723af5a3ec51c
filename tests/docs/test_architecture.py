"""The pages that a newcomer reads first name what there is."""

from __future__ import annotations

import re
from pathlib import Path

from tilework.codegen.pipeline import PASSES
from tilework.ir.stage import Stage

DOCS = Path(__file__).parents[2] / "docs"


def test_the_passes_of_code_generation_are_named_in_their_order() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    places = [text.find(f"`{name}`") for name in PASSES]
    assert -1 not in places, [name for name in PASSES if f"`{name}`" not in text]
    assert places == sorted(places)


def test_the_words_name_each_stage() -> None:
    (row,) = re.findall(r"\| stage \|([^|]*)\|", (DOCS / "glossary.md").read_text(encoding="utf-8"))
    named = set(re.findall(r"[A-Z]+", row))
    assert named == {stage.name for stage in Stage}


def test_every_decision_is_in_the_index() -> None:
    index = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    pages = sorted(page.name for page in (DOCS / "adr").glob("0*.md"))
    assert re.findall(r"\]\((0[^)]*\.md)\)", index) == pages
