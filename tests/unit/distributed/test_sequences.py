"""Sequences of operations over meshes, uneven parts and empty ones, beside NumPy."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework import Tensor

ALL = ("CPU", "CPU:1", "CPU:2", "CPU:3")
Array = np.ndarray[Any, Any]


class _Both:
    """One value, as a tensor over several devices and as an array."""

    def __init__(self, draw: Any) -> None:
        shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 7]), min_size=1, max_size=3)))
        self.draw = draw
        self.array: Array = (np.arange(int(np.prod(shape))) * 37 % 19 - 9).reshape(shape)
        self.devices = ALL[: draw(st.integers(2, 4))]
        axes = st.one_of(st.none(), st.integers(0, len(shape) - 1))
        if len(self.devices) == 4 and draw(st.booleans()):
            self.x = Tensor(self.array).shard(ALL, draw(st.tuples(axes, axes)), mesh=(2, 2))
        else:
            self.x = Tensor(self.array).shard(self.devices, draw(axes))

    def axis(self) -> int:
        chosen: int = self.draw(st.integers(0, self.array.ndim - 1))
        return chosen

    def bounds(self) -> list[tuple[int, int]]:
        found = []
        for size in self.array.shape:
            pair = self.draw(st.tuples(st.integers(0, size), st.integers(0, size)))
            found.append((min(pair), max(pair)))
        return found

    def beside(self) -> Tensor:
        """The same value, split in some way."""
        axis = self.draw(st.one_of(st.none(), st.integers(0, self.array.ndim - 1)))
        return Tensor(np.ascontiguousarray(self.array)).shard(self.devices, axis)


def flip(both: _Both) -> None:
    axis = both.axis()
    both.x, both.array = both.x.flip(axis), np.flip(both.array, axis)


def pad(both: _Both) -> None:
    counts = [both.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in both.array.shape]
    both.x, both.array = both.x.pad(counts), np.pad(both.array, counts)


def shrink(both: _Both) -> None:
    bounds = both.bounds()
    both.x = both.x.shrink(bounds)
    both.array = both.array[tuple([slice(*pair) for pair in bounds])]


def step(both: _Both) -> None:
    axis, stride = both.axis(), both.draw(st.sampled_from([2, 3, -1, -2]))
    place = tuple([slice(None, None, stride if n == axis else 1) for n in range(both.array.ndim)])
    both.x, both.array = both.x[place], both.array[place]


def reshape(both: _Both) -> None:
    total: int = both.array.size
    shape: list[int] = []
    while total > 1 and len(shape) < 3:
        factor = both.draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
        shape.append(factor)
        total //= factor
    shape = [*shape, total] if both.array.size else [*both.array.shape, 1]
    both.x, both.array = both.x.reshape(shape), both.array.reshape(shape)


def permute(both: _Both) -> None:
    order = both.draw(st.permutations(range(both.array.ndim)))
    both.x, both.array = both.x.permute(*order), both.array.transpose(order)


def total(both: _Both) -> None:
    axis, keep = both.axis(), both.draw(st.booleans())
    both.x, both.array = both.x.sum(axis, keepdim=keep), both.array.sum(axis, keepdims=keep)


def running(both: _Both) -> None:
    axis = both.axis()
    both.x, both.array = both.x.cumsum(axis), both.array.cumsum(axis)


def order(both: _Both) -> None:
    axis = both.axis()
    both.x, both.array = both.x.sort(axis)[0], np.sort(both.array, axis)


def join(both: _Both) -> None:
    axis = both.axis()
    both.x = both.x.cat(both.x * 2, dim=axis)
    both.array = np.concatenate([both.array, both.array * 2], axis)


def add(both: _Both) -> None:
    both.x, both.array = both.x + both.beside(), both.array * 2


def write(both: _Both) -> None:
    place = tuple([slice(*pair) for pair in both.bounds()])
    value = both.beside()[place] - 1
    both.x = both.x.contiguous()
    if both.draw(st.booleans()):
        both.x.realize()
    before, kept = both.x + 0, both.array
    both.array = np.array(both.array)
    both.array[place] -= 1
    both.x[place] = value
    np.testing.assert_array_equal(before.numpy(), kept)


def choose(both: _Both) -> None:
    axis = both.axis()
    if both.array.shape[axis]:
        places = both.draw(
            st.lists(st.integers(0, both.array.shape[axis] - 1), min_size=1, max_size=4)
        )
        given = Tensor(places).shard(both.devices, both.draw(st.sampled_from([None, 0])))
        index = tuple([slice(None)] * axis)
        both.x, both.array = both.x[(*index, given)], np.take(both.array, places, axis)


def realize(both: _Both) -> None:
    both.x = both.x.realize()


STEPS = (
    flip, pad, shrink, step, reshape, permute, total, running, order, join, add, write, choose,
    realize,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_MDV_05_any_sequence_means_what_it_means_on_one_device(data: st.DataObject) -> None:
    both = _Both(data.draw)
    for _ in range(data.draw(st.integers(1, 5))):
        if both.array.ndim and both.array.size < 2000:
            data.draw(st.sampled_from(STEPS))(both)
    found = both.x.numpy()
    assert found.shape == both.array.shape
    np.testing.assert_array_equal(found, both.array)
    layout = both.x.layout
    assert layout is not None
    for part, box in zip(both.x.shards(), layout.boxes, strict=True):
        place = tuple([slice(None) if cut is None else slice(*cut) for cut in box])
        np.testing.assert_array_equal(part.numpy(), both.array[place])
