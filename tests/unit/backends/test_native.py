"""The pool's code, compiled while the code generator is imported."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tilework.backends import native
from tilework.base.errors import CompileError
from tilework.runtime.native import shipped
from tilework.toolchain.llvm import installed_version

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
    assert toolchain.threads == ["warm", threading.current_thread().name]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_gives_no_code_and_its_error() -> None:
    with pytest.raises(MemoryError):
        compiled(Toolchain(MemoryError()))


def test_CST_18_the_pools_code_in_the_package_is_what_its_compiler_makes_on_any_machine() -> None:
    """Of another version of the compiler the package has nothing."""
    made = native.compiled_objects()
    assert len(made) == 2
    is_its_compiler = shipped.shipped_compiler() == installed_version()
    for key, data in made.items():
        expected = data if is_its_compiler else None
        assert shipped.shipped_object(key) == expected, "run scripts/make_pool_objects.py"


def test_code_of_another_source_or_compiler_is_not_in_the_package() -> None:
    assert shipped.shipped_object("another key") is None


def test_a_package_without_the_pools_code_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shipped, "FILE", tmp_path / "absent.json")
    assert all(shipped.shipped_object(key) is None for key in native.compiled_objects())
