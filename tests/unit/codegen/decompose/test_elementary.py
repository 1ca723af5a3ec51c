"""What a target has of its own is left as it is, and nothing is imported for that."""

import sys

import pytest

from tilework.codegen.decompose.elementary import decompose_elementary
from tilework.dtypes import DType, float16, float32, float64
from tilework.ir.build import const
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.testing.kernels import target

CONSTRUCTIONS = "tilework.codegen.decompose.transcendental"


def product(dtype: DType) -> Node:
    x, y, z = (const(number, dtype) for number in (2.0, 3.0, 4.0))
    return math.MULACC(x, y, z)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_multiply_adds_of_the_machine_need_no_constructions(
    dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, CONSTRUCTIONS, None)
    node = product(dtype)
    assert decompose_elementary(node, target("x86-64-v3")) is node


def test_what_the_target_lacks_is_still_constructed() -> None:
    plain = target("x86-64")  # it has no multiply-add
    assert decompose_elementary(product(float32), plain).op is not math.MULACC
    # Nor does any of them compute with float16.
    assert decompose_elementary(product(float16), target("x86-64-v3")).op is math.CAST
