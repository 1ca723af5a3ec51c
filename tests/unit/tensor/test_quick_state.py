"""Replays without loops of functions that write or take variables, keywords, containers."""

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, Variable, jit
from tilework.base.errors import BoundsError, TileworkError, UserError
from tilework.tensor.jit import Jit
from tilework.tensor.quick import MISS

Pair = namedtuple("Pair", "first second")  # what users have


def tensor(*values: float) -> Tensor:
    return Tensor(np.array(values, dtype=np.float32)).contiguous().realize()


def warmed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Jit[..., Any]:
    """`function`, captured and replayed often enough to be replayed without loops."""
    step = jit(function)
    for _ in range(3):
        step(*args, **kwargs)
    assert step._quick is not None
    return step


def adder() -> tuple[Tensor, Jit[..., Any]]:
    state = tensor(0, 0)

    def step(x: Tensor) -> Tensor:
        state.assign(state + x).realize()
        return state * 2

    return state, warmed(step, tensor(1, 2))


# --- writes ---------------------------------------------------------------------------------------


def test_a_state_that_is_held_is_written_without_loops() -> None:
    state, step = adder()
    assert step._quick is not None
    assert step._quick((tensor(1, 2),)).tolist() == [8, 16]
    assert state.tolist() == [4, 8]


def test_who_needs_the_old_contents_keeps_them() -> None:
    state, step = adder()
    later = state + 100
    step(tensor(1, 2))
    assert later.tolist() == [103, 106]
    assert state.tolist() == [4, 8]


def test_a_state_that_somebody_wrote_is_read_anew() -> None:
    state, step = adder()
    state.assign(tensor(10, 20)).realize()
    assert step(tensor(1, 1)).tolist() == [22, 42]


def test_EXE_05_an_argument_that_is_written_is_written_where_it_lies() -> None:
    def function(target: Tensor, x: Tensor) -> Tensor:
        target.assign(target + x).realize()
        return target

    step = warmed(function, tensor(0), tensor(1))
    assert step._quick is not None
    mine = tensor(5)
    assert step._quick((mine, tensor(2))) is mine
    assert mine.tolist() == [7]


def test_a_reader_of_an_argument_that_is_written_keeps_what_it_saw() -> None:
    def function(target: Tensor, x: Tensor) -> None:
        target.assign(target + x).realize()

    step = warmed(function, tensor(0), tensor(1))
    mine = tensor(5)
    later = mine * 10
    step(mine, tensor(2))
    assert (later.tolist(), mine.tolist()) == ([50], [7])


def test_arguments_that_overlap_one_that_is_written_mean_what_they_say() -> None:
    def function(target: Tensor, x: Tensor) -> None:
        target.assign(target + x).realize()

    base = tensor(1, 2, 3, 4)
    step = warmed(function, tensor(0, 0), tensor(1, 1))
    one, other = base[0:2], base[1:3]
    step(one, other)
    assert base.tolist() == [3, 5, 3, 4]


def test_a_state_given_as_an_argument_too_means_what_it_says() -> None:
    state, step = adder()
    assert step(state).tolist() == [12, 24]
    assert state.tolist() == [6, 12]


def test_a_state_that_a_failed_replay_has_ruined_is_not_read() -> None:
    state, table, index = tensor(0), tensor(1, 2, 3), Tensor([1]).realize()

    def function(i: Tensor) -> Tensor:
        state.assign(state + table[i]).realize()
        return state + 1

    step = warmed(function, index)
    with pytest.raises(BoundsError):
        step(Tensor([7]).realize())
    with pytest.raises(TileworkError):
        state.tolist()


def test_what_was_derived_from_a_written_tensor_is_made_anew() -> None:
    weight = Tensor(np.eye(16, dtype=np.float32)).contiguous().realize()
    read = warmed(lambda x: x @ weight, Tensor(np.ones((4, 16), np.float32)).realize())

    def double() -> None:
        weight.assign(weight * 2).realize()

    write = warmed(double)
    write()
    assert read(Tensor(np.ones((4, 16), np.float32)).realize()).tolist() == [[16.0] * 16] * 4


# --- variables ------------------------------------------------------------------------------------


def test_each_value_of_a_variable_is_used() -> None:
    i = Variable("i", 1, 6)
    x = tensor(1, 2, 3, 4, 5, 6)
    step = warmed(lambda x, i: x[:i].sum(), x, i.bind(2))
    assert step._quick is not None
    assert [step._quick((x, i.bind(n))).item() for n in (1, 3, 6, 2)] == [1, 6, 21, 3]


def test_a_result_has_the_size_of_its_call() -> None:
    n = Variable("n", 1, 6)
    x = tensor(1, 2, 3, 4, 5, 6)
    step = warmed(lambda x, n: x[:n] * 2, x, n.bind(2))
    first, second = step(x, n.bind(3)), step(x, n.bind(1))
    assert (first.tolist(), second.tolist()) == ([2, 4, 6], [2])


def test_a_variable_without_a_value_is_refused_as_ever() -> None:
    i = Variable("i", 1, 6)
    x = tensor(1, 2, 3, 4, 5, 6)
    step = warmed(lambda x, i: x[:i].sum(), x, i.bind(2))
    assert step._quick is not None
    assert step._quick((x, i)) is MISS
    assert step._quick((x, Variable("j", 1, 6).bind(2))) is MISS
    assert step._quick((x, 2)) is MISS


def test_two_values_of_one_variable_are_refused_as_ever() -> None:
    i = Variable("i", 1, 6)
    x = tensor(1, 2, 3, 4, 5, 6)
    step = warmed(lambda x, a, b: x[:a] + x[:b], x, i.bind(2), i.bind(2))
    with pytest.raises(UserError):
        step(x, i.bind(2), i.bind(3))


def test_a_value_that_python_has_seen_holds_for_it_alone() -> None:
    i = Variable("i", 1, 6)
    step = warmed(lambda x, i: x[:i].sum() * int(i), tensor(1, 2, 3, 4, 5, 6), i.bind(2))
    x = tensor(1, 2, 3, 4, 5, 6)
    assert [step(x, i.bind(n)).item() for n in (2, 3, 2)] == [6, 18, 6]


# --- keywords and containers ----------------------------------------------------------------------


def test_keywords_are_compared_by_name() -> None:
    x, y = tensor(7), tensor(3)
    step = warmed(lambda *, a, b: a - b, a=x, b=y)
    assert step._quick is not None
    assert step._quick((), {"b": x, "a": y}).item() == -4
    assert step._quick((), {"a": x}) is MISS
    assert step._quick((), {"a": x, "c": y}) is MISS


@pytest.mark.parametrize(
    ("old", "new"), [(2, 3), (2, 2.0), (1, True), (0.0, -0.0), ("a", "b"), (None, 0)]
)
def test_another_value_of_an_argument_is_seen(old: Any, new: Any) -> None:
    step = warmed(lambda x, value: x * 2, tensor(1), old)
    assert step._quick is not None
    assert step._quick((tensor(1), old)) is not MISS
    assert step._quick((tensor(1), new)) is MISS


def test_nan_as_an_argument_is_the_same_as_itself() -> None:
    step = warmed(lambda x, value: x * 2, tensor(1), float("nan"))
    assert step._quick is not None
    assert step._quick((tensor(1), float("nan"))).item() == 2


@pytest.mark.parametrize(
    "other",
    [[tensor(1)], (tensor(1), tensor(2)), [tensor(1), tensor(2), tensor(3)], tensor(1), []],
    ids=["fewer", "tuple", "more", "tensor", "none"],
)
def test_other_containers_are_refused(other: Any) -> None:
    step = warmed(lambda pair: pair[0] + pair[1], [tensor(1), tensor(2)])
    assert step._quick is not None
    assert step._quick(([tensor(3), tensor(4)],)).item() == 7
    assert step._quick((other,)) is MISS


def test_dictionaries_are_compared_with_their_keys_in_order() -> None:
    step = warmed(lambda row: row["a"] - row["b"], {"a": tensor(5), "b": tensor(2)})
    assert step._quick is not None
    assert step._quick(({"a": tensor(9), "b": tensor(2)},)).item() == 7
    assert step._quick(({"b": tensor(9), "a": tensor(2)},)) is MISS
    assert step._quick(({"a": tensor(9)},)) is MISS


def test_named_tuples_are_taken_apart() -> None:
    step = warmed(lambda pair: pair.first - pair.second, Pair(tensor(5), tensor(2)))
    assert step._quick is not None
    assert step._quick((Pair(tensor(1), tensor(2)),)).item() == -1
    assert step._quick(((tensor(1), tensor(2)),)) is MISS


def test_captures_that_alternate_are_each_replayed_without_loops() -> None:
    small, large = tensor(1), tensor(1, 2)
    step = jit(lambda x: x * 2)
    for _ in range(3):
        step(small)
        step(large)
    kept = dict(step._quicks)
    assert len(kept) == 2
    assert [step(x).tolist() for x in (small, large, small)] == [[2], [2, 4], [2]]
    assert dict(step._quicks) == kept


class Doubling:
    """A model whose call goes through a method, which an object may hide by one of its own."""

    __slots__ = ("__dict__", "bias")

    def scaled(self, x: Tensor) -> Tensor:
        return x * 2

    def __call__(self, x: Tensor) -> Tensor:
        bias = getattr(self, "bias", None)
        return self.scaled(x) if bias is None else self.scaled(x) + bias


def test_a_model_whose_class_has_methods_is_replayed_without_loops_until_one_is_hidden() -> None:
    model: Any = Doubling()
    step = warmed(lambda x: model(x), tensor(3))
    assert step._quick is not None
    assert step._quick((tensor(4),)).item() == 8
    model.scaled = lambda x: x * 5
    assert step._quick((tensor(4),)) is MISS
    assert step(tensor(4)).item() == 20


def test_a_slot_that_was_empty_is_looked_at_without_loops() -> None:
    model: Any = Doubling()
    step = warmed(lambda x: model(x), tensor(3))
    assert step._quick is not None
    assert step._quick((tensor(4),)).item() == 8
    model.bias = tensor(1)
    assert step._quick((tensor(4),)) is MISS
    assert step(tensor(4)).item() == 9
