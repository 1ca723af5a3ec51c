"""The audit of statements: kernels of cards, of matrix units and of sorts are proven or checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.attention_kernels import attention, by_keys, by_queries, folds_of_rows, shared_heads
from tests.emulated_cards import emulated_cards
from tests.unit.codegen.matrix import test_ring as rings
from tests.unit.codegen.matrix import test_warps as warps
from tests.unit.codegen.test_audit import FORMS, Shift, gathered, moved, padded

from tilework import Tensor
from tilework.base.errors import BoundsError, VerifyError
from tilework.base.settings import override
from tilework.codegen import audit, pipeline
from tilework.codegen.audit_statements import check_statements, unproven_statements
from tilework.codegen.gpu import pipeline as gpu_pipeline
from tilework.codegen.gpu import sort_block, sort_passes
from tilework.codegen.gpu.sort_block import Tile
from tilework.codegen.linearize.order import linearise
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.sort.row import Row
from tilework.dtypes import bfloat16, float16, float32, index
from tilework.engine import splits
from tilework.ir.build import const, const_index
from tilework.ir.node import Node, make, toposort
from tilework.ir.ops import control, math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.matrix import BOXED, COPY_BOX, STORE_BOX
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE, ParamAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.ops.tensor import Fold
from tilework.ir.ops.warp_matrix import COPY_CHUNK
from tilework.ir.symbolic import dims, simplify
from tilework.target.known.cuda import cuda_spec

HOPPER, AMPERE = cuda_spec(90), cuda_spec(80)

KERNELS: dict[str, tuple[Callable[[], Node], Any]] = {
    "a ring": (lambda: rings.product(256, 264, 72, bias=True, result=bfloat16), HOPPER),
    "warps": (lambda: warps.product(72, 40, 56, dtype=float16), AMPERE),
    "rows that start anywhere": (lambda: warps.product(67, 33, 41, dtype=float16), AMPERE),
    "a stream": (lambda: attention(256, 192, causal=True), HOPPER),
    "a stream of warps": (lambda: attention(256, 192, causal=True), AMPERE),
    "a stream of shared heads": (lambda: shared_heads(256, 256, 64), HOPPER),
    "a chain": (lambda: by_keys(256, 256), HOPPER),
    "a chain of shared heads": (lambda: by_queries(256, 256, 64), HOPPER),
    "folds of rows": (lambda: folds_of_rows(256, 256), HOPPER),
}


@pytest.mark.parametrize("form", FORMS)
def test_CST_06_accesses_of_cards_are_proven_after_planning(
    form: Callable[[Shift], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Node] = []
    check = audit.check_as_settings_say

    def judge(node: Node) -> None:
        judged.append(node)
        check(node)

    monkeypatch.setattr(audit, "check_as_settings_say", judge)
    with override(prove_accesses=True):
        lower_kernel(form(lambda offset: offset), HOPPER)
    assert len(judged) == 1


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("form", [form for form in FORMS if form is not gathered])
def test_CST_06_an_index_of_a_card_that_is_off_by_one_is_refused(
    form: Callable[[Shift], Node], by: int
) -> None:
    with override(prove_accesses=True), pytest.raises(VerifyError, match="not proven"):
        lower_kernel(form(moved(by)), HOPPER)


def test_CST_04_a_gate_that_a_card_loses_while_statements_are_made_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(*arguments: Any) -> Node:
        linear = linearise(*arguments)
        victim = next(node for node in linear.src if node.op is LOAD and len(node.src) > 1)
        return changed(linear, lambda node: node.src[:1] if node is victim else node.src)

    lower_kernel(padded(lambda offset: offset), HOPPER)
    monkeypatch.setattr(gpu_pipeline, "linearise", careless)
    with pytest.raises(VerifyError, match="a gate was lost"):
        lower_kernel(padded(lambda offset: offset), HOPPER)


def changed(linear: Node, sources: Callable[[Node], tuple[Node, ...]]) -> Node:
    """The statements, each with other sources."""
    done: dict[Node, Node] = {}
    for node in toposort(linear):
        src = tuple([done.get(source, source) for source in sources(node)])
        done[node] = node if src == node.src else make(node.op, src, node.attrs)
    return done[linear]


def lowered(name: str) -> Node:
    kernel, target = KERNELS[name]
    with override(prove_accesses=True):  # what is not proven would raise
        return lower_kernel(kernel(), target).linear


@pytest.mark.parametrize("name", KERNELS)
def test_CST_06_kernels_of_matrix_units_are_proven_and_off_by_one_is_found(name: str) -> None:
    linear = lowered(name)
    assert unproven_statements(linear) == []
    victims = [
        (node, operand)
        for node in those_that_run(linear)
        for operand in ((1,) if node.op is COPY_CHUNK else (0,))
        if node.op in (LOAD, STORE, COPY_CHUNK)
        and node.src[operand].op is INDEX
        and node.src[operand].src[0].op is PARAM
    ]
    boxes = [node for node in linear.src if node.op in (COPY_BOX, STORE_BOX)]
    assert victims or boxes
    for node, operand in victims:
        buffer, offset = node.src[operand].src
        size = dims.greatest(dims.product(buffer.attrs.shape))
        for by in (-size, size):
            there = INDEX(buffer, math.ADD(offset, const_index(by)))
            source = (*node.src[:operand], there, *node.src[operand + 1 :])
            assert unproven_statements(replaced(linear, node, source)), (node, by)


def those_that_run(linear: Node) -> list[Node]:
    """The statements that no literal condition leaves out."""
    found: list[Node] = []
    left_out: list[Node] = []
    for node in linear.src:
        if node.op is control.IF and node.src[0] is simplify.FALSE:
            left_out.append(node)
        elif node.op is control.ENDIF and node.src[0] in left_out:
            left_out.remove(node.src[0])
        elif not left_out and not (node.op is COPY_CHUNK and node.src[2] is const_index(0)):
            found.append(node)
    return found


def replaced(linear: Node, victim: Node, source: tuple[Node, ...]) -> Node:
    """The statements with other sources of one of them."""
    return LINEAR(
        *(make(node.op, source, node.attrs) if node is victim else node for node in linear.src)
    )


def test_CST_06_an_array_of_boxes_that_is_longer_than_its_buffer_is_found() -> None:
    linear = lowered("a ring")
    boxed = next(node for node in toposort(linear) if node.op is BOXED)
    buffer = boxed.src[0]
    (size,) = buffer.attrs.shape
    short = PARAM(attrs=ParamAttrs(buffer.attrs.slot, (size - 1,), buffer.attrs.dtype))
    found = unproven_statements(
        changed(linear, lambda node: (short,) if node is boxed else node.src)
    )
    assert {fault.what for fault in found} == {"its array may reach beyond the buffer"}


# ---- variables


def at(place: Node, size: int = 8) -> Node:
    return INDEX(PARAM(attrs=ParamAttrs(0, (size,), float32)), place)


ONE = const(1.0, float32)


def counter(number: int, size: int) -> Node:
    return RANGE(const_index(size), attrs=RangeAttrs(number))


def variable(initial: Node) -> Node:
    return control.ACCUMULATOR(initial, attrs=control.AccumulateAttrs(0, Fold.ADD))


def test_a_variable_is_known_until_a_loop_writes_it() -> None:
    place = variable(const_index(7))
    loop = counter(0, 3)
    raised = math.ADD(place, const_index(1))
    before = LINEAR(place, STORE(at(place), ONE))
    assert unproven_statements(before) == []
    inside = LINEAR(
        place, loop, STORE(at(place), ONE), raised, control.ACCUMULATE(place, raised),
        control.END(loop),
    )  # fmt: skip
    (low, high) = unproven_statements(inside)
    assert (low.from_data, high.from_data) == (True, True)


def test_a_condition_says_nothing_of_what_a_variable_holds_after_it() -> None:
    place = variable(const_index(0))
    loop = counter(0, 30)
    small = math.LT(place, const_index(8))
    large = math.LE(const_index(0), place)
    both = math.AND(small, large)
    branch = control.IF(both)
    raised = math.ADD(place, const_index(1))
    write = control.ACCUMULATE(place, raised)
    store = STORE(at(place), ONE)
    head, tail = (
        (place, loop, small, large, both, branch),
        (control.ENDIF(branch), control.END(loop)),
    )
    assert unproven_statements(LINEAR(*head, store, raised, write, *tail)) == []
    late = unproven_statements(LINEAR(*head, raised, write, store, *tail))
    assert [fault.what for fault in late] == ["it may reach beyond the buffer"]
    behind = unproven_statements(LINEAR(*head, raised, write, tail[0], store, tail[1]))
    assert len(behind) == 2


def test_what_is_loaded_again_is_another_value() -> None:
    source = INDEX(PARAM(attrs=ParamAttrs(1, (1,), index)), const_index(0))
    loop = counter(0, 2)
    value = LOAD(source)
    inside = math.AND(math.LE(const_index(0), value), math.LT(value, const_index(8)))
    branch = control.IF(inside)
    store, tail = STORE(at(value), ONE), (control.ENDIF(branch), control.END(loop))
    parts = (loop, value, *inside.src, inside, branch)
    assert unproven_statements(LINEAR(*parts, store, *tail)) == []
    assert unproven_statements(LINEAR(*parts, value, store, *tail)) != []


def test_places_that_memory_gives_are_trusted_unless_somebody_checks_them() -> None:
    loop = counter(0, 2)
    source = INDEX(PARAM(attrs=ParamAttrs(1, (2,), index)), loop)
    value = LOAD(source)
    linear = LINEAR(loop, value, STORE(at(value), ONE), control.END(loop))
    with pytest.raises(VerifyError, match="2 unproven"):
        check_statements(linear, trusts_data=False)
    check_statements(linear)


# ---- sorts


def check_sorts(device: str, size: int) -> None:
    """Sort with checks, and compare."""
    draw = np.random.default_rng(size)
    x = draw.standard_normal((3, size)).astype(np.float32)
    given = Tensor(x, device=device)
    assert np.array_equal(given.argsort(1).numpy(), np.argsort(x, 1, kind="stable"))
    assert np.array_equal(given.topk(2, dim=1)[0].numpy(), -np.sort(-x, 1)[:, :2])
    if device == "CPU":
        assert np.array_equal(given.sort(1)[0].numpy(), np.sort(x, 1))


SETTINGS = ["check_accesses", "prove_accesses"]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("size", [3, 90, 1024, 5000])  # 1024 are whole vectors: nothing is left
def test_CST_06_sorts_give_the_same_with_checks(size: int, setting: str) -> None:
    with override(cache_dir=None, **{setting: True}):
        check_sorts("CPU", size)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("tile", [Tile(64, 4, 4), None])
def test_CST_06_sorts_of_cards_give_the_same_with_checks(
    tile: Tile | None, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows that one block sorts, or else passes over small tiles.
    splits.clear_memory()
    for module in (sort_passes, sort_block):
        monkeypatch.setattr(module, "tile_of_row", lambda sink, target: tile)
    monkeypatch.setattr(sort_passes, "_tile", lambda dtype, target: Tile(32, 2, 4))
    with emulated_cards(monkeypatch), override(cache_dir=None, **{setting: True}):
        check_sorts("CUDA", 90)
    splits.clear_memory()


@pytest.mark.parametrize("size", [5, 200])
def test_CST_06_a_rank_outside_of_its_row_is_left_out_and_named(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Row.put

    def beyond(row: Row, out: Any, rank: Node, position: Node) -> None:
        put(row, out, math.ADD(rank, const_index(1)), position)

    monkeypatch.setattr(Row, "put", beyond)
    x = Tensor(np.arange(size, dtype=np.float32)[::-1].copy()).realize()
    with (
        override(check_accesses=True, cache_dir=None),
        pytest.raises(BoundsError, match=r"buffer 0 of sort"),
    ):
        x.argsort().numpy()


def test_CST_06_a_rank_of_a_card_outside_of_its_row_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put = sort_block._RowSort._put

    def beyond(sort: Any, rank: Node) -> None:
        sort.target_start = simplify.plus(sort.target_start, 1)
        put(sort, rank)
        sort.target_start = simplify.plus(sort.target_start, -1)

    monkeypatch.setattr(sort_block._RowSort, "_put", beyond)
    for module in (sort_passes, sort_block):
        monkeypatch.setattr(module, "tile_of_row", lambda sink, target: Tile(64, 4, 4))
    with emulated_cards(monkeypatch), override(check_accesses=True, cache_dir=None):
        x = Tensor(np.arange(90, dtype=np.float32)[::-1].copy(), device="CUDA").realize()
        with pytest.raises(BoundsError, match=r"buffer 0 of sort"):
            x.argsort().numpy()


def test_CST_06_a_sort_that_reads_beyond_its_row_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    element = Row.element
    monkeypatch.setattr(
        Row, "element", lambda row, out, at: element(row, out, simplify.plus(at, 1))
    )
    x = Tensor(np.arange(9, dtype=np.float32)).realize()
    with (
        override(prove_accesses=True, cache_dir=None),
        pytest.raises(VerifyError, match="beyond the buffer"),
    ):
        x.argsort().numpy()


def test_checks_of_statements_are_made_where_something_is_not_proven_alone() -> None:
    kernel, target = KERNELS["warps"]
    with override(check_accesses=True):
        checked = lower_kernel(kernel(), target).linear
    assert checked is pipeline.lower_kernel(kernel(), target).linear
