"""Elements that lie where loaded numbers say: by one access where that is best, always the same."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import Tensor
from tilework.base.errors import BoundsError
from tilework.codegen.passes.accesses import Gathers
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import DType, float32, float64, int8, int32, int64, uint8
from tilework.dtypes import index as index_dtype
from tilework.ir.build import cast, const_index
from tilework.ir.interpret import run_linear
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.control import ALLOCATE, AllocateAttrs
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.types import Memory
from tilework.testing.kernels import Case, can_run, compile_to, execute, target

KINDS = {float32: np.float32, float64: np.float64, int8: np.int8, int32: np.int32, uint8: np.uint8}
COUNT = 100


def taken(dtype: DType, size: int) -> Node:
    """out[i] = table[places[i]], and 0 where a place lies outside."""
    i = RANGE(const_index(COUNT), attrs=RangeAttrs(0))
    out = PARAM(attrs=ParamAttrs(0, (COUNT,), dtype))
    table = PARAM(attrs=ParamAttrs(1, (size,), dtype))
    places = PARAM(attrs=ParamAttrs(2, (COUNT,), int64))
    place = cast(LOAD(INDEX(places, i)), index_dtype)
    inside = math.AND(math.LE(const_index(0), place), math.LT(place, const_index(size)))
    return SINK(STORE(INDEX(out, i), LOAD(INDEX(table, place), inside)))


def put(dtype: DType, size: int) -> Node:
    """table[places[i]] = x[i], where a place lies inside."""
    i = RANGE(const_index(COUNT), attrs=RangeAttrs(0))
    table = PARAM(attrs=ParamAttrs(0, (size,), dtype))
    x = PARAM(attrs=ParamAttrs(1, (COUNT,), dtype))
    places = PARAM(attrs=ParamAttrs(2, (COUNT,), int64))
    place = cast(LOAD(INDEX(places, i)), index_dtype)
    inside = math.AND(math.LE(const_index(0), place), math.LT(place, const_index(size)))
    return SINK(STORE(INDEX(table, place), LOAD(INDEX(x, i)), inside))


def has_vectors_of_places(linear: Node) -> bool:
    return any(node.op is INDEX and node.type.shape for node in linear.src)


def run(kind: str, level: str, sink: Node, buffers: list[bytes]) -> bytes | None:
    lowered = lower_kernel(sink, target(level))
    if kind == "linear":
        arrays = [bytearray(buffer) for buffer in buffers]
        run_linear(lowered.linear, arrays, {})
        return bytes(arrays[0])
    code = compile_to(kind, level, lowered)
    return execute(lowered, code, Case(sink, buffers)).buffers[0] if can_run(level) else None


@pytest.mark.parametrize("kind", ["llvm", "clang", "linear"])
@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_elements_are_taken_from_anywhere(kind: str, dtype: DType, level: str) -> None:
    rng = np.random.default_rng(3)
    table = rng.integers(0, 100, 50).astype(KINDS[dtype])
    places = rng.integers(-10, 60, COUNT)
    expected = np.where((places >= 0) & (places < 50), table[places.clip(0, 49)], 0)
    buffers = [bytes(COUNT * table.itemsize), table.tobytes(), places.tobytes()]
    found = run(kind, level, taken(dtype, 50), buffers)
    assert found in (None, expected.astype(KINDS[dtype]).tobytes())


@pytest.mark.parametrize("kind", ["llvm", "clang", "linear"])
@pytest.mark.parametrize("dtype", [float32, float64, int32], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_of_elements_put_to_one_place_the_last_one_stays(
    kind: str, dtype: DType, level: str
) -> None:
    rng = np.random.default_rng(4)
    x = rng.permutation(COUNT).astype(KINDS[dtype])
    places = rng.integers(-3, 9, COUNT)
    expected = np.zeros(6, KINDS[dtype])
    for place, value in zip(places, x, strict=True):
        if 0 <= place < 6:
            expected[place] = value
    buffers = [bytes(expected.nbytes), x.tobytes(), places.tobytes()]
    assert run(kind, level, put(dtype, 6), buffers) in (None, expected.tobytes())


@pytest.mark.parametrize(
    ("level", "dtype", "size", "is_one"),
    [
        ("x86-64-v4", float32, 1000, True),
        ("x86-64-v4", float64, 1000, True),
        ("x86-64-v4", int8, 1000, False),
        ("x86-64-v4", float32, 1 << 24, False),
        ("x86-64-v3", float32, 1000, False),
        ("x86-64", float32, 1000, False),
    ],
)
def test_one_access_serves_what_the_cache_holds(
    level: str, dtype: DType, size: int, is_one: bool
) -> None:
    linear = lower_kernel(taken(dtype, size), target(level)).linear
    assert has_vectors_of_places(linear) == is_one


@pytest.mark.parametrize("place", [0, 17, 99])
def test_a_place_outside_is_reported_whichever_lane_it_has(place: int) -> None:
    x = Tensor(np.arange(64, dtype=np.float32)).realize()
    places = np.arange(100) % 64
    assert Tensor(places).realize().shape == x[Tensor(places).realize()].shape
    places[place] = 64
    with pytest.raises(BoundsError):
        x[Tensor(places).realize()].numpy()


@pytest.mark.parametrize(("level", "is_one"), [("x86-64-v4", True), ("x86-64-v3", False)])
def test_places_in_the_memory_of_a_task_are_served_by_an_access_that_there_is(
    level: str, is_one: bool
) -> None:
    places = PARAM(attrs=ParamAttrs(0, (COUNT,), int64))
    place = cast(LOAD(INDEX(places, const_index(0))), index_dtype)
    own = ALLOCATE(attrs=AllocateAttrs(float32, 64, Memory.TILE, 0))
    assert Gathers(target(level)).serve(INDEX(own, place), {place: 1}, [], 16) == is_one
    assert not Gathers(None).serve(INDEX(own, place), {place: 1}, [], 16)


def stepped(step: int) -> Node:
    """out[i] = x[step * i] + x[step * i + 1]"""
    i = RANGE(const_index(COUNT), attrs=RangeAttrs(0))
    out = PARAM(attrs=ParamAttrs(0, (COUNT,), float32))
    x = PARAM(attrs=ParamAttrs(1, (COUNT * step,), float32))
    at = math.MUL(i, const_index(step))
    pair = [LOAD(INDEX(x, place)) for place in (at, math.ADD(at, const_index(1)))]
    return SINK(STORE(INDEX(out, i), math.ADD(*pair)))


@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_short_steps_are_bridged_by_vectors(step: int) -> None:
    x = np.random.default_rng(5).standard_normal(COUNT * step).astype(np.float32)
    lowered = lower_kernel(stepped(step), target("host"))
    is_vector = any(node.op is LOAD and node.type.shape for node in lowered.linear.src)
    assert is_vector == (step <= 4)
    expected = x[::step] + x[1::step]
    buffers = [bytes(expected.nbytes), x.tobytes()]
    assert run("llvm", "host", stepped(step), buffers) == expected.tobytes()
