"""Random programs whose gradients, and those of gradients, are compared with PyTorch's.

A step is a function of the values made so far, written once for both libraries: what they spell
differently goes through `library` and `lifted`.  Everything is float64, so the bounds are narrow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tilework import Tensor, jit

Array = Any
Numbers = tuple[int, ...]
Step = tuple[str, Numbers]
_MOST_ELEMENTS = 400
_MOST_VALUES = 9


def library(x: Any) -> Any:
    return torch if isinstance(x, torch.Tensor) else Tensor


def lifted(x: Any, array: Array) -> Any:
    """An array as a tensor of the library of `x`."""
    return torch.tensor(array) if isinstance(x, torch.Tensor) else Tensor(array, device=x.device)


def _axis(x: Any, number: int) -> int:
    return number % int(x.ndim)


def _two(values: list[Any], numbers: Numbers) -> tuple[Any, Any]:
    """A value, and one of the same shape."""
    x = values[numbers[0] % len(values)]
    alike = [y for y in values if tuple(y.shape) == tuple(x.shape)]
    return x, alike[numbers[1] % len(alike)]


#: Steps of one value: the value and three numbers.
SINGLE: dict[str, Callable[[Any, int, int, int], Any]] = {
    "tanh": lambda x, a, b, c: x.tanh(),
    "sin": lambda x, a, b, c: x.sin(),
    "bell": lambda x, a, b, c: (-(x**2)).exp(),
    "root": lambda x, a, b, c: (x.abs() + 0.1).sqrt(),
    "power": lambda x, a, b, c: x.tanh() ** (a % 3 + 1),
    "clamp": lambda x, a, b, c: x.clamp(-0.5, 0.7),
    "sum": lambda x, a, b, c: x.sum(_axis(x, a), keepdim=True) + x * 0,
    "centred": lambda x, a, b, c: x - x.mean(_axis(x, a), keepdim=True),
    "softmax": lambda x, a, b, c: x.softmax(_axis(x, a)),
    "log_softmax": lambda x, a, b, c: x.log_softmax(_axis(x, a)) * 0.3,
    "logsumexp": lambda x, a, b, c: x.logsumexp(_axis(x, a), keepdim=True) - x,
    "below the greatest": lambda x, a, b, c: x - x.amax(_axis(x, a), keepdim=True),
    "times the least": lambda x, a, b, c: x.amin(_axis(x, a), keepdim=True) * x,
    "cumsum": lambda x, a, b, c: x.cumsum(_axis(x, a)) * 0.3,
    "cumprod": lambda x, a, b, c: x.tanh().cumprod(_axis(x, a)),
    "prod": lambda x, a, b, c: x.tanh().prod(_axis(x, a), keepdim=True) + x,
    "cummax": lambda x, a, b, c: x.cummax(_axis(x, a))[0],
    "logcumsumexp": lambda x, a, b, c: x.logcumsumexp(_axis(x, a)) * 0.3,
    "flip": lambda x, a, b, c: x.flip(_axis(x, a)),
    "roll": lambda x, a, b, c: x.roll(b % 5, _axis(x, a)),
    "transpose": lambda x, a, b, c: x.transpose(_axis(x, a), _axis(x, b)),
    "reshape": lambda x, a, b, c: x.reshape(-1) if a % 2 else x.reshape(x.shape[0], -1),
    "every second": lambda x, a, b, c: x[a % 2 :: 2],
    "product": lambda x, a, b, c: (x @ x.transpose(-1, -2)) * 0.2 if x.ndim > 1 else None,
    "outer": lambda x, a, b, c: x.unsqueeze(-1) * x.unsqueeze(-2) * 0.3,
    "variance": lambda x, a, b, c: x / (x.var(_axis(x, a), keepdim=True, correction=0) + 0.5),
    "length": lambda x, a, b, c: x / (1 + (x * x).sum(_axis(x, a), keepdim=True)).sqrt(),
    "diff": lambda x, a, b, c: x.diff(dim=_axis(x, a)),
    "tril": lambda x, a, b, c: x.tril(a % 3 - 1) if x.ndim > 1 else None,
    "half detached": lambda x, a, b, c: x.detach() * x,
    "expand": lambda x, a, b, c: x[:1].expand(*x.shape) * x,
    "repeat": lambda x, a, b, c: x.repeat_interleave(2, _axis(x, a)),
    "einsum": lambda x, a, b, c: (
        library(x).einsum("ij,ik->jk", x, x) * 0.2 if x.ndim == 2 else None
    ),
}


def _sorted(x: Any, numbers: Numbers) -> Any:
    options = {"stable": True} if isinstance(x, torch.Tensor) else {}
    return x.sort(dim=_axis(x, numbers[0]), descending=bool(numbers[1] % 2), **options)[0]


def _narrowed(x: Any, numbers: Numbers) -> Any:
    axis = _axis(x, numbers[0])
    first = numbers[1] % x.shape[axis]
    return x.narrow(axis, first, 1 + numbers[2] % (x.shape[axis] - first))


def _selected(x: Any, numbers: Numbers) -> Any:
    axis = _axis(x, numbers[0])
    places = [number % x.shape[axis] for number in numbers[1:]]
    return x.index_select(axis, lifted(x, np.array(places)))


def _gathered(x: Any, numbers: Numbers) -> Any:
    axis = _axis(x, numbers[0])
    draw = np.random.default_rng(numbers[1])
    return x.gather(axis, lifted(x, draw.integers(0, x.shape[axis], tuple(x.shape))))


def _conv(x: Any, numbers: Numbers) -> Any:
    if x.ndim != 2 or x.shape[1] < 3:
        return None
    draw = np.random.default_rng(numbers[0])
    weight = lifted(x, draw.standard_normal((2, x.shape[0], 3)) * 0.4)
    batch = x.reshape(1, *x.shape)
    if isinstance(x, torch.Tensor):
        return torch.nn.functional.conv1d(batch, weight, padding=1).reshape(2, -1)
    return batch.conv1d(weight, padding=1).reshape(2, -1)


def _through_a_turned_view(x: Any, numbers: Numbers) -> Any:
    written = x * 1.0
    turned = written.transpose(0, -1)
    turned[0] = turned[0] * 0.5 + 1
    written[numbers[0] % x.shape[0] :].mul_(1.5)
    return written + x


def _places_halved(x: Any, numbers: Numbers) -> Any:
    written, count = x * 1.0, x.shape[0]
    places = sorted({numbers[0] % count, (numbers[0] + 1) % count})
    index = lifted(x, np.array(places))
    written[index] = written[index] * 0.5
    return written


def _clamped_in_place(x: Any, numbers: Numbers) -> Any:
    written = x * 1.0
    written.clamp_(-0.3, 0.6)
    written.add_(1)
    return written


#: Steps of one value that take all numbers.
FURTHER: dict[str, Callable[[Any, Numbers], Any]] = {
    "sort": _sorted, "narrow": _narrowed, "index_select": _selected, "gather": _gathered,
    "conv": _conv, "write through a turned view": _through_a_turned_view,
    "write to places": _places_halved, "clamp in place": _clamped_in_place,
}  # fmt: skip


def _scatter_add(x: Any, y: Any, numbers: Numbers) -> Any:
    axis = _axis(x, numbers[0])
    draw = np.random.default_rng(numbers[1])
    return x.scatter_add(axis, lifted(x, draw.integers(0, x.shape[axis], tuple(x.shape))), y)


def _scatter(x: Any, y: Any, numbers: Numbers) -> Any:
    axis = _axis(x, numbers[0])
    others = tuple(k for k in range(x.ndim) if k != axis)
    places = np.broadcast_to(np.expand_dims(np.arange(x.shape[axis]), others), tuple(x.shape))
    draw = np.random.default_rng(numbers[1])
    return x.scatter(axis, lifted(x, draw.permuted(places, axis=axis)), y)


def _index_put(x: Any, y: Any, numbers: Numbers) -> Any:
    index = lifted(x, np.array([numbers[0] % x.shape[0]]))
    row = y[numbers[1] % x.shape[0] :][:1]
    return x.clone().index_put((index,), row, accumulate=bool(numbers[2] % 2))


def _row_written(x: Any, y: Any, numbers: Numbers) -> Any:
    written = x * 1.0
    written[numbers[0] % x.shape[0]] = y[numbers[1] % x.shape[0]]
    return written


def _rows_added(x: Any, y: Any, numbers: Numbers) -> Any:
    written, first = x * 1.0, numbers[0] % x.shape[0]
    written[first:] += y[first:]
    written[..., 0] *= 2.0
    return written


def _masked_write(x: Any, y: Any, numbers: Numbers) -> Any:
    written = x * 1.0
    written[y > 0.1] = 0.5
    return written


#: Steps of two values of one shape.
PAIRS: dict[str, Callable[[Any, Any, Numbers], Any]] = {
    "add": lambda x, y, n: x + y * 0.5, "mul": lambda x, y, n: x * y,
    "div": lambda x, y, n: x / (y * y + 1), "maximum": lambda x, y, n: x.maximum(y),
    "logaddexp": lambda x, y, n: x.logaddexp(y), "hypot": lambda x, y, n: x.hypot(y) * 0.5,
    "masked_fill": lambda x, y, n: x.masked_fill(y > 0, 0.25),
    "cat": lambda x, y, n: library(x).cat([x, y], dim=_axis(x, n[0])),
    "stack": lambda x, y, n: library(x).stack([x, y], dim=n[0] % (x.ndim + 1)),
    "scatter_add": _scatter_add, "scatter": _scatter, "index_put": _index_put,
    "write a row": _row_written, "add to rows": _rows_added, "write by mask": _masked_write,
}  # fmt: skip
NAMES = [*SINGLE, *FURTHER, *PAIRS]


def a_program(number: int) -> tuple[list[tuple[int, ...]], list[Step]]:
    """Shapes of the inputs, and 5 to 25 steps."""
    draw = random.Random(number)
    shapes: list[tuple[int, ...]] = [(draw.randrange(1, 6), draw.randrange(1, 6)) for _ in "ab"]
    shapes.append((draw.randrange(1, 7),))
    if draw.random() < 0.5:
        shapes.append((2, draw.randrange(1, 4), 3))
    count = draw.randrange(5, 26)
    steps = [
        (draw.choice(NAMES), tuple(draw.randrange(1000) for _ in range(5))) for _ in range(count)
    ]
    return shapes, steps


def _applied(name: str, values: list[Any], numbers: Numbers) -> Any:
    if name in PAIRS:
        return PAIRS[name](*_two(values, numbers), numbers[2:])
    x = values[numbers[0] % len(values)]
    return SINGLE[name](x, *numbers[1:4]) if name in SINGLE else FURTHER[name](x, numbers[1:])


def _total(steps: Sequence[Step], leaves: Sequence[Any], number: int) -> Any:
    """A sum of all values that the program leaves, weighed at random."""
    values = list(leaves)
    for name, numbers in steps:
        made = _applied(name, values, numbers)
        if made is None or not 0 < made.numel() <= _MOST_ELEMENTS or made.ndim > 4:
            continue
        values.append(made)
        if len(values) > _MOST_VALUES:
            values.pop(4)
    draw = np.random.default_rng(number + 1)
    total: Any = 0.0
    for x in values:
        total = total + (x * lifted(x, draw.standard_normal(tuple(x.shape)))).sum()
    return total


def _weighed(gradients: Sequence[Any], number: int) -> Any:
    draw = np.random.default_rng(number + 9)
    return sum([(g * lifted(g, draw.standard_normal(tuple(g.shape)))).sum() for g in gradients])


def _truth(steps: Sequence[Step], arrays: Sequence[Array], number: int) -> list[Array]:
    """The sum, its gradients, and the gradients of a weighed sum of those."""
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays]

    def gradients_of(value: Any) -> list[Any]:
        if not value.requires_grad:
            return [torch.zeros_like(leaf) for leaf in leaves]
        found = torch.autograd.grad(value, leaves, allow_unused=True, create_graph=True)
        pairs = zip(found, leaves, strict=True)
        return [torch.zeros_like(leaf) if g is None else g for g, leaf in pairs]

    total = _total(steps, leaves, number)
    first = gradients_of(total)
    second = gradients_of(_weighed(first, number))
    return [x.numpy(force=True) for x in (total, *first, *second)]


def _ours(steps: Sequence[Step], leaves: Sequence[Tensor], number: int) -> list[Tensor]:
    total = _total(steps, leaves, number)
    first = total.gradient(*leaves, materialize_grads=True)
    second = _weighed(first, number).gradient(*leaves, materialize_grads=True)
    return [total, *first, *second]


def fault_of(
    number: int,
    shapes: Sequence[tuple[int, ...]],
    steps: Sequence[Step],
    is_captured: bool = False,
    is_tied: bool = False,
) -> str:
    """What is wrong with a program, or an empty text; numbers that grow too large are let be."""
    draw = np.random.default_rng(number)
    arrays = [draw.standard_normal(shape) for shape in shapes]
    arrays = [np.round(array * 2) / 2 for array in arrays] if is_tied else arrays
    truth = _truth(steps, arrays, number)
    if not all(np.isfinite(x).all() and np.abs(x).max(initial=0) < 1e6 for x in truth):
        return ""
    run = jit(_ours_of(steps, number)) if is_captured else _ours_of(steps, number)
    for call in range(3 if is_captured else 1):
        found = run(*[Tensor(array).realize() for array in arrays])
        Tensor.realize(*found)
        for place, (x, y) in enumerate(zip(found, truth, strict=True)):
            if not _is_close(x.numpy(), y):
                return f"call {call}, result {place}: {x.tolist()}, expected {y.tolist()}"
    return ""


def _ours_of(steps: Sequence[Step], number: int) -> Callable[..., Any]:
    return lambda *leaves: _ours(steps, leaves, number)


def _is_close(x: Array, y: Array) -> bool:
    largest = max(1.0, float(np.abs(y).max(initial=0)))
    return x.shape == y.shape and np.allclose(x, y, rtol=1e-6, atol=1e-7 * largest)
