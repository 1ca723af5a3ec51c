import sys
from pathlib import Path

import pytest

from tilework.base.errors import UnsupportedError
from tilework.runtime import hostos
from tilework.runtime.host import detect, host_spec
from tilework.runtime.platform_linux import LinuxHost

ZEN3 = (
    "fpu cx8 cmov fxsr sse sse2 ht pni ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt xsave avx f16c "
    "lahf_lm abm bmi1 avx2 bmi2"
)
AVX512 = ZEN3 + " avx512f avx512dq avx512bw avx512vl avx512cd avx512_bf16 avx512_fp16 amx_tile"


class FakeHost(LinuxHost):
    def __init__(self, root: Path, isa: str = "x86-64", *, has_matrices: bool = False) -> None:
        super().__init__(root / "proc", root / "sys")
        self._wanted = isa
        self.has_matrices = has_matrices
        self.asked = 0

    def take_matrix_registers(self) -> bool:
        self.asked += 1
        return self.has_matrices

    @property
    def _isa(self) -> str:
        return self._wanted

    def usable_cores(self) -> int:
        return 8


def machine(root: Path, flags: str, key: str = "flags") -> Path:
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\n{key}\t\t: {flags}\n\nprocessor\t: 1\n")
    rows = (("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2048K"))
    for index, (kind, level, size) in enumerate((*rows, ("Unified", 3, "32M"))):
        folder = root / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in (("type", kind), ("level", str(level)), ("size", size)):
            (folder / name).write_text(text + "\n")
    return root


def test_an_avx2_machine_is_described(tmp_path: Path) -> None:
    spec = detect(FakeHost(machine(tmp_path, ZEN3)))
    assert (spec.name, spec.vector_bits, spec.num_vector_registers) == ("cpu-x86-64-v3", 256, 16)
    assert (spec.l1_bytes, spec.l2_bytes, spec.l3_bytes) == (48 << 10, 2 << 20, 32 << 20)
    assert (spec.cores, spec.has_fma) == (8, True)


def test_an_avx512_machine_has_wide_vectors(tmp_path: Path) -> None:
    spec = detect(FakeHost(machine(tmp_path, AVX512)), cores=3)
    assert (spec.cpu_name, spec.vector_bits, spec.cores) == ("x86-64-v4", 512, 3)
    assert {"avx512bf16", "avx512fp16"} <= spec.features
    assert "float16" in spec.native_dtypes


def test_hidden_bits_of_a_virtual_machine_narrow_the_spec(tmp_path: Path) -> None:
    spec = detect(FakeHost(machine(tmp_path, AVX512.replace("avx512vl", ""))))
    assert (spec.cpu_name, spec.vector_bits) == ("x86-64-v3", 256)


def test_an_arm_machine_is_described(tmp_path: Path) -> None:
    root = machine(tmp_path, "fp asimd crc32 atomics asimdhp asimddp", "Features")
    spec = detect(FakeHost(root, "aarch64"))
    assert (spec.isa, spec.vector_bits, spec.num_vector_registers) == ("aarch64", 128, 32)
    assert "dotprod" in spec.features


def test_an_unknown_processor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no code generation"):
        detect(FakeHost(machine(tmp_path, ""), "riscv64"))


def test_a_machine_that_tells_nothing_is_below_the_baseline(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="below the x86-64 baseline"):
        detect(FakeHost(tmp_path))


def test_this_machine_has_a_spec() -> None:
    assert host_spec(2).cores == 2
    assert host_spec().key() != ""


def test_other_operating_systems_are_refused_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedError, match="not supported on this operating system"):
        hostos.host_os.__wrapped__()


def test_matrix_registers_are_asked_for_once_where_the_processor_has_them(tmp_path: Path) -> None:
    host = FakeHost(machine(tmp_path, AVX512 + " amx_int8"), has_matrices=True)
    instructions = {found.name for found in detect(host).matrix_instructions}
    assert instructions == {"tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"}
    assert detect(host).features >= {"amx-tile", "amx-int8"}
    assert host.asked == 1


def test_matrix_registers_that_the_system_refuses_are_not_there(tmp_path: Path) -> None:
    spec = detect(FakeHost(machine(tmp_path, AVX512 + " amx_int8 amx_bf16")))
    assert not spec.matrix_instructions
    assert not [name for name in spec.features if name.startswith("amx")]


def test_processors_without_matrix_registers_are_not_asked_for_any(tmp_path: Path) -> None:
    host = FakeHost(machine(tmp_path, ZEN3))
    assert not detect(host).matrix_instructions
    assert host.asked == 0
