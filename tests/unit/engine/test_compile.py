"""Compiling: once per key, from memory, disk or workers; damage and killed workers."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilework.backends.contract import KernelSource
from tilework.backends.native import code_cache
from tilework.base import faults, settings
from tilework.base.errors import CompileError, ModelFileError
from tilework.engine import compile as engine_compile
from tilework.engine.compile import compile_kernels, kernel_key, pack_kernel, unpack_kernel
from tilework.engine.device import Device
from tilework.engine.stats import COUNTERS, difference
from tilework.ir.build import const_index
from tilework.testing import chains
from tilework.toolchain import llvm

SOURCE = "define void @{name}(ptr %b, ptr %v, i64 %s, i64 %e, ptr %x) {{\n ret void\n}}\n"


def kernel_source(name: str, text: str) -> KernelSource:
    return KernelSource(
        name=name, text=text, tasks=const_index(1), variables=(), num_buffers=0, scratch_bytes=0
    )


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """No kernel is known, in memory or on disk."""
    engine_compile.clear_memory()
    with settings.override(cache_dir=tmp_path):
        yield tmp_path


def compiles(factor: float, count: int = 1) -> int:
    before = COUNTERS.snapshot()
    kernels = [chains.scale_kernel(16, factor + k) for k in range(count)]
    compile_kernels(Device["CPU"], kernels)
    return difference(before).get("compiles", 0)


def test_EXE_25_a_kernel_on_disk_is_not_compiled_again(fresh: Path) -> None:
    assert compiles(2.0) == 1
    engine_compile.clear_memory()
    assert compiles(2.0) == 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_EXE_25_a_damaged_entry_is_compiled_again(fresh: Path, share: float) -> None:
    compiles(2.0)
    engine_compile.clear_memory()
    key = kernel_key(Device["CPU"], chains.scale_kernel(16, 2.0))
    path = code_cache().path_of(key)
    raw = bytearray(path.read_bytes())
    raw[int(share * (len(raw) - 1))] ^= 1
    path.write_bytes(raw)
    assert compiles(2.0) == 1


@pytest.mark.parametrize(
    "change", [{"fp_mode": "contract"}, {"allow_tf32": True}, {"keep_subnormals": True}]
)
def test_EXE_25_a_setting_that_changes_code_is_in_the_key(
    fresh: Path, change: dict[str, object]
) -> None:
    kernel = chains.scale_kernel(16)
    before = kernel_key(Device["CPU"], kernel)
    with settings.override(**change):
        assert kernel_key(Device["CPU"], kernel) != before


@pytest.mark.parametrize("change", [{"log_level": 2}, {"verify": "off"}, {"captures": 3}])
def test_EXE_25_a_setting_that_changes_no_code_is_not_in_the_key(
    fresh: Path, change: dict[str, object]
) -> None:
    kernel = chains.scale_kernel(16)
    before = kernel_key(Device["CPU"], kernel)
    with settings.override(**change):
        assert kernel_key(Device["CPU"], kernel) == before


def test_EXE_25_the_key_names_compiler_processor_and_features() -> None:
    key = kernel_key(Device["CPU"], chains.scale_kernel(16))
    assert "llvmlite-" in key
    assert Device["CPU"].spec.key() in key
    assert Device["CPU"].spec.feature_string() in key


def test_without_a_cache_folder_kernels_are_compiled_each_time() -> None:
    engine_compile.clear_memory()
    with settings.override(cache_dir=""):
        assert compiles(2.0) == 1
        engine_compile.clear_memory()
        assert compiles(2.0) == 1


def test_a_packed_kernel_is_read_back(fresh: Path) -> None:
    (kernel,) = compile_kernels(Device["CPU"], [chains.scale_kernel(chains.variable())])
    assert unpack_kernel(kernel.key, pack_kernel(kernel)) == kernel


@pytest.mark.parametrize("raw", [b"", b"\xff\xff\xff\xff", b"\x02\0\0\0{}", b"\x02\0\0\0[]x"])
def test_a_malformed_kernel_is_refused(raw: bytes) -> None:
    with pytest.raises(ModelFileError):
        unpack_kernel("k", raw)


def test_an_injected_failure_leaves_nothing_half_known(fresh: Path) -> None:
    with faults.count() as points:
        compiles(3.0)
    for step in range(len(points)):
        engine_compile.clear_memory()
        code_cache().clear()
        with faults.fail_at(step), pytest.raises(faults.InjectedFault):
            compiles(3.0)
        assert compiles(3.0) == 1


def test_many_kernels_are_built_by_workers(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_compile, "KERNELS_A_WORKER", 15)
    monkeypatch.setattr(engine_compile, "PATIENCE", 1)
    with settings.override(compile_workers=2):
        assert compiles(5.0, count=30) == 30
    engine_compile.clear_memory()
    assert compiles(5.0, count=30) == 0


def test_kernels_are_built_by_threads_beside_lowering(fresh: Path) -> None:
    with settings.override(compile_workers=2):
        assert compiles(9.0, count=6) == 6


def test_an_error_in_a_build_thread_names_the_kernel(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, source: KernelSource) -> bytes:
        raise CompileError("no")

    monkeypatch.setattr(type(Device["CPU"].compiler), "build", refuse)
    with settings.override(compile_workers=2), pytest.raises(CompileError) as caught:
        compiles(11.0, count=3)
    assert "while compiling the kernel" in caught.value.__notes__[0]


def test_EXE_24_the_user_s_main_module_is_not_imported_again(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        "print('main is run')\n"
        "from tilework import Tensor\n"
        "from tilework.base import settings\n"
        "from tilework.engine import compile as c\n"
        "c.KERNELS_A_WORKER = c.PATIENCE = 1\n"
        "with settings.override(compile_workers=2, cache_dir=''):\n"
        "    a = [(Tensor.ones(4 + k) * 2).contiguous() for k in range(4)]\n"
        "    Tensor.realize(*a)\n"
        "    print(a[3].tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120,
        env={"PYTHONPATH": ":".join(sys.path), "TILEWORK_CACHE_DIR": ""},
    )  # fmt: skip
    assert done.stdout.split("\n")[:2] == ["main is run", str([2.0] * 7)], done.stderr


def test_EXE_25_another_version_of_the_compiler_finds_nothing_on_disk(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiles(13.0) == 1
    engine_compile.clear_memory()
    compiler = Device["CPU"].compiler
    toolchain = compiler._toolchain  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(llvm, "installed_version", lambda: "99.0.0")
        toolchain.__dict__.pop("key", None)
        assert "99.0.0" in compiler.key
        assert compiles(13.0) == 1
    toolchain.__dict__.pop("key", None)
    engine_compile.clear_memory()
    assert compiles(13.0) == 0
