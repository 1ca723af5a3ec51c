"""What ops cost, roughly: the measure that no rewrite rule may raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops import control, math, memory, tensor
from tilework.ir.ops import index as index_ops

if TYPE_CHECKING:
    from tilework.ir.node import Node, OpDef

#: Cost of an op, in units of the cheapest integer operation.
_COSTS: dict[OpDef, int] = {
    math.CONST: 0,
    math.AND: 1,
    math.OR: 1,
    math.XOR: 1,
    math.NEG: 1,
    math.ABS: 1,
    math.SHL: 1,
    math.SHR: 1,
    math.CAST: 1,
    math.BITCAST: 1,
    math.LT: 1,
    math.LE: 1,
    math.EQ: 1,
    math.NE: 1,
    math.ADD: 2,
    math.SUB: 2,
    math.WHERE: 2,
    math.WHERE_RARE: 2,
    math.MAXIMUM: 2,
    math.MINIMUM: 2,
    math.COPYSIGN: 2,
    math.MUL: 3,
    math.MULACC: 4,
    math.SCALE_POWER: 4,
    math.DOT_PAIRS: 4,
    math.DOT_QUADS: 4,
    math.DOT_SIGNED_QUADS: 4,
    math.DOT_UNSIGNED_QUADS: 4,
    math.DOT_BFLOAT16_PAIRS: 8,
    math.FDIV: 12,
    math.RECIPROCAL: 12,
    math.SQRT: 12,
    math.IDIV: 20,
    math.MOD: 20,
    math.CDIV: 16,
    math.CMOD: 16,
    index_ops.VARIABLE: 0,
    index_ops.RANGE: 0,
    index_ops.LANES: 0,
    control.BROADCAST: 0,
    control.EXTRACT: 1,
    control.SHUFFLE: 1,
    control.COMPRESS: 2,
    memory.PARAM: 0,
    memory.BUFFER: 0,
    tensor.RESHAPE: 1,
    tensor.PERMUTE: 1,
    tensor.EXPAND: 1,
    tensor.SHRINK: 1,
    tensor.FLIP: 1,
    tensor.PAD: 2,
    tensor.IOTA: 1,
}
_OTHER = 40


def op_cost(node: Node) -> int:
    """The cost of one node."""
    return _COSTS.get(node.op, _OTHER)
