"""Kernels of attention and of its gradients, each with everything in one, at the KERNEL stage."""

from __future__ import annotations

import numpy as np

from tilework.dtypes import DType, bfloat16, bool_, float32
from tilework.ir.build import cast, const, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs

WIDTH = 64
SCALE = 0.125
ADD = ReduceAttrs(Fold.ADD, ())


def range_(size: int, number: int) -> Node:
    """A range of the kernel."""
    return RANGE(const_index(size), attrs=RangeAttrs(number))


def element(slot: int, lines: int, line: Node, column: Node, dtype: DType = bfloat16) -> Node:
    """One number of an array of so many rows, in float32."""
    buffer = PARAM(attrs=ParamAttrs(slot, (lines * WIDTH,), dtype))
    offset = math.ADD(math.MUL(line, const_index(WIDTH)), column)
    return cast(LOAD(INDEX(buffer, offset)), float32)


def of_row(slot: int, rows: int, row: Node) -> Node:
    """A number of each row."""
    return LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (rows,), float32)), row))


def by_keys(rows: int, keys: int, *, narrow: bool = True) -> Node:
    """The gradients by keys and values of causal attention, of which folds of rows are known.

    Slots: both results; queries, keys, values and the results' gradient; maximum, total, and mean.
    """
    key, column, row = range_(keys, 0), range_(WIDTH, 1), range_(rows, 2)
    first, second = range_(WIDTH, 3), range_(WIDTH, 4)
    products = math.MUL(element(2, rows, row, first), element(3, keys, key, first))
    score = math.MUL(REDUCE(products, first, attrs=ADD), const(SCALE, float32))
    seen = math.LT(key, math.ADD(row, const_index(1)))
    score = math.WHERE(seen, score, const(float("-inf"), float32))
    raised = math.EXP(math.SUB(score, of_row(6, rows, row)))
    weight = math.FDIV(raised, of_row(7, rows, row))
    arriving = math.MUL(element(5, rows, row, second), element(4, keys, key, second))
    by_weight = REDUCE(arriving, second, attrs=ADD)
    by_score = math.MUL(math.SUB(by_weight, of_row(8, rows, row)), weight)
    by_score = math.WHERE(seen, by_score, const(0.0, float32))
    by_score = math.MUL(by_score, const(SCALE, float32))
    stores = []
    for slot, (factor, other) in enumerate(((by_score, 2), (weight, 5))):
        rounded = cast(cast(factor, bfloat16), float32) if narrow else factor
        body = math.MUL(rounded, element(other, rows, row, column))
        buffer = PARAM(attrs=ParamAttrs(slot, (keys * WIDTH,), bfloat16))
        place = INDEX(buffer, math.ADD(math.MUL(key, const_index(WIDTH)), column))
        stores.append(STORE(place, cast(REDUCE(body, row, attrs=ADD), bfloat16)))
    return SINK(*stores)


def attention(
    rows: int,
    keys: int,
    *,
    causal: bool,
    weights: DType | None = None,
    dtype: DType = bfloat16,
    keeps: bool = False,
) -> Node:
    """softmax(scale q k^T) v with everything in one kernel, at the KERNEL stage.

    Slots: the result; queries, keys, values; where it `keeps` them, maximum and total of each row.
    """

    def load(slot: int, lines: int, line: Node, column: Node) -> Node:
        return element(slot, lines, line, column, dtype)

    row, column = range_(rows, 0), range_(WIDTH, 1)

    def score(key: Node, number: int) -> Node:
        inner = range_(WIDTH, number)
        products = math.MUL(load(1, rows, row, inner), load(2, keys, key, inner))
        total = REDUCE(products, inner, attrs=ReduceAttrs(Fold.ADD, ()))
        scaled = math.MUL(total, const(SCALE, float32))
        if not causal:
            return scaled
        seen = math.LT(key, math.ADD(row, const_index(1)))
        return math.WHERE(seen, scaled, const(float("-inf"), float32))

    first, second, third = (range_(keys, number) for number in (10, 11, 12))
    most = REDUCE(score(first, 20), first, attrs=ReduceAttrs(Fold.MAX, ()))
    terms = [math.EXP(math.SUB(score(k, n), most)) for k, n in ((second, 21), (third, 22))]
    total = REDUCE(terms[0], second, attrs=ReduceAttrs(Fold.ADD, ()))
    weight = cast(cast(math.FDIV(terms[1], total), weights or dtype), float32)
    result = REDUCE(
        math.MUL(weight, load(3, keys, third, column)), third, attrs=ReduceAttrs(Fold.ADD, ())
    )
    buffer = PARAM(attrs=ParamAttrs(0, (rows * WIDTH,), dtype))
    target = INDEX(buffer, math.ADD(math.MUL(row, const_index(WIDTH)), column))
    stores = [STORE(target, cast(result, dtype))]
    for slot, fold in ((4, most), (5, total)) if keeps else ():
        kept = PARAM(attrs=ParamAttrs(slot, (rows,), float32))
        stores.append(STORE(INDEX(kept, row), fold))
    return SINK(*stores)


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, *, causal: bool) -> np.ndarray:
    """The same in float64."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    scores = q @ k.T * SCALE
    if causal:
        scores = np.where(np.arange(len(k)) <= np.arange(len(q))[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    result: np.ndarray = weights @ v / weights.sum(1, keepdims=True)
    return result


def shared_heads(rows: int, keys: int, width: int) -> Node:
    """Two heads of queries that share keys and values, under a mask; rows without any are 0.

    Slots: the result; queries, keys, values; the mask, one bool for each query and key.
    """

    def load(slot: int, lines: int, line: Node, column: Node) -> Node:
        buffer = PARAM(attrs=ParamAttrs(slot, (lines * width,), bfloat16))
        offset = math.ADD(math.MUL(line, const_index(width)), column)
        return cast(LOAD(INDEX(buffer, offset)), float32)

    head, row, column = range_(2, 0), range_(rows, 1), range_(width, 2)
    line = math.ADD(math.MUL(head, const_index(rows)), row)
    lowest, zero = const(float("-inf"), float32), const(0.0, float32)
    mask = PARAM(attrs=ParamAttrs(4, (rows * keys,), bool_))

    def score(key: Node, number: int) -> Node:
        inner = range_(width, number)
        products = math.MUL(load(1, 2 * rows, line, inner), load(2, keys, key, inner))
        total = REDUCE(products, inner, attrs=ReduceAttrs(Fold.ADD, ()))
        scaled = math.MUL(total, const(SCALE, float32))
        seen = LOAD(INDEX(mask, math.ADD(math.MUL(row, const_index(keys)), key)))
        return math.WHERE(seen, scaled, lowest)

    first, second, third = (range_(keys, number) for number in (10, 11, 12))
    most = REDUCE(score(first, 20), first, attrs=ReduceAttrs(Fold.MAX, ()))
    reference = math.WHERE(math.EQ(most, lowest), zero, most)
    terms = [math.EXP(math.SUB(score(k, n), reference)) for k, n in ((second, 21), (third, 22))]
    total = REDUCE(terms[0], second, attrs=ReduceAttrs(Fold.ADD, ()))
    divisor = math.WHERE(math.EQ(total, zero), const(1.0, float32), total)
    weight = cast(cast(math.FDIV(terms[1], divisor), bfloat16), float32)
    body = math.MUL(weight, load(3, keys, third, column))
    result = REDUCE(body, third, attrs=ReduceAttrs(Fold.ADD, ()))
    buffer = PARAM(attrs=ParamAttrs(0, (2 * rows * width,), bfloat16))
    target = INDEX(buffer, math.ADD(math.MUL(line, const_index(width)), column))
    return SINK(STORE(target, cast(result, bfloat16)))


def by_queries(rows: int, keys: int, width: int) -> Node:
    """The gradient by queries of two heads that share keys and values, with a summand of scores.

    Slots: the result; queries, keys, values and the results' gradient; what is added to scores;
    maximum, total, and mean.
    """

    def wide(slot: int, lines: int, line: Node, column: Node) -> Node:
        buffer = PARAM(attrs=ParamAttrs(slot, (lines * width,), bfloat16))
        offset = math.ADD(math.MUL(line, const_index(width)), column)
        return cast(LOAD(INDEX(buffer, offset)), float32)

    head, row, column, key = range_(2, 0), range_(rows, 1), range_(width, 2), range_(keys, 3)
    first, second = range_(width, 4), range_(width, 5)
    line = math.ADD(math.MUL(head, const_index(rows)), row)
    products = math.MUL(wide(1, 2 * rows, line, first), wide(2, keys, key, first))
    score = math.MUL(REDUCE(products, first, attrs=ADD), const(SCALE, float32))
    added = PARAM(attrs=ParamAttrs(5, (rows * keys,), float32))
    offset = math.ADD(math.MUL(row, const_index(keys)), key)
    score = math.ADD(score, LOAD(INDEX(added, offset)))
    raised = math.EXP(math.SUB(score, of_row(6, 2 * rows, line)))
    weight = math.FDIV(raised, of_row(7, 2 * rows, line))
    arriving = math.MUL(wide(4, 2 * rows, line, second), wide(3, keys, key, second))
    by_weight = REDUCE(arriving, second, attrs=ADD)
    by_score = math.MUL(math.SUB(by_weight, of_row(8, 2 * rows, line)), weight)
    by_score = math.MUL(by_score, const(SCALE, float32))
    body = math.MUL(cast(cast(by_score, bfloat16), float32), wide(2, keys, key, column))
    buffer = PARAM(attrs=ParamAttrs(0, (2 * rows * width,), bfloat16))
    place = INDEX(buffer, math.ADD(math.MUL(line, const_index(width)), column))
    return SINK(STORE(place, cast(REDUCE(body, key, attrs=ADD), bfloat16)))


def folds_of_rows(rows: int, keys: int) -> Node:
    """Maximum, total and mean of each row of attention; the last row sees all keys.

    Slots: these three; queries, keys, values and the results' gradient; what is added for a key.
    """
    row, key, first, second = (range_(size, n) for n, size in enumerate((rows, keys, WIDTH, WIDTH)))
    products = math.MUL(element(3, rows, row, first), element(4, keys, key, first))
    score = math.MUL(REDUCE(products, first, attrs=ADD), const(SCALE, float32))
    score = math.ADD(score, of_row(7, keys, key))
    seen = math.LT(key, math.ADD(row, const_index(keys - rows + 1)))
    score = math.WHERE(seen, score, const(float("-inf"), float32))
    most = REDUCE(score, key, attrs=ReduceAttrs(Fold.MAX, ()))
    raised = math.EXP(math.SUB(score, most))
    total = REDUCE(raised, key, attrs=ADD)
    arriving = math.MUL(element(6, rows, row, second), element(5, keys, key, second))
    by_weight = REDUCE(arriving, second, attrs=ADD)
    mean = REDUCE(math.MUL(by_weight, math.FDIV(raised, total)), key, attrs=ADD)
    stores = []
    for slot, value in enumerate((most, total, mean)):
        buffer = PARAM(attrs=ParamAttrs(slot, (rows,), float32))
        stores.append(STORE(INDEX(buffer, row), value))
    return SINK(*stores)
