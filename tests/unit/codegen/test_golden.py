"""Whole kernels as text, one file for each idea; how to read a diff is in CONTRIBUTING.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tilework.base.settings import override
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import loosen, lower_kernel
from tilework.dtypes import bfloat16, float32, int32
from tilework.ir.build import cast, const, const_index
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, VariableAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.symbolic import simplify
from tilework.ir.text.printer import format_node
from tilework.render.c_family.clang import ClangRenderer
from tilework.target.known.cpu import x86_level_spec

if TYPE_CHECKING:
    from tests.conftest import Golden

    from tilework.dtypes import DType
    from tilework.ir.node import Node

TARGET = x86_level_spec("x86-64-v3", cores=2)


def loop(number: int, size: int | Node) -> Node:
    return RANGE(const_index(size) if isinstance(size, int) else size, attrs=RangeAttrs(number))


def at(slot: int, count: int | Node, offset: Node, dtype: DType = float32) -> Node:
    return INDEX(PARAM(attrs=ParamAttrs(slot, (count,), dtype)), offset)


def polynomial() -> Node:
    """Literals, products and a division: what the looser modes may change."""
    i = loop(0, 40)
    x = LOAD(at(1, 40, i))
    y = math.ADD(math.ADD(math.MUL(x, const(3, float32)), const(1, float32)), const(2, float32))
    return SINK(STORE(at(0, 40, i), math.FDIV(y, const(7, float32))))


def padded() -> Node:
    """A gated load: zeros stand where there is no element."""
    i = loop(0, 12)
    gate = simplify.both(simplify.at_least(i, const_index(2)), simplify.less(i, const_index(10)))
    value = LOAD(at(1, 8, simplify.sub(i, const_index(2))), gate)
    return SINK(STORE(at(0, 12, i), value))


def row_sums() -> Node:
    """A reduction over the inner axis."""
    i, k = loop(0, 5), loop(1, 9)
    x = LOAD(at(1, 45, simplify.add(simplify.scale(i, 9), k)))
    total = REDUCE(x, k, attrs=ReduceAttrs(Fold.ADD))
    return SINK(STORE(at(0, 5, i), total))


def narrow() -> Node:
    """A storage-only float is computed with in float32 and rounded once."""
    i = loop(0, 6)
    x = LOAD(at(1, 6, i, bfloat16))
    return SINK(STORE(at(0, 6, i, bfloat16), math.MUL(x, x)))


def quotients() -> Node:
    """Floor division of integers by a literal, and by zero too where the divisor is data."""
    i = loop(0, 4)
    x, y = LOAD(at(1, 4, i, int32)), LOAD(at(2, 4, i, int32))
    value = math.ADD(math.IDIV(x, const(7, int32)), math.MOD(x, y))
    return SINK(STORE(at(0, 4, i, int32), value))


def symbolic() -> Node:
    """A size that is known when the kernel is launched."""
    n = VARIABLE(attrs=VariableAttrs("n", 1, 100))
    i = loop(0, n)
    value = cast(math.LT(LOAD(at(1, n, i)), const(0, float32)), float32)
    return SINK(STORE(at(0, n, i), value))


KERNELS = (polynomial, padded, row_sums, narrow, quotients, symbolic)


def described(sink: Node, made: str, doc: str | None) -> str:
    """A golden file: a header, the input, a line, and what was made of it."""
    return f"# {doc}\n{format_node(sink)}\n----\n{made}\n"


@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_the_c_text_of_a_kernel_is_as_written(make: object, golden: Golden) -> None:
    sink = make()  # type: ignore[operator]
    text = ClangRenderer().render(lower_kernel(sink, TARGET, is_plain=True))
    body = text[text.index("void ", text.rindex("#endif")) :]
    name = make.__name__  # type: ignore[attr-defined]
    golden.check(f"c/{name}.txt", described(sink, body.strip(), make.__doc__))


@pytest.mark.parametrize("mode", ["strict", "contract", "fast"])
def test_what_each_mode_makes_of_a_polynomial_is_as_written(mode: str, golden: Golden) -> None:
    sink = polynomial()
    with override(fp_mode=mode):
        made = format_node(loosen(rewrite(sink, SIMPLIFY), TARGET))
    golden.check(f"loosen/{mode}.txt", described(sink, made, polynomial.__doc__))


@pytest.mark.parametrize("make", [row_sums, padded], ids=lambda make: make.__name__)
def test_normal_ranges_are_as_written(make: object, golden: Golden) -> None:
    sink = make()  # type: ignore[operator]
    made = format_node(normalise_ranges(rewrite(sink, SIMPLIFY)))
    name = make.__name__  # type: ignore[attr-defined]
    golden.check(f"normalise/{name}.txt", described(sink, made, make.__doc__))
