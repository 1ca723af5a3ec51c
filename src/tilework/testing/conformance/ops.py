"""Every elementwise op in every dtype that it takes, and every cast."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tilework.base.errors import TileworkError
from tilework.dtypes import ALL, DType, bool_
from tilework.ir.node import Node, OpDef
from tilework.ir.ops import OPS
from tilework.ir.ops.math import BITCAST, CAST, CONST, WHERE, CastAttrs
from tilework.ir.stage import Stage
from tilework.testing.conformance.harness import Bench, Case

# Correctly rounded or exact on every device; the others have the bounds of docs/accuracy.
_FUNCTIONS = frozenset(
    {
        *("pow", "atan2", "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan"),
        *("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf"),
    }
)
_ULP = 4
_SHAPE = (67,)


def cases() -> Iterator[Case]:
    """One case per op, over all dtypes; one per dtype for the casts from it."""
    for op in OPS.values():
        if op.elementwise and op is not CONST and op is not CAST and Stage.TENSOR in op.stages:
            yield Case(f"ops/{op.name}", partial(_check_op, op=op))
    for dtype in ALL:
        yield Case(f"casts/{dtype.name}", partial(_check_casts, dtype=dtype))


def _check_op(bench: Bench, op: OpDef) -> str:
    done: list[str] = []
    for dtype in ALL:
        if not bench.stores(dtype):
            continue
        node = _apply(bench, op, dtype)
        if node is not None:
            bench.check([node], _ULP if op.name in _FUNCTIONS else 0)
            done.append(dtype.name)
    return ", ".join(done)


def _apply(bench: Bench, op: OpDef, dtype: DType) -> Node | None:
    """The op on inputs of `dtype`, or None where its type rule refuses them."""
    operands = [bench.leaf(dtype, _SHAPE) for _ in op.operands]
    if op is WHERE:
        operands[0] = bench.leaf(bool_, _SHAPE)
    try:
        return op(*operands)
    except TileworkError:
        return None


def _check_casts(bench: Bench, dtype: DType) -> str:
    if not bench.stores(dtype):
        return "not stored"
    x = bench.leaf(dtype, _SHAPE)
    targets = [other for other in ALL if bench.stores(other)]
    bench.check([CAST(x, attrs=CastAttrs(other)) for other in targets if other is not dtype])
    same = [other for other in targets if other.bits == dtype.bits and other is not dtype]
    if same and not dtype.is_bool:
        bench.check([BITCAST(x, attrs=CastAttrs(other)) for other in same])
    return ", ".join(other.name for other in targets)
