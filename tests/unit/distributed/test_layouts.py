"""Tensors over several devices: layouts, what moves between them, and every bit kept."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework import Tensor, distributed, dtypes
from tilework.base.errors import DeviceUnavailableError, ShapeError, UserError
from tilework.engine.execute import schedule_of
from tilework.schedule.call import transform_to_call
from tilework.schedule.schedule import SlotKind
from tilework.schedule.shard import spec
from tilework.tensor import realize

ALL = ("CPU", "CPU:1", "CPU:2", "CPU:3", "CPU:4", "CPU:5")
TWO, THREE, FOUR = ALL[:2], ALL[:3], ALL[:4]
SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 7])


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


def replica(*shape: int) -> Tensor:
    return Tensor(numbers(*shape)).shard(THREE).realize()


def moved_bytes(*tensors: Tensor) -> int:
    return sum(row.size_bytes for row in distributed.plan_transfers(*tensors))


def check(found: Tensor, wanted: np.ndarray[Any, Any]) -> None:
    """The values, read as a whole and part by part."""
    array = found.numpy()
    np.testing.assert_array_equal(array, wanted)
    assert array.dtype == wanted.dtype
    layout = found.layout
    assert layout is not None
    for part, box in zip(found.shards(), layout.boxes, strict=True):
        place = tuple([slice(None) if cut is None else slice(*cut) for cut in box])
        np.testing.assert_array_equal(part.numpy(), wanted[place])


# --- round trips ---------------------------------------------------------------------------------


@st.composite
def spread(draw: Any) -> tuple[np.ndarray[Any, Any], Tensor]:
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=3)))
    array = numbers(*shape)
    axes = st.one_of(st.none(), st.integers(0, len(shape) - 1))
    if draw(st.booleans()):
        pair = draw(st.tuples(axes, axes))
        return array, Tensor(array).shard(FOUR, pair, mesh=(2, 2))
    count = draw(st.integers(2, 6))
    return array, Tensor(array).shard(ALL[:count], draw(axes))


@settings(max_examples=60, deadline=None)
@given(made=spread())
def test_MDV_01_what_is_spread_comes_back(made: tuple[np.ndarray[Any, Any], Tensor]) -> None:
    array, x = made
    check(x, array)
    np.testing.assert_array_equal(x.unshard().numpy(), array)
    assert x.unshard("CPU:2").device == "CPU:2"


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.bits >= 8], ids=str)
def test_MDV_01_every_dtype_is_spread_unevenly(dtype: Any) -> None:
    x = Tensor([0, 1, 1, 0, 1]).cast(dtype)
    assert x.shard(THREE, axis=0).unshard().tolist() == x.tolist()


def test_a_tensor_knows_where_it_is() -> None:
    x = Tensor(numbers(7, 2)).shard(("cpu:0", "CPU:1"), axis=0)
    assert (x.device, x.axis) == (("CPU", "CPU:1"), 0)
    assert [part.shape for part in x.shards()] == [(4, 2), (3, 2)]
    assert [part.device for part in x.shards()] == ["CPU", "CPU:1"]
    assert x.to(None).axis is None


def test_one_device_is_no_group() -> None:
    x = Tensor(numbers(3)).shard(("CPU:1",), axis=0)
    assert (x.device, x.layout, x.axis) == ("CPU:1", None, None)


def test_wrong_calls_say_what_is_wrong() -> None:
    x = Tensor(numbers(4, 2))
    with pytest.raises(ShapeError, match="shard: axis 2 is out of range"):
        x.shard(TWO, axis=2)
    with pytest.raises(ShapeError, match="shard: several axes need a mesh"):
        x.shard(TWO, axis=(0, 1))
    with pytest.raises(ShapeError, match="another number of places than there are devices"):
        x.shard(TWO, axis=(0, 1), mesh=(2, 2))
    with pytest.raises(ShapeError, match="a scalar has no axis"):
        Tensor(1).shard(TWO, axis=0)
    with pytest.raises(DeviceUnavailableError, match="there is no back end TOAST"):
        x.shard(("CPU", "TOAST"), axis=0)
    with pytest.raises(UserError, match="add: operands are on different devices"):
        x.shard(TWO, axis=0) + x
    with pytest.raises(UserError, match="add: operands are on different devices"):
        x.shard(TWO, axis=0) + x.shard(THREE, axis=0)


# --- what moves ----------------------------------------------------------------------------------

LOCAL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "elementwise": lambda x, y: (x * y + 1).maximum(x) // 3,
    "numbers and positions": lambda x, y: (x > 2).where(x, Tensor.arange(6, device=x.device)),
    "reduction of another axis": lambda x, y: (x * y).sum(1) + y.max(1),
    "permute": lambda x, y: x.T + y.T,
    "flip": lambda x, y: x.flip(0) * 2,
    "flip of another axis": lambda x, y: x.flip(1) + y,
    "slice": lambda x, y: x[1:7],
    "steps": lambda x, y: x[::2] + y[::2],
    "reshape": lambda x, y: x.reshape(8, 2, 3) + y.reshape(8, 2, 3),
    "expand": lambda x, y: x.unsqueeze(1).expand(8, 5, 6).sum(1),
    "broadcast": lambda x, y: x + replica(6),
    "matmul by a replica": lambda x, y: x @ replica(6, 4),
    "scan of another axis": lambda x, y: x.cumsum(1) + y,
    "sort of another axis": lambda x, y: x.sort(1)[0],
    "gather from a replica": lambda x, y: replica(50)[x],
    "cast": lambda x, y: x.float().half().int() + y,
    "window of another axis": lambda x, y: x.unfold(1, 3, 1),
    "zeros beside it": lambda x, y: x.zeros_like() + y,
}


@pytest.mark.parametrize("name", LOCAL)
def test_MDV_02_what_each_device_has_is_not_moved(name: str) -> None:
    x, y = (Tensor(numbers(8, 6) + n).shard(THREE, axis=0).realize() for n in (0, 1))
    Tensor.realize(x, y)
    assert moved_bytes(LOCAL[name](x, y)) == 0


def test_MDV_02_writes_beside_each_other_move_nothing() -> None:
    x, y = (Tensor(numbers(8, 6)).shard(TWO, axis=0).contiguous().realize() for _ in range(2))
    x[1:7] = y[1:7] * 2
    assert moved_bytes(x) == 0
    assert x.tolist()[1] == (numbers(8, 6)[1] * 2).tolist()


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x.shard(FOUR, 0),
    "columns": lambda x: x.shard(FOUR, 1),
    "replicas": lambda x: x.shard(FOUR),
    "mesh": lambda x: x.shard(FOUR, (0, 1), mesh=(2, 2)),
    "rows of halves": lambda x: x.shard(FOUR, (0, None), mesh=(2, 2)),
}


@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("shape", [(8, 8), (7, 5)], ids=str)
def test_MDV_03_a_layout_becomes_another_with_the_fewest_bytes(
    source: str, target: str, shape: tuple[int, int]
) -> None:
    x = LAYOUTS[source](Tensor(numbers(*shape))).realize()
    y = LAYOUTS[target](x)
    assert x.layout is not None
    assert y.layout is not None
    least = 4 * spec.moved_elements(x.layout, y.layout, shape)
    assert moved_bytes(y) == least
    check(y, numbers(*shape))


def test_MDV_03_a_sum_of_parts_that_is_split_again_is_scattered() -> None:
    x = Tensor(np.ones((8, 16), np.float32)).shard(FOUR, 0).realize()
    total = x.sum(0).shard(FOUR, 0)
    assert moved_bytes(total) == 3 * 16 * 4  # a quarter from each of three others, for each device
    assert total.tolist() == [8.0] * 16


def test_MDV_03_a_replica_is_split_without_moving_anything() -> None:
    x = Tensor(numbers(8, 3)).shard(FOUR).realize()
    assert moved_bytes(x.shard(FOUR, 0)) == 0


def test_MDV_03_factors_are_moved_and_not_their_products() -> None:
    a = Tensor(np.ones((8, 32), np.float32)).shard(TWO, 0).realize()
    b = Tensor(np.ones((32, 8), np.float32)).shard(TWO, 1).realize()
    assert moved_bytes(a @ b) <= 2 * 4 * 32 * 4
    assert (a @ b).tolist() == np.full((8, 8), 32.0).tolist()


def test_MDV_03_a_lookup_moves_the_rows_and_not_the_table() -> None:
    table = Tensor(numbers(1000, 4)).shard(FOUR, 0).realize()
    places = Tensor([[1, 999], [250, 500]]).shard(FOUR).realize()
    found = table[places]
    assert moved_bytes(found) < 1000
    np.testing.assert_array_equal(found.numpy(), numbers(1000, 4)[[[1, 999], [250, 500]]])


def test_MPL_16_each_device_has_an_arena_for_the_parts_that_it_has() -> None:
    x = Tensor(np.ones((700, 40), np.float32)).shard(THREE, 0).realize()
    nodes, _ = realize.nodes_of([x.exp().sort(1)[0].sort(1)[0]._storage.version])
    schedule = schedule_of(transform_to_call(nodes).function)
    arenas: dict[str, int] = {}
    for slot in schedule.slots:
        if slot.kind is SlotKind.ARENA:
            arenas[slot.device] = arenas.get(slot.device, 0) + slot.size_bytes
    rows = {"CPU": 234, "CPU:1": 233, "CPU:2": 233}
    assert set(arenas) == set(rows)
    assert arenas["CPU"] > arenas["CPU:1"] == arenas["CPU:2"]
    assert all(arenas[name] < 4 * count * 40 * 8 for name, count in rows.items())


# --- folds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("split", [(0, 1), (1, 2), (2, 0), (0, None), (1, 1)], ids=str)
def test_MDV_04_some_of_several_cut_axes_are_folded(
    axes: tuple[int, ...], split: tuple[int | None, int | None]
) -> None:
    array = numbers(3, 5, 4)
    x = Tensor(array).shard(FOUR, split, mesh=(2, 2))
    check(x.sum(axes), array.sum(axes))
    check(x.max(axes), array.max(axes))


def test_MDV_04_a_fold_over_one_axis_of_a_mesh_stays_within_its_lines() -> None:
    x = Tensor(np.ones((8, 8), np.float32)).shard(FOUR, (0, 1), mesh=(2, 2)).realize()
    pairs = {(row.source, row.target) for row in distributed.plan_transfers(x.sum(0))}
    assert pairs == {("CPU", "CPU:2"), ("CPU:2", "CPU"), ("CPU:1", "CPU:3"), ("CPU:3", "CPU:1")}


@pytest.mark.parametrize("fold", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("size", [1, 2, 5, 13])
def test_MDV_07_folds_of_cut_axes_run(fold: str, count: int, size: int) -> None:
    array = np.arange(1, 2 * size + 1, dtype=np.int64).reshape(size, 2)
    x = Tensor(array).shard(ALL[:count], axis=0)
    check(getattr(x, fold)(0), getattr(array, fold)(0))


def test_the_sum_of_nothing_is_zero_everywhere() -> None:
    check(Tensor(numbers(0, 3)).shard(THREE, axis=1).sum(0), np.zeros(3, np.int64))


@pytest.mark.parametrize("algorithm", ["naive", "ring", "all2all"])
def test_MDV_07_each_algorithm_runs_on_devices(algorithm: Any) -> None:
    import tilework

    array = np.random.default_rng(0).standard_normal((12, 37)).astype(np.float32)
    with tilework.override(allreduce=algorithm):
        total = Tensor(array).shard(FOUR, axis=0).sum(0)
        parts = [part.numpy().tobytes() for part in total.shards()]
    assert len(set(parts)) == 1
    np.testing.assert_allclose(total.numpy(), array.sum(0), rtol=1e-5)


@pytest.mark.parametrize("count", [2, 3, 4, 6])
@pytest.mark.parametrize("shape", [(800,), (7, 1024), (33, 5)], ids=str)
def test_MDV_10_deterministic_sums_are_those_of_one_device(
    count: int, shape: tuple[int, ...]
) -> None:
    import tilework

    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32) * 1000
    axis = len(shape) - 1
    with tilework.override(deterministic=True):
        alone = Tensor(array).realize().sum(axis).numpy()
        spread_ = Tensor(array).shard(ALL[:count], axis).realize().sum(axis).numpy()
    assert alone.tobytes() == spread_.tobytes()


def test_MDV_10_narrow_floats_meet_in_the_dtype_that_they_are_summed_in() -> None:
    array = np.array([2048.0, 1.0, 1.0, 1.0], np.float16)
    x = Tensor(array).shard(FOUR, axis=0)
    assert x.sum().item() == 2052.0  # 2051 rounded once, not 2048 + 1 + 1 + 1


# --- bits ----------------------------------------------------------------------------------------

BITS: dict[str, Callable[[Tensor], Tensor]] = {
    "gathered": lambda x: x.shard(FOUR),
    "on one device": lambda x: x.unshard("CPU:3"),
    "split in another way": lambda x: x.shard(FOUR, (0, 1), mesh=(2, 2)),
    "rolled": lambda x: x.roll(3, 0).roll(-3, 0),
    "joined": lambda x: x[:100].cat(x[100:], dim=0),
    "flipped": lambda x: x.flip(0).shard(FOUR, 0).flip(0),
    "through windows": lambda x: x.unfold(0, 1, 1).squeeze(2),
    "looked up": lambda x: x[Tensor.arange(256, device=x.device)],
    "put together": lambda x: distributed.assemble(list(x.shards())),
}


@pytest.mark.parametrize("way", BITS)
def test_MDV_06_every_pattern_of_16_bits_survives(way: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = Tensor(bits.view(np.float16).reshape(256, 256)).shard(FOUR, axis=0).realize()
    found = BITS[way](x).bitcast(dtypes.uint16).numpy()
    np.testing.assert_array_equal(found.reshape(-1), bits)


# --- movement ------------------------------------------------------------------------------------

MOVES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "flip": (lambda x: x.flip(0, 1, 2), lambda a: a[::-1, ::-1, ::-1]),
    "pad": (
        lambda x: x.pad(((1, 2), (0, 3), (2, 0))),
        lambda a: np.pad(a, ((1, 2), (0, 3), (2, 0))),
    ),
    "pad by much": (lambda x: x.pad(((200, 0),) * 3), lambda a: np.pad(a, ((200, 0),) * 3)),
    "slice": (lambda x: x[1:4, 1:3, 2:6], lambda a: a[1:4, 1:3, 2:6]),
    "slice of one": (lambda x: x[2:3, 1:2, 3:4], lambda a: a[2:3, 1:2, 3:4]),
    "slice of none": (lambda x: x[2:2], lambda a: a[2:2]),
    "steps": (lambda x: x[::2, ::3, ::2], lambda a: a[::2, ::3, ::2]),
    "steps back": (lambda x: x[::-2, :, ::-1], lambda a: a[::-2, :, ::-1]),
    "permute": (lambda x: x.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    "flatten": (lambda x: x.reshape(-1), lambda a: a.reshape(-1)),
    "join two axes": (lambda x: x.reshape(5, -1), lambda a: a.reshape(5, -1)),
    "join the others": (lambda x: x.reshape(-1, 6), lambda a: a.reshape(-1, 6)),
    "regroup": (lambda x: x.reshape(6, 4, 5), lambda a: a.reshape(6, 4, 5)),
    "split an axis": (lambda x: x.reshape(5, 2, 2, 6), lambda a: a.reshape(5, 2, 2, 6)),
    "axes of one": (lambda x: x.reshape(1, 5, 1, 4, 6), lambda a: a.reshape(1, 5, 1, 4, 6)),
    "expand": (
        lambda x: x.unsqueeze(0).expand(3, 5, 4, 6),
        lambda a: np.broadcast_to(a, (3, 5, 4, 6)),
    ),
    "roll": (lambda x: x.roll((1, 2, 3), (0, 1, 2)), lambda a: np.roll(a, (1, 2, 3), (0, 1, 2))),
    "repeat": (lambda x: x.repeat(2, 1, 2), lambda a: np.tile(a, (2, 1, 2))),
    "join": (lambda x: x.cat(x[:2], dim=0), lambda a: np.concatenate([a, a[:2]], 0)),
    "stack": (lambda x: x.stack(x, dim=1), lambda a: np.stack([a, a], 1)),
    "running sum": (lambda x: x.cumsum(0).int(), lambda a: a.cumsum(0).astype(np.int32)),
    "running sum of rows": (lambda x: x.cumsum(2).int(), lambda a: a.cumsum(2).astype(np.int32)),
    "sort": (lambda x: (x % 7).sort(1)[0], lambda a: np.sort(a % 7, 1)),
    "largest": (lambda x: (x % 7).argmax(0).int(), lambda a: (a % 7).argmax(0).astype(np.int32)),
    "windows": (
        lambda x: x.unfold(0, 3, 1),
        lambda a: np.moveaxis(np.lib.stride_tricks.sliding_window_view(a, 3, 0), -1, -1),
    ),
    "chosen": (lambda x: x[:, [3, 0, 0]], lambda a: a[:, [3, 0, 0]]),
    "triangle": (lambda x: x.tril(), lambda a: np.tril(a)),
}


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2)], ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_MDV_05_each_movement_of_a_cut_axis_is_that_of_one_device(
    name: str, axis: int | Sequence[int]
) -> None:
    move, judge = MOVES[name]
    array = numbers(5, 4, 6)
    x = Tensor(array)
    x = x.shard(THREE, axis) if isinstance(axis, int) else x.shard(FOUR, axis, mesh=(2, 2))
    check(move(x), np.ascontiguousarray(judge(array)))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_MDV_05_parts_are_written_across_devices(axis: int | None) -> None:
    array = numbers(7, 5)
    x = Tensor(array).shard(THREE, axis).contiguous().realize()
    before = x + 0
    x[1:6, ::2] = Tensor(-numbers(5, 3)).shard(THREE, 0)
    x.reshape(-1)[3:9] = 77
    x.T[4] = x[:, 0] * 2
    wanted = array.copy()
    wanted[1:6, ::2] = -numbers(5, 3)
    wanted.reshape(-1)[3:9] = 77
    wanted.T[4] = wanted[:, 0] * 2
    check(x, wanted)
    check(before, array)


def test_MDV_05_scattered_updates_go_to_the_device_that_has_the_row() -> None:
    array = np.zeros((7, 2), np.float32)
    places = np.array([6, 0, 3, 3, 5])
    updates = np.arange(10, dtype=np.float32).reshape(5, 2)
    x = Tensor(array).shard(THREE, axis=0).contiguous().realize()
    x = x.index_add(0, Tensor(places).shard(THREE), Tensor(updates).shard(THREE, 0))
    np.add.at(array, places, updates)
    check(x, array)
    assert x.axis == 0
