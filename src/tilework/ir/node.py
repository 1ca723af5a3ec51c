"""The one IR node: immutable and hash-consed, so identity is equality.

`make()` alone builds nodes.  The intern table holds strong references (native classes compiled by
mypyc cannot be weakly referenced) and is swept at safe points by `sweep`: a node that only the
table still holds is dropped, and then what only it held, so that a dead graph goes in one pass.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tilework.base.forks import new_lock, new_outer_lock
from tilework.ir.attrs import Attrs as Attrs
from tilework.ir.types import TYPES, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from tilework.ir.stage import Stage


class OpDef:
    """One row of the op table; calling it makes a node.

    `operands` names the sources ("*rest" takes any number more), `infer` is the type rule,
    `stages` says where the op is legal, `pure` whether a node may be dropped or duplicated,
    `keeps_type` that the type rule gives the type that its one or two sources share.  `nodes` is
    the op's part of the intern table.
    """

    __slots__ = (
        "attrs", "commutative", "doc", "elementwise", "infer", "keeps_type", "name", "nodes",
        "operands", "pure", "stages",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - one argument a column of the op table
        self,
        name: str,
        operands: tuple[str, ...],
        attrs: type[Attrs] | None,
        infer: Callable[[tuple[Node, ...], Any], Type],
        stages: Stage,
        doc: str,
        elementwise: bool,
        commutative: bool,
        pure: bool,
        keeps_type: bool = False,
    ) -> None:
        self.name: Final = name
        self.operands: Final = operands
        self.attrs: Final = attrs
        self.infer: Final = infer
        self.stages: Final = stages
        self.doc: Final = doc
        self.elementwise: Final = elementwise
        self.commutative: Final = commutative
        self.pure: Final = pure
        self.keeps_type: Final = keeps_type
        self.nodes: dict[_Key, Node] = {}
        _TABLE.parts.append(self.nodes)

    def __call__(self, *src: Node, attrs: Attrs | None = None) -> Node:
        """The node that applies this op to sources."""
        return make(self, src, attrs)

    def __repr__(self) -> str:
        return self.name.upper()


class Facts:
    """What follows from the structure of a node alone, found on demand by who asks for it.

    An object of its own, since most nodes are never asked.
    """

    __slots__ = ("bounds", "digest", "is_contraction", "is_exact", "terms")

    def __init__(self) -> None:
        self.bounds: tuple[int, int] | None = None
        self.is_exact: bool | None = None
        self.is_contraction: bool | None = None
        self.digest: bytes | None = None
        self.terms: Any = None


class Node:
    """One value of a graph: what makes it (`op`), from what (`src`), how (`attrs`), its `type`.

    Two nodes with the same op, sources and attributes are one object.  Notes that a pass takes
    about nodes live in dictionaries beside the graph.  `make` alone fills the fields, without a
    constructor, whose call would take longer than all the rest; nothing changes the first four.
    """

    __slots__ = ("attrs", "facts", "op", "src", "type")

    op: OpDef
    src: tuple[Node, ...]
    attrs: Any
    type: Type
    facts: Facts | None

    @property
    def shape(self) -> tuple[Any, ...]:
        """The extents of the value; () for a scalar."""
        return self.type.shape

    @property
    def dtype(self) -> Any:
        """The element type of the value."""
        return self.type.dtype

    def __repr__(self) -> str:
        attrs = "" if self.attrs is None else f" {self.attrs}"
        sources = ", ".join(source.op.name for source in self.src)
        return f"<{self.op.name}({sources}){attrs}: {self.type}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Node is not picklable: print it with tilework.ir.text and parse it back")


#: The sources, or (sources, attributes) where there are any.  A source is never a tuple, so that no
#: key of the one kind equals one of the other.
_Key = tuple[Any, ...]


class InternTable:
    """The table that makes equal nodes one object, and its sweep.

    Each op holds its own part, so that no key has to name the op: this is the hottest path of the
    compiler.  Thread-safe.  Finding and making a node take no lock.  A node handed out while a
    sweep runs, between the test and its removal, would break identity; `epoch`, another object
    after each sweep and None during one, tells `make` that one ran meanwhile, and it asks again
    under the lock.
    """

    __slots__ = ("busy", "epoch", "lock", "parts", "size_after_sweep")

    def __init__(self) -> None:
        self.parts: list[dict[_Key, Node]] = []
        self.lock = new_outer_lock(4)
        self.epoch: object | None = object()
        self.busy = 0
        self.size_after_sweep = 0

    def make(self, op: OpDef, src: tuple[Node, ...], attrs: Any) -> Node:
        """The one node with this op, these sources and these attributes."""
        epoch = self.epoch
        key = src if attrs is None else (src, attrs)
        node = op.nodes.get(key)
        if node is None:
            node = Node()
            node.op = op
            node.src = src
            node.attrs = attrs
            if (
                op.keeps_type
                and len(src) == 2
                and (kind := src[0].type) is src[1].type
                and kind.memory is None
            ):
                node.type = kind  # what `infer` would find, without the call
            else:
                node.type = op.infer(src, attrs)
            node.facts = None
            node = op.nodes.setdefault(key, node)
        if epoch is not self.epoch or epoch is None:
            with self.lock:
                return op.nodes.setdefault(key, node)
        return node

    def __len__(self) -> int:
        return sum(map(len, self.parts))  # of some 150 ops, asked after each run

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Marks a stretch (a rewrite, a compile) in which no sweep may start."""
        with self.lock:
            self.busy += 1
        try:
            yield
        finally:
            with self.lock:
                self.busy -= 1

    def sweep(self, *, force: bool = False) -> int:
        """Drop the nodes that only this table holds; returns how many.

        Does nothing while a rewrite runs in any thread, or (unless `force`) when the table has
        not doubled since the last sweep.
        """
        with self.lock:
            grown = len(self) > 2 * self.size_after_sweep + 50_000
            if self.busy or not (force or grown):
                return 0
            self.epoch = None
            _orders.clear()
            try:
                dropped = self._drop_unreferenced()
                TYPES.drop_unused()
                self.size_after_sweep = len(self)
            finally:
                self.epoch = object()
            return dropped

    def _drop_unreferenced(self) -> int:
        dropped = 0
        waiting: list[Node] = []
        for part in self.parts:
            waiting += list(part.values())
        while waiting:
            # A node that waits more than once has its turn at the last time.
            node, count = _taken(waiting)
            if count == _UNUSED:
                # No name for the key: it would keep the sources.
                del node.op.nodes[node.src if node.attrs is None else (node.src, node.attrs)]
                waiting += node.src
                dropped += 1
            del node  # so that it is not counted where it comes again
        return dropped


def _taken(waiting: list[Node]) -> tuple[Node, int]:
    """The last of those that wait, and how many references to it there are meanwhile."""
    node = waiting.pop()
    return node, sys.getrefcount(node)


def _count_unused() -> int:
    """What `_taken` counts where a table alone holds a node; compiled code counts otherwise."""
    table = {0: Node()}
    count = _taken(list(table.values()))[1]
    table.clear()  # which has been alive up to here: compiled code forgets what it needs no more
    return count


_UNUSED: Final = _count_unused()
_TABLE: Final = InternTable()
_facts_lock: Final = new_lock()
#: The orders of the last graphs that were walked: one pass after the other asks for the same.
_orders: Final[dict[Node, tuple[Node, ...]]] = {}
_MOST_ORDERS: Final = 256
_LONG_ORDER: Final = 8
#: Orders of larger graphs make room for themselves, so that few of those are kept alive.
_LARGE_ORDER: Final = 1 << 14
make: Final = _TABLE.make
sweep: Final = _TABLE.sweep
in_use: Final = _TABLE.in_use


def facts_of(node: Node) -> Facts:
    """What is known of a node, to read and to add to."""
    facts = node.facts
    if facts is None:
        with _facts_lock:  # of two threads, neither may lose what it found
            facts = node.facts
            if facts is None:
                facts = node.facts = Facts()
    return facts


def table_size() -> int:
    """How many nodes are alive in the intern table."""
    return len(_TABLE)


def toposort(*roots: Node) -> list[Node]:
    """Every node reachable from `roots`, sources first; each once, in a stable order.

    Walks with an explicit stack, so a chain of any length is fine.
    """
    if len(roots) == 1:
        known = _orders.get(roots[0])
        if known is not None:
            return list(known)
    order: list[Node] = []
    seen: set[Node] = set()
    # A node is opened at its last place on the stack; below a None it waits for its sources.
    stack: list[Node | None] = list(roots[::-1])
    pop = stack.pop
    while stack:
        node = pop()
        if node is None:
            order.append(pop())  # type: ignore[arg-type]
        elif node not in seen:
            seen.add(node)
            if node.src:
                stack.append(node)
                stack.append(None)
                stack.extend(node.src[::-1])
            else:
                order.append(node)
    if len(roots) == 1 and len(order) >= _LONG_ORDER:
        if len(_orders) >= _MOST_ORDERS or len(order) >= _LARGE_ORDER:
            _orders.clear()
        _orders[roots[0]] = tuple(order)
    return order


def toposort_above(roots: Iterable[Node], leaves: Container[Node]) -> list[Node]:
    """What `roots` are made of down to `leaves`, which are included; sources first, each once."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False) for root in roots]
    stack.reverse()
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if node not in leaves:
                stack.extend([(source, False) for source in reversed(node.src)])
    return order
