"""Exported captures: the same bits, in a process without a compiler, and no damage goes unseen."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, Variable, export, jit, load
from tilework.base import faults, settings
from tilework.base.errors import CaptureError, ModelFileError, UnsupportedError, UserError
from tilework.codegen.decompose.transcendental import choices
from tilework.engine.device import Device
from tilework.engine.export import functions_of
from tilework.engine.export_file import HEADER, PAGE, open_file

WITHOUT_LLVM = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "llvmlite" else find(name, *rest)
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "llvmlite":
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import numpy as np
from tilework import Tensor, load
run = load(sys.argv[1])
x = Tensor(np.frombuffer(bytes.fromhex(sys.argv[2]), np.float32).reshape(4, 2))
print(run(x).numpy().tobytes().hex())
loaded = [name for name in sys.modules if name.split(".")[0] == "llvmlite"]
assert not loaded and "tilework.codegen" not in sys.modules
"""


def sample() -> np.ndarray[Any, Any]:
    return np.linspace(-2, 2, 8, dtype=np.float32).reshape(4, 2)


def make(path: Path) -> Any:
    weight = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3) / 7).realize()
    function = jit(lambda x: (x @ weight).exp().sum(1))
    function(Tensor(sample()))
    export(function, path)
    return function


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of one good file, made once."""
    path = tmp_path_factory.mktemp("export") / "f.twx"
    settings.install(settings.Settings(cache_dir=None, num_threads=1, compile_workers=1))
    make(path)
    return path.read_bytes()


def test_EXE_23_a_loaded_function_gives_the_same_bits(tmp_path: Path) -> None:
    function = make(tmp_path / "f.twx")
    loaded = load(tmp_path / "f.twx")
    wanted, got = function(Tensor(sample())).numpy(), loaded(Tensor(sample())).numpy()
    assert got.tobytes() == wanted.tobytes()


def test_EXE_23_a_process_without_llvm_gives_the_same_bits(tmp_path: Path) -> None:
    wanted = make(tmp_path / "f.twx")(Tensor(sample())).numpy().tobytes().hex()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LLVM, tmp_path / "f.twx", sample().tobytes().hex()],
        capture_output=True,
        text=True,
        timeout=120,
        env={"TILEWORK_CACHE_DIR": "", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.strip() == wanted, done.stderr


def test_EXE_23_packed_constants_travel_before_the_first_replay(tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).standard_normal((160, 192)).astype(np.float32)
    weight = Tensor(numbers).realize()
    function = jit(lambda x: x @ weight)
    x = np.random.default_rng(2).standard_normal((96, 160)).astype(np.float32)
    wanted = function(Tensor(x)).numpy()
    export(function, tmp_path / "m.twx")
    got = load(tmp_path / "m.twx")(Tensor(x)).numpy()
    assert got.tobytes() == wanted.tobytes()
    np.testing.assert_allclose(got, x @ numbers, rtol=1e-3, atol=1e-3)


def test_state_is_written_and_is_each_loaded_function_s_own(tmp_path: Path) -> None:
    state = Tensor(np.zeros(1, np.float32)).realize()

    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state * 1

    function = jit(step)
    one = Tensor(np.ones(1, np.float32))
    function(one)
    export(function, tmp_path / "s.twx")
    first, second = load(tmp_path / "s.twx"), load(tmp_path / "s.twx")
    assert [first(one).item() for _ in range(3)] == [2, 3, 4]
    assert second(one).item() == 2
    assert state.item() == 1


def test_containers_views_and_values_come_back(tmp_path: Path) -> None:
    def step(pair: list[Tensor], *, factor: float) -> dict[str, Any]:
        return {"a": (pair[0] * factor).realize()[1:], "b": (pair[1], None, "text", 2.5)}

    function = jit(step)
    x, y = Tensor([1.0, 2.0, 3.0]), Tensor([4])
    function([x, y], factor=0.5)
    export(function, tmp_path / "c.twx")
    result = load(tmp_path / "c.twx")([x, y], factor=0.5)
    assert result["a"].tolist() == [1.0, 1.5]
    assert result["b"] == (y, None, "text", 2.5)


def test_a_bound_size_may_change(tmp_path: Path) -> None:
    base = Tensor(np.arange(8, dtype=np.float32)).realize()
    n = Variable("n", 1, 8)
    function = jit(lambda x: x.sum())
    function(base[: n.bind(2)])
    export(function, tmp_path / "v.twx")
    loaded = load(tmp_path / "v.twx")
    assert [loaded(base[: n.bind(count)]).item() for count in (3, 8, 1)] == [3, 28, 0]


@pytest.mark.parametrize("shape", [(4, 3), (8,)])
def test_EXE_23_another_signature_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    make(tmp_path / "f.twx")
    with pytest.raises(CaptureError, match="argument 0 differs"):
        load(tmp_path / "f.twx")(Tensor.ones(*shape))


def test_a_call_of_another_form_shows_both_forms(tmp_path: Path) -> None:
    make(tmp_path / "f")
    run = load(tmp_path / "f")
    with pytest.raises(CaptureError) as caught:
        run(x=Tensor(sample()))
    assert (caught.value.got, caught.value.expected) == ("(x=tensor)", "(tensor)")


def test_a_loaded_function_prints_its_arguments(tmp_path: Path) -> None:
    make(tmp_path / "f")
    assert repr(load(tmp_path / "f")) == "<Exported (tensor); argument 0: float32[4, 2]>"


@pytest.mark.parametrize("share", [k / 40 for k in range(41)])
def test_EXE_23_a_changed_byte_is_refused(tmp_path: Path, original: bytes, share: float) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    raw = bytearray((tmp_path / "f.twx").read_bytes())
    raw[int(share * (len(raw) - 1))] ^= 0x10
    (tmp_path / "f.twx").write_bytes(raw)
    with pytest.raises((ModelFileError, UnsupportedError)):
        load(tmp_path / "f.twx")


@pytest.mark.parametrize("size", [0, 10, 100, 5000])
def test_EXE_23_a_cut_file_is_refused(tmp_path: Path, original: bytes, size: int) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    (tmp_path / "f.twx").write_bytes((tmp_path / "f.twx").read_bytes()[:size])
    with pytest.raises(ModelFileError, match="damaged or not an export"):
        load(tmp_path / "f.twx")


def rewrite(path: Path, change: dict[str, Any]) -> None:
    """Replace fields of the description and mend the checksums."""
    import hashlib

    raw = path.read_bytes()
    magic, version, length, size, zero, _, checksum = HEADER.unpack_from(raw)
    start = -(-(HEADER.size + length) // PAGE) * PAGE
    plain = json.loads(raw[HEADER.size : HEADER.size + length]) | change
    text = json.dumps(plain).encode()
    head = HEADER.pack(
        magic, version, len(text), size, zero, hashlib.blake2b(text, digest_size=32).digest(),
        checksum,
    )  # fmt: skip
    path.write_bytes(head + text + bytes(-(len(head) + len(text)) % PAGE) + raw[start:])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kernels", []), ("kernels", [{"name": 5}]), ("steps", [[99, [], True]]), ("steps", [1]),
        ("steps", [[0, [[0, 1 << 40, 8]], True]]), ("constants", [{"place": [1 << 50, 4]}]),
        ("outputs", [-1]), ("outputs", [4, 4]), ("arenas", "no"), ("variables", [["n", 5, 1]]),
        ("num_inputs", None), ("pool", [0]), ("signature", None), ("signature", {"inputs": []}),
        ("isa", 3), ("functions", None), ("functions", {"exp/float32": "perhaps"}),
        ("renderer", None), ("compiler", 7), ("settings", None),
        ("accesses", None), ("accesses", "maybe"), ("settings", {"fp_mode": "strict"}),
        ("settings", {"fp_mode": "odd", "allow_tf32": False, "deterministic": False}),
        ("num_inputs", 1 << 30), ("num_inputs", 1 << 70),
    ],
)  # fmt: skip
def test_EXE_23_a_changed_field_is_refused(
    tmp_path: Path, original: bytes, field: str, value: object
) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    rewrite(tmp_path / "f.twx", {field: value})
    with pytest.raises(ModelFileError):
        load(tmp_path / "f.twx")


@pytest.mark.parametrize("field", ["tree", "result"])
@pytest.mark.parametrize("value", [[], "", ["tuple", None, [[]]]])
def test_EXE_23_a_malformed_tree_of_arguments_is_refused(
    tmp_path: Path, original: bytes, field: str, value: object
) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    signature = open_file(tmp_path / "f.twx").description["signature"]
    rewrite(tmp_path / "f.twx", {"signature": signature | {field: value}})
    with pytest.raises(ModelFileError):
        load(tmp_path / "f.twx")


def test_EXE_23_state_that_is_called_a_constant_is_refused(tmp_path: Path) -> None:
    state = Tensor(np.zeros(1, np.float32)).realize()
    function = jit(lambda x: state.assign(state + x) * 1)
    function(Tensor(np.ones(1, np.float32)))
    export(function, tmp_path / "s.twx")
    constants = open_file(tmp_path / "s.twx").description["constants"]
    assert any(row["is_written"] for row in constants)
    rewrite(tmp_path / "s.twx", {"constants": [row | {"is_written": False} for row in constants]})
    with pytest.raises(ModelFileError, match="writes to a constant"):
        load(tmp_path / "s.twx")


@pytest.mark.parametrize("kind", [[], {}, None])
def test_EXE_23_a_malformed_count_of_tasks_is_refused(
    tmp_path: Path, original: bytes, kind: object
) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    kernels = open_file(tmp_path / "f.twx").description["kernels"]
    rewrite(tmp_path / "f.twx", {"kernels": [row | {"tasks": [[kind, 1]]} for row in kernels]})
    with pytest.raises(ModelFileError):
        load(tmp_path / "f.twx")


def test_EXE_23_a_description_that_is_too_deep_is_refused(
    tmp_path: Path, original: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    monkeypatch.setattr(json, "dumps", lambda plain: "[" * 200_000)
    rewrite(tmp_path / "f.twx", {})
    with pytest.raises(ModelFileError, match="too deep"):
        load(tmp_path / "f.twx")


def test_EXE_23_an_unknown_renderer_is_refused(tmp_path: Path, original: bytes) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    rewrite(tmp_path / "f.twx", {"renderer": "SOMEBODY"})
    with pytest.raises(UnsupportedError, match="a renderer that is not known"):
        load(tmp_path / "f.twx")


def test_EXE_23_code_that_promises_less_than_asked_for_is_refused(tmp_path: Path) -> None:
    with settings.override(fp_mode="contract"):
        make(tmp_path / "f.twx")
        load(tmp_path / "f.twx")
    with pytest.raises(UnsupportedError, match="an fp_mode that promises less"):
        load(tmp_path / "f.twx")
    with settings.override(fp_mode="fast"):
        load(tmp_path / "f.twx")
    make(tmp_path / "zeros.twx")
    with settings.override(keep_subnormals=True):
        with pytest.raises(UnsupportedError, match="subnormal numbers"):
            load(tmp_path / "zeros.twx")
        make(tmp_path / "kept.twx")
    load(tmp_path / "kept.twx")


def test_CST_06_code_without_proofs_is_refused_where_they_are_asked_for(tmp_path: Path) -> None:
    make(tmp_path / "trusted.twx")
    assert description(tmp_path / "trusted.twx")["accesses"] == "trusted"
    with settings.override(prove_accesses=True):
        make(tmp_path / "proven.twx")
        load(tmp_path / "proven.twx")
        with pytest.raises(UnsupportedError, match="accesses of the code in the file"):
            load(tmp_path / "trusted.twx")
    assert description(tmp_path / "proven.twx")["accesses"] == "proven"


def test_CST_06_code_without_checks_is_refused_where_they_are_asked_for(tmp_path: Path) -> None:
    with settings.override(prove_accesses=True):
        make(tmp_path / "proven.twx")
    with settings.override(check_accesses=True):
        make(tmp_path / "checked.twx")
        load(tmp_path / "checked.twx")
        with pytest.raises(UnsupportedError, match="accesses of the code in the file"):
            load(tmp_path / "proven.twx")
    assert description(tmp_path / "checked.twx")["accesses"] == "checked"
    with settings.override(prove_accesses=True):
        load(tmp_path / "checked.twx")  # a check promises more than a proof that trusts data


def test_CST_06_a_portable_file_is_proven_when_it_is_loaded(tmp_path: Path) -> None:
    make_portable(tmp_path / "f.twx")
    with settings.override(prove_accesses=True):
        assert load(tmp_path / "f.twx")(Tensor(sample())).shape == (4,)


@pytest.mark.parametrize("change", [{"isa": "aarch64"}, {"features": ["amx-fp16"]}])
def test_EXE_23_another_processor_is_refused(
    tmp_path: Path, original: bytes, change: dict[str, Any]
) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    rewrite(tmp_path / "f.twx", change)
    with pytest.raises(UnsupportedError, match="this processor cannot run"):
        load(tmp_path / "f.twx")


def test_EXE_23_a_newer_format_is_refused_by_number(tmp_path: Path, original: bytes) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    raw = bytearray((tmp_path / "f.twx").read_bytes())
    struct.pack_into("<I", raw, 8, 99)
    (tmp_path / "f.twx").write_bytes(raw)
    with pytest.raises(UnsupportedError, match="cannot read"):
        load(tmp_path / "f.twx")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    function = make(tmp_path / "f.twx")
    before = (tmp_path / "f.twx").read_bytes()
    with faults.count() as points:
        export(function, tmp_path / "g.twx")
    (tmp_path / "g.twx").unlink()
    with faults.fail_at(points.index("export.write")), pytest.raises(faults.InjectedFault):
        export(function, tmp_path / "f.twx")
    assert (tmp_path / "f.twx").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["f.twx"]


def test_a_jit_that_was_never_called_cannot_be_exported(tmp_path: Path) -> None:
    never: Any = jit(lambda x: x)
    with pytest.raises(CaptureError, match="nothing has been captured"):
        export(never, tmp_path / "f.twx")


def test_arguments_have_the_names_that_the_export_gave_them(tmp_path: Path) -> None:
    step = jit(lambda x, y: x * 2 + y)
    x, y = Tensor([1.0, 2.0]).realize(), Tensor([10.0, 20.0]).realize()
    expected = [step(x, y).tolist() for _ in range(2)][-1]
    export(step, tmp_path / "step.twx", names=["left", "right"])
    run = load(tmp_path / "step.twx")
    assert [name for name, _ in run.inputs] == ["left", "right"]
    assert run(right=y, left=x).tolist() == expected
    assert run(x, right=y).tolist() == expected
    assert run(x, y).tolist() == expected
    with pytest.raises(CaptureError, match="differs from the captured one"):
        run(left=x, middle=y)
    with pytest.raises(CaptureError):
        run(x, left=x, right=y)
    with pytest.raises(UserError, match="all tensors"):
        export(step, tmp_path / "step.twx", names=["one"])


def test_TRN_01_a_file_says_which_functions_are_native(tmp_path: Path, original: bytes) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    found = functions_of(tmp_path / "f.twx")
    assert found == choices(Device["CPU"].spec)
    assert found["exp/float32"] == found["sin/float64"] == "lowered"
    assert found["sqrt/float32"] == "native"


# --- signatures -----------------------------------------------------------------------------------

KEY = bytes(range(32))


def signed(path: Path, *, portable: bool = False) -> Any:
    function = jit(lambda x: x * 2 + 1)
    function(Tensor(sample()))
    export(function, path, key=KEY, portable=portable)
    return function


def test_EXE_23_a_signed_file_is_loaded_with_its_key_or_without_one(tmp_path: Path) -> None:
    signed(tmp_path / "f.twx")
    wanted = (sample() * 2 + 1).tolist()
    assert load(tmp_path / "f.twx", key=KEY)(Tensor(sample())).tolist() == wanted
    assert load(tmp_path / "f.twx")(Tensor(sample())).tolist() == wanted


def test_EXE_23_another_key_is_refused(tmp_path: Path) -> None:
    signed(tmp_path / "f.twx")
    with pytest.raises(ModelFileError, match="the signature of the file is wrong"):
        load(tmp_path / "f.twx", key=KEY[::-1])


def test_EXE_23_a_file_without_a_signature_is_refused_where_one_is_asked_for(
    tmp_path: Path, original: bytes
) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    with pytest.raises(ModelFileError, match="not signed"):
        load(tmp_path / "f.twx", key=KEY)


def test_EXE_23_a_signature_cannot_be_cut_off_or_moved_to_another_file(tmp_path: Path) -> None:
    signed(tmp_path / "f.twx")
    raw = bytearray((tmp_path / "f.twx").read_bytes())
    struct.pack_into("<Q", raw, 24, 0)
    (tmp_path / "cut.twx").write_bytes(raw[:-32])
    with pytest.raises(ModelFileError, match="not signed"):
        load(tmp_path / "cut.twx", key=KEY)
    make(tmp_path / "other.twx")
    other = bytearray((tmp_path / "other.twx").read_bytes())
    struct.pack_into("<Q", other, 24, 32)
    (tmp_path / "moved.twx").write_bytes(bytes(other) + bytes(raw[-32:]))
    with pytest.raises(ModelFileError, match="signature of the file is wrong"):
        load(tmp_path / "moved.twx", key=KEY)


def test_EXE_23_a_changed_description_with_right_checksums_is_not_signed(tmp_path: Path) -> None:
    signed(tmp_path / "f.twx")
    rewrite(tmp_path / "f.twx", {"num_inputs": 2})
    with pytest.raises(ModelFileError, match="signature of the file is wrong"):
        load(tmp_path / "f.twx", key=KEY)


@pytest.mark.parametrize("key", [b"", b"fifteen bytes..", "a text of more than 16 letters"])
def test_a_key_that_is_none_is_refused(tmp_path: Path, original: bytes, key: Any) -> None:
    (tmp_path / "f.twx").write_bytes(original)
    with pytest.raises(UserError, match="too short, or no bytes"):
        load(tmp_path / "f.twx", key=key)


# --- portable files -------------------------------------------------------------------------------


def make_portable(path: Path) -> Any:
    weight = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3) / 7).realize()
    function = jit(lambda x: (x @ weight).exp().sum(1))
    function(Tensor(sample()))
    export(function, path, portable=True)
    return function


def test_EXE_23_a_portable_file_gives_the_same_bits(tmp_path: Path) -> None:
    function = make_portable(tmp_path / "f.twx")
    loaded = load(tmp_path / "f.twx")
    wanted, got = function(Tensor(sample())).numpy(), loaded(Tensor(sample())).numpy()
    assert got.tobytes() == wanted.tobytes()


def test_EXE_23_a_portable_file_holds_no_machine_code(tmp_path: Path) -> None:
    make_portable(tmp_path / "f.twx")
    raw = (tmp_path / "f.twx").read_bytes()
    assert b"\x7fELF" not in raw
    assert b"sink" in raw


def test_EXE_23_what_is_made_for_another_processor_is_compiled_for_this_one(
    tmp_path: Path,
) -> None:
    x = np.linspace(-3, 3, 60, dtype=np.float32).reshape(6, 10)
    function = jit(lambda x: (x * 1.5).maximum(0).cumsum(1))
    function(Tensor(x, device="CPU:LLVM:x86-64-v2"))
    export(function, tmp_path / "f.twx", portable=True)
    got = load(tmp_path / "f.twx")(Tensor(x)).numpy()
    np.testing.assert_allclose(got, np.maximum(x * 1.5, 0).cumsum(1), rtol=1e-6)


def test_EXE_23_a_portable_file_with_packed_constants_gives_the_same_numbers(
    tmp_path: Path,
) -> None:
    numbers = np.random.default_rng(1).standard_normal((160, 192)).astype(np.float32)
    weight = Tensor(numbers).realize()
    function = jit(lambda x: x @ weight)
    x = np.random.default_rng(2).standard_normal((96, 160)).astype(np.float32)
    wanted = function(Tensor(x)).numpy()
    export(function, tmp_path / "m.twx", portable=True)
    assert load(tmp_path / "m.twx")(Tensor(x)).numpy().tobytes() == wanted.tobytes()


def test_EXE_23_a_portable_file_can_be_signed(tmp_path: Path) -> None:
    signed(tmp_path / "f.twx", portable=True)
    assert load(tmp_path / "f.twx", key=KEY)(Tensor(sample())).shape == (4, 2)


@pytest.mark.parametrize("field", ["features", "renderer", "compiler"])
def test_EXE_23_a_portable_file_names_no_target(tmp_path: Path, field: str) -> None:
    make_portable(tmp_path / "f.twx")
    rewrite(tmp_path / "f.twx", {field: ["avx2"] if field == "features" else "LLVM"})
    with pytest.raises(ModelFileError, match="portable, and has a target"):
        load(tmp_path / "f.twx")


def description(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    length = HEADER.unpack_from(raw)[2]
    found: dict[str, Any] = json.loads(raw[HEADER.size : HEADER.size + length])
    return found


def test_EXE_23_a_graph_never_gets_an_operand_that_is_too_small(tmp_path: Path) -> None:
    make_portable(tmp_path / "f.twx")
    steps = description(tmp_path / "f.twx")["steps"]
    steps[-1][1][0][2] -= 4
    rewrite(tmp_path / "f.twx", {"steps": steps})
    with pytest.raises(ModelFileError, match="a kernel reaches outside of its operand"):
        load(tmp_path / "f.twx")


@pytest.mark.parametrize("cut", [0, 1, 20, 200])
def test_EXE_23_a_graph_that_is_not_legal_is_refused(tmp_path: Path, cut: int) -> None:
    make_portable(tmp_path / "f.twx")
    kernels = description(tmp_path / "f.twx")["kernels"]
    offset, size = kernels[0]["place"]
    kernels[0]["place"] = [offset + cut, max(size - 30, 0) if cut == 0 else size - cut]
    rewrite(tmp_path / "f.twx", {"kernels": kernels})
    with pytest.raises(ModelFileError, match="the graph of a kernel is not legal"):
        load(tmp_path / "f.twx")
