"""Wrong calls of each family: typed errors with what was got and what to do, at the user's line."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from tilework import Tensor, dtypes
from tilework.base.errors import TileworkError

F = Tensor.ones(2, 3)
I = Tensor([[1, 2, 3], [4, 5, 6]])  # noqa: E741  # integers

WRONG: dict[str, Any] = {
    "shape: matmul": lambda: F @ F,
    "shape: add": lambda: F + Tensor.ones(2),
    "shape: reshape": lambda: F.reshape(4, 2),
    "shape: two unknown sizes": lambda: F.reshape(-1, -1),
    "shape: expand": lambda: F.expand(2, 4),
    "shape: permute": lambda: F.permute(0, 0),
    "shape: transpose": lambda: F.transpose(0, 5),
    "shape: squeeze": lambda: F.squeeze(7),
    "shape: cat": lambda: F.cat(Tensor.ones(3, 2)),
    "shape: stack": lambda: F.stack(Tensor.ones(3)),
    "shape: split": lambda: F.split([1, 5]),
    "shape: pad": lambda: F.pad((1,)),
    "shape: reflect": lambda: F.pad((5, 5), mode="reflect"),
    "shape: conv2d": lambda: Tensor.ones(1, 3, 8, 8).conv2d(Tensor.ones(4, 2, 3, 3)),
    "shape: unfold": lambda: F.unfold(0, 5, 1),
    "shape: max of nothing": lambda: Tensor.zeros(0).max(),
    "shape: sum": lambda: F.sum(axis=4),
    "shape: topk": lambda: F.topk(9),
    "shape: item": lambda: F.item(),
    "shape: truth": lambda: bool(F),
    "shape: nested lists": lambda: Tensor([[1, 2], [3]]),
    "shape: negative size": lambda: Tensor.zeros(-1),
    "shape: einsum": lambda: Tensor.einsum("ij,jk->ik", F, F),
    "shape: backward": lambda: Tensor([1.0, 2.0], requires_grad=True).backward(),
    "shape: assign": lambda: F.clone().assign(Tensor.ones(5)),
    "index: position": lambda: F[2],
    "index: too many": lambda: F[0, 0, 0],
    "index: list": lambda: F[[0, 5]],
    "index: mask": lambda: F[Tensor([True])],
    "index: float": lambda: F[0.5],
    "index: text": lambda: F["a"],
    "index: gather": lambda: F.gather(0, Tensor([0])),
    "index: scatter": lambda: F.scatter(0, Tensor([[0.0]]), 1.0),
    "index: index_add": lambda: F.index_add(0, Tensor([0]), Tensor.ones(2, 3)),
    "index: index_select": lambda: F.index_select(0, Tensor([0.0])),
    "dtype: unknown": lambda: F.cast("float31"),
    "dtype: shift of floats": lambda: F << 1,
    "dtype: bitwise of floats": lambda: F & 1,
    "dtype: too large": lambda: Tensor([300], dtype=dtypes.uint8),
    "dtype: beyond 64 bits": lambda: Tensor([2**70]),
    "dtype: text": lambda: Tensor("abc"),
    "dtype: gradients of integers": lambda: I.requires_grad_(),
    "dtype: float into integers": lambda: I.clone().assign(1.5),
    "dtype: bitcast": lambda: F.bitcast(dtypes.float64),
    "dtype: one_hot": lambda: F.one_hot(3),
    "device: unknown": lambda: F.to("TOASTER"),
    "device: mixed": lambda: F + Tensor.ones(2, 3, device="PYTHON"),
    "value: step of 0": lambda: Tensor.arange(0, 5, 0),
    "value: reduction": lambda: F.cross_entropy(Tensor([0, 1]), reduction="median"),
    "value: pad mode": lambda: F.pad((1, 1), mode="mirror"),
    "value: scatter_reduce": lambda: F.scatter_reduce(0, I * 0, F, "median"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_what_it_got_and_what_would_be_right(name: str) -> None:
    with pytest.raises(TileworkError) as caught:
        WRONG[name]()
    error = caught.value
    assert ": " in error.message
    assert error.got is not None
    assert error.expected is not None or error.try_ is not None
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.filename == __file__
