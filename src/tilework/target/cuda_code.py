"""The form in which code for an NVIDIA GPU travels: what a launch must know, then the cubin."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, fields
from typing import Final

from tilework.base.errors import ModelFileError

_MAGIC: Final = b"TWCUDA01"
_LENGTH: Final = struct.Struct("<I")
#: The second entry point of a kernel, for buffers that do not start at 16 bytes.
ANY_SUFFIX: Final = "_any"
ALIGNMENT_BYTES: Final = 16
#: What the first line of a source begins with; then comes the head without its `arch`, as JSON.
SOURCE_HEAD: Final = "//tilework "


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaHead:
    """What a launch of a kernel must know.

    Attributes:
        name: The entry point.
        arch: What the cubin was made for, such as `sm_90a`.
        threads: Threads of a block.
        shared: Bytes of shared memory of a block, beside what the code declares.
        scratch: Bytes of the card's memory that each block gets where shared memory is too small.
        buffers: How many buffers the kernel takes.
        variables: How many variables.
        has_any: Whether there is a second entry point, for buffers that start anywhere.
    """

    name: str
    arch: str
    threads: int
    shared: int
    scratch: int
    buffers: int
    variables: int
    has_any: bool


def pack_code(head: CudaHead, cubin: bytes) -> bytes:
    """Return head and cubin as one piece of code."""
    text = json.dumps(asdict(head), separators=(",", ":")).encode()
    return _MAGIC + _LENGTH.pack(len(text)) + text + cubin


def unpack_code(data: bytes) -> tuple[CudaHead, bytes]:
    """Return what `pack_code` was given.

    Raises: ModelFileError when the data is malformed.
    """
    start = len(_MAGIC) + _LENGTH.size
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
        raise ModelFileError("CUDA: this is no code for an NVIDIA GPU", got=repr(data[:16]))
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    try:
        head = json.loads(data[start : start + length])
    except ValueError as error:
        raise ModelFileError("CUDA: the code's head is malformed", got=str(error)) from error
    if not isinstance(head, dict):
        raise ModelFileError("CUDA: the code's head is malformed", got=type(head).__name__)
    kinds = {"name": str, "arch": str, "has_any": bool}
    for row in fields(CudaHead):
        value = head.get(row.name)
        if type(value) is not kinds.get(row.name, int):
            raise ModelFileError(f"CUDA: field {row.name} is malformed", got=repr(value))
    if set(head) != {row.name for row in fields(CudaHead)}:
        raise ModelFileError("CUDA: the code's head has unknown fields", got=sorted(head))
    return CudaHead(**head), data[start + length :]
