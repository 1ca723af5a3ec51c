"""The pool's code, compiled while the code generator is imported."""

import threading

import pytest

from tilework.backends import native
from tilework.base.errors import CompileError


class Toolchain:
    """Notes which threads compile."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.threads: list[str] = []

    def warm_up(self) -> None:
        self.threads.append("warm")

    def compile(self, source: str) -> bytes:
        self.threads.append(threading.current_thread().name)
        if self.error is not None:
            raise self.error
        return source.encode()


def test_the_pools_code_is_compiled_by_a_thread_once_llvm_is_loaded() -> None:
    toolchain = Toolchain()
    assert native._compile_beside_imports(toolchain, "text") == b"text"
    assert toolchain.threads == ["warm", "tilework-pool-code"]


def test_what_the_compiler_refuses_is_told_to_the_caller() -> None:
    with pytest.raises(CompileError, match="refused"):
        native._compile_beside_imports(Toolchain(CompileError("llvm: refused")), "text")


def test_without_another_thread_this_one_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    toolchain = Toolchain()
    assert native._compile_beside_imports(toolchain, "text") == b"text"
    assert toolchain.threads == ["warm", threading.current_thread().name]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_gives_no_code_and_its_error() -> None:
    with pytest.raises(MemoryError):
        native._compile_beside_imports(Toolchain(MemoryError()), "text")
