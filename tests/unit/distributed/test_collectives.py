"""Collectives over lists of tensors, meshes with names, and who started this process."""

from typing import Any

import numpy as np
import pytest

from tilework import Tensor, distributed
from tilework.base.errors import SettingsError, ShapeError, UserError

THREE = ("CPU", "CPU:1", "CPU:2")
FOUR = (*THREE, "CPU:3")


def parts(shape: tuple[int, ...] = (6, 2)) -> tuple[list[Tensor], list[np.ndarray[Any, Any]]]:
    arrays = [np.arange(np.prod(shape), dtype=np.int32).reshape(shape) + 10 * n for n in range(3)]
    return [Tensor(a, device=d) for a, d in zip(arrays, THREE, strict=True)], arrays


def devices(found: list[Tensor]) -> list[str]:
    return [each.device for each in found]


@pytest.mark.parametrize(("op", "fold"), [("sum", np.sum), ("max", np.max), ("min", np.min)])
def test_all_reduce_gives_every_device_the_fold(op: Any, fold: Any) -> None:
    given, arrays = parts()
    found = distributed.all_reduce(given, op)
    assert devices(found) == list(THREE)
    for each in found:
        np.testing.assert_array_equal(each.numpy(), fold(arrays, 0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_what_is_widened_for_a_sum_moves_as_it_was(dtype: str) -> None:
    """Sums of narrow floats are made in float32; each value crosses in its own bytes."""
    row = [0.0, 1.5, -3.0, 2.5, *[float(n) for n in range(96)]]
    given = [Tensor(row, device=device).cast(dtype).realize() for device in THREE[:2]]
    found = distributed.all_reduce(given)
    itemsize = given[0].dtype.itemsize
    assert f"CPU:1 -> CPU: {100 * itemsize} B" in distributed.explain(found[0])
    one = Tensor.stack(*[each.to("CPU") for each in given]).sum(0).cast(dtype)
    bits = f"uint{8 * itemsize}"
    for each in found:
        assert each.bitcast(bits).tolist() == one.bitcast(bits).tolist()


def test_reduce_scatter_gives_each_device_its_share() -> None:
    given, arrays = parts()
    found = distributed.reduce_scatter(given)
    assert devices(found) == list(THREE)
    shares = np.split(sum(arrays), 3)
    for each, wanted in zip(found, shares, strict=True):
        np.testing.assert_array_equal(each.numpy(), wanted)


def test_all_gather_joins_uneven_parts() -> None:
    arrays = [np.arange(n) for n in (3, 1, 2)]
    given = [Tensor(a, device=d) for a, d in zip(arrays, THREE, strict=True)]
    for each in distributed.all_gather(given):
        np.testing.assert_array_equal(each.numpy(), np.concatenate(arrays))


@pytest.mark.parametrize(("split", "join"), [(0, 1), (1, 0), (0, 0)])
def test_all_to_all_sends_each_device_its_shares(split: int, join: int) -> None:
    given, arrays = parts((6, 3))
    found = distributed.all_to_all(given, split, join)
    for number, each in enumerate(found):
        shares = [np.split(array, 3, split)[number] for array in arrays]
        np.testing.assert_array_equal(each.numpy(), np.concatenate(shares, join))


def test_broadcast_copies_once_to_each_device() -> None:
    found = distributed.broadcast(Tensor([1, 2]), FOUR)
    assert devices(found) == list(FOUR)
    assert [each.tolist() for each in found] == [[1, 2]] * 4


def test_gradients_flow_through_collectives() -> None:
    given = [Tensor([1.0, 2.0], device=d, requires_grad=True) for d in THREE]
    total = distributed.all_reduce(given)
    (total[0].sum() + (total[2] * 3).sum().to("CPU")).backward()
    grads = [each.grad for each in given]
    assert [g.tolist() for g in grads if g is not None] == [[4.0, 4.0]] * 3
    assert [g.device for g in grads if g is not None] == list(THREE)


def test_parts_that_do_not_fit_are_refused() -> None:
    given, _ = parts()
    with pytest.raises(UserError, match="unknown fold"):
        distributed.all_reduce(given, "mean")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="the parts differ"):
        distributed.all_reduce([given[0], given[1][1:]])
    with pytest.raises(ShapeError, match="one share of equal size"):
        distributed.all_to_all([Tensor([1, 2, 3, 4], device=d) for d in THREE])
    with pytest.raises(UserError, match="there are no parts"):
        distributed.assemble([])
    with pytest.raises(ShapeError, match="there are no parts"):
        distributed.all_to_all([])


def test_a_mesh_splits_axes_by_name() -> None:
    mesh = distributed.Mesh(FOUR, (2, 2), ("data", "model"))
    x = mesh.shard(Tensor(np.arange(24).reshape(6, 4)), ("data", "model"))
    assert [part.shape for part in x.shards()] == [(3, 2)] * 4
    y = mesh.shard(x, (None, "data"))
    assert y.shards()[3].tolist() == np.arange(24).reshape(6, 4)[:, 2:].tolist()
    assert mesh.axis_devices("model") == (("CPU", "CPU:1"), ("CPU:2", "CPU:3"))
    assert mesh.axis_devices("data") == (("CPU", "CPU:2"), ("CPU:1", "CPU:3"))


def test_wrong_meshes_say_what_is_wrong() -> None:
    with pytest.raises(ShapeError, match="another number of places than there are devices"):
        distributed.Mesh(FOUR, (3, 2))
    with pytest.raises(UserError, match="each axis needs a name of its own"):
        distributed.Mesh(FOUR, (2, 2), ("data", "data"))
    mesh = distributed.Mesh(FOUR, names=("data",))
    with pytest.raises(UserError, match="an axis is unknown or named twice"):
        mesh.shard(Tensor([[1]]), ("data", "data"))
    with pytest.raises(ShapeError, match="each axis of the tensor needs an axis of the mesh"):
        mesh.shard(Tensor([[1]]), ("data",))
    with pytest.raises(UserError, match="there is no such axis"):
        mesh.axis_devices("model")


def test_an_explanation_says_what_moves_and_how() -> None:
    x = Tensor(np.ones((4, 4), np.float32)).shard(("CPU", "CPU:1"), 0).realize()
    assert distributed.explain(x + 1) == "nothing moves between devices"
    first, *rest = distributed.explain(x.sum(0)).splitlines()
    assert first == "2 copies between devices, 32 B:"
    assert sorted(rest) == [
        "  CPU -> CPU:1: 16 B, within the memory of the host",
        "  CPU:1 -> CPU: 16 B, within the memory of the host",
    ]
    assert distributed.choose_allreduce(1 << 20, 4).algorithm == "all2all"


LAUNCHERS = {
    "torchrun": {
        "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1",
    },
    "mpi": {
        "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    },
    "slurm": {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"},
}  # fmt: skip


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_process_finds_its_place_by_the_conventions_of_its_launcher(launcher: str) -> None:
    world = distributed.world(LAUNCHERS[launcher])
    assert (world.rank, world.size, world.local_rank, world.launcher) == (5, 8, 1, launcher)
    assert world.address == ("a:1" if launcher == "torchrun" else "")


def test_a_process_that_nobody_launched_is_alone() -> None:
    assert distributed.world({}) == distributed.World()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "8", "WORLD_SIZE": "8"}, "contradict each other"),
        ({"RANK": "x", "WORLD_SIZE": "8"}, "RANK is not a number"),
    ],
)
def test_launch_variables_that_make_no_sense_are_refused(
    variables: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        distributed.world(variables)
