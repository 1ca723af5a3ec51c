"""COPYSIGN of narrow floats."""

from __future__ import annotations

from tilework.codegen.passes.decompose import decompose_node
from tilework.dtypes import bfloat16, float16
from tilework.ir.build import const_bits
from tilework.ir.interpret import evaluate
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.target.known.cuda import cuda_spec


def test_the_sign_of_a_nan_counts_for_narrow_floats() -> None:
    for dtype in (float16, bfloat16):
        one, negative_nan = const_bits(0x3C00, dtype), const_bits(0xFFC1, dtype)
        lowered = decompose_node(math.COPYSIGN(one, negative_nan), cuda_spec(90))
        assert all(node.op is not math.CAST for node in toposort(lowered))
        assert evaluate(lowered, {}).bits() == [0xBC00]
