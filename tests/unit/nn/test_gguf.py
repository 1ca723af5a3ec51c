"""Files in the GGUF format."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tilework import dtypes
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.nn.state import gguf_load
from tilework.nn.state.gguf_blocks import FORMATS, decode

#: CRC-32 of 20 blocks of random bytes as float32 (NaN and -0.0 as 0.0), from the reference
#: implementation of the formats.
CHECKSUMS = {
    2: 0xE49506B3, 3: 0x871927BF, 6: 0x8B17F1B3, 7: 0x7DD27D61, 8: 0x9E6389F8, 10: 0x016A47B5,
    11: 0x70227FD8, 12: 0x609FDB61, 13: 0x32873430, 14: 0x17B4937D, 16: 0x37D1B472,
    17: 0x88211C9E, 18: 0x6DB10558, 19: 0x4F3FEA4D, 20: 0xDDB21DDA, 21: 0x50E4588B,
    22: 0xE93F9327, 23: 0x9575502F, 29: 0xC1F08729, 34: 0xB7DD1C28, 35: 0x555641A7,
    39: 0xCD0D07C4, 40: 0x228ECBE1,
}  # fmt: skip


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_file(
    path: Path,
    tensors: Mapping[str, tuple[tuple[int, ...], int, bytes]],
    facts: bytes = b"",
    fact_count: int = 0,
    version: int = 3,
) -> Path:
    rows, data = b"", b""
    for name, (shape, kind, raw) in tensors.items():
        rows += text(name) + struct.pack("<I", len(shape))
        rows += struct.pack(f"<{len(shape)}Q", *reversed(shape))
        rows += struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), fact_count) + facts + rows
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize("kind", CHECKSUMS)
def test_blocks_are_decoded_as_the_reference_does(kind: int) -> None:
    form = FORMATS[kind]
    raw = np.random.default_rng(kind).integers(0, 256, (20, form.size), dtype=np.uint8)
    found = np.frombuffer(decode(memoryview(raw.tobytes()), form), np.float32)
    assert len(found) == 20 * form.elements
    found = np.where(np.isnan(found), np.float32(0), found) + np.float32(0)
    assert zlib.crc32(found.tobytes()) == CHECKSUMS[kind]


def test_plain_tensors_keep_their_dtype_and_have_row_major_shapes(tmp_path: Path) -> None:
    values = np.arange(6).reshape(2, 3)
    kinds = {0: "<f4", 1: "<f2", 24: "i1", 25: "<i2", 26: "<i4", 27: "<i8", 28: "<f8"}
    tensors = {
        str(kind): ((2, 3), kind, values.astype(form).tobytes()) for kind, form in kinds.items()
    }
    _, found = gguf_load(gguf_file(tmp_path / "plain.gguf", tensors))
    for kind, form in kinds.items():
        assert found[str(kind)].numpy().dtype == np.dtype(form)
        assert found[str(kind)].tolist() == values.tolist()


def test_bfloat16_tensors_keep_their_dtype(tmp_path: Path) -> None:
    raw = np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16
    path = gguf_file(tmp_path / "b.gguf", {"w": ((2,), 30, raw.astype("<u2").tobytes())})
    found = gguf_load(path)[1]["w"]
    assert found.dtype is dtypes.bfloat16
    assert found.float().tolist() == [1.5, -2.0]


def test_facts_of_every_kind_come_back(tmp_path: Path) -> None:
    facts = text("number") + struct.pack("<IQ", 10, 2**63)
    facts += text("real") + struct.pack("<If", 6, 0.5)
    facts += text("name") + struct.pack("<I", 8) + text("modèle")
    facts += text("flag") + struct.pack("<I?", 7, True)
    facts += text("list") + struct.pack("<IIQ3i", 9, 5, 3, 1, -2, 3)
    facts += text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    facts += text("nested") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQB", 0, 1, 7)
    found, tensors = gguf_load(gguf_file(tmp_path / "facts.gguf", {}, facts, 7))
    assert tensors == {}
    assert found == {
        "number": 2**63, "real": 0.5, "name": "modèle", "flag": True, "list": [1, -2, 3],
        "words": ["a", "b"], "nested": [[7]],
    }  # fmt: skip


def test_a_format_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "new.gguf", {"w": ((32,), 99, bytes(32))})
    with pytest.raises(UnsupportedError, match=r"'w' has a format(.|\n)*99(.|\n)*Q4_K"):
        gguf_load(path)


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "big.gguf", {}, version=3 << 24)
    with pytest.raises(UnsupportedError, match="big-endian"):
        gguf_load(path)


@pytest.mark.parametrize("size", [0, 3, 10, 30, 60, 90])
def test_a_file_that_ends_early_is_refused(size: int, tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "short.gguf", {"w": ((8,), 0, bytes(32))})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelFileError):
        gguf_load(path)


def test_rows_that_are_no_whole_blocks_are_refused(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "part.gguf", {"w": ((2, 16), 8, bytes(34))})
    with pytest.raises(ModelFileError, match="no whole blocks"):
        gguf_load(path)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize("kind", CHECKSUMS)
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_any_number_of_blocks_is_decoded_block_by_block(
    kind: int, rows: int, tmp_path: Path
) -> None:
    form = FORMATS[kind]
    raw = np.random.default_rng(kind).integers(0, 256, (rows, form.size), dtype=np.uint8)
    path = gguf_file(tmp_path / "r.gguf", {"w": ((rows, form.elements), kind, raw.tobytes())})
    found = gguf_load(path)[1]["w"].numpy()
    single = [np.frombuffer(decode(memoryview(row.tobytes()), form), np.float32) for row in raw]
    np.testing.assert_array_equal(found.view(np.uint32), np.stack(single).view(np.uint32))


def test_files_with_changed_bytes_are_read_or_refused_by_a_typed_error(tmp_path: Path) -> None:
    facts = text("number") + struct.pack("<IQ", 10, 2**63)
    facts += text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    tensors = {"w": ((3, 32), 8, bytes(34 * 3)), "v": ((5, 3), 0, bytes(60))}
    path = gguf_file(tmp_path / "damaged.gguf", tensors, facts, 2)
    good, generator, refused = path.read_bytes(), np.random.default_rng(1), 0
    for _ in range(400):
        damaged = bytearray(good)
        for place in generator.integers(4, 260, 2):
            damaged[place] = generator.integers(0, 256)
        path.write_bytes(bytes(damaged[: generator.integers(200, 2 * len(good))]))
        try:
            found = gguf_load(path)[1]
        except (ModelFileError, UnsupportedError):
            refused += 1
        else:
            assert all(tensor.numpy().size >= 0 for tensor in found.values())
    assert 100 < refused < 400
