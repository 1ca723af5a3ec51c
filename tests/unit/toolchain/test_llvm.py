import ctypes
import importlib.util
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tilework.base.elf import Machine, read_object
from tilework.base.errors import CompileError, UnsupportedError
from tilework.runtime.native.pool_source import pool_source
from tilework.target.isa import NOTE_SECTION, decode_note
from tilework.target.known.cpu import aarch64_spec, x86_level_spec
from tilework.target.spec import TargetSpec
from tilework.toolchain import llvm
from tilework.toolchain.base import Passes, Toolchain
from tilework.toolchain.llvm import LlvmToolchain

V3 = x86_level_spec("x86-64-v3")
V4 = x86_level_spec("x86-64-v4")
SUM = """
define float @sum(float %a, float %b, float %c) {
  %product = fmul float %a, %b
  %sum = fadd float %product, %c
  ret float %sum
}
"""


def test_it_fills_the_contract() -> None:
    toolchain: Toolchain = LlvmToolchain(V3)
    assert toolchain.target is V3


@pytest.mark.parametrize(
    ("spec", "machine"), [(V3, Machine.X86_64), (V4, Machine.X86_64), (aarch64_spec(), 183)]
)
def test_objects_are_for_their_target(spec: TargetSpec, machine: int) -> None:
    parsed = read_object(LlvmToolchain(spec).compile(SUM))
    assert parsed.machine == machine
    assert parsed.symbol("sum").is_defined


def test_objects_say_what_they_need() -> None:
    parsed = read_object(LlvmToolchain(V4).compile(SUM))
    (section,) = [s for s in parsed.sections if s.name == NOTE_SECTION]
    assert decode_note(section.data).features == V4.features


@pytest.mark.parametrize("passes", list(Passes))
def test_no_pass_contracts_or_reorders_floating_point(passes: Passes) -> None:
    text = LlvmToolchain(V3).assembly(SUM, passes=passes)
    assert "vmulss" in text
    assert "vaddss" in text
    assert "vfmadd" not in text


def test_wide_vectors_stay_wide() -> None:
    source = (
        "define void @f(ptr %p) {\n  %x = load <16 x float>, ptr %p, align 4\n"
        "  %y = fadd <16 x float> %x, %x\n  store <16 x float> %y, ptr %p, align 4\n"
        "  ret void\n}\n"
    )
    assert "zmm0" in LlvmToolchain(V4).assembly(source)
    assert "ymm0" in LlvmToolchain(V3).assembly(source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("define void @f() {\n  ret i32 0\n}\n", "value doesn't match function result type"),
        ("nonsense", "expected top-level entity"),
        ("define i32 @f() {\na:\n  br label %b\nb:\n  ret i32 %x\n}\n", "undefined value '%x'"),
        (
            "define void @f() {\na:\n  %x = phi i32 [ 1, %a ]\n  ret void\n}\n",
            "PHINode should have one entry",
        ),
    ],
)
def test_bad_modules_are_compile_errors_with_the_log(source: str, words: str) -> None:
    with pytest.raises(CompileError, match="the module was refused") as caught:
        LlvmToolchain(V3).compile(source)
    assert words in str(caught.value)


def test_the_key_names_version_target_and_flags() -> None:
    keys = {
        LlvmToolchain(V3).key,
        LlvmToolchain(V4).key,
        LlvmToolchain(V3, passes=Passes.O2).key,
        LlvmToolchain(V3, speed_level=3).key,
    }
    assert len(keys) == 4
    assert all(key.startswith("llvmlite-") for key in keys)


def test_unknown_processors_never_reach_llvm() -> None:
    with pytest.raises(UnsupportedError, match="unknown processor name"):
        LlvmToolchain(replace(V3, cpu_name="hexagonv85"))
    with pytest.raises(UnsupportedError, match="no code generation"):
        LlvmToolchain(replace(V3, isa="ptx"))
    with pytest.raises(UnsupportedError, match="unknown x86-64 features"):
        LlvmToolchain(replace(V3, features=frozenset({"+sse2"})))


def test_llvmlite_is_imported_at_the_first_compile_only() -> None:
    script = (
        "import sys\n"
        "from tilework.target.known.cpu import x86_level_spec\n"
        "from tilework.toolchain.llvm import LlvmToolchain, is_installed\n"
        "toolchain = LlvmToolchain(x86_level_spec('x86-64'))\n"
        "toolchain.key\n"
        "assert is_installed()\n"
        "raise SystemExit('llvmlite' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert llvm.is_installed()


def run_alone(script: str) -> int:
    """The status of a process of its own."""
    return subprocess.run([sys.executable, "-c", script], check=False).returncode


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux what is mapped")
def test_the_library_is_mapped_without_importing_llvmlite() -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tilework.toolchain.llvm import map_library\n"
        "assert 'libllvmlite' not in Path('/proc/self/maps').read_text()\n"
        "map_library()\n"
        "assert 'libllvmlite' in Path('/proc/self/maps').read_text()\n"
        "raise SystemExit('llvmlite' in sys.modules)\n"
    )
    assert run_alone(script) == 0


def test_without_llvmlite_there_is_nothing_to_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    llvm.map_library()


def test_targets_of_other_machines_are_set_up_when_one_is_asked_for() -> None:
    script = (
        "from tilework.target.known.cpu import aarch64_spec, x86_level_spec\n"
        "from tilework.toolchain.llvm import LlvmToolchain\n"
        "source = 'define void @nothing() {\\n  ret void\\n}\\n'\n"
        "codes = [LlvmToolchain(spec).compile(source)[18:20] for spec in\n"
        "         (x86_level_spec('x86-64'), aarch64_spec(), x86_level_spec('x86-64'))]\n"
        "assert codes == [b'>\\0', b'\\xb7\\0', b'>\\0'], codes\n"
    )
    assert run_alone(script) == 0


SWAP = """
define void @swap(ptr %to, ptr %from) {
entry:
  %x = load <4 x float>, ptr %from
  %y = shufflevector <4 x float> %x, <4 x float> %x, <4 x i32> <i32 2, i32 3, i32 0, i32 1>
  store <4 x float> %y, ptr %to
  ret void
}
"""


@pytest.mark.parametrize("source", [
    SUM,
    SWAP.replace("store <4 x float> %y", "%z = fadd <4 x float> %x, %y\n  store <4 x float> %z"),
    SWAP.replace("float", "i32").replace(
        "store <4 x i32> %y", "%z = add nsw <4 x i32> %x, %y\n  store <4 x i32> %z"
    ),
])  # fmt: skip
def test_what_computes_has_its_loops_reduced(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[str] = []
    monkeypatch.setattr(llvm._binding(), "set_option", lambda name, option: options.append(option))
    LlvmToolchain(V3).compile(source)
    assert options == []


def test_the_loops_of_what_only_moves_vectors_are_left_and_no_others_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toolchain = LlvmToolchain(V3)
    before = toolchain.compile(SUM)
    options: list[str] = []
    binding = llvm._binding()
    set_option = binding.set_option

    def note(name: str, option: str) -> None:
        options.append(option)
        set_option(name, option)

    monkeypatch.setattr(binding, "set_option", note)
    toolchain.compile(SWAP)
    assert options == ["-disable-lsr=true", "-disable-lsr=false"]
    assert toolchain.compile(SUM) == before


def test_assembly_is_that_of_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[str] = []
    monkeypatch.setattr(llvm._binding(), "set_option", lambda name, option: options.append(option))
    LlvmToolchain(V3).assembly(SWAP)
    assert options == ["-disable-lsr=true", "-disable-lsr=false"]


@pytest.mark.parametrize("mask", ["and <4 x i1> %m, %m", "icmp slt <4 x i64> %p, %p"])
def test_masks_are_not_what_a_module_computes(mask: str) -> None:
    assert llvm.only_moves(f"{SWAP}\n  %n = {mask}\n")


def test_GEN_10_threads_compile_at_once_and_get_equal_objects() -> None:
    toolchain = LlvmToolchain(V3)
    expected = toolchain.compile(SUM)
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(toolchain.compile(SUM))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8


@pytest.mark.parametrize("spec", [x86_level_spec("x86-64"), aarch64_spec()])
def test_the_native_runtime_compiles_for_every_instruction_set(spec: TargetSpec) -> None:
    parsed = read_object(LlvmToolchain(spec, passes=Passes.O2).compile(pool_source(spec.isa)))
    assert parsed.symbol("tilework_run").is_defined


def test_the_native_runtime_refuses_other_instruction_sets() -> None:
    with pytest.raises(UnsupportedError, match="no native code"):
        pool_source("riscv64")


class _HeapFacts(ctypes.Structure):
    """What glibc says of its heap; `used_bytes` is what it has handed out."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "free_chunks", "fast_chunks", "mapped", "mapped_bytes", "most", "fast_bytes",
            "used_bytes", "free_bytes", "top_bytes",
        )
    )  # fmt: skip


def used_bytes() -> int:
    look = ctypes.CDLL(None).mallinfo2
    look.restype = _HeapFacts
    return int(look().used_bytes)


def test_compiling_kernels_leaves_no_memory_behind() -> None:
    toolchain = LlvmToolchain(V3)
    for _ in range(10):
        toolchain.compile(SUM)
    before = used_bytes()
    for _ in range(50):
        toolchain.compile(SUM)
    assert used_bytes() - before < 50 * 500


@pytest.mark.parametrize("passes", [Passes.LIGHT, Passes.O2])
def test_a_toolchain_that_was_used_compiles_as_a_new_one_does(passes: Passes) -> None:
    used = LlvmToolchain(V3, passes=passes)
    used.compile(pool_source("x86-64"))
    used.compile(SUM)
    new = LlvmToolchain(V3, passes=passes)
    assert used.compile(SUM) == new.compile(SUM)
