"""Products in a narrower dtype within a block."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import Tensor, autocast, dtypes, jit
from tilework.base.errors import UserError


def numbers(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(3).standard_normal(shape).astype(np.float32))


def test_products_of_float32_have_the_dtype_of_the_block() -> None:
    x, w = numbers(4, 8), numbers(8, 2)
    with autocast(dtypes.bfloat16):
        found = x @ w
        assert Tensor.einsum("ij,jk->ik", x, w).dtype is dtypes.bfloat16
    assert found.dtype is dtypes.bfloat16
    exact = x.cast(dtypes.bfloat16) @ w.cast(dtypes.bfloat16)
    assert np.array_equal(found.float().numpy(), exact.float().numpy())
    assert (x @ w).dtype is dtypes.float32


def test_convolutions_have_it_too() -> None:
    x, w = numbers(1, 3, 5, 5), numbers(2, 3, 3, 3)
    with autocast("float16"):
        assert x.conv2d(w).dtype is dtypes.float16
        assert x.conv_transpose2d(numbers(3, 2, 3, 3)).dtype is dtypes.float16


def test_everything_else_keeps_its_dtype() -> None:
    x = numbers(4, 8)
    with autocast(dtypes.bfloat16):
        assert (x * 2).dtype is dtypes.float32
        assert x.softmax(-1).dtype is dtypes.float32
        assert x.layernorm().dtype is dtypes.float32
        whole = Tensor([[1, 2]]) @ Tensor([[3], [4]])
    assert whole.tolist() == [[11]]


def test_a_dtype_that_is_asked_for_is_given() -> None:
    with autocast(dtypes.bfloat16):
        assert numbers(2, 2).matmul(numbers(2, 2), dtype=dtypes.float32).dtype is dtypes.float32


def test_attention_keeps_its_scores_wide() -> None:
    q, k, v = (numbers(1, 2, 6, 4) * factor for factor in (1.0, 2.0, 3.0))
    with autocast(dtypes.bfloat16):
        found = q.scaled_dot_product_attention(k, v)
    narrow = [x.cast(dtypes.bfloat16) for x in (q, k, v)]
    exact = narrow[0].scaled_dot_product_attention(narrow[1], narrow[2])
    assert found.dtype is dtypes.bfloat16
    assert np.array_equal(found.float().numpy(), exact.float().numpy())


def test_gradients_have_the_dtype_of_the_weights() -> None:
    x, w = numbers(4, 8), numbers(8, 2).requires_grad_()
    with autocast(dtypes.bfloat16):
        loss = (x @ w).float().square().sum()
    (gradient,) = loss.gradient(w)
    assert gradient.dtype is dtypes.float32
    exact = 2 * x.numpy().T @ (x.numpy() @ w.numpy())
    assert np.abs(gradient.numpy() - exact).max() <= 2**-6 * np.abs(exact).max()


def test_None_turns_it_off_inside() -> None:
    x = numbers(2, 2)
    with autocast(dtypes.bfloat16), autocast(None):
        assert (x @ x).dtype is dtypes.float32


def test_a_capture_knows_what_block_it_is_called_in() -> None:
    function = jit(lambda x: x @ x)
    x = numbers(4, 4)
    for _ in range(2):
        assert function(x).dtype is dtypes.float32
        with autocast(dtypes.bfloat16):
            assert function(x).dtype is dtypes.bfloat16


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(UserError, match="float16 or bfloat16"), autocast(dtypes.int8):
        pass
