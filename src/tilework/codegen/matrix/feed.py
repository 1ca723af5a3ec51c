"""What a crew gets to multiply: arrays in slots of TILE memory, and how their blocks come.

A `Feed` fills the slots, lets a group wait until a block is there, multiplies, and runs the
statements of groups for each tile.  `group_feed` does so for warp groups, whose slots a copy engine
fills while a warp of its own asks for that; `warp_feed` for single warps, which do all themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from tilework.base.records import dataclass
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.matrix.arrays import ROW_BYTES, place_of, whole_rows
from tilework.codegen.plan.extents import size
from tilework.ir.build import const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.codegen.matrix.arrays import Array
    from tilework.codegen.matrix.crew import Crew
    from tilework.codegen.matrix.exchange import Staging
    from tilework.codegen.matrix.writer import Writer
    from tilework.ir.node import Node


@dataclass(frozen=True, slots=True)
class Slots:
    """TILE memory for blocks of one array: `lines` rows of `depth` elements in each slot."""

    array: Array
    memory: Node
    lines: int

    @property
    def depth(self) -> int:
        """Elements of a line, as many as whole rows of slots have."""
        return whole_rows(self.array.axes[0].size)

    @property
    def elements(self) -> int:
        """Elements of one slot."""
        return self.lines * self.depth

    @property
    def bytes(self) -> int:
        """Bytes of one slot."""
        return self.elements * self.array.dtype.itemsize

    @property
    def width(self) -> int:
        """Elements of one row of a box."""
        return ROW_BYTES // self.array.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Supply:
    """Arrays whose blocks come together.

    Attributes:
        arrays: Each once.
        along: The range that runs along the lines of a slot.
        lines: Lines of a slot.
        count: Slots; of what a tile holds there is one.
        is_held: Does a tile hold them, so that they come once for it?
        ahead: How many blocks earlier than others it is used.
    """

    arrays: Sequence[Array]
    along: Node
    lines: int
    count: int
    is_held: bool = False
    ahead: int = 0


class Work(Protocol):
    """What a crew does: its tiles, and what belongs to each position of a block."""

    #: How many tiles there are, and positions of a block.
    tiles: int
    block: int
    #: What is computed once for a position along the key, and no product enters.
    of_positions: tuple[Node, ...]
    #: The range along which blocks come.
    key: Node

    def tile(self, task: Node) -> tuple[dict[Node, Node], Node]:
        """The values of the ranges that are not tiled, and a tile's first row."""

    def span(self, row: Node) -> tuple[Node, Node]:
        """The first block of a tile, and how many there are."""


class Feed(ABC):
    """A block's threads as groups see them.

    Args:
        out: Where statements go.
        work: What is done.
        crew: By whom.
        supplies: What for; that which tiles hold first.

    Attributes:
        group, member, leads: A group's number, a thread's number there, and whether it acts for it.
        outgoing: For each result room in TILE memory on its way; None where it leaves from
            registers.
    """

    group: Node
    member: Node
    leads: Node

    def __init__(self, out: Writer, work: Work, crew: Crew, supplies: Sequence[Supply]) -> None:
        self.out, self.work, self.crew, self.supplies = out, work, crew, tuple(supplies)
        self.slots = [
            [self._slots(array, supply) for array in supply.arrays] for supply in supplies
        ]
        self.outgoing: Sequence[Staging | None] = ()
        self.staged: dict[Node, Node] = {}

    def _slots(self, array: Array, supply: Supply) -> Slots:
        elements = supply.count * supply.lines * whole_rows(array.axes[0].size)
        return Slots(array, self.out.allocate(array.dtype, elements, 1024), supply.lines)

    def slots_of(self, number: int, array: Array) -> Slots:
        """The slots of an array in a supply."""
        along = self.supplies[number].along
        wanted = place_of(array, along)
        return next(each for each in self.slots[number] if place_of(each.array, along) == wanted)

    def stage(self) -> None:
        """Make room for what belongs to the positions of all slots."""
        count = self.supplies[-1].count * self.work.block
        for node in self.work.of_positions:
            self.staged[node] = self.out.allocate(node.type.dtype, count)

    def staged_at(
        self, others: dict[Node, Node], position: Node, *, may_exceed: bool
    ) -> list[tuple[Node, Node]]:
        """What belongs to one position of the key, each with its memory; 0 behind the last one.

        Args:
            others: The values of the ranges that are not tiled.
            position: Which one.
            may_exceed: Are whole blocks asked for that lie behind the last position?
        """
        key = self.work.key
        length = size(key)
        is_cut = bool(length % self.work.block)
        last = const_index(length - 1)
        at = others | {key: simplify.minimum(position, last) if may_exceed or is_cut else position}
        memo: dict[Node, Node] = {}
        found = []
        for node, memory in self.staged.items():
            value = substitute_ranges(node, at, {}, memo)
            if is_cut:
                is_inside = simplify.less(position, const_index(length))
                value = math.WHERE(is_inside, value, const_bits(0, value.type.dtype))
            found.append((memory, value))
        return found

    def slot(self, number: int, at: Node) -> Node:
        """The slot of a block, by how many were before it."""
        return simplify.mod(at, const_index(self.supplies[number].count))

    @abstractmethod
    def write(self, start: Callable[[Feed], Callable[[Node], None]]) -> None:
        """All that one thread of a block does.

        Args:
            start: Writes what stands before the tiles of a group, and gives what writes the
                statements of one tile.
        """

    # ---- one tile

    @abstractmethod
    def begin_tile(self, others: dict[Node, Node], row: Node, span: tuple[Node, Node]) -> Node:
        """What the tile holds is there; returns what later statements come after."""

    @abstractmethod
    def end_tile(self, count: Node, after: Node) -> None:
        """Nothing of a tile of so many blocks is needed any longer."""

    @abstractmethod
    def begin_block(self, turn: Node, *, is_last: bool = False) -> None:
        """A block's statements begin: whoever fills slots themselves starts with a later block."""

    @abstractmethod
    def end_block(self) -> None:
        """A block's products are started: what was loaded for a later one may be stored."""

    @abstractmethod
    def ready(self, number: int, turn: Node, *after: Node) -> tuple[Node, Node]:
        """The slot of a block of a supply, and the statement after which it is there."""

    @abstractmethod
    def release(
        self, number: int, turn: Node, after: Node, condition: Node, *, is_before: bool = False
    ) -> None:
        """Hand the slot of a block, or of the one before it, back where a condition holds."""

    @abstractmethod
    def end_positions(self, turn: Node) -> None:
        """All threads of a group have read what belongs to a block's positions."""

    # ---- products

    @abstractmethod
    def begin(self, *after: Node) -> Node:
        """Products may begin."""

    @abstractmethod
    def commit(self, begin: Node) -> Node:
        """The products since the last such statement are a group."""

    @abstractmethod
    def wait(self, *sums: Node, count: int) -> Node:
        """All but the last groups of products are there."""

    @abstractmethod
    def multiply(
        self, total: Node, factors: tuple[Slots, Slots], slot: Node, depth: int, begin: Node
    ) -> None:
        """Let `total` be the product of a group's rows of a held array and a block's lines."""

    @abstractmethod
    def mix(
        self, total: Node, values: Slots, slot: Node, pairs: Sequence[Node], begin: Node
    ) -> None:
        """Add the product of a factor in registers, two by two, and the lines of a block."""
