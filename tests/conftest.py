"""What every test run shares: settings, golden files, feature markers, the requirements report."""

import gc
import multiprocessing
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

from tilework.base import settings, trace
from tilework.testing import evidence

GOLDEN_FOLDER = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite golden files from what tests produce"
    )
    parser.addoption(
        "--full", action="store_true", help="slow tests too, and many more hypothesis examples"
    )
    parser.addoption(
        "--poison",
        action="store_true",
        help="memory that holds nothing is filled with NaN patterns",
    )


# A small fixed share on each push; `make test-full` draws afresh, and prints what it drew.
hypothesis.settings.register_profile("push", max_examples=50, deadline=None, derandomize=True)
hypothesis.settings.register_profile("full", max_examples=2000, deadline=None, print_blob=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]


def missing_feature(name: str) -> str | None:
    """Why this machine lacks `name` (a program, a package, a feature of its CPU), or None."""
    kind, _, what = name.partition(":")
    if kind == "program":
        return None if shutil.which(what) else f"the program {what} is not installed"
    if kind == "package":
        return None if find_spec(what) else f"the package {what} is not installed"
    from tilework.runtime.host import host_spec  # here: most tests need no description of the host

    return None if name in host_spec().features else f"this CPU has no {name}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            if reason := missing_feature(name):
                pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One disk cache per worker and run, so that no test meets what an older run compiled."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _settings(shared_cache: Path, pytestconfig: pytest.Config) -> Iterator[None]:
    """Each test starts from the same settings, with every pass verified."""
    settings.install(
        settings.Settings(
            cache_dir=shared_cache,
            verify="pass",
            num_threads=2,
            compile_workers=1,
            poison=pytestconfig.getoption("--poison"),
        )
    )
    trace.clear_warnings()
    yield
    settings.install(None)


@pytest.fixture(scope="module", autouse=True)
def _young_heap() -> None:
    """Leave what was there before a module's tests out of the collections that they ask for.

    Each `gc.collect()` would walk a million objects of other frameworks and tests: 0.7 s.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_children_left() -> Iterator[None]:
    """A test that starts processes through multiprocessing ends them too."""
    before = set(multiprocessing.active_children())
    yield
    leaked = set(multiprocessing.active_children()) - before
    for child in leaked:
        child.terminate()
        child.join(timeout=10)
    assert not leaked, f"processes left running: {leaked}"


class Golden:
    """Compares text with a file of `tests/golden`, or rewrites the file."""

    def __init__(self, update: bool) -> None:
        self._update = update

    def check(self, name: str, text: str) -> None:
        """Assert that `text` is what `tests/golden/<name>` holds."""
        path = GOLDEN_FOLDER / name
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; run with --update-golden and read the diff"
        assert text == path.read_text(encoding="utf-8")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """The golden-file checker; `pytest --update-golden` rewrites, and a reviewer reads the diff."""
    return Golden(bool(request.config.getoption("--update-golden")))


class RequirementsRun:
    """GEN-12 while tests run: a covered row needs a test that ran and passed, not a skipped one."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.missing: tuple[str, ...] = ()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid.rsplit("::", 1)[-1])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        config = session.config
        options = config.option
        is_part = options.keyword or options.markexpr or options.collectonly or options.deselect
        is_part = is_part or config.args != config.getini("testpaths")
        if hasattr(config, "workerinput") or is_part or session.exitstatus != 0:
            return  # a part of the suite proves nothing about the rest
        rows = evidence.read_requirements(Path(__file__).parent / "requirements.toml")
        self.missing = evidence.unproven(rows, self.passed)
        if self.missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.missing:
            names = ", ".join(self.missing)
            terminalreporter.write_line(f"covered, but no test of it passed: {names}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("full" if config.getoption("--full") else "push")
    config.pluginmanager.register(RequirementsRun(), "requirements-run")
