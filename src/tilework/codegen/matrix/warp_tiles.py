"""A contraction cut into tiles of blocks and warps, and its factors in slots."""

from __future__ import annotations

from enum import Enum
from math import prod
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.matrix.operands import InRows
from tilework.codegen.plan.contraction import Contraction
from tilework.codegen.plan.extents import ceil_div, product
from tilework.codegen.plan.offset_factors import OffsetFactor
from tilework.ir.ops.warp_matrix import FRAGMENT_ROWS, SUMS, WARP_THREADS

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import MatrixInstruction

_REGISTER_BYTES = 4
#: Sums of a thread for the products of two fragments.
FRAGMENT_SUMS = 2 * SUMS


class Filling(Enum):
    """How a slot comes to its elements."""

    COPIED = "copied"
    HELD = "held"
    COMPUTED = "computed"


@dataclass(frozen=True, slots=True)
class Factor(InRows):
    """One factor of a contraction in slots, each with as many values of k as a row has elements.

    Attributes:
        value: The factor without casts that keep every value.
        own: Its ranges of m or n, which count as one.
        along_k: Do neighbours along k lie side by side in a slot?
        filling: Who brings its elements.
        lanes: Elements that are moved at once.
        rows: Rows of a tile.
        offset: Where the kernel adds something to `value`: the factor as it was written.
    """

    value: Node
    own: tuple[Node, ...]
    along_k: bool
    filling: Filling
    lanes: int
    rows: int = 0
    offset: OffsetFactor | None = None

    @property
    def slot_elements(self) -> int:
        """Elements of one slot, those of boxes that are not full included."""
        boxes = self.rows if self.along_k else ceil_div(self.rows, self.width) * self.width
        return boxes * self.width

    @property
    def pieces(self) -> int:
        """Moves that fill one slot."""
        return self.rows * self.width // self.lanes


@dataclass(frozen=True, slots=True)
class WarpTiles:
    """A contraction cut into tiles of blocks and warps.

    Attributes:
        contraction: What is computed; its factor `a` gives the rows.
        instruction: The matrix instruction of the target.
        a, b: The factors.
        k: The ranges of k, which count as one; the last moves fastest.
        warps: Warps along the rows and the columns.
        slots: Slots of each factor.
    """

    contraction: Contraction
    instruction: MatrixInstruction
    a: Factor
    b: Factor
    k: tuple[Node, ...]
    warps: tuple[int, int]
    slots: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.warps) * WARP_THREADS

    @property
    def depth(self) -> int:
        """Values of k in a slot."""
        return self.a.width

    @property
    def steps(self) -> int:
        """How many slots a tile takes."""
        return ceil_div(product(self.k), self.depth)

    @property
    def sides(self) -> tuple[int, int]:
        """Tiles along the rows and the columns."""
        down, across = product(self.contraction.m), product(self.contraction.n)
        return ceil_div(down, self.a.rows), ceil_div(across, self.b.rows)

    @property
    def tiles(self) -> int:
        """How many tiles there are."""
        return product(self.contraction.batch) * prod(self.sides)

    @property
    def warp_sides(self) -> tuple[int, int]:
        """Rows and columns of one warp."""
        return self.a.rows // self.warps[0], self.b.rows // self.warps[1]

    @property
    def is_promoted(self) -> bool:
        """Are sums inside of the matrix unit too short, so that each slot's go to float32?"""
        return self.a.dtype.is_float and self.a.dtype.itemsize == 1

    @property
    def sums(self) -> int:
        """Sums of one thread."""
        return prod(self.warp_sides) // WARP_THREADS

    @property
    def registers(self) -> int:
        """Registers of one thread for sums."""
        words = 2 if self.contraction.reduce.type.dtype.itemsize > _REGISTER_BYTES else 1
        return self.sums * words * (1 + self.is_promoted) + sum(self.factor_sums)

    @property
    def factor_sums(self) -> tuple[int, int]:
        """Sums of one factor that a thread has, for what is added to the other one."""
        each = [side // FRAGMENT_ROWS * FRAGMENT_SUMS for side in self.warp_sides]
        rows, columns = each
        return (rows if self.b.offset else 0, columns if self.a.offset else 0)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot of both factors."""
        return (self.a.slot_elements + self.b.slot_elements) * self.a.dtype.itemsize
