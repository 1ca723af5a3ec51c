"""Operations of every family on split tensors, beside what they give on one device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor

THREE = ("CPU", "CPU:1", "CPU:2")
RANDOM = np.random.default_rng(8)
SQUARE = RANDOM.standard_normal((5, 7)).astype(np.float32)
CUBE = RANDOM.standard_normal((4, 5, 3)).astype(np.float32)
IMAGE = RANDOM.standard_normal((3, 4, 6, 5)).astype(np.float32)

OPERATIONS: dict[str, tuple[np.ndarray[Any, Any], Callable[[Tensor], Tensor]]] = {
    "softmax": (SQUARE, lambda x: x.softmax(0) + x.log_softmax(1)),
    "variance": (SQUARE, lambda x: x.var(0) + x.std(0)),
    "mean": (CUBE, lambda x: x.mean((0, 2))),
    "layernorm": (CUBE, lambda x: x.layernorm(-1)),
    "product of matrices": (CUBE, lambda x: x @ x.transpose(1, 2)),
    "einsum": (CUBE, lambda x: Tensor.einsum("ijk,ljk->il", x, x)),
    "running product": (SQUARE, lambda x: x.cumprod(0)),
    "running maximum": (SQUARE, lambda x: x.cummax(0)[0]),
    "log of sums": (SQUARE, lambda x: x.logcumsumexp(0) + x.logsumexp(1, keepdim=True)),
    "largest ones": (SQUARE, lambda x: x.topk(3, 1)[0]),
    "median": (SQUARE, lambda x: x.median(0)[0] if isinstance(x.median(0), tuple) else x),
    "triangle": (SQUARE, lambda x: x.triu() - x.tril(1)),
    "diagonal": (SQUARE, lambda x: x.diagonal()),
    "clip and masks": (SQUARE, lambda x: x.clip(-1, 1).masked_fill(x > 0.5, 7.0)),
    "borders by reflection": (IMAGE, lambda x: x.pad((1, 1, 2, 2), mode="reflect")),
    "greatest of windows": (IMAGE, lambda x: x.max_pool2d((2, 2))),
    "mean of windows": (IMAGE, lambda x: x.avg_pool2d((3, 2), stride=1)),
    "convolution": (IMAGE, lambda x: x.conv2d(x[:2, :, :3, :3], padding=1)),
    "transposed convolution": (IMAGE, lambda x: x.conv_transpose2d(x[:2].permute(1, 0, 2, 3))),
    "resized": (IMAGE, lambda x: x.interpolate((9, 8), mode="linear")),
    "norm of groups": (CUBE, lambda x: x.reshape(2, 2, 5, 3).layernorm((1, 2, 3))),
    "attention": (IMAGE, lambda x: x.scaled_dot_product_attention(x, x)),
    "chosen by an array": (SQUARE, lambda x: x[[4, 0, 0], [1, 6, 2]]),
    "repeated": (SQUARE, lambda x: x.repeat_interleave(2, 0) * 2),
    "unrolled": (IMAGE, lambda x: x.unfold(2, 3, 2).sum(-1)),
    "outer": (SQUARE, lambda x: x[0].unsqueeze(1) * x[1]),
    "erf": (SQUARE, lambda x: x.gelu() + x.erf()),
}


def pair(array: np.ndarray[Any, Any], axis: int) -> tuple[Tensor, Tensor]:
    one, several = (Tensor(array, requires_grad=True) for _ in range(2))
    several.shard_(THREE, axis)
    return one, several


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", OPERATIONS)
def test_values_and_gradients_are_those_of_one_device(name: str, axis: int) -> None:
    array, operation = OPERATIONS[name]
    one, several = pair(array, axis)
    wanted, found = operation(one), operation(several)
    assert found.device == THREE
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    (wanted * wanted).sum().backward()
    (found * found).sum().backward()
    assert one.grad is not None
    assert several.grad is not None
    np.testing.assert_allclose(several.grad.numpy(), one.grad.numpy(), rtol=1e-3, atol=1e-4)


def test_gradients_of_gradients_go_through_layouts() -> None:
    x = Tensor([1.0, 2.0, 3.0]).shard(THREE, axis=0)
    (first,) = (x * x * x).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    assert second.tolist() == [6.0, 12.0, 18.0]


def test_indices_out_of_range_are_reported_whoever_has_the_row() -> None:
    table = Tensor(np.arange(300.0, dtype=np.float32).reshape(100, 3)).shard(THREE, axis=0)
    with pytest.raises(IndexError):
        table.realize()[Tensor([1, 100]).shard(THREE)].realize()


def test_a_tensor_of_more_devices_than_rows_has_empty_parts() -> None:
    x = Tensor([[5.0, 1.0]]).shard(THREE, axis=0)
    assert [part.shape for part in x.shards()] == [(1, 2), (0, 2), (0, 2)]
    assert x.softmax(1).sum().item() == pytest.approx(1.0)
    assert x.max().item() == 5.0
    assert (x - x).sum(0).tolist() == [0.0, 0.0]


def test_pickled_and_copied_tensors_have_all_elements() -> None:
    import copy
    import pickle

    x = Tensor(SQUARE).shard(THREE, axis=1)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)).numpy(), SQUARE)
    np.testing.assert_array_equal(copy.deepcopy(x).numpy(), SQUARE)
    np.testing.assert_array_equal(np.asarray(x), SQUARE)
