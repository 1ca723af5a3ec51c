"""Small programs that are whole networks with made-up weights: their kernels are common ones.

    for name, program in models():
        program()

ResNet-18, MobileNetV2, an encoder of BERT's size, and a step of GPT-2 with its cache.  Layers are
written as their papers write them, with normalisation by stored means and variances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tilework.base.records import dataclass
from tilework.tensor.jit import jit
from tilework.tensor.tensor import Tensor

WIDTH, HEADS, LAYERS, WORDS, PAST = 768, 12, 2, 50257, 256
#: (expansion, channels, repetitions, stride) of MobileNetV2's blocks.
BOTTLENECKS: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class Weights:
    """Weights by name, made when they are first asked for."""

    def __init__(self) -> None:
        """Start the generator that all of them are drawn from."""
        self._generator = np.random.default_rng(0)
        self._made: dict[str, Tensor] = {}

    def normal(self, name: str, *shape: int) -> Tensor:
        """A weight whose outputs have about the spread of its inputs."""
        scale = np.float32(1.0 / max(int(np.prod(shape[1:])), 1) ** 0.5)
        return self._get(name, shape, lambda x: x * scale)

    def near_one(self, name: str, *shape: int) -> Tensor:
        """Positive numbers around one."""
        return self._get(name, shape, lambda x: 1.0 + 0.1 * np.tanh(x))

    def _get(
        self, name: str, shape: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray]
    ) -> Tensor:
        if name not in self._made:
            drawn = change(self._generator.standard_normal(shape, dtype=np.float32))
            self._made[name] = Tensor(drawn.astype(np.float32)).realize()
        return self._made[name]


@dataclass(frozen=True, slots=True)
class Network:
    """A network: its name, what it computes of weights and inputs, and the shapes of the inputs."""

    name: str
    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]


def networks() -> tuple[Network, ...]:
    """Return the networks, without weights."""
    image = (1, 3, 224, 224)
    cache = (LAYERS, 1, HEADS, PAST, WIDTH // HEADS)
    return (
        Network("ResNet-18", _resnet, (image,)),
        Network("MobileNetV2", _mobilenet, (image,)),
        Network("BERT, 128 words", _encoder, ((128, WIDTH),)),
        Network("GPT-2, one word", _decoder, ((1, WIDTH), cache, cache)),
    )


def models() -> Iterator[tuple[str, Callable[[], None]]]:
    """The programs by name: each captures its network and calls it until it runs as it will."""
    for network in networks():
        yield network.name, _captured(network.function, *network.shapes)


def _captured(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Callable[[], None]:
    def run() -> None:
        weights = Weights()
        generator = np.random.default_rng(1)
        inputs = [
            Tensor(generator.standard_normal(shape, dtype=np.float32)).realize() for shape in shapes
        ]
        captured = jit(lambda *xs: function(weights, *xs).realize())
        for _ in range(3):
            captured(*inputs)

    return run


# ---- networks for images


def _convolved(
    w: Weights, name: str, x: Tensor, out: int, window: int, stride: int = 1, groups: int = 1
) -> Tensor:
    """A convolution and the normalisation after it."""
    weight = w.normal(name, out, int(x.shape[1]) // groups, window, window)
    y = x.conv2d(weight, groups=groups, stride=stride, padding=window // 2)
    scale, shift = w.near_one(f"{name}.scale", out), w.normal(f"{name}.shift", out)
    mean, variance = w.normal(f"{name}.mean", out), w.near_one(f"{name}.variance", out)
    return y.batchnorm(scale, shift, mean, (variance + 1e-5).rsqrt())


def _resnet(w: Weights, x: Tensor) -> Tensor:
    x = _convolved(w, "stem", x, 64, 7, 2).relu().max_pool2d((3, 3), 2, padding=1)
    for stage in range(4):
        for block in range(2):
            name, out = f"{stage}.{block}", 64 << stage
            stride = 2 if stage and not block else 1
            y = _convolved(w, f"{name}.1", x, out, 3, stride).relu()
            y = _convolved(w, f"{name}.2", y, out, 3)
            x = (y + (x if stride == 1 else _convolved(w, f"{name}.down", x, out, 1, 2))).relu()
    return _head(w, x)


def _mobilenet(w: Weights, x: Tensor) -> Tensor:
    x = _convolved(w, "stem", x, 32, 3, 2).relu6()
    for at, (expansion, out, repetitions, first) in enumerate(BOTTLENECKS):
        for repetition in range(repetitions):
            name, channels = f"{at}.{repetition}", int(x.shape[1])
            stride, wide = first if not repetition else 1, channels * expansion
            y = x if expansion == 1 else _convolved(w, f"{name}.up", x, wide, 1).relu6()
            y = _convolved(w, f"{name}.each", y, wide, 3, stride, groups=wide).relu6()
            y = _convolved(w, f"{name}.down", y, out, 1)
            x = x + y if stride == 1 and channels == out else y
    return _head(w, _convolved(w, "last", x, 1280, 1).relu6())


def _head(w: Weights, x: Tensor) -> Tensor:
    return _linear(w, "head", x.mean((2, 3)), 1000)


# ---- networks for words


def _linear(w: Weights, name: str, x: Tensor, out: int) -> Tensor:
    weight = w.normal(name, out, int(x.shape[-1]))
    return x.linear(weight.transpose(), w.normal(f"{name}.bias", out))


def _normed(w: Weights, name: str, x: Tensor) -> Tensor:
    width = int(x.shape[-1])
    return x.layernorm() * w.near_one(f"{name}.scale", width) + w.normal(f"{name}.shift", width)


def _in_heads(x: Tensor) -> list[Tensor]:
    """Queries, keys and values, each (1, heads, words, width of a head)."""
    words = int(x.shape[0])
    parts = [x[:, at * WIDTH : (at + 1) * WIDTH] for at in range(3)]
    return [p.reshape(1, words, HEADS, WIDTH // HEADS).permute(0, 2, 1, 3) for p in parts]


def _encoder(w: Weights, x: Tensor) -> Tensor:
    for layer in range(LAYERS):
        q, k, v = _in_heads(_linear(w, f"{layer}.qkv", x, 3 * WIDTH))
        found = q.scaled_dot_product_attention(k, v).permute(0, 2, 1, 3).reshape(-1, WIDTH)
        x = _normed(w, f"{layer}.1", x + _linear(w, f"{layer}.out", found, WIDTH))
        y = _linear(w, f"{layer}.up", x, 4 * WIDTH).gelu()
        x = _normed(w, f"{layer}.2", x + _linear(w, f"{layer}.down", y, WIDTH))
    return x


def _decoder(w: Weights, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    for layer in range(LAYERS):
        y = _normed(w, f"{layer}.1", x)
        q, k, v = _in_heads(_linear(w, f"{layer}.qkv", y, 3 * WIDTH))
        k, v = keys[layer].cat(k, dim=2), values[layer].cat(v, dim=2)
        found = q.scaled_dot_product_attention(k, v).permute(0, 2, 1, 3).reshape(-1, WIDTH)
        x = x + _linear(w, f"{layer}.out", found, WIDTH)
        y = _linear(w, f"{layer}.up", _normed(w, f"{layer}.2", x), 4 * WIDTH).gelu()
        x = x + _linear(w, f"{layer}.down", y, WIDTH)
    return _normed(w, "last", x) @ w.normal("words", WORDS, WIDTH).transpose()
