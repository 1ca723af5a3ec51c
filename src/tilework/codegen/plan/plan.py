"""The words of a tile plan, as plain data: printable, serialisable, checkable.

A plan splits ranges (`Split`), maps the parts to units (`Part`), copies factors into memories
(`Staged`) and names a matrix instruction.  The same words describe other machines than CPUs:

- *NVIDIA Hopper* (H200): the leading entries of the nest are blocks of a persistent grid, their
  parts map to warps (WARP) and threads (LOCAL); both factors are `Staged` in TILE (shared memory)
  with a depth of 3 to 5, filled by the target's bulk copy engine; `matrix` is a `wgmma` shape.
- *AMD RDNA*: the same with LDS as TILE, no copy engine (depth 2 by loads ahead), `matrix` a WMMA.
- *Adreno*: workgroups as tasks, LOCAL threads with wide LANE accesses, small or no TILE copies.
- *Hexagon*: tasks are hardware threads, LANE a vector of HVX, TILE copies live in VTCM.
- *Apple GPUs*: threadgroup memory as TILE, `matrix` a simdgroup product of 8 x 8.

What a target lacks is refused by `check`, what the lowering cannot do yet too.
"""

from __future__ import annotations

from tilework.base.records import dataclass
from tilework.ir.ops.index import Unit
from tilework.ir.types import Memory


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a split range: what runs through it and how many values it has.

    A size of 0 stands for what remains of the range.
    """

    unit: Unit
    size: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """How the range `number` of a kernel is split.

    `outer` are loops or tasks over tiles, outermost first (the first has size 0: the rest);
    `tile` are the parts inside one tile (UNROLL copies, then LANE), whose sizes multiply to the
    tile's length.  CPU: the register tile's rows or vectors.  GPU: what one thread holds.
    """

    number: int
    outer: tuple[Part, ...]
    tile: tuple[Part, ...] = ()

    @property
    def tile_size(self) -> int:
        """How many values of the range one tile holds."""
        size = 1
        for part in self.tile:
            size *= part.size
        return size


@dataclass(frozen=True, slots=True)
class Staged:
    """A factor of the contraction that is copied into a memory before it is used.

    Attributes:
        operand: 0 or 1, the first or second factor of the product.
        memory: Where the copy lives (TILE: an L2 pack buffer, shared memory, LDS, VTCM).
        level: How many entries of the nest stand outside of the copy loop.
        lanes: Elements copied by one vector move; squares of them are transposed where memory is
            contiguous along k instead of along the tile.
        depth: How many copies are in flight: 1 copies, then computes; more form a ring, filled by
            a copy engine while earlier copies are used.
        windows: Copy each element once where those of neighbouring outputs overlap (the patches
            of a convolution), instead of once for each output that reads it.
    """

    operand: int
    memory: Memory
    level: int
    lanes: int = 1
    depth: int = 1
    windows: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for one kernel.

    Attributes:
        splits: One entry for each range that is split or mapped; others are serial loops.
        nest: (range number, outer part) in loop order, outermost first, for the output ranges.
        tasks: How many leading entries of the nest run as tasks of the launch (Unit.THREAD).
        staged: The copies.
        overlap: Whether a last tile may reach back over the one before (results are stored twice,
            equal both times) where a size is no multiple of the tile; else edges are gated.
        swapped: For a contraction: its second factor gives the rows, its first the lanes.
        ahead: How many bytes the second factor of a contraction is fetched ahead of its use, from
            its copy if it has one; less than a page goes to the first cache, more to the second
            (evenly, while rows pass over the panel before, if several do).  0 leaves that to the
            machine.
        matrix: The target's matrix instruction that computes a tile; empty for vectors.
        rolled: Whether a tile's results go through TILE memory, so that what follows the reduction
            runs over them in loops instead of once for each copy.
    """

    splits: tuple[Split, ...]
    nest: tuple[tuple[int, int], ...]
    tasks: int
    staged: tuple[Staged, ...] = ()
    overlap: bool = True
    swapped: bool = False
    matrix: str = ""
    ahead: int = 0
    rolled: bool = False

    def split_of(self, number: int) -> Split:
        """The split of range `number`; a plain loop if the plan does not name it."""
        for split in self.splits:
            if split.number == number:
                return split
        return Split(number, (Part(Unit.LOOP),))
