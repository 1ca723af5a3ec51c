import ctypes
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilework.base import faults
from tilework.base.errors import (
    MapError,
    ModelFileError,
    StaleHandleError,
    TileworkError,
    UnsupportedError,
)
from tilework.base.ledger import Ledger
from tilework.runtime import reclaim
from tilework.runtime.host import host_spec
from tilework.runtime.loader import LoadedCode, load_object, load_objects
from tilework.runtime.platform_linux import LinuxHost
from tilework.target.features import normalize
from tilework.target.known.cpu import x86_level_spec
from tilework.toolchain.llvm import LlvmToolchain

ADD = "define i64 @add(i64 %x, i64 %y) {\n  %sum = add i64 %x, %y\n  ret i64 %sum\n}\n"
TABLE = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@names = internal constant [2 x ptr] [ptr @first, ptr @second]
define internal i64 @first() { ret i64 111 }
define internal i64 @second() { ret i64 222 }
define i64 @look(i64 %i) {
  %at = getelementptr i64, ptr @table, i64 %i
  %value = load i64, ptr %at
  ret i64 %value
}
define i64 @indirect(i64 %i) {
  %at = getelementptr ptr, ptr @names, i64 %i
  %function = load ptr, ptr %at
  %value = call i64 %function()
  ret i64 %value
}
@counter = global i64 5
define i64 @count() {
  %old = load i64, ptr @counter
  %new = add i64 %old, 1
  store i64 %new, ptr @counter
  ret i64 %new
}
declare ptr @memset(ptr, i32, i64)
define i64 @fill(ptr %at) {
  call ptr @memset(ptr %at, i32 1, i64 8)
  %value = load i64, ptr %at
  ret i64 %value
}
"""
TWO = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
ONE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
NONE = ctypes.CFUNCTYPE(ctypes.c_int64)
POINTER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


@pytest.fixture(scope="module")
def add_object() -> bytes:
    return LlvmToolchain(host_spec()).compile(ADD)


@pytest.fixture(scope="module")
def table_object() -> bytes:
    return LlvmToolchain(host_spec()).compile(TABLE)


def protections(code: LoadedCode) -> list[str]:
    """The permissions of the pages of a mapping, from the kernel's own list."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags = line.split()[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if start < code.address + code.size_bytes and end > code.address:
            found.append(flags)
    return found


def test_a_loaded_function_can_be_called(add_object: bytes) -> None:
    with load_object(add_object, ["add"]) as code:
        assert TWO(code.address_of("add"))(40, 2) == 42


def test_constants_tables_and_pointers_are_relocated(table_object: bytes) -> None:
    with load_object(table_object, ["look", "indirect"]) as code:
        assert [ONE(code.address_of("look"))(i) for i in range(4)] == [10, 20, 30, 40]
        assert [ONE(code.address_of("indirect"))(i) for i in range(2)] == [111, 222]


def test_writable_data_works_and_is_apart_from_code(table_object: bytes) -> None:
    with load_object(table_object, ["count"]) as code:
        count = NONE(code.address_of("count"))
        assert [count(), count()] == [6, 7]
        assert protections(code) == ["r-xp", "rw-p"]


def test_calls_of_the_c_library_reach_it(table_object: bytes) -> None:
    memory = (ctypes.c_char * 8)()
    with load_object(table_object, ["fill"]) as code:
        assert POINTER(code.address_of("fill"))(memory) == 0x0101010101010101


@pytest.mark.parametrize("name", ["fmaxf", "fminf", "fmax", "fmin"])
def test_choices_between_floats_may_be_calls(name: str) -> None:
    kind, number = ("float", ctypes.c_float) if name[-1] == "f" else ("double", ctypes.c_double)
    text = (
        f"declare {kind} @{name}({kind}, {kind})\ndefine {kind} @choose({kind} %x, {kind} %y) "
        f"{{\n  %z = call {kind} @{name}({kind} %x, {kind} %y)\n  ret {kind} %z\n}}\n"
    )
    with load_object(LlvmToolchain(host_spec()).compile(text), ["choose"]) as code:
        choose = ctypes.CFUNCTYPE(number, number, number)(code.address_of("choose"))
        assert choose(2.0, -3.0) == (2.0 if "max" in name else -3.0)
        assert choose(float("nan"), 1.5) == 1.5


def test_BKE_05_code_pages_are_never_writable_and_executable_at_once(
    add_object: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    make_executable = LinuxHost.make_executable

    def watched(self: LinuxHost, address: int, size_bytes: int) -> None:
        code = LoadedCode(self, Ledger(), address, size_bytes, [])
        seen.extend(protections(code))
        code._release.detach()
        make_executable(self, address, size_bytes)

    monkeypatch.setattr(LinuxHost, "make_executable", watched)
    with load_object(add_object, ["add"]) as code:
        seen.extend(protections(code))
    assert seen == ["rw-p", "r-xp"]


@pytest.mark.skipif(host_spec().isa != "x86-64", reason="the features are those of x86-64")
def test_BKE_05_code_for_a_newer_processor_is_refused() -> None:
    newer = LlvmToolchain(x86_level_spec("x86-64-v4", extra=["avx512fp16"])).compile(ADD)

    class OldHost(LinuxHost):
        def cpu_features(self) -> frozenset[str]:
            return normalize("x86-64", super().cpu_features() - {"avx512f", "avx512fp16"})

    with pytest.raises(UnsupportedError, match=r"needs avx512bw, .*avx512fp16"):
        load_object(newer, ["add"], host=OldHost())


def test_code_for_another_instruction_set_is_refused(add_object: bytes) -> None:
    class OtherHost(LinuxHost):
        def isa(self) -> str:
            return "riscv64"

    with pytest.raises(UnsupportedError, match="for another processor"):
        load_object(add_object, ["add"], host=OtherHost())


def test_code_without_a_note_is_refused(add_object: bytes) -> None:
    with pytest.raises(ModelFileError, match="does not say which processor features"):
        load_object(add_object.replace(b".note.tilework", b".note.telework"), ["add"])


def test_a_damaged_note_is_refused(add_object: bytes) -> None:
    with pytest.raises(ModelFileError, match="tilework is malformed"):
        load_object(add_object.replace(b"tilework-isa-1;", b"tilework-isa-9;"), ["add"])


def test_an_unknown_function_is_named() -> None:
    source = "declare double @cbrt(double)\ndefine double @f(double %x) {\n"
    source += "  %y = call double @cbrt(double %x)\n  ret double %y\n}\n"
    data = LlvmToolchain(host_spec()).compile(source)
    with pytest.raises(UnsupportedError, match="not provided\n  got: cbrt"):
        load_object(data, ["f"])


def test_a_missing_entry_is_named(add_object: bytes) -> None:
    with pytest.raises(ModelFileError, match="no such entry\n  got: subtract"):
        load_object(add_object, ["subtract"])


def test_thread_local_data_is_refused() -> None:
    source = "@x = thread_local global i64 1\ndefine i64 @f() {\n"
    source += "  %v = load i64, ptr @x\n  ret i64 %v\n}\n"
    data = LlvmToolchain(host_spec()).compile(source)
    with pytest.raises(UnsupportedError, match="thread-local"):
        load_object(data, ["f"])


def test_many_objects_share_one_mapping(add_object: bytes, table_object: bytes) -> None:
    with load_objects(
        [(add_object, ["add"]), (table_object, ["look"]), (add_object, ["add"])]
    ) as c:
        assert TWO(c.address_of("add", 2))(1, 2) == 3
        assert ONE(c.address_of("look", 1))(2) == 30
        assert protections(c) == ["r-xp", "rw-p"]


def test_a_closed_code_gives_no_addresses(add_object: bytes) -> None:
    code = load_object(add_object, ["add"])
    code.close()
    code.close()
    with pytest.raises(StaleHandleError, match="was unloaded"):
        code.address_of("add")


def test_reloading_leaks_no_mapping(add_object: bytes) -> None:
    ledger = Ledger()
    for _ in range(20):
        load_object(add_object, ["add"], ledger=ledger).close()
    before = len(Path("/proc/self/maps").read_text().splitlines())
    for _ in range(500):
        load_object(add_object, ["add"], ledger=ledger).close()
    after = len(Path("/proc/self/maps").read_text().splitlines())
    assert after <= before + 5
    assert ledger.snapshot() == {}


def test_code_that_nobody_closes_is_unmapped_when_it_is_collected(add_object: bytes) -> None:
    ledger = Ledger()
    code = load_object(add_object, ["add"], ledger=ledger)
    del code
    reclaim.run()
    assert ledger.snapshot() == {}


@pytest.mark.parametrize("step", [0, 1])
def test_a_failure_at_any_step_leaves_nothing(add_object: bytes, step: int) -> None:
    ledger = Ledger()
    mapped: list[int] = []

    class Counting(LinuxHost):
        def map_pages(self, size_bytes: int) -> int:
            mapped.append(size_bytes)
            return super().map_pages(size_bytes)

        def unmap_pages(self, address: int, size_bytes: int) -> None:
            mapped.remove(size_bytes)
            super().unmap_pages(address, size_bytes)

    with faults.fail_at(step), pytest.raises(faults.InjectedFault):
        load_object(add_object, ["add"], host=Counting(), ledger=ledger)
    assert (mapped, ledger.snapshot()) == ([], {})


def test_pages_that_may_not_be_executable_are_given_back(add_object: bytes) -> None:
    released: list[int] = []

    class Strict(LinuxHost):
        def make_executable(self, address: int, size_bytes: int) -> None:
            raise MapError("cpu: pages cannot be made executable")

        def unmap_pages(self, address: int, size_bytes: int) -> None:
            released.append(address)
            super().unmap_pages(address, size_bytes)

    with pytest.raises(MapError):
        load_object(add_object, ["add"], host=Strict())
    assert len(released) == 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_objects_raise_typed_errors(table_object: bytes, data: st.DataObject) -> None:
    damaged = bytearray(table_object)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    piece = bytes(damaged if data.draw(st.booleans()) else damaged[:cut])
    with suppress(TileworkError):
        load_object(piece, ["look"]).close()


def test_objects_load_without_llvmlite_and_numpy(add_object: bytes, tmp_path: Path) -> None:
    path = tmp_path / "add.o"
    path.write_bytes(add_object)
    script = (
        "import sys, ctypes, pathlib\n"
        "sys.modules['llvmlite'] = sys.modules['numpy'] = None\n"
        "from tilework.runtime.loader import load_object\n"
        f"code = load_object(pathlib.Path({str(path)!r}).read_bytes(), ['add'])\n"
        "kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)\n"
        "raise SystemExit(kind(code.address_of('add'))(40, 2))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert result.returncode == 42
