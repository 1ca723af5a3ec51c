"""Common operators beside PyTorch: how many times as fast tilework is, and milliseconds of both.

    python benchmarks/operators.py [--only REGEX] [--part 0/2] [--seconds 0.05]

Each row is captured (but those whose size the values decide), checked against PyTorch's result, and
timed in two turns on two threads; the least of the turns counts.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from further_rows import further
from operator_rows import RNG, Row, best, normal

from tilework import Tensor, TinyJit, dtypes

EPSILON = 1e-5
TURNS = 2


class Arrays:
    """What several rows work on."""

    def __init__(self) -> None:
        self.square, self.wide, self.other = (
            normal(1000, 1000),
            normal(4096, 1024),
            normal(4096, 1024),
        )
        self.image, self.rows = normal(8, 64, 56, 56), normal(20000, 64)
        self.places = RNG.integers(0, 1000, (1000, 1000))
        self.chosen = RNG.integers(0, 5000, 20000)
        self.labels, self.classes = RNG.integers(0, 512, 8192), RNG.integers(0, 1024, 4096)
        self.bytes_ = RNG.integers(0, 256, (8, 224, 224, 3)).astype("uint8")
        self.mean = np.array([0.4, 0.5, 0.6], np.float32)
        self.scale = np.array([0.2, 0.21, 0.22], np.float32)


def _our_embedding_gradient(w: Any, i: Any, g: Any) -> Any:
    return (w[i] * g).sum().gradient(w)[0]


def _their_embedding_gradient(w: Any, i: Any, g: Any) -> Any:
    w = w.detach().requires_grad_(True)
    return torch.autograd.grad((F.embedding(i, w) * g).sum(), w)[0]


def _normalised(x: Any, axes: Any) -> Any:
    variance = x.var(axes, keepdim=True, correction=0)
    return (x - x.mean(axes, keepdim=True)) * (variance + EPSILON).rsqrt()


def _our_group_norm(x: Any) -> Any:
    return _normalised(x.reshape(8, 8, -1), 2).reshape(8, 64, 56, 56)


def _our_batch_norm(x: Any, w: Any, b: Any) -> Any:
    return _normalised(x, (0, 2, 3)) * w.reshape(1, 64, 1, 1) + b.reshape(1, 64, 1, 1)


def orders(a: Arrays) -> list[Row]:
    """Scans, sums, orders and counts."""
    return [
        Row("cumprod rows", (a.square * 0.01 + 1,), lambda x: x.cumprod(1)),
        Row("cummax rows", (a.square,), lambda x: x.cummax(1)[0]),
        Row("cumsum cols", (a.wide,), lambda x: x.cumsum(0)),
        Row("median all", (a.square,), lambda x: x.median()),
        Row("median rows", (a.square,), lambda x: x.median(1)[0]),
        Row("quantile", (a.square,), lambda x: x.quantile(0.3, dim=1)),
        Row("var rows", (a.wide,), lambda x: x.var(1)),
        Row("var cols", (a.wide,), lambda x: x.var(0)),
        Row("std all", (a.wide,), lambda x: x.std()),
        Row(
            "argsort rows",
            (a.square,),
            lambda x: x.argsort(1),
            lambda x: x.argsort(dim=1, stable=True),
        ),
        Row(
            "argsort 1M",
            (a.square.ravel().copy(),),
            lambda x: x.argsort(0),
            lambda x: x.argsort(dim=0, stable=True),
        ),
        Row("argmax rows", (a.square,), lambda x: x.argmax(1)),
        Row("argmax cols", (a.square,), lambda x: x.argmax(0)),
        Row("argmax all", (a.square,), lambda x: x.argmax()),
        Row("sum int64", (a.places,), lambda x: x.sum()),
        Row("any/all", (a.square > 5,), lambda x: x.any(1)),
        Row("count mask", (a.square > 0,), lambda x: x.sum()),
        Row("norm rows", (a.wide,), lambda x: (x * x).sum(1).sqrt(), lambda x: x.norm(dim=1)),
        Row(
            "dot",
            (normal(1000000), normal(1000000)),
            lambda a, b: (a * b).sum(),
            lambda a, b: torch.dot(a, b),
        ),
        Row("max cols", (a.wide,), lambda x: x.max(0), lambda x: x.amax(0)),
        Row("mean (0,2)", (normal(64, 128, 512),), lambda x: x.mean((0, 2))),
        Row("sort rows f32", (a.square,), lambda x: x.sort(1)[0]),
        Row("sort cols f32", (a.square,), lambda x: x.sort(0)[0]),
        Row("topk1 rows", (a.square,), lambda x: x.topk(1)[0]),
        Row("unique", (RNG.integers(0, 1000, 1000000),), lambda x: x.unique(), is_captured=False),
        Row(
            "bincount",
            (RNG.integers(0, 1000, 1000000),),
            lambda x: x.bincount(minlength=1000),
            is_captured=False,
        ),
        Row("histc", (a.square.ravel().copy(),), lambda x: x.histc(100, -4.0, 4.0)),
    ]


def movement(a: Arrays) -> list[Row]:
    """Gathers, scatters and copies."""
    return [
        Row("gather 1", (a.square, a.places), lambda x, i: x.gather(1, i)),
        Row("gather 0", (a.square, a.places), lambda x, i: x.gather(0, i)),
        Row(
            "scatter_add 1",
            (a.square, a.places),
            lambda x, i: Tensor.zeros(1000, 1000).scatter_add(1, i, x),
            lambda x, i: torch.zeros(1000, 1000).scatter_add(1, i, x),
        ),
        Row(
            "scatter_add 0",
            (a.square, a.places),
            lambda x, i: Tensor.zeros(1000, 1000).scatter_add(0, i, x),
            lambda x, i: torch.zeros(1000, 1000).scatter_add(0, i, x),
        ),
        Row(
            "index_add",
            (a.rows, a.chosen),
            lambda v, i: Tensor.zeros(5000, 64).index_add(0, i, v),
            lambda v, i: torch.zeros(5000, 64).index_add(0, i, v),
        ),
        Row("index_select", (normal(5000, 256), a.chosen), lambda v, i: v.index_select(0, i)),
        Row(
            "scatter_add 1d f32",
            (normal(1000000), RNG.integers(0, 100000, 1000000)),
            lambda v, i: Tensor.zeros(100000).scatter_add(0, i, v),
            lambda v, i: torch.zeros(100000).scatter_add(0, i, v),
        ),
        Row("roll", (a.wide,), lambda x: x.roll((3, 5), (0, 1))),
        Row("flip", (a.wide,), lambda x: x.flip(1)),
        Row("repeat_interleave", (normal(1000, 256),), lambda x: x.repeat_interleave(4, 0)),
        Row("repeat", (normal(512, 256),), lambda x: x.repeat(4, 4)),
        Row("tril", (a.square,), lambda x: x.tril()),
        Row("one_hot", (a.labels,), lambda i: i.one_hot(512), lambda i: F.one_hot(i, 512)),
        Row(
            "cat",
            (a.wide, a.other),
            lambda a, b: a.cat(b, dim=1),
            lambda a, b: torch.cat((a, b), 1),
        ),
        Row(
            "stack -1",
            (a.wide, a.other),
            lambda a, b: a.stack(b, dim=-1),
            lambda a, b: torch.stack((a, b), -1),
        ),
        Row(
            "outer",
            (normal(2000), normal(2000)),
            lambda a, b: a.reshape(-1, 1) * b,
            lambda a, b: torch.outer(a, b),
        ),
        Row(
            "unfold/im2col",
            (normal(1, 64, 56, 56),),
            lambda x: (
                x.pad((1, 1, 1, 1))
                .unfold(2, 3, 1)
                .unfold(3, 3, 1)
                .permute(0, 1, 4, 5, 2, 3)
                .reshape(1, 576, 3136)
                .contiguous()
            ),
            lambda x: F.unfold(x, 3, padding=1),
        ),
        Row(
            "pixel_shuffle",
            (normal(4, 64, 64, 64),),
            lambda x: (
                x.reshape(4, 16, 2, 2, 64, 64)
                .permute(0, 1, 4, 2, 5, 3)
                .reshape(4, 16, 128, 128)
                .contiguous()
            ),
            lambda x: F.pixel_shuffle(x, 2),
        ),
    ]


def layers(a: Arrays) -> list[Row]:
    """What layers and losses are made of."""
    return [
        Row(
            "cdist",
            (normal(1000, 64), normal(1000, 64)),
            lambda a, b: Tensor.cdist(a, b),
            lambda a, b: torch.cdist(a, b),
        ),
        Row(
            "conv_transpose",
            (normal(1, 64, 28, 28), normal(64, 64, 4, 4)),
            lambda x, w: x.conv_transpose2d(w, stride=2, padding=1),
            lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        ),
        Row(
            "conv1d",
            (normal(8, 64, 1000), normal(64, 64, 5)),
            lambda x, w: x.conv2d(w, padding=2),
            lambda x, w: F.conv1d(x, w, padding=2),
        ),
        Row(
            "adaptive avg",
            (a.image,),
            lambda x: x.mean((2, 3)),
            lambda x: F.adaptive_avg_pool2d(x, 1)[:, :, 0, 0],
        ),
        Row(
            "bilinear x2",
            (a.image,),
            lambda x: x.interpolate((112, 112), mode="linear"),
            lambda x: F.interpolate(x, (112, 112), mode="bilinear"),
        ),
        Row(
            "nearest x2",
            (a.image,),
            lambda x: x.interpolate((112, 112), mode="nearest"),
            lambda x: F.interpolate(x, (112, 112), mode="nearest"),
        ),
        Row(
            "batch_norm",
            (a.image, normal(64), normal(64)),
            _our_batch_norm,
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        ),
        Row("group_norm", (a.image,), _our_group_norm, lambda x: F.group_norm(x, 8)),
        Row("layer_norm", (a.wide,), lambda x: x.layernorm(-1), lambda x: F.layer_norm(x, (1024,))),
        Row(
            "rms_norm",
            (a.wide,),
            lambda x: x * ((x * x).mean(-1, keepdim=True) + 1e-05).rsqrt(),
            lambda x: F.rms_norm(x, (1024,), eps=1e-05),
        ),
        Row("log_softmax", (a.wide,), lambda x: x.log_softmax(1)),
        Row("softmax dim0", (a.wide,), lambda x: x.softmax(0)),
        Row("logsumexp", (a.wide,), lambda x: x.logsumexp(1)),
        Row(
            "cross_entropy",
            (a.wide, a.classes),
            lambda x, y: x.cross_entropy(y),
            lambda x, y: F.cross_entropy(x, y),
        ),
        Row(
            "dropout",
            (a.wide,),
            lambda x: (Tensor.rand(4096, 1024) >= 0.1).where(x / 0.9, 0),
            lambda x: F.dropout(x, 0.1),
            is_random=True,
        ),
        Row(
            "embedding grad",
            (normal(30000, 128), RNG.integers(0, 30000, 2048), normal(2048, 128)),
            _our_embedding_gradient,
            _their_embedding_gradient,
        ),
        Row(
            "einsum bij,bkj->bik",
            (normal(16, 128, 64), normal(16, 128, 64)),
            lambda a, b: Tensor.einsum("bij,bkj->bik", a, b),
            lambda a, b: torch.einsum("bij,bkj->bik", a, b),
        ),
        Row(
            "einsum bhqd,bkhd->bhqk",
            (normal(4, 8, 128, 64), normal(4, 128, 8, 64)),
            lambda a, b: Tensor.einsum("bhqd,bkhd->bhqk", a, b),
            lambda a, b: torch.einsum("bhqd,bkhd->bhqk", a, b),
        ),
        Row(
            "einsum ij,jk,kl",
            (normal(300, 300), normal(300, 300), normal(300, 300)),
            lambda a, b, c: Tensor.einsum("ij,jk,kl->il", a, b, c),
            lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c),
        ),
        Row(
            "masked_fill softmax",
            (a.wide, a.wide > 1.5),
            lambda x, m: x.masked_fill(m, float("-inf")).softmax(1),
        ),
    ]


def elementwise(a: Arrays) -> list[Row]:
    """Elementwise work."""
    return [
        Row("max_pool 2", (a.image,), lambda x: x.max_pool2d(2), lambda x: F.max_pool2d(x, 2)),
        Row(
            "max_pool 3s2",
            (a.image,),
            lambda x: x.max_pool2d(3, 2, padding=1),
            lambda x: F.max_pool2d(x, 3, 2, 1),
        ),
        Row("avg_pool 2", (a.image,), lambda x: x.avg_pool2d(2), lambda x: F.avg_pool2d(x, 2)),
        Row(
            "avg_pool 3s1p1",
            (a.image,),
            lambda x: x.avg_pool2d(3, 1, padding=1),
            lambda x: F.avg_pool2d(x, 3, 1, 1),
        ),
        Row(
            "uint8 normalise NHWC",
            (a.bytes_, a.mean, a.scale),
            lambda x, m, s: (x.float() / 255 - m) / s,
        ),
        Row(
            "uint8 normalise NHWC->NCHW",
            (a.bytes_, a.mean, a.scale),
            lambda x, m, s: ((x.float() / 255 - m) / s).permute(0, 3, 1, 2).contiguous(),
        ),
        Row(
            "where/clamp",
            (a.wide, a.other),
            lambda a, b: (a > b).where(a.clip(-1, 1), b.clip(-2, 2)),
            lambda a, b: torch.where(a > b, a.clamp(-1, 1), b.clamp(-2, 2)),
        ),
        Row(
            "int8 add",
            ((a.wide * 50).astype("int8"), (a.other * 50).astype("int8")),
            lambda a, b: a + b,
        ),
        Row(
            "int32 mul+shift",
            ((a.wide * 5000).astype("int32"), (a.other * 500).astype("int32")),
            lambda a, b: a * b >> 3,
        ),
        Row(
            "int32 div floor",
            ((a.wide * 5000).astype("int32"), (a.other * 500).astype("int32") | 1),
            lambda a, b: a // b,
        ),
        Row(
            "int64 mod",
            ((a.square * 5000).astype("int64"), (a.square.T.copy() * 500).astype("int64") | 1),
            lambda a, b: a % b,
        ),
        Row("exp", (a.wide,), lambda x: x.exp()),
        Row("log", (np.abs(a.wide) + 0.01,), lambda x: x.log()),
        Row("pow", (np.abs(a.wide) + 0.01,), lambda x: x**1.7),
        Row("sigmoid", (a.wide,), lambda x: x.sigmoid()),
        Row("erf", (a.wide,), lambda x: x.erf()),
        Row("atan2", (a.wide, a.other), lambda a, b: a.atan2(b), lambda a, b: torch.atan2(a, b)),
        Row("tan", (a.square,), lambda x: x.tan()),
        Row("asin", (np.tanh(a.square),), lambda x: x.asin()),
        Row("exp f64", (a.square.astype("f8"),), lambda x: x.exp()),
        Row("sin f64", (a.square.astype("f8"),), lambda x: x.sin()),
    ]


def halves(a: Arrays) -> list[Row]:
    """What there is in 16 bits."""
    found = []
    for kind in ("bfloat16", "float16"):
        one, two = (a.wide,), (a.wide, a.other)
        found += [
            Row(f"add {kind}", two, lambda x, y: x + y, kind=kind),
            Row(f"silu {kind}", one, lambda x: x.silu(), F.silu, kind=kind),
            Row(
                f"gelu {kind}",
                one,
                lambda x: x.gelu(),
                lambda x: F.gelu(x, approximate="tanh"),
                kind=kind,
            ),
            Row(f"softmax {kind}", one, lambda x: x.softmax(1), kind=kind),
            Row(
                f"layernorm {kind}",
                one,
                lambda x: x.layernorm(-1),
                lambda x: F.layer_norm(x, (1024,)),
                kind=kind,
            ),
            Row(f"cast {kind}", one, lambda x: x.float(), kind=kind),
            Row(f"sum of rows {kind}", one, lambda x: x.sum(1), kind=kind),
            Row(f"sum of columns {kind}", one, lambda x: x.sum(0), kind=kind),
        ]
    return found


def _arrays_of(found: Any) -> list[Any]:
    """The results, or the one result, as arrays."""
    several = found if isinstance(found, tuple) else (found,)
    return [each.float().numpy() for each in several]


def are_same(got: list[Any], want: list[Any], is_random: bool) -> bool:
    """Whether results agree."""
    if len(got) != len(want) or any(a.shape != b.shape for a, b in zip(got, want, strict=True)):
        return False
    return is_random or all(
        np.allclose(a, b, rtol=2e-2, atol=1e-2, equal_nan=True)
        for a, b in zip(got, want, strict=True)
    )


def measure(row: Row, seconds: float) -> tuple[float, float, bool]:
    """Milliseconds of both, and whether the results agree."""
    theirs = [torch.from_numpy(np.ascontiguousarray(each)) for each in row.arrays]
    ours = [Tensor(each).realize() for each in row.arrays]
    if row.kind:
        theirs = [each.to(getattr(torch, row.kind)) for each in theirs]
        ours = [each.cast(getattr(dtypes, row.kind)).realize() for each in ours]

    def compute(*tensors: Any) -> Any:
        found = row.ours(*tensors)
        if not isinstance(found, tuple):
            return found.realize()
        Tensor.realize(*found)
        return tuple(found)

    other = row.theirs or row.ours
    run = TinyJit(compute) if row.is_captured else compute
    for _ in range(3):
        found = run(*ours)
    is_same = are_same(_arrays_of(found), _arrays_of(other(*theirs)), row.is_random)
    times = [float("inf"), float("inf")]
    for _ in range(TURNS):
        times[0] = min(times[0], best(lambda: run(*ours), seconds))
        times[1] = min(times[1], best(lambda: other(*theirs), seconds))
    return times[0], times[1], is_same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name matches this")
    parser.add_argument("--part", default="0/1", help="every n-th row from number k on, as k/n")
    parser.add_argument("--seconds", type=float, default=0.05, help="for each turn")
    options = parser.parse_args()
    torch.set_num_threads(2)
    arrays = Arrays()
    groups = (orders, movement, layers, elementwise, halves)
    named = [row for group in groups for row in group(arrays)]
    rows = [row for row in (*named, *further()) if re.search(options.only, row.name)]
    first, step = map(int, options.part.split("/"))
    print(f"{'ratio':>6} {'':28}{'tilework':>10}{'torch':>10}")
    for row in rows[first::step]:
        mine, other, is_same = measure(row, options.seconds)
        note = "" if is_same else "differs"
        print(f"{other / mine:6.2f} {row.name:28}{mine:10.3f}{other:10.3f} {note}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
