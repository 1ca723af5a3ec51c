"""Writes, views and laziness: what a program means is what it would mean line by line in NumPy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tilework import Tensor
from tilework.base.errors import AliasError, DTypeError, ShapeError, UserError
from tilework.engine.stats import COUNTERS


class Program:
    """A random program over named tensors, run beside the same one in NumPy."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arrays: dict[str, Any] = {}
        self.tensors: dict[str, Tensor] = {}
        self.lines: list[str] = []

    def run(self) -> None:
        self.make("v0")
        for number in range(1, self.random.randint(6, 14)):
            kind = self.random.choices(
                (self.make, self.look, self.compute, self.write, self.realize, self.drop),
                (12, 18, 20, 30, 12, 8),
            )[0]
            kind(f"v{number}")

    def pick(self) -> str:
        return self.random.choice(list(self.tensors))

    def add(self, name: str, array: Any, tensor: Tensor, line: str) -> None:
        self.arrays[name], self.tensors[name] = array, tensor
        self.lines.append(f"{name} = {line}")

    def make(self, name: str) -> None:
        values = [self.random.randint(-5, 5) for _ in range(12)]
        array = np.array(values, np.float32).reshape(3, 4)
        made = Tensor(array) if self.random.random() < 0.7 else Tensor(array) * 1
        self.add(name, array, made, "new")

    def look(self, name: str) -> None:
        source = self.pick()
        x, t = self.arrays[source], self.tensors[source]
        view = self.random.choice(["T", "row", "column", "step", "back", "flat"])
        if view == "T":
            self.add(name, x.T, t.T, f"{source}.T")
        elif view == "row" and x.shape[0] > 1:
            self.add(name, x[1:], t[1:], f"{source}[1:]")
        elif view == "column" and x.ndim > 1 and x.shape[1] > 1:
            self.add(name, x[:, 1:], t[:, 1:], f"{source}[:, 1:]")
        elif view == "step":
            self.add(name, x[::2], t[::2], f"{source}[::2]")
        elif view == "back":
            self.add(name, x[::-1], t[::-1], f"{source}[::-1]")
        elif x.flags.c_contiguous:
            self.add(name, x.reshape(-1), t.reshape(-1), f"{source}.reshape(-1)")

    def compute(self, name: str) -> None:
        a, b = self.pick(), self.pick()
        x, y = self.arrays[a], self.arrays[b]
        if x.shape == y.shape:
            made = self.tensors[a] * 2 + self.tensors[b]
            self.add(name, x * 2 + y, made, f"{a} * 2 + {b}")
        else:
            self.add(name, x + 1, self.tensors[a] + 1, f"{a} + 1")

    def write(self, name: str) -> None:
        a, b = self.pick(), self.pick()
        x, t = self.arrays[a], self.tensors[a]
        kind = self.random.choice(["assign", "add", "number", "row"])
        if kind == "assign" and x.shape == self.arrays[b].shape:
            x[...] = self.arrays[b].copy()
            t.assign(self.tensors[b])
        elif kind == "add":
            x += 1
            t += 1
        elif kind == "number":
            x[...] = 3
            t.assign(3)
        elif len(x):
            row = self.random.randrange(len(x))
            x[row] = x[row] * 2 + 1
            t[row] = t[row] * 2 + 1
        self.lines.append(f"{kind} {a} {b}")

    def realize(self, name: str) -> None:
        chosen = [each for each in self.tensors if self.random.random() < 0.5]
        if chosen:
            Tensor.realize(*[self.tensors[each] for each in chosen])
        self.lines.append(f"realize {chosen}")

    def drop(self, name: str) -> None:
        if len(self.tensors) > 2:
            gone = self.pick()
            del self.tensors[gone], self.arrays[gone]
            self.lines.append(f"del {gone}")


@pytest.mark.parametrize("block", range(8))
def test_SCH_04_SCH_11_random_programs_of_views_and_writes_mean_what_numpy_does(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        program = Program(seed)
        program.run()
        for name in program.random.sample(list(program.tensors), len(program.tensors)):
            got = program.tensors[name].numpy()
            np.testing.assert_array_equal(got, program.arrays[name], "\n".join(program.lines))


def test_a_strided_write_reaches_the_base() -> None:
    t = Tensor(np.zeros(6, np.float32))
    t[::2] = 1
    assert t.tolist() == [1, 0, 1, 0, 1, 0]


def test_a_write_through_a_chain_of_views_reaches_the_base() -> None:
    t = Tensor.zeros(2, 4).contiguous()
    t[1][2] += 5
    assert t.tolist() == [[0, 0, 0, 0], [0, 0, 5, 0]]


def test_a_reader_built_before_a_write_keeps_the_old_values() -> None:
    base = Tensor([4.0, 5.0, 6.0])
    tripled = base * 3
    base[1:] = Tensor([-1.0, -2.0])
    assert (base.tolist(), tripled.tolist()) == ([4, -1, -2], [12, 15, 18])


def test_two_tensors_can_exchange_their_contents() -> None:
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    new_a, new_b = b * 1, a * 1
    a.assign(new_a)
    b.assign(new_b)
    Tensor.realize(a, b)
    assert (a.tolist(), b.tolist()) == ([3, 4], [1, 2])


def test_a_write_keeps_the_memory_of_its_storage() -> None:
    t = Tensor([1.0, 2.0]).realize()
    before = t._storage.version.buffer.address  # type: ignore[union-attr]
    t.assign(t * 2).realize()
    after = t._storage.version.buffer.address  # type: ignore[union-attr]
    assert after == before


def test_a_clone_does_not_see_later_writes() -> None:
    a = Tensor([1.0, 2.0])
    b = a.clone()
    a[0] = 9.0
    assert b.tolist() == [1, 2]


def test_overlapping_parts_of_one_tensor_are_read_before_they_are_written() -> None:
    t = Tensor(np.arange(6, dtype=np.float32))
    t[1:] = t[:-1]
    assert t.tolist() == [0, 0, 1, 2, 3, 4]


def test_a_tensor_can_be_assigned_its_own_mirror_image() -> None:
    t = Tensor(np.arange(5, dtype=np.float32)).realize()
    t.assign(t[::-1])
    assert t.tolist() == [4, 3, 2, 1, 0]


def test_an_index_tensor_writes_rows() -> None:
    t = Tensor.zeros(4, 2).contiguous()
    t[Tensor([2, 0])] = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert t.tolist() == [[3, 4], [0, 0], [1, 2], [0, 0]]


def test_a_mask_writes_where_it_is_true() -> None:
    t = Tensor([1.0, -2.0, 3.0])
    t[t < 0] = 0
    assert t.tolist() == [1, 0, 3]


def test_a_write_broadcasts_its_value() -> None:
    t = Tensor.zeros(2, 3).contiguous()
    t[:, 1:] = Tensor([[7.0], [8.0]])
    assert t.tolist() == [[0, 7, 7], [0, 8, 8]]


def test_writing_where_elements_share_a_place_is_refused() -> None:
    spread = Tensor([1.0]).expand(3)
    with pytest.raises(AliasError, match="some elements of this view are one place"):
        spread.assign(2)


def test_a_fraction_is_not_written_into_integers() -> None:
    t = Tensor([1, 2])
    with pytest.raises(DTypeError, match="the number is not an integer"):
        t[0] = 1.5


def test_floats_are_not_written_into_integers() -> None:
    t = Tensor([1, 2])
    with pytest.raises(DTypeError, match="the value's dtype does not fit"):
        t += Tensor([0.5, 0.5])


def test_an_integer_that_does_not_fit_is_not_written() -> None:
    t = Tensor([1, 2], dtype="int8")
    with pytest.raises(DTypeError, match="the number does not fit"):
        t[0] = 300


def test_a_value_of_another_shape_is_refused() -> None:
    t = Tensor([1.0, 2.0])
    with pytest.raises(ShapeError, match="the shapes don't fit"):
        t.assign(Tensor([1.0, 2.0, 3.0]))


def test_changing_a_parameter_in_place_is_refused_while_history_is_recorded() -> None:
    t = Tensor([1.0], requires_grad=True)
    with pytest.raises(UserError, match="requires_grad is changed in place"):
        t += 1


def test_SCH_01_a_realized_tensor_is_not_computed_again() -> None:
    t = (Tensor([1.0, 2.0]) * 3).realize()
    before = COUNTERS.schedules
    t.realize()
    t.numpy()
    assert COUNTERS.schedules == before


def test_SCH_04_a_view_of_a_realized_tensor_needs_no_computation() -> None:
    t = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()
    before = COUNTERS.schedules
    view = t.T[1:, ::2]
    assert view.numpy().tolist() == t.numpy().T[1:, ::2].tolist()
    assert COUNTERS.schedules == before


def test_SCH_20_a_long_chain_is_realized_without_recursion() -> None:
    t = Tensor([0.0])
    for _ in range(3000):
        t = t + 1
    assert t.item() == 3000
