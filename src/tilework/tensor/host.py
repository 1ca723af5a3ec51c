"""Data of the host: from Python values, arrays and buffers to memory of a device, and back."""

from __future__ import annotations

import array
import math
import struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.base.integers import product
from tilework.dtypes import DType
from tilework.engine import latency, world
from tilework.engine.capture import refuse_host_read
from tilework.engine.device import Device
from tilework.ir.ops import tensor
from tilework.runtime.group import BufferGroup, is_group, split_name
from tilework.schedule.shard import spec
from tilework.tensor import complexes
from tilework.tensor.promotion import check_fits
from tilework.tensor.variable import evaluate
from tilework.tensor.version import Chain, Version, from_buffer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy

    from tilework.runtime.buffer import Buffer

#: NumPy's names of dtypes; those of ml_dtypes too, which NumPy shows under their own names.
_NUMPY_NAMES = {
    "bool": dtypes.bool_, "int8": dtypes.int8, "uint8": dtypes.uint8, "int16": dtypes.int16,
    "uint16": dtypes.uint16, "int32": dtypes.int32, "uint32": dtypes.uint32,
    "int64": dtypes.int64, "uint64": dtypes.uint64, "float16": dtypes.float16,
    "float32": dtypes.float32, "float64": dtypes.float64, "bfloat16": dtypes.bfloat16,
    "float8_e4m3fn": dtypes.fp8e4m3, "float8_e5m2": dtypes.fp8e5m2,
}  # fmt: skip

#: Codes of the struct module, by which `array` and `memoryview` name what they hold.
_CODES = {
    dtypes.bool_: "?", dtypes.int8: "b", dtypes.uint8: "B", dtypes.int16: "h", dtypes.uint16: "H",
    dtypes.int32: "i", dtypes.uint32: "I", dtypes.int64: "q", dtypes.uint64: "Q",
    dtypes.float16: "e", dtypes.float32: "f", dtypes.float64: "d",
}  # fmt: skip
#: Positions that are divided at a time.
_CHUNK = 1 << 15
_DTYPE_OF_CODE = {code: dtype for dtype, code in _CODES.items()} | {
    "l": dtypes.int64 if struct.calcsize("l") == 8 else dtypes.int32,
    "L": dtypes.uint64 if struct.calcsize("L") == 8 else dtypes.uint32,
    "c": dtypes.uint8,
}


def upload(
    data: bytes | bytearray | memoryview, shape: Sequence[int], dtype: DType, device: str
) -> Version:
    """A version that holds a copy of `data`, row-major."""
    if type(device) is not str or is_group(device):
        return _upload_to_all(data, shape, dtype, device)
    view = data if type(data) is memoryview else memoryview(data)
    size = view.nbytes
    opened = Device[device]
    buffer = opened.allocate(size)
    if size:
        opened.copy_in(buffer, view if view.format == "B" else view.cast("B"))
    return from_buffer(buffer, device, tuple(shape), dtype)


def _upload_to_all(
    data: bytes | bytearray | memoryview, shape: Sequence[int], dtype: DType, devices: Any
) -> Version:
    """A copy on each of several devices."""
    name = Device.canonicalize(devices)
    versions = [upload(data, shape, dtype, each) for each in split_name(name)]
    if len(versions) == 1:
        return versions[0]
    parts = [version.buffer for version in versions if version.buffer is not None]
    return from_buffer(BufferGroup(parts), name, tuple(shape), dtype)


# --- Python values ---------------------------------------------------------------------------


def from_nested(data: Any, dtype: DType | None, device: str) -> Version:
    """A list or tuple of (lists of) numbers."""
    flat, shape = flatten(data)
    if dtype is None:
        dtype = _dtype_of_numbers(flat)
    return upload(pack(flat, dtype), shape, dtype, device)


def flatten(data: Any) -> tuple[list[Any], list[int]]:
    """The numbers of nested lists, and their shape.

    Raises:
        ShapeError: lists of one depth have different lengths.
        DTypeError: an element is not a number.
    """
    shape: list[int] = []
    level: list[Any] = [data]
    while level and isinstance(level[0], list | tuple):
        length = len(level[0])
        for item in level:
            if not isinstance(item, list | tuple) or len(item) != length:
                raise ShapeError(
                    "Tensor: the nested lists have different lengths",
                    got=f"at depth {len(shape)} a list of {length} beside {_describe(item)}",
                    expected="lists of one length at each depth",
                )
        shape.append(length)
        level = [inner for item in level for inner in item]
    for item in level:
        if isinstance(item, list | tuple):
            raise ShapeError(
                "Tensor: the nested lists have different depths",
                got=f"a number beside {_describe(item)}",
            )
    return [_as_number(item) for item in level], shape


def _describe(item: Any) -> str:
    return f"a list of {len(item)}" if isinstance(item, list | tuple) else repr(item)


def _as_number(item: Any) -> bool | int | float:
    if isinstance(item, bool | int | float):
        return item
    if complexes.is_number(item):
        raise complexes.refused("Tensor", f"the element {item!r}")
    convert = getattr(item, "item", None)
    if convert is not None:
        return _as_number(convert())
    raise DTypeError(
        "Tensor: an element is not a number",
        got=f"{item!r} of type {type(item).__name__}",
        expected="bool, int or float",
    )


def _dtype_of_numbers(flat: Sequence[bool | int | float]) -> DType:
    kinds = {type(item) for item in flat}
    if any(issubclass(kind, float) for kind in kinds) or not kinds:
        return dtypes.default_float
    if kinds == {bool}:
        return dtypes.bool_
    low, high = min(flat), max(flat)
    for dtype in (dtypes.int32, dtypes.int64, dtypes.uint64):
        if dtype.minimum <= low and high <= dtype.maximum:
            return dtype
    raise DTypeError(
        "Tensor: the integers fit no dtype", got=f"{low} to {high}", try_="dtype=dtypes.float64"
    )


def pack(flat: Sequence[bool | int | float], dtype: DType) -> bytes:
    """Numbers as the bytes of `dtype`.

    Raises:
        DTypeError: an integer does not fit.
    """
    if dtype.is_bool:
        return bytes([bool(item) for item in flat])
    if not dtype.is_float:
        for item in flat:
            if isinstance(item, float):
                _check_truncation(item, dtype)
            elif not dtype.minimum <= item <= dtype.maximum:
                check_fits(dtype, item, "Tensor")
        return array.array(_CODES[dtype], [int(item) for item in flat]).tobytes()
    if dtype is dtypes.float32 or dtype is dtypes.float64:
        return array.array(_CODES[dtype], flat).tobytes()
    bits = [dtypes.encode(item, dtype) for item in flat]
    return array.array("H" if dtype.bits == 16 else "B", bits).tobytes()


def places_of_true(mask: Any) -> Any:
    """The positions of the elements of an array that are not zero, one row each, in int64."""
    import numpy as np

    (flat,) = mask.reshape(-1).nonzero()
    if mask.ndim == 1:
        return flat.astype(np.int64, copy=False).reshape(-1, 1)
    found = np.empty((len(flat), mask.ndim), np.int64)
    # Unsigned numbers of 32 bits are divided in vectors.
    kind = np.uint32 if mask.size < 1 << 32 else np.uint64
    for start in range(0, len(flat), _CHUNK):  # what is divided stays in the cache
        rest = flat[start : start + _CHUNK].astype(kind)
        for axis in range(mask.ndim - 1, 0, -1):
            above = rest // kind(mask.shape[axis])
            rest -= above * kind(mask.shape[axis])
            found[start : start + _CHUNK, axis] = rest
            rest = above
        found[start : start + _CHUNK, 0] = rest
    return found


def _check_truncation(item: float, dtype: DType) -> None:
    if not math.isfinite(item) or not dtype.minimum <= int(item) <= dtype.maximum:
        check_fits(dtype, item, "Tensor")


# --- arrays and buffers ----------------------------------------------------------------------


def from_array(data: Any, dtype: DType | None, device: str) -> Version:
    """A NumPy array, or whatever NumPy can read; bytes in another order are put in ours."""
    import numpy as np

    try:
        values = np.asarray(data)
    except ValueError as error:
        raise ShapeError(
            "Tensor: the nested lists do not fit each other",
            got=_describe(data),
            expected="arrays of one shape at each depth",
        ) from error
    own = _known_dtypes.get(values.dtype) or dtype_of_array(values)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if dtype is not None and dtype is not own:
        values, own = _convert_array(values, own, dtype)
    # Row-major, whatever the strides are; a copy only where they are not.
    flat = np.ascontiguousarray(values).reshape(-1)
    return upload(flat.view(np.uint8).data, values.shape, own, device)


#: What `dtype_of_array` has found; NumPy makes the name of a dtype anew each time.
_known_dtypes: Final[dict[Any, DType]] = {}  # bounded by the dtypes that there are


def dtype_of_array(values: Any) -> DType:
    """The dtype of a NumPy array.

    Raises:
        DTypeError: there is none for it.
    """
    own = _NUMPY_NAMES.get(values.dtype.name)
    if values.dtype.kind == "c":
        raise complexes.refused("Tensor", f"an array of {values.dtype}")
    if own is None:
        raise DTypeError(
            "Tensor: there is no dtype for this array",
            got=f"an array of {values.dtype}",
            expected=", ".join(_NUMPY_NAMES),
            try_="convert it with .astype",
        )
    _known_dtypes[values.dtype] = own
    return own


def _convert_array(values: Any, own: DType, dtype: DType) -> tuple[Any, DType]:
    """Integers are checked, not wrapped; floats are left to the device, which rounds as we say."""
    import numpy as np

    if own.is_integer and dtype.is_integer and values.size:
        low, high = int(values.min()), int(values.max())
        if low < dtype.minimum or high > dtype.maximum:
            raise DTypeError(
                "Tensor: the integers do not fit",
                got=f"{low} to {high} into {dtype.name}",
                expected=f"{dtype.minimum} to {dtype.maximum}",
            )
        return values.astype(np.dtype(dtype.name)), dtype
    return values, own


def from_buffer_protocol(data: Any, dtype: DType | None, device: str) -> Version:
    """Anything that exports its bytes: bytes, array.array, memoryview, ctypes arrays."""
    view = memoryview(data)
    code = view.format.lstrip("@=") if view.format else "B"
    if code.startswith((">", "!")) and view.itemsize > 1:
        return from_array(data, dtype, device)
    own = _DTYPE_OF_CODE.get(code.lstrip("<>!"))
    if code.lstrip("<>!").startswith("Z"):
        raise complexes.refused("Tensor", f"a buffer of format {view.format}")
    if own is None:
        raise DTypeError("Tensor: there is no dtype for this buffer", got=f"format {view.format}")
    shape = view.shape if view.shape is not None else (view.nbytes // own.itemsize,)
    content = view.tobytes()  # row-major, whatever the strides are
    return upload(content, shape, own, device)


# --- back to the host ------------------------------------------------------------------------


def read_bytes(buffer: Buffer, device: str) -> bytearray:
    """A copy of the bytes of `buffer`, after all work on it."""
    data = bytearray(buffer.size_bytes)
    read_into(buffer, device, memoryview(data))
    return data


def read_into(buffer: Buffer, device: str, target: memoryview) -> None:
    """Copy the bytes of `buffer` to `target`, of the same size, after all work on it."""
    refuse_host_read("read")
    opened = Device[device]
    if device.startswith(world.PREFIX):
        world.read(opened, buffer, target)
        return
    watcher = latency.latest() if latency.active else None
    if watcher is not None:
        started = perf_counter_ns()
        opened.synchronize()
        waited = perf_counter_ns()
        opened.copy_out(buffer, target)
        watcher.note_read(waited - started, perf_counter_ns() - waited)
    elif buffer.size_bytes:
        opened.copy_out(buffer, target)
    else:
        opened.synchronize()


def contents(version: Version, values: Mapping[str, int] | None = None) -> bytearray:
    """The elements of a realized version as bytes, row-major; those of several devices together.

    Args:
        version: what is in memory.
        values: of the variables in its shape.
    """
    buffer = version.buffer
    assert buffer is not None
    if not isinstance(buffer, BufferGroup):  # over several devices one that is lost, and says so
        return read_bytes(buffer, split_name(version.device)[0])
    layout, kind = version.settled_layout(), version.node.type
    if spec.is_replicated(layout):
        rank = world.own_of_all(layout.devices)
        if rank is None:
            return read_bytes(buffer.parts[0], layout.devices[0])
        refuse_host_read("read")
        data = bytearray(buffer.size_bytes // len(buffer.parts))
        Device[layout.devices[rank]].copy_out(buffer.parts[rank], memoryview(data))
        return data
    import numpy as np

    shape = tuple([evaluate(size, values) for size in kind.shape])
    whole = np.zeros((*shape, kind.dtype.itemsize), dtype=np.uint8)
    for part, device, box in zip(buffer.parts, layout.devices, layout.boxes, strict=True):
        bounds = spec.numbers(box, shape)
        sizes = [stop - start for start, stop in bounds]
        own = np.frombuffer(
            read_bytes(part, device), dtype=np.uint8, count=product(sizes) * kind.dtype.itemsize
        )
        places = tuple([slice(start, stop) for start, stop in bounds])
        whole[places] = own.reshape(*sizes, kind.dtype.itemsize)
    return bytearray(whole.tobytes())


def as_array(
    version: Version, chain: Chain, bindings: Mapping[str, int] | None
) -> numpy.ndarray[Any, Any]:
    """A realized version seen through `chain`, as a NumPy array of its own.

    Floats that NumPy lacks (bfloat16, fp8) come as float32, which holds all their values.
    """
    import numpy as np

    assert version.buffer is not None
    dtype = version.node.type.dtype
    storage = "uint16" if dtype is dtypes.bfloat16 else dtype.name
    storage = "uint8" if storage.startswith("fp8") else storage
    values = {**(version.bindings or {}), **(bindings or {})}
    sizes = version.node.type.shape
    shape = tuple([s if type(s) is int else evaluate(s, values) for s in sizes])
    array_: Any = np.empty(shape, storage)
    if array_.nbytes == version.buffer.size_bytes and not is_group(version.device):
        read_into(version.buffer, version.device, array_.reshape(-1).view(np.uint8).data)
    else:  # memory for the greatest sizes of variables
        data = contents(version, values)
        array_ = np.frombuffer(data, dtype=storage, count=product(shape)).reshape(shape)
    for op, attrs in chain:
        array_ = see(array_, op, attrs, values)
    dense: Any = np.ascontiguousarray(array_).reshape(array_.shape) if chain else array_
    if dtype is dtypes.bfloat16:
        dense = (dense.astype(np.uint32) << 16).view(np.float32)
    elif storage != dtype.name and dtype is not dtypes.bfloat16:
        table = np.array([dtypes.decode(bits, dtype) for bits in range(256)], dtype=np.float32)
        dense = table[dense]
    dense = np.asarray(dense)  # arithmetic on an array of no axes gives a scalar
    found: numpy.ndarray[Any, Any] = dense if dense.flags.owndata else dense.copy()
    return found


def see(values: Any, op: Any, attrs: Any, bindings: Mapping[str, int]) -> Any:
    """A NumPy array seen through one movement op."""
    import numpy as np

    if op is tensor.RESHAPE or op is tensor.EXPAND:
        shape = tuple([evaluate(size, bindings) for size in attrs.shape])
        return values.reshape(shape) if op is tensor.RESHAPE else np.broadcast_to(values, shape)
    if op is tensor.PERMUTE:
        return values.transpose(attrs.axes)
    if op is tensor.SHRINK:
        cuts = [
            slice(evaluate(start, bindings), evaluate(stop, bindings), step)
            for start, stop, step in attrs.bounds
        ]
        return values[tuple(cuts)]
    if op is tensor.FLIP:
        return np.flip(values, attrs.axes)
    if op is tensor.DETACH:
        return values
    if op is tensor.WINDOW:
        return _see_windows(values, attrs, evaluate(attrs.count, bindings))
    raise UserError("numpy: this is not a view", got=op.name)


def _see_windows(values: Any, attrs: Any, count: int) -> Any:
    import numpy as np

    axis = attrs.axis
    positions = np.arange(count)[:, None] * attrs.stride
    taps = np.arange(attrs.size)[None, :] * attrs.dilation
    return np.take(values, positions + taps, axis=axis)
