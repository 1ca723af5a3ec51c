"""Dtypes of which two elements share a byte: int4, uint4 and fp4e2m1."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.base.errors import DTypeError, ModelFileError, ShapeError
from tilework.nn.state import load_state_dict, safe_load, safe_save

SHAPES = [(6,), (3, 4), (5,), (3, 5), (), (2, 3, 4), (0,), (0, 4), (1, 1)]
RANDOM = np.random.default_rng(1)
ROWS = [[1, -2, 3, -4], [5, -6, 7, -8]]


def packed_rows(device: str | None = None) -> Tensor:
    return Tensor(ROWS, dtype=dtypes.int4, device=device)


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("shape", SHAPES)
def test_integers_of_four_bits_keep_their_values(shape: tuple[int, ...], device: str) -> None:
    values = RANDOM.integers(-8, 8, shape).astype(np.int8)
    signed = Tensor(values, dtype=dtypes.int4, device=device).realize()
    unsigned = Tensor((values & 15).astype(np.uint8), dtype="uint4", device=device)
    assert (signed.dtype, signed.shape, signed.device) == (dtypes.int4, shape, device)
    assert signed.nbytes() == (values.size + 1) // 2
    np.testing.assert_array_equal(signed.numpy(), values)
    np.testing.assert_array_equal(unsigned.numpy(), values & 15)


def test_floats_of_four_bits_are_rounded_as_ml_dtypes_does() -> None:
    edges = [0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, 7, 100, np.inf]
    near = np.nextafter(np.array(edges, np.float32), np.float32("inf"))
    below = np.nextafter(np.array(edges, np.float32), np.float32("-inf"))
    values = np.concatenate([np.array(edges, np.float32), near, below]).astype(np.float32)
    values = np.concatenate([values, -values, np.array([np.nan, 1], np.float32)])
    want = values.astype(ml_dtypes.float4_e2m1fn)
    found = Tensor(values).cast(dtypes.fp4e2m1)
    np.testing.assert_array_equal(found.numpy(), want.astype(np.float32))
    halves = want.view(np.uint8).reshape(-1, 2)
    np.testing.assert_array_equal(
        found.bitcast(dtypes.uint8).numpy(), halves[:, 0] | (halves[:, 1] << 4)
    )


def test_casts_wrap_integers_and_saturate_floats() -> None:
    assert Tensor([7, 8, 15, 16, -9]).cast(dtypes.int4).tolist() == [7, -8, -1, 0, 7]
    floats = Tensor([7.9, 8.5, -8.9, 100.0, float("nan"), float("-inf")])
    assert floats.cast(dtypes.int4).tolist() == [7, 7, -8, 7, 0, -8]
    assert floats.cast(dtypes.uint4).tolist() == [7, 8, 0, 15, 0, 0]


def test_bytes_and_halves_are_the_same_memory_read_differently() -> None:
    x = packed_rows()
    data = x.bitcast(dtypes.uint8)
    assert data.tolist() == [[0xE1, 0xC3], [0xA5, 0x87]]
    assert data.bitcast(dtypes.int4).tolist() == ROWS
    assert x.bitcast(dtypes.uint4).tolist() == [[1, 14, 3, 12], [5, 10, 7, 8]]


def test_movement_and_indexing_keep_the_dtype() -> None:
    x, plain = packed_rows(), np.array(ROWS)
    cases = [
        (x[0, 1:3], plain[0, 1:3]), (x[:, ::-2], plain[:, ::-2]), (x[[1, 0, 1]], plain[[1, 0, 1]]),
        (x.T, plain.T), (x.reshape(8), plain.reshape(8)), (x.flip(1), plain[:, ::-1]),
        (x.cat(x, dim=1), np.concatenate([plain, plain], 1)), (x.unbind()[1], plain[1]),
    ]  # fmt: skip
    for found, want in cases:
        assert found.dtype is dtypes.int4
        np.testing.assert_array_equal(found.numpy(), want)


def test_arithmetic_is_done_in_the_dtype_of_the_values() -> None:
    x, plain = packed_rows(), np.array(ROWS, np.int8)
    for found, want in (
        (x + x, plain + plain), (3 - x, 3 - plain), (x * Tensor([2]), plain * np.int32(2)),
        (x > 0, plain > 0), (x.sum(1), plain.sum(1)), (x.max(0), plain.max(0)),
        (Tensor([1.5]) * x, np.float32(1.5) * plain), (-x, -plain),
        (Tensor([True, False, True, True]).where(x, 0), np.where([1, 0, 1, 1], plain, 0)),
    ):  # fmt: skip
        np.testing.assert_array_equal(found.numpy(), want)
        assert found.numpy().dtype.kind == want.dtype.kind
    assert (x + x).dtype is dtypes.int8
    assert (Tensor([1.0]).cast(dtypes.fp4e2m1) + 1).dtype is dtypes.float32


def test_promotion_takes_the_dtype_of_the_values() -> None:
    assert dtypes.promote(dtypes.int4, dtypes.uint4) is dtypes.int16
    assert dtypes.promote(dtypes.int4, dtypes.int4) is dtypes.int8
    assert dtypes.promote(dtypes.fp4e2m1, dtypes.bfloat16) is dtypes.bfloat16
    assert dtypes.promote(dtypes.fp4e2m1, dtypes.int64) is dtypes.float32
    assert dtypes.promote(dtypes.bool, dtypes.uint4) is dtypes.uint8


def test_a_product_reads_packed_weights_in_one_kernel() -> None:
    weights = RANDOM.integers(-8, 8, (32, 64))
    x = RANDOM.standard_normal((4, 64)).astype(np.float32)
    packed = Tensor(weights, dtype=dtypes.int4).realize()
    found = Tensor(x) @ (packed.float() * 0.125).T
    np.testing.assert_allclose(found.numpy(), x @ (weights * 0.125).T, rtol=1e-5, atol=1e-4)


def test_quantising_gives_packed_integers_and_takes_them_back() -> None:
    x = Tensor([0.1, 0.9, -2.0, 5.0])
    packed = x.quantize(0.25, dtype=dtypes.int4)
    assert packed.dtype is dtypes.int4
    assert packed.tolist() == [0, 4, -8, 7]
    assert packed.dequantize(0.25).tolist() == [0.0, 1.0, -2.0, 1.75]


def test_captures_take_packed_arguments_and_constants() -> None:
    fixed, x = packed_rows().realize(), Tensor([[1.0, 2.0, 3.0, 4.0]]).realize()

    @jit
    def product(weights: Tensor, x: Tensor) -> Any:
        return x @ weights.float().T, x @ fixed.float().T, weights.T

    for sign in (1, 1, 1, -1):
        weights = Tensor(np.clip(sign * np.array(ROWS), -8, 7), dtype=dtypes.int4)
        by_argument, by_constant, moved = product(weights, x)
        np.testing.assert_array_equal(by_argument.numpy(), x.numpy() @ weights.numpy().T)
        np.testing.assert_array_equal(by_constant.numpy(), x.numpy() @ np.array(ROWS).T)
        assert moved.dtype is dtypes.int4
        np.testing.assert_array_equal(moved.numpy(), weights.numpy().T)


def test_whole_writes_copies_and_pickles_keep_the_dtype() -> None:
    x = packed_rows()
    before, other = x + 0, x.clone()
    other.assign(packed_rows().flip(0))
    x.assign(other)
    assert before.tolist() == ROWS
    assert x.tolist() == ROWS[::-1]
    for again in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert again.dtype is dtypes.int4
        assert again.tolist() == ROWS[::-1]


def test_the_gradient_of_a_cast_passes_as_that_of_other_casts() -> None:
    x = Tensor([1.3, 2.7], requires_grad=True)
    x.cast(dtypes.fp4e2m1).float().square().sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 6.0]


@pytest.mark.parametrize("kind", ["int4", "uint4", "fp4e2m1"])
@pytest.mark.parametrize("shape", [(2, 4), (3, 3), (2, 3), (0, 2)])
def test_files_keep_packed_tensors(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    values = Tensor(RANDOM.integers(0, 7, shape).astype(np.float32)).cast(kind)
    safe_save({"w": values, "x": Tensor([1.0])}, tmp_path / "w.safetensors", {"a": "b"})
    found = safe_load(tmp_path / "w.safetensors")
    assert (found["w"].dtype.name, found["w"].shape) == (kind, shape)
    np.testing.assert_array_equal(found["w"].numpy(), values.numpy())
    model = {"w": Tensor.zeros(*shape, dtype=kind), "x": Tensor([0.0])}
    load_state_dict(model, found)
    np.testing.assert_array_equal(model["w"].numpy(), values.numpy())


def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    safe_save({"w": packed_rows()}, path)
    path.write_bytes(path.read_bytes().replace(b"[2, 4]", b"[2, 9]"))
    with pytest.raises(ModelFileError, match="metadata"):
        safe_load(path)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: Tensor([8], dtype=dtypes.int4), DTypeError, "-8 to 7"),
        (lambda: Tensor([-1], dtype=dtypes.uint4), DTypeError, "0 to 15"),
        (lambda: Tensor.full((2,), 9, dtype=dtypes.int4), DTypeError, "-8 to 7"),
        (lambda: Tensor.arange(4, dtype=dtypes.int4), DTypeError, "stored and converted only"),
        (lambda: Tensor.rand(4, dtype=dtypes.fp4e2m1), DTypeError, "stored and converted only"),
        (lambda: packed_rows().__setitem__(0, 9), DTypeError, "-8 to 7"),
        (lambda: packed_rows().__setitem__(0, Tensor([1] * 4)), DTypeError, "may not fit"),
        (lambda: packed_rows().assign(Tensor([[1] * 4] * 2)), DTypeError, "may not fit"),
        (lambda: packed_rows().bitcast(dtypes.int32), DTypeError, "8 bits"),
        (lambda: packed_rows()[:, :3].bitcast(dtypes.uint8), ShapeError, "odd size"),
    ],
)
def test_what_packed_dtypes_cannot_do_is_said(call: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


#: Each takes a tensor or an array of the shape (2, 3, 4).
MOVEMENTS: dict[str, tuple[Any, Any]] = {
    "reshape": (lambda x: x.reshape(6, 4), lambda x: x.reshape(6, 4)),
    "reshape to odd rows": (lambda x: x.reshape(8, 3), lambda x: x.reshape(8, 3)),
    "reshape of all": (lambda x: x.reshape(-1), lambda x: x.reshape(-1)),
    "axes before the last": (lambda x: x.permute(1, 0, 2), lambda x: x.transpose(1, 0, 2)),
    "all axes": (lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "whole bytes": (lambda x: x[::-1, 1:], lambda x: x[::-1, 1:]),
    "one row": (lambda x: x[1, 2], lambda x: x[1, 2]),
    "a new axis": (lambda x: x[None, 1], lambda x: x[None, 1]),
    "halves": (lambda x: x[:, :, 1:3], lambda x: x[:, :, 1:3]),
    "the last axis alone": (lambda x: x[..., ::2], lambda x: x[..., ::2]),
    "nothing": (lambda x: x[:0], lambda x: x[:0]),
    "cat": (lambda x: Tensor.cat(x, x, dim=-1), lambda x: np.concatenate([x, x], -1)),
    "cat of a list": (lambda x: x.cat([x], dim=1), lambda x: np.concatenate([x, x], 1)),
    "stack": (lambda x: x.stack([x], dim=1), lambda x: np.stack([x, x], 1)),
    "pad": (lambda x: x.pad((1, 0, 2, 1)), lambda x: np.pad(x, ((0, 0), (2, 1), (1, 0)))),
    "tril": (lambda x: x.tril(), np.tril),
    "sort": (lambda x: x.sort(-1)[0], lambda x: np.sort(x, -1)),
    "roll": (lambda x: x.roll(1, 2), lambda x: np.roll(x, 1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["int4", "uint4", "fp4e2m1"])
@pytest.mark.parametrize("name", MOVEMENTS)
def test_elements_are_moved_like_those_of_other_tensors(name: str, kind: str) -> None:
    ours, theirs = MOVEMENTS[name]
    x = Tensor((np.arange(24).reshape(2, 3, 4) % 7).astype(np.float32)).cast(kind)
    found = ours(x)
    assert found.dtype is getattr(dtypes, kind)
    np.testing.assert_array_equal(found.numpy(), theirs(x.numpy()))


@pytest.mark.parametrize("index", [0, (slice(None), 1), (1, 2), (..., slice(1, 4))])
@pytest.mark.parametrize("kind", ["int4", "fp4e2m1"])
def test_elements_are_written_by_index(index: Any, kind: str) -> None:
    x = Tensor(np.arange(10).reshape(2, 5).astype(np.float32) % 4).cast(kind)
    wanted = x.numpy().copy()
    x[index] = 2
    wanted[index] = 2
    np.testing.assert_array_equal(x.numpy(), wanted)
    assert x.dtype is getattr(dtypes, kind)


def test_a_gradient_passes_through_moved_floats_of_four_bits() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (x.cast(dtypes.fp4e2m1).reshape(4)[2:] * Tensor([5.0, 7.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 0.0], [5.0, 7.0]]
