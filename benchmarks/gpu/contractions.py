"""Products, convolutions and attention."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.case import Case

_ROUNDED = 6e-3


def contractions(torch: Any) -> list[Case]:
    """All rows."""
    return [*_squares(), *_odd(), *_skinny(torch), *_linear(torch), *_conv(torch), *_attend(torch)]


def _product(
    name: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: str,
    flops: float,
    **more: Any,
) -> Case:
    return Case(
        name,
        tuple((shape, dtype, 1.0) for shape in shapes),
        lambda a, b: a @ b,
        {"torch": lambda a, b: a @ b},
        **({"flops": flops, "tolerance": _ROUNDED} | more),
    )


def _squares() -> list[Case]:
    found = []
    for dtype, sizes, tolerance in (
        ("float32", (2048, 4096), 1e-5),
        ("bfloat16", (2048, 4096, 8192), _ROUNDED),
        ("float16", (8192,), _ROUNDED),
    ):
        for size in sizes:
            shapes = ((size, size), (size, size))
            name = f"matmul {size}^3 {dtype}"
            found.append(_product(name, shapes, dtype, 2.0 * size**3, tolerance=tolerance))
    short = {"settings": {"allow_tf32": True}, "allows_tf32": True, "tolerance": 2e-3}
    shapes = ((4096, 4096), (4096, 4096))
    found.append(_product("matmul 4096^3 tf32, by name", shapes, "float32", 2.0 * 4096**3, **short))
    return found


def _odd() -> list[Case]:
    found = []
    for m, n, k, note in (
        (4000, 4001, 3999, " (rows not aligned)"),
        (64, 64, 65536, ""),
        (64, 65536, 64, ""),
        (65536, 64, 4096, ""),
        (65536, 4096, 64, ""),
    ):
        name = f"matmul {m} x {n}, k = {k}, bfloat16{note}"
        found.append(_product(name, ((m, k), (k, n)), "bfloat16", 2.0 * m * n * k))
    shapes = ((64, 512, 512), (64, 512, 512))
    found.append(_product("64 matmuls 512^3 bfloat16", shapes, "bfloat16", 64 * 2.0 * 512**3))
    return found


def _skinny(torch: Any) -> list[Case]:
    k, n = 4096, 11008
    found = []
    for m in (1, 16, 64):
        moved = 2.0 * (k * n + m * (k + n))
        found.append(
            _product(
                f"matmul {m} x {n}, k = {k}, bfloat16", ((m, k), (k, n)), "bfloat16", 0.0,
                moved_bytes=moved,
            )
        )  # fmt: skip
        found.append(
            Case(
                f"linear {m} x {n}, k = {k}, bfloat16",
                (((m, k), "bfloat16", 1.0), ((n, k), "bfloat16", 1.0)),
                lambda x, w: x @ w.T,
                {"torch": lambda x, w: torch.nn.functional.linear(x, w)},
                moved_bytes=moved,
                tolerance=_ROUNDED,
            )
        )
    return found


def _linear(torch: Any) -> list[Case]:
    functional = torch.nn.functional
    rows, k, n = 4096, 4096, 16384
    inputs = (
        ((rows, k), "bfloat16", 1.0),
        ((n, k), "bfloat16", 0.02),
        ((n,), "bfloat16", 1.0),
    )

    def peer(x: Any, w: Any, b: Any) -> Any:
        return functional.gelu(functional.linear(x, w, b))

    return [
        Case(
            f"linear {rows} x {k} -> {n} + bias + gelu, bfloat16",
            inputs,
            lambda x, w, b: (x @ w.T + b).gelu(approximate="none"),
            {"torch": peer, "torch.compile": torch.compile(peer)},
            flops=2.0 * rows * k * n,
            tolerance=_ROUNDED,
        ),
        Case(
            f"the same in one rounding: gelu of float32 sums, {rows} x {k} -> {n}",
            inputs,
            lambda x, w, b: (x.matmul(w.T, dtype="float32") + b).gelu().cast(x.dtype),
            {"torch": peer, "torch.compile": torch.compile(peer)},
            flops=2.0 * rows * k * n,
            tolerance=_ROUNDED,
        ),
    ]


def _conv(torch: Any) -> list[Case]:
    functional = torch.nn.functional
    batch, channels, side = 32, 256, 56
    flops = 2.0 * batch * side**2 * channels**2 * 9
    weights = ((channels, channels, 3, 3), "float16", 0.02)
    last = torch.channels_last

    def near(x: Any) -> Any:
        return x.to(memory_format=last)

    return [
        Case(
            f"conv 3x3, {channels} channels, {side}^2, batch {batch}, float16",
            (((batch, channels, side, side), "float16", 1.0), weights),
            lambda x, w: x.conv2d(w, padding=1),
            {"torch": lambda x, w: functional.conv2d(x, w, padding=1)},
            flops=flops,
            tolerance=_ROUNDED,
            exact="float32",
        ),
        Case(
            "the same, channels last",
            (((batch, side, side, channels), "float16", 1.0), weights),
            lambda x, w: (
                x.permute(0, 3, 1, 2).conv2d(w, padding=1).permute(0, 2, 3, 1).contiguous()
            ),
            {
                "torch": lambda x, w: functional.conv2d(
                    x.permute(0, 3, 1, 2), near(w), padding=1
                ).permute(0, 2, 3, 1)
            },
            flops=flops,
            tolerance=_ROUNDED,
            exact="float32",
        ),
    ]


def _attend(torch: Any) -> list[Case]:
    attention = torch.nn.functional.scaled_dot_product_attention
    found = []
    for batch, length in ((4, 2048), (2, 8192)):
        shape = (batch, 16, length, 128)
        flops = 2.0 * batch * 16 * length**2 * 128  # half of all pairs
        inputs = tuple((shape, "bfloat16", 1.0) for _ in range(3))

        def peer(q: Any, k: Any, v: Any) -> Any:
            return attention(q, k, v, is_causal=True)

        def backward(q: Any, k: Any, v: Any, g: Any) -> Any:
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
            return torch.autograd.grad(peer(q, k, v), (q, k, v), g)

        found += [
            Case(
                f"attention, causal, 16 heads of 128, {length} x {batch}, bfloat16",
                inputs,
                lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
                {"torch": peer},
                flops=flops,
                tolerance=2e-2,
                exact="float32",
            ),
            Case(
                f"the same and its gradients, {length} x {batch}",
                (*inputs, (shape, "bfloat16", 1.0)),
                _our_gradients,
                {"torch": backward},
                flops=3.5 * flops,
                tolerance=2e-2,
                exact="float32",
            ),
        ]
    return found


def _our_gradients(q: Any, k: Any, v: Any, g: Any) -> Any:
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    return q.scaled_dot_product_attention(k, v, is_causal=True).gradient(q, k, v, gradient=g)
