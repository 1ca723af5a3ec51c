"""Small programs that take every kind of kernel there is, with their results checked.

    python -m benchmarks.gpu.kinds [--only attention] [--device CUDA]

Each runs plainly, captured, and replayed (which makes a device graph of it) on fresh random inputs;
the same program on the CPU says what is right.  What runs here is what `benchmarks.gpu.sanitize`
puts under NVIDIA's checkers, so shapes are as small as they may be for a kind of kernel to be
taken: rings of matrix units need several slots, sorts of long rows several tiles.  With `--release`
every thread hands slots of a ring back by itself, as NVIDIA's racecheck must see it (docs/cuda.md);
that code is not cached.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilework import Tensor, dtypes, jit, nn
from tilework.base import settings
from tilework.base.records import replace
from tilework.base.settings import override
from tilework.codegen.matrix.group_feed import GroupFeed

_ROUNDED = 1e-2


@dataclass(frozen=True)
class Kind:
    """A program, what it is given, and how far from the CPU's results it may be.

    Attributes:
        name: What its kernels are.
        inputs: (shape, dtype name) of each input; integers are places below `below`.
        program: Gets the inputs and returns one tensor or several.
        tolerance: The most error, relative to the result; 0 asks for equal numbers.
        below: What integers are less than.
        settings: tilework's settings for this program.
    """

    name: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    program: Callable[..., Any]
    tolerance: float = 1e-5
    below: int = 16
    settings: dict[str, Any] = field(default_factory=dict)


def kinds() -> list[Kind]:
    """All of them: what moves and folds first, then products, then what has products inside."""
    return [*_moving(), *_folding(), *_sorting(), *_products(), *_attention(), *_training()]


def _moving() -> list[Kind]:
    return [
        Kind("elementwise", (((1000, 33), "float32"),), lambda x: (x * 1.5 + 0.25).gelu() * x),
        Kind("elementwise, any start", (((4099,), "float32"),), lambda x: x[1:] * 2 + x[:-1]),
        Kind("casts", (((777,), "float32"),), lambda x: (x.half() * 3, x.bfloat16(), x.double())),
        Kind("transpose", (((256, 192), "bfloat16"),), lambda x: x.T.contiguous(), 0.0),
        Kind("transpose of odd sizes", (((67, 131), "float32"),), lambda x: x.T.contiguous(), 0.0),
        Kind("flip and pad", (((33, 70), "float32"),), lambda x: x.flip(1).pad((3, 5, 1, 2)), 0.0),
        Kind("gather", (((64, 96), "float32"), ((50,), "int32")), lambda x, i: x[i], 0.0),
        Kind("write to a view", (((64, 64), "float32"),), _written),
    ]


def _written(x: Tensor) -> Tensor:
    made = (x * 2).contiguous()
    made[3:40:2, 5:] = x[3:40:2, 5:] - 1.0
    return made + 1.0


def _folding() -> list[Kind]:
    wide, flat = ((40, 5000), "float32"), ((1 << 18,), "float32")
    return [
        Kind("fold of rows", (wide,), lambda x: (x.sum(1), x.max(1))),
        Kind("fold of columns", (((3000, 130), "float32"),), lambda x: x.sum(0)),
        Kind("fold of all", (flat,), lambda x: (x.sum(), x.square().mean())),
        Kind("greatest place", (wide,), lambda x: x.argmax(1), 0.0),
        Kind("softmax", (((64, 1024), "bfloat16"),), lambda x: x.softmax(-1), _ROUNDED),
        Kind("layernorm", (((64, 1000), "float32"),), lambda x: x.layernorm()),
        Kind("scan of a long row", (flat,), lambda x: x.cumsum(0), 1e-4),
        Kind("scan of rows", (((37, 700), "float32"),), lambda x: x.cumsum(1), 1e-4),
        Kind("scan down columns", (((300, 65), "float32"),), lambda x: x.cumsum(0), 1e-4),
        Kind("scan of greatest", (((9, 5000), "float32"),), lambda x: x.cummax(1)[0], 0.0),
    ]


def _sorting() -> list[Kind]:
    return [
        Kind("sort of short rows", (((50, 60), "float32"),), lambda x: x.sort(1)[0], 0.0),
        Kind("sort in a block", (((6, 3000), "float32"),), lambda x: tuple(x.sort(1)), 0.0),
        Kind("sort in passes", (((40000,), "float32"),), lambda x: tuple(x.sort(0)), 0.0),
        Kind("most of a row", (((5, 2000), "float32"),), lambda x: x.topk(7)[0], 0.0),
        Kind(
            "sums at places",
            (((32, 48), "float32"), ((200,), "int32"), ((200, 48), "float32")),
            lambda x, i, y: x.index_add(0, i, y),
            below=32,
        ),
    ]


def _products() -> list[Kind]:
    def product(name: str, m: int, n: int, k: int, dtype: str, **more: Any) -> Kind:
        kind = {"tolerance": _ROUNDED} | more
        return Kind(name, (((m, k), dtype), ((k, n), dtype)), lambda a, b: a @ b, **kind)

    linear = (((256, 512), "bfloat16"), ((512, 384), "bfloat16"), ((384,), "bfloat16"))
    image = (((2, 64, 14, 14), "float16"), ((64, 64, 3, 3), "float16"))
    return [
        product("ring of warp groups", 256, 384, 512, "bfloat16"),
        product("ring of warp groups, any size", 200, 136, 264, "float16"),
        product("product of rows that start anywhere", 100, 101, 99, "bfloat16"),
        product("ring, cut along k", 64, 64, 8192, "bfloat16"),
        product("clusters of blocks", 1024, 1024, 256, "bfloat16"),
        product("one row", 1, 512, 1024, "bfloat16"),
        product("few rows", 16, 512, 1024, "bfloat16"),
        product("tf32", 256, 128, 512, "float32", settings={"allow_tf32": True}, tolerance=2e-3),
        product("float32", 130, 140, 200, "float32", tolerance=1e-5),
        product("float64", 96, 64, 128, "float64", tolerance=1e-12),
        Kind(
            "batched",
            (((5, 128, 128), "bfloat16"), ((5, 128, 128), "bfloat16")),
            lambda a, b: a @ b,
            _ROUNDED,
        ),
        Kind(
            "bytes",
            (((128, 256), "int8"), ((256, 128), "int8")),
            lambda a, b: a.matmul(b, dtype=dtypes.int32),
            0.0,
        ),
        Kind(
            "bytes by single warps",
            (((128, 256), "int8"), ((256, 128), "int8")),
            lambda a, b: a.cast("uint8").matmul(b, dtype=dtypes.int32),
            0.0,
        ),
        Kind(
            "eight-bit floats",
            (((128, 256), "float32"), ((256, 128), "float32")),
            lambda a, b: a.cast("fp8e4m3").matmul(b.cast("fp8e4m3"), dtype=dtypes.float32),
            _ROUNDED,
        ),
        Kind("bias and gelu", linear, lambda x, w, b: (x @ w + b).gelu(), 2e-2),
        Kind("convolution", image, lambda x, w: x.conv2d(w, padding=1).relu(), _ROUNDED),
        Kind("convolution by steps", image, lambda x, w: x.conv2d(w, stride=2), _ROUNDED),
    ]


def _attention() -> list[Kind]:
    def attend(name: str, q: tuple[int, ...], k: tuple[int, ...], *, is_causal: bool) -> Kind:
        def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return q.scaled_dot_product_attention(k, v, is_causal=is_causal)

        inputs = ((q, "bfloat16"), (k, "bfloat16"), (k, "bfloat16"))
        return Kind(name, inputs, program, 2e-2)

    def learn(q: Tensor, k: Tensor, v: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        q, k, v = (each.detach().requires_grad_() for each in (q, k, v))
        out = q.scaled_dot_product_attention(k, v, is_causal=True)
        return tuple(out.gradient(q, k, v, gradient=given))

    long = (1, 2, 512, 64)
    return [
        attend("attention, causal", long, long, is_causal=True),
        attend("attention, heads of 128", (1, 1, 256, 128), (1, 1, 384, 128), is_causal=False),
        attend("attention of one query", (1, 4, 1, 128), (1, 4, 1024, 128), is_causal=False),
        Kind("gradients of attention", ((long, "bfloat16"),) * 4, learn, 3e-2),
    ]


def _training() -> list[Kind]:
    def step(x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        weight = w.detach().requires_grad_()
        loss = (x @ weight).relu().sparse_categorical_crossentropy(y)
        loss.backward()
        assert weight.grad is not None
        return loss, weight - weight.grad * 0.1

    def norm(x: Tensor) -> Tensor:
        layer = nn.BatchNorm2d(16, affine=False, track_running_stats=False)
        with Tensor.train():
            return layer(x)

    inputs = (((96, 128), "float32"), ((128, 40), "float32"), ((96,), "int32"))
    return [
        Kind("a step of training", inputs, step, 1e-4),
        Kind("norms of channels", (((4, 16, 9, 9), "float32"),), norm, 1e-4),
    ]


def random_inputs(kind: Kind, seed: int) -> list[np.ndarray[Any, Any]]:
    """Numbers for one program: normal ones, small whole ones for bytes, places for int32."""
    random = np.random.default_rng(seed)
    found: list[np.ndarray[Any, Any]] = []
    for shape, dtype in kind.inputs:
        if dtype == "int32":
            found.append(random.integers(0, kind.below, shape).astype(np.int32))
        elif dtype == "int8":
            found.append(random.integers(-8, 8, shape).astype(np.int8))
        else:
            wide = np.float64 if dtype == "float64" else np.float32
            found.append(random.standard_normal(shape).astype(wide))
    return found


def _tensors(kind: Kind, arrays: Sequence[np.ndarray[Any, Any]], device: str) -> list[Tensor]:
    rows = zip(arrays, kind.inputs, strict=True)
    return [Tensor(array, device=device).cast(dtype).realize() for array, (_, dtype) in rows]


def _results(kind: Kind, step: Callable[..., Any], given: list[Tensor]) -> list[Any]:
    with override(**kind.settings):
        found = step(*given)
        several = found if isinstance(found, tuple) else (found,)
        several[0].realize(*several[1:])
    return [each.cast(dtypes.float64).numpy() for each in several]


def differences(kind: Kind, device: str, seed: int = 0) -> list[str]:
    """What is wrong with a program on a device, run plainly and by replays; empty if nothing."""
    arrays = random_inputs(kind, seed)
    wanted = _results(kind, kind.program, _tensors(kind, arrays, "CPU"))
    given = _tensors(kind, arrays, device)
    step, faults = jit(kind.program), []
    for number in range(4):
        for want, got in zip(wanted, _results(kind, step, given), strict=True):
            size = np.linalg.norm(want)
            error = float(np.linalg.norm(got - want) / (size or 1.0))
            if not error <= kind.tolerance:
                faults.append(f"{kind.name}, call {number}: off by {error:.3g}")
    return faults


def main() -> int:
    """Run all, say what is wrong and how long each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="CUDA")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--release", action="store_true")
    given = parser.parse_args()
    if given.release:
        GroupFeed.all_release = True
        settings.install(replace(settings.current(), cache_dir=None))
    faults = []
    for kind in kinds():
        if given.only in kind.name:
            started = time.perf_counter()
            found = differences(kind, given.device, given.seed)
            print(f"{kind.name}: {'; '.join(found) or 'right'}, "
                  f"{time.perf_counter() - started:.2f} s", flush=True)  # fmt: skip
            faults += found
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
