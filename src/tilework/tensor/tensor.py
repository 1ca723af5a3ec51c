"""`Tensor`: the public class, made of its families of methods."""

from __future__ import annotations

import importlib
import math
from contextlib import ContextDecorator
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError
from tilework.base.integers import product
from tilework.dtypes import DType
from tilework.engine.capture import refuse_host_read
from tilework.engine.device import Device
from tilework.ir.build import const
from tilework.ir.ops.math import CONST
from tilework.tensor import complexes, foreign, host, host_lists
from tilework.tensor.autograd import tape
from tilework.tensor.core import TensorBase
from tilework.tensor.creation import as_dtype
from tilework.tensor.elsewhere import OF_TENSORS, explain_missing
from tilework.tensor.promotion import check_fits, dtype_of_number
from tilework.tensor.python_protocols import PythonProtocols
from tilework.tensor.variable import Variable, format_shape
from tilework.tensor.version import Storage, Version, history
from tilework.tensor.wrong_calls import told

if TYPE_CHECKING:
    import numpy


class Tensor(PythonProtocols):
    """An array of numbers on a device, computed when it is needed.

    Args:
        data: a number, (nested) lists of numbers, a NumPy array or whatever NumPy can read, bytes,
            a Variable, a `pathlib.Path` (its bytes as uint8), or a tensor.
        device: where it lives; the default device unless given.
        dtype: the element type; by default that of the data: Python floats are float32, Python
            integers int32 (int64 or uint64 if they don't fit).
        requires_grad: whether `backward` fills `grad`.

    Raises:
        DTypeError: the data does not fit the dtype.
        ShapeError: nested lists have different lengths.

    Example:
        >>> (Tensor([1, 2, 3]) * 2).tolist()
        [2, 4, 6]
    """

    __slots__ = ()

    #: Whether layers such as dropout and batch norm behave as in training; see `Tensor.train`.
    training: ClassVar[bool] = False

    def __init__(
        self,
        data: Any = None,
        device: str | None = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        kind = None if dtype is None else as_dtype(dtype, may_be_packed=True)
        if kind is not None and kind.is_packed:
            self._init_packed(data, device, kind)
        elif isinstance(data, TensorBase):
            moved: Any = data.to(device) if device is not None else data
            moved = moved if kind is None else moved.cast(kind)
            moved = moved._apply(None)
            self._set(moved._storage, moved._chain, moved._type, moved._bindings)
        else:
            version = _read(data, kind, Device.canonicalize(device))
            self._set(Storage(version), (), version.node.type, version.bindings)
            if kind is not None and self.dtype is not kind:
                converted = self.cast(kind)
                self._set(converted._storage, (), converted._type, converted._bindings)
        self._owned(requires_grad)

    def _init_packed(self, data: Any, device: str | None, kind: DType) -> None:
        """Integers must fit; other values become what `cast` makes of them."""
        values = Tensor(data, device)
        if not isinstance(data, TensorBase) and values.dtype.is_integer and values._count():
            for value in (values.min().item(), values.max().item()):
                check_fits(kind, value, "Tensor")
        packing: Any = importlib.import_module("tilework.tensor.packed_tensor")
        packing.become_packed(self, values, kind)

    @classmethod
    def _lift(cls, value: Any, device: str) -> Self:
        made = Tensor(value, device=device)  # a class of the user may take other arguments
        return made if cls is Tensor else cls._over(made._storage.version)  # type: ignore[return-value]

    # --- to the host -------------------------------------------------------------------------

    def _host_array(self) -> numpy.ndarray[Any, Any]:
        version = self._storage.version
        if version.buffer is None:
            if not self._chain and version.node.op is CONST:
                found: numpy.ndarray[Any, Any] = _constant_array(version, self._sizes())
                return found
            self.realize()
            version = self._storage.version
        return host.as_array(version, self._chain, self._bindings)

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """A copy as a NumPy array; bfloat16 and fp8 come as float32, which holds their values."""
        return self._host_array()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self._host_lists()

    def _host_lists(self) -> Any:
        version = self._storage.version
        if version.buffer is None:
            if not self._chain and version.node.op is CONST:
                value = dtypes.decode(version.node.attrs.bits, version.node.type.dtype)
                return host_lists.repeated(value, self._sizes())
            self.realize()
            version = self._storage.version
        sizes = self._sizes()
        flat = host_lists.numbers(version, self._chain, self._bindings, product(sizes))
        if flat is None:
            return host.as_array(version, self._chain, self._bindings).tolist()
        return host_lists.nested(flat, sizes)

    def item(self) -> bool | int | float:
        """The only element as a Python number.

        Raises:
            ShapeError: there is not exactly one.
        """
        if self._count() != 1:
            raise ShapeError(
                "item: there is not exactly one element",
                got=f"shape {format_shape(self._dims)}",
                try_="tolist()",
            )
        found = self._host_lists()
        while isinstance(found, list):
            found = found[0]
        number: bool | int | float = found
        return number

    def data(self) -> memoryview:
        """A copy of the elements as a memoryview of this tensor's shape."""
        return self._host_array().data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            found = self._shared_array()
            if found is None or (dtype is not None and found.dtype != dtype):
                raise ValueError("array: this tensor has to be copied; copy=False forbids it")
            return found
        found = self._host_array()
        return found if dtype is None else found.astype(dtype, copy=False)

    def _shared_array(self) -> Any:
        """An array over the memory of this tensor, or None where that can't be."""
        refuse_host_read("share")
        self.realize()
        return foreign.shared_array(self._storage.version, self._chain, self._bindings)

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:
        """This tensor for another library: its very memory where that can be, else a copy.

        What either side writes into shared memory, the other sees.  bfloat16 and fp8 are copied to
        float32.
        """
        found = None if copy else self._shared_array()
        if found is None:
            if copy is False:
                raise BufferError("dlpack: this tensor has to be copied; copy=False forbids it")
            found = self._host_array()
        return found.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # the host, where the exported copy lies

    def __repr__(self) -> str:
        """Type, shape and state; computes nothing."""
        state = "" if self.is_realized else ", lazy"
        grad = ", requires_grad" if self._wants_gradient else ""
        shape = format_shape(self._dims)
        return f"<Tensor {shape} {self.dtype.name} on {self.device}{state}{grad}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = self.detach().clone()
        memo[id(self)] = copied
        copied.requires_grad_(self._wants_gradient)
        return copied

    def __copy__(self) -> Self:
        made = type(self).__new__(type(self))
        made._set(self._storage, self._chain, self._type, self._bindings)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """For processes that hand tensors to each other: the elements travel as bytes."""
        source = self.detach().contiguous().realize()
        version = source._storage.version
        data = b""
        if version.buffer is not None:
            data = bytes(host.contents(version)[: source.nbytes()])
        rest = (self._sizes(), self.dtype, self.device, self._wants_gradient)
        return _rebuilt, (type(self), data, *rest)

    # --- gradients ---------------------------------------------------------------------------

    def gradient(
        self, *targets: Self, gradient: Self | None = None, materialize_grads: bool = False
    ) -> list[Self]:
        """The gradients of this tensor by each target.

        Args:
            targets: tensors that this one was computed from.
            gradient: what to multiply with, in this tensor's shape; needed unless it is a scalar.
            materialize_grads: give zeros for targets that it does not depend on.

        Raises:
            UserError: it does not depend on a target, or the history in between is gone.

        Example:
            >>> x = Tensor([1.0, 2.0])
            >>> (x * x).sum().gradient(x)[0].tolist()
            [2.0, 4.0]
        """
        found = tape.gradient(self, targets, gradient, materialize_grads)
        return list(found)  # type: ignore[arg-type]  # all are Tensors

    def backward(self, gradient: Self | None = None, retain_graph: bool = False) -> Self:
        """Add gradients to `grad` of the tensors with requires_grad that this one depends on.

        Where no tensor asks for it, all float tensors that the user made get theirs.

        Args:
            gradient: what to multiply with, in this tensor's shape; needed unless it is a scalar.
            retain_graph: keep the history of values in memory, to differentiate them again.

        Returns:
            This tensor.

        Raises:
            UserError: there is nothing to differentiate by, or the history is gone.
        """
        with history(False):
            tape.backward(self, gradient, retain_graph)
        return self

    # --- modes -------------------------------------------------------------------------------

    class train(ContextDecorator):
        """Training mode while a block (or a decorated function) runs.

        Example:
            >>> with Tensor.train():
            ...     Tensor.training
            True
        """

        def __init__(self, mode: bool = True) -> None:
            self._mode = mode
            self._before: list[bool] = []

        def __enter__(self) -> None:
            self._before.append(Tensor.training)
            Tensor.training = self._mode

        def __exit__(self, *error: object) -> None:
            Tensor.training = self._before.pop()

    class no_grad(ContextDecorator):
        """No history is recorded while a block (or a decorated function) runs."""

        def __init__(self, mode: bool = True) -> None:
            self._mode = mode
            self._contexts: list[Any] = []

        def __enter__(self) -> None:
            context = history(not self._mode)
            context.__enter__()
            self._contexts.append(context)

        def __exit__(self, *error: object) -> None:
            self._contexts.pop().__exit__(*error)

    inference_mode = no_grad


def _rebuilt(
    kind: type[Tensor],
    data: bytes,
    shape: tuple[int, ...],
    dtype: DType,
    device: str,
    wants_gradient: bool | None,
) -> Tensor:
    """The tensor whose elements are `data`."""
    return kind._over(host.upload(data, shape, dtype, device)).requires_grad_(wants_gradient)


def _read(data: Any, dtype: DType | None, device: str) -> Version:
    """Data of the host as a version."""
    if type(data).__module__ == "numpy" and type(data).__name__ == "ndarray":
        return host.from_array(data, dtype, device)  # the commonest, first
    if data is None:
        data = []
    if isinstance(data, bool | int | float) and not hasattr(data, "dtype"):
        return _read_number(data, dtype, device)
    if complexes.is_number(data):
        raise complexes.refused("Tensor", repr(data))
    if isinstance(data, Variable):
        return Version(data.node, device, bindings=data.bindings)
    if isinstance(data, list | tuple):
        return _read_list(data, dtype, device)
    if isinstance(data, range):
        return host.from_nested(list(data), dtype, device)
    if isinstance(data, Path):
        return host.from_buffer_protocol(data.read_bytes(), dtype, device)
    if any(hasattr(data, name) for name in ("__array_interface__", "__array__", "__dlpack__")):
        return _read_array(data, dtype, device)
    try:
        memoryview(data)
    except TypeError as error:
        raise DTypeError(
            "Tensor: there is no way to read this",
            got=f"{type(data).__name__}",
            expected="numbers, lists, arrays, bytes or a tensor",
        ) from error
    return host.from_buffer_protocol(data, dtype, device)


def _read_array(data: Any, dtype: DType | None, device: str) -> Version:
    """A copy of an array of NumPy or another library."""
    array, bits_of = foreign.readable(data)
    if bits_of is None:
        return host.from_array(array, dtype, device)
    return foreign.copied(array, bits_of, device)


def _read_list(data: Any, dtype: DType | None, device: str) -> Version:
    first = data
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if isinstance(first, TensorBase):
        whole: Any = _stacked(data)
        whole = whole.to(device)
        return whole._storage.version  # type: ignore[no-any-return]  # `whole` is a Tensor
    if getattr(first, "ndim", 0):
        return host.from_array(data, dtype, device)
    return host.from_nested(data, dtype, device)


def _stacked(data: Any) -> Any:
    if isinstance(data, list | tuple):
        if not data:
            raise ShapeError("Tensor: an empty list lies beside tensors", expected="no empty lists")
        parts = [_stacked(each) for each in data]
        return parts[0].stack(*parts[1:])
    return data if isinstance(data, TensorBase) else Tensor(data)


def _read_number(value: bool | int | float, dtype: DType | None, device: str) -> Version:
    kind = dtype_of_number(value) if dtype is None else dtype
    if isinstance(value, float) and not kind.is_float and math.isfinite(value):
        value = int(value) if not kind.is_bool else bool(value)
    check_fits(kind, value, "Tensor")
    return Version(const(value, kind), device)


def _constant_array(version: Version, shape: tuple[int, ...]) -> Any:
    import numpy as np

    kind = version.node.type.dtype
    value = dtypes.decode(version.node.attrs.bits, kind)
    has_name = not kind.is_float or kind.name in ("float16", "float32", "float64")
    return np.full(shape, value, dtype=np.dtype(kind.name if has_name else "float32"))


def _trim_tracebacks(cls: type) -> None:
    """Let errors of all public methods end at the user's line, and name what is wrong."""
    seen: set[str] = set()  # what a class further down has of its own
    for base in cls.__mro__:
        members = list(vars(base).items())
        if base.__module__.startswith("tilework."):
            for name, member in members:
                is_public = not name.startswith("_") or name in _OPERATORS
                if is_public and name not in seen:
                    _wrap(cls, name, member)
        seen.update([name for name, _ in members])


def _wrap(cls: type, name: str, member: Any) -> None:
    if isinstance(member, classmethod | staticmethod):
        setattr(cls, name, type(member)(told(member.__func__)))
    elif isinstance(member, FunctionType):
        setattr(cls, name, told(member))


_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
    "lshift", "rshift",
)  # fmt: skip
_OPERATORS = frozenset(f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i")) | {
    "__getitem__", "__setitem__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
    "__neg__", "__invert__", "__init__", "__bool__", "__len__", "__iter__",
    "__int__", "__float__", "__index__", "__complex__", "__contains__", "__format__", "__round__",
    "__divmod__", "__rdivmod__", "__delitem__", "__array__", "__dlpack__",
}  # fmt: skip

_trim_tracebacks(Tensor)
explain_missing((Tensor,), OF_TENSORS)
