"""Long scans of few rows are cut into blocks; the values are those of the whole scan."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import dtypes
from tilework.dtypes import float32, int32
from tilework.ir.interpret import Value, evaluate
from tilework.ir.node import Node, toposort
from tilework.ir.ops.memory import PARAM, SINK, ParamAttrs
from tilework.ir.ops.tensor import SCAN, Fold, ScanAttrs
from tilework.schedule.passes import split_scan
from tilework.schedule.passes.split_scan import split_scans


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_scan, "BLOCK", 4)
    monkeypatch.setattr(split_scan, "MANY_ELEMENTS", 9)


def scan(shape: tuple[int, ...], attrs: ScanAttrs, dtype: dtypes.DType = int32) -> Node:
    return SCAN(PARAM(attrs=ParamAttrs(0, shape, dtype)), attrs=attrs)


def test_a_short_scan_is_left_alone() -> None:
    function = SINK(scan((1000,), ScanAttrs(Fold.ADD, 0)))
    assert split_scans(function) is function


def test_a_scan_of_many_rows_is_left_alone() -> None:
    function = SINK(scan((split_scan.FEW_ROWS, 1 << 16), ScanAttrs(Fold.ADD, 1), float32))
    assert split_scans(function) is function


def test_a_long_scan_becomes_scans_of_blocks() -> None:
    function = split_scans(SINK(scan((1 << 20,), ScanAttrs(Fold.ADD, 0), float32)))
    shapes = sorted(node.shape for node in toposort(function) if node.op is SCAN)
    blocks = (1 << 20) // split_scan.BLOCK
    assert shapes == [(blocks, 1), (blocks, split_scan.BLOCK)]


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("fold", list(Fold))
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((9,), 0), ((40,), 0), ((2, 13), 1), ((18, 3), 0)])
def test_blocks_give_the_values_of_the_whole_scan(
    shape: tuple[int, ...], axis: int, fold: Fold, exclusive: bool, reverse: bool
) -> None:
    node = scan(shape, ScanAttrs(fold, axis, exclusive, reverse))
    split = split_scans(SINK(node)).src[0]
    assert split is not node
    rng = np.random.default_rng(0)
    elements = [int(x) for x in rng.integers(-9, 10, int(np.prod(shape)))]
    bound = {node.src[0]: Value(shape, int32, elements)}
    assert evaluate(split, bound).elements == evaluate(node, bound).elements


@pytest.mark.usefixtures("_small_blocks")
def test_a_running_sum_of_numbers_that_are_not_negative_never_falls() -> None:
    node = scan((200,), ScanAttrs(Fold.ADD, 0), float32)
    split = split_scans(SINK(node)).src[0]
    rng = np.random.default_rng(1)
    elements = [float(np.float32(x)) for x in rng.random(200) ** 8]
    sums = evaluate(split, {node.src[0]: Value((200,), float32, elements)}).elements
    assert sums == sorted(sums)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(
    ("device", "dtype", "is_whole"),
    [("CUDA:1", int32, True), ("CUDA", dtypes.int16, False), ("CPU", int32, False)],
)
def test_rows_stay_whole_where_blocks_of_threads_share_them(
    device: str, dtype: dtypes.DType, is_whole: bool
) -> None:
    param = PARAM(attrs=ParamAttrs(0, (40,), dtype, device))
    function = SINK(SCAN(param, attrs=ScanAttrs(Fold.ADD, 0)))
    assert (split_scans(function, ("CUDA",)) is function) is is_whole
