"""The stages that a program passes on its way to machine code (not the op STAGE)."""

from __future__ import annotations

from enum import IntFlag


class Stage(IntFlag):
    """Where in the pipeline a node may stand; an op lists the stages in which it is legal.

    TENSOR: arrays and movement ops, no ranges.  KERNEL: one kernel; scalars over ranges, loads and
    stores, no movement ops.  TILED: a plan has been applied; ranges are split and mapped to units,
    values staged in memories.  LOWERED: only what the target declares; vectors, no LANE or UNROLL
    ranges.  LINEAR: ordered statements.  MACHINE: instructions of an ISA back end.  SCHEDULE: what
    holds kernels (LINEAR of CALLs over buffers).
    """

    TENSOR = 1
    KERNEL = 2
    TILED = 4
    LOWERED = 8
    LINEAR = 16
    MACHINE = 32
    SCHEDULE = 64


#: The stages whose values are scalars or vectors over ranges.
IN_KERNEL = Stage.KERNEL | Stage.TILED | Stage.LOWERED | Stage.LINEAR
EVERYWHERE = Stage.TENSOR | IN_KERNEL | Stage.SCHEDULE
