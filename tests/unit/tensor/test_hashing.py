"""Hashes against hashlib."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tilework import Tensor
from tilework.base.errors import DTypeError, UserError
from tilework.engine.stats import COUNTERS

MESSAGE = bytes(range(256))


@pytest.mark.parametrize("kind", ["sha3_224", "sha3_256", "sha3_512"])
@pytest.mark.parametrize("length", [0, 3, 144])
def test_a_hash_is_that_of_hashlib(kind: str, length: int) -> None:
    got = Tensor(MESSAGE[:length]).keccak(kind)
    assert bytes(got.tolist()) == hashlib.new(kind, MESSAGE[:length]).digest()


def test_a_message_that_fills_its_block_ends_in_the_next_one() -> None:
    message = MESSAGE[:136]
    assert bytes(Tensor(message).keccak().tolist()) == hashlib.sha3_256(message).digest()


def test_each_row_is_hashed() -> None:
    rows = Tensor(MESSAGE).reshape(4, 64).keccak("shake_128")
    want = [hashlib.shake_128(MESSAGE[i : i + 64]).digest(16) for i in range(0, 256, 64)]
    assert [bytes(row) for row in rows.tolist()] == want


def test_more_blocks_are_more_runs_of_the_same_kernels() -> None:
    Tensor(MESSAGE * 4).keccak().realize()
    before = COUNTERS.compiles
    Tensor(MESSAGE * 32)[:7000].keccak().realize()
    assert COUNTERS.compiles - before <= 6


@pytest.mark.slow
def test_the_hash_of_a_tensor_is_a_tree_of_hashes_of_its_bytes() -> None:
    data = MESSAGE.ljust(1 << 20, b"\0")
    leaves = [hashlib.shake_128(data[i : i + 4096]).digest(16) for i in range(0, len(data), 4096)]
    want = hashlib.shake_128(b"".join(leaves)).digest(16)
    assert bytes(Tensor(MESSAGE).hash().tolist()) == want


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: Tensor([1, 2]).keccak(), DTypeError),
        (lambda: Tensor(b"a").keccak("md5"), UserError),
    ],
)
def test_what_cannot_be_hashed_is_refused(call: Any, error: Any) -> None:
    with pytest.raises(error, match="keccak"):
        call()
