"""Training over several devices: the loss curve of one device, whatever is split."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.training_steps import training_losses

from tilework import Tensor, distributed, nn
from tilework.nn import optim
from tilework.nn.state import get_parameters, get_state_dict, safe_load, safe_save

TWO = ("CPU", "CPU:1")
THREE = (*TWO, "CPU:2")
STEPS = 4
RANDOM = np.random.default_rng(5)
INPUTS = RANDOM.standard_normal((STEPS, 6, 8)).astype(np.float32)
LABELS = RANDOM.integers(0, 4, (STEPS, 6)).astype(np.int32)

Placing = Callable[["Net"], None]


class Net:
    """Two layers with what stands between them in practice."""

    def __init__(self) -> None:
        self.up = nn.Linear(8, 9)
        self.norm = nn.LayerNorm(9)
        self.down = nn.Linear(9, 4)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.norm(self.up(x).relu()).dropout(0.25))


def alone(net: Net) -> None:
    """Everything on one device."""


def data_parallel(net: Net) -> None:
    distributed.replicate(get_parameters(net), TWO)


def tensor_parallel(net: Net) -> None:
    axes = {"up.weight": 0, "up.bias": 0, "down.weight": 1}
    distributed.shard_parameters(get_state_dict(net), TWO, axes)


def fully_sharded(net: Net) -> None:
    distributed.fully_shard(get_parameters(net), TWO)


WAYS: dict[str, tuple[Placing, int | None]] = {
    "data": (data_parallel, 0),
    "tensor": (tensor_parallel, None),
    "fully sharded": (fully_sharded, 0),
}
OPTIMIZERS: dict[str, Callable[[list[Tensor]], Any]] = {
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: optim.AdamW(parameters, lr=0.01),
}


def train(
    place: Placing, axis: int | None, make: Callable[[list[Tensor]], Any], *, captured: bool
) -> tuple[list[float], Net]:
    Tensor.manual_seed(11)
    net = Net()
    place(net)
    batches = [(Tensor(x), Tensor(y)) for x, y in zip(INPUTS, LABELS, strict=True)]
    if place is not alone:
        batches = [(x.shard(TWO, axis), y.shard(TWO, axis)) for x, y in batches]
    return training_losses(net, make(get_parameters(net)), batches, captured=captured), net


@pytest.mark.parametrize("captured", [False, True], ids=["plain", "captured"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("way", WAYS)
def test_the_loss_goes_as_on_one_device(way: str, name: str, captured: bool) -> None:
    place, axis = WAYS[way]
    expected, one = train(alone, None, OPTIMIZERS[name], captured=captured)
    found, net = train(place, axis, OPTIMIZERS[name], captured=captured)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(set(found)) == STEPS
    wanted = get_state_dict(one)
    for key, parameter in get_state_dict(net).items():
        np.testing.assert_allclose(
            parameter.numpy(), wanted[key].numpy(), rtol=1e-4, atol=1e-5, err_msg=key
        )


def test_parameters_and_the_state_of_optimizers_stay_where_they_were_put() -> None:
    _, net = train(fully_sharded, 0, OPTIMIZERS["adamw"], captured=False)
    assert [p.axis for p in get_parameters(net)] == [0, 0, 0, 0, 1, 0]
    moments = optim.Adam(get_parameters(net))
    state = [t for t in get_state_dict(moments).values() if t.shape == net.up.weight.shape]
    assert {t.axis for t in state} == {0}


def test_gradients_lie_where_their_parameters_do() -> None:
    weight = Tensor(np.ones((5, 4), np.float32), requires_grad=True)
    weight.shard_(THREE, axis=0)
    (Tensor(np.ones((2, 4), np.float32)).shard(THREE) @ weight.T).sum().backward()
    assert weight.grad is not None
    assert weight.grad.layout == weight.layout
    assert weight.grad.tolist() == np.full((5, 4), 2.0).tolist()


def test_a_value_that_is_moved_in_place_passes_its_gradient_on() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 3
    y.shard_(TWO, axis=0)
    (y * y).sum().backward()
    assert x.grad is not None
    assert (x.grad.device, x.grad.tolist()) == ("CPU", [18.0, 36.0, 54.0])


@pytest.mark.parametrize("device", ["CPU:1", TWO])
def test_a_parameter_that_is_moved_in_place_has_its_gradient_there(device: Any) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    x.to_(device)
    (x * x).sum().backward()
    assert x.grad is not None
    assert (x.grad.device, x.grad.tolist()) == (device, [2.0, 4.0])


def test_gradients_of_replicas_come_from_all_parts_of_the_batch() -> None:
    weight = Tensor(np.ones((4, 3), np.float32), requires_grad=True)
    weight.shard_(TWO)
    x = Tensor(np.arange(28, dtype=np.float32).reshape(7, 4)).shard(TWO, axis=0)
    (x @ weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.axis is None
    assert weight.grad[:, 0].tolist() == np.arange(28.0).reshape(7, 4).sum(0).tolist()


def test_an_embedding_whose_rows_are_split_learns_as_a_whole_one() -> None:
    table = RANDOM.standard_normal((50, 3)).astype(np.float32)
    places = np.array([[1, 49], [25, 1]], np.int32)
    grads = []
    for devices in (None, THREE):
        layer = nn.Embedding(50, 3)
        layer.weight.assign(Tensor(table)).realize()
        layer.weight.requires_grad_(True)
        given = Tensor(places)
        if devices is not None:
            layer.weight.shard_(devices, axis=0)
            given = given.shard(devices, axis=0)
        (layer(given) * 2).sum().backward()
        assert layer.weight.grad is not None
        grads.append(layer.weight.grad.numpy())
    np.testing.assert_array_equal(grads[0], grads[1])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_convolution_is_split_along_batch_channels_and_rows(axis: int) -> None:
    x = RANDOM.standard_normal((4, 3, 9, 7)).astype(np.float32)
    w = RANDOM.standard_normal((5, 3, 3, 3)).astype(np.float32)
    results = []
    for devices in (None, THREE):
        given, weight = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
        if devices is not None:
            given.shard_(devices, axis)
            weight.shard_(devices)
        out = given.conv2d(weight, padding=1, stride=2)
        (out * out).sum().backward()
        assert given.grad is not None
        assert weight.grad is not None
        results.append((out.numpy(), given.grad.numpy(), weight.grad.numpy()))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_normalisation_over_a_split_batch_sees_all_of_it() -> None:
    x = RANDOM.standard_normal((6, 4, 5)).astype(np.float32)
    with Tensor.train():
        wanted = nn.BatchNorm(4, affine=False)(Tensor(x)).numpy()
        layer = nn.BatchNorm(4, affine=False)
        for each in (layer.running_mean, layer.running_var):
            each.shard_(THREE)
        layer.num_batches_tracked.shard_(THREE)
        found = layer(Tensor(x).shard(THREE, axis=0)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_attention_is_split_along_batch_heads_and_tokens(axis: int) -> None:
    q, k, v = (RANDOM.standard_normal((4, 3, 6, 8)).astype(np.float32) for _ in range(3))
    wanted = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True)
    given = [Tensor(each).shard(THREE, axis) for each in (q, k, v)]
    found = given[0].scaled_dot_product_attention(given[1], given[2], is_causal=True)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_state_is_saved_whole_and_loaded_into_parts(tmp_path: Any) -> None:
    _, net = train(fully_sharded, 0, OPTIMIZERS["sgd"], captured=False)
    safe_save(get_state_dict(net), tmp_path / "net.safetensors")
    loaded = safe_load(tmp_path / "net.safetensors")
    other = Net()
    fully_sharded(other)
    nn.state.load_state_dict(other, {key: value.to("CPU") for key, value in loaded.items()})
    for key, parameter in get_state_dict(other).items():
        np.testing.assert_array_equal(parameter.numpy(), get_state_dict(net)[key].numpy())
