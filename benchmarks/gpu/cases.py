"""What is measured on a GPU: rows that only move memory; `contractions` has the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.gpu.case import Case
from benchmarks.gpu.contractions import contractions


def cases(torch: Any) -> list[Case]:
    """All rows, the memory-bound ones first."""
    return [*_memory_bound(torch), *contractions(torch)]


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
        Case(
            "sort 2^26 float32",
            (((1 << 26,), "float32", 1.0),),
            lambda x: x.sort()[0],
            {"torch": lambda x: torch.sort(x)[0]},
            moved_bytes=8.0 * (1 << 26),
            tolerance=0.0,
        ),
        Case(
            "400 tiny kernels that need each other",
            (((1024,), "float32", 1.0), ((1024,), "float32", 0.01)),
            _many_steps,
            {"torch graph": lambda x, w: _many_steps(x, w)},
            moved_bytes=400 * 8.0 * 1024,
            tolerance=1e-4,
            is_graph=True,
        ),
    ]


def _many_steps(x: Any, w: Any) -> Any:
    """Folds and quotients in turn, so that no two of 400 kernels can be one."""
    for _ in range(200):
        x = x + w * x.sum()
        x = x / (x.abs().sum() + 1.0)
    return x
