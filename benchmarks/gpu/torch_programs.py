"""The programs of `benchmarks.gpu.programs` by PyTorch's compiler, in the ways that suit it best.

    python -m benchmarks.gpu.torch_programs gpt2

Training takes the fused optimizer, classifying channels that come last, and both programs without
gradients are replayed as CUDA graphs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from benchmarks.gpu.programs import seconds_of
from torch import Tensor, nn
from torch.nn import functional

_VOCABULARY, _WIDTH, _HEADS, _LAYERS = 50257, 768, 12, 12
_REPLAYED = "reduce-overhead"


def _cold(step: Callable[[], Any]) -> float:
    """The seconds of a first call."""
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - started


class _Block(nn.Module):
    """Attention and two products, each added to what went in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.mixed = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.out = nn.Linear(_WIDTH, _WIDTH)
        self.up, self.down = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes are those of `x`."""
        batch, length, _ = x.shape
        parts = self.mixed(self.first(x)).reshape(batch, length, 3, _HEADS, _WIDTH // _HEADS)
        q, k, v = (parts[:, :, number].transpose(1, 2) for number in range(3))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, _WIDTH))
        inner = functional.gelu(self.up(self.second(x)), approximate="tanh")
        return x + self.down(inner)


class _Gpt2(nn.Module):
    """The model; logits are products with the tokens' own embeddings."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.places = nn.Embedding(length, _WIDTH)
        self.blocks = nn.ModuleList([_Block() for _ in range(_LAYERS)])
        self.last = nn.LayerNorm(_WIDTH)
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of each token."""
        hidden = self.tokens(x) + self.places.weight
        for block in self.blocks:
            hidden = block(hidden)
        return self.last(hidden) @ self.tokens.weight.T


def gpt2(repeat: int) -> None:
    """A step of training on 16 texts of 1024 tokens."""
    batch, length = 16, 1024
    model = _Gpt2(length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    @torch.compile(dynamic=False)
    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(x)
        return functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss: Tensor = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = (torch.randint(0, _VOCABULARY, (batch, length)) for _ in range(2))
    cold = _cold(step)
    seconds = seconds_of(step, torch.cuda.synchronize, repeat)
    print(
        f"gpt2, torch.compile: {batch * length / seconds / 1e3:.1f}k tokens/s,"
        f" {seconds * 1e3:.1f} ms a step, first step {cold:.1f} s, loss {step().item():.3f}"
    )


class _Layer(nn.Module):
    """One of 32 layers of an 8B model, with keys and values of what came before."""

    def __init__(self, context: int) -> None:
        super().__init__()

        def weight(*shape: int) -> Tensor:
            return (torch.randn(*shape) * 0.02).bfloat16()

        self.q, self.kv = weight(4096, 4096), weight(2048, 4096)
        self.out = weight(4096, 4096)
        self.gate, self.up = weight(14336, 4096), weight(14336, 4096)
        self.down = weight(4096, 14336)
        self.keys, self.values = weight(8, context, 128), weight(8, context, 128)

    def forward(self, x: Tensor) -> Tensor:
        """The next value of one token."""
        inside = _scaled(x)
        q = (inside @ self.q.T).reshape(8, 4, 128)
        own = (inside @ self.kv.T).reshape(2, 8, 1, 128)
        keys = torch.cat((self.keys, own[0]), 1)
        values = torch.cat((self.values, own[1]), 1)
        scores = (q @ keys.transpose(1, 2)).float() * 128**-0.5
        mixed = scores.softmax(-1).to(x.dtype) @ values
        x = x + mixed.reshape(1, 4096) @ self.out.T
        inside = _scaled(x)
        return x + (functional.silu(inside @ self.gate.T) * (inside @ self.up.T)) @ self.down.T


def _scaled(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).to(x.dtype)


@torch.no_grad()
def llama(repeat: int) -> None:
    """One token of a model of 8B parameters."""
    layers = [_Layer(512) for _ in range(32)]
    head = (torch.randn(128256, 4096) * 0.02).bfloat16()

    @torch.compile(mode=_REPLAYED, dynamic=False)
    def token(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
        return (_scaled(x) @ head.T).argmax(-1)

    x = torch.randn(1, 4096).bfloat16()
    cold = _cold(lambda: token(x).item())
    seconds = seconds_of(lambda: token(x).item(), torch.cuda.synchronize, repeat)
    print(f"llama, torch.compile: {1 / seconds:.1f} tokens/s, first {cold:.1f} s")


class _Bottleneck(nn.Module):
    """Three convolutions with their norms, beside what went in."""

    def __init__(self, wide: int, narrow: int, stride: int) -> None:
        super().__init__()
        out = 4 * narrow
        self.inner = nn.Sequential(
            nn.Conv2d(wide, narrow, 1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(),
            nn.Conv2d(narrow, narrow, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(),
            nn.Conv2d(narrow, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.beside = nn.Sequential()
        if stride != 1 or wide != out:
            self.beside = nn.Sequential(
                nn.Conv2d(wide, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Images of other sizes, where there is a stride."""
        return (self.inner(x) + self.beside(x)).relu()


def _resnet50() -> nn.Module:
    parts: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    wide = 64
    for narrow, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            parts.append(_Bottleneck(wide, narrow, stride if not number else 1))
            wide = 4 * narrow
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


@torch.no_grad()
def resnet(repeat: int) -> None:
    """Images a second, one at a time and 64."""
    model = _resnet50().half().eval().to(memory_format=torch.channels_last)
    classify = torch.compile(model, mode=_REPLAYED, dynamic=False)
    for batch in (1, 64):
        images = torch.randn(batch, 3, 224, 224).half()
        images = images.to(memory_format=torch.channels_last)
        step = partial(classify, images)
        cold = _cold(step)
        seconds = seconds_of(step, torch.cuda.synchronize, repeat)
        print(
            f"resnet, torch.compile, batch {batch}: {batch / seconds:.0f} images/s,"
            f" {seconds * 1e3:.3f} ms, first {cold:.1f} s"
        )


PROGRAMS = {"gpt2": gpt2, "llama": llama, "resnet": resnet}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(PROGRAMS))
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_default_device("cuda")
    torch.set_float32_matmul_precision("high")
    PROGRAMS[arguments.name](arguments.repeat)


if __name__ == "__main__":
    main()
