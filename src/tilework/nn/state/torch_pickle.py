"""Checkpoints that PyTorch wrote: a zip archive with a pickled tree and the bytes of storages.

The tree is read by a small interpreter of our own, which knows the shapes that such files have
(dictionaries, lists, numbers, text, tensors) and refuses everything else: nothing from the file is
ever imported or called.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tilework import dtypes
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.base.integers import product
from tilework.base.records import dataclass
from tilework.dtypes import DType
from tilework.engine.device import Device
from tilework.tensor import host
from tilework.tensor.tensor import Tensor

_STORAGES: Final[dict[str, DType]] = {
    "FloatStorage": dtypes.float32, "DoubleStorage": dtypes.float64, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool_, "UntypedStorage": dtypes.uint8,
}  # fmt: skip
_DTYPES: Final[dict[str, DType]] = {
    "float32": dtypes.float32, "float64": dtypes.float64, "float16": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "int64": dtypes.int64, "int32": dtypes.int32,
    "int16": dtypes.int16, "int8": dtypes.int8, "uint8": dtypes.uint8, "bool": dtypes.bool_,
    "uint16": dtypes.uint16, "uint32": dtypes.uint32, "uint64": dtypes.uint64,
    "float8_e4m3fn": dtypes.fp8e4m3, "float8_e5m2": dtypes.fp8e5m2,
}  # fmt: skip


#: What the first program of a file before PyTorch 1.6 gives.
_MAGIC: Final = 0x1950A86A20F9469CFC6C
#: What reading a file that contradicts itself can raise.
_DAMAGE: Final = (
    IndexError, KeyError, ValueError, TypeError, AttributeError, OverflowError, struct.error,
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError,
)  # fmt: skip


def torch_load(fn: str | Path) -> Any:
    """The tree that `torch.save` wrote, with tensors of ours.

    Args:
        fn: the file.

    Raises:
        ModelFileError: it is no such file, or a damaged one.
        UnsupportedError: it holds something else than containers, numbers, text and tensors.
    """
    try:
        if zipfile.is_zipfile(fn):
            return _load_archive(fn)
        return _load_sequence(Path(fn).read_bytes(), fn)
    except _DAMAGE as error:
        raise ModelFileError("torch_load: the file is damaged", got=f"{fn}: {error}") from error


def _load_archive(fn: str | Path) -> Any:
    """The format of PyTorch 1.6 and later: one program and a file for each storage."""
    with zipfile.ZipFile(fn) as archive:
        names = [name for name in archive.namelist() if name.endswith("data.pkl")]
        if len(names) != 1:
            raise ModelFileError("torch_load: there is no data.pkl in the archive", got=f"{fn}")
        folder = names[0].removesuffix("data.pkl")
        order = f"{folder}byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            raise UnsupportedError("torch_load: the file is big-endian", got=f"{fn}")
        return _Reader(
            archive.read(names[0]), lambda key, _: archive.read(f"{folder}data/{key}")
        ).run()


def _load_sequence(data: bytes, fn: str | Path) -> Any:
    """The format before: programs one after the other, then the bytes of the storages.

    The storages come after the program that uses them, so it is run twice: to see what it needs
    and where it ends, then with the bytes.
    """
    place, found = 0, []
    needed: dict[str, int] = {}

    def note(key: str, size: int) -> bytes:
        needed[key] = size
        return bytes(size) if size <= len(data) else b""

    start = 0
    for part in range(5 if data.startswith(b"\x80") else 0):
        start = place if part == 3 else start
        reader = _Reader(data, note, place)
        found.append(reader.run())
        place = reader.place
        if found[0] != _MAGIC:
            break
    if found[:1] != [_MAGIC]:
        raise ModelFileError(
            "torch_load: this is no zip archive and no older file of PyTorch", got=f"{fn}"
        )
    if not found[2]["little_endian"]:
        raise UnsupportedError("torch_load: the file is big-endian", got=f"{fn}")
    storages: dict[str, bytes] = {}
    for key in found[4]:
        place += 8  # the number of elements, which the program gave too
        storages[key] = data[place : place + needed[key]]
        place += needed[key]
    return _Reader(data, lambda key, _: storages[key], start).run()


@dataclass(frozen=True)
class _Name:
    """Something that the file names but that is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class _Stored:
    """The bytes of a storage."""

    data: bytes
    dtype: DType


_MARK: Final = object()


class _Reader:
    """The interpreter: a stack machine over the opcodes of protocols 2 to 5."""

    def __init__(
        self, code: bytes, read_storage: Callable[[str, int], bytes], place: int = 0
    ) -> None:
        self.code = code
        self.place = place
        self.read_storage = read_storage
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, _Stored] = {}

    def run(self) -> Any:
        """The value that the program leaves."""
        while True:
            opcode = self.take(1)
            if opcode == b".":
                return self.stack.pop()
            step = _STEPS.get(opcode)
            if step is None:
                raise UnsupportedError(
                    "torch_load: the file uses a pickle opcode that checkpoints don't need",
                    got=f"{opcode!r} at byte {self.place - 1}",
                )
            step(self)

    # --- parts of the program ----------------------------------------------------------------

    def take(self, count: int) -> bytes:
        found = self.code[self.place : self.place + count]
        if len(found) != count:
            raise ValueError("the program ends too early")
        self.place += count
        return found

    def number(self, form: str) -> int:
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(found)

    def line(self) -> str:
        end = self.code.index(b"\n", self.place)
        found = self.code[self.place : end].decode()
        self.place = end + 1
        return found

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def above_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found

    # --- containers --------------------------------------------------------------------------

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[key] = value

    def append_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, set):
            target.update(items)
        else:
            target.extend(items)

    def build(self) -> None:
        """State for an object: ours have none but dictionaries, whose extra state is left out."""
        self.stack.pop()

    # --- what is named -----------------------------------------------------------------------

    def persistent(self) -> None:
        """A storage: ("storage", type, key, device, number of elements), and a view of it."""
        named = self.stack.pop()
        if named[0] != "storage" or (len(named) > 5 and named[5] is not None):
            raise UnsupportedError(
                "torch_load: the file holds an object that is no tensor",
                got=named[0],
                try_="save model.state_dict() in place of the model",
            )
        type_, key, _, count = named[1:5]
        if type_.name not in _STORAGES:
            raise UnsupportedError(
                "torch_load: a storage has a dtype that is not known",
                got=type_,
                expected=", ".join(_STORAGES),
            )
        # An UntypedStorage says its dtype where it is used, and counts bytes.
        dtype = _STORAGES[type_.name]
        stored = self.storages.get(key)
        if stored is None:
            stored = _Stored(self.read_storage(key, count * dtype.itemsize), dtype)
            self.storages[key] = stored
        if len(stored.data) < count * stored.dtype.itemsize:
            raise ValueError(f"storage {key} is shorter than it should be")
        self.push(stored)

    def reduce(self) -> None:
        """A call, of which only those that checkpoints need are known."""
        arguments = self.stack.pop()
        called = self.stack.pop()
        self.push(_call(called, arguments))

    def new_object(self) -> None:
        arguments = self.stack.pop()
        called = self.stack.pop()
        self.push(_call(called, arguments))


def _call(called: Any, arguments: Any) -> Any:
    name = str(called)
    if name == "collections.OrderedDict":
        return dict(*arguments)
    if name in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"):
        return _tensor(*arguments[:4])
    if name == "torch._utils._rebuild_tensor_v3":
        stored, offset, size, stride = arguments[:4]
        return _tensor(stored, offset, size, stride, arguments[6])
    if name.startswith("torch._utils._rebuild_parameter"):
        return arguments[0]
    if name == "torch._tensor._rebuild_from_type_v2":
        return _call(arguments[0], arguments[2])
    if name in ("torch.Size", "torch.serialization._get_layout", "torch.device"):
        return tuple(arguments[0]) if name == "torch.Size" else arguments[0]
    if name == "_codecs.encode" and arguments[1] == "latin1":
        return arguments[0].encode("latin1")
    if name in ("builtins.set", "__builtin__.set"):
        return set(*arguments)
    raise UnsupportedError(
        "torch_load: the file holds an object that is no tensor",
        got=name,
        expected="containers, numbers, text and tensors",
        try_="save model.state_dict() in place of the model",
    )


def _tensor(
    stored: _Stored, offset: int, size: Any, stride: Any, dtype: DType | None = None
) -> Tensor:
    """A tensor of a storage, its strides honoured."""
    import numpy as np

    kind = dtype or stored.dtype
    shape, strides = tuple(size), tuple(stride)
    word = np.dtype(f"u{kind.itemsize}")
    words = np.frombuffer(stored.data, dtype=word, count=len(stored.data) // word.itemsize)
    reach = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    is_empty = product(shape) == 0
    if offset < 0 or any(s < 0 for s in strides) or (not is_empty and reach > len(words)):
        raise ValueError(f"a tensor of shape {shape} reaches outside of its storage")
    if is_empty:
        words, strides = np.zeros(1, word), (0,) * len(shape)
        offset = 0
    steps = tuple(s * word.itemsize for s in strides)
    view = np.lib.stride_tricks.as_strided(words[offset:], shape, steps, writeable=False)
    dense = np.ascontiguousarray(view).reshape(-1).view(np.uint8)
    return Tensor._over(host.upload(dense.data, shape, kind, Device.canonicalize(None)))


# --- opcodes -------------------------------------------------------------------------------------


def _global(reader: _Reader) -> None:
    _push_name(reader, reader.line(), reader.line())


def _stack_global(reader: _Reader) -> None:
    name = reader.stack.pop()
    _push_name(reader, reader.stack.pop(), name)


def _push_name(reader: _Reader, module: str, name: str) -> None:
    if module == "torch" and name in _DTYPES:
        reader.push(_DTYPES[name])
    else:
        reader.push(_Name(module, name))


def _skip(count: int) -> Callable[[_Reader], None]:
    def step(reader: _Reader) -> None:
        reader.take(count)

    return step


def _text(form: str) -> Callable[[_Reader], None]:
    def step(reader: _Reader) -> None:
        reader.push(reader.take(reader.number(form)).decode())

    return step


def _bytes(form: str) -> Callable[[_Reader], None]:
    return lambda reader: reader.push(reader.take(reader.number(form)))


def _integer(form: str) -> Callable[[_Reader], None]:
    return lambda reader: reader.push(reader.number(form))


def _constant(make: Callable[[], Any]) -> Callable[[_Reader], None]:
    return lambda reader: reader.push(make())


def _long(form: str) -> Callable[[_Reader], None]:
    def step(reader: _Reader) -> None:
        reader.push(int.from_bytes(reader.take(reader.number(form)), "little", signed=True))

    return step


def _tuple(count: int) -> Callable[[_Reader], None]:
    def step(reader: _Reader) -> None:
        items = tuple(reader.stack[len(reader.stack) - count :])
        del reader.stack[len(reader.stack) - count :]
        reader.push(items)

    return step


def _put(form: str) -> Callable[[_Reader], None]:
    def step(reader: _Reader) -> None:
        reader.memo[reader.number(form)] = reader.stack[-1]

    return step


def _get(form: str) -> Callable[[_Reader], None]:
    return lambda reader: reader.push(reader.memo[reader.number(form)])


def _memoize(reader: _Reader) -> None:
    reader.memo[len(reader.memo)] = reader.stack[-1]


def _set_item(reader: _Reader) -> None:
    value = reader.stack.pop()
    key = reader.stack.pop()
    reader.set_items([key, value])


def _append(reader: _Reader) -> None:
    reader.append_items([reader.stack.pop()])


def _real(reader: _Reader) -> None:
    reader.push(struct.unpack(">d", reader.take(8))[0])


_STEPS: Final[dict[bytes, Callable[[_Reader], None]]] = {
    b"\x80": _skip(1), b"\x95": _skip(8),  # the protocol, and the length of a frame
    b"c": _global, b"\x93": _stack_global,
    b"q": _put("B"), b"r": _put("<I"), b"h": _get("B"), b"j": _get("<I"), b"\x94": _memoize,
    b"(": _constant(lambda: _MARK), b"}": _constant(dict), b"]": _constant(list),
    b")": _constant(tuple), b"\x8f": _constant(set), b"N": _constant(lambda: None),
    b"\x88": _constant(lambda: True), b"\x89": _constant(lambda: False),
    b"X": _text("<I"), b"\x8c": _text("B"), b"\x8d": _text("<Q"),
    b"C": _bytes("B"), b"B": _bytes("<I"), b"\x8e": _bytes("<Q"),
    b"J": _integer("<i"), b"K": _integer("B"), b"M": _integer("<H"),
    b"\x8a": _long("B"), b"\x8b": _long("<i"), b"G": _real,
    b"\x85": _tuple(1), b"\x86": _tuple(2), b"\x87": _tuple(3),
    b"t": lambda reader: reader.push(tuple(reader.above_mark())),
    b"l": lambda reader: reader.push(reader.above_mark()),
    b"u": lambda reader: reader.set_items(reader.above_mark()), b"s": _set_item,
    b"e": lambda reader: reader.append_items(reader.above_mark()), b"a": _append,
    b"\x90": lambda reader: reader.append_items(reader.above_mark()),
    b"Q": _Reader.persistent, b"R": _Reader.reduce, b"\x81": _Reader.new_object,
    b"b": _Reader.build,
}  # fmt: skip
