"""Tilings of a contraction by matrix registers of a processor, and their cost.

A tile is some registers of rows times some of columns; its factors are words of four bytes.  Rows
of the first factor are read where they lie, if words lie side by side along k, else from a copy;
the second factor is read from panels, as for vectors: one row of a register is a vector of words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base import settings
from tilework.base.records import replace
from tilework.codegen.plan.contraction import is_plain_load, load_stride
from tilework.codegen.plan.extents import ceil_div, fitting_lanes, number, size
from tilework.codegen.plan.plan import Part, Split
from tilework.codegen.plan.tile_contraction import Tiling
from tilework.codegen.plan.windows import deep_range
from tilework.dtypes import bfloat16, by_name, int8, int32, uint8
from tilework.ir.ops import math
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import LOAD, STORE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.contraction import Contraction
    from tilework.codegen.plan.plan import Plan, Staged
    from tilework.dtypes import DType
    from tilework.ir.node import Node, OpDef
    from tilework.target.spec import MatrixInstruction, TargetSpec

#: Cycles to load one register of the first factor, mostly from L2, and of the second one, and what
#: a step takes besides.  (Fitted to measurements, as the other numbers here.)
_FIRST_LOAD, _SECOND_LOAD, _STEP = 16.0, 8.0, 6.0
#: Cycles of a vector of results on its way through memory.
_RESULT = 2.5
#: Cycles to make a word of bytes that lie apart, beside those of a word that is copied.
_MAKE_WORD = 5.0
#: Registers along rows and columns that are tried, the best first where sums are long.
_SHAPES: Final = ((2, 2), (3, 1), (1, 3), (2, 1), (1, 2), (1, 1))
#: Bytes of a word.
_WORD_BYTES: Final = int32.itemsize
#: What the words of the first factor and of the second one hold.
_PARTS_OF_WORDS: Final[Mapping[OpDef, tuple[DType, DType]]] = {
    math.DOT_QUADS: (uint8, int8),
    math.DOT_SIGNED_QUADS: (int8, int8),
    math.DOT_UNSIGNED_QUADS: (uint8, uint8),
    math.DOT_BFLOAT16_PAIRS: (bfloat16, bfloat16),
}


def instruction_for(contraction: Contraction, target: TargetSpec) -> MatrixInstruction | None:
    """The instruction of the target whose factors are those of a contraction in words."""
    product = contraction.reduce.src[0]
    if product.op not in _PARTS_OF_WORDS:
        return None
    first, second = parts_of_words(contraction)
    return instruction_of(target, first, second, contraction.reduce.dtype)


def instruction_of(
    target: TargetSpec, a: DType, b: DType, total: DType
) -> MatrixInstruction | None:
    """The instruction of the target for words of these dtypes, whose sums have the dtype `total`.

    One that takes subnormal numbers for zeros is none where the setting `keep_subnormals` says so.
    """
    keeps = settings.current().keep_subnormals
    for found in target.matrix_instructions:
        if not found.registers or found.fragment_layout != "words":
            continue
        if keeps and not found.keeps_subnormals:
            continue
        kinds = (found.a_dtype, found.b_dtype, found.accumulator_dtype)
        if kinds == (a.name, b.name, total.name):
            return found
    return None


def has_stores_alone(kernel: Kernel) -> bool:
    """Does nothing but stores follow the sums?  Only those find results in memory."""
    return all(effect.op is STORE for effect in kernel.sink.src)


def parts_of_words(contraction: Contraction) -> tuple[DType, DType]:
    """What the words of `a` hold, and those of `b`."""
    product = contraction.reduce.src[0]
    first, second = _PARTS_OF_WORDS[product.op]
    return (first, second) if contraction.a is product.src[0] else (second, first)


def matrix_shapes(instruction: MatrixInstruction) -> list[tuple[int, int]]:
    """Registers along rows and columns of a tile whose factors fit beside its sums."""
    return [
        (rows, columns)
        for rows, columns in _SHAPES
        if registers_of(rows, columns) <= instruction.registers
    ]


def registers_of(rows: int, columns: int) -> int:
    """The registers that a tile takes: its sums, the shorter side, and one of the longer side."""
    return rows * columns + min(rows, columns) + 1


def lies_in_rows(factor: Node, row: Node, along: Node) -> bool:
    """Does a factor lie in rows of words side by side, at one distance from each other?"""
    if factor.op is not LOAD or len(factor.src) > 1:
        return False
    stride = load_stride(factor, row)
    return stride is not None and stride >= 0 and load_stride(factor, along) == 1


def most_steps(instruction: MatrixInstruction) -> int:
    """The steps of a sum, of a word each, that one register takes."""
    return instruction.k * by_name(instruction.a_dtype).itemsize // _WORD_BYTES


def steps_of(range_: Node, most: int) -> int:
    """How many steps of a range of k one register takes, so that all registers are full."""
    return max(steps for steps in range(1, most + 1) if size(range_) % steps == 0)


def best_steps(contraction: Contraction, most: int) -> Node:
    """The range of k that fills registers: side by side in the first factor, then long."""

    def worth(range_: Node) -> tuple[bool, int]:
        return load_stride(contraction.a, range_) == 1, steps_of(range_, most)

    return max(contraction.k, key=worth)


def fills_deep(deep: Node, lanes: int, steps: int) -> bool:
    """Do copies of windows, in vectors along `deep`, hold whole registers of so many steps?"""
    width = fitting_lanes(lanes, size(deep))
    return width % steps == 0 and size(deep) % width == 0


class MatrixTiling(Tiling):
    """One way to tile a contraction by `shape` matrix registers."""

    def __init__(
        self,
        kernel: Kernel,
        contraction: Contraction,
        lane: Node,
        row: Node,
        target: TargetSpec,
        swapped: bool,
        instruction: MatrixInstruction,
        shape: tuple[int, int],
    ) -> None:
        self.instruction = instruction
        self.shape = shape
        self.steps_range = best_steps(contraction, most_steps(instruction))
        self.steps = steps_of(self.steps_range, most_steps(instruction))
        super().__init__(kernel, contraction, lane, (row, None), target, swapped)
        self.direct_a = lies_in_rows(contraction.a, row, self.steps_range)

    def candidates(self) -> list[tuple[float, Plan]]:
        """Plans for this tile in all loop orders, each with its estimated cycles."""
        if not self._fits():
            return []
        is_copied = not self.direct_a
        found = [self.by_rows(block, is_copied) for block in self.row_blocks()]
        if self.direct_a:
            found += [self.by_columns(block) for block in self.column_blocks()]
        elif self._has_deep_windows():
            found += [self.by_windows(*blocks) for blocks in self.window_blocks()]
        return [(cycles, self._in_matrices(plan)) for cycles, plan in found]

    def _fits(self) -> bool:
        """Do tiles fit the ranges, with nothing left where nothing may be computed twice?"""
        tiles = ((self.row, self.rows), (self.lane, self.columns))
        if any(tile > size(range_) for range_, tile in tiles):
            return False
        if not self.direct_b and self.columns * self.depth * _WORD_BYTES > self.cache:
            return False
        return self.overlap or not any(size(range_) % tile for range_, tile in tiles)

    def _has_deep_windows(self) -> bool:
        """Is the copy of windows in rows of words, as many as a register takes or more?"""
        if not self.windows or not fills_deep(self.steps_range, self.lanes, self.steps):
            return False
        deep = deep_range(self.contraction.a, self.contraction.k, self.windows)
        return deep is self.steps_range

    def _in_matrices(self, plan: Plan) -> Plan:
        steps = self.steps
        is_wide = load_stride(self.contraction.a, self.steps_range) == 1 and not steps & (steps - 1)
        staged = tuple(
            replace(copy, lanes=steps if is_wide else 1)
            if copy.operand == 0 and not copy.windows
            else copy
            for copy in plan.staged
        )
        return replace(
            plan, staged=staged, matrix=self.instruction.name, rolled=True, overlap=self.overlap
        )

    # ---- what differs from tiles of vectors

    def _most_lanes(self) -> int:
        return fitting_lanes(self.instruction.n, size(self.lane))

    def _shape(self, exact: bool, group: int) -> tuple[int, int, float]:
        down, across = self.shape
        extent = size(self.row)
        most = self.instruction.m * down
        rows = ceil_div(ceil_div(extent, ceil_div(extent, most)), down)
        rows = min(rows, max(extent // down, 1))
        busy = self.instruction.cycles * down * across
        loads = _FIRST_LOAD * down + _SECOND_LOAD * across
        return rows * down, across, (max(busy, loads) + _STEP) / self.steps

    def _splits(self, parts: dict[Node, tuple[Part, ...]]) -> tuple[Split, ...]:
        down, across = self.shape
        tiles = {
            self.row: _tile(down, self.rows // down),
            self.lane: _tile(across, self.lanes),
            self.steps_range: (Part(Unit.MATRIX, self.steps),),
        }
        return tuple(
            Split(number(r), parts.get(r, (Part(Unit.LOOP),)), tiles.get(r, ()))
            for r in dict.fromkeys([*tiles, *parts])
        )

    def _stage_a(self, panels: int) -> bool:
        return not self.direct_a

    def _stage_b(self, reuse: int, block: int = 1) -> bool:
        return not self.direct_b

    def _ahead(self, staged: list[Staged]) -> int:
        return 0

    def _copy_b(self) -> float:
        made = 0.0 if is_plain_load(self.contraction.b) else _MAKE_WORD / self.lanes
        return super()._copy_b() + made

    def _store_cycles(self) -> float:
        through = self._results() / self.lanes * _RESULT
        return super()._store_cycles() + through


def _tile(registers: int, inside: int) -> tuple[Part, ...]:
    own = Part(Unit.MATRIX, inside)
    return (Part(Unit.UNROLL, registers), own) if registers > 1 else (own,)
