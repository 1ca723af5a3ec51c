"""Products, convolutions, attention and models of bfloat16 beside PyTorch.

    python benchmarks/bfloat16.py [--only REGEX] [--turns 3]

Each row is captured, its weights constants, checked against PyTorch's result, and timed in turns
of seven calls on two threads; the median of the turns' medians counts.  With
TILEWORK_KEEP_SUBNORMALS=1 products are done by vectors.
"""

from __future__ import annotations

import argparse
import re
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from tilework import Tensor, dtypes, jit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = 7
WIDTH, HEADS, DEPTH, LAYERS = 768, 12, 64, 4
#: By how much results may differ, relative to the largest one: some roundings to bfloat16.
TOLERANCE = 0.03
RNG = np.random.default_rng(0)


class Row(NamedTuple):
    """One comparison: what both do with their own arguments."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arguments: list[tuple[Tensor, Any]]


def pair(*shape: int, scale: float = 1.0) -> tuple[Tensor, Any]:
    """One array as a tensor of both."""
    values = (RNG.standard_normal(shape) * scale).astype(np.float32)
    return Tensor(values).cast(dtypes.bfloat16).realize(), torch.tensor(values).bfloat16()


def products() -> Iterator[Row]:
    """Matrices of all orders, and layers."""
    for size in (256, 512, 1024, 2048):
        square = [pair(size, size), pair(size, size)]
        yield Row(f"product {size}", lambda x, y: x @ y, lambda x, y: x @ y, square)
        yield linear(f"linear {size}", size, size, size)
    square = [pair(1024, 1024), pair(1024, 1024)]
    yield Row("x @ y.T", lambda x, y: x @ y.T, lambda x, y: x @ y.T, square)
    yield Row("x.T @ y", lambda x, y: x.T @ y, lambda x, y: x.T @ y, square)
    yield Row("x.T @ y.T", lambda x, y: x.T @ y.T, lambda x, y: x.T @ y.T, square)
    batch = [pair(16, 256, 256), pair(16, 256, 256)]
    yield Row("16 products of 256", lambda x, y: x @ y, lambda x, y: x @ y, batch)
    for columns, depth in ((4096, 4096), (1024, 1024), (768, 3072)):
        yield linear(f"one row, {depth} x {columns}", 1, columns, depth)


def linear(name: str, rows: int, columns: int, depth: int) -> Row:
    """A layer with a bias and an activation."""
    (weight, their_weight), (bias, their_bias) = pair(columns, depth), pair(columns)
    return Row(
        name,
        lambda x: (x @ weight.T + bias).relu(),
        lambda x: F.linear(x, their_weight, their_bias).relu(),
        [pair(rows, depth)],
    )


def convolutions() -> Iterator[Row]:
    """Windows of 3 x 3."""
    for channels, size in ((64, 56), (128, 28), (256, 14)):
        weight, theirs = pair(channels, channels, 3, 3)
        yield Row(
            f"convolution of {channels} channels, {size} x {size}",
            lambda x, w=weight: x.conv2d(w, padding=1),
            lambda x, w=theirs: F.conv2d(x, w, padding=1),
            [pair(1, channels, size, size)],
        )


def attention() -> Iterator[Row]:
    """Heads of 64."""
    for heads, length in ((12, 128), (12, 512), (8, 1024)):
        yield Row(
            f"attention, {heads} heads, {length}",
            lambda q, k, v: q.scaled_dot_product_attention(k, v),
            F.scaled_dot_product_attention,
            [pair(1, heads, length, DEPTH) for _ in range(3)],
        )


def encoders() -> Iterator[Row]:
    """Layers of BERT-base's sizes."""
    shapes = [(WIDTH, WIDTH)] * 4 + [(4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)]
    layers = [[pair(*shape, scale=0.03) for shape in shapes] for _ in range(LAYERS)]

    def run(x: Any, which: int, attend: Any, norm: Any, gelu: Any) -> Any:
        rows = x.shape[1]
        for layer in layers:
            *heads, out, up, down = [weights[which] for weights in layer]
            split = [(x @ w.T).reshape(1, rows, HEADS, DEPTH).transpose(1, 2) for w in heads]
            x = norm(x + attend(*split).transpose(1, 2).reshape(1, rows, WIDTH) @ out.T)
            x = norm(x + gelu(x @ up.T) @ down.T)
        return x

    for length in (128, 384):
        yield Row(
            f"{LAYERS} layers of BERT-base, {length}",
            lambda x: run(x, 0, Tensor.scaled_dot_product_attention, Tensor.layernorm, Tensor.gelu),
            lambda x: run(
                x,
                1,
                F.scaled_dot_product_attention,
                lambda x: F.layer_norm(x, (WIDTH,)),
                lambda x: F.gelu(x, approximate="tanh"),
            ),
            [pair(1, length, WIDTH)],
        )


def milliseconds(call: Callable[[], Any]) -> float:
    """The median of some calls."""
    times = []
    for _ in range(CALLS):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return 1e3 * median(times)


def compare(row: Row, turns: int) -> None:
    """Check a row, time it, and print both times."""
    captured = jit(row.ours)
    ours, theirs = ([both[which] for both in row.arguments] for which in (0, 1))
    for _ in range(3):
        found = captured(*ours).cast(dtypes.float32).numpy()
    wanted = row.theirs(*theirs).float().numpy()
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    if not error <= TOLERANCE:
        raise SystemExit(f"{row.name}: results differ by {error:.2g} of the largest")
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        times[0].append(milliseconds(lambda: captured(*ours).realize()))
        times[1].append(milliseconds(lambda: row.theirs(*theirs)))
    own, other = (median(turn) for turn in times)
    print(f"| {row.name} | {own:.3f} | {other:.3f} | {other / own:.2f} |", flush=True)


def main() -> None:
    """Compare all rows, or those that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    for family in (products, convolutions, attention, encoders):
        for row in family():
            if re.search(options.only, row.name):
                compare(row, options.turns)


if __name__ == "__main__":
    main()
