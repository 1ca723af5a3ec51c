"""Tensors from nothing: constants, counters, masks.

They are expressions, so they cost no memory until somebody needs them there.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError
from tilework.base.integers import ceil_div
from tilework.engine.device import Device
from tilework.ir.build import cast, const
from tilework.ir.ops import math as math_ops
from tilework.ir.ops import tensor
from tilework.ir.symbolic import dims
from tilework.runtime.group import BufferGroup, split_name
from tilework.schedule.shard import spec
from tilework.tensor import complexes, host
from tilework.tensor.core import TensorBase
from tilework.tensor.movement import as_sizes, read_sizes
from tilework.tensor.promotion import Number, check_fits, dtype_of_number
from tilework.tensor.version import from_buffer, from_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Shape


def as_dtype(dtype: Any, may_be_packed: bool = False) -> DType:
    """A dtype given by itself, by name ("float32", "half"), or as one of NumPy's.

    Raises:
        DTypeError: there is none, or it is a packed one where that can't be.
    """
    found = _named_dtype(dtype)
    if found.is_packed and not may_be_packed:
        raise DTypeError(
            "dtype: elements of a packed dtype are stored and converted only",
            got=found.name,
            expected="a dtype that is computed with",
            try_=f"make a tensor of another dtype, then .cast(dtypes.{found.name})",
        )
    return found


def _named_dtype(dtype: Any) -> DType:
    owner = dtype if isinstance(dtype, type) else type(dtype)
    if owner.__module__.partition(".")[0] in ("numpy", "ml_dtypes"):
        # `np.float32` is a class with this name, `np.dtype("float32")` has it as `name`.
        dtype = getattr(dtype, "__name__" if isinstance(dtype, type) else "name", dtype)
    if isinstance(dtype, str):
        found = getattr(dtypes, dtype, None)
        if not isinstance(found, dtypes.DType):
            raise _not_a_dtype(dtype)
        return found
    if not isinstance(dtype, dtypes.DType):
        raise _not_a_dtype(dtype)
    return dtype


def _not_a_dtype(given: object) -> DTypeError:
    if complexes.is_named(given):
        return complexes.refused("dtype", f"{given!r}")
    return DTypeError(
        "dtype: this is not a dtype",
        got=f"{given!r}",
        expected=", ".join(dtype.name for dtype in dtypes.ALL),
    )


def iota(shape: Shape, axis: int, dtype: DType = dtypes.index) -> Node:
    """The position along `axis`."""
    return tensor.IOTA(attrs=tensor.IotaAttrs(shape, axis, dtype))


class Creation(TensorBase):
    """Constructors; each takes `dtype`, `device` and `requires_grad`."""

    __slots__ = ()

    @classmethod
    def _finish(
        cls,
        node: Node,
        device: str | Sequence[str] | None,
        requires_grad: bool | None,
        bindings: Any = None,
    ) -> Self:
        return cls._from_node(node, device, bindings)._owned(requires_grad)

    def _owned(self, requires_grad: bool | None) -> Self:
        """Note that this is a tensor that a user made, and whether its gradient is wanted."""
        self._storage.version.owner = weakref.ref(self)
        if requires_grad is not None:
            self.requires_grad_(requires_grad)
        return self

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Number,
        dtype: DType | str | None = None,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """A tensor whose elements are all `fill_value`.

        Raises:
            DTypeError: the value does not fit the dtype.

        Example:
            >>> Tensor.full((2, 2), 7).tolist()
            [[7, 7], [7, 7]]
        """
        sizes, bindings = read_sizes(as_sizes((shape,)), "full")
        if complexes.is_number(fill_value):
            raise complexes.refused("full", repr(fill_value))
        if not hasattr(type(fill_value), "__float__"):
            raise DTypeError("full: the value is not a real number", got=repr(fill_value))
        kind = dtype_of_number(fill_value) if dtype is None else as_dtype(dtype, may_be_packed=True)
        check_fits(kind, fill_value, "full")
        _check_sizes(sizes)
        if kind.is_packed:
            node = const(fill_value, dtypes.value_dtype(kind), sizes)
            values: Any = cls._finish(node, device, requires_grad, bindings)
            packed: Self = values.cast(kind)
            return packed
        return cls._finish(const(fill_value, kind, sizes), device, requires_grad, bindings)

    @classmethod
    def zeros(
        cls,
        *shape: Any,
        dtype: DType | str | None = None,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """A tensor of zeros, float32 unless `dtype` says otherwise."""
        kind = dtypes.default_float if dtype is None else dtype
        sizes = as_sizes(shape)
        return cls.full(sizes, 0, dtype=kind, device=device, requires_grad=requires_grad)

    @classmethod
    def ones(
        cls,
        *shape: Any,
        dtype: DType | str | None = None,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """A tensor of ones, float32 unless `dtype` says otherwise."""
        kind = dtypes.default_float if dtype is None else dtype
        sizes = as_sizes(shape)
        return cls.full(sizes, 1, dtype=kind, device=device, requires_grad=requires_grad)

    @classmethod
    def empty(
        cls,
        *shape: Any,
        dtype: DType | str | None = None,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Memory for a tensor; what it holds is not said (it is zeros, so runs repeat)."""
        sizes, _ = read_sizes(as_sizes(shape), "empty")
        _check_sizes(sizes)
        kind = dtypes.default_float if dtype is None else as_dtype(dtype)
        name = Device.canonicalize(device)
        count = dims.greatest(dims.product(sizes))
        parts = [
            Device[each].allocate(count * kind.itemsize, zero=True) for each in split_name(name)
        ]
        buffer = parts[0] if len(parts) == 1 else BufferGroup(parts)
        return cls._over(from_buffer(buffer, name, sizes, kind))._owned(requires_grad)

    @classmethod
    def arange(
        cls,
        start: Number,
        stop: Number | None = None,
        step: Number = 1,
        dtype: DType | str | None = None,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """The numbers start, start + step, ... before stop; one argument is the stop.

        Raises:
            ShapeError: the step is 0.

        Example:
            >>> Tensor.arange(2, 10, 3).tolist()
            [2, 5, 8]
        """
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ShapeError(
                "arange: the step is 0",
                got=f"{start} to {stop}",
                expected="a step that leads there",
            )
        is_float = any(isinstance(number, float) for number in (start, stop, step))
        if is_float:
            count = max(math.ceil((stop - start) / step), 0)
        else:
            count = max(ceil_div(int(stop) - int(start), int(step)), 0)
        last = start + (count - 1) * step
        if dtype is not None:
            kind = as_dtype(dtype)
        elif is_float:
            kind = dtypes.default_float
        else:
            ends = [dtype_of_number(int(start)), dtype_of_number(int(last))]
            kind = max(ends, key=lambda found: found.rank)
        for end in (start, last) if count else ():
            check_fits(kind, end, "arange")
        return cls._finish(_counted(count, start, step, kind), device, requires_grad)

    @classmethod
    def linspace(
        cls,
        start: float,
        stop: float,
        steps: int,
        dtype: DType | str | None = None,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`steps` numbers from `start` to `stop`, both included, at equal distances."""
        if steps < 0:
            raise ShapeError("linspace: steps is negative", got=steps)
        kind = dtypes.default_float if dtype is None else as_dtype(dtype)
        if steps < 2:
            return cls._finish(
                cast(const(start, dtypes.float64, (steps,)), kind), device, requires_grad
            )
        step = (stop - start) / (steps - 1)
        wide = dtypes.float64
        position = cast(iota((steps,), 0), wide)
        # From both ends, so that both come out exactly.
        forward = math_ops.ADD(
            const(start, wide, (steps,)), math_ops.MUL(position, const(step, wide, (steps,)))
        )
        behind = math_ops.SUB(const(steps - 1, wide, (steps,)), position)
        backward = math_ops.SUB(
            const(stop, wide, (steps,)), math_ops.MUL(behind, const(step, wide, (steps,)))
        )
        is_first_half = math_ops.LT(iota((steps,), 0), const(steps // 2, dtypes.index, (steps,)))
        node = math_ops.WHERE(is_first_half, forward, backward)
        return cls._finish(cast(node, kind), device, requires_grad)

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        dtype: DType | str | None = None,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """The identity matrix, or `n` rows and `m` columns of it."""
        kind = dtypes.default_float if dtype is None else as_dtype(dtype)
        shape = (n, n if m is None else m)
        _check_sizes(shape)
        same = math_ops.EQ(iota(shape, 0), iota(shape, 1))
        node = math_ops.WHERE(same, const(1, kind, shape), const(0, kind, shape))
        return cls._finish(node, device, requires_grad)

    def full_like(self, fill_value: Number, **options: Any) -> Self:
        """`full` with this tensor's shape, and its dtype and device unless given."""
        options.setdefault("dtype", self.dtype)
        is_beside = options.setdefault("device", self.device) == self.device
        made = type(self).full(self.shape, fill_value, **options)
        return self._spread_alike(made, options) if is_beside else made

    def _spread_alike(self, made: Self, options: Any) -> Self:
        """A new tensor of this shape in this tensor's layout, if that is over several devices."""
        layout = self._layout()
        if layout is None:
            return made
        return made._resharded(layout)._owned(options.get("requires_grad"))

    def zeros_like(self, **options: Any) -> Self:
        """`zeros` with this tensor's shape, and its dtype and device unless given."""
        return self.full_like(0, **options)

    def ones_like(self, **options: Any) -> Self:
        """`ones` with this tensor's shape, and its dtype and device unless given."""
        return self.full_like(1, **options)

    def empty_like(self, **options: Any) -> Self:
        """`empty` with this tensor's shape, and its dtype and device unless given."""
        options.setdefault("dtype", self.dtype)
        is_beside = options.setdefault("device", self.device) == self.device
        layout = self._layout() if is_beside else None
        if layout is None:
            return type(self).empty(*self.shape, **options)
        kind = as_dtype(options["dtype"])
        parts = []
        for device, box in zip(layout.devices, layout.boxes, strict=True):
            count = dims.greatest(dims.product(spec.local_shape(box, self._dims)))
            parts.append(Device[device].allocate(count * kind.itemsize, zero=True))
        version = from_parts(BufferGroup(parts), layout, self._dims, kind)
        return self._over(version)._owned(options.get("requires_grad"))

    def _constant(self, value: Number, dtype: DType) -> Self:
        """A constant of this tensor's shape."""
        return self._from_node(const(value, dtype, self._dims), self.device, self._bindings)

    def _positions(self, axis: int, dtype: DType = dtypes.index) -> Self:
        """The position along `axis`, in this tensor's shape."""
        return self._from_node(iota(self._dims, axis, dtype), self.device, self._bindings)

    @classmethod
    def _from_numbers(cls, numbers: Any, dtype: DType, device: str) -> Self:
        """A tensor of numbers that the host knows."""
        return cls._over(host.from_nested(list(numbers), dtype, device))

    def _like(self, shape: Shape) -> Self:
        """Zeros of this tensor's dtype and device in another shape."""
        return self._from_node(const(0, self.dtype, shape), self.device, self._bindings)


def _counted(count: int, start: Number, step: Number, kind: DType) -> Node:
    """start + step * i, computed in int64 or float64 and rounded once."""
    wide = dtypes.float64 if kind.is_float else dtypes.int64
    shape = (count,)
    if start == 0 and step == 1:
        return cast(iota(shape, 0), kind)
    node = cast(iota(shape, 0), wide)
    if step != 1:
        node = math_ops.MUL(node, const(step, wide, shape))
    if start != 0:
        node = math_ops.ADD(node, const(start, wide, shape))
    return cast(node, kind)


def _check_sizes(shape: Shape) -> None:
    for size in shape:
        if dims.least(size) < 0:
            raise ShapeError("shape: a size is negative", got=shape, expected="sizes of at least 0")
