"""Folds that share a loop, though one of them depends on fewer ranges than the other."""

import numpy as np
import pytest

from tilework import Tensor


@pytest.mark.parametrize("shape", [(17, 33), (4, 7), (2, 31)])
@pytest.mark.parametrize("fold", ["sum", "max"])
def test_rows_less_their_fold_can_be_padded(shape: tuple[int, int], fold: str) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape) * 7919 % 101 - 50
    t = Tensor(x)
    folded = t.max(-1, keepdim=True) if fold == "max" else t.sum(-1, keepdim=True, dtype="int32")
    found = (t - folded).pad(((1, 2), (2, 1))).numpy()
    wanted = x - getattr(np, fold)(x, axis=-1, keepdims=True).astype(np.int32)
    np.testing.assert_array_equal(found, np.pad(wanted, ((1, 2), (2, 1))))
