"""The meaning of TENSOR expressions in NumPy: an independent judge of the tensor layer.

`evaluate(node, buffers)` follows the op table's words, op by op, on whole arrays.  Floats that
NumPy lacks are kept as float32 and rounded after each op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilework.dtypes import DType, decode, encode
from tilework.ir.build import const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds
from tilework.ir.types import Dim

Array = np.ndarray[Any, Any]
_SMALL = {"bfloat16": "float32", "fp8e4m3": "float32", "fp8e5m2": "float32"}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that holds values of `dtype`."""
    return np.dtype(_SMALL.get(dtype.name, dtype.name))


def rounded(values: Array, dtype: DType) -> Array:
    """Values as `dtype` holds them."""
    if dtype.name not in _SMALL:
        return values.astype(numpy_dtype(dtype), copy=False)
    flat = [decode(encode(float(value), dtype), dtype) for value in values.reshape(-1)]
    return np.array(flat, dtype=np.float32).reshape(values.shape)


class Oracle:
    """Evaluates one graph; `buffers` gives the contents of BUFFER nodes."""

    def __init__(
        self, buffers: Callable[[Node], Array], variables: Mapping[str, int] | None = None
    ) -> None:
        self._buffers = buffers
        self._variables = dict(variables or {})
        self.faults = 0

    def evaluate(self, root: Node) -> Array:
        """The value of `root`."""
        values: dict[Node, Array] = {}
        with np.errstate(all="ignore"):
            for node in toposort(root):
                if node.op.name == "store":
                    continue
                sources = [values[source] for source in node.src if source in values]
                found = self._apply(node, sources, values)
                kind = node.type
                assert found.shape == self.shape(kind.shape), (node, found.shape)
                values[node] = rounded(np.asarray(found), kind.dtype)
        return values[root]

    def size(self, dim: Dim) -> int:
        """A size in numbers."""
        if isinstance(dim, int):
            return dim
        mapping = {
            node: const_index(self._variables[node.attrs.name])
            for node in toposort(dim)
            if node.op.name == "variable"
        }
        (found,) = simplify.substitute([dim], mapping)
        return bounds(found)[0]

    def shape(self, shape: tuple[Dim, ...]) -> tuple[int, ...]:
        """A shape in numbers."""
        return tuple(self.size(dim) for dim in shape)

    def _apply(self, node: Node, src: list[Array], values: dict[Node, Array]) -> Array:
        name, attrs = node.op.name, node.attrs
        if name == "buffer":
            return np.asarray(self._buffers(node))
        if name == "variable":
            return np.array(self._variables[attrs.name], dtype=np.int64)
        if name == "after":
            return self._after(node, values)
        if name in _SIMPLE:
            return np.asarray(_SIMPLE[name](*src))
        special = getattr(self, f"_{name}")
        return np.asarray(special(node, attrs, src))

    # --- leaves and casts ----------------------------------------------------------------------

    def _const(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        value = decode(attrs.bits, attrs.dtype)
        return np.full(self.shape(attrs.shape), value, dtype=numpy_dtype(attrs.dtype))

    def _iota(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        shape = self.shape(attrs.shape)
        view = [1] * len(shape)
        view[attrs.axis] = shape[attrs.axis]
        counted = np.arange(shape[attrs.axis], dtype=np.int64).reshape(view)
        return np.broadcast_to(counted, shape).astype(numpy_dtype(attrs.dtype))

    def _cast(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        (x,) = src
        target: DType = attrs.dtype
        if target.is_bool:
            return np.asarray(x != 0)
        if target.is_float or not node.src[0].dtype.is_float:
            return x.astype(numpy_dtype(target))
        exact = [0 if np.isnan(v) else v for v in x.reshape(-1).astype(np.float64)]
        low, high = target.minimum, target.maximum
        cut = [low if v <= low else high if v >= high else int(v) for v in exact]
        return np.array(cut, dtype=numpy_dtype(target)).reshape(x.shape)

    def _bitcast(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        return src[0].view(numpy_dtype(attrs.dtype))

    # --- movement ------------------------------------------------------------------------------

    def _reshape(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        return src[0].reshape(self.shape(attrs.shape))

    def _permute(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        return src[0].transpose(attrs.axes)

    def _expand(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        return np.broadcast_to(src[0], self.shape(attrs.shape))

    def _pad(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        return np.pad(src[0], [(self.size(a), self.size(b)) for a, b in attrs.pads])

    def _shrink(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        cuts = [slice(self.size(a), self.size(b), c) for a, b, c in attrs.bounds]
        return src[0][tuple(cuts)]

    def _flip(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        return np.flip(src[0], attrs.axes)

    def _window(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        count = self.size(attrs.count)
        places = np.arange(count)[:, None] * attrs.stride
        taps = np.arange(attrs.size)[None, :] * attrs.dilation
        return np.asarray(np.take(src[0], places + taps, axis=attrs.axis))

    def _unwindow(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        (x,) = src
        axis, count = attrs.axis, self.size(attrs.count)
        shape = list(x.shape)
        positions = shape[axis]
        shape[axis : axis + 2] = [count, attrs.size]
        found = np.zeros(shape, dtype=x.dtype)
        lead = (slice(None),) * axis
        for o in range(positions):
            for k in range(attrs.size):
                i = o * attrs.stride + k * attrs.dilation
                if i < count:
                    found[(*lead, i, k)] = x[(*lead, o, k)]
        return found

    # --- folds ---------------------------------------------------------------------------------

    def _reduce(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        (x,) = src
        dtype = node.type.dtype
        if dtype.is_bool:
            function: Any = np.any if attrs.fold in (Fold.ADD, Fold.MAX) else np.all
            return np.asarray(function(x, axis=attrs.axes))
        if attrs.fold in (Fold.ADD, Fold.MUL):
            function = np.sum if attrs.fold is Fold.ADD else np.prod
            return np.asarray(function(x, axis=attrs.axes, dtype=x.dtype))
        best: Any = np.max if attrs.fold is Fold.MAX else np.min
        start: Any = -np.inf if attrs.fold is Fold.MAX else np.inf
        if not dtype.is_float:
            start = dtype.minimum if attrs.fold is Fold.MAX else dtype.maximum
        return np.asarray(best(x, axis=attrs.axes, initial=start))

    def _scan(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        (x,) = src
        folds = {
            Fold.ADD: np.add, Fold.MUL: np.multiply, Fold.MAX: np.maximum, Fold.MIN: np.minimum,
        }  # fmt: skip
        axis = attrs.axis
        y = np.flip(x, axis) if attrs.reverse else x
        found = folds[attrs.fold].accumulate(y, axis=axis, dtype=y.dtype) if y.size else y
        if attrs.exclusive and y.shape[axis]:
            first: Any = {Fold.ADD: 0, Fold.MUL: 1}[attrs.fold]
            start = np.full_like(np.take(found, [0], axis=axis), first)
            rest = np.take(found, range(found.shape[axis] - 1), axis=axis)
            found = np.concatenate([start, rest], axis=axis)
        return np.flip(found, axis) if attrs.reverse else found

    def _sort(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        (x,) = src
        size = x.shape[attrs.axis]
        if attrs.descending:
            mirrored = np.flip(x, attrs.axis)
            order = np.flip(np.argsort(mirrored, axis=attrs.axis, kind="stable"), attrs.axis)
            order = size - 1 - order
        else:
            order = np.argsort(x, axis=attrs.axis, kind="stable")
        stop = size if attrs.count < 0 else attrs.first + attrs.count
        return np.take(order, np.arange(attrs.first, stop), axis=attrs.axis)

    # --- gather and scatter ----------------------------------------------------------------------

    def _gather(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        x, *indices = src
        is_in, safe = self._checked(x, attrs.axis, indices)
        found = (
            x[(slice(None),) * attrs.axis + tuple(safe)]
            if all(x.shape[attrs.axis : attrs.axis + len(indices)])
            else np.zeros(self.shape(node.type.shape), x.dtype)
        )
        after = found.ndim - attrs.axis - is_in.ndim
        return np.where(is_in.reshape(*is_in.shape, *(1,) * after), found, np.zeros_like(found))

    def _checked(self, x: Array, axis: int, indices: list[Array]) -> tuple[Array, list[Array]]:
        is_in = np.ones(indices[0].shape, dtype=bool)
        for number, index in enumerate(indices):
            is_in &= (index >= 0) & (index < x.shape[axis + number])
        self.faults += int((~is_in).sum())
        return is_in, [np.where(is_in, index, 0) for index in indices]

    def _scatter(self, node: Node, attrs: Any, src: list[Array]) -> Array:
        x, updates, *indices = src
        found = x.copy()
        lead = (slice(None),) * attrs.axis
        for place in np.ndindex(indices[0].shape):
            target = tuple(int(index[place]) for index in indices)
            sizes = x.shape[attrs.axis : attrs.axis + len(indices)]
            if any(not 0 <= t < s for t, s in zip(target, sizes, strict=True)):
                self.faults += 1
                continue
            self._fold_into(found, (*lead, *target), updates[(*lead, *place)], attrs.fold)
        return found

    def _fold_into(self, found: Array, place: Any, value: Array, fold: Fold | None) -> None:
        if fold is None:
            found[place] = value
        elif fold is Fold.ADD:
            found[place] = found[place] + value
        elif fold is Fold.MUL:
            found[place] = found[place] * value
        else:
            function = np.maximum if fold is Fold.MAX else np.minimum
            found[place] = function(found[place], value)

    # --- writes --------------------------------------------------------------------------------

    def _after(self, node: Node, values: dict[Node, Array]) -> Array:
        base = node.src[0]
        found = values[base].copy()
        for store in node.src[1:]:
            target, value = store.src[0], store.src[1]
            place = np.arange(found.size).reshape(found.shape)
            for op in self._chain(target, base):
                place = self._apply(op, [place], {})
            flat = found.reshape(-1)
            flat[place.reshape(-1)] = values[value].reshape(-1)
            found = flat.reshape(found.shape)
        return found

    def _chain(self, target: Node, base: Node) -> list[Node]:
        chain: list[Node] = []
        while target is not base:
            chain.append(target)
            target = target.src[0]
        return chain[::-1]


def _shift(x: Array, y: Array, is_left: bool) -> Array:
    bits = x.dtype.itemsize * 8
    wide = y.astype(np.int64)
    inside = np.clip(wide, 0, bits - 1).astype(x.dtype)
    found = x << inside if is_left else x >> inside
    beyond = np.zeros_like(x) if is_left else np.where(x < 0, -1, 0).astype(x.dtype)
    return np.where(wide >= bits, beyond, found)


def _erf(x: Array) -> Array:
    import math

    return np.array([math.erf(float(v)) for v in x.reshape(-1)]).reshape(x.shape)


def _idiv(x: Array, y: Array) -> Array:
    safe = np.where(y == 0, 1, y)
    return np.where(y == 0, 0, np.floor_divide(x, safe)).astype(x.dtype)


def _mod(x: Array, y: Array) -> Array:
    safe = np.where(y == 0, 1, y)
    return np.where(y == 0, 0, np.remainder(x, safe)).astype(x.dtype)


_SIMPLE: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "idiv": _idiv, "mod": _mod, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": lambda x, y: _shift(x, y, True), "shr": lambda x, y: _shift(x, y, False),
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
    "fdiv": np.divide, "fmod": np.fmod, "pow": np.power, "atan2": np.arctan2,
    "copysign": np.copysign, "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x, "exp": np.exp,
    "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erf": _erf, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "round": np.rint, "neg": np.negative, "abs": np.abs,
    "mulacc": lambda x, y, z: x * y + z, "where": np.where,
    "contiguous": lambda x: x, "detach": lambda x: x, "copy": lambda x: x,
}  # fmt: skip


def value_of(tensor: Any) -> Array:
    """What the oracle says that a tensor holds."""
    from tilework.tensor import host

    found: dict[Node, Array] = {}
    stack = [tensor._storage.version]
    seen: set[int] = set()
    bindings: dict[str, int] = dict(tensor._bindings or {})
    while stack:
        version = stack.pop()
        if id(version) in seen:
            continue
        seen.add(id(version))
        bindings.update(version.bindings or {})
        if version.buffer is not None:
            found[version.node] = host.as_array(version, (), version.bindings)
        else:
            stack.extend(version.sources)
    _refresh(tensor._storage.version)
    return Oracle(found.__getitem__, bindings).evaluate(tensor.node)


def _refresh(version: Any) -> None:
    """Bring the nodes below an unrealized version up to date, sources first."""
    order: list[Any] = []
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(version, False)]
    while stack:
        current, is_done = stack.pop()
        if is_done:
            order.append(current)
        elif id(current) not in seen and current.buffer is None:
            seen.add(id(current))
            stack.append((current, True))
            stack.extend((source, False) for source in current.sources)
    for current in order:
        current.rebuild()
