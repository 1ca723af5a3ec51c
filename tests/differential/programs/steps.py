"""The steps that programs are made of: each on tensors and on models of them.

A step draws what it needs from a row of numbers, so that any numbers make a program and any part
of a program is one.  It returns None where it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.differential.programs.model import Array, Model, cast, wide

from tilework import Tensor, dtypes

MOST_ELEMENTS = 6_000
FLOATS = ("float32", "float64")
KINDS = ("float32", "float64", "int32", "int64", "int16", "uint8", "bool")


@dataclass
class Pair:
    """A tensor and what it must be; both see the same writes."""

    own: Tensor
    model: Model

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.model.shape

    @property
    def dtype(self) -> str:
        """The name of the dtype."""
        return self.own.dtype.name

    @property
    def is_float(self) -> bool:
        """Whether it holds floats."""
        return self.dtype in FLOATS

    @property
    def is_unsigned(self) -> bool:
        """Whether it holds integers from 0 on."""
        return self.dtype.startswith("uint")


class Chooser:
    """Draws from a row of numbers, again and again."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.numbers = numbers
        self.count = 0

    def below(self, bound: int) -> int:
        """A number from 0 to `bound - 1`."""
        number = self.numbers[self.count % len(self.numbers)]
        self.count += 1
        # Another number each time around.
        return (number + 7 * (self.count // len(self.numbers))) % bound

    def of(self, choices: Any) -> Any:
        """One of them."""
        return choices[self.below(len(choices))]

    def random(self) -> np.random.Generator:
        """A generator of many numbers."""
        return np.random.default_rng(self.below(1000))


Step = Callable[[Chooser, list[Pair]], "list[Pair] | Pair | None"]
STEPS: dict[str, Step] = {}


def step(function: Step) -> Step:
    """Put a step into the table."""
    STEPS[function.__name__] = function
    return function


def fresh(own: Tensor, values: Array) -> Pair:
    """A result of its own; floats and integers have the dtype that the tensor has."""
    return Pair(own, Model.of(cast(values, own.dtype.name)))


def fits(*pairs: Pair) -> bool:
    """Whether shapes can be broadcast together to something small."""
    try:
        shape = np.broadcast_shapes(*[each.shape for each in pairs])
    except ValueError:
        return False
    return int(np.prod(shape)) <= MOST_ELEMENTS


def an_axis(choose: Chooser, pair: Pair) -> int:
    """An axis, from the front or from the back."""
    axis = choose.below(len(pair.shape))
    return axis - len(pair.shape) if choose.below(2) else axis


# --- views --------------------------------------------------------------------------------------


@step
def flipped(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape:
        return None
    axis = an_axis(choose, x)
    if choose.below(2):
        return fresh(x.own.flip(axis), np.flip(x.model.values, axis))
    index = (slice(None),) * (axis % len(x.shape)) + (slice(None, None, -1),)
    return Pair(x.own[index], x.model.moved(lambda p: p[index]))


@step
def permuted(choose: Chooser, pairs: list[Pair]) -> Pair:
    x = choose.of(pairs)
    order = tuple(choose.random().permutation(len(x.shape)).tolist())
    return Pair(x.own.permute(order), x.model.moved(lambda p: p.transpose(order)))


def a_slice(choose: Chooser, size: int) -> slice:
    """A slice, also empty, reversed or with steps."""
    kind = choose.below(7)
    first, second = choose.below(size + 1), choose.below(size + 1)
    if kind == 0:
        return slice(None)
    if kind == 1:
        return slice(None, None, -1 - choose.below(3))
    if kind == 2:
        return slice(first - size - 1, None, 1 + choose.below(3))
    if kind == 3:
        return slice(max(first, second), min(first, second), -1 - choose.below(2))
    return slice(min(first, second), max(first, second), 1 + choose.below(kind - 2))


def an_index(choose: Chooser, x: Pair) -> tuple[Any, ...]:
    """A basic index: a view."""
    index: list[Any] = []
    for size in x.shape[: choose.below(len(x.shape) + 1)]:
        kind = choose.below(5)
        if kind == 0 and size:
            index.append(choose.below(size) - (size if choose.below(2) else 0))
        elif kind == 1:
            index.append(None)
            index.append(slice(None))
        else:
            index.append(a_slice(choose, size))
    if choose.below(4) == 0:
        index.append(Ellipsis)
    return tuple(index)


@step
def sliced(choose: Chooser, pairs: list[Pair]) -> Pair:
    x = choose.of(pairs)
    index = an_index(choose, x)
    return Pair(x.own[index], x.model.moved(lambda p: np.asarray(p[index])))


@step
def reshaped(choose: Chooser, pairs: list[Pair]) -> Pair:
    x = choose.of(pairs)
    size = int(np.prod(x.shape))
    shape: list[int] = []
    left = size
    while left > 1 and len(shape) < 3:
        divisors = [n for n in range(1, left + 1) if left % n == 0]
        shape.append(choose.of(divisors))
        left //= shape[-1]
    shape = [*shape, left] if size else [0, 2]
    if choose.below(2) and size:
        shape[choose.below(len(shape))] = -1
    return Pair(x.own.reshape(tuple(shape)), x.model.moved(lambda p: p.reshape(shape)))


@step
def squeezed(choose: Chooser, pairs: list[Pair]) -> Pair:
    x = choose.of(pairs)
    if choose.below(2) or len(x.shape) > 4:
        return Pair(x.own.squeeze(), x.model.moved(np.squeeze))
    axis = choose.below(len(x.shape) + 1)
    return Pair(x.own.unsqueeze(axis), x.model.moved(lambda p: np.expand_dims(p, axis)))


@step
def expanded(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    shape = tuple(n if n != 1 else 1 + choose.below(4) for n in (1, *x.shape))
    if int(np.prod(shape)) > MOST_ELEMENTS:
        return None
    return Pair(x.own.expand(shape), x.model.moved(lambda p: np.broadcast_to(p, shape)))


@step
def diagonal(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if len(x.shape) < 2:
        return None
    offset = choose.below(3) - 1
    found = x.own.diagonal(offset).clone()
    return fresh(found, np.diagonal(x.model.values, offset, 0, 1))


# --- what moves elements ------------------------------------------------------------------------


@step
def padded(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape:
        return None
    widths = [(choose.below(3), choose.below(3)) for _ in x.shape]
    fill = choose.below(2 if x.dtype == "bool" else 3)
    found = np.pad(x.model.values, widths, constant_values=fill)
    return fresh(x.own.pad(tuple(widths), value=fill), found)


@step
def rolled(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape:
        return None
    axis, shift = an_axis(choose, x), choose.below(9) - 4
    return fresh(x.own.roll(shift, axis), np.roll(x.model.values, shift, axis))


@step
def joined(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x, y = choose.of(pairs), choose.of(pairs)
    if x.shape != y.shape or x.dtype != y.dtype or len(x.model.row) > MOST_ELEMENTS // 2:
        return None
    if choose.below(2) and x.shape:
        axis = an_axis(choose, x)
        found = np.concatenate([x.model.values, y.model.values], axis)
        return fresh(Tensor.cat(x.own, y.own, dim=axis), found)
    axis = choose.below(len(x.shape) + 1)
    found = np.stack([x.model.values, y.model.values], axis)
    return fresh(Tensor.stack(x.own, y.own, dim=axis), found)


@step
def triangle(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if len(x.shape) < 2:
        return None
    k = choose.below(5) - 2
    if choose.below(2):
        return fresh(x.own.tril(k), np.tril(x.model.values, k))
    return fresh(x.own.triu(k), np.triu(x.model.values, k))


@step
def repeated(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape or int(np.prod(x.shape)) > MOST_ELEMENTS // 9:
        return None
    if choose.below(2):
        count, axis = 1 + choose.below(3), an_axis(choose, x)
        return fresh(x.own.repeat_interleave(count, axis), np.repeat(x.model.values, count, axis))
    counts = tuple(1 + choose.below(2) for _ in x.shape)
    return fresh(x.own.repeat(*counts), np.tile(x.model.values, counts))


@step
def windows(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape or x.shape[-1] < 2:
        return None
    size, by = 1 + choose.below(min(4, x.shape[-1])), 1 + choose.below(2)
    view = np.lib.stride_tricks.sliding_window_view(x.model.values, size, -1)[..., ::by, :]
    return None if view.size > MOST_ELEMENTS else fresh(x.own.unfold(-1, size, by).clone(), view)


@step
def copied(choose: Chooser, pairs: list[Pair]) -> Pair:
    x = choose.of(pairs)
    return fresh(x.own.clone(), x.model.values)


# --- arithmetic ---------------------------------------------------------------------------------

BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "maximum": (lambda a, b: a.maximum(b), np.maximum),
    "minimum": (lambda a, b: a.minimum(b), np.minimum),
}
COMPARISONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lt": (lambda a, b: a < b, np.less),
    "ge": (lambda a, b: a >= b, np.greater_equal),
    "eq": (lambda a, b: a == b, np.equal),
    "ne": (lambda a, b: a != b, np.not_equal),
}
BITS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "and": (lambda a, b: a & b, np.bitwise_and),
    "or": (lambda a, b: a | b, np.bitwise_or),
    "xor": (lambda a, b: a ^ b, np.bitwise_xor),
}


@step
def arithmetic(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x, y = choose.of(pairs), choose.of(pairs)
    own, other = BINARY[choose.of(sorted(BINARY))]
    if not fits(x, y) or "bool" in (x.dtype, y.dtype):
        return None
    found = own(x.own, y.own)
    # Each operand is converted first: a negative number in an unsigned dtype wraps.
    first, second = (cast(each.model.values, found.dtype.name) for each in (x, y))
    with np.errstate(all="ignore"):
        return fresh(found, other(wide(first), wide(second)))


@step
def with_number(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    own, other = BINARY[choose.of(sorted(BINARY))]
    number = choose.below(7)
    if x.dtype == "bool":
        return None
    found = own(x.own, number)
    with np.errstate(all="ignore"):
        return fresh(found, other(wide(x.model.values), number))


@step
def divided(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    number = choose.of([1, 2, 3, 7, -2, -5])
    if x.dtype == "bool" or (x.is_unsigned and number < 0):
        return None
    if not np.isfinite(x.model.values).all():
        return None  # NumPy and PyTorch do not agree
    with np.errstate(all="ignore"):
        if choose.below(2):
            return fresh(x.own // number, np.floor_divide(wide(x.model.values), number))
        return fresh(x.own % number, np.remainder(wide(x.model.values), number))


@step
def compared(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x, y = choose.of(pairs), choose.of(pairs)
    own, other = COMPARISONS[choose.of(sorted(COMPARISONS))]
    if not fits(x, y) or "bool" in (x.dtype, y.dtype) or x.is_unsigned or y.is_unsigned:
        return None
    return fresh(own(x.own, y.own), other(x.model.values, y.model.values))


@step
def bits(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x, y = choose.of(pairs), choose.of(pairs)
    own, other = BITS[choose.of(sorted(BITS))]
    if not fits(x, y) or x.is_float or y.is_float or x.dtype != y.dtype:
        return None
    return fresh(own(x.own, y.own), other(x.model.values, y.model.values))


@step
def unary(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    values = wide(x.model.values)
    kind = choose.below(6)
    if kind == 0:
        return fresh(x.own.abs(), np.abs(values)) if x.dtype != "bool" else None
    if kind == 1:
        return fresh(-x.own, -values) if x.dtype != "bool" else None
    if kind == 2:
        return fresh(x.own.relu(), np.maximum(values, 0)) if x.dtype != "bool" else None
    if kind == 3:
        return fresh(x.own.square(), values * values) if x.dtype != "bool" else None
    if kind == 4:
        return fresh(x.own.sign(), np.sign(values)) if x.dtype != "bool" else None
    return fresh(x.own.logical_not(), values == 0)


@step
def clamped(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if x.dtype == "bool" or x.is_unsigned:
        return None
    low, high = -choose.below(10), choose.below(10)
    return fresh(x.own.clamp(low, high), np.clip(wide(x.model.values), low, high))


@step
def chosen(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    c, x, y = choose.of(pairs), choose.of(pairs), choose.of(pairs)
    if not fits(c, x, y) or x.dtype != y.dtype:
        return None
    mask = c.own if c.dtype == "bool" else c.own > 0
    truth = c.model.values if c.dtype == "bool" else c.model.values > 0
    return fresh(mask.where(x.own, y.own), np.where(truth, x.model.values, y.model.values))


@step
def converted(choose: Chooser, pairs: list[Pair]) -> Pair:
    x = choose.of(pairs)
    kind = choose.of(KINDS)
    found = x.own.cast(dtypes.by_name(kind))
    # Whether a cast to its own dtype is the tensor itself is not said.
    return fresh(found.clone() if kind == x.dtype else found, cast(x.model.values, kind))


@step
def poisoned(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.is_float:
        return None
    value = choose.of([float("nan"), float("inf"), -float("inf")])
    number = choose.below(7) - 3
    values = x.model.values
    return fresh(
        x.own.masked_fill(x.own == number, value), np.where(values == number, value, values)
    )


# --- folds --------------------------------------------------------------------------------------


@step
def folded(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape or 0 in x.shape:
        return None
    values = wide(x.model.values)
    axes: Any = an_axis(choose, x)
    kind, keep = choose.below(8), bool(choose.below(2))
    if choose.below(3) == 0 and kind < 6:
        axes = tuple(range(len(x.shape)))[choose.below(len(x.shape)) :]
    with np.errstate(all="ignore"):
        if kind in (0, 1):
            return fresh(x.own.sum(axes, keepdim=keep), np.sum(values, axes, keepdims=keep))
        if kind == 2:
            return fresh(x.own.max(axes, keepdim=keep), np.max(values, axes, keepdims=keep))
        if kind == 3:
            return fresh(x.own.min(axes, keepdim=keep), np.min(values, axes, keepdims=keep))
        if kind == 4:
            return fresh(x.own.any(axes, keepdim=keep), np.any(values, axes, keepdims=keep))
        if kind == 5:
            return fresh(x.own.all(axes, keepdim=keep), np.all(values, axes, keepdims=keep))
        if kind == 6:
            return fresh(x.own.argmax(axes, keepdim=keep), np.argmax(values, axes, keepdims=keep))
        return fresh(x.own.argmin(axes, keepdim=keep), np.argmin(values, axes, keepdims=keep))


@step
def running(choose: Chooser, pairs: list[Pair]) -> Pair | list[Pair] | None:
    x = choose.of(pairs)
    if not x.shape or 0 in x.shape:
        return None
    axis, values, kind = an_axis(choose, x), wide(x.model.values), choose.below(3)
    with np.errstate(all="ignore"):
        if kind == 0:
            return fresh(x.own.cumsum(axis), np.cumsum(values, axis))
        if x.dtype == "bool":
            return None
        if kind == 1:
            return fresh(x.own.cummax(axis)[0], np.maximum.accumulate(values, axis))
        return fresh(x.own.cummin(axis)[0], np.minimum.accumulate(values, axis))


@step
def ordered(choose: Chooser, pairs: list[Pair]) -> list[Pair] | None:
    x = choose.of(pairs)
    if not x.shape or 0 in x.shape or x.dtype == "bool":
        return None
    axis = an_axis(choose, x)
    values = x.model.values
    if choose.below(2):
        places = np.argsort(values, axis, kind="stable")
        found = x.own.sort(axis)
        return [fresh(found[0], np.take_along_axis(values, places, axis)), fresh(found[1], places)]
    # From the greatest, equal ones in their order; NaN counts as greatest.
    keys = np.where(np.isnan(values), np.inf, wide(values)) if x.is_float else wide(values)
    if x.is_float and np.isnan(values).any() and np.isinf(values).any():
        return None
    places = np.argsort(-keys, axis, kind="stable")
    count = 1 + choose.below(x.shape[axis])
    best = np.take_along_axis(values, places, axis).take(range(count), axis)
    if choose.below(2):
        return [fresh(x.own.topk(count, axis)[0], best)]
    found = x.own.sort(axis, descending=True)
    return [fresh(found[0], np.take_along_axis(values, places, axis)), fresh(found[1], places)]


@step
def product(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x, y = choose.of(pairs), choose.of(pairs)
    if len(x.shape) < 2 or len(y.shape) < 2 or "bool" in (x.dtype, y.dtype):
        return None
    if x.dtype != y.dtype or x.shape[-1] != y.shape[-1]:
        return None
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2]) if _joins(x, y) else None
    if batch is None or np.prod([*batch, x.shape[-2], y.shape[-2]]) > MOST_ELEMENTS:
        return None
    with np.errstate(all="ignore"):
        found = wide(x.model.values) @ np.swapaxes(wide(y.model.values), -1, -2)
    return fresh(x.own @ y.own.transpose(-1, -2), found)


def _joins(x: Pair, y: Pair) -> bool:
    try:
        np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        return False
    return True


@step
def correlated(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    """A convolution along the last axis, with padding."""
    x = choose.of(pairs)
    if len(x.shape) < 2 or x.shape[-1] < 3 or 0 in x.shape or (x.dtype == "bool" or x.is_unsigned):
        return None
    rows = x.own.reshape(-1, 1, x.shape[-1])
    taps = np.array([1, -2, 1], x.dtype)
    weight = Tensor(taps, device=x.own.device).reshape(1, 1, 3)
    values = np.pad(wide(x.model.values).reshape(-1, x.shape[-1]), [(0, 0), (1, 1)])
    view = np.lib.stride_tricks.sliding_window_view(values, 3, -1)
    with np.errstate(all="ignore"):
        found = (view * wide(taps)).sum(-1)
    return fresh(rows.conv1d(weight, padding=1), found[:, None])


@step
def pooled(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape or x.shape[-1] < 2 or 0 in x.shape or x.dtype == "bool":
        return None
    width = x.shape[-1] // 2 * 2
    values = x.model.values.reshape(-1, 1, x.shape[-1])[..., :width].reshape(-1, 1, width // 2, 2)
    rows = x.own.reshape(-1, 1, x.shape[-1])
    return fresh(rows.max_pool1d(2), values.max(-1))


# --- indices ------------------------------------------------------------------------------------


def an_index_array(choose: Chooser, size: int, shape: tuple[int, ...]) -> Array:
    """Positions, also counted from the back."""
    return choose.random().integers(-size, size, shape)


@step
def picked(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape or 0 in x.shape:
        return None
    index = an_index_array(choose, x.shape[0], choose.of([(3,), (2, 2), (), (1, 4)]))
    other: Any = slice(None)
    if len(x.shape) > 1 and choose.below(2):
        other = a_slice(choose, x.shape[1])
    found = x.model.values[index] if len(x.shape) == 1 else x.model.values[index, other]
    if found.size > MOST_ELEMENTS:
        return None
    own = x.own[Tensor(index, device=x.own.device)]
    if len(x.shape) > 1:
        own = x.own[Tensor(index, device=x.own.device), other]
    return fresh(own, found)


@step
def gathered(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape or 0 in x.shape:
        return None
    axis = an_axis(choose, x)
    shape = list(x.shape)
    shape[axis] = 1 + choose.below(4)
    index = np.abs(an_index_array(choose, x.shape[axis], tuple(shape))) % x.shape[axis]
    found = np.take_along_axis(x.model.values, index, axis)
    return fresh(x.own.gather(axis, Tensor(index, device=x.own.device)), found)


@step
def scattered(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    if not x.shape or 0 in x.shape or x.dtype == "bool":
        return None
    count = 1 + choose.below(5)
    index = an_index_array(choose, x.shape[0], (count,)) % x.shape[0]
    source = choose.random().integers(-3, 4, (count, *x.shape[1:])).astype(x.dtype)
    values = x.model.values.copy()
    with np.errstate(all="ignore"):
        np.add.at(values, index, source)
    place, given = (Tensor(each, device=x.own.device) for each in (index, source))
    return fresh(x.own.index_add(0, place, given), values)


@step
def counted(choose: Chooser, pairs: list[Pair]) -> Pair:
    x = choose.of(pairs)
    values = x.model.values
    return fresh((x.own == 1).sum(), np.sum(values == 1))


# --- writes -------------------------------------------------------------------------------------


def writable(choose: Chooser, pairs: list[Pair]) -> Pair | None:
    x = choose.of(pairs)
    return x if x.model.is_writable else None


@step
def written(choose: Chooser, pairs: list[Pair]) -> None:
    """A number into a view."""
    x = writable(choose, pairs)
    if x is None:
        return
    index, value = an_index(choose, x), choose.below(5) - (0 if x.is_unsigned else 2)
    if x.dtype == "bool":
        value = bool(value)
    x.own[index] = value
    x.model.moved(lambda p: np.asarray(p[index])).write(value)


@step
def written_over(choose: Chooser, pairs: list[Pair]) -> None:
    """Another tensor into a view."""
    x, y = writable(choose, pairs), choose.of(pairs)
    if x is None or x.dtype != y.dtype:
        return
    index = an_index(choose, x)
    target = x.model.moved(lambda p: np.asarray(p[index]))
    try:
        np.broadcast_to(y.model.values, target.shape)
    except ValueError:
        return
    values = y.model.values.copy()
    x.own[index] = y.own
    target.write(values)


@step
def written_from_itself(choose: Chooser, pairs: list[Pair]) -> None:
    """A tensor into itself, turned around."""
    x = writable(choose, pairs)
    if x is None or not x.shape:
        return
    axis = an_axis(choose, x)
    values = np.flip(x.model.values, axis).copy()
    x.own.assign(x.own.flip(axis))
    x.model.write(values)


@step
def augmented(choose: Chooser, pairs: list[Pair]) -> None:
    """A number added to a view, or a row of the tensor itself."""
    x = writable(choose, pairs)
    if x is None or x.dtype == "bool":
        return
    index = an_index(choose, x)
    target = x.model.moved(lambda p: np.asarray(p[index]))
    if choose.below(2) and target.shape and target.shape[0]:
        with np.errstate(all="ignore"):
            values = wide(target.values) + wide(target.values)[:1]
        x.own[index] += x.own[index][:1]
    else:
        number = choose.below(4)
        values = wide(target.values) * 2 + number
        x.own[index] *= 2
        x.own[index] += number
    target.write(values)


@step
def written_at(choose: Chooser, pairs: list[Pair]) -> None:
    """Numbers at positions that an array tells, each position once."""
    x = writable(choose, pairs)
    if x is None or not x.shape or 0 in x.shape:
        return
    index = choose.random().permutation(x.shape[0])[: 1 + choose.below(x.shape[0])]
    source = choose.random().integers(0, 2, (len(index), *x.shape[1:])).astype(x.dtype)
    x.own[Tensor(index, device=x.own.device)] = Tensor(source, device=x.own.device)
    x.model.moved(lambda p: p[index]).write(source)


@step
def written_where(choose: Chooser, pairs: list[Pair]) -> None:
    """A number where a mask holds."""
    x = writable(choose, pairs)
    if x is None or not x.shape or x.dtype == "bool":
        return
    mask, number = x.model.values > 1, choose.below(3)
    x.own[x.own > 1] = number
    x.model.write(np.where(mask, number, x.model.values))


@step
def mapped(choose: Chooser, pairs: list[Pair]) -> None:
    """A method that writes into its tensor."""
    x = writable(choose, pairs)
    if x is None or x.dtype == "bool":
        return
    values, kind = wide(x.model.values), choose.below(4)
    with np.errstate(all="ignore"):
        if kind == 0:
            x.own.add_(1)
            x.model.write(values + 1)
        elif kind == 1:
            x.own.relu_()
            x.model.write(np.maximum(values, 0))
        elif kind == 2:
            x.own.zero_()
            x.model.write(0)
        elif not x.is_unsigned:
            x.own.clamp_(-5, 5)
            x.model.write(np.clip(values, -5, 5))


@step
def exchanged(choose: Chooser, pairs: list[Pair]) -> None:
    """Two halves of a tensor change places."""
    x = writable(choose, pairs)
    if x is None or not x.shape or x.shape[0] < 2:
        return
    half = x.shape[0] // 2
    first, second = x.model.values[:half].copy(), x.model.values[-half:].copy()
    x.own[:half], x.own[-half:] = x.own[-half:].clone(), x.own[:half].clone()
    x.model.moved(lambda p: p[:half]).write(second)
    x.model.moved(lambda p: p[-half:]).write(first)
