"""Rules about the sources that no linter of ours knows, each for one global requirement."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "tilework"

# Files where a narrow exception may be dropped, by function, each with its reason (GEN-02).
MAY_SUPPRESS = {
    "backends/native.py:_load_compiler": "LLVM is loaded ahead: the first kernel raises the same",
    "base/diskcache.py:_read": "the time of the last use cannot be written on a read-only disk",
    "base/diskcache.py:_unlink": "another process removed the file first",
    "base/diskcache.py:_scan": "an entry or a shelf vanished while the folder was listed",
    "engine/workers.py:close": "the queue that is emptied is empty: that is the end of the loop",
    "runtime/processes.py:_close_sockets": "the peer is gone: nothing to shut down",
    "testing/emulators/nccl_processes.py:_tell": "like a card, it does not notice who is gone",
}
# Functions that may run text as code, each with its reason (GEN-09).
MAY_EXECUTE = {
    "base/record_classes.py": "compiles methods from text of its own and the names of fields",
    "ir/compiled.py": "compiles Python text that it made from our own rules, never from a file",
    "tensor/quick.py": "compiles Python text of numbers, names of its own and plain identifiers",
}
EXECUTING_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
BROAD = {"Exception", "BaseException"}


@dataclass(frozen=True)
class Source:
    """A parsed file, and which function each node belongs to."""

    name: str
    tree: ast.Module

    def place(self, node: ast.AST) -> str:
        return f"{self.name}:{getattr(node, 'lineno', 0)}"

    def function_of(self, wanted: ast.AST) -> str:
        found = self.name
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                inner is wanted for inner in ast.walk(node)
            ):
                found = f"{self.name}:{node.name}"
        return found


@cache
def sources() -> tuple[Source, ...]:
    return tuple(
        Source(path.relative_to(SOURCES).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(SOURCES.rglob("*.py"))
    )


Rule = Callable[[Source], Iterator[str]]


def faults(rule: Rule) -> list[str]:
    return [fault for source in sources() for fault in rule(source)]


def faults_in(rule: Rule, text: str) -> int:
    return len(list(rule(Source("example.py", ast.parse(text)))))


def called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


# --- GEN-01: data is checked with typed errors ----------------------------------------------


def narrows_a_type(test: ast.expr) -> bool:
    """`x is not None` or `isinstance(x, T)`: the type checker's business, not a check of input."""
    match test:
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.Call(func=ast.Name(id="isinstance")):
            return True
        case ast.BoolOp(op=ast.And(), values=values):
            return all(narrows_a_type(value) for value in values)
        case _:
            return False


def guarding_asserts(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert) and not narrows_a_type(node.test):
            yield f"{source.place(node)}: assert {ast.unparse(node.test)}"


def bare_raises(source: Source) -> Iterator[str]:
    """What a user can cause has a type of its own."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            name = called(node.exc) or ast.unparse(node.exc)
            if name in {"Exception", "BaseException", "RuntimeError", "AssertionError"}:
                yield f"{source.place(node)}: raise {name}"


def test_GEN_01_no_assert_guards_anything() -> None:
    assert faults(guarding_asserts) == []


def test_GEN_01_no_error_is_raised_without_a_type_of_ours() -> None:
    assert faults(bare_raises) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("assert n > 0", 1),
        ("assert n", 1),
        ("assert x is not None and n > 0", 1),
        ("assert x is not None", 0),
        ("assert isinstance(x, int)", 0),
    ],
)
def test_GEN_01_the_lint_tells_guards_from_narrowing(text: str, count: int) -> None:
    assert faults_in(guarding_asserts, text) == count


# --- GEN-02: no exception is swallowed ---------------------------------------------------------


def exception_names(node: ast.expr | None) -> set[str]:
    if node is None:
        return {"BaseException"}
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return {ast.unparse(part) for part in parts}


def does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(item, ast.Pass | ast.Continue)
        or (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
        for item in body
    )


def uses_the_error(handler: ast.ExceptHandler) -> bool:
    """It raises, or hands the caught error to something."""
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Name) and node.id == handler.name:
            return True
    return False


def swallowed(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            is_broad = bool(exception_names(node.type) & BROAD)
            if is_broad and not uses_the_error(node):
                yield f"{source.place(node)}: a broad handler drops the error"
            elif does_nothing(node.body) and source.function_of(node) not in MAY_SUPPRESS:
                yield f"{source.place(node)}: a handler does nothing"
        elif called(node) in {"suppress", "contextlib.suppress"} and isinstance(node, ast.Call):
            names = {ast.unparse(argument) for argument in node.args}
            if names & BROAD or source.function_of(node) not in MAY_SUPPRESS:
                yield f"{source.place(node)}: suppress({', '.join(sorted(names))})"


def test_GEN_02_no_exception_is_swallowed() -> None:
    assert faults(swallowed) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("try: f()\nexcept: pass", 1),
        ("try: f()\nexcept Exception: x = 1", 1),
        ("try: f()\nexcept (OSError, Exception): x = 1", 1),
        ("try: f()\nexcept OSError: pass", 1),
        ("with suppress(OSError): f()", 1),
        ("try: f()\nexcept Exception as e: log(e)", 0),
        ("try: f()\nexcept BaseException:\n  undo()\n  raise", 0),
        ("try: f()\nexcept OSError: x = None", 0),
    ],
)
def test_GEN_02_the_lint_sees_what_is_dropped(text: str, count: int) -> None:
    assert faults_in(swallowed, text) == count


def test_GEN_02_the_allow_list_has_no_row_without_use() -> None:
    used = {
        source.function_of(node)
        for source in sources()
        for node in ast.walk(source.tree)
        if called(node) in {"suppress", "contextlib.suppress"}
        or (isinstance(node, ast.ExceptHandler) and does_nothing(node.body))
    }
    assert set(MAY_SUPPRESS) - used == set()


# --- GEN-06: no shell, no sudo, each exit status is looked at -----------------------------------


def shells(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            if any(word.arg == "shell" and not is_false(word.value) for word in node.keywords):
                yield f"{source.place(node)}: shell="
            if called(node) in {"os.system", "os.popen", "subprocess.getoutput", "pty.spawn"}:
                yield f"{source.place(node)}: {called(node)}"
            if called(node) in {"subprocess.run", "subprocess.call"} and not any(
                word.arg == "check" for word in node.keywords
            ):
                yield f"{source.place(node)}: {called(node)} without check="
        if isinstance(node, ast.Constant) and node.value == "sudo":
            yield f"{source.place(node)}: sudo"


def unread_status(source: Source) -> Iterator[str]:
    """A run with `check=False`, or a Popen, in a function or class that reads no exit status."""
    for function in source.tree.body:
        if not isinstance(function, ast.FunctionDef | ast.ClassDef):
            continue
        text = ast.unparse(function)
        if ("check=False" in text or "subprocess.Popen(" in text) and "returncode" not in text:
            yield f"{source.place(function)}: {function.name} ignores an exit status"


def test_GEN_06_no_shell_and_no_sudo() -> None:
    assert faults(shells) == []


def test_GEN_06_every_exit_status_is_read() -> None:
    assert faults(unread_status) == []


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run('ls', shell=True, check=True)",
        "os.system('ls')",
        "subprocess.run(['ls'])",
        "subprocess.run(['sudo', 'ls'], check=True)",
    ],
)
def test_GEN_06_the_lint_sees_each_way(text: str) -> None:
    assert faults_in(shells, text) == 1


# --- GEN-09: nothing that is loaded can run -----------------------------------------------------


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def executing(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            modules = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = {(node.module or "").split(".")[0]}
        else:
            modules = set()
        for module in modules & EXECUTING_MODULES:
            yield f"{source.place(node)}: import {module}"
        if called(node) in {"eval", "exec", "compile"} and source.name not in MAY_EXECUTE:
            yield f"{source.place(node)}: {called(node)}"
        if (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and not is_false(node.value)
        ):
            yield f"{source.place(node)}: allow_pickle"
        if called(node) in {"yaml.load", "torch.load", "np.load", "numpy.load"}:
            words = {word.arg for word in node.keywords} if isinstance(node, ast.Call) else set()
            if not words & {"weights_only", "allow_pickle"}:
                yield f"{source.place(node)}: {called(node)} of data that may hold code"


def test_GEN_09_no_source_loads_code_with_data() -> None:
    assert faults(executing) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "eval(text)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "torch.load(path)",
    ],
)
def test_GEN_09_the_lint_sees_each_way(text: str) -> None:
    assert faults_in(executing, text) == 1
