"""Operators on values that are known on the host: shapes, axes, counts, small constants.

A rule gets NumPy arrays and returns arrays, or None where the result would be large, so that the
device computes it.  Only operators that are exact, or rounded once by IEEE 754, are listed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework.frontends.onnx.call import split_of
from tilework.frontends.onnx.element_types import BY_NUMBER, EXTENSION_TYPES, numpy_dtype

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call

Array = np.ndarray[Any, Any]
HostRule = Callable[..., Any]
#: The most elements that a value on the host may have.
HOST_LIMIT = 1 << 14

_RULES: dict[str, HostRule] = {}


def host_op(*names: str) -> Callable[[HostRule], HostRule]:
    """Register a rule for operators of the default domain."""

    def register(rule: HostRule) -> HostRule:
        for name in names:
            _RULES[name] = rule
        return rule

    return register


def find_host_rule(domain: str, name: str) -> HostRule | None:
    """Return the rule on host values, or None."""
    return _RULES.get(name) if domain == "" else None


# --- elementwise ---------------------------------------------------------------------------------


def _divide(a: Array, b: Array) -> Array | None:
    if a.dtype.kind == "f":
        return np.asarray(np.divide(a, b))
    if not np.all(b):
        return None
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return np.asarray(quotient)
    # ONNX rounds towards zero, NumPy down.
    return np.asarray(quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(quotient.dtype))


_BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}


def _register_binary(name: str, function: Callable[[Array, Array], Any]) -> None:
    @host_op(name)
    def rule(call: Call, a: Array, b: Array) -> Array | None:
        if call.version < 7 and a.shape != b.shape:
            return None  # broadcasting by attribute, left to the rule on tensors
        with np.errstate(all="ignore"):
            result = function(a, b)
        return None if result is None else np.asarray(result)


for _name, _function in _BINARY.items():
    _register_binary(_name, _function)


@host_op("Mod")
def mod(call: Call, a: Array, b: Array) -> Array | None:
    if a.dtype.kind == "f" or not np.all(b):
        return None
    return np.fmod(a, b) if call.integer("fmod", 0) else np.mod(a, b)


@host_op("Max", "Min")
def extremum(call: Call, *operands: Array) -> Array:
    function = np.maximum if call.node.op == "Max" else np.minimum
    result = operands[0]
    for operand in operands[1:]:
        result = function(result, operand)
    return result


_UNARY: dict[str, Callable[[Array], Any]] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Not": np.logical_not,
    "Identity": np.asarray,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
}


def _register_unary(name: str, function: Callable[[Array], Any]) -> None:
    @host_op(name)
    def rule(call: Call, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(x)).astype(x.dtype if name != "Not" else bool)


for _name, _unary in _UNARY.items():
    _register_unary(_name, _unary)


@host_op("Where")
def where(call: Call, condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition, a, b).astype(a.dtype)


def _fits_integer(x: Array) -> bool:
    return bool(np.isfinite(x).all()) and bool(np.abs(x).max(initial=0) < 2**31)


@host_op("Cast")
def cast(call: Call, x: Array) -> Array | None:
    # The first versions name the element type by a word.
    target = BY_NUMBER.get(call.integer("to")) if call.node.version >= 6 else None
    if target is None or target in EXTENSION_TYPES or x.dtype.kind not in "biuf":
        return None
    if x.dtype.kind == "f" and target.is_integer and not _fits_integer(x):
        return None  # the device's definition of what does not fit
    with np.errstate(all="ignore"):
        return x.astype(numpy_dtype(target))


@host_op("CastLike")
def cast_like(call: Call, x: Array, like: Array) -> Array | None:
    return x.astype(like.dtype) if x.dtype.kind in "biu" and like.dtype.kind in "biuf" else None


# --- shapes --------------------------------------------------------------------------------------


@host_op("Reshape")
def reshape(call: Call, x: Array, shape: Array | None = None) -> Array:
    sizes = call.integers("shape") if shape is None else [int(size) for size in shape]
    if not call.integer("allowzero", 0):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(tuple(sizes))


@host_op("Unsqueeze")
def unsqueeze(call: Call, x: Array, axes: Array | None = None) -> Array:
    wanted = call.integers("axes") if axes is None else [int(axis) for axis in axes.reshape(-1)]
    return np.expand_dims(x, tuple(wanted)) if wanted else x


@host_op("Squeeze")
def squeeze(call: Call, x: Array, axes: Array | None = None) -> Array:
    wanted = call.integers("axes", None) if axes is None else [int(axis) for axis in axes]
    return np.squeeze(x, None if wanted is None else tuple(wanted))


@host_op("Flatten")
def flatten(call: Call, x: Array) -> Array:
    axis = split_of(call, x.ndim, 1)
    return x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)


@host_op("Concat")
def concat(call: Call, *parts: Array) -> Array:
    return np.concatenate(parts, axis=call.integer("axis", 1))


@host_op("Transpose")
def transpose(call: Call, x: Array) -> Array:
    return np.transpose(x, call.integers("perm", None))


@host_op("Gather")
def gather(call: Call, x: Array, indices: Array) -> Array | None:
    axis = call.integer("axis", 0)
    size = x.shape[axis]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        return None  # the rule on tensors names the fault
    return np.asarray(np.take(x, indices, axis=axis))


@host_op("Slice")
def slice_(call: Call, x: Array, *bounds: Array | None) -> Array:
    from_rule = call.slices(x.shape, *bounds)
    return x[from_rule]


@host_op("Split")
def split(call: Call, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
    axis, parts = call.split_sizes(x.shape, sizes)
    return tuple(np.split(x, np.cumsum(parts)[:-1], axis=axis))


@host_op("Expand")
def expand(call: Call, x: Array, shape: Array) -> Array | None:
    wanted = np.broadcast_shapes(x.shape, tuple(int(size) for size in shape))
    if np.prod(wanted, dtype=np.float64) > HOST_LIMIT:
        return None
    return np.broadcast_to(x, wanted)


@host_op("Tile")
def tile(call: Call, x: Array, repeats: Array) -> Array | None:
    if x.size * np.prod(repeats, dtype=np.float64) > HOST_LIMIT:
        return None
    return np.tile(x, tuple(int(count) for count in repeats))


@host_op("ConstantOfShape")
def constant_of_shape(call: Call, shape: Array) -> Array | None:
    value = call.attribute("value", np.zeros(1, np.float32))
    if np.prod(shape, dtype=np.float64) > HOST_LIMIT or value.size != 1 or (shape < 0).any():
        return None
    if value.dtype.name not in ("bool", "int32", "int64", "float32", "uint8"):
        return None
    return np.full(tuple(int(size) for size in shape), value.reshape(-1)[0], value.dtype)


@host_op("Range")
def range_(call: Call, start: Array, limit: Array, delta: Array) -> Array | None:
    if start.dtype.kind == "f":
        return None  # start + i * delta, as the rule on tensors computes it
    first, last, step = (int(value) for value in (start.item(), limit.item(), delta.item()))
    if step == 0 or (last - first) / step > HOST_LIMIT:
        return None
    return np.arange(first, last, step, dtype=start.dtype)


@host_op("ScatterND")
def scatter_nd(call: Call, x: Array, indices: Array, updates: Array) -> Array | None:
    if call.text("reduction", "none") != "none":
        return None
    result = x.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


# --- reductions, exact on integers --------------------------------------------------------------


@host_op("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def reduce(call: Call, x: Array, axes: Array | None = None) -> Array | None:
    if x.dtype.kind not in "iu" or x.size == 0:
        return None
    wanted = call.integers("axes", None)
    if axes is not None:
        wanted = tuple(int(axis) for axis in axes)
    if not wanted:
        if call.integer("noop_with_empty_axes", 0):
            return x
        wanted = None
    functions: dict[str, Callable[..., Any]] = {
        "ReduceProd": np.prod,
        "ReduceSum": np.sum,
        "ReduceMax": np.max,
        "ReduceMin": np.min,
    }
    function = functions[call.node.op]
    keep = bool(call.integer("keepdims", 1))
    return np.asarray(function(x, axis=wanted, keepdims=keep)).astype(x.dtype)


@host_op("NonZero")
def non_zero(call: Call, x: Array) -> Array:
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


@host_op("CumSum")
def cum_sum(call: Call, x: Array, axis: Array) -> Array | None:
    if x.dtype.kind not in "iu" or call.integer("exclusive", 0) or call.integer("reverse", 0):
        return None
    return np.cumsum(x, axis=int(axis.item())).astype(x.dtype)
