"""Files in the safetensors format: names, dtypes and shapes in a header, then the bytes.

A file is written beside its place and put there by a rename, so a reader sees the old file or the
new one.  What was loaded is memory of the file that was opened: it never changes when a new file
takes the place, and is copied to a device when it is first written to.

The format has no 4-bit integers: they are bytes (U8) there, and `tilework.packed` in the metadata
says which names are to be seen as what.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tilework import dtypes
from tilework.base.errors import DTypeError, ModelFileError, UnsupportedError
from tilework.base.integers import product
from tilework.dtypes import DType
from tilework.engine.device import Device
from tilework.runtime.lease import Lease, LeaseKind
from tilework.tensor import host
from tilework.tensor.packed import packed_shape
from tilework.tensor.packed_tensor import made
from tilework.tensor.tensor import Tensor
from tilework.tensor.version import from_buffer

#: The names of dtypes in files.
safe_dtypes: dict[str, DType] = {
    "BOOL": dtypes.bool_, "I8": dtypes.int8, "U8": dtypes.uint8, "I16": dtypes.int16,
    "U16": dtypes.uint16, "I32": dtypes.int32, "U32": dtypes.uint32, "I64": dtypes.int64,
    "U64": dtypes.uint64, "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32,
    "F64": dtypes.float64, "F8_E4M3": dtypes.fp8e4m3, "F8_E5M2": dtypes.fp8e5m2,
}  # fmt: skip
_CODES = {dtype: name for name, dtype in safe_dtypes.items()}
_FLOAT4 = "F4"
_PACKED_KEY = "tilework.packed"
_MOST_HEADER_BYTES = 100 << 20
_ALIGNMENT = 64


def safe_save(
    tensors: Mapping[str, Tensor], fn: str | Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a file.

    Args:
        tensors: names and values.
        fn: the file; replaced in one go if it exists.
        metadata: text to put beside them.

    Raises:
        OSError: the file can't be written; an old file is as it was.
        DTypeError: a name is no text, or a value no tensor.

    Example:
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
        >>> safe_save({"w": Tensor([1.0, 2.0])}, path)
        >>> safe_load(path)["w"].tolist()
        [1.0, 2.0]
    """
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise DTypeError(
                "safe_save: this is no tensor with a name",
                got=f"{type(value).__name__} under {name!r}",
                expected="tensors by names",
            )
    if tensors:
        Tensor.realize(*tensors.values())
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = {str(key): str(value) for key, value in metadata.items()}
    offset = 0
    packed: dict[str, Any] = {}
    for name, tensor in tensors.items():
        size, shape = tensor.nbytes(), tensor._sizes()
        code = _CODES.get(tensor.dtype, "U8")
        if tensor.dtype is dtypes.fp4e2m1 and product(shape) == 2 * size:
            code = _FLOAT4
        elif tensor.dtype.is_packed:
            packed[name] = [tensor.dtype.name, shape]
            shape = packed_shape(shape)
        header[name] = {
            "dtype": code,
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    if packed:
        header.setdefault("__metadata__", {})[_PACKED_KEY] = json.dumps(packed)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-(len(head) + 8) % _ALIGNMENT)
    _write_atomically(Path(fn), len(head).to_bytes(8, "little") + head, tensors)


def _write_atomically(path: Path, head: bytes, tensors: Mapping[str, Tensor]) -> None:
    """Write to a file beside `path`, then rename it; nothing is left over on failure."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(head)
            for tensor in tensors.values():
                file.write(tensor_bytes(tensor))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def tensor_bytes(tensor: Tensor) -> bytes:
    """The elements of a realized tensor as bytes, row-major, in its own dtype."""
    if tensor.dtype.is_packed:
        return tensor_bytes(tensor._packed[0])
    source = tensor.contiguous().realize()
    version = source._storage.version
    assert version.buffer is not None
    return bytes(host.contents(version)[: source.nbytes()])


def safe_load(fn: str | Path | Tensor) -> dict[str, Tensor]:
    """The tensors of a file, mapped into memory: bytes are read when they are used.

    Args:
        fn: the file, or a tensor of its bytes (uint8).

    Raises:
        ModelFileError: it is no safetensors file, or a damaged one.
    """
    data = map_file(fn)
    header, start = _read_header(data, str(fn))
    found: dict[str, Tensor] = {}
    source = Source(data, str(fn))
    for name, row in header.items():
        if name != "__metadata__":
            dtype, shape, begin, end = _checked(name, row, len(data) - start)
            kind = dtypes.uint8 if dtype.is_packed else dtype
            sizes = packed_shape(shape) if dtype.is_packed else shape
            found[name] = source.tensor(start + begin, end - begin, kind, sizes)
            if dtype.is_packed:
                found[name] = made(found[name], dtype, shape)
    for name, dtype, shape in _packed_rows(header, str(fn)):
        if name not in found or found[name].shape != packed_shape(shape):
            raise ModelFileError(
                f"safe_load: {name!r} does not hold what the metadata says",
                got=f"{dtype.name} of shape {shape}",
            )
        found[name] = made(found[name], dtype, shape)
    return found


def _packed_rows(header: dict[str, Any], where: str) -> list[tuple[str, DType, tuple[int, ...]]]:
    """The names that are to be seen in a packed dtype, with it and their shape."""
    try:
        rows = json.loads(header.get("__metadata__", {}).get(_PACKED_KEY, "{}"))
        found = [(name, dtypes.by_name(kind), tuple(shape)) for name, (kind, shape) in rows.items()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            "safe_load: the metadata is damaged", got=f"{where}: {_PACKED_KEY}"
        ) from error
    for _, kind, shape in found:
        if not kind.is_packed or not all(type(size) is int and size >= 0 for size in shape):
            raise ModelFileError(
                "safe_load: the metadata is damaged", got=f"{where}: {kind.name} {shape}"
            )
    return found


def safe_load_metadata(fn: str | Path) -> dict[str, Any]:
    """The header of a file: for each name dtype, shape and place; and `__metadata__`.

    Raises:
        ModelFileError: it is no safetensors file.
    """
    return _read_header(map_file(fn), str(fn))[0]


def map_file(fn: str | Path | Tensor) -> memoryview:
    """The bytes of a file, mapped into memory; or those of a tensor."""
    if isinstance(fn, Tensor):
        return memoryview(tensor_bytes(fn))
    with open(fn, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _read_header(data: memoryview, where: str) -> tuple[dict[str, Any], int]:
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else -1
    if not 0 <= size <= min(len(data) - 8, _MOST_HEADER_BYTES):
        raise ModelFileError(
            "safe_load: this is no safetensors file",
            got=f"{where}, {len(data)} bytes, header of {size}",
        )
    try:
        header = json.loads(bytes(data[8 : 8 + size]))
    except ValueError as error:
        raise ModelFileError("safe_load: the header is damaged", got=f"{where}: {error}") from error
    if not isinstance(header, dict):
        raise ModelFileError("safe_load: the header is damaged", got=f"{where}: not an object")
    return header, 8 + size


def _checked(name: str, row: Any, room: int) -> tuple[DType, tuple[int, ...], int, int]:
    """One row of the header; every field is checked before it is used."""
    try:
        code, shape = row["dtype"], tuple(row["shape"])
        begin, end = row["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise ModelFileError(f"safe_load: the row of {name!r} is damaged", got=f"{row}") from error
    dtype = dtypes.fp4e2m1 if code == _FLOAT4 else safe_dtypes.get(code)
    if dtype is None:
        raise UnsupportedError(
            f"safe_load: {name!r} has a dtype that is not known",
            got=f"{code}",
            expected=", ".join(safe_dtypes),
        )
    numbers = (*shape, begin, end)
    is_whole = all(isinstance(number, int) and number >= 0 for number in numbers)
    bits = (
        product(shape) * (dtype.bits if dtype.is_packed else 8 * dtype.itemsize) if is_whole else 0
    )
    if not is_whole or not begin <= end <= room or 8 * (end - begin) != bits:
        raise ModelFileError(
            f"safe_load: the row of {name!r} contradicts the file",
            got=f"{row}, {room} bytes of data",
            expected=f"{shape} elements of {dtype.itemsize} bytes inside the data",
        )
    return dtype, shape, begin, end


def _let_go(data: memoryview) -> None:
    """The end of a loan: the map goes with the last reference to it, which this one is part of."""


class Source:
    """Memory of a mapped file, lent to buffers of the host's device."""

    def __init__(self, data: memoryview, where: str) -> None:
        self._data = data
        self._where = where
        self._address = 0
        if len(data):
            import numpy as np

            self._address = int(np.frombuffer(data, dtype=np.uint8).ctypes.data)

    def tensor(self, begin: int, size: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        """The tensor at bytes `begin` to `begin + size`."""
        device = Device.canonicalize(None)
        opened = Device[device]
        address = self._address + begin
        if not size or not opened.is_host_memory or address % dtype.itemsize:
            part = self._data[begin : begin + size]
            return Tensor._over(host.upload(part, shape, dtype, device))
        lease = Lease(
            address,
            size,
            kind=LeaseKind.FILE,
            owner=self._where,
            on_release=partial(_let_go, self._data),
            is_readonly=True,
        )
        return Tensor._over(from_buffer(opened.map(lease), device, shape, dtype))
