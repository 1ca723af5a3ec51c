"""What object code was made from is kept by its hash, and the same build is the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor
from tilework.backends.contract import KernelSource
from tilework.base import settings
from tilework.base.elf import is_object, read_object
from tilework.base.errors import ModelFileError
from tilework.engine import build_records, compile, link
from tilework.engine.build_records import content_hash, find_record
from tilework.engine.compile import CompiledKernel
from tilework.engine.device import Device
from tilework.ir.build import const_index
from tilework.schedule import cache
from tilework.testing.kernels import target
from tilework.toolchain.base import keeping_log, note_log, wants_log
from tilework.toolchain.clang import ClangToolchain


def program() -> Tensor:
    x = Tensor(np.arange(60, dtype=np.float32).reshape(6, 10))
    return (x @ x.permute(1, 0)).softmax(-1).sum(0)


def compiled(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[CompiledKernel]:
    """Run the program over a cache in `folder`, and return the kernels that were loaded."""
    found: list[CompiledKernel] = []
    load = link._load

    def noted(device: object, kernels: list[CompiledKernel]) -> object:
        found.extend(kernels)
        return load(device, kernels)  # type: ignore[arg-type]

    cache.clear()
    link.CACHE.clear()
    compile.clear_memory()
    with monkeypatch.context() as patch:
        patch.setattr(link, "_load", noted)
        with settings.override(cache_dir=folder, keep_builds=True):
            program().realize()
    assert found
    return found


def test_CST_18_each_kernel_has_source_symbols_log_and_key_under_the_hash_of_its_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernels = compiled(monkeypatch, tmp_path)
    with settings.override(cache_dir=tmp_path):
        for kernel in kernels:
            record = find_record(kernel.data)
            assert record is not None
            assert record.name == kernel.name
            assert record.key == kernel.key
            assert f"@{kernel.name}(" in record.source
            offset, size = record.symbols[kernel.name]
            symbol = read_object(kernel.data).symbol(kernel.name)
            assert (offset, size) == (symbol.value, symbol.size)
            assert size > 0
            assert record.log == ""  # LLVM has nothing to say of what it accepts
            assert "fp_mode" in record.key


def test_CST_18_the_kept_source_and_key_make_the_same_code_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (kernel, *_) = compiled(monkeypatch, tmp_path)
    with settings.override(cache_dir=tmp_path):
        record = find_record(kernel.data)
    assert record is not None
    source = KernelSource(
        name=record.name,
        text=record.source,
        tasks=const_index(1),
        variables=(),
        num_buffers=kernel.num_buffers,
        scratch_bytes=0,
    )
    again = Device["CPU"].compiler.build(source)
    assert content_hash(again) == content_hash(kernel.data)


BUILD = """
import sys
from tilework import Tensor
from tilework.base import settings
from tilework.engine import link
from tilework.engine.build_records import content_hash
import numpy as np
load = link._load
def noted(device, kernels):
    for kernel in kernels:
        print(kernel.name, content_hash(kernel.data))
    return load(device, kernels)
link._load = noted
with settings.override(keep_builds=True):
    x = Tensor(np.arange(60, dtype=np.float32).reshape(6, 10))
    (x @ x.permute(1, 0)).softmax(-1).sum(0).realize()
"""


def test_CST_18_two_builds_in_other_folders_and_processes_give_the_same_bytes_and_records(
    tmp_path: Path,
) -> None:
    outputs, records = [], []
    for number in range(2):
        folder = tmp_path / f"home{number}" / ("deep" * number or "flat")
        folder.mkdir(parents=True)
        environment = {
            **os.environ,
            "PYTHONHASHSEED": str(number + 1),
            "TILEWORK_CACHE_DIR": str(folder / "cache"),
            "HOME": str(folder),
            "TZ": ["UTC", "Asia/Tokyo"][number],
            "TMPDIR": str(folder),
        }
        done = subprocess.run(
            [sys.executable, "-c", BUILD],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(done.stdout)
        kept = sorted((folder / "cache" / "builds").rglob("*.entry"))
        records.append([(path.name, path.read_bytes()) for path in kept])
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") >= 2
    assert records[0] == records[1]
    assert len(records[0]) >= 2


def test_CST_18_code_without_a_record_is_built_again_where_records_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with settings.override(cache_dir=tmp_path):
        cache.clear()
        link.CACHE.clear()
        compile.clear_memory()
        program().realize()
    assert not (tmp_path / "builds").exists()
    kernels = compiled(monkeypatch, tmp_path)
    with settings.override(cache_dir=tmp_path):
        assert all(find_record(kernel.data) is not None for kernel in kernels)


def test_CST_18_the_log_of_a_compiler_that_accepts_is_kept() -> None:
    with keeping_log() as log:
        assert wants_log()
        note_log("a warning\n")
        note_log("  ")
    note_log("nobody listens")
    assert not wants_log()
    assert log == ["a warning"]


@pytest.mark.needs("program:clang")
def test_CST_18_what_clang_says_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ClangToolchain._run

    def talking(self: ClangToolchain, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, run(self, command).returncode, "", "a remark")

    monkeypatch.setattr(ClangToolchain, "_run", talking)
    with keeping_log() as log:
        ClangToolchain(target("x86-64")).compile("int one(void) { return 1; }\n")
    assert log == ["a remark"]


def test_CST_18_a_malformed_record_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (kernel, *_) = compiled(monkeypatch, tmp_path)
    with settings.override(cache_dir=tmp_path):
        for wrong in (b"", b"no zlib", zlib.compress(b"[1]")):
            build_records._cache().put(content_hash(kernel.data), wrong)
            with pytest.raises(ModelFileError, match="it is malformed"):
                find_record(kernel.data)
        assert find_record(b"never built") is None


def test_code_of_other_formats_has_the_kernel_as_its_only_symbol() -> None:
    assert not is_object(b"\x7fELF")
    assert build_records.symbols_of("k", b"something else") == {"k": (0, 14)}
