"""Small matrices as values: what the registers of a processor's own matrix unit hold.

Such a value has two axes, rows and words of 32 bits, where the values of a kernel else have none or
one.  It is loaded from rows of memory, multiplied, summed in an ACCUMULATOR and stored as rows;
everything else that becomes of it happens to vectors, after it went through memory.

- *x86 with AMX*: eight registers of at most 16 rows of 64 bytes.
- *Arm with SME*: the array ZA, and rows of it; outer products instead of LOADs of whole matrices.
- *Power with MMA*: accumulators of 4 x 4 words.
"""

from __future__ import annotations

from tilework.base.errors import DTypeError, ShapeError
from tilework.base.records import dataclass
from tilework.dtypes import DType, bool_, float32, int32
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.stage import Stage
from tilework.ir.types import Type, make_type

_PLANNED = Stage.TILED | Stage.LOWERED | Stage.LINEAR


@dataclass(frozen=True, slots=True)
class MatrixRowsAttrs(Attrs):
    """How a matrix lies in memory: each row is `stride` elements after the one before it."""

    rows: int
    columns: int
    stride: int


def _check_words(op: str, node: Node) -> None:
    if node.type.dtype not in (int32, float32):
        raise DTypeError(f"{op}: a matrix has words of 32 bits", got=f"{node.type}")


def _infer_load(src: tuple[Node, ...], attrs: MatrixRowsAttrs) -> Type:
    _check_words("load_matrix", src[0])
    if src[0].type.memory is None or src[0].type.shape:
        raise DTypeError("load_matrix: needs one address", got=f"{src[0].type}")
    return make_type((attrs.rows, attrs.columns), src[0].type.dtype)


LOAD_MATRIX: OpDef = define_op(
    "load_matrix",
    operands=("address", "*after"),
    attrs=MatrixRowsAttrs,
    infer=_infer_load,
    stages=_PLANNED,
    doc="The words of some rows of memory; `after` are stores that come first.",
)


def _infer_store(src: tuple[Node, ...], attrs: MatrixRowsAttrs) -> Type:
    address, value = src
    _check_words("store_matrix", value)
    if address.type.memory is None or value.type.shape != (attrs.rows, attrs.columns):
        raise ShapeError(
            "store_matrix: the value has other rows than are written",
            got=f"{value.type} to {address.type}",
            expected=f"{attrs.rows} x {attrs.columns}",
        )
    return make_type((), bool_)


STORE_MATRIX: OpDef = define_op(
    "store_matrix",
    operands=("address", "value"),
    attrs=MatrixRowsAttrs,
    infer=_infer_store,
    stages=Stage.LOWERED | Stage.LINEAR,
    doc="Write the words of a matrix to rows of memory.",
    pure=False,
)


@dataclass(frozen=True, slots=True)
class DotMatrixAttrs(Attrs):
    """What the words of the factors hold: bytes of either sign, or floats of 16 bits."""

    x_dtype: DType
    y_dtype: DType


def _infer_dot(src: tuple[Node, ...], attrs: DotMatrixAttrs) -> Type:
    x, y, z = (node.type.shape for node in src)
    total = float32 if attrs.x_dtype.is_float else int32
    if [node.type.dtype for node in src] != [int32, int32, total]:
        raise DTypeError(
            "dot_matrix: the matrices have other dtypes",
            got=", ".join(node.type.dtype.name for node in src),
            expected=f"two of words, and sums in {total.name}",
        )
    if not len(x) == len(y) == len(z) == 2 or (x[0], x[1], y[1]) != (z[0], y[0], z[1]):
        raise ShapeError("dot_matrix: the matrices do not fit", got=f"{x} times {y} to {z}")
    return src[2].type


DOT_MATRIX: OpDef = define_op(
    "dot_matrix",
    operands=("x", "y", "z"),
    attrs=DotMatrixAttrs,
    infer=_infer_dot,
    stages=_PLANNED,
    doc=(
        "z[i, j] plus the sum over p and the parts b of a word of x[i, p].b * y[p, j].b: the words "
        "of y hold consecutive rows of what is multiplied. Sums of bytes are modulo 2**32. Sums of "
        "floats have one order, and FMA, rounding to nearest: those of the lower halves along p, "
        "those of the upper halves, both added, and z. Subnormal numbers are zeros on the way in "
        "and out."
    ),
)
