import dataclasses
import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework.base.errors import ModelFileError
from tilework.dtypes import bool_, float32, index, int32
from tilework.ir.build import const, const_index
from tilework.ir.node import Node, OpDef
from tilework.ir.ops import OPS, control, math, memory, program, tensor
from tilework.ir.ops import index as index_ops
from tilework.ir.ops.tensor import Fold
from tilework.ir.text import format_node, format_nodes, parse, parse_all
from tilework.ir.text.parser import _ENUMS
from tilework.ir.types import Memory
from tilework.testing.strategies import IndexGraphs, leaf, random_view

N = index_ops.VARIABLE(attrs=index_ops.VariableAttrs("n", 1, 8))
X = memory.PARAM(attrs=memory.ParamAttrs(0, (N, 3), float32, 'CPU "a;{}" %1\n'))
EXAMPLES = [
    const(float("nan"), float32),
    const(-0.0, float32, (2, 1)),
    N,
    X,
    tensor.PAD(X, attrs=tensor.PadAttrs(((0, N), (1, 2)))),
    tensor.SHRINK(X, attrs=tensor.ShrinkAttrs(((0, N, 1), (0, 2, 2)))),
    tensor.PERMUTE(X, attrs=tensor.AxesAttrs((1, 0))),
    tensor.REDUCE(X, attrs=tensor.ReduceAttrs(Fold.MAX, (0,))),
    tensor.GATHER(X, tensor.IOTA(attrs=tensor.IotaAttrs((4,), 0, int32)),
                  attrs=tensor.GatherAttrs(0, None)),
    tensor.SCAN(X, attrs=tensor.ScanAttrs(Fold.ADD, 1, True, False)),
    index_ops.RANGE(N, attrs=index_ops.RangeAttrs(3, index_ops.Unit.THREAD)),
    control.ALLOCATE(attrs=control.AllocateAttrs(bool_, 4, Memory.TILE, 64)),
    program.PROGRAM(N, attrs=program.ProgramAttrs("kernel", b"\x00\xff", 0)),
    program.PROGRAM(N, attrs=program.ProgramAttrs("", b"", 0)),
    memory.LOAD(memory.INDEX(X, const_index(-5))),
    memory.SINK(),
]  # fmt: skip


@pytest.mark.parametrize("node", EXAMPLES, ids=lambda node: node.op.name)
@pytest.mark.parametrize("annotate", [False, True])
def test_printing_then_parsing_gives_the_same_node(node: Node, annotate: bool) -> None:
    assert parse(format_node(node, annotate=annotate)) is node


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_graphs_are_read_back(seed: int) -> None:
    random = Random(seed)
    node = leaf(random, float32, {}, (2, 3, 4))
    for _ in range(8):
        node = random_view(random, node)
    expression, _ = IndexGraphs(random).expression(4)
    roots = (node, expression, math.ADD(node, node))
    assert parse_all(format_nodes(roots)) == roots


def test_names_count_in_the_order_of_the_operands() -> None:
    node = math.ADD(math.NEG(const(2, int32)), const(1, int32))
    assert format_node(node) == "\n".join(
        [
            "%0 = const {bits=2, dtype=int32, shape=()}",
            "%1 = neg %0",
            "%2 = const {bits=1, dtype=int32, shape=()}",
            "%3 = add %1 %2",
            "return %3",
        ]
    )


def test_sizes_stand_before_the_nodes_that_they_shape() -> None:
    lines = format_node(X).splitlines()
    assert lines[0].startswith("%0 = variable")
    assert "shape=(%0, 3)" in lines[1]


def test_annotations_give_types_and_values() -> None:
    text = format_node(const(1.5, float32), annotate=True)
    assert text.splitlines()[0].endswith("; float32[] = 1.5")


def test_shared_nodes_are_printed_once() -> None:
    a = math.NEG(const(1, index))
    assert format_nodes((a, math.ADD(a, a))).count("neg") == 1


def test_a_chain_of_a_hundred_thousand_nodes() -> None:
    node = const(1, int32)
    for _ in range(100_000):
        node = math.NEG(node)
    assert parse(format_node(node)) is node


@pytest.mark.parametrize(
    "text",
    [
        "",
        "%0 = const {bits=1, dtype=int32, shape=()}",
        "%0 = nothing\nreturn %0",
        "%0 = neg %1\nreturn %0",
        "%0 = const {bits=1, dtype=int99, shape=()}\nreturn %0",
        "%0 = const {bits=1}\nreturn %0",
        "%0 = const {bits=1, dtype=int32, shape=(}\nreturn %0",
        "%0 = const {bits=1, dtype=int32, shape=()}\nreturn %1",
        "%0 const {bits=1, dtype=int32, shape=()}\nreturn %0",
        "%0 = const {bits=1, dtype=int32, shape=()}\n%0 = neg %0\nreturn %0",
        "%0 = const {bits 1}\nreturn %0",
        '%0 = variable {name="a, minimum=0, maximum=1}\nreturn %0',
        "%0 = neg {x=1}\nreturn %0",
        "%0 = neg\nreturn %0",
        "%0 = iota\nreturn %0",
        "%0 = const {bits=1, dtype=int32, shape=()}\n%1 = sqrt %0\nreturn %1",
        "%0 = const {bits=%7, dtype=int32, shape=()}\nreturn %0",
    ],
)
def test_malformed_text_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ModelFileError, match="line"):
        parse(text)


#: What attributes are made of, as the printer, the parser and the digest know it.
KNOWN = {"int", "str", "bool", "bytes", "DType", "Shape", "Dim", "tuple", "None", *_ENUMS}


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.attrs], ids=lambda op: op.name)
def test_attributes_hold_only_what_can_be_printed(op: OpDef) -> None:
    kind: Any = op.attrs
    for field in dataclasses.fields(kind):
        assert set(re.findall(r"\w+", str(field.type))) <= KNOWN
