"""What is measured on a GPU: inputs, the same work for tilework and peers, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One row of the table.

    `inputs` are (shape, dtype name, scale); `ours` gets tilework's tensors, `peers` PyTorch's, in
    the same order; `wanted` computes the reference from inputs in float64.
    """

    name: str
    inputs: tuple[tuple[tuple[int, ...], str, float], ...]
    ours: Callable[..., Any]
    peers: dict[str, Callable[..., Any]]
    moved_bytes: float = 0.0
    flops: float = 0.0
    tolerance: float = 1e-5
    wanted: Callable[..., Any] | None = None
    notes: dict[str, str] = field(default_factory=dict)


def cases(torch: Any) -> list[Case]:
    """All rows, the memory-bound ones first."""
    return [*_memory_bound(torch), *_matmuls(torch)]


def _both(function: Callable[..., Any], torch: Any) -> dict[str, Callable[..., Any]]:
    return {"torch": function, "torch.compile": torch.compile(function)}


def _memory_bound(torch: Any) -> list[Case]:
    functional = torch.nn.functional
    flat, rows = (1 << 28,), (16384, 8192)

    def norm(x: Any, w: Any) -> Any:
        return functional.rms_norm(x, (8192,), w, 1e-5)

    def our_norm(x: Any, w: Any) -> Any:
        wide = x.float()
        return ((wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()) * w.float()).cast(
            x.dtype
        )

    row_bytes = 2.0 * 2 * rows[0] * rows[1]
    return [
        Case(
            "copy of 1 GiB (x * 1)",
            ((flat, "float32", 1.0),),
            lambda x: x + 1.0,
            {"torch": lambda x: x + 1.0},
            moved_bytes=8.0 * flat[0],
        ),
        Case(
            "gelu(x * a + b) * x, 2^28 float32",
            ((flat, "float32", 1.0),),
            lambda x: (x * 1.5 + 0.25).gelu(approximate="tanh") * x,
            _both(lambda x: functional.gelu(x * 1.5 + 0.25, approximate="tanh") * x, torch),
            moved_bytes=8.0 * flat[0],
            tolerance=1e-6,
        ),
        Case(
            "sum of 4 GiB float32",
            (((1 << 30,), "float32", 1.0),),
            lambda x: x.sum(),
            {"torch": lambda x: x.sum()},
            moved_bytes=4.0 * (1 << 30),
            tolerance=1e-3,
        ),
        Case(
            "softmax 16384 x 8192 bf16",
            ((rows, "bfloat16", 2.0),),
            lambda x: x.softmax(-1),
            _both(lambda x: torch.softmax(x, -1), torch),
            moved_bytes=row_bytes,
            tolerance=6e-3,
        ),
        Case(
            "layernorm 16384 x 8192 bf16",
            ((rows, "bfloat16", 2.0),),
            lambda x: x.layernorm(eps=1e-5),
            _both(lambda x: functional.layer_norm(x, (8192,), eps=1e-5), torch),
            moved_bytes=row_bytes,
            tolerance=6e-3,
        ),
        Case(
            "rmsnorm 16384 x 8192 bf16",
            ((rows, "bfloat16", 2.0), ((8192,), "bfloat16", 1.0)),
            our_norm,
            _both(norm, torch),
            moved_bytes=row_bytes,
            tolerance=6e-3,
        ),
        Case(
            "transpose 16384 x 8192 bf16",
            ((rows, "bfloat16", 1.0),),
            lambda x: x.T.contiguous(),
            {"torch": lambda x: x.T.contiguous()},
            moved_bytes=row_bytes,
            tolerance=0.0,
        ),
        Case(
            "column sums 16384 x 8192 float32",
            ((rows, "float32", 1.0),),
            lambda x: x.sum(0),
            {"torch": lambda x: x.sum(0)},
            moved_bytes=4.0 * rows[0] * rows[1],
            tolerance=1e-5,
        ),
        Case(
            "cumsum 2^28 float32",
            ((flat, "float32", 1.0),),
            lambda x: x.cumsum(0),
            {"torch": lambda x: x.cumsum(0)},
            moved_bytes=8.0 * flat[0],
            tolerance=1e-3,
        ),
    ]


def _matmuls(torch: Any) -> list[Case]:
    found = []
    for dtype, sizes, tolerance in (
        ("float32", (2048, 4096), 1e-5),
        ("bfloat16", (2048, 4096, 8192), 6e-3),
    ):
        found += [
            Case(
                f"matmul {size}^3 {dtype}",
                (((size, size), dtype, 1.0), ((size, size), dtype, 1.0)),
                lambda a, b: a @ b,
                {"torch": lambda a, b: a @ b},
                flops=2.0 * size**3,
                moved_bytes=0.0,
                tolerance=tolerance,
            )
            for size in sizes
        ]
    sizes = (4000, 4001, 3999)
    found.append(
        Case(
            "matmul 4000 x 4001 x 3999 bfloat16 (rows not aligned)",
            (((sizes[0], sizes[2]), "bfloat16", 1.0), ((sizes[2], sizes[1]), "bfloat16", 1.0)),
            lambda a, b: a @ b,
            {"torch": lambda a, b: a @ b},
            flops=2.0 * sizes[0] * sizes[1] * sizes[2],
            tolerance=6e-3,
        )
    )
    return found
