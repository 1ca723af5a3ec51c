"""Memory shared with other libraries: DLPack both ways, from_blob, NumPy, PyTorch, JAX."""

from __future__ import annotations

import array
import ctypes
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.utils.dlpack

from tilework import Tensor, dtypes, jit
from tilework.base.errors import AliasError, DTypeError, ShapeError, UnsupportedError
from tilework.base.ledger import LEDGER

# --- out -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
def test_dlpack_shows_the_memory_itself(dtype: str) -> None:
    x = Tensor([1, 0, 1], dtype=dtype).clone().realize()
    shown = torch.utils.dlpack.from_dlpack(x)
    assert shown.tolist() == x.tolist()
    shown[0] = 0
    assert x.tolist()[0] == 0
    x[2] = 0
    x.realize()
    assert shown.tolist() == [0, 0, 0]


def test_dlpack_shows_views_with_their_strides() -> None:
    x = Tensor.arange(12).reshape(3, 4).clone().realize()
    for view in (x[1:], x[:, ::2], x.T, x[2]):
        shown = torch.utils.dlpack.from_dlpack(view)
        assert shown.tolist() == view.tolist()
    torch.utils.dlpack.from_dlpack(x.T)[3, 0] = 99
    assert x.tolist()[0][3] == 99


def test_dlpack_computes_what_is_not_computed_yet() -> None:
    assert torch.utils.dlpack.from_dlpack(Tensor([1.0]) + 1).tolist() == [2.0]


def test_a_flipped_view_is_exported_by_numpy_alone() -> None:
    x = Tensor.arange(3).flip(0)
    assert np.from_dlpack(x).tolist() == [2, 1, 0]


def test_dlpack_copies_where_it_is_asked_to() -> None:
    x = Tensor([1.0, 2.0]).clone().realize()
    copied = np.from_dlpack(x, copy=True)
    shown = np.from_dlpack(x, copy=False)
    x[0] = 5.0
    x.realize()
    assert copied.tolist() == [1.0, 2.0]
    assert shown.tolist() == [5.0, 2.0]


def test_what_numpy_lacks_is_copied_or_refused() -> None:
    x = Tensor([1.5], dtype=dtypes.bfloat16)
    assert torch.utils.dlpack.from_dlpack(x).tolist() == [1.5]
    with pytest.raises(BufferError, match="has to be copied"):
        x.__dlpack__(copy=False)
    with pytest.raises(ValueError, match="has to be copied"):
        np.asarray(x, copy=False)


def test_asarray_without_a_copy_shows_the_memory() -> None:
    x = Tensor([1.0, 2.0]).clone().realize()
    shown: Any = np.asarray(x, copy=False)
    shown[1] = 7.0
    assert x.tolist() == [1.0, 7.0]


def test_shown_memory_outlives_the_tensor() -> None:
    x = Tensor.arange(1000).clone().realize()
    shown = torch.utils.dlpack.from_dlpack(x)
    del x
    gc.collect()
    others = [Tensor.full((1000,), 7).clone().realize() for _ in range(4)]
    assert shown.tolist() == list(range(1000))
    assert others[0].shape == (1000,)


def test_a_replay_does_not_overwrite_a_result_that_is_shown() -> None:
    @jit
    def double(x: Tensor) -> Tensor:
        return (x * 2).realize()

    shown = []
    for number in range(4):
        found = double(Tensor([float(number)]).realize())
        shown.append(torch.utils.dlpack.from_dlpack(found))
        del found
    assert [each.item() for each in shown] == [0.0, 2.0, 4.0, 6.0]


def test_a_captured_function_sees_what_others_write_into_shown_weights() -> None:
    weight = Tensor(np.eye(64, dtype=np.float32)).clone().realize()
    x = Tensor(np.ones((64, 64), np.float32)).realize()

    @jit
    def product(x: Tensor) -> Tensor:
        return (x @ weight).realize()

    for _ in range(2):
        assert product(x).numpy()[0, 0] == 1.0
    shown = torch.utils.dlpack.from_dlpack(weight)
    for number in (2.0, 3.0):
        shown[:] = torch.eye(64) * number
        assert product(x).numpy()[0, 0] == number


# --- in --------------------------------------------------------------------------------------


def test_from_dlpack_shares_the_memory_of_pytorch() -> None:
    theirs = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    ours = Tensor.from_dlpack(theirs)
    assert ours.dtype is dtypes.float32
    theirs[0, 0] = 50
    assert ours.tolist()[0] == [50.0, 1.0, 2.0]
    ours[1, 2] = -1.0
    ours.realize()
    assert theirs[1, 2].item() == -1.0


def test_from_dlpack_copies_what_has_gaps() -> None:
    theirs = torch.arange(6).reshape(2, 3).T
    assert Tensor.from_dlpack(theirs).tolist() == theirs.tolist()


def test_what_was_lent_is_kept_and_given_back() -> None:
    gc.collect()
    Tensor([1]).realize()
    before = LEDGER.snapshot("from_blob")
    theirs = np.arange(4, dtype=np.int32)
    kept = weakref.ref(theirs)
    ours = Tensor.from_dlpack(theirs)
    del theirs
    gc.collect()
    assert kept() is not None
    assert ours.sum().item() == 6
    del ours
    gc.collect()
    Tensor([1]).realize()  # memory that nobody uses is given back when other memory is taken
    assert kept() is None
    assert LEDGER.snapshot("from_blob") == before


def test_memory_that_is_only_read_is_copied_when_it_is_written() -> None:
    theirs = np.arange(3, dtype=np.float32)
    theirs.flags.writeable = False
    ours = Tensor.from_blob(theirs.ctypes.data, (3,), keeper=theirs, is_readonly=True)
    ours += 1
    assert ours.tolist() == [1.0, 2.0, 3.0]
    assert theirs.tolist() == [0.0, 1.0, 2.0]


def test_from_blob_calls_back_once_when_the_memory_is_used_no_more() -> None:
    calls = []
    numbers = (ctypes.c_float * 4)(1, 2, 3, 4)
    x = Tensor.from_blob(
        ctypes.addressof(numbers), (2, 2), dtypes.float32, on_release=lambda: calls.append(1)
    )
    view = x[1]
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    del x
    gc.collect()
    assert view.tolist() == [3.0, 4.0]
    assert calls == []
    del view
    gc.collect()
    Tensor([1]).realize()
    assert calls == [1]


@pytest.mark.parametrize(("address", "shape"), [(2, (1,)), (64, (-1,))])
def test_what_is_no_memory_of_such_elements_is_refused(address: int, shape: Any) -> None:
    with pytest.raises(ShapeError, match="no memory of such elements"):
        Tensor.from_blob(address, shape)


def test_a_device_with_memory_of_its_own_refuses_that_of_the_host() -> None:
    numbers = array.array("f", [1.0])
    with pytest.raises((UnsupportedError, AliasError), match="from_blob"):
        Tensor.from_blob(numbers.buffer_info()[0], (1,), device="NULL")


@pytest.mark.parametrize(
    ("theirs", "dtype"),
    [
        (torch.tensor([1.5, -2.0], dtype=torch.bfloat16), dtypes.bfloat16),
        (torch.tensor([1.5, -2.0]).to(torch.float8_e5m2), dtypes.fp8e5m2),
        (torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn), dtypes.fp8e4m3),
        (torch.tensor([1.5, -2.0], requires_grad=True), dtypes.float32),
        (np.array([1.5, -2.0], ml_dtypes.bfloat16), dtypes.bfloat16),
        (np.array([1.5, -2.0], ">f8"), dtypes.float64),
    ],
)
def test_arrays_of_all_dtypes_come_in_with_their_values(theirs: Any, dtype: Any) -> None:
    for ours in (Tensor(theirs), Tensor.from_dlpack(theirs)):
        assert ours.dtype is dtype
        assert ours.tolist() == [1.5, -2.0]


def test_arrays_of_jax_come_in_and_go_out() -> None:
    import jax.numpy as jnp

    theirs = jnp.arange(4, dtype="float32") * 2
    assert Tensor(theirs).tolist() == [0.0, 2.0, 4.0, 6.0]
    assert Tensor.from_dlpack(theirs).tolist() == [0.0, 2.0, 4.0, 6.0]
    assert Tensor(jnp.ones(2, dtype="bfloat16")).dtype is dtypes.bfloat16
    assert jnp.from_dlpack(Tensor([1.0, 2.0]).realize()).tolist() == [1.0, 2.0]


def test_complex_arrays_are_refused_with_what_is_known() -> None:
    with pytest.raises(DTypeError, match="pairs of real ones"):
        Tensor.from_dlpack(np.ones(2, np.complex64))
