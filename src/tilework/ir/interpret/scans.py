"""The meaning of scans whose tiles blocks of threads take in the order in which they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError, UnsupportedError
from tilework.ir.interpret.folds import doubled, fold_function, fold_halves, identity
from tilework.ir.interpret.scalars import bits_of_scalar, scalar_from_bits
from tilework.ir.ops.index import TASK_IN_ORDER
from tilework.ir.ops.scan import SCAN_BLOCKS, WORD_BITS, words_of_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.interpret.blocks import Member
    from tilework.ir.interpret.memory import Cells
    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node, OpDef

#: The slot of the thread that runs; `steps.TEAM`, which imports this module's table.
_TEAM: Final = 3
_WARP: Final = 32
_LOW: Final = (1 << WORD_BITS) - 1


def member_of(frame: Frame, node: Node) -> Member:
    """The thread of the block that runs the statement."""
    member: Member | None = frame[_TEAM]
    if member is None:
        raise UnsupportedError(f"{node.op.name}: needs the threads of a block", got=repr(node))
    return member


class _Words:
    """Values in words, each of which is written once and read only then."""

    def __init__(self, cells: Cells, node: Node, first: int) -> None:
        self.cells, self.node, self.first = cells, node, first
        self.dtype = node.type.dtype
        self.count = words_of_value(self.dtype)

    def publish(self, number: int, value: Any) -> None:
        """Write a value."""
        bits = bits_of_scalar(value, self.dtype)
        for part in range(self.count):
            at = self.first + number * self.count + part
            if self.cells.load(at, self.node):
                raise InternalError("scan_blocks: a word is written twice", got=f"word {at}")
            word = bits >> part * WORD_BITS & _LOW
            self.cells.store(at, word | 1 << WORD_BITS, self.node)

    def wait(self, number: int) -> Any:
        """Read a value that a block which has started writes."""
        bits = 0
        for part in range(self.count):
            at = self.first + number * self.count + part
            word = self.cells.load(at, self.node)
            if not word >> WORD_BITS:
                raise InternalError("scan_blocks: what it waits for never comes", got=f"word {at}")
            bits |= (word & _LOW) << part * WORD_BITS
        return scalar_from_bits(bits, self.dtype)


class _Scan:
    """One tile's scan, as one of its threads sees it."""

    def __init__(self, node: Node, member: Member) -> None:
        self.node, self.member, self.attrs = node, member, node.attrs
        self.dtype = node.type.dtype
        self.combine = fold_function(self.attrs.fold, self.dtype)
        self.start = identity(self.attrs.fold, self.dtype)

    def run(self, cells: Cells, row: int, tile: int, values: list[Any]) -> Any:
        steps = [list(value) if isinstance(value, tuple) else [value] for value in values]
        sums = [self._in_lanes(step) for step in steps]
        starts, total = self._in_warp([lanes[-1] for lanes in sums])
        before_warp, own = self._in_block(total)
        first = self.combine(self._before_tile(_Words(cells, self.node, row), tile, own),
                             before_warp)  # fmt: skip
        found = []
        for lanes, start in zip(sums, starts, strict=True):
            parts = [self.combine(start, part) for part in lanes]
            parts = [start, *parts[:-1]] if self.attrs.exclusive else parts
            found += [self.combine(first, part) for part in parts]
        return tuple(found) if len(found) > 1 else found[0]

    def _in_lanes(self, values: list[Any]) -> list[Any]:
        first, *others = values
        sums = [first]
        for value in others:
            sums.append(self.combine(sums[-1], value))
        return sums

    def _in_warp(self, totals: list[Any]) -> tuple[list[Any], Any]:
        """What the warp has before each step of this thread, and its total."""
        lane = self.member.thread % _WARP
        columns = zip(*self.member.share_in_warp(totals), strict=True)
        so_far, starts = self.start, []
        for column in columns:
            threads = doubled(list(column), self.combine)
            starts.append(self.combine(so_far, threads[lane - 1] if lane else self.start))
            so_far = self.combine(so_far, threads[-1])
        return starts, so_far

    def _in_block(self, total: Any) -> tuple[Any, Any]:
        """What the warps before have, and what all of them have."""
        warp = self.member.thread // _WARP
        warps = doubled(self.member.share_in_block(total)[::_WARP], self.combine)
        return (warps[warp - 1] if warp else self.start), warps[-1]

    def _before_tile(self, words: _Words, tile: int, own: Any) -> Any:
        """What the row has before the tile; tells the blocks after this one what they need."""
        member, attrs = self.member, self.attrs
        group, place = divmod(tile, attrs.group)
        leads = member.thread == 0
        if leads:
            words.publish(tile, own)
        is_waiting = member.thread < place
        waited = words.wait(group * attrs.group + member.thread) if is_waiting else self.start
        totals = member.share_in_block(waited)
        warps = [
            fold_halves(attrs.fold, self.dtype, totals[at : at + _WARP])
            for at in range(0, len(totals), _WARP)
        ]
        inside = fold_halves(attrs.fold, self.dtype, warps)
        start = words.wait(attrs.tiles + group - 1) if group else self.start
        before = self.combine(start, inside)
        if leads and place == attrs.group - 1:
            words.publish(attrs.tiles + group, self.combine(before, own))
        return before


def _scan_blocks(node: Node, target: int, sources: list[int]) -> Any:
    words, row, tile, *values = sources

    def step(frame: Frame) -> None:
        scan = _Scan(node, member_of(frame, node))
        found = scan.run(frame[words], frame[row], frame[tile], [frame[slot] for slot in values])
        frame[target] = found

    return step


def _task_in_order(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        member, cells = member_of(frame, node), frame[sources[1]]
        if member.thread == 0:
            member.team.ticket = cells.load(0, node)
            cells.store(0, member.team.ticket + 1, node)
        member.meet()
        frame[target] = member.team.ticket

    return step


MAKERS: Final[dict[OpDef, Callable[[Node, int, list[int]], Any]]] = {
    SCAN_BLOCKS: _scan_blocks,
    TASK_IN_ORDER: _task_in_order,
}
