"""What only rare lanes need stands behind a branch, and gives the bits that it gave before."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.codegen.decompose.test_scale_power import kernel, run

from tilework.codegen.linearize.rare import branch_rarely
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import bool_, float32
from tilework.ir.build import const, const_index
from tilework.ir.interpret import run_linear
from tilework.ir.node import Node, OpDef
from tilework.ir.ops import math, memory
from tilework.ir.ops.control import FOLD_LANES, IF
from tilework.ir.ops.program import LINEAR
from tilework.ir.stage import Stage
from tilework.ir.verify import verify
from tilework.testing.kernels import target

WAVES = [math.SIN, math.COS, math.TAN]


def angles(count: int) -> np.ndarray:
    """Small angles, and in some vectors one that is large, infinite or no number."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-40, 40, count).astype(np.float32)
    large = np.array([1e30, -3e13, 2.0**44, np.inf, -np.inf, np.nan, -0.0, 3e38], np.float32)
    x[5::37] = np.resize(large, x[5::37].size)
    return x


@pytest.mark.parametrize("op", WAVES, ids=lambda op: op.name)
def test_waves_branch_where_an_angle_is_large(op: OpDef) -> None:
    linear = lower_kernel(kernel(op, float32, 4096), target("host")).linear
    assert any(node.op is IF for node in linear.src)
    assert not any(node.op is math.WHERE_RARE for node in linear.src)


@pytest.mark.parametrize("op", WAVES, ids=lambda op: op.name)
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "host"])
def test_a_large_angle_beside_small_ones_has_the_bits_that_it_has_alone(
    op: OpDef, level: str
) -> None:
    x = angles(4096)
    found = np.frombuffer(run(op, float32, x, level), np.float32)
    for place in range(5, 400, 37):
        alone = np.full(64, x[place])
        wanted = np.frombuffer(run(op, float32, alone, level), np.float32)
        assert found[place : place + 1].tobytes() == wanted[:1].tobytes()
    is_small = np.abs(x) < 41
    name = {"sin": np.sin, "cos": np.cos, "tan": np.tan}[op.name]
    exact = name(x[is_small].astype(np.float64))
    error = np.abs(found[is_small] - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert error.max() < 1


@pytest.mark.parametrize("op", WAVES, ids=lambda op: op.name)
def test_the_interpreter_takes_the_branch_as_the_machine_does(op: OpDef) -> None:
    x = angles(96)
    lowered = lower_kernel(kernel(op, float32, x.size), target("host"))
    buffers = [bytearray(x.nbytes), bytearray(x.tobytes())]
    run_linear(lowered.linear, buffers, {})
    found = np.frombuffer(bytes(buffers[0]), np.float32)
    machine = np.frombuffer(run(op, float32, x, "host"), np.float32)
    np.testing.assert_array_equal(found, machine)


def choice(steps: int) -> tuple[Node, ...]:
    """Statements that end in a choice of what takes so many steps, if x is negative."""
    x = memory.LOAD(memory.INDEX(memory.PARAM(attrs=memory.ParamAttrs(1, (1,), float32)), ZERO))
    is_rare = math.LT(x, const(0, float32))
    rare = [math.SQRT(math.ABS(x))]
    for _ in range(steps - 2):
        rare.append(math.SQRT(rare[-1]))
    common = math.NEG(x)
    found = math.WHERE_RARE(is_rare, rare[-1], common)
    place = memory.INDEX(memory.PARAM(attrs=memory.ParamAttrs(0, (1,), float32)), ZERO)
    store = memory.STORE(place, found)
    return (x.src[0], x, is_rare, rare[0].src[0], *rare, common, found, place, store)


ZERO = const_index(0)


@pytest.mark.parametrize("steps", [3, 20])
@pytest.mark.parametrize("value", [-7.0, 3.0])
def test_a_scalar_is_chosen_by_a_branch_or_without(steps: int, value: float) -> None:
    linear = branch_rarely(LINEAR(*choice(steps)))
    verify(linear, Stage.LINEAR)
    kinds = [node.op for node in linear.src]
    assert (IF in kinds) == (steps == 20)
    assert math.WHERE_RARE not in kinds
    assert FOLD_LANES not in kinds
    buffers = [bytearray(4), bytearray(np.float32(value).tobytes())]
    run_linear(linear, buffers, {})
    wanted = np.float32(abs(value))
    for _ in range(steps - 1):
        wanted = np.sqrt(wanted)
    if value > 0:
        wanted = np.float32(-value)
    assert np.frombuffer(bytes(buffers[0]), np.float32)[0] == wanted


def test_what_others_need_too_stays_where_it_is() -> None:
    statements = list(choice(20))
    other = memory.PARAM(attrs=memory.ParamAttrs(2, (1,), float32))
    place = memory.INDEX(other, ZERO)
    shared = statements[8]
    linear = branch_rarely(LINEAR(*statements, place, memory.STORE(place, shared)))
    verify(linear, Stage.LINEAR)
    opened = next(at for at, node in enumerate(linear.src) if node.op is IF)
    assert linear.src.index(shared) < opened
    assert bool_ is linear.src[opened].src[0].dtype
