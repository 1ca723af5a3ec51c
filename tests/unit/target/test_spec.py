import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.target import features as feature_table
from tilework.target.features import check_names, level_of, missing_features, normalize
from tilework.target.isa import IsaNote, decode_note
from tilework.target.known.cpu import Caches, aarch64_spec, x86_level_spec, x86_spec

V4 = x86_level_spec("x86-64-v4", cores=4)


@pytest.mark.parametrize(
    ("level", "bits", "registers", "fma"),
    [
        ("x86-64", 128, 16, False),
        ("x86-64-v2", 128, 16, False),
        ("x86-64-v3", 256, 16, True),
        ("x86-64-v4", 512, 32, True),
    ],
)
def test_levels_have_their_vectors(level: str, bits: int, registers: int, fma: bool) -> None:
    spec = x86_level_spec(level)
    assert (spec.vector_bits, spec.num_vector_registers, spec.has_fma) == (bits, registers, fma)
    assert (spec.cpu_name, "mulacc" in spec.native_ops) == (level, fma)


@pytest.mark.parametrize("lacking", ["avx512dq", "avx512bw", "avx512vl"])
def test_wide_vectors_need_all_parts_of_avx512(lacking: str) -> None:
    assert x86_spec(V4.features - {lacking}).vector_bits == 256


def test_arm_has_neon() -> None:
    spec = aarch64_spec()
    assert (spec.vector_bits, spec.num_vector_registers, spec.has_fma) == (128, 32, True)


def test_equal_specs_have_equal_keys_in_every_process() -> None:
    script = (
        "from tilework.target.known.cpu import x86_level_spec\n"
        "print(x86_level_spec('x86-64-v4', cores=4).key())\n"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert keys == {V4.key()}


def test_each_change_changes_the_key() -> None:
    others = [
        x86_level_spec("x86-64-v3", cores=4),
        x86_level_spec("x86-64-v4", cores=5),
        x86_level_spec("x86-64-v4", cores=4, extra=["gfni"]),
        x86_level_spec("x86-64-v4", cores=4, caches=Caches(l2_bytes=1 << 20)),
        replace(V4, keeps_subnormals=False),
    ]
    assert len({spec.key() for spec in [V4, *others]}) == 6


def test_a_spec_survives_the_way_to_a_worker() -> None:
    V4.key()
    assert pickle.loads(pickle.dumps(V4)) == V4


def test_memories_and_units_are_found_by_name() -> None:
    assert (V4.memory("L1").owner, V4.unit("lanes").count, V4.cores) == ("threads", 16, 4)
    assert V4.memory_bytes("VTCM") == 0
    with pytest.raises(UnsupportedError, match="no memory 'VTCM'"):
        V4.memory("VTCM")
    with pytest.raises(UnsupportedError, match="no parallel unit 'warp'"):
        V4.unit("warp")


def test_unknown_names_are_refused_before_they_reach_a_compiler() -> None:
    with pytest.raises(UnsupportedError, match="unknown x86-64 features\n  got: avx9000"):
        x86_spec({"sse2", "avx9000"})
    with pytest.raises(UnsupportedError, match="unknown instruction set"):
        check_names("vax", [])


@given(st.sets(st.sampled_from(sorted(feature_table.IMPLIES["x86-64"]))))
def test_a_normal_set_meets_its_own_needs(names: set[str]) -> None:
    kept = normalize("x86-64", names)
    needs = feature_table.IMPLIES["x86-64"]
    assert kept <= names
    assert all(kept.issuperset(needs[name]) for name in kept)
    assert normalize("x86-64", kept) == kept


def test_levels_are_closed_and_grow() -> None:
    rows = [set(row) for _, row in feature_table.CPU_LEVELS["x86-64"]]
    assert all(normalize("x86-64", row) == row for row in rows)
    assert all(better > worse for better, worse in pairwise(rows))


def test_a_machine_below_the_baseline_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="below the x86-64 baseline"):
        level_of("x86-64", ["sse"])


def test_a_note_tells_what_code_needs() -> None:
    note = IsaNote("x86-64", frozenset({"avx2", "sse4.1"}))
    assert decode_note(note.encode().encode() + b"\0") == note
    assert decode_note(IsaNote("aarch64", frozenset()).encode().encode()).features == frozenset()
    assert missing_features(note.features, {"sse4.1"}) == ("avx2",)


@pytest.mark.parametrize("data", [b"", b"tilework-isa-1;x86-64", b"other;a;b;", b"\xff\xfe;;;"])
def test_a_malformed_note_is_refused(data: bytes) -> None:
    with pytest.raises(ModelFileError, match="is malformed"):
        decode_note(data)
