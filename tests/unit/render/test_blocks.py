"""Renderers for blocks of threads: what they must define, and barriers that all threads reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework.base.errors import InternalError, RenderError, VerifyError
from tilework.codegen.sort.statements import Statements
from tilework.dtypes import int32
from tilework.ir.build import const_bits, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.lowered import LoweredKernel
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.control import BARRIER, FOLD_THREADS, FoldAttrs
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE, ParamAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.stage import Stage
from tilework.ir.uniform import divergent_barriers
from tilework.ir.verify import verify
from tilework.render.blocks import BlockRenderer
from tilework.render.c_family.cuda import CudaRenderer

COORDINATES = {Unit.THREAD: "group", Unit.WARP: "wave", Unit.LOCAL: "lane"}
MEMORY = PARAM(attrs=ParamAttrs(0, (64,), int32))


def made(coordinates: Mapping[Unit, str], barrier: str) -> type[BlockRenderer]:
    """A renderer for cards as somebody else would write one."""
    attributes = {"coordinates": coordinates, "barrier": barrier, "__module__": __name__}
    return type("Made", (BlockRenderer,), attributes)


def test_CST_13_a_renderer_with_coordinates_and_a_barrier_is_made() -> None:
    assert made(COORDINATES, "barrier();").barrier == "barrier();"
    assert CudaRenderer.barrier == "__syncthreads();"


@pytest.mark.parametrize("unit", COORDINATES)
@pytest.mark.parametrize("text", [None, "", "  "])
def test_CST_13_a_renderer_without_a_coordinate_fails_at_class_creation(
    unit: Unit, text: str | None
) -> None:
    found = {other: known for other, known in COORDINATES.items() if other is not unit}
    if text is not None:
        found[unit] = text
    with pytest.raises(RenderError, match="thread's numbers"):
        made(found, "barrier();")


@pytest.mark.parametrize("barrier", ["", " ", ";", " ; "])
def test_CST_13_a_renderer_without_a_real_barrier_fails_at_class_creation(barrier: str) -> None:
    with pytest.raises(RenderError, match="has a barrier"):
        made(COORDINATES, barrier)


def test_CST_13_a_renderer_that_leaves_all_of_it_out_fails_at_class_creation() -> None:
    with pytest.raises(RenderError):

        class Forgetful(BlockRenderer):
            name: ClassVar[str] = "Forgetful"


# ---- barriers


def block(body: Callable[[Statements, Node], None], *, threads: int = 4) -> Node:
    """The statements of a block whose threads do what `body` writes."""
    out = Statements()
    with out.loop(2, Unit.THREAD), out.loop(threads, Unit.LOCAL) as thread:
        body(out, thread)
    return out.linear()


def faults(linear: Node) -> list[Node]:
    return [node for node, _ in divergent_barriers(linear.src)]


def test_CST_13_a_barrier_that_all_threads_reach_is_legal() -> None:
    def body(out: Statements, thread: Node) -> None:
        out.emit(BARRIER(thread))
        with out.loop(3) as turn:
            out.emit(BARRIER(turn))
            with out.when(math.LT(turn, const_index(2))):
                out.emit(BARRIER(turn, thread))

    linear = block(body)
    assert not faults(linear)
    verify(linear, Stage.LINEAR, after="test")


def under_a_condition(out: Statements, thread: Node) -> None:
    with out.when(math.LT(thread, const_index(2))):
        out.emit(BARRIER(thread))


def in_a_loop_of_different_lengths(out: Statements, thread: Node) -> None:
    with out.loop(thread) as turn:
        out.emit(BARRIER(turn))


def under_what_a_thread_has_loaded(out: Statements, thread: Node) -> None:
    own = LOAD(INDEX(MEMORY, thread))
    with out.when(math.LT(own, const_bits(3, int32))):
        out.emit(BARRIER(thread))


def under_a_variable_that_some_threads_change(out: Statements, thread: Node) -> None:
    found = out.variable(const_bits(0, int32))
    with out.when(math.LT(thread, const_index(1))):
        out.assign(found, const_bits(1, int32))
    with out.when(math.LT(found, const_bits(1, int32))):
        out.emit(BARRIER(thread))


def under_a_variable_of_an_earlier_round(out: Statements, thread: Node) -> None:
    last = out.variable(const_index(0))
    with out.loop(3) as turn:
        with out.when(math.LT(last, const_index(2))):
            out.emit(BARRIER(turn))
        out.assign(last, thread)


def a_fold_under_a_condition(out: Statements, thread: Node) -> None:
    with out.when(math.LT(thread, const_index(2))):
        value = FOLD_THREADS(const_bits(1, int32), thread, attrs=FoldAttrs(Fold.ADD))
        out.emit(STORE(INDEX(MEMORY, const_index(0)), value))


@pytest.mark.parametrize(
    "body",
    [
        under_a_condition,
        in_a_loop_of_different_lengths,
        under_what_a_thread_has_loaded,
        under_a_variable_that_some_threads_change,
        under_a_variable_of_an_earlier_round,
        a_fold_under_a_condition,
    ],
)
def test_CST_13_a_barrier_in_divergent_flow_is_refused_by_verifier_and_renderer(
    body: Callable[[Statements, Node], None],
) -> None:
    linear = block(body)
    assert len(faults(linear)) == 1
    with pytest.raises(VerifyError, match="uniform"):
        verify(linear, Stage.LINEAR, after="test")
    kernel = LoweredKernel("k", linear, const_index(2), 0, 1, (), 1, "", threads=4)
    with pytest.raises(VerifyError, match="not all threads reach"):
        CudaRenderer().render(kernel)


def test_CST_13_what_a_fold_over_all_threads_gives_is_the_same_in_all() -> None:
    def body(out: Statements, thread: Node) -> None:
        own = LOAD(INDEX(MEMORY, thread))
        total = FOLD_THREADS(own, thread, attrs=FoldAttrs(Fold.ADD))
        with out.when(math.LT(total, const_bits(3, int32))):
            out.emit(BARRIER(thread))

    assert not faults(block(body))


CONDITIONS = st.recursive(
    st.sampled_from(["thread", "turn", "task", "one"]),
    lambda inner: st.tuples(st.sampled_from(["add", "mod"]), inner, inner),
    max_leaves=4,
)


@given(CONDITIONS, st.integers(1, 4))
def test_CST_13_every_barrier_that_some_thread_misses_is_found(
    condition: object, most: int
) -> None:
    """What the interpreter finds by running, the verifier finds before."""

    def value(form: object, names: dict[str, Node]) -> Node:
        if isinstance(form, str):
            return names[form]
        assert isinstance(form, tuple)
        kind, first, second = form
        x, y = value(first, names), value(second, names)
        if kind == "add":
            return math.ADD(x, y)
        return math.CMOD(x, math.ADD(y, const_index(1)))

    out = Statements()
    with out.loop(2, Unit.THREAD) as task, out.loop(4, Unit.LOCAL) as thread, out.loop(2) as turn:
        names = {"thread": thread, "turn": turn, "task": task, "one": const_index(1)}
        with out.when(math.LT(value(condition, names), const_index(most))):
            out.emit(BARRIER(turn))
    linear = out.linear()
    try:
        run_blocks(linear, [], blocks=2)
    except InternalError:
        assert faults(linear)
