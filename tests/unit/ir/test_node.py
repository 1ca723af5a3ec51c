import gc
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilework.dtypes import bool_, float32, float64, int32, nan_bits
from tilework.ir import node as node_module
from tilework.ir.build import const, const_bits, const_index, const_like
from tilework.ir.digest import digest
from tilework.ir.node import (
    Facts,
    InternTable,
    Node,
    facts_of,
    in_use,
    make,
    sweep,
    table_size,
    toposort,
    toposort_above,
)
from tilework.ir.ops import OPS, math
from tilework.ir.ops import index as index_ops
from tilework.ir.types import TYPES

X = index_ops.VARIABLE(attrs=index_ops.VariableAttrs("x", 0, 9))


def chain(length: int) -> Node:
    node = X
    for _ in range(length):
        node = math.ADD(node, X)
    return node


def test_equal_nodes_are_one_object() -> None:
    assert math.ADD(X, const_index(1)) is math.ADD(X, const_index(1))
    assert make(math.ADD, (X, X), None) is math.ADD(X, X)
    assert math.ADD(X, const_index(1)) is not math.ADD(const_index(1), X)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (const(1, int32), const(1.0, float32)),
        (const(1, int32), const(True, bool_)),
        (const(True, bool_), const(1.0, float64)),
        (const(0.0, float32), const(-0.0, float32)),
        (const(0.0, float32), const(0.0, float64)),
        (const(1, int32), const(1, int32, (1,))),
    ],
)
def test_literals_that_python_holds_equal_are_different_nodes(a: Node, b: Node) -> None:
    assert a is not b
    assert digest(a) != digest(b)


def test_a_literal_nan_is_one_node() -> None:
    assert const(float("nan"), float32) is const(float("nan"), float32)
    assert const_bits(nan_bits(float32), float32) is const_bits(nan_bits(float32), float32)


def test_literals_of_zero_and_one_keep_their_kind() -> None:
    assert const_like(1, const(True, bool_)).attrs.dtype is bool_
    assert type(const(True, bool_).attrs.bits) is int


@pytest.mark.parametrize("field", ["op", "src", "attrs", "type", "anything"])
def test_a_node_has_no_dictionary_and_no_weak_references(field: str) -> None:
    if field == "anything":
        with pytest.raises(AttributeError):
            X.anything = 1  # type: ignore[attr-defined]
    assert not hasattr(X, "__dict__")
    assert "__weakref__" not in Node.__slots__


def test_only_its_own_module_sets_the_fields_of_a_node() -> None:
    folder = Path(node_module.__file__).parent
    setting = re.compile(r"\b(node|root|source)\.(op|src|attrs|type) = ")
    found = [str(path) for path in folder.rglob("*.py") if setting.search(path.read_text("utf-8"))]
    assert found == [node_module.__file__]


def test_the_short_way_to_a_type_agrees_with_the_type_rule() -> None:
    keeping = [op for op in OPS.values() if op.keeps_type]
    assert math.ADD in keeping
    for op in keeping:
        operands = (X,) * len(op.operands)
        assert op(*operands).type is op.infer(operands, None)


def test_a_sweep_between_finding_and_returning_a_node_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sweep that drops the node just found: what is returned is in the table all the same."""
    table = InternTable()
    held = table.make(math.NEG, (X,), None)

    class Sweeping(dict):  # type: ignore[type-arg]
        def get(self, key: object, default: object = None) -> object:
            found = dict.get(self, key, default)
            table.epoch = object()
            dict.pop(self, key, None)
            return found

    nodes = Sweeping(math.NEG.nodes)
    monkeypatch.setattr(math.NEG, "nodes", nodes)
    found = table.make(math.NEG, (X,), None)
    assert found is held
    assert dict.get(nodes, (X,)) is held


def test_a_node_is_not_picklable() -> None:
    with pytest.raises(TypeError, match="not picklable"):
        pickle.dumps(X)


def test_repr_is_one_line() -> None:
    assert "\n" not in repr(math.ADD(X, const_index(3)))


def test_toposort_of_a_long_chain_needs_no_recursion() -> None:
    end = chain(100_000)
    order = toposort(end)
    assert len(order) == 100_001
    assert order[0] is X
    assert order[-1] is end


def test_toposort_gives_sources_first_and_each_node_once() -> None:
    a, b = math.ADD(X, X), math.MUL(X, const_index(2))
    order = toposort(math.SUB(a, b), a)
    assert len(order) == len(set(order))
    assert all(order.index(s) < order.index(n) for n in order for s in n.src)


def test_digest_of_a_long_chain_needs_no_recursion() -> None:
    assert len(digest(chain(100_000))) == 16


PROGRAM = """
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.digest import digest
from tilework.ir.ops import index, math, memory, tensor
n = index.VARIABLE(attrs=index.VariableAttrs("n", 1, 8))
x = memory.PARAM(attrs=memory.ParamAttrs(0, (n, 3), float32))
r = tensor.REDUCE(x, attrs=tensor.ReduceAttrs(tensor.Fold.MAX, (1,)))
print(digest(math.MUL(r, tensor.EXPAND(const(-0.0, float32, (1,)),
      attrs=tensor.ShapeAttrs((n,))))).hex())
"""


def test_digests_agree_between_processes_and_hash_seeds() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 32


def test_digests_tell_apart_what_differs() -> None:
    nodes = [
        math.ADD(X, const_index(1)),
        math.ADD(const_index(1), X),
        math.SUB(X, const_index(1)),
        math.ADD(X, const_index(2)),
        index_ops.RANGE(X, attrs=index_ops.RangeAttrs(0)),
        index_ops.RANGE(X, attrs=index_ops.RangeAttrs(1)),
        index_ops.RANGE(X, attrs=index_ops.RangeAttrs(0, index_ops.Unit.LANE)),
    ]
    assert len({digest(node) for node in nodes}) == len(nodes)


@pytest.fixture
def _empty_table() -> Iterator[None]:
    gc.collect()
    sweep(force=True)
    yield
    gc.collect()
    sweep(force=True)


@pytest.mark.usefixtures("_empty_table")
def test_a_dead_graph_goes_in_one_sweep() -> None:
    before = table_size()
    end: Node | None = chain(5_000)
    assert table_size() >= before + 4_999
    end = None
    assert sweep(force=True) >= 4_999
    assert table_size() <= before
    assert end is None


@pytest.mark.usefixtures("_empty_table")
def test_types_go_with_the_nodes_that_had_them() -> None:
    def shapes() -> int:
        return sum(kind.shape == (77, 991) for kind in TYPES.types.values())

    node: Node | None = math.CONST(attrs=math.ConstAttrs(0, float32, (77, 991)))
    sweep(force=True)
    assert shapes() == 1
    node = None
    sweep(force=True)
    assert (shapes(), node) == (0, None)


@pytest.mark.usefixtures("_empty_table")
def test_a_sweep_spares_what_is_in_use() -> None:
    kept = math.MUL(chain(100), const_index(12345))
    order = toposort(kept)
    sweep(force=True)
    assert toposort(kept) == order
    assert math.MUL(chain(100), const_index(12345)) is kept


def test_no_sweep_starts_inside_a_rewrite() -> None:
    with in_use():
        assert sweep(force=True) == 0


def test_a_sweep_waits_until_the_table_has_grown() -> None:
    sweep(force=True)
    assert sweep() == 0


def test_identity_holds_while_eight_threads_create_and_one_sweeps() -> None:
    stop = threading.Event()
    faults: list[str] = []

    def create(number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            value = (turn * 7 + number) % 50
            a = math.ADD(X, const_index(1000 + value))
            b = math.MUL(a, const_index(2000 + value))
            if math.ADD(X, const_index(1000 + value)) is not a:
                faults.append("a found node is not the one held")
            if math.MUL(a, const_index(2000 + value)) is not b or b.src[0] is not a:
                faults.append("a node lost its source")

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for _ in range(150):
            sweep(force=True)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not faults, faults[:3]


def test_a_walk_down_to_leaves_goes_no_further() -> None:
    below = math.MUL(X, const_index(3))
    root = math.ADD(math.ADD(below, const_index(5)), below)
    assert toposort_above([root, X], {below}) == [below, const_index(5), root.src[0], root, X]
    assert toposort_above([root], ()) == toposort(root)


def test_threads_that_ask_for_the_facts_of_a_node_share_them() -> None:
    nodes = [math.ADD(X, const_index(7_000_000 + number)) for number in range(3_000)]
    found: list[list[Facts]] = []
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait()
        found.append([facts_of(node) for node in nodes])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert all(row == found[0] for row in found)
