"""Kernels that many programs have, made by small programs: for tuning, and to judge cost models.

Each program is called once and captured, so that weights are packed as in any captured model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tilework.tensor.jit import jit
from tilework.tensor.tensor import Tensor

Program = Callable[[], None]

#: Sizes of square products, and (rows, depth, columns) of layers: BERT's and GPT-2's.
SQUARES: Final = (128, 256, 512, 768, 1024)
LAYERS: Final = (
    (128, 768, 768),
    (128, 768, 2304),
    (128, 768, 3072),
    (128, 3072, 768),
    (1, 768, 768),
    (1, 768, 2304),
    (1, 768, 3072),
    (1, 3072, 768),
    (1, 512, 1000),
    (1, 1280, 1000),
)
#: (channels, filters, height and width, window, stride, groups) of the layers of ResNet-18 and -50
#: and of MobileNetV2.
CONVOLUTIONS: Final = (
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 3, 1, 1),
    (64, 128, 56, 3, 2, 1),
    (128, 128, 28, 3, 1, 1),
    (128, 256, 28, 3, 2, 1),
    (256, 256, 14, 3, 1, 1),
    (256, 512, 14, 3, 2, 1),
    (512, 512, 7, 3, 1, 1),
    (64, 256, 56, 1, 1, 1),
    (256, 64, 56, 1, 1, 1),
    (512, 128, 28, 1, 1, 1),
    (1024, 256, 14, 1, 1, 1),
    (3, 32, 224, 3, 2, 1),
    (32, 32, 112, 3, 1, 32),
    (96, 96, 112, 3, 2, 96),
    (144, 144, 56, 3, 1, 144),
    (192, 192, 28, 3, 1, 192),
    (384, 384, 14, 3, 1, 384),
    (16, 96, 112, 1, 1, 1),
    (24, 144, 56, 1, 1, 1),
    (192, 32, 28, 1, 1, 1),
    (384, 64, 14, 1, 1, 1),
    (160, 960, 7, 1, 1, 1),
    (320, 1280, 7, 1, 1, 1),
)


def programs() -> Iterator[tuple[str, Program]]:
    """All programs by name."""
    yield from _products()
    yield from _convolutions()
    yield from _attentions()
    yield from _rows()
    yield from _elements()
    yield from _orders()


_generator: Final = np.random.default_rng(0)


def normal(shape: tuple[int, ...]) -> Tensor:
    """A tensor of normal numbers, float32."""
    return Tensor(_generator.standard_normal(shape, dtype=np.float32)).realize()


def captured(
    function: Callable[..., Tensor],
    *shapes: tuple[int, ...],
    draw: Callable[[tuple[int, ...]], Tensor] = normal,
) -> Program:
    """Calls a capture of a function on drawn numbers until it runs as it will."""

    def run() -> None:
        inputs = [draw(shape) for shape in shapes]
        call = jit(lambda *xs: function(*xs).realize())
        for _ in range(3):
            call(*inputs)

    return run


def _with_weights(
    function: Callable[..., Tensor], shape: tuple[int, ...], *weights: tuple[int, ...]
) -> Program:
    """The same for a function of one input and of constants."""

    def run() -> None:
        held = [normal(weight) for weight in weights]
        captured(lambda x: function(x, *held), shape)()

    return run


def _products() -> Iterator[tuple[str, Program]]:
    for size in SQUARES:
        yield f"matmul {size}", captured(lambda a, b: a @ b, (size, size), (size, size))
    yield "matmul 16x256", captured(lambda a, b: a @ b, (16, 256, 256), (16, 256, 256))
    yield "matmul a.T b 512", captured(lambda a, b: a.transpose() @ b, (512, 512), (512, 512))
    yield "matmul a b.T 512", captured(lambda a, b: a @ b.transpose(), (512, 512), (512, 512))
    yield "matrix times vector", captured(lambda a, b: a @ b, (2048, 2048), (2048, 1))
    for rows, depth, columns in LAYERS:
        shapes = ((columns, depth), (columns,))
        name = f"linear {rows}x{depth}x{columns}"
        yield (
            name,
            _with_weights(lambda x, w, b: x.linear(w.transpose(), b), (rows, depth), *shapes),
        )
    yield (
        "linear with gelu 128x768x3072",
        _with_weights(
            lambda x, w, b: x.linear(w.transpose(), b).gelu(), (128, 768), (3072, 768), (3072,)
        ),
    )


def _convolutions() -> Iterator[tuple[str, Program]]:
    for channels, filters, size, window, stride, groups in CONVOLUTIONS:
        name = f"conv {channels}-{filters} {size} {window}x{window}/{stride}"

        def function(
            x: Tensor, w: Tensor, b: Tensor, stride: int = stride, groups: int = groups
        ) -> Tensor:
            padding = int(w.shape[-1]) // 2
            return x.conv2d(w, b, groups=groups, stride=stride, padding=padding).relu()

        weights = (filters, channels // groups, window, window)
        yield name, _with_weights(function, (1, channels, size, size), weights, (filters,))
    pool = captured(lambda x: x.max_pool2d((3, 3), 2, padding=1), (1, 64, 112, 112))
    yield "max pool 64 112 3x3/2", pool
    yield "mean pool 512 7", captured(lambda x: x.mean((2, 3)), (1, 512, 7, 7))


def _attentions() -> Iterator[tuple[str, Program]]:
    for heads, length, width in ((12, 128, 64), (12, 512, 64), (16, 256, 64)):
        shape = (1, heads, length, width)
        for causal in (False, True):

            def function(q: Tensor, k: Tensor, v: Tensor, causal: bool = causal) -> Tensor:
                return q.scaled_dot_product_attention(k, v, is_causal=causal)

            name = f"attention {heads}x{length}x{width}{' causal' if causal else ''}"
            yield name, captured(function, shape, shape, shape)


def _rows() -> Iterator[tuple[str, Program]]:
    for shape in ((128, 768), (512, 512), (1024, 1024), (4096, 256)):
        name = "x".join(map(str, shape))
        yield f"softmax {name}", captured(lambda x: x.softmax(), shape)
        yield f"log softmax {name}", captured(lambda x: x.log_softmax(), shape)
        width = shape[1:]
        norm = _with_weights(lambda x, g, b: x.layernorm() * g + b, shape, width, width)
        yield f"layernorm {name}", norm
        yield f"sum of rows {name}", captured(lambda x: x.sum(1), shape)
        yield f"sum of columns {name}", captured(lambda x: x.sum(0), shape)
        yield f"maximum of rows {name}", captured(lambda x: x.max(1), shape)
        yield f"mean and spread {name}", captured(lambda x: x.var(1), shape)
    yield "sum of all", captured(lambda x: x.sum(), (1 << 20,))
    yield "middle axis", captured(lambda x: x.sum(1), (64, 128, 96))


def _elements() -> Iterator[tuple[str, Program]]:
    for shape in ((256, 256), (1024, 1024), (3, 224, 224)):
        name = "x".join(map(str, shape))
        yield f"gelu {name}", captured(lambda x: x.gelu() * 0.5 + x, shape)
        yield f"add {name}", captured(lambda x, y: x + y, shape, shape)
        yield f"sigmoid {name}", captured(lambda x: x.sigmoid() * x, shape)
        yield f"sine {name}", captured(lambda x: x.sin() + x.sqrt(), shape)
    for shape in ((1024, 1024), (257, 769), (2048, 512), (512, 768)):
        name = "x".join(map(str, shape))
        yield f"transpose {name}", captured(lambda x: x.transpose().contiguous(), shape)
        yield (
            f"transpose and scale {name}",
            captured(lambda x: (x * 2.0).transpose().contiguous() + 1.0, shape),
        )
    yield (
        "channels last 64x56x56",
        captured(lambda x: x.permute(0, 2, 3, 1).contiguous(), (1, 64, 56, 56)),
    )
    yield (
        "heads 512x12x64",
        captured(lambda x: x.permute(0, 2, 1, 3).contiguous(), (1, 512, 12, 64)),
    )


def _orders() -> Iterator[tuple[str, Program]]:
    for shape in ((1 << 16,), (256, 1024), (1024, 64), (64, 200)):
        name = "x".join(map(str, shape))
        yield f"running sum {name}", captured(lambda x: x.cumsum(-1), shape)
        yield f"running maximum {name}", captured(lambda x: x.cummax(-1)[0], shape)
        yield f"sort {name}", captured(lambda x: x.sort()[0], shape)
    yield "running sum of columns", captured(lambda x: x.cumsum(0), (512, 512))


__all__ = ["Program", "captured", "programs"]
