"""Buffers, addresses, loads, stores, and effects with their order."""

from __future__ import annotations

from typing import Any, Final

from tilework.base.errors import DTypeError, ShapeError
from tilework.base.records import dataclass
from tilework.dtypes import DType, bool_
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.stage import IN_KERNEL, Stage
from tilework.ir.types import Memory, Shape, Type, make_type


@dataclass(frozen=True, slots=True)
class BufferAttrs(Attrs):
    """One version of a storage: a number never given twice, what it holds, and where."""

    number: int
    shape: Shape
    dtype: DType
    device: str

    def __hash__(self) -> int:
        return hash(self.number)  # the number alone tells them apart


@dataclass(frozen=True, slots=True)
class ParamAttrs(Attrs):
    """Argument `slot` of a CALL or kernel."""

    slot: int
    shape: Shape
    dtype: DType
    device: str = ""


BUFFER: OpDef = define_op(
    "buffer",
    operands=(),
    attrs=BufferAttrs,
    infer=lambda src, attrs: make_type(attrs.shape, attrs.dtype, Memory.GLOBAL),
    stages=Stage.TENSOR | Stage.SCHEDULE,
    doc="The contents of a storage at one version, row-major.",
)
PARAM: OpDef = define_op(
    "param",
    operands=(),
    attrs=ParamAttrs,
    infer=lambda src, attrs: make_type(attrs.shape, attrs.dtype, Memory.GLOBAL),
    stages=Stage.TENSOR | Stage.SCHEDULE | IN_KERNEL,
    doc="An argument: the same program runs on whatever buffer is bound to the slot.",
)


@dataclass(frozen=True, slots=True)
class ViewAttrs(Attrs):
    """Bytes of an arena that a planned buffer occupies."""

    offset_bytes: int
    shape: Shape
    dtype: DType


BUFFER_VIEW: OpDef = define_op(
    "buffer_view",
    operands=("base",),
    attrs=ViewAttrs,
    infer=lambda src, attrs: make_type(attrs.shape, attrs.dtype, Memory.GLOBAL),
    stages=Stage.SCHEDULE,
    doc="Part of a buffer from a byte offset on, as an array of its own.",
)


def _infer_index(src: tuple[Node, ...], attrs: Any) -> Type:
    buffer, offset = src
    if buffer.type.memory is None or not offset.type.dtype.is_integer:
        raise DTypeError(
            "index: needs a buffer and an integer offset", got=f"{buffer.type}, {offset.type}"
        )
    return make_type(offset.type.shape, buffer.type.dtype, buffer.type.memory)


INDEX: OpDef = define_op(
    "index",
    operands=("buffer", "offset"),
    infer=_infer_index,
    stages=IN_KERNEL,
    doc="The address of element `offset` (row-major, in elements) of a buffer or STAGE.",
)


#: What is fetched at least so far ahead goes to the second cache, and what is nearer to the first.
FAR_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class LoadAttrs(Attrs):
    """How many consecutive elements are loaded: 1 gives a scalar, more a vector.

    `ahead` says how many bytes beyond them memory should be on its way to the cache, from
    `FAR_BYTES` on to the second one; it changes no value, and 0 asks for nothing.
    """

    lanes: int = 1
    ahead: int = 0


def _check_gate(op: str, gate: Node, shape: Shape) -> None:
    if gate.type.dtype is not bool_ or gate.type.shape not in ((), shape):
        raise DTypeError(f"{op}: the gate must be bool", got=f"{gate.type} for shape {shape}")


def _infer_load(src: tuple[Node, ...], attrs: LoadAttrs | None) -> Type:
    address = src[0].type
    shape = address.shape if attrs is None or attrs.lanes == 1 else (attrs.lanes,)
    if len(src) > 1:
        _check_gate("load", src[1], shape)
    return make_type(shape, address.dtype)


LOAD: OpDef = define_op(
    "load",
    operands=("address", "gate?", "*after"),
    attrs=LoadAttrs,
    infer=_infer_load,
    stages=IN_KERNEL,
    doc=(
        "The value at an address; with `lanes`, that many consecutive ones. Where the gate is "
        "false memory is not touched and the value is 0. `after` are STAGEs or stores that come "
        "first."
    ),
)


def _infer_store(src: tuple[Node, ...], attrs: Any) -> Type:
    target, value = src[0], src[1]
    if target.type.dtype is not value.type.dtype:
        raise DTypeError("store: dtypes differ", got=f"{value.type} into {target.type}")
    if target.op is not INDEX and target.type.shape != value.type.shape:
        raise ShapeError("store: shapes differ", got=f"{value.type} into {target.type}")
    if len(src) > 2:
        _check_gate("store", src[2], value.type.shape)
    return make_type((), value.type.dtype)


@dataclass(frozen=True, slots=True)
class StoreAttrs(Attrs):
    """How a store treats the caches.

    `past_lines` is the length in bytes of the lines that it and its neighbours fill, none of which
    is read soon, so that they may go past the caches; 0 for an ordinary store.  It changes no
    value.  CPUs have instructions for it (non-temporal stores), cards a policy of the access;
    where there is neither, the store is an ordinary one.
    """

    past_lines: int = 0


STORE: OpDef = define_op(
    "store",
    operands=("target", "value", "gate?", "*after"),
    attrs=StoreAttrs,
    infer=_infer_store,
    stages=Stage.TENSOR | IN_KERNEL,
    doc=(
        "Write `value` at an address (vectors: to consecutive elements) or, in TENSOR, into a view "
        "of a BUFFER. Where the gate is false memory is not touched."
    ),
    pure=False,
)


@dataclass(frozen=True, slots=True)
class FetchAttrs(Attrs):
    """How many bytes after its address the memory lies that is asked for, and whether to write."""

    ahead: int = 0
    to_write: bool = True


FETCH: OpDef = define_op(
    "fetch",
    operands=("address",),
    attrs=FetchAttrs,
    infer=lambda src, attrs: make_type((), src[0].type.dtype),
    stages=Stage.LINEAR,
    doc=(
        "Memory at an address, or `ahead` bytes after it, is about to be written (or read) and "
        "should be on its way to the cache. A hint: it changes no value."
    ),
    pure=False,
)
AFTER: OpDef = define_op(
    "after",
    operands=("x", "*effects"),
    infer=lambda src, attrs: src[0].type,
    stages=Stage.TENSOR | IN_KERNEL,
    doc="x once the effects have happened: for a BUFFER its next version.",
)
SINK: OpDef = define_op(
    "sink",
    operands=("*effects",),
    infer=lambda src, attrs: src[0].type if src else make_type((), bool_),
    stages=Stage.TENSOR | IN_KERNEL,
    doc="The set of roots of a graph or kernel.",
    pure=False,
)
