"""Kernels that programs on cards have, at the sizes of cards: for tuning, as `common` is for CPUs.

Products of layers of language models with few and with many rows, square products, convolutions of
ResNet-50 in batches, norms and softmax of long rows, transposes.  Tensors hold what memory
held before: kernels are measured on numbers of their own (`engine/bench_data.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tilework.dtypes import bfloat16, float16, float32
from tilework.tensor.tensor import Tensor
from tilework.tools.common import Program, captured

if TYPE_CHECKING:
    from tilework.dtypes import DType

#: Square products, by dtype.
SQUARES: Final = (
    (bfloat16, (1024, 2048, 4096, 8192)),
    (float16, (2048, 4096)),
    (float32, (1024, 2048, 4096)),
)
#: (inputs, outputs) of layers of models with 124M and 8B parameters, and numbers of rows.
LAYERS: Final = ((768, 2304), (768, 3072), (3072, 768), (4096, 6144), (4096, 14336), (14336, 4096))
ROWS: Final = (1, 16, 128, 2048)
#: (images, channels, filters, height and width, window, stride) of ResNet-50.
CONVOLUTIONS: Final = (
    (32, 64, 64, 56, 1, 1),
    (32, 64, 64, 56, 3, 1),
    (32, 256, 64, 56, 1, 1),
    (32, 128, 128, 28, 3, 1),
    (32, 256, 256, 14, 3, 1),
    (32, 512, 512, 7, 3, 1),
    (1, 64, 64, 56, 3, 1),
    (1, 256, 256, 14, 3, 1),
)


def card_programs() -> Iterator[tuple[str, Program]]:
    """All programs by name."""
    for dtype, sizes in SQUARES:
        for size in sizes:
            yield f"matmul {size} {dtype.name}", _run(_product, dtype, (size, size), (size, size))
    for rows in ROWS:
        for depth, columns in LAYERS:
            name = f"linear {rows}x{depth}x{columns}"
            yield name, _run(_linear, bfloat16, (rows, depth), (columns, depth))
    for images, channels, filters, size, window, stride in CONVOLUTIONS:
        name = f"conv {images}x{channels}-{filters} {size} {window}x{window}/{stride}"
        shapes = ((images, channels, size, size), (filters, channels, window, window))
        yield name, _run(_convolution(window, stride), float16, *shapes)
    for shape in ((2048, 4096), (16384, 1024), (4096, 16384)):
        name = "x".join(map(str, shape))
        yield f"softmax {name}", _run(lambda x: x.softmax(), bfloat16, shape)
        yield f"layernorm {name}", _run(lambda x: x.layernorm(), bfloat16, shape)
        yield f"sum of columns {name}", _run(lambda x: x.sum(0), float32, shape)
        yield f"sum of rows {name}", _run(lambda x: x.sum(1), float32, shape)
        yield f"gelu {name}", _run(lambda x: x.gelu() * x, bfloat16, shape)
        yield f"transpose {name}", _run(lambda x: x.transpose().contiguous(), bfloat16, shape)
        yield f"running sum {name}", _run(lambda x: x.cumsum(-1), float32, shape)


def _run(function: Callable[..., Tensor], dtype: DType, *shapes: tuple[int, ...]) -> Program:
    return captured(function, *shapes, draw=lambda shape: Tensor.empty(*shape, dtype=dtype))


def _product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def _linear(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.transpose()


def _convolution(window: int, stride: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, w: x.conv2d(w, stride=stride, padding=window // 2).relu()


__all__ = ["card_programs"]
