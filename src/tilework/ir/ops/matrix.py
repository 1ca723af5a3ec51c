"""Matrix instructions and the rings of copies that feed them, as statements of a block.

A ring is a row of slots in TILE memory.  One thread asks a copy engine to fill a slot and a signal
to tell when the bytes are there; the threads that compute wait for that signal, use the slot, and
arrive at a second signal, which hands the slot back.  A signal counts phases: it flips its parity
whenever the arrivals and bytes that it expects have come.

- *NVIDIA Hopper and Blackwell*: a signal is an mbarrier, COPY_BOX a bulk tensor copy, MATRIX an
  asynchronous product of a warp group that reads swizzled shared memory.
- *Ampere, Ada*: COPY_BOX becomes asynchronous copies of 16 bytes, whose arrival is tied to a
  signal; MATRIX a product of one warp.
- *AMD*: no copy engine; a slot is filled by loads that were issued ahead, a signal is a count in
  LDS, MATRIX an MFMA or WMMA.
- *Hexagon*: COPY_BOX is a descriptor of the DMA engine into VTCM, a signal its done bit.
- *Apple GPUs*: simdgroup asynchronous copies and products of 8 x 8.
"""

from __future__ import annotations

from typing import Any

from tilework.base.errors import DTypeError, ShapeError
from tilework.base.records import dataclass
from tilework.dtypes import DType, bool_, uint32
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.control import FoldAttrs
from tilework.ir.ops.define import define_op
from tilework.ir.ops.memory import StoreAttrs
from tilework.ir.stage import Stage
from tilework.ir.types import Memory, Type, make_type


@dataclass(frozen=True, slots=True)
class BoxedAttrs(Attrs):
    """A buffer as an array of up to five axes, of which a copy engine moves boxes.

    Attributes:
        start: The element of the buffer at which the array starts.
        sizes: Its extents, the axis whose elements lie side by side first.
        strides: By how many elements each axis moves; the first is 1.
        box: The extents of one box.
        swizzle_bytes: In TILE memory, chunks of 16 bytes are permuted within rows of this many
            bytes (chunk i of row r stands at place i xor r mod 8); 0 leaves them in order.
        steps: By how many places of each axis a box moves from one of its elements to the next;
            () is 1 for all.
    """

    start: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0
    steps: tuple[int, ...] = ()

    @property
    def box_elements(self) -> int:
        """Elements of one box."""
        count = 1
        for size in self.box:
            count *= size
        return count


def _infer_boxed(src: tuple[Node, ...], attrs: BoxedAttrs) -> Type:
    kind = src[0].type
    if kind.memory is not Memory.GLOBAL:
        raise DTypeError("boxed: needs a buffer", got=f"{kind}")
    is_even = 1 <= len(attrs.sizes) == len(attrs.strides) == len(attrs.box) <= 5
    if not is_even or len(attrs.steps) not in (0, len(attrs.box)):
        raise ShapeError(
            "boxed: one to five axes, each with a size, a stride and a box",
            got=f"{attrs.sizes}, {attrs.strides}, {attrs.box}, {attrs.steps}",
        )
    return make_type((), kind.dtype, Memory.GLOBAL)


def _nothing(src: tuple[Node, ...], attrs: Any) -> Type:
    return make_type((), bool_)


BOXED: OpDef = define_op(
    "boxed",
    operands=("buffer",),
    attrs=BoxedAttrs,
    infer=_infer_boxed,
    stages=Stage.LINEAR,
    doc="A buffer as an array whose boxes a copy engine moves; a launch makes its descriptor.",
)


@dataclass(frozen=True, slots=True)
class CountAttrs(Attrs):
    """A number: arrivals, bytes, threads or copies."""

    count: int


SIGNAL_INIT: OpDef = define_op(
    "signal_init",
    operands=("signal",),
    attrs=CountAttrs,
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Make the signal at an address of TILE memory expect `count` arrivals a phase.",
    pure=False,
)
SIGNAL_EXPECT: OpDef = define_op(
    "signal_expect",
    operands=("signal", "*after"),
    attrs=CountAttrs,
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Arrive, and let the phase wait for `count` more bytes of copies as well.",
    pure=False,
)
SIGNAL_ARRIVE: OpDef = define_op(
    "signal_arrive",
    operands=("signal", "*after"),
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="One arrival at a signal.",
    pure=False,
)
SIGNAL_WAIT: OpDef = define_op(
    "signal_wait",
    operands=("signal", "parity", "*after"),
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Go on when the phase of this parity has ended (the one before the first counts as 1).",
    pure=False,
)
COPY_BOX: OpDef = define_op(
    "copy_box",
    operands=("target", "boxed", "signal", "*coordinates"),
    infer=_nothing,
    stages=Stage.LINEAR,
    doc=(
        "Start to copy the box at `coordinates` to TILE memory; its bytes count for `signal`. "
        "Elements outside of the array are 0."
    ),
    pure=False,
)
STORE_BOX: OpDef = define_op(
    "store_box",
    operands=("boxed", "source", "*coordinates"),
    attrs=StoreAttrs,
    infer=_nothing,
    stages=Stage.LINEAR,
    doc=(
        "Start to copy a box from TILE memory to `coordinates`; elements outside of the array are "
        "dropped. Each is a group of its own for STORE_BOX_WAIT."
    ),
    pure=False,
)
STORE_BOX_WAIT: OpDef = define_op(
    "store_box_wait",
    operands=("*after",),
    attrs=CountAttrs,
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Go on when all but the last `count` STORE_BOXes of this thread have read their source.",
    pure=False,
)
COPY_FENCE: OpDef = define_op(
    "copy_fence",
    operands=("*after",),
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Copy engines see what this thread has written to TILE memory.",
    pure=False,
)


GROUP_BARRIER: OpDef = define_op(
    "group_barrier",
    operands=("number", "*after"),
    attrs=CountAttrs,
    infer=_nothing,
    stages=Stage.LINEAR,
    doc=(
        "`count` threads of the block, whole warps, reach the barrier of this number before any of "
        "them goes on."
    ),
    pure=False,
)


@dataclass(frozen=True, slots=True)
class RegistersAttrs(Attrs):
    """How many registers a thread keeps, and whether that is more than it had."""

    count: int
    grows: bool


REGISTERS: OpDef = define_op(
    "registers",
    operands=("*after",),
    attrs=RegistersAttrs,
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Move registers between the warps of a block; no effect on any value.",
    pure=False,
)


@dataclass(frozen=True, slots=True)
class MatrixAttrs(Attrs):
    """One product, whose operands lie in boxes with rows and a swizzle of 128 bytes.

    Attributes:
        m, n, k: Rows, columns and depth of the instruction.
        a_along_k, b_along_k: Are the elements of a row along k side by side (else those along m
            or n)?
        a_chunk_bytes, b_chunk_bytes: Along m or n, from one box of 128 bytes to the next; 0 for
            rows along k.
        is_first: Whether the accumulators count as 0.
    """

    m: int
    n: int
    k: int
    a_along_k: bool
    a_chunk_bytes: int
    b_along_k: bool
    b_chunk_bytes: int
    is_first: bool = False


def _infer_matrix(src: tuple[Node, ...], attrs: MatrixAttrs) -> Type:
    accumulator, a, b = src[:3]
    if a.type.memory is not Memory.TILE or b.type.memory is not Memory.TILE:
        raise DTypeError("matrix: operands lie in TILE memory", got=f"{a.type}, {b.type}")
    if accumulator.type.lanes != attrs.m * attrs.n // 128:
        raise ShapeError(
            "matrix: each of 128 threads holds its share of the accumulators",
            got=f"{accumulator.type} for {attrs.m} x {attrs.n}",
        )
    return accumulator.type


MATRIX: OpDef = define_op(
    "matrix",
    operands=("accumulator", "a", "b", "*after"),
    attrs=MatrixAttrs,
    infer=_infer_matrix,
    stages=Stage.LINEAR,
    doc=(
        "accumulator + a[m, k] x b[k, n] by 128 consecutive threads together, started but not "
        "finished. Thread t holds the elements of row 16 (t div 32) + (t mod 32) div 4, and of the "
        "row 8 further down, at the columns 8 j + 2 (t mod 4) and the next: four for each j."
    ),
)
MATRIX_BEGIN: OpDef = define_op(
    "matrix_begin",
    operands=("*after",),
    infer=_nothing,
    stages=Stage.LINEAR,
    doc=(
        "MATRIXes may read registers and memory that were written before; accumulators among the "
        "sources are those that were written by anything else."
    ),
    pure=False,
)
MATRIX_COMMIT: OpDef = define_op(
    "matrix_commit",
    operands=("*after",),
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Close the group of MATRIXes since the last one; there must be some.",
    pure=False,
)
MATRIX_WAIT: OpDef = define_op(
    "matrix_wait",
    operands=("*after",),
    attrs=CountAttrs,
    infer=_nothing,
    stages=Stage.LINEAR,
    doc=(
        "Wait for all but the last `count` groups of MATRIXes; accumulators among the sources are "
        "those that may be read from here on."
    ),
    pure=False,
)
PICK: OpDef = define_op(
    "pick",
    operands=("x", "position"),
    infer=lambda src, attrs: make_type((), src[0].type.dtype),
    stages=Stage.LINEAR,
    doc="The lane of a vector at a position that unrolled loops make constant.",
)
PUT: OpDef = define_op(
    "put",
    operands=("variable", "position", "value"),
    infer=_nothing,
    stages=Stage.LINEAR,
    doc="Give the lane of a variable at a position that unrolled loops make constant a value.",
    pure=False,
)


@dataclass(frozen=True, slots=True)
class PairAttrs(Attrs):
    """A dtype of 16 bits."""

    dtype: DType


PAIR: OpDef = define_op(
    "pair",
    operands=("low", "high"),
    attrs=PairAttrs,
    infer=lambda src, attrs: make_type((), uint32),
    stages=Stage.LINEAR,
    doc="Two float32 values rounded to a dtype of 16 bits, side by side in 32.",
)


def _infer_held(src: tuple[Node, ...], attrs: HeldAttrs) -> Type:
    accumulator, b = src[:2]
    if b.type.memory is not Memory.TILE or len(src) < 6 or any(n.type.shape for n in src[2:6]):
        raise DTypeError(
            "matrix_held: needs an operand in TILE memory and four pairs",
            got=", ".join(str(node.type) for node in src),
        )
    return accumulator.type


@dataclass(frozen=True, slots=True)
class HeldAttrs(Attrs):
    """A product whose first operand is held in registers; as in `MatrixAttrs`."""

    m: int
    n: int
    k: int
    b_along_k: bool
    b_chunk_bytes: int


MATRIX_HELD: OpDef = define_op(
    "matrix_held",
    operands=("accumulator", "b", "*pairs"),
    attrs=HeldAttrs,
    infer=_infer_held,
    stages=Stage.LINEAR,
    doc=(
        "MATRIX whose a[m, 16] the threads hold, in four PAIRs: as they hold accumulators of "
        "sixteen columns. What follows those comes first."
    ),
)
FOLD_QUAD: OpDef = define_op(
    "fold_quad",
    operands=("x",),
    attrs=FoldAttrs,
    infer=lambda src, attrs: src[0].type,
    stages=Stage.LINEAR,
    doc="x of four neighbouring threads folded, by halves: those that share a row of a MATRIX.",
)
POWER_OF_TWO: OpDef = define_op(
    "power_of_two",
    operands=("x",),
    infer=lambda src, attrs: src[0].type,
    stages=Stage.LINEAR,
    doc=(
        "2**x in float32 as the machine has it: at most 2 units off, and 0 below 2**-126. For "
        "values that are rounded to 16 bits, or summed with a greater one of their kind."
    ),
)
SAME_IN_WARP: OpDef = define_op(
    "same_in_warp",
    operands=("x",),
    infer=lambda src, attrs: src[0].type,
    stages=Stage.LINEAR,
    doc=(
        "An index below 2**31 that is the same in all 32 threads of a warp, which all come here: "
        "a machine may compute what depends on it once for all of them."
    ),
)
STORE_FRAGMENT: OpDef = define_op(
    "store_fragment",
    operands=("target", "*values"),
    infer=_nothing,
    stages=Stage.LINEAR,
    doc=(
        "32 threads store four matrices of 8 x 8 elements of 16 bits, which they hold as MATRIX "
        "lays them out, two values each: thread t gives the address of row t mod 8 of matrix "
        "t div 8."
    ),
    pure=False,
)
