"""Which construction computes which function, and the pass that puts them into a kernel.

An operation stays as it is where the target has it natively. float32 and float64 have
constructions of their own; the narrower floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import UnsupportedError
from tilework.codegen.decompose import (
    error_function,
    exponential,
    hyperbolic,
    hyperbolic_float64,
    inverse,
    inverse_float64,
    logarithm,
    multiply_add,
    power,
    remainder,
    roots,
    trigonometric,
    trigonometric_float64,
)
from tilework.codegen.decompose.builder import Value
from tilework.codegen.decompose.elementary import is_native
from tilework.codegen.decompose.node_builder import NodeBuilder
from tilework.dtypes import FLOATS, float32, float64
from tilework.ir.build import cast
from tilework.ir.node import make, toposort
from tilework.ir.ops import OPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.decompose.builder import Dtype
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

    Construction = Callable[..., Value[Any]]

#: Constructions by the name of the op that they compute; `mulacc` serves targets without it.
FLOAT32: Final[dict[str, Construction]] = {
    "acos": inverse.acos,
    "acosh": inverse.acosh,
    "asin": inverse.asin,
    "asinh": inverse.asinh,
    "atan": inverse.atan,
    "atan2": inverse.atan2,
    "atanh": inverse.atanh,
    "cos": trigonometric.cos,
    "cosh": hyperbolic.cosh,
    "erf": error_function.erf,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "fmod": remainder.fmod,
    "log": logarithm.log,
    "log1p": logarithm.log1p,
    "log2": logarithm.log2,
    "mulacc": multiply_add.emulated_fma,
    "pow": power.pow,
    "reciprocal": exponential.reciprocal,
    "sin": trigonometric.sin,
    "sinh": hyperbolic.sinh,
    "sqrt": roots.sqrt,
    "tan": trigonometric.tan,
    "tanh": hyperbolic.tanh,
}
#: The same for float64; some constructions serve both formats.
FLOAT64: Final[dict[str, Construction]] = FLOAT32 | {
    "acosh": inverse_float64.acosh,
    "asin": inverse_float64.asin,
    "asinh": inverse_float64.asinh,
    "atan": inverse_float64.atan,
    "atan2": inverse_float64.atan2,
    "atanh": inverse_float64.atanh,
    "cos": trigonometric_float64.cos,
    "cosh": hyperbolic_float64.cosh,
    "expm1": hyperbolic_float64.expm1,
    "log1p": inverse_float64.log1p,
    "sin": trigonometric_float64.sin,
    "sinh": hyperbolic_float64.sinh,
    "tan": trigonometric_float64.tan,
}
#: Functions that are no ops, but that the sweeps measure too.
MORE_FLOAT32: Final[dict[str, Construction]] = {
    "cos_limited": trigonometric.cos_limited,
    "log10": logarithm.log10,
    "sigmoid": exponential.sigmoid,
    "sin_limited": trigonometric.sin_limited,
}


def table_of(dtype: str) -> dict[str, Construction]:
    """Return the constructions that serve `dtype`; the narrow floats are computed in float32."""
    return FLOAT64 if dtype == "float64" else FLOAT32


def is_lowered(op: str, dtype: str, target: TargetSpec) -> bool:
    """Return whether a construction stands in for `op` on `dtype`; else the target computes it."""
    return op in table_of(dtype) and not is_native(op, dtype, target)


def choices(target: TargetSpec) -> dict[str, str]:
    """Return for each elementary function and float, as `op/dtype`, `native` or `lowered`."""
    names = sorted({*FLOAT32, *FLOAT64} & set(OPS))
    dtypes = [dtype.name for dtype in FLOATS if dtype.name in target.storage_dtypes]
    return {
        f"{op}/{dtype}": "lowered" if is_lowered(op, dtype, target) else "native"
        for op in names
        for dtype in dtypes
        if op in table_of(dtype)
    }


def lower_node(node: Node, target: TargetSpec) -> Node:
    """Return what computes `node` on `target`: `node` itself, or a construction's result.

    Raises: UnsupportedError when the target has neither the op nor what the construction needs.
    """
    name, dtype = node.op.name, node.dtype
    if name not in FLOAT32 or not dtype.is_float or not is_lowered(name, dtype.name, target):
        return node
    if dtype is not float32 and dtype is not float64:
        wide = make(node.op, tuple(cast(source, float32) for source in node.src), node.attrs)
        return cast(lower_node(wide, target), dtype)
    construction = table_of(dtype.name)[name]
    if "float64" not in target.native_dtypes and construction in _NEEDS_FLOAT64:
        raise UnsupportedError(
            f"{name}: {target.name} has no float64, which its construction computes in",
            got=f"{name} of {dtype.name}",
        )
    has_fma, has_scale = "mulacc" in target.native_ops, _has_scale(node, target)
    has_branches = all(unit.name != "block" for unit in target.units.walk())
    builder = NodeBuilder(
        node.shape, has_fma=has_fma, has_scale=has_scale, has_branches=has_branches
    )
    kind: Dtype = "float64" if dtype is float64 else "float32"
    values = [Value(builder, source, kind) for source in node.src]
    result: Node = construction(*values).raw
    return result


def _has_scale(node: Node, target: TargetSpec) -> bool:
    """Has the target an instruction that multiplies vectors like `node` by powers of 2?"""
    bits = node.type.lanes * node.dtype.bits if node.shape else 0
    return "scale_power" in target.native_ops and bits in (128, 256, 512)


_NEEDS_FLOAT64: Final[frozenset[Any]] = frozenset(
    {trigonometric.sin, trigonometric.cos, trigonometric.tan}
    | {power.pow, multiply_add.emulated_fma, remainder.fmod}
)


def lower_functions(sink: Node, target: TargetSpec) -> Node:
    """Return the graph of `sink` with every function that `target` lacks replaced."""
    replaced: dict[Node, Node] = {}
    for node in toposort(sink):
        sources = tuple(replaced[source] for source in node.src)
        kept = node if sources == node.src else make(node.op, sources, node.attrs)
        replaced[node] = lower_node(kept, target)
    return replaced[sink]
