import ctypes
import shutil
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilework.base.errors import CompileError, DeviceUnavailableError, UnsupportedError
from tilework.runtime.host import host_spec
from tilework.runtime.loader import load_object
from tilework.target.known.cpu import aarch64_spec, x86_level_spec
from tilework.toolchain import llvm
from tilework.toolchain.clang import ClangToolchain, find_compiler, require_compiler

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler is installed")

SOURCE = """
static const long table[3] = {10, 20, 30};
long pick(long i) { return table[i] + 1; }
"""


def script(folder: Path, text: str) -> str:
    path = folder / "compiler"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@needs_compiler
def test_c_becomes_code_that_runs() -> None:
    data = ClangToolchain(host_spec()).compile(SOURCE)
    with load_object(data, ["pick"]) as code:
        pick = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address_of("pick"))
        assert [pick(i) for i in range(3)] == [11, 21, 31]


@needs_compiler
def test_bad_source_is_a_compile_error_with_command_and_log() -> None:
    with pytest.raises(CompileError, match="the source was refused") as caught:
        ClangToolchain(host_spec()).compile("int f( {")
    assert "error" in str(caught.value)
    assert "kernel.c" in " ".join(caught.value.command or ())


@needs_compiler
def test_the_key_names_version_and_flags() -> None:
    assert ClangToolchain(host_spec()).key != ClangToolchain(host_spec(), speed_level=1).key


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DeviceUnavailableError, match="no C compiler is installed") as caught:
        require_compiler()
    assert "clang, cc, gcc" in str(caught.value.reason)


def test_a_compiler_that_cannot_be_run_is_named() -> None:
    with pytest.raises(DeviceUnavailableError, match="cannot be run"):
        ClangToolchain(host_spec(), compiler="/no/such/compiler").compile(SOURCE)


def test_a_compiler_that_hangs_is_stopped(tmp_path: Path) -> None:
    slow = script(tmp_path, "exec sleep 60\n")
    toolchain = ClangToolchain(host_spec(), compiler=slow, time_limit_seconds=0.2)
    with pytest.raises(CompileError, match="took too long"):
        toolchain.compile(SOURCE)


def test_a_compiler_that_fails_in_silence_is_noticed(tmp_path: Path) -> None:
    liar = script(tmp_path, "exit 0\n")
    with pytest.raises(CompileError, match="exit status 0"):
        ClangToolchain(host_spec(), compiler=liar).compile(SOURCE)


def test_flags_follow_the_target() -> None:
    flags = ClangToolchain(x86_level_spec("x86-64-v3"), compiler="cc").arguments()
    assert {"-mavx2", "-mfma", "-ffp-contract=off"} <= set(flags)
    assert "-mavx512f" not in flags
    arm = ClangToolchain(aarch64_spec(["fp-armv8", "neon", "dotprod"]), compiler="cc").arguments()
    assert "-march=armv8-a+dotprod" in arm


def test_other_targets_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no code generation"):
        ClangToolchain(replace(host_spec(), isa="ptx"), compiler="cc")


def test_CST_19_a_compiler_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "child"
    slow = script(tmp_path, f"sleep 600 & echo $! > {marker}; wait\n")
    for limit in (0.5, 5.0, 50.0):  # a machine at work may not have started the child at first
        toolchain = ClangToolchain(host_spec(), compiler=slow, time_limit_seconds=limit)
        with pytest.raises(CompileError, match="took too long"):
            toolchain.compile(SOURCE)
        if marker.exists() and marker.read_text().strip():
            break
    child = Path("/proc") / marker.read_text().strip() / "stat"
    # Killed: gone, or a zombie that nobody has waited for yet.
    assert not child.exists() or child.read_text().split()[2] == "Z"


def test_CST_19_a_compiler_that_takes_too_much_memory_fails(tmp_path: Path) -> None:
    greedy = script(tmp_path, f"exec {sys.executable} -c 'x = bytearray(1 << 30)'\n")
    toolchain = ClangToolchain(host_spec(), compiler=greedy, memory_limit_bytes=256 << 20)
    with pytest.raises(CompileError, match="the source was refused") as caught:
        toolchain.compile(SOURCE)
    assert "MemoryError" in str(caught.value)


def test_CST_19_what_a_compiler_prints_is_bounded(tmp_path: Path) -> None:
    loud = script(tmp_path, "yes error | head -c 3000000 >&2; exit 1\n")
    with pytest.raises(CompileError) as caught:
        ClangToolchain(host_spec(), compiler=loud).compile(SOURCE)
    assert len(str(caught.value)) < 100_000


def test_CST_19_llvm_in_this_process_takes_no_module_without_bound() -> None:
    source = ";" * (llvm.MAX_SOURCE_CHARACTERS + 1)
    with pytest.raises(CompileError, match="too large"):
        llvm.LlvmToolchain(host_spec()).compile(source)
    with pytest.raises(UnsupportedError):
        llvm.LlvmToolchain(replace(host_spec(), cpu_name="no-such-processor"))
