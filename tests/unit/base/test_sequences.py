import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework.base import sequences
from tilework.base.errors import InternalError


def test_unique_keeps_the_first() -> None:
    assert sequences.unique("abac") == ("a", "b", "c")


def test_partition_keeps_the_order() -> None:
    assert sequences.partition([1, 2, 3, 4], lambda n: n % 2 == 0) == ([2, 4], [1, 3])


def test_group_by_keeps_the_order() -> None:
    assert sequences.group_by(["aa", "b", "cc"], len) == {2: ["aa", "cc"], 1: ["b"]}


def test_the_last_chunk_may_be_short() -> None:
    assert list(sequences.chunks([1, 2, 3], 2)) == [[1, 2], [3]]


@pytest.mark.parametrize("items", [[], [1, 2]])
def test_only_wants_one(items: list[int]) -> None:
    with pytest.raises(InternalError, match=f"{len(items)} items"):
        sequences.only(items)


def test_only_returns_it() -> None:
    assert sequences.only(iter([7])) == 7


@given(st.permutations(range(6)))
def test_an_inverse_undoes_its_permutation(order: list[int]) -> None:
    inverse = sequences.inverse_permutation(order)
    assert [order[i] for i in inverse] == list(range(6))


@pytest.mark.parametrize(("shape", "strides"), [((), ()), ((5,), (1,)), ((2, 3, 4), (12, 4, 1))])
def test_row_major_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert sequences.row_major_strides(shape) == strides


def test_topological_order_puts_needs_first_and_keeps_ties() -> None:
    needs = {"a": ["c"], "b": [], "c": ["b", "outside"], "d": []}
    assert sequences.topological(needs, needs.__getitem__) == (("b", "d", "c", "a"), ())


def test_a_circle_is_found_and_named() -> None:
    needs = {"a": [], "b": ["c"], "c": ["d"], "d": ["b"], "e": ["d"]}
    order, circle = sequences.topological(needs, needs.__getitem__)
    assert (order, set(circle)) == (("a",), {"b", "c", "d"})


def test_a_long_chain_needs_no_recursion() -> None:
    order, circle = sequences.topological(range(100_000), lambda n: [n + 1] if n < 99_999 else [])
    assert (order[0], circle) == (99_999, ())
