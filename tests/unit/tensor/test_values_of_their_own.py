"""What makes new values never shows a later write to its operand, nor writes into it.

PyTorch says which methods give views; also where there is nothing to do (a roll by 0, a padding
by nothing, a sum over no axis), the others give values of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tilework import Tensor

Call = tuple[Callable[[Any], Any], Callable[[Any], Any]]
X = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)


def both(call: Callable[[Any], Any]) -> Call:
    return call, call


CALLS: dict[str, Call] = {
    "a roll by nothing": both(lambda x: x.roll(0, 0)),
    "a roll by the size": both(lambda x: x.roll((3, 4), (0, 1))),
    "a roll by no axis": both(lambda x: x.roll(0)),
    "no turn": both(lambda x: x.rot90(4)),
    "a half turn": both(lambda x: x.rot90(2)),
    "a flip": both(lambda x: x.flip(0)),
    "no padding": (lambda x: x.pad((0, 0)), lambda x: F.pad(x, (0, 0))),
    "a padding that cuts off": (lambda x: x.pad((-1, 0)), lambda x: F.pad(x, (-1, 0))),
    "a reflection of nothing": (
        lambda x: x.pad((0, 0), mode="reflect"),
        lambda x: F.pad(x, (0, 0), mode="reflect"),
    ),
    "a circle that is cut off": (
        lambda x: x.pad((0, -1), mode="circular"),
        lambda x: F.pad(x, (0, -1), mode="circular"),
    ),
    "the power 1": both(lambda x: x**1),
    "no difference": both(lambda x: x.diff(n=0)),
    "the same size": (
        lambda x: x[None].interpolate(4, mode="nearest"),
        lambda x: F.interpolate(x[None], 4, mode="nearest"),
    ),
    "a shift of one": (lambda x: x[:1].fftshift(0), lambda x: torch.fft.fftshift(x[:1], 0)),
    "pixels": (
        lambda x: x.reshape(4, 3, 1).pixel_shuffle(2),
        lambda x: F.pixel_shuffle(x.reshape(4, 3, 1), 2),
    ),
    "pixels back": (
        lambda x: x.reshape(1, 6, 2).pixel_unshuffle(2),
        lambda x: F.pixel_unshuffle(x.reshape(1, 6, 2), 2),
    ),
    "channels": (
        lambda x: x.reshape(1, 4, 3, 1).channel_shuffle(2),
        lambda x: F.channel_shuffle(x.reshape(1, 4, 3, 1), 2),
    ),
    "the first power": (
        lambda x: x[:, :3].matrix_power(1),
        lambda x: torch.linalg.matrix_power(x[:, :3], 1),
    ),
    "columns": (lambda x: x[None].im2col((2, 2)), lambda x: F.unfold(x[None], (2, 2))),
    "a diagonal": both(lambda x: x.diag()),
    "a running sum of one": both(lambda x: x[:, :1].cumsum(1)),
    "a running logarithm of one": both(lambda x: x[:, :1].logcumsumexp(1)),
    "a running maximum of one": both(lambda x: x[:, :1].cummax(1)[0]),
    "a repetition of one": both(lambda x: x.repeat(1, 1)),
    "each element once": both(lambda x: x.repeat_interleave(1, 0)),
    "one tensor joined": (lambda x: Tensor.cat(x), lambda x: torch.cat([x])),
    "the least one of one": both(lambda x: x[:, :1].sort(1)[0]),
    "a rounding": both(lambda x: x.round()),
    "the sum of a scalar": both(lambda x: x[0, 0].sum()),
    "the maximum of a scalar": both(lambda x: x[0, 0].amax()),
    "the running sum of a scalar": both(lambda x: x[0, 0].cumsum(0)),
    "the running product of a scalar": both(lambda x: x[0, 0].cumprod(0)),
    "the running maximum of a scalar": both(lambda x: x[0, 0].cummax(0)[0]),
    "the running logarithm of a scalar": both(lambda x: x[0, 0].logcumsumexp(0)),
    "a sorted scalar": both(lambda x: x[0, 0].sort()[0]),
    "the median of a scalar": both(lambda x: x[0, 0].median()),
    "the best of a scalar": both(lambda x: x[0, 0].topk(1)[0]),
    "the product of a scalar": both(lambda x: x[0, 0].prod()),
    "the mean of a scalar": both(lambda x: x[0, 0].mean()),
    "the mode of a scalar": both(lambda x: x[0, 0].mode()[0]),
    "the softmax of a scalar": both(lambda x: x[0, 0].softmax(0)),
    "the flip of a scalar": both(lambda x: x[0, 0].flip(())),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_later_write_is_seen_where_pytorch_sees_it(name: str, dtype: Any) -> None:
    values = X.astype(dtype)
    own, other = CALLS[name]
    x, y = Tensor(values.copy()), torch.tensor(values)
    found, expected = own(x), other(y)
    x += 100
    y += 100
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_a_write_into_the_result_reaches_what_pytorchs_reaches(name: str) -> None:
    own, other = CALLS[name]
    x, y = Tensor(X.copy()), torch.tensor(X)
    found, expected = own(x), other(y)
    found += 100
    expected += 100
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    np.testing.assert_array_equal(x.numpy(), y.numpy())


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "nan_to_num", "abs"])
def test_integers_that_stay_as_they_are_are_values_of_their_own(name: str) -> None:
    for dtype in (np.int32, np.uint8):
        x = Tensor(np.array([1, 2, 3], dtype))
        found = getattr(x, name)()
        x += 10
        assert found.tolist() == [1, 2, 3]
