"""Tilings of contractions are compared once for each kernel."""

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.base import settings
from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.plan import tilings
from tilework.codegen.plan.check import check
from tilework.dtypes import float32
from tilework.engine.compile import clear_memory
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cpu import x86_level_spec
from tilework.target.spec import TargetSpec


def test_a_kernel_with_packed_weights_is_tiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Node] = []
    compare = tilings.tilings

    def note(kernel: Kernel, target: TargetSpec) -> object:
        asked.append(kernel.sink)
        return compare(kernel, target)

    monkeypatch.setattr(tilings, "tilings", note)
    monkeypatch.setattr(tilings, "_known", {})
    weights = Tensor(np.ones((192, 224), np.float32)).realize()
    given = Tensor(np.ones((96, 192), np.float32)).realize()
    clear_memory()
    with settings.override(cache_dir=None):
        found = jit(lambda x: (x @ weights).realize())(given).numpy()
    assert found.tolist() == np.full((96, 224), 192.0).tolist()
    # As it is, and with packed weights, which is what is lowered then.
    assert len(asked) >= 2
    assert len(asked) == len(set(asked))


def test_cores_share_rows_that_are_read_where_they_lie() -> None:
    """Sharing columns would have both cores read what the other has just written."""
    rows, depth, panels, width = 784, 256, 4, 64
    i, panel, j, p = (
        RANGE(const_index(n), attrs=RangeAttrs(at))
        for at, n in enumerate((rows, panels, width, depth))
    )

    def at(slot: int, count: int, *terms: tuple[Node, int]) -> Node:
        place = const_index(0)
        for node, factor in terms:
            place = simplify.add(place, simplify.scale(node, factor))
        return INDEX(PARAM(attrs=ParamAttrs(slot, (count,), float32)), place)

    columns = panels * width
    a = LOAD(at(1, rows * depth, (i, depth), (p, 1)))
    b = LOAD(at(2, columns * depth, (panel, width * depth), (p, width), (j, 1)))
    total = REDUCE(math.MUL(a, b), p, attrs=ReduceAttrs(Fold.ADD))
    stored = at(0, rows * columns, (i, columns), (panel, width), (j, 1))
    kernel = analyse(SINK(STORE(stored, total)))
    machine = x86_level_spec("x86-64-v4", cores=2)
    plan = tilings.choose_contraction_plan(kernel, machine)
    assert plan is not None
    check(plan, kernel, machine)
    assert plan.nest[0] == (0, 0)
    assert plan.tasks == 1
    assert plan.staged == ()
