"""Products of one warp on operands in registers, and copies that run beside the threads.

The threads of a block fill slots of TILE memory together: each asks for copies of a few elements
(COPY_CHUNK), closes them as a group (COPY_COMMIT), works on what came before, and waits for the
oldest groups (COPY_WAIT); after a barrier every thread may use the slot.  A warp then loads what
its lanes multiply (LOAD_FRAGMENT) and multiplies it (MATRIX_WARP).

A fragment covers 16 rows (or columns) and 32 bytes along k, four words of 32 bits a lane: lane t
has, of row t div 4 and of the row 8 further down, the bytes 4 (t mod 4) to 4 (t mod 4) + 3 of the
first and of the second 16 bytes.  So it is for all dtypes of at most 32 bits, whatever depth the
instruction has: shorter ones are several to a fragment.  float64 has one element a lane and eight
rows, of a depth of 4.  Sums are those of MATRIX: four for each 8 columns.

- *NVIDIA from Turing on*: LOAD_FRAGMENT is one load of four matrices, turned on the way where rows
  lie across k; MATRIX_WARP one or several `mma` instructions; COPY_CHUNK an asynchronous copy from
  Ampere on.
- *AMD RDNA*: LOAD_FRAGMENT is two loads of 16 bytes from LDS a lane, since a WMMA wants whole rows
  of 16 elements in each lane; MATRIX_WARP is one WMMA of 16 x 16 x 16, two columns of eight at
  once.  There is no COPY_CHUNK: loads are held in registers, then stored.
- *Adreno*: the same from local memory, where the driver offers cooperative matrices.
- *Apple GPUs*: LOAD_FRAGMENT is four `simdgroup_load`s of 8 x 8 from threadgroup memory, turned by
  a flag; MATRIX_WARP four simdgroup products.
- *Hexagon*: a task's vectors stand for the warp; fragments are tiles of VTCM in the matrix unit's
  own order, and COPY_CHUNK is a descriptor of the DMA engine.
"""

from __future__ import annotations

from typing import Any

from tilework.base.errors import DTypeError, ShapeError
from tilework.base.records import dataclass
from tilework.dtypes import bool_, float64, uint32
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.ops.matrix import CountAttrs
from tilework.ir.stage import Stage
from tilework.ir.types import Memory, Type, make_type

#: Rows of a fragment, its bytes along k, and the words of a lane.
FRAGMENT_ROWS, FRAGMENT_BYTES, FRAGMENT_WORDS = 16, 32, 4
#: Lanes of a warp, and sums that each has of 16 rows and 8 columns.
WARP_THREADS, SUMS = 32, 4


def _nothing(src: tuple[Node, ...], attrs: Any) -> Type:
    return make_type((), bool_)


def _infer_copy(src: tuple[Node, ...], attrs: CountAttrs) -> Type:
    target, source = (node.type for node in src[:2])
    is_copy = target.memory is Memory.TILE and source.memory is Memory.GLOBAL
    if not is_copy or target.dtype is not source.dtype:
        raise DTypeError("copy_chunk: copies a buffer to TILE memory", got=f"{source}, {target}")
    return make_type((), bool_)


COPY_CHUNK: OpDef = define_op(
    "copy_chunk",
    operands=("target", "source", "inside"),
    attrs=CountAttrs,
    infer=_infer_copy,
    stages=Stage.LINEAR,
    doc=(
        "Start to copy `count` elements from a buffer to TILE memory; only the first `inside` of "
        "them are read, the others are 0. Nobody may touch the target until a COPY_WAIT."
    ),
    pure=False,
)
COPY_COMMIT: OpDef = define_op(
    "copy_commit",
    operands=("*after",),
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Close the group of this thread's COPY_CHUNKs since the last one, which may be empty.",
    pure=False,
)
COPY_WAIT: OpDef = define_op(
    "copy_wait",
    operands=("*after",),
    attrs=CountAttrs,
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Go on when all but the last `count` groups of this thread's COPY_CHUNKs have come.",
    pure=False,
)


@dataclass(frozen=True, slots=True)
class FragmentAttrs(Attrs):
    """Whether rows in memory lie across k, so that 8 x 8 elements of 16 bits are turned."""

    is_turned: bool


def _infer_fragment(src: tuple[Node, ...], attrs: FragmentAttrs) -> Type:
    address = src[0].type
    itemsize = address.dtype.itemsize
    if address.memory is not Memory.TILE or itemsize > 4 or (attrs.is_turned and itemsize != 2):
        raise DTypeError(
            "load_fragment: loads from TILE memory, and turns elements of 16 bits",
            got=f"{address}, turned: {attrs.is_turned}",
        )
    return make_type((FRAGMENT_WORDS,), uint32)


LOAD_FRAGMENT: OpDef = define_op(
    "load_fragment",
    operands=("address", "*after"),
    attrs=FragmentAttrs,
    infer=_infer_fragment,
    stages=Stage.LINEAR,
    doc=(
        "The 32 threads of a warp load four matrices of 8 rows of 16 bytes: thread t gives the "
        "address of row t mod 8 of matrix t div 8, and gets, word by word, its part of each "
        "matrix, or of the matrix turned."
    ),
)


@dataclass(frozen=True, slots=True)
class WarpMatrixAttrs(Attrs):
    """A product of `rows` fragments of 16 rows with `columns` fragments of 16 columns.

    Attributes:
        rows, columns: How many fragments of each operand there are.
        m, n, k: The instruction's own shape.
        dtype: The dtype of the first operand's elements, by name.
        is_first: Whether the accumulators count as 0.
        b_dtype: That of the second operand's, where it is another of as many bits; else empty.
    """

    rows: int
    columns: int
    m: int
    n: int
    k: int
    dtype: str
    is_first: bool = False
    b_dtype: str = ""


def _infer_matrix(src: tuple[Node, ...], attrs: WarpMatrixAttrs) -> Type:
    accumulator, fragments = src[0], src[1 : 1 + attrs.rows + attrs.columns]
    if accumulator.type.lanes != attrs.rows * attrs.columns * 2 * SUMS:
        raise ShapeError(
            "matrix_warp: each of 32 threads holds its share of the accumulators",
            got=f"{accumulator.type} for {attrs.rows} x {attrs.columns} fragments",
        )
    kind = float64 if attrs.dtype == "float64" else uint32
    if any(node.type.dtype is not kind or not node.type.lanes for node in fragments):
        raise DTypeError(
            "matrix_warp: fragments are words, or two elements of float64",
            got=", ".join(str(node.type) for node in fragments),
        )
    return accumulator.type


MATRIX_WARP: OpDef = define_op(
    "matrix_warp",
    operands=("accumulator", "*fragments"),
    attrs=WarpMatrixAttrs,
    infer=_infer_matrix,
    stages=Stage.LINEAR,
    doc=(
        "accumulator + a x b by the threads of a warp together; first the fragments of a (whose "
        "words go through rows first), then those of b (through k first). The sums of 16 rows and "
        "8 columns, four a thread, follow each other column by column, then row by row."
    ),
)
