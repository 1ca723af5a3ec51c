"""The pool's code, compiled while the code generator is imported."""

import threading
from typing import TYPE_CHECKING, cast

import pytest

from tilework.backends import native
from tilework.base.errors import CompileError

if TYPE_CHECKING:
    from tilework.toolchain.llvm import LlvmToolchain


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


def compiled(toolchain: Toolchain) -> bytes:
    return native._compile_beside_imports(cast("LlvmToolchain", toolchain), "text")


def test_the_pools_code_is_compiled_by_a_thread_once_llvm_is_loaded() -> None:
    toolchain = Toolchain()
    assert compiled(toolchain) == b"text"
    assert toolchain.threads == ["warm", "tilework-pool-code"]


def test_what_the_compiler_refuses_is_told_to_the_caller() -> None:
    with pytest.raises(CompileError, match="refused"):
        compiled(Toolchain(CompileError("llvm: refused")))


def test_without_another_thread_this_one_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    toolchain = Toolchain()
    assert compiled(toolchain) == b"text"
    assert toolchain.threads == [threading.current_thread().name]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_gives_no_code_and_its_error() -> None:
    with pytest.raises(MemoryError):
        compiled(Toolchain(MemoryError()))
