"""Operands of generated cases: a dtype, a shape, values, and a view of a larger tensor.

    an_operand(dtype, shape)         # a hypothesis strategy
    operand.base()                   # the NumPy array that the view looks into
    operand.ours(tensor)             # the view of tilework's tensor
    operand.theirs(tensor)           # the same elements of PyTorch's

A view is a chain of flips, permutations, expanded axes, slices with steps of either sign, and
picked indices.  It is drawn backwards, from the wanted shape to the shape of the base.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
from hypothesis import strategies as st

from tilework import Tensor

Array = Any
Shape = tuple[int, ...]
#: A step of a view: its name and its arguments.
Step = tuple[Any, ...]

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
#: Sizes of axes: the small ones often, and some that no vector's length divides.
SIZES = (1, 2, 3, 3, 4, 5, 7, 8, 13, 17, 33)
MOST_ELEMENTS = 300

_SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, math.inf, -math.inf, math.nan,
)  # fmt: skip


def storage(dtype: str) -> Any:
    """NumPy's dtype of that name."""
    return np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)


@dataclass(frozen=True)
class Operand:
    """One operand; equal operands but for `seed` have the same structure."""

    dtype: str
    shape: Shape
    fill: str
    steps: tuple[Step, ...]
    base_shape: Shape
    seed: int

    @property
    def structure(self) -> tuple[Any, ...]:
        """All but the seed."""
        return self.dtype, self.shape, self.fill, self.steps, self.base_shape

    @property
    def is_float(self) -> bool:
        """Whether its elements are floats."""
        return self.dtype in FLOATS

    def base(self) -> Array:
        """The array that the view looks into."""
        generator = np.random.default_rng(self.seed)
        return np.asarray(values(generator, self.dtype, self.base_shape, self.fill))

    def ours(self, x: Tensor) -> Tensor:
        """The view of a tensor that holds `base()`."""
        for step in self.steps:
            x = _OURS[step[0]](x, *step[1:])
        return x

    def theirs(self, x: torch.Tensor) -> torch.Tensor:
        """The same elements of PyTorch's tensor."""
        for step in self.steps:
            x = _THEIRS[step[0]](x, *step[1:])
        return x.contiguous()  # some of PyTorch's kernels misread strides of 0

    def array(self) -> Array:
        """The elements of the view as a NumPy array."""
        x = self.base()
        for step in self.steps:
            x = _NUMPY[step[0]](x, *step[1:])
        return x


# --- values ------------------------------------------------------------------------------------


def values(generator: np.random.Generator, dtype: str, shape: Shape, fill: str) -> Array:
    """Random elements of one kind."""
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        return _integers(generator, dtype, shape, fill)
    with np.errstate(all="ignore"):
        return _floats(generator, dtype, shape, fill).astype(storage(dtype))


def _integers(generator: np.random.Generator, dtype: str, shape: Shape, fill: str) -> Array:
    info = np.iinfo(dtype)
    if fill == "extreme":
        edges = [info.min, info.min + 1, 0, 1, 2, 3, 7, info.max // 2, info.max - 1, info.max]
        return generator.choice(np.array(edges, dtype=dtype), shape)
    if fill == "wide":
        return generator.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    low = 0 if dtype in UNSIGNED or fill == "positive" else -9
    found = generator.integers(low, 10, shape).astype(dtype)
    if fill in ("positive", "nonzero"):
        found = np.where(found == 0, np.array(3, dtype), found)
    return found


def _floats(generator: np.random.Generator, dtype: str, shape: Shape, fill: str) -> Array:
    if fill == "special":
        info = ml_dtypes.finfo(storage(dtype))  # type: ignore[no-untyped-call]
        edges = [*_SPECIAL, float(info.max), -float(info.max), float(info.smallest_normal),
                 float(info.smallest_subnormal), -float(info.smallest_subnormal)]  # fmt: skip
        return generator.choice(np.array(edges), shape)
    if fill == "ties":
        return generator.integers(-3, 4, shape).astype(np.float64)
    if fill == "holes":
        return np.where(generator.random(shape) < 0.2, np.nan, generator.integers(-3, 4, shape))
    if fill == "positive":
        return 0.1 + 3 * generator.random(shape)
    if fill == "nonzero":
        return (0.3 + 2 * generator.random(shape)) * generator.choice([-1.0, 1.0], shape)
    if fill == "unit":
        return 1.9 * generator.random(shape) - 0.95
    if fill == "large":
        most = {"float16": 12, "bfloat16": 90, "float32": 90, "float64": 700}[dtype]
        signs = generator.choice([-1.0, 1.0], shape)
        return np.ldexp(
            signs * (1 + generator.random(shape)), generator.integers(-most, most, shape)
        )
    return 2 * generator.standard_normal(shape)


# --- views -------------------------------------------------------------------------------------


def _sliced(axis: int, start: int, stop: int | None, step: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, stop, step))


def _places(size: int, start: int, stop: int | None, step: int) -> list[int]:
    return list(range(size))[slice(start, stop, step)]


_OURS: dict[str, Any] = {
    "permute": lambda x, *order: x.permute(order),
    "flip": lambda x, *axes: x.flip(axes),
    "slice": lambda x, axis, *cut: x[_sliced(axis, *cut)],
    "expand": lambda x, *shape: x.expand(shape),
    "pick": lambda x, axis, place: x[(*(slice(None),) * axis, place)],
    "unsqueeze": lambda x, axis: x.unsqueeze(axis),
    "reshape": lambda x, *shape: x.reshape(shape),
}
_THEIRS: dict[str, Any] = {
    "permute": lambda x, *order: x.permute(order),
    "flip": lambda x, *axes: x.flip(axes),
    "slice": lambda x, axis, *cut: x.index_select(
        axis, torch.tensor(_places(x.shape[axis], *cut), dtype=torch.int64)
    ),
    "expand": lambda x, *shape: x.expand(shape),
    "pick": lambda x, axis, place: x.select(axis, place),
    "unsqueeze": lambda x, axis: x.unsqueeze(axis),
    "reshape": lambda x, *shape: x.reshape(shape),
}
_NUMPY: dict[str, Any] = {
    "permute": lambda x, *order: np.transpose(x, order),
    "flip": np.flip,
    "slice": lambda x, axis, *cut: x[_sliced(axis, *cut)],
    "expand": lambda x, *shape: np.broadcast_to(x, shape),
    "pick": lambda x, axis, place: x[(*(slice(None),) * axis, place)],
    "unsqueeze": np.expand_dims,
    "reshape": lambda x, *shape: np.reshape(x, shape),
}
_NUMPY["flip"] = lambda x, *axes: np.flip(x, axes)


def _before_permute(draw: Any, shape: Shape) -> tuple[Step, Shape]:
    order = draw(st.permutations(range(len(shape))))
    base = [0] * len(shape)
    for place, axis in enumerate(order):
        base[axis] = shape[place]
    return ("permute", *order), tuple(base)


def _before_slice(draw: Any, shape: Shape) -> tuple[Step, Shape]:
    axis = draw(st.integers(0, len(shape) - 1))
    count = shape[axis]
    step = draw(st.sampled_from((1, 2, 3, -1, -2)))
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    size = before + after + (max(count - 1, 0) * abs(step) + 1 if count else 0)
    if step > 0:
        cut: Step = (before, size - after, step)
    else:
        cut = (size - 1 - after, before - 1 if before else None, step)
    if not count:
        cut = (before, before, step)
    return ("slice", axis, *cut), (*shape[:axis], size, *shape[axis + 1 :])


def _before_expand(draw: Any, shape: Shape) -> tuple[Step, Shape]:
    axis = draw(st.integers(0, len(shape) - 1))
    return ("expand", *shape), (*shape[:axis], 1, *shape[axis + 1 :])


def _before_pick(draw: Any, shape: Shape) -> tuple[Step, Shape]:
    axis = draw(st.integers(0, len(shape)))
    size = draw(st.integers(1, 3))
    place = draw(st.integers(-size, size - 1))
    return ("pick", axis, place), (*shape[:axis], size, *shape[axis:])


def _before_flip(draw: Any, shape: Shape) -> tuple[Step, Shape]:
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    return ("flip", *sorted(axes)), shape


def _before_unsqueeze(draw: Any, shape: Shape) -> tuple[Step, Shape]:
    axis = draw(st.sampled_from([n for n, size in enumerate(shape) if size == 1]))
    return ("unsqueeze", axis), shape[:axis] + shape[axis + 1 :]


def _before_reshape(draw: Any, shape: Shape) -> tuple[Step, Shape]:
    return ("reshape", *shape), (math.prod(shape),)


@st.composite
def a_view(draw: Any, shape: Shape) -> tuple[tuple[Step, ...], Shape]:
    """The steps of a view with this shape, and the shape of what it looks into."""
    steps: list[Step] = []
    base = shape
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2, 3, 4)))):
        kinds = [_before_pick] if len(base) < 10 else []
        if base:
            kinds += [_before_permute, _before_slice, _before_slice, _before_flip, _before_expand]
            kinds += [_before_unsqueeze] if 1 in base else []
            kinds += [_before_reshape] if len(base) > 1 else []
        kind = draw(st.sampled_from(kinds))
        step, wider = kind(draw, base)
        if math.prod(wider) > 8 * MOST_ELEMENTS:
            continue
        steps.insert(0, step)
        base = wider
    return tuple(steps), base


@st.composite
def a_shape(draw: Any, least: int = 0, most: int = 4, zero: bool = True) -> Shape:
    """A shape; sometimes of up to 10 axes where `most` is the usual 4, rarely empty."""
    if most == 4 and draw(st.integers(0, 9)) == 9:
        ndim = draw(st.integers(5, 10))
        return tuple(draw(st.sampled_from((1, 1, 2, 2, 3))) if n < 5 else
                     draw(st.sampled_from((1, 1, 1, 2))) for n in range(ndim))  # fmt: skip
    ndim = draw(st.integers(least, most))
    found: list[int] = []
    for _ in range(ndim):
        room = MOST_ELEMENTS // max(math.prod(found), 1)
        found.append(draw(st.sampled_from([size for size in SIZES if size <= max(room, 1)])))
    if zero and found and draw(st.integers(0, 14)) == 14:
        found[draw(st.integers(0, len(found) - 1))] = 0
    return tuple(found)


@st.composite
def an_operand(draw: Any, dtype: str, shape: Shape, fill: str = "normal") -> Operand:
    """An operand with this dtype and shape."""
    steps, base = draw(a_view(shape))
    return Operand(dtype, shape, fill, steps, base, draw(st.integers(0, 2**31)))


@st.composite
def shapes_that_broadcast(draw: Any, count: int) -> tuple[Shape, ...]:
    """Shapes that broadcast to one: axes of size 1, and leading axes left out."""
    full = draw(a_shape())
    found = []
    for _ in range(count):
        shape = tuple(1 if draw(st.integers(0, 4)) == 0 else size for size in full)
        lead = draw(st.integers(0, len(full))) if draw(st.integers(0, 3)) == 0 else 0
        found.append(shape[lead:])
    return tuple(found)
