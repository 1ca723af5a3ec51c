"""Memory shared with other libraries: lent to tensors, and lent by them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UnsupportedError
from tilework.base.integers import product
from tilework.engine.device import Device
from tilework.runtime.group import is_group
from tilework.runtime.lease import Lease, LeaseKind
from tilework.tensor import complexes, host
from tilework.tensor.variable import evaluate
from tilework.tensor.version import Chain, Version, from_buffer

if TYPE_CHECKING:
    import numpy

    from tilework.dtypes import DType

#: Dtypes of PyTorch that NumPy lacks: the name of the integers with the same bits, and ours.
_WITHOUT_NUMPY: Final = {
    "torch.bfloat16": ("uint16", dtypes.bfloat16),
    "torch.float8_e4m3fn": ("uint8", dtypes.fp8e4m3),
    "torch.float8_e5m2": ("uint8", dtypes.fp8e5m2),
}


def borrowed(
    address: int,
    shape: Sequence[int],
    dtype: DType,
    device: str,
    keeper: object = None,
    is_readonly: bool = False,
    on_release: Callable[[], object] | None = None,
) -> Version:
    """A version whose memory somebody else owns.

    Args:
        address: the first byte.
        shape: sizes; elements lie row-major without gaps.
        dtype: of the elements.
        device: where the memory is.
        keeper: an object to keep alive as long as the memory is used.
        is_readonly: a write then goes to a copy of the tensor's own.
        on_release: called once the memory is used no more.

    Raises:
        ShapeError: a size is negative, or the address is not aligned to the dtype.
        UnsupportedError: the device cannot use memory of others.
    """
    if any(size < 0 for size in shape) or address % max(dtype.itemsize, 1):
        raise ShapeError(
            "from_blob: this is no memory of such elements",
            got=f"address {address:#x}, shape {tuple(shape)}",
            expected=f"sizes of at least 0 and an address that {dtype.itemsize} divides",
        )
    opened = Device[device]
    size = product(shape) * dtype.itemsize
    if not opened.is_host_memory:
        raise UnsupportedError(
            f"from_blob: {device} cannot use memory of the host", try_="Tensor(data, device=...)"
        )
    if not size:
        return host.upload(b"", shape, dtype, device)
    lease = Lease(
        address,
        size,
        kind=LeaseKind.HOST,
        owner="from_blob",
        on_release=partial(_let_go, keeper, on_release),
        is_readonly=is_readonly,
    )
    return from_buffer(opened.map(lease), device, tuple(shape), dtype)


def _let_go(keeper: object, on_release: Callable[[], object] | None) -> None:
    """The end of a loan: `keeper` goes with the last reference to it, which this one is part of."""
    if on_release is not None:
        on_release()


def borrowed_array(data: Any, device: str) -> Version:
    """A version over the memory of an array of another library, or a copy where it must be.

    Raises:
        DTypeError: there is no dtype for its elements.
    """
    if not any(hasattr(data, name) for name in ("__dlpack__", "__array_interface__", "__array__")):
        raise DTypeError(
            "from_dlpack: this is no array",
            got=type(data).__name__,
            expected="an array of NumPy, PyTorch, JAX...",
            try_="Tensor(data) for lists and numbers",
        )
    array, dtype = readable(data)
    is_dense = bool(array.flags.c_contiguous) and array.dtype.isnative
    own = host.dtype_of_array(array) if dtype is None else dtype
    if not is_dense or not Device[device].is_host_memory or not array.size:
        return copied(array, own, device)
    return borrowed(array.ctypes.data, array.shape, own, device, array, not array.flags.writeable)


def copied(array: Any, dtype: DType, device: str) -> Version:
    """A version that holds the elements of an array; bytes in another order are put in ours."""
    import numpy as np

    native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    dense = np.ascontiguousarray(native)
    return host.upload(dense.reshape(-1).view(np.uint8).data, array.shape, dtype, device)


def readable(data: Any) -> tuple[numpy.ndarray[Any, Any], DType | None]:
    """An array of another library as one of NumPy over the same memory, where that can be.

    Returns:
        The array; and a dtype where NumPy lacks it and the array holds its bits as integers.
    """
    import numpy as np

    detach = getattr(data, "detach", None)
    values = data if detach is None else detach()  # PyTorch refuses to convert a history
    kind = getattr(values, "dtype", "")
    if type(values).__module__.startswith("numpy.ma") and np.ma.is_masked(values):
        raise DTypeError(
            "Tensor: a masked array has elements without a value",
            got=f"{int(np.ma.getmaskarray(values).sum())} masked of {values.size}",
            try_="array.filled(value), and the mask as a tensor of its own",
        )
    if complexes.is_named(kind):
        raise complexes.refused("Tensor", f"an array of {kind}")
    named = _WITHOUT_NUMPY.get(str(kind))
    is_torch = type(values).__module__.partition(".")[0] == "torch"
    if is_torch and values.layout is sys.modules["torch"].strided:
        # A part of a conjugate is its memory with a mark, which DLPack does not carry.
        values = values.resolve_neg()
    if named is not None and is_torch:
        integers = getattr(sys.modules["torch"], named[0])
        return values.cpu().view(integers).numpy(), named[1]
    if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray):
        try:
            return np.from_dlpack(values), None
        except (BufferError, RuntimeError, TypeError):
            return np.asarray(values), None  # of another device, or of a dtype of its own
    return np.asarray(values), None


class _Shown:
    """Memory of a device for NumPy; the array that is made of it keeps it alive."""

    def __init__(self, memory: memoryview, dtype: Any, shape: tuple[int, ...]) -> None:
        import numpy as np

        self._memory = memory
        flat = np.frombuffer(memory, dtype=dtype, count=product(shape))
        self.__array_interface__ = flat.reshape(shape).__array_interface__


def shared_array(
    version: Version, chain: Chain, bindings: Mapping[str, int] | None
) -> numpy.ndarray[Any, Any] | None:
    """A realized version seen through `chain` as an array over its very memory.

    None where the device is not the host, NumPy lacks the dtype, or the view needs a copy.
    """
    import numpy as np

    buffer, dtype = version.buffer, version.node.type.dtype
    has_name = not dtype.is_float or dtype.name in ("float16", "float32", "float64")
    if buffer is None or not has_name or is_group(version.device):
        return None
    if not Device[version.device].is_host_memory:
        return None
    if buffer.memory.is_readonly:
        return None
    values = {**(version.bindings or {}), **(bindings or {})}
    shape = tuple([evaluate(size, values) for size in version.node.type.shape])
    if not product(shape):
        return None
    view = Device[version.device].view(buffer)
    base = np.asarray(_Shown(view, np.dtype(dtype.name), shape))
    shown = base
    for op, attrs in chain:
        shown = host.see(shown, op, attrs, values)
    if not np.shares_memory(base, shown) or not shown.flags.writeable:
        return None
    buffer.memory.share()
    return shown
