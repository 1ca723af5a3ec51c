"""Movement, reductions, scans, sorts, gathers, writes through views, symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tilework.base.errors import BoundsError
from tilework.dtypes import DType, bool_, float16, float32, float64, index, int8, int32, uint64
from tilework.ir.interpret import Value
from tilework.ir.node import Node
from tilework.ir.ops import math, tensor
from tilework.ir.ops.index import VARIABLE, VariableAttrs
from tilework.ir.ops.memory import AFTER, STORE
from tilework.ir.ops.tensor import Fold
from tilework.testing.conformance.harness import Bench, Case, compare, expect_error
from tilework.testing.strategies import random_view

_FOLDED: tuple[DType, ...] = (bool_, int8, int32, uint64, float16, float32, float64)


def cases() -> Iterator[Case]:
    """The cases of this file."""
    yield Case("views/chains", _chains)
    yield Case("views/empty", _empty)
    for fold in Fold:
        name = fold.value
        yield Case(f"reduce/{name}", partial(_reduce, fold=fold))
        yield Case(f"scan/{name}", partial(_scan, fold=fold))
    yield Case("sort/stable", _sort)
    yield Case("gather/rows", _gather)
    yield Case("gather/out-of-range", _gather_outside)
    yield Case("scatter/last-wins", _scatter)
    yield Case("write/through-a-view", _write)
    yield Case("variables/sizes", _variables)


def _chains(bench: Bench) -> None:
    for dtype in (float32, int8, bool_, float64):
        for _ in range(12):
            node = bench.leaf(dtype, (2, 3, 4))
            for _ in range(bench.random.randrange(1, 5)):
                node = random_view(bench.random, node)
            bench.check([tensor.CONTIGUOUS(node)])


def _empty(bench: Bench) -> None:
    x = bench.leaf(float32, (0, 3))
    bench.check([math.NEG(x), tensor.REDUCE(x, attrs=tensor.ReduceAttrs(Fold.ADD, (0,)))])


def _small(bench: Bench, dtype: DType, shape: tuple[int, ...]) -> Node:
    """Small whole numbers, whose sums and products are exact in any order."""
    count = 1
    for size in shape:
        count *= size
    low = 0 if dtype.is_bool or dtype.is_unsigned else -2
    numbers = [bench.random.randint(low, 2) for _ in range(count)]
    if dtype.is_bool:
        numbers = [int(number > 0) for number in numbers]
    return bench.put(Value.from_list(numbers, dtype)) if len(shape) == 1 else tensor.RESHAPE(
        bench.put(Value.from_list(numbers, dtype)), attrs=tensor.ShapeAttrs(shape)
    )  # fmt: skip


def _reduce(bench: Bench, fold: Fold) -> None:
    for dtype in _FOLDED:
        if not bench.stores(dtype):
            continue
        is_order_free = fold in (Fold.MAX, Fold.MIN)
        x = bench.leaf(dtype, (5, 6, 7)) if is_order_free else _small(bench, dtype, (5, 3, 4))
        for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            bench.check([tensor.REDUCE(x, attrs=tensor.ReduceAttrs(fold, axes))])


def _scan(bench: Bench, fold: Fold) -> None:
    for dtype in (int32, float32, uint64):
        x = _small(bench, dtype, (3, 9))
        for axis, exclusive, reverse in ((1, False, False), (0, True, False), (1, True, True)):
            attrs = tensor.ScanAttrs(fold, axis, exclusive, reverse)
            bench.check([tensor.SCAN(x, attrs=attrs)])


def _sort(bench: Bench) -> None:
    for dtype in (float32, int8, bool_, float64):
        x = bench.leaf(dtype, (4, 33))
        for axis, descending in ((1, False), (0, True)):
            bench.check([tensor.SORT(x, attrs=tensor.SortAttrs(axis, descending))])


def _gather(bench: Bench) -> None:
    x = bench.leaf(float32, (6, 5))
    rows = bench.numbers(index, 5, 0, 3, 3)
    bench.check([tensor.GATHER(x, rows, attrs=tensor.GatherAttrs(0))])
    bench.check([tensor.GATHER(x, bench.numbers(int32, 4, 1), attrs=tensor.GatherAttrs(1))])


def _gather_outside(bench: Bench) -> None:
    x = bench.leaf(float32, (6,))
    for bad in (6, -1, 1 << 40):
        node = tensor.GATHER(x, bench.numbers(index, 0, bad), attrs=tensor.GatherAttrs(0))
        expect_error(BoundsError, partial(bench.compute, [node]), f"index {bad} of 6")
    bench.check([tensor.GATHER(x, bench.numbers(index, 5), attrs=tensor.GatherAttrs(0))])


def _scatter(bench: Bench) -> None:
    x = bench.leaf(float32, (5,))
    places = bench.numbers(index, 4, 1, 4, 0)
    updates = bench.numbers(float32, 1.0, 2.0, 3.0, 4.0)
    bench.check([tensor.SCATTER(x, updates, places, attrs=tensor.GatherAttrs(0))])
    attrs = tensor.GatherAttrs(0, Fold.ADD)
    whole = bench.numbers(float32, 1, 2, 3, 4, 5)
    bench.check([tensor.SCATTER(whole, updates, places, attrs=attrs)])


def _write(bench: Bench) -> None:
    x = bench.leaf(float32, (4, 6))
    view = tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(((1, 4, 2), (0, 6, 3))))
    value = bench.leaf(float32, (2, 2))
    node = AFTER(x, STORE(view, value))
    (want,) = [_evaluated(bench, node)]
    buffer = bench.buffers[x]
    (got,) = bench.compute([node])
    compare("write", got, want)
    after = bench.download(buffer, (4, 6), float32)
    compare("the buffer itself after the write", after, want)


def _evaluated(bench: Bench, node: Node) -> Value:
    from tilework.ir.interpret.tensors import evaluate

    return evaluate(node, bench.values)


def _variables(bench: Bench) -> None:
    n = VARIABLE(attrs=VariableAttrs("n", 1, 40))
    x = bench.leaf(float32, (40,))
    part = tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(((0, n, 1),)))
    node = tensor.REDUCE(part, attrs=tensor.ReduceAttrs(Fold.MAX, (0,)))
    for count in (1, 7, 40):
        (got,) = bench.compute([node], {"n": count})
        values = bench.values[x]
        cut = Bench(bench.device)
        want = cut.put(Value((count,), float32, values.elements[:count]))
        (expected,) = cut.compute([tensor.REDUCE(want, attrs=tensor.ReduceAttrs(Fold.MAX, (0,)))])
        compare(f"n = {count}", got, expected)
    for count in (0, 41, -5):
        expect_error(BoundsError, partial(bench.compute, [node], {"n": count}), f"n = {count}")
