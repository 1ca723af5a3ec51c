"""Is a plan legal for a kernel and a target?  Asked before every plan is applied.

What a cost model, a database or a person proposes passes through here, so `apply` may trust it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.errors import PlanError
from tilework.codegen.plan.extents import ceil_div, fitting_lanes, least_size, number, size
from tilework.codegen.plan.matrix_check import check_matrix
from tilework.codegen.plan.results import can_roll
from tilework.codegen.plan.windows import deep_range, staged_contractions, windows_of
from tilework.ir.build import const_index
from tilework.ir.ops.index import Unit
from tilework.ir.ops.tensor import SCAN
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.contraction import Contraction
    from tilework.codegen.plan.plan import Plan, Split, Staged
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Copies of one statement that unrolling may make.
MOST_COPIES: Final = 1024


def check(plan: Plan, kernel: Kernel, target: TargetSpec) -> None:
    """Refuse a plan that would not compute what the kernel says, or would not fit the target.

    Args:
        plan: The plan; its numbers are those of the kernel's ranges.
        kernel: The kernel with its ranges normalised.
        target: The machine that it is for.

    Raises:
        PlanError: Names the first rule that the plan breaks.
    """
    _Check(plan, kernel, target).run()


def check_lanes(plan: Plan, kernel: Kernel) -> None:
    """Refuse a value that would be a vector along two ranges.

    Raises:
        PlanError: Names the value and its ranges.
    """
    ranges = {number(r): r for r in kernel.free.ranges}
    node = with_two_lanes(
        kernel,
        [
            ranges[split.number]
            for split in plan.splits
            if any(part.unit is Unit.LANE and part.size > 1 for part in split.tile)
        ],
    )
    if node is not None:
        raise PlanError(
            "plan: a value has lanes along two ranges",
            got=f"{node.op.name}, ranges {[number(r) for r in kernel.free.of(node)]}",
        )


def with_two_lanes(kernel: Kernel, ranges: Iterable[Node]) -> Node | None:
    """A value that is a vector along two ranges where each of `ranges` has lanes."""
    lanes = 0
    for range_ in ranges:
        lanes |= kernel.free.bit(range_)
    for node in kernel.order:
        found = kernel.free.mask[node] & lanes
        if node in kernel.reduces:
            # What is folded over lanes must not be a vector along another range.
            for bound in node.src[1:]:
                found |= kernel.free.bit(bound) & lanes
        if found & (found - 1):
            return node
    return None


class _Check:
    def __init__(self, plan: Plan, kernel: Kernel, target: TargetSpec) -> None:
        self.plan = plan
        self.kernel = kernel
        self.target = target
        self.ranges = {number(r): r for r in kernel.free.ranges}
        self.outputs = {number(r) for r in kernel.outputs}
        scans = [node for node in kernel.order if node.op is SCAN]
        self.scanned = {number(node.src[1]) for node in scans}

    def run(self) -> None:
        """Check everything, the plainest rules first."""
        self._splits()
        self._nest()
        self._order()
        self._overlap()
        check_lanes(self.plan, self.kernel)
        self._copies()
        self._matrix()
        self._rolled()
        self._staged()

    # ---- splits

    def _splits(self) -> None:
        seen: set[int] = set()
        for split in self.plan.splits:
            if split.number not in self.ranges:
                raise PlanError(
                    "plan: a split names a range that does not exist",
                    got=f"range {split.number}",
                    expected=f"one of {sorted(self.ranges)}",
                )
            if split.number in seen:
                raise PlanError("plan: a range is split twice", got=f"range {split.number}")
            seen.add(split.number)
            _check_outer(split)
            _check_tile(split, self.target)
            range_ = self.ranges[split.number]
            if split.number not in self.outputs:
                self._check_bound(split, range_)
            if split.number in self.scanned and len(split.outer) > 1:
                raise PlanError("plan: a scan's range is blocked", got=f"range {split.number}")
            if range_ in self.kernel.serial and split.tile_size > 1:
                raise PlanError(
                    "plan: a range that must run in order has a tile", got=f"range {split.number}"
                )

    def _check_bound(self, split: Split, range_: Node) -> None:
        """A range that a reduction binds: one loop around its tile, no longer than the range."""
        if len(split.outer) > 1:
            raise PlanError(
                "plan: a reduction's range is blocked", got=f"range {split.number}: {split.outer}"
            )
        if split.tile_size == 1:
            return
        extent = simplify.value_of(range_.src[0])
        if extent is None or split.tile_size > extent:
            raise PlanError(
                "plan: a tile is longer than the reduction's range",
                got=f"tile {split.tile_size} of range {split.number}",
                expected=f"at most {extent if extent is not None else 1}",
            )

    # ---- the nest

    def _nest(self) -> None:
        wanted = {
            (n, part) for n in self.outputs for part in range(len(self.plan.split_of(n).outer))
        }
        nest = self.plan.nest
        if len(set(nest)) != len(nest) or set(nest) != wanted:
            raise PlanError(
                "plan: the nest does not hold every outer part of the output ranges once",
                got=str(list(nest)),
                expected=str(sorted(wanted)),
            )
        position = {entry: at for at, entry in enumerate(nest)}
        for n, part in nest:
            if part and position[n, part - 1] > position[n, part]:
                raise PlanError("plan: an inner part stands outside of its outer part", got=f"{n}")
        if self.plan.ahead < 0:
            raise PlanError(
                "plan: memory is fetched before its beginning", got=str(self.plan.ahead)
            )
        if not 0 <= self.plan.tasks <= len(nest):
            raise PlanError(
                "plan: more tasks than loops",
                got=str(self.plan.tasks),
                expected=f"0 .. {len(nest)}",
            )
        for n, part in nest[: self.plan.tasks]:
            self._check_task(n, part)

    def _check_task(self, n: int, part: int) -> None:
        if self.ranges[n] in self.kernel.ordered:
            raise PlanError("plan: a range that must run in order is split in tasks", got=f"{n}")
        if not part:
            return
        split = self.plan.split_of(n)
        extent = simplify.value_of(self.ranges[n].src[0])
        # A task cannot end early, as an inner loop does in the last block.
        if extent is None or ceil_div(extent, split.tile_size) % split.outer[1].size:
            raise PlanError(
                "plan: tasks over blocks that are not all full",
                got=f"range {n}, {split.outer[1].size} tiles a block",
            )

    def _order(self) -> None:
        """Ranges that must run in order keep it, and scans are inside of what they depend on."""
        numbers = list(dict.fromkeys(n for n, _ in self.plan.nest))
        serial = [n for n in numbers if self.ranges[n] in self.kernel.ordered]
        ordered = [n for n in serial if n not in self.scanned]
        if ordered != sorted(ordered):
            raise PlanError("plan: ranges that must run in order change places", got=str(ordered))
        position = {n: at for at, (n, _) in enumerate(self.plan.nest)}  # of the innermost part
        for node in [n for n in self.kernel.order if n.op is SCAN]:
            own = number(node.src[1])
            around = [number(r) for r in self.kernel.free.of(node) if r is not node.src[1]]
            if any(position.get(n, -1) > position[own] for n in around):
                raise PlanError(
                    "plan: a scan's loop stands outside of a range that it depends on",
                    got=f"range {own} before {around}",
                )

    # ---- tiles

    def _uneven(self, n: int) -> bool:
        """May the tiles of a range leave a rest?"""
        tile = self.plan.split_of(n).tile_size
        rest = simplify.mod(self.ranges[n].src[0], const_index(tile))
        return simplify.value_of(rest) != 0

    def _overlap(self) -> None:
        for n in sorted(self.outputs):
            split, range_ = self.plan.split_of(n), self.ranges[n]
            if not self._uneven(n):
                continue
            if self.plan.overlap and split.tile_size > least_size(range_):
                raise PlanError(
                    "plan: a tile is longer than its range",
                    got=f"tile {split.tile_size} of range {n}",
                    expected=f"at most {least_size(range_)}",
                )
            ordered = any(number(r) not in self.scanned for r in self.kernel.serial)
            if self.plan.overlap and (self.kernel.read_and_written or ordered):
                raise PlanError(
                    "plan: tiles overlap where a place must be written once", got=f"range {n}"
                )
            if not self.plan.overlap and (self.plan.staged or self.plan.ahead):
                raise PlanError(
                    "plan: staged copies need tiles that reach back or fit",
                    got=f"range {n}, tile {split.tile_size}",
                )

    def _copies(self) -> None:
        """Accumulators stay in registers, and unrolling stays within reason."""
        unrolled = {
            split.number: _unrolled(split) for split in self.plan.splits if _unrolled(split) > 1
        }
        for node in self.kernel.order:
            copies = 1
            for range_ in self.kernel.free.of(node):
                copies *= unrolled.get(number(range_), 1)
            if node in self.kernel.reduces:
                for bound in node.src[1:]:
                    copies *= unrolled.get(number(bound), 1)
                registers = self.target.num_vector_registers
                if registers and copies > registers:
                    raise PlanError(
                        "plan: more accumulators than registers",
                        got=str(copies),
                        expected=f"at most {registers}",
                    )
            if copies > MOST_COPIES:
                raise PlanError(
                    "plan: too many copies of a statement",
                    got=str(copies),
                    expected=f"at most {MOST_COPIES}",
                )

    # ---- staged factors

    def _rolled(self) -> None:
        if self.plan.rolled and not can_roll(self.kernel, self.plan):
            raise PlanError(
                "plan: results go through memory where no single reduction has whole tiles",
                got=f"{len(self.kernel.reduces)} reductions",
            )

    def _matrix(self) -> None:
        name = self.plan.matrix
        known = [instruction.name for instruction in self.target.matrix_instructions]
        if name and name not in known:
            raise PlanError(
                f"plan: {self.target.name} has no such matrix instruction",
                got=name,
                expected=f"one of {', '.join(known)}" if known else "none: it has vectors alone",
            )
        if name:
            check_matrix(self.plan, self.kernel, self.target)
        elif any(part.unit is Unit.MATRIX for s in self.plan.splits for part in s.tile):
            raise PlanError("plan: a part of a matrix register without a matrix instruction")

    def _staged(self) -> None:
        if not self.plan.staged and not self.plan.swapped and not self.plan.ahead:
            return
        found = staged_contractions(self.kernel)
        if len(found) <= int(self.plan.swapped):
            raise PlanError(
                "plan: there is no contraction whose factors could be staged or swapped",
                got=f"{len(self.plan.staged)} staged, swapped {self.plan.swapped}",
            )
        contraction = found[int(self.plan.swapped)]
        total = 0
        operands = [staged.operand for staged in self.plan.staged]
        if len(set(operands)) != len(operands):
            raise PlanError("plan: a factor is staged twice", got=str(operands))
        for staged in self.plan.staged:
            self._check_staged(staged)
            self._check_batch(contraction)
            total += self._staged_bytes(staged, contraction)
        limit = self.target.limits.max_scratch_bytes
        if limit and total > limit:
            raise PlanError(
                "plan: the staged copies do not fit a worker's memory",
                got=f"{total} bytes",
                expected=f"at most {limit}",
            )

    def _check_staged(self, staged: Staged) -> None:
        if staged.operand not in (0, 1):
            raise PlanError(
                "plan: a product has no such factor", got=str(staged.operand), expected="0 or 1"
            )
        if staged.memory is not Memory.TILE:
            raise PlanError(
                "plan: a copy in a memory that this target has not",
                got=staged.memory.value,
                expected=Memory.TILE.value,
            )
        if not self.plan.tasks <= staged.level <= len(self.plan.nest):
            raise PlanError(
                "plan: a copy loop stands outside of the tasks or inside of no loop",
                got=f"level {staged.level}",
                expected=f"{self.plan.tasks} .. {len(self.plan.nest)}",
            )
        most = max(self.target.vector_bits // 8, 1)
        if not 1 <= staged.lanes <= most or staged.lanes & (staged.lanes - 1):
            raise PlanError(
                "plan: a copy with another number of lanes than vectors have",
                got=str(staged.lanes),
                expected=f"a power of two up to {most}",
            )
        if staged.depth != 1 and (staged.depth < 1 or not self.target.copy_engines):
            raise PlanError(
                "plan: a ring of copies that no copy engine of this target fills",
                got=f"depth {staged.depth}",
                expected="1 or more" if self.target.copy_engines else "1",
            )

    def _check_batch(self, contraction: Contraction) -> None:
        """Copies of a statement side by side would fill one memory with different panels."""
        for range_ in contraction.batch:
            if self.plan.split_of(number(range_)).tile_size > 1:
                raise PlanError(
                    "plan: a batch range of a staged contraction has a tile",
                    got=f"range {number(range_)}",
                )

    def _staged_bytes(self, staged: Staged, contraction: Contraction) -> int:
        """The memory that a copy takes: what is inside of its level, its tile, all of k."""
        own = contraction.n if staged.operand else contraction.m
        factor = contraction.b if staged.operand else contraction.a
        windows = windows_of(factor, own, contraction.k) if staged.windows else []
        spans = {window.own: window for window in windows}
        tiles = [part for r in own for part in self.plan.split_of(number(r)).tile]
        is_wide = staged.lanes > 1 and all(part.unit is not Unit.LANE for part in tiles)
        deep = deep_range(factor, contraction.k, windows) if is_wide else None
        count = 1
        for range_ in own:
            extent = min(self._extent_inside(range_, staged.level), size(range_))
            if range_ in spans:
                span = spans[range_].span(extent)
                is_padded = is_wide and deep is None and range_ is windows[-1].own
                count *= ceil_div(span, staged.lanes) * staged.lanes if is_padded else span
            else:
                count *= self._extent_inside(range_, staged.level)
        inner = {window.inside for window in windows}
        for range_ in contraction.k:
            lanes = fitting_lanes(staged.lanes, size(range_)) if range_ is deep else 1
            count *= 1 if range_ in inner else ceil_div(size(range_), lanes) * lanes
        return count * factor.type.dtype.itemsize * staged.depth

    def _extent_inside(self, range_: Node, level: int) -> int:
        """How many values of a range the part of the nest from `level` on runs through."""
        outside = set(self.plan.nest[:level])
        split = self.plan.split_of(number(range_))
        inner = 1
        for part in split.outer[1:]:
            inner *= part.size
        extents = [ceil_div(ceil_div(size(range_), split.tile_size), inner)]
        extents += [part.size for part in split.outer[1:]]
        count = split.tile_size
        for part_number, extent in enumerate(extents):
            if (number(range_), part_number) not in outside:
                count *= extent
        return count


def _unrolled(split: Split) -> int:
    copies = 1
    for part in split.tile:
        if part.unit is Unit.UNROLL:
            copies *= part.size
    return copies


def _check_outer(split: Split) -> None:
    """One part for the rest of the range, and perhaps a block of fixed size inside of it."""
    sizes = [part.size for part in split.outer]
    if not sizes or len(sizes) > 2 or sizes[0] != 0 or any(s < 1 for s in sizes[1:]):
        raise PlanError(
            "plan: outer parts must be the rest of the range and at most one block",
            got=f"range {split.number}: sizes {sizes}",
            expected="[0] or [0, a positive size]",
        )
    if any(part.unit is not Unit.LOOP for part in split.outer):
        raise PlanError(
            "plan: an outer part is no loop; the number of tasks says which run in parallel",
            got=f"range {split.number}: {[part.unit.value for part in split.outer]}",
        )


def _check_tile(split: Split, target: TargetSpec) -> None:
    """Unrolled copies, then the lanes of one vector."""
    units = [part.unit for part in split.tile]
    inside = (Unit.LANE, Unit.MATRIX)
    lanes = [part.size for part in split.tile if part.unit is Unit.LANE]
    if any(unit is not Unit.UNROLL and unit not in inside for unit in units) or (
        sum(unit in inside for unit in units) > 1
    ):
        raise PlanError(
            "plan: a tile is made of unrolled copies and lanes of one vector, or a matrix register",
            got=f"range {split.number}: {[unit.value for unit in units]}",
        )
    if any(unit in inside for unit in units[:-1]):
        raise PlanError("plan: lanes must move fastest", got=f"range {split.number}")
    if any(part.size < 1 for part in split.tile):
        raise PlanError("plan: a part of a tile is empty", got=f"range {split.number}")
    most = max(target.vector_bits // 8, 1)
    if lanes and (lanes[0] > most or lanes[0] & (lanes[0] - 1)):
        raise PlanError(
            "plan: no vector of this target has so many lanes",
            got=f"range {split.number}: {lanes[0]} lanes",
            expected=f"a power of two up to {most}",
        )
