"""Whole programs: tilework's time by the clock of the host; no numbers are checked.

    python -m benchmarks.gpu.programs --only gpt2 --peers

`gpt2` trains 124M parameters, float32 with products in bfloat16; `llama` makes one token after 512
with the shapes of an 8B model; `resnet` classifies images in float16, one at a time and 64.
Numbers are random; `gpt2` prints its losses.  `--peers` runs each by PyTorch's compiler before.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilework import Tensor, autocast, dtypes, jit, nn
from tilework.engine.device import Device

_VOCABULARY, _WIDTH, _HEADS, _LAYERS = 50257, 768, 12, 12


def seconds_of(step: Callable[[], Any], wait: Callable[[], Any], repeat: int) -> float:
    """The mean seconds of a step, after some that warm up."""
    for _ in range(3):
        step()
    wait()
    started = time.perf_counter()
    for _ in range(repeat):
        step()
    wait()
    return (time.perf_counter() - started) / repeat


def wait() -> None:
    """Let the card finish."""
    Device["CUDA"].synchronize()


class _Block:
    """Attention and two products, each added to what went in."""

    def __init__(self) -> None:
        self.first, self.second = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.mixed = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.out = nn.Linear(_WIDTH, _WIDTH)
        self.up, self.down = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)

    def __call__(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.mixed(self.first(x)).reshape(batch, length, 3, _HEADS, _WIDTH // _HEADS)
        q, k, v = (parts[:, :, number].transpose(1, 2) for number in range(3))
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, _WIDTH))
        return x + self.down(self.up(self.second(x)).gelu())


class _Gpt2:
    """The model; logits are products with the tokens' own embeddings."""

    def __init__(self, length: int) -> None:
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.places = nn.Embedding(length, _WIDTH)
        self.blocks = [_Block() for _ in range(_LAYERS)]
        self.last = nn.LayerNorm(_WIDTH)

    def __call__(self, x: Tensor) -> Tensor:
        hidden = self.tokens(x) + self.places.weight
        for block in self.blocks:
            hidden = block(hidden)
        return self.last(hidden) @ self.tokens.weight.transpose(0, 1)


def gpt2(repeat: int) -> None:
    """A step of training on 16 texts of 1024 tokens."""
    batch, length = 16, 1024
    model = _Gpt2(length)
    optimizer = nn.optim.AdamW(nn.state.get_parameters(model), lr=3e-4)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            with autocast(dtypes.bfloat16):
                loss = model(x).float().sparse_categorical_crossentropy(y)
            loss.backward()
            optimizer.step()
        return loss.realize()

    draw = np.random.default_rng(0)
    x, y = (
        Tensor(draw.integers(0, _VOCABULARY, (batch, length)).astype(np.int32)).realize()
        for _ in range(2)
    )
    started = time.perf_counter()
    first = step(x, y).item()
    cold = time.perf_counter() - started
    seconds = seconds_of(lambda: step(x, y), wait, repeat)
    print(
        f"gpt2: {batch * length / seconds / 1e3:.1f}k tokens/s, {seconds * 1e3:.1f} ms a step,"
        f" first step {cold:.1f} s, loss {first:.3f} then {step(x, y).item():.3f}",
        flush=True,
    )


class _Layer:
    """One of 32 layers of an 8B model, with keys and values of what came before."""

    def __init__(self, context: int) -> None:
        def weight(*shape: int) -> Tensor:
            return (Tensor.randn(*shape) * 0.02).cast(dtypes.bfloat16).realize()

        self.q, self.kv = weight(4096, 4096), weight(2048, 4096)
        self.out = weight(4096, 4096)
        self.gate, self.up = weight(14336, 4096), weight(14336, 4096)
        self.down = weight(4096, 14336)
        self.keys, self.values = weight(8, context, 128), weight(8, context, 128)

    def __call__(self, x: Tensor) -> Tensor:
        inside = _scaled(x)
        q = (inside @ self.q.T).reshape(8, 4, 128)
        own = (inside @ self.kv.T).reshape(2, 8, 1, 128)
        keys = self.keys.cat(own[0], dim=1)
        values = self.values.cat(own[1], dim=1)
        scores = (q @ keys.transpose(1, 2)).float() * 128**-0.5
        mixed = scores.softmax(-1).cast(x.dtype) @ values
        x = x + mixed.reshape(1, 4096) @ self.out.T
        inside = _scaled(x)
        return x + ((inside @ self.gate.T).silu() * (inside @ self.up.T)) @ self.down.T


def _scaled(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).cast(x.dtype)


def llama(repeat: int) -> None:
    """One token of a model of 8B parameters."""
    layers = [_Layer(512) for _ in range(32)]
    head = (Tensor.randn(128256, 4096) * 0.02).cast(dtypes.bfloat16).realize()

    @jit
    def token(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
        return (_scaled(x) @ head.T).argmax(-1).realize()

    x = Tensor.randn(1, 4096).cast(dtypes.bfloat16).realize()
    started = time.perf_counter()
    token(x).item()
    cold = time.perf_counter() - started
    seconds = seconds_of(lambda: token(x).item(), wait, repeat)
    print(f"llama: {1 / seconds:.1f} tokens/s, first {cold:.1f} s", flush=True)


class _Bottleneck:
    """Three convolutions with their norms, beside what went in."""

    def __init__(self, wide: int, narrow: int, stride: int) -> None:
        out = 4 * narrow
        self.convs = [
            nn.Conv2d(wide, narrow, 1, bias=False),
            nn.Conv2d(narrow, narrow, 3, stride=stride, padding=1, bias=False),
            nn.Conv2d(narrow, out, 1, bias=False),
        ]
        self.norms = [nn.BatchNorm2d(size) for size in (narrow, narrow, out)]
        self.beside = None
        if stride != 1 or wide != out:
            self.beside = nn.Conv2d(wide, out, 1, stride=stride, bias=False)
            self.norm = nn.BatchNorm2d(out)

    def __call__(self, x: Tensor) -> Tensor:
        found = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            found = norm(conv(found))
            found = found.relu() if number < 2 else found
        side = x if self.beside is None else self.norm(self.beside(x))
        return (found + side).relu()


class _Resnet:
    """ResNet-50."""

    def __init__(self) -> None:
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.blocks, wide = [], 64
        for narrow, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(count):
                self.blocks.append(_Bottleneck(wide, narrow, stride if not number else 1))
                wide = 4 * narrow
        self.head = nn.Linear(2048, 1000)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)).relu().max_pool2d((3, 3), stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def resnet(repeat: int) -> None:
    """Images a second, one at a time and 64."""
    model = _Resnet()
    for parameter in nn.state.get_state_dict(model).values():
        if parameter.ndim > 1:
            parameter.replace(parameter.cast(dtypes.float16).realize())
    for batch in (1, 64):
        images = Tensor.randn(batch, 3, 224, 224).cast(dtypes.float16).realize()

        @jit
        def classify(x: Tensor) -> Tensor:
            return model(x).realize()

        started = time.perf_counter()
        classify(images)
        wait()
        cold = time.perf_counter() - started
        seconds = seconds_of(partial(classify, images), wait, repeat)
        print(
            f"resnet, batch {batch}: {batch / seconds:.0f} images/s,"
            f" {seconds * 1e3:.3f} ms, first {cold:.1f} s",
            flush=True,
        )


PROGRAMS = {"gpt2": gpt2, "llama": llama, "resnet": resnet}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=sorted(PROGRAMS))
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--peers", action="store_true", help="PyTorch's compiler, too")
    arguments = parser.parse_args()
    Device.DEFAULT = "CUDA"
    for name, program in PROGRAMS.items():
        if arguments.only in (None, name):
            if arguments.peers:
                # A process of its own gives all of the card's memory back.
                peer = [sys.executable, "-m", "benchmarks.gpu.torch_programs", name]
                subprocess.run([*peer, "--repeat", str(arguments.repeat)], check=False)
            program(arguments.repeat)


if __name__ == "__main__":
    main()
