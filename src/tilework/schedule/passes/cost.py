"""What a value costs per element when it is computed where it is used, estimated once per node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilework.ir.node import facts_of
from tilework.ir.ops import index, math, memory, tensor
from tilework.schedule.passes.movement import MOVEMENT
from tilework.schedule.passes.prepare import numel
from tilework.schedule.passes.variation import varying_axes

if TYPE_CHECKING:
    from tilework.ir.node import Node, OpDef
    from tilework.schedule.passes.prepare import Layout


class Cost(NamedTuple):
    """ALU work and loads per element; `is_heavy` if it holds a reduction or a slow function."""

    work: float
    loads: float
    is_heavy: bool


FREE = Cost(0.0, 0.0, False)
LOADED = Cost(0.0, 1.0, False)
_MOST = 1e12
_FUNCTIONS = (
    math.EXP, math.EXP2, math.EXPM1, math.LOG, math.LOG2, math.LOG1P, math.SIN, math.COS, math.TAN,
    math.ASIN, math.ACOS, math.ATAN, math.SINH, math.COSH, math.TANH, math.ASINH, math.ACOSH,
    math.ATANH, math.ERF,
)  # fmt: skip
_WORK: dict[OpDef, float] = {
    **dict.fromkeys(_FUNCTIONS, 14.0),
    math.POW: 32.0,
    math.ATAN2: 32.0,
    math.FMOD: 32.0,
    math.FDIV: 4.0,
    math.SQRT: 4.0,
    math.RECIPROCAL: 4.0,
    math.IDIV: 6.0,
    math.MOD: 6.0,
    math.CONST: 0.0,
}
#: What may come between a contraction and the elementwise ops after it.
_EPILOGUE = frozenset((tensor.RESHAPE, tensor.PERMUTE, tensor.DETACH))
#: The work of choosing the element of a row that a scatter changes.
_CHOICE = 4.0
#: Values that are looked at to count those that a value is computed from.
_LOOKED_AT = 128
#: How many ops two uses of a value may be apart from where they meet again.
_NEAR = 32
_HEAVY = frozenset(op for op, work in _WORK.items() if work >= 14)


class Costs:
    """What each node of a function costs where it is computed, and to those who use it.

    `own[node]` is the cost of computing a node, `seen[node]` what it adds to the cost of its
    consumers: one load, if it is stored or surely will be.  The result of a contraction will be,
    where the elementwise ops after it end.
    """

    def __init__(self, layout: Layout) -> None:
        self.own: dict[Node, Cost] = {}
        self.seen: dict[Node, Cost] = {}
        self.contractions: set[Node] = set()
        #: Contractions, and what is computed from one in its kernel: the contraction.
        self.follows: dict[Node, Node] = {}
        #: What is computed element by element from something that is gathered.
        self.gathered: set[Node] = set()
        ends = _ends(layout.order)
        contracted: set[Node] = set()
        for node in layout.order:
            if node in layout.memory or node in layout.forced:
                self.own[node] = self.seen[node] = LOADED
                if is_contraction(node):
                    self.contractions.add(node)
                continue
            cost = self.own[node] = self.seen[node] = cost_of(node, self.seen)
            if node.op is tensor.GATHER or (
                (node.op.elementwise or node.op in MOVEMENT)
                and any(s in self.gathered and self.seen[s] is not LOADED for s in node.src)
            ):
                self.gathered.add(node)
            if node.op is tensor.REDUCE and is_contraction(node):
                self.contractions.add(node)
            elif (
                not cost.is_heavy
                or (node.op not in _EPILOGUE and not node.op.elementwise)
                or contracted.isdisjoint(node.src)
            ):
                continue
            before = next((source for source in node.src if source in self.follows), node)
            self.follows[node] = self.follows.get(before, node)
            if node in ends:
                self.seen[node] = LOADED
            else:
                contracted.add(node)

    def distinct(self, node: Node) -> Cost:
        """The cost of computing `node` with each value that it needs computed and loaded once.

        Loads are counted by their bytes, as shares of 4 for each element of `node`.  `own` adds up
        what the operands of a value cost, also where they are computed from the same values.  A
        value of very many others has its `own` cost.
        """
        work, loads, is_heavy = 0.0, 0.0, False
        count = max(numel(node), 1)
        stack, seen = [node], {node}
        while stack:
            top = stack.pop()
            own = self.seen[top]
            if top is not node and (own is LOADED or own is FREE or top.op is tensor.REDUCE):
                share = min(1.0, numel(top) / count) * width(top) if own is LOADED else 1.0
                work, loads = work + own.work, loads + own.loads * share
                is_heavy = is_heavy or own.is_heavy
                continue
            if len(seen) > _LOOKED_AT:
                return self.own[node]
            if top.op not in MOVEMENT:
                work += _WORK.get(top.op, 1.0)
                is_heavy = is_heavy or top.op in _HEAVY
            for source in top.src:
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
        return Cost(work, loads, is_heavy)

    def without(self, node: Node, sources: list[Node]) -> Cost:
        """The cost of `node` if `sources` of it are there anyway."""
        return cost_of(
            node, {**{s: self.seen[s] for s in node.src}, **dict.fromkeys(sources, FREE)}
        )


def narrows(node: Node) -> bool:
    """Is this a cast of more bytes to fewer?"""
    return node.op is math.CAST and node.src[0].type.dtype.itemsize > node.type.dtype.itemsize


def rounds(node: Node) -> bool:
    """Is this a cast of a float to one of fewer bytes?"""
    return narrows(node) and node.src[0].type.dtype.is_float and node.type.dtype.is_float


def width(node: Node) -> float:
    """The bytes of an element, as a share of those of a float32."""
    return node.type.dtype.bits / 32


def _ends(order: list[Node]) -> set[Node]:
    """The nodes that are used otherwise than by elementwise ops that meet in one value again.

    A relu uses its operand twice, by a comparison and a choice: what it is applied to is no end.
    """
    #: Where all that is computed from a node by elementwise ops meets; None: nowhere.
    meets: dict[Node, Node | None] = {}
    depth: dict[Node, int] = {}
    for node in reversed(order):
        after = meets.get(node)
        depth[node] = 0 if after is None else depth[after] + 1
        follows = node.op.elementwise or node.op in _EPILOGUE
        for source in set(node.src):
            if not follows:
                meets[source] = None
            elif source not in meets:
                meets[source] = node
            else:
                meets[source] = _meeting(meets[source], node, meets, depth)
    return {node for node, after in meets.items() if after is None}


def _meeting(
    one: Node | None, other: Node | None, meets: dict[Node, Node | None], depth: dict[Node, int]
) -> Node | None:
    """The first value through which all results of both nodes go, if it is near."""
    for _ in range(_NEAR):
        if one is other or one is None or other is None:
            return one if one is other else None
        if depth[one] >= depth[other]:
            one = meets.get(one)
        else:
            other = meets.get(other)
    return None


def cost_of(node: Node, costs: dict[Node, Cost]) -> Cost:
    """The cost of `node` when its sources are computed where they are used."""
    op = node.op
    if op in MOVEMENT:
        source = costs[node.src[0]]
        if op is tensor.EXPAND and numel(node) >= 4 * numel(node.src[0]):
            # Computed at an outer loop, once for all that is in the loops inside, or stored: what
            # it costs is decided at the source alone.
            return FREE
        return source
    if op is math.CONST or op is index.VARIABLE or op is tensor.IOTA:
        return FREE
    if op is tensor.REDUCE:
        source = costs[node.src[0]]
        size = numel(node.src[0]) / max(numel(node), 1)
        return Cost(min((source.work + 1.0) * size, _MOST), min(source.loads * size, _MOST), True)
    if op is tensor.SCATTER:
        return costs[node.src[0]]._replace(work=_CHOICE)  # what is per row comes from a cache
    if op is memory.STORE or op is memory.SINK or op is memory.AFTER:
        return LOADED
    work = _WORK.get(op, 1.0)
    loads = 0.0
    is_heavy = op in _HEAVY
    for operand in node.src:
        cost = costs[operand]
        work += cost.work
        loads += cost.loads
        is_heavy = is_heavy or cost.is_heavy
    return Cost(min(work, _MOST), min(loads, _MOST), is_heavy)


def product_of(node: Node) -> Node:
    """The product that a sum of products adds up."""
    product = node.src[0]
    while product.op is math.CAST:
        product = product.src[0]
    return product


def is_contraction(node: Node) -> bool:
    """Is this REDUCE a sum of products, each operand of which varies along an axis of its own?"""
    if node.op is not tensor.REDUCE or node.attrs.fold is not tensor.Fold.ADD:
        return False
    facts = facts_of(node)
    if facts.is_contraction is None:  # many passes ask
        facts.is_contraction = _multiplies(product_of(node), node.attrs.axes)
    return facts.is_contraction


def _multiplies(product: Node, summed: tuple[int, ...]) -> bool:
    """Is this a product whose operands each vary along an axis of their own that is kept?"""
    if product.op is not math.MUL:
        return False
    shape = product.type.shape
    kept = [axis for axis, size in enumerate(shape) if axis not in summed and size != 1]
    x, y = (varying_axes(operand, 24) for operand in product.src)
    return any(a in x and a not in y for a in kept) and any(a in y and a not in x for a in kept)
