"""Every error has a page, and the examples of the pages do what they say."""

import doctest
import inspect
from pathlib import Path

import pytest

from tilework.base import errors

PAGES = Path(__file__).parents[2] / "docs" / "errors"
NAMES = sorted(
    name
    for name, item in vars(errors).items()
    if inspect.isclass(item) and issubclass(item, errors.TileworkError)
)


def run_examples(path: Path) -> doctest.TestResults:
    # The fence that ends an example would be taken for its output.
    text = path.read_text(encoding="utf-8").replace("```\n", "\n")
    test = doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
    return doctest.DocTestRunner(verbose=False).run(test)


def test_each_error_has_a_page_and_each_page_an_error() -> None:
    assert sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README") == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_page_run(name: str) -> None:
    results = run_examples(PAGES / f"{name}.md")
    assert results.failed == 0
    assert results.attempted > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_index_links_each_page(name: str) -> None:
    assert f"]({name}.md)" in (PAGES / "README.md").read_text(encoding="utf-8")
