"""All-reduce: each algorithm on the graph that it makes, judged by the interpreter."""

from itertools import product
from math import prod
from random import Random

import pytest

from tilework import dtypes
from tilework.base.errors import UserError
from tilework.dtypes import DType
from tilework.engine import world
from tilework.ir.interpret import Value
from tilework.ir.interpret.folds import fold_function
from tilework.ir.interpret.tensors import evaluate_all
from tilework.ir.node import Node, toposort
from tilework.ir.ops.memory import PARAM, ParamAttrs
from tilework.ir.ops.tensor import COPY, DeviceAttrs, Fold
from tilework.schedule.schedule import is_of_the_world
from tilework.schedule.shard.allreduce import (
    ALGORITHMS,
    THRESHOLDS,
    Algorithm,
    choose,
    fold_all,
    sent_bytes,
)
from tilework.testing.strategies import random_value

FOLDS = tuple(Fold)
DTYPES = (
    dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32,
    dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float16, dtypes.bfloat16, dtypes.float32,
    dtypes.float64,
)  # fmt: skip


def send(value: Node, source: int, target: int) -> Node:
    return value if source == target else COPY(value, attrs=DeviceAttrs(f"CPU:{target}"))


def params(count: int, size: int, dtype: DType) -> list[Node]:
    return [PARAM(attrs=ParamAttrs(n, (size,), dtype, f"CPU:{n}")) for n in range(count)]


def copied_bytes(roots: tuple[Node, ...]) -> dict[str, int]:
    """Bytes that arrive at each device."""
    found: dict[str, int] = {}
    for node in toposort(*roots):
        if node.op is COPY:
            size = prod(node.shape) * node.dtype.itemsize
            found[node.attrs.device] = found.get(node.attrs.device, 0) + size
    return found


def check(algorithm: Algorithm, fold: Fold, count: int, size: int, dtype: DType) -> None:
    """All replicas are the same bits, and those of a fold in an order that the page states."""
    random = Random(count * 1000 + size)
    nodes = params(count, size, dtype)
    values = [random_value(random, dtype, (size,)) for _ in nodes]
    roots = fold_all(algorithm, fold, nodes, send)
    found = evaluate_all(roots, dict(zip(nodes, values, strict=True)))
    combine = fold_function(fold, dtype)
    wanted = []
    for place in range(size):
        row = [value.elements[place] for value in values]
        if algorithm == "ring":
            first = _chunk_of(place, size, count)
            row = row[first:] + row[:first]
        total = row[0]
        for element in row[1:]:
            total = combine(total, element)
        wanted.append(total)
    expected = Value((size,), dtype, wanted).bits()
    assert [value.bits() for value in found] == [expected] * count


def _chunk_of(place: int, size: int, count: int) -> int:
    least, extra = divmod(size, count)
    border = (least + 1) * extra
    return place // (least + 1) if place < border else extra + (place - border) // max(least, 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", range(2, 9))
def test_MDV_07_all_replicas_have_the_fold_of_all_parts(algorithm: Algorithm, count: int) -> None:
    for fold, size in product(FOLDS, (0, 1, count - 1, count, count + 1, 13, 31)):
        check(algorithm, fold, count, size, dtypes.int32)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_MDV_07_every_dtype_is_folded_in_the_stated_order(
    algorithm: Algorithm, dtype: DType
) -> None:
    for fold, count in product(FOLDS, (2, 3, 5)):
        check(algorithm, fold, count, 7, dtype)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_MDV_09_a_ring_brings_each_device_two_shares_less_than_twice_its_bytes(count: int) -> None:
    size = 12 * count
    roots = fold_all("ring", Fold.ADD, params(count, size, dtypes.float32), send)
    arrived = copied_bytes(roots)
    assert set(arrived.values()) == {2 * (count - 1) * size * 4 // count}
    assert sum(arrived.values()) == sent_bytes("ring", count, size * 4)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("algorithm", ["naive", "all2all"])
def test_MDV_09_the_others_send_what_their_formulas_say(algorithm: Algorithm, count: int) -> None:
    size = 12 * count
    roots = fold_all(algorithm, Fold.MAX, params(count, size, dtypes.float32), send)
    assert sum(copied_bytes(roots).values()) == sent_bytes(algorithm, count, size * 4)


def test_MDV_08_the_choice_depends_on_its_arguments_alone() -> None:
    rows = [(1, 2), (1, 8), (1 << 18, 8), (1 << 24, 8)]
    once = [choose(size, devices, "links") for size, devices in rows]
    assert once == [choose(size, devices, "links") for size, devices in rows]
    assert [choice.algorithm for choice in once] == ["naive", "naive", "all2all", "ring"]


@pytest.mark.parametrize("topology", sorted(THRESHOLDS))
def test_MDV_08_thresholds_count_from_their_very_byte(topology: str) -> None:
    for least, algorithm in THRESHOLDS[topology][1:]:
        assert choose(least, 4, topology).algorithm == algorithm
        assert choose(least - 1, 4, topology).algorithm != algorithm


def test_MDV_08_a_choice_explains_itself() -> None:
    text = choose(1 << 20, 4).explain()
    assert text.startswith("all2all over 4 devices (host), 1048576 B each: from 262144 B on")
    assert "naive 12582912 B" in text


def test_an_algorithm_that_is_asked_for_is_taken() -> None:
    assert choose(1, 2, wanted="ring").algorithm == "ring"


def test_deterministic_never_chooses_an_order_that_depends_on_the_chunk() -> None:
    assert choose(1 << 30, 8, "links", deterministic=True).algorithm == "all2all"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="unknown topology"):
        choose(1, 2, "tokens")
    with pytest.raises(UserError, match="unknown algorithm"):
        choose(1, 2, wanted="tree")


@pytest.mark.parametrize("name", ["WORLD+CUDA:1", "WORLD+CPU", "USB+CUDA:1", "CUDA:1", "WORLD"])
def test_devices_of_processes_are_those_that_the_engine_takes_for_such(name: str) -> None:
    assert is_of_the_world(name) == world.is_of_the_world(name)
