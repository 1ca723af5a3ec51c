"""The form in which code for an NVIDIA GPU travels: what a launch must know, then the cubin."""

from __future__ import annotations

import json
import struct
from typing import Final

from tilework.base.errors import ModelFileError
from tilework.base.records import asdict, dataclass, fields

_MAGIC: Final = b"TWCUDA01"
_LENGTH: Final = struct.Struct("<I")
#: The second entry point of a kernel, for buffers that do not start at 16 bytes.
ANY_SUFFIX: Final = "_any"
ALIGNMENT_BYTES: Final = 16
#: What the first line of a source begins with; then comes the head without its `arch`, as JSON.
SOURCE_HEAD: Final = "//tilework "


#: What is known of an array that a copy engine moves, with the types of its fields.
_BOX_FIELDS: Final = {
    "slot": int,
    "dtype": str,
    "start_bytes": int,
    "sizes": list,
    "strides_bytes": list,
    "box": list,
    "swizzle_bytes": int,
    "steps": list,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """An array that a copy engine moves boxes of: which buffer, and how its elements lie there.

    Attributes:
        slot: Which buffer.
        dtype: The name of its dtype.
        start_bytes: Where in the buffer the array starts.
        sizes: Its extents, the axis whose elements lie side by side first.
        strides_bytes: From one element of an axis to the next.
        box: The extents of a box.
        swizzle_bytes: The width of the rows in which chunks of 16 bytes are permuted, or 0.
        steps: By how many places of each axis a box moves for each of its elements; () is 1.
    """

    slot: int
    dtype: str
    start_bytes: int
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    steps: tuple[int, ...] = ()


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
        is_persistent: Whether a block goes through many tasks: then there is one for each
            multiprocessor.
        boxes: The arrays that copy engines move; their descriptions follow the other arguments.
        widths: The bytes of an element of each buffer, joined by commas: addresses are multiples.
        waits: Whether the kernel waits by itself for the one before it, on cards that can start it
            earlier than that one ends.
    """

    name: str
    arch: str
    threads: int
    shared: int
    scratch: int
    buffers: int
    variables: int
    has_any: bool
    is_persistent: bool = False
    boxes: tuple[Box, ...] = ()
    widths: str = ""
    waits: bool = False


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
    kinds = {
        "name": str,
        "arch": str,
        "has_any": bool,
        "is_persistent": bool,
        "boxes": list,
        "widths": str,
        "waits": bool,
    }
    head.setdefault("waits", False)  # code of files that were written before kernels did
    for row in fields(CudaHead):
        value = head.get(row.name)
        if type(value) is not kinds.get(row.name, int):
            raise ModelFileError(f"CUDA: field {row.name} is malformed", got=repr(value))
    if set(head) != {row.name for row in fields(CudaHead)}:
        raise ModelFileError("CUDA: the code's head has unknown fields", got=sorted(head))
    head["boxes"] = tuple(map(box_from, head["boxes"]))
    return CudaHead(**head), data[start + length :]


def box_from(found: object) -> Box:
    """Return the array that a JSON object describes.  Raises: ModelFileError if it does not."""
    if not isinstance(found, dict) or set(found) != set(_BOX_FIELDS):
        raise ModelFileError("CUDA: the description of an array is malformed", got=repr(found))
    for name, kind in _BOX_FIELDS.items():
        value = found[name]
        numbers = value if kind is list and isinstance(value, list) else []
        if type(value) is not kind or any(type(number) is not int for number in numbers):
            raise ModelFileError(f"CUDA: field {name} of an array is malformed", got=repr(value))
    lists = {n: tuple(v) for n, v in found.items() if isinstance(v, list)}
    box = Box(**{**found, **lists})
    if not 1 <= len(box.sizes) == len(box.strides_bytes) == len(box.box) <= 5 or box.slot < 0:
        raise ModelFileError("CUDA: the description of an array is malformed", got=repr(found))
    if len(box.steps) not in (0, len(box.box)):
        raise ModelFileError("CUDA: the description of an array is malformed", got=repr(found))
    return box
