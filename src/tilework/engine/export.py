"""A captured program in one file, and back.

The file holds object code, the launch plan, constants and a description of inputs and outputs; a
machine without any compiler runs it.  Nothing in it is executed on loading, every byte is covered
by a checksum, and constants are mapped, not read.  `docs/export-format.md` describes the layout.

    write_export(path, program, signature)        # signature: plain data of the layer above
    program, signature = read_export(path)
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilework.backends.native import native_object, provide_native_object
from tilework.base import faults
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.engine.capture import CapturedProgram
from tilework.engine.compile import CompiledKernel, kernel_from_head
from tilework.engine.device import Device
from tilework.engine.link import KernelCall, Operand, Step, VariableBounds
from tilework.runtime.hostos import host_os
from tilework.runtime.lease import Lease, LeaseKind
from tilework.target.features import AARCH64, X86_64, missing_features

if TYPE_CHECKING:
    from tilework.runtime.buffer import Buffer
    from tilework.target.spec import TargetSpec

MAGIC: Final = b"TWEXPORT"
VERSION: Final = 1
ALIGNMENT: Final = 64
PAGE: Final = 4096
#: magic, version, bytes of the description, bytes of the data, checksums of both.
_HEADER: Final = struct.Struct("<8sIIQQ32s32s")
_MAX_DESCRIPTION: Final = 1 << 30
_NATIVE: Final = frozenset({X86_64, AARCH64})


# --- writing --------------------------------------------------------------------------------------


class _Data:
    """The data section: blobs with their places."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, blob: bytes | memoryview, alignment: int = ALIGNMENT) -> list[int]:
        """Append a blob and return [offset, size]."""
        gap = -self.size % alignment
        self.parts.append(bytes(gap))
        place = [self.size + gap, len(blob)]
        self.parts.append(bytes(blob))
        self.size = place[0] + place[1]
        return place


def write_export(path: str | os.PathLike[str], program: CapturedProgram, signature: Any) -> None:
    """Write a program to a file, whole or not at all.

    Args:
        path: the file; one that exists is replaced.
        program: what to write; held buffers become constants, written ones initial state.
        signature: plain data that `read_export` gives back.

    Raises: UnsupportedError when a part of the program is not for the CPU.
    """
    # Imported here: whoever loads a file needs no code generator.
    from tilework.codegen.decompose.transcendental import choices

    isa, features, functions = "", frozenset[str](), dict[str, str]()
    for spec in _targets_of(program):
        isa, features, functions = spec.isa, features | spec.features, functions | choices(spec)
    if program.packed is not None:
        program.packed.refresh()
    data = _Data()
    used = {o.slot for s in program.steps if isinstance(s, KernelCall) for o in s.operands}
    constants: list[dict[str, Any]] = []
    for number, buffer in enumerate(program.held):
        slot = program.num_inputs + number
        # What is only read in a packed copy need not travel.
        content = Device["CPU"].view(buffer) if slot in used else b""
        place = data.add(content, PAGE if number == 0 else ALIGNMENT)
        constants.append({"place": place, "is_written": slot in program.written})
    kernels: dict[str, int] = {}
    heads: list[dict[str, object]] = []
    steps: list[list[Any]] = []
    for step in program.steps:
        if not isinstance(step, KernelCall):
            raise UnsupportedError("export: copies between devices cannot be exported")
        if step.code.key not in kernels:
            kernels[step.code.key] = len(heads)
            heads.append({**step.code.head(), "place": data.add(step.code.data)})
        operands = [[o.slot, o.offset_bytes, o.size_bytes] for o in step.operands]
        steps.append([kernels[step.code.key], operands, step.is_serial])
    description = {
        "isa": isa,
        "features": sorted(features),
        "pool": data.add(native_object(isa)),
        "kernels": heads,
        "steps": steps,
        "num_inputs": program.num_inputs,
        "constants": constants,
        "outputs": [size for _, size in program.outputs],
        "arenas": [size for _, size in program.arenas],
        "variables": [[row.name, row.minimum, row.maximum] for row in program.variables],
        "functions": functions,
        "signature": signature,
    }
    _write(Path(path), json.dumps(description, separators=(",", ":")).encode(), data)


def _targets_of(program: CapturedProgram) -> list[TargetSpec]:
    names = {step.device for step in program.steps if isinstance(step, KernelCall)}
    found: list[TargetSpec] = []
    for name in sorted(names) or ["CPU"]:
        spec = Device[name].spec
        if spec.isa not in _NATIVE or not Device[name].is_host_memory:
            raise UnsupportedError(
                f"export: programs of {name} cannot be exported", expected="programs of the CPU"
            )
        found.append(spec)
    return found


def _write(path: Path, description: bytes, data: _Data) -> None:
    hasher = hashlib.blake2b(digest_size=32)
    for part in data.parts:
        hasher.update(part)
    checksum = hashlib.blake2b(description, digest_size=32).digest()
    header = _HEADER.pack(MAGIC, VERSION, len(description), data.size, 0, checksum, hasher.digest())
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(header)
            file.write(description)
            file.write(bytes(-(len(header) + len(description)) % PAGE))
            for part in data.parts:
                file.write(part)
            faults.hit("export.write")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


# --- reading --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _File:
    """A mapped file whose checksums are right."""

    description: dict[str, Any]
    view: memoryview  # of the data
    mapping: mmap.mmap

    def blob(self, place: object) -> memoryview:
        """Return the bytes at [offset, size].  Raises: ModelFileError."""
        offset, size = _numbers(place, 2, "a place")
        if offset + size > len(self.view):
            raise _malformed("a place reaches outside of the data", place)
        return self.view[offset : offset + size]


def read_export(path: str | os.PathLike[str]) -> tuple[CapturedProgram, Any]:
    """Read what `write_export` wrote; no compiler is needed.

    Raises: ModelFileError when the file is no export, damaged, or contradicts itself;
    UnsupportedError when this processor lacks what the code needs.
    """
    file = _open(Path(path))
    description = file.description
    _check_target(description)
    isa = description["isa"]
    provide_native_object(isa, bytes(file.blob(description.get("pool"))))
    kernels = [
        kernel_from_head(
            f"export;{hashlib.blake2b(file.blob(head.get('place')), digest_size=20).hexdigest()}",
            head,
            bytes(file.blob(head.get("place"))),
        )
        for head in _list(description, "kernels", dict)
    ]
    held = _held(file)
    (num_inputs,) = _numbers([description.get("num_inputs")], 1, "num_inputs")
    outputs = _numbers(description.get("outputs"), None, "outputs")
    arenas = _numbers(description.get("arenas"), None, "arenas")
    sizes = [None] * num_inputs + [buffer.size_bytes for buffer in held] + outputs + arenas
    steps = [_step(row, kernels, sizes) for row in _list(description, "steps", list)]
    variables = tuple(_variable(row) for row in _list(description, "variables", list))
    name = "CPU"
    program = CapturedProgram(
        tuple(steps),
        num_inputs,
        tuple(held),
        tuple((name, size) for size in outputs),
        tuple((name, size) for size in arenas),
        variables,
    )
    _check_functions(description.get("functions"))
    return program, description.get("signature")


def _check_functions(functions: Any) -> None:
    """Which elementary functions are the processor's own: for people, so it must be readable."""
    is_table = isinstance(functions, dict) and all(
        isinstance(name, str) and choice in ("native", "lowered")
        for name, choice in functions.items()
    )
    if not is_table:
        raise _malformed("it does not say how elementary functions are computed", functions)


def functions_of(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return how a file computes each elementary function, as `op/dtype`: `native` or `lowered`.

    Raises: ModelFileError when the file is no export, or damaged.
    """
    functions = _open(Path(path)).description.get("functions")
    _check_functions(functions)
    return dict(functions or {})


def _open(path: Path) -> _File:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _HEADER.size:
            raise _malformed("it is too short", f"{size} bytes")
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = memoryview(mapping)
    magic, version, length, data_size, reserved, checksum, data_checksum = _HEADER.unpack_from(
        whole
    )
    if magic != MAGIC:
        raise _malformed("it does not begin like one", magic)
    if version != VERSION or reserved:
        raise UnsupportedError(
            "export: the file has a format that this version cannot read",
            got=f"format {version}",
            expected=f"format {VERSION}",
            try_="export it again with this version",
        )
    start = -(-(_HEADER.size + length) // PAGE) * PAGE
    if length > _MAX_DESCRIPTION or start + data_size != size:
        raise _malformed("its size is not what it says", f"{size} bytes")
    text = whole[_HEADER.size : _HEADER.size + length]
    if any(whole[_HEADER.size + length : start]):
        raise _malformed("there is something between its sections")
    view = whole[start:]
    if hashlib.blake2b(text, digest_size=32).digest() != checksum:
        raise _malformed("the checksum of its description is wrong")
    if hashlib.blake2b(view, digest_size=32).digest() != data_checksum:
        raise _malformed("the checksum of its data is wrong")
    try:
        description = json.loads(bytes(text))
    except ValueError as error:
        raise _malformed("its description is not JSON", error) from error
    if not isinstance(description, dict):
        raise _malformed("its description is no object")
    return _File(description, view, mapping)


def _check_target(description: dict[str, Any]) -> None:
    isa, features = description.get("isa"), description.get("features")
    if not isinstance(isa, str) or not isinstance(features, list):
        raise _malformed("the target is malformed", isa)
    host = host_os()
    lacking = missing_features(map(str, features), host.cpu_features())
    if isa != host.isa() or lacking:
        raise UnsupportedError(
            "export: this processor cannot run the file",
            got=f"{isa} with {', '.join(lacking) or 'the features of this machine'}",
            expected=host.isa(),
            try_="export it again on, or for, this machine",
        )


def _held(file: _File) -> list[Buffer]:
    """Constants are views of the mapped file; state is copied, since it will be written."""
    rows = _list(file.description, "constants", dict)
    if not rows:
        return []
    device = Device["CPU"]
    address = _address_of(file.view)
    lease = Lease(
        address,
        len(file.view),
        kind=LeaseKind.FILE,
        owner="export",
        on_release=file.view.release,
        is_readonly=True,
    )
    mapped = device.map(lease)
    held: list[Buffer] = []
    for row in rows:
        offset, size = _numbers(row.get("place"), 2, "a place")
        blob = file.blob([offset, size])
        if row.get("is_written"):
            buffer = device.allocate(size)
            device.copy_in(buffer, blob)
        else:
            buffer = mapped.view(offset, size)
        held.append(buffer)
    return held


def _address_of(view: memoryview) -> int:
    """Return where a read-only view lies; ctypes alone cannot say for memory it may not write."""
    import ctypes

    class _View(ctypes.Structure):
        _fields_ = (  # the start of CPython's Py_buffer
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.py_object),
            ("len", ctypes.c_ssize_t),
            ("rest", ctypes.c_byte * 256),
        )

    found = _View()
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes = (ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int)
    release.argtypes = (ctypes.POINTER(_View),)
    get(view, ctypes.byref(found), 0)
    address = int(found.buf or 0)
    release(ctypes.byref(found))
    return address


def _step(row: list[Any], kernels: Sequence[CompiledKernel], sizes: Sequence[int | None]) -> Step:
    if len(row) != 3 or not isinstance(row[1], list) or not isinstance(row[2], bool):
        raise _malformed("a step is malformed", row)
    (number,) = _numbers([row[0]], 1, "a kernel")
    if number >= len(kernels):
        raise _malformed("a step names no kernel", number)
    operands: list[Operand] = []
    for item in row[1]:
        slot, offset, size = _numbers(item, 3, "an operand")
        limit = sizes[slot] if slot < len(sizes) else 0
        if slot >= len(sizes) or (limit is not None and offset + size > limit):
            raise _malformed("an operand reaches outside of its memory", item)
        operands.append(Operand(slot, offset, size))
    if len(operands) != kernels[number].num_buffers:
        raise _malformed("a step has too few or too many operands", len(operands))
    return KernelCall("CPU", kernels[number], tuple(operands), row[2])


def _variable(row: list[Any]) -> VariableBounds:
    if len(row) != 3 or not isinstance(row[0], str):
        raise _malformed("a variable is malformed", row)
    least, most = row[1], row[2]
    if not isinstance(least, int) or not isinstance(most, int) or least > most:
        raise _malformed("the bounds of a variable are malformed", row)
    return VariableBounds(row[0], least, most)


def _list(description: dict[str, Any], name: str, kind: type) -> list[Any]:
    found = description.get(name)
    if not isinstance(found, list) or not all(isinstance(item, kind) for item in found):
        raise _malformed(f"the list {name} is malformed", type(found).__name__)
    return found


def _numbers(value: object, count: int | None, what: str) -> list[int]:
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise _malformed(f"{what} is malformed", value)
    for item in value:
        if not isinstance(item, int) or isinstance(item, bool) or item < 0:
            raise _malformed(f"{what} is malformed", value)
    return list(value)


def _malformed(what: str, got: object = None) -> ModelFileError:
    return ModelFileError(
        f"export: the file is damaged or not an export: {what}",
        got=None if got is None else repr(got)[:100],
    )
