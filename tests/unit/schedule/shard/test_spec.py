"""Boxes and layouts: even and uneven cuts, meshes, and sets of elements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework.base.errors import ShapeError
from tilework.ir.build import const_index
from tilework.ir.ops.index import VARIABLE, VariableAttrs
from tilework.ir.ops.multi import Layout
from tilework.schedule.shard import spec

DEVICES = ("CPU", "CPU:1", "CPU:2", "CPU:3")
BOUNDS = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda pair: tuple(sorted(pair)))
BOXES = st.tuples(BOUNDS, BOUNDS)


def elements(box: spec.Bounds) -> set[tuple[int, int]]:
    (a, b), (c, d) = box
    return {(i, j) for i in range(a, b) for j in range(c, d)}


@given(size=st.integers(0, 50), parts=st.integers(1, 9))
def test_even_cuts_lie_side_by_side_and_differ_by_at_most_one(size: int, parts: int) -> None:
    cuts = spec.even_cuts(size, parts)
    lengths = [stop - start for start, stop in cuts]
    assert [start for start, _ in cuts] == [0, *[stop for _, stop in cuts[:-1]]]
    assert sum(lengths) == size
    assert max(lengths) - min(lengths) <= 1


@given(one=BOXES, other=BOXES)
def test_boxes_are_cut_as_sets_are(one: spec.Bounds, other: spec.Bounds) -> None:
    shared = spec.common(one, other)
    rest = spec.without(one, other)
    found = set() if shared is None else elements(shared)
    assert found == elements(one) & elements(other)
    left = [element for box in rest for element in elements(box)]
    assert len(left) == len(set(left))
    assert set(left) == elements(one) - elements(other)


@given(boxes=st.lists(BOXES, max_size=5))
def test_a_cover_leaves_nothing_out(boxes: list[spec.Bounds]) -> None:
    wanted = ((0, 4), (1, 5))
    held = set().union(*map(elements, boxes)) if boxes else set()
    assert spec.covers(boxes, wanted) == (elements(wanted) <= held)


def test_an_interval_of_the_whole_axis_has_one_form() -> None:
    assert spec.split((1, 4), ("CPU", "CPU:1"), 0).boxes == ((None, None), ((1, 1), None))
    assert spec.split((0,), ("CPU", "CPU:1"), 0).boxes == ((None,), (None,))


def test_a_mesh_cuts_two_axes() -> None:
    layout = spec.mesh_split((4, 6), DEVICES, (2, 2), (0, 1))
    assert layout.boxes == (
        ((0, 2), (0, 3)), ((0, 2), (3, 6)), ((2, 4), (0, 3)), ((2, 4), (3, 6)),
    )  # fmt: skip


def test_both_axes_of_a_mesh_may_cut_one_axis() -> None:
    layout = spec.mesh_split((7,), DEVICES, (2, 2), (0, 0))
    assert layout.boxes == (((0, 2),), ((2, 4),), ((4, 6),), ((6, 7),))


def test_an_axis_of_a_mesh_that_cuts_nothing_holds_replicas() -> None:
    layout = spec.mesh_split((4,), DEVICES, (2, 2), (None, 0))
    assert layout.boxes == (((0, 2),), ((2, 4),), ((0, 2),), ((2, 4),))
    assert spec.split_axis(layout) == 0


def test_an_axis_whose_size_comes_later_is_not_cut() -> None:
    size = VARIABLE(attrs=VariableAttrs("n", 1, 8))
    assert size is not const_index(8)
    with pytest.raises(ShapeError, match="axis 0 must have a fixed size"):
        spec.split((size, 4), DEVICES, 0)
    assert spec.split((size, 4), DEVICES, 1).boxes[0] == (None, (0, 1))


def test_moved_elements_are_those_that_a_device_lacks() -> None:
    rows, columns = (spec.split((4, 4), ("CPU", "CPU:1"), axis) for axis in (0, 1))
    whole = spec.replicated(("CPU", "CPU:1"), 2)
    assert spec.moved_elements(rows, columns, (4, 4)) == 8
    assert spec.moved_elements(rows, whole, (4, 4)) == 16
    assert spec.moved_elements(whole, rows, (4, 4)) == 0
    assert spec.moved_elements(None, rows, (4, 4)) == 0


def test_a_layout_that_leaves_something_out_is_seen() -> None:
    layout = Layout(("CPU", "CPU:1"), (((0, 2),), ((3, 4),)))
    assert not spec.layout_covers(layout, (4,))
    assert spec.layout_covers(layout, (0,))
