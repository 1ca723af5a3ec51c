"""Schedules of random graphs compute what the graphs mean."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.schedule.schedule_graphs import Graphs, check
from tests.property.schedule.symbolic_graphs import SymbolicGraphs, check_sizes

from tilework.dtypes import index
from tilework.ir.node import Node
from tilework.ir.ops import math, memory
from tilework.schedule.check import check_schedule
from tilework.schedule.pipeline import build_schedule
from tilework.schedule.schedule import Limits

LIMITS = [
    Limits(),
    Limits(launch_work=0),
    Limits(nodes=3),
    Limits(buffers=4, launch_work=0),
    Limits(small_elements=0),
]


@given(st.integers(0, 1 << 32), st.integers(1, 12), st.sampled_from(LIMITS))
def test_SCH_05_random_graphs_of_all_ops_give_what_they_mean(
    seed: int, depth: int, limits: Limits
) -> None:
    graphs = Graphs(random.Random(seed))
    outputs = graphs.build(depth)
    made = check(outputs, graphs.bindings, limits)
    check_schedule(made)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_SCH_05_a_million_random_graphs_give_what_they_mean(block: int) -> None:
    for seed in range(block * 100_000, block * 100_000 + 100_000):
        rng = random.Random(seed)
        graphs = Graphs(rng)
        made = check(graphs.build(1 + seed % 12), graphs.bindings, LIMITS[seed % len(LIMITS)])
        check_schedule(made)


@given(st.integers(0, 1 << 32), st.integers(1, 12), st.sampled_from(LIMITS))
def test_SCH_05_random_graphs_of_sizes_that_are_variables_give_what_they_mean(
    seed: int, depth: int, limits: Limits
) -> None:
    graphs = SymbolicGraphs(random.Random(seed))
    outputs = graphs.build(depth)
    made = build_schedule(memory.SINK(*outputs), limits)
    for size in (1, 2, 6):
        check_sizes(made, outputs, list(graphs.bindings), size)


@given(st.integers(0, 1 << 32))
def test_SCH_08_random_writes_keep_every_version(seed: int) -> None:
    """All memory starts poisoned, so that a byte read before it is written shows."""
    rng = random.Random(seed)
    graphs = Graphs(rng)
    graphs.nodes = [graphs.leaf() for _ in range(3)]
    for _ in range(10):
        made = rng.choice((graphs.write, graphs.write, graphs.move, graphs.elementwise))()
        if made is not None and len(made.type.shape) <= 4:
            graphs.nodes.append(made)
    latest = [node for node in graphs.storages if node.op is memory.AFTER]
    check([*graphs.nodes[-3:], *latest], graphs.bindings)


@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_SCH_01_scheduling_is_a_function_of_the_graph(seed: int, depth: int) -> None:
    function = memory.SINK(*Graphs(random.Random(seed)).build(depth))
    assert build_schedule(function) == build_schedule(function)


PROGRAM = """
import random, sys
sys.path[:0] = sys.argv[1:]
from schedule_graphs import Graphs
from schedule_builders import resnet, adam_step, attention, param
from tilework.base import hashing
from tilework.ir.ops.memory import SINK
from tilework.schedule.cache import to_bytes
from tilework.schedule.pipeline import build_schedule
functions = [Graphs(random.Random(seed)).build(10) for seed in range(40)]
functions += [[resnet(4)], adam_step(0, (8, 8)) + adam_step(4, (5,))]
functions += [[attention(*[param(n, (2, 2, 8, 4)) for n in range(3)])]]
raw = b"".join(to_bytes(build_schedule(SINK(*outputs))) for outputs in functions)
print(hashing.digest(raw))
"""


def digests(seeds: range) -> set[str]:
    here = Path(__file__).parent
    paths = [str(here), str(here.parents[1] / "unit" / "schedule")]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *paths],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in seeds
    ]
    return {process.communicate(timeout=120)[0] for process in running}


def test_SCH_12_MPL_09_schedules_do_not_depend_on_the_hash_seed() -> None:
    found = digests(range(1, 4))
    assert len(found) == 1
    assert "" not in found


@pytest.mark.slow
def test_SCH_12_schedules_are_equal_over_32_hash_seeds() -> None:
    found = set().union(*[digests(range(start, start + 4)) for start in range(0, 32, 4)])
    assert len(found) == 1


def long_chain(count: int) -> Node:
    x = memory.PARAM(attrs=memory.ParamAttrs(0, (16,), index, "CPU"))
    y = x
    for number in range(count):
        y = math.ADD(y, x) if number % 3 else math.MUL(y, x)
    return memory.SINK(y)


def test_SCH_20_a_chain_of_a_hundred_thousand_nodes_is_scheduled() -> None:
    made = build_schedule(long_chain(100_000))
    assert 100 <= len(made.linear.src) <= 400
    assert len({call.src[0] for call in made.linear.src}) <= 8


@pytest.mark.slow
def test_SCH_20_a_chain_of_a_million_nodes_is_scheduled() -> None:
    made = build_schedule(long_chain(1_000_000))
    assert len({call.src[0] for call in made.linear.src}) <= 8
