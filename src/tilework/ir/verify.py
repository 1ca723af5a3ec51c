"""Checks that a graph is legal in its stage: rules of each op and rules of the stage.

All faults are collected before anything is raised.  Linear in the size of the graph, so that it
can always run at the borders between stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.base.errors import VerifyError
from tilework.base.records import dataclass
from tilework.dtypes import bool_
from tilework.ir.free_ranges import free_ranges
from tilework.ir.node import toposort
from tilework.ir.ops import control, math, matrix_registers, memory, program, tensor
from tilework.ir.ops import index as index_ops
from tilework.ir.ops.index import Unit
from tilework.ir.stage import IN_KERNEL, Stage
from tilework.ir.uniform import divergent_barriers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tilework.ir.node import Node, OpDef

#: How many faults a message shows.
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule: its name, the node that breaks it, and what is wrong."""

    rule: str
    node: Node
    message: str


def verify(root: Node, stage: Stage, *, after: str = "") -> None:
    """Check that the graph below `root` is legal in `stage`.

    Args:
        root: A TENSOR node, the SINK of a kernel, or a LINEAR.
        stage: The one stage that it is in.
        after: The pass that made the graph, for the message.

    Raises:
        VerifyError: Names every fault with its node, rule and neighbours.
    """
    nodes = nodes_of(root, stage)
    faults = find_faults(root, stage, nodes)
    if not faults:
        return
    by = f" after {after}" if after else ""
    first = faults[0]
    shown = "".join(f"\n    {line}" for fault in faults[:SHOWN] for line in _describe(fault, nodes))
    more = f"\n    and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    name = str(stage.name).lower()
    raise VerifyError(
        f"verify: the graph is not legal in stage {name}{by}: {first.rule}",
        node=first.node,
        got=f"{len(faults)} fault{'s' if len(faults) > 1 else ''}{shown}{more}",
    )


def _describe(fault: Fault, nodes: Sequence[Node]) -> Iterator[str]:
    yield f"{fault.rule}: {fault.message}"
    yield f"  node: {fault.node!r}"
    for position, source in enumerate(fault.node.src[:4]):
        yield f"  source {position}: {source!r}"
    users = [node for node in nodes if fault.node in node.src]
    for user in users[:2]:
        yield f"  used by: {user!r}"


def nodes_of(root: Node, stage: Stage) -> list[Node]:
    """The nodes of a graph, sources first, without the bodies of its CALLs."""
    if stage is not Stage.SCHEDULE and stage is not Stage.TENSOR:
        return toposort(root)
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            sources = node.src
            if node.op is program.CALL:
                sources = sources[1:]
            stack.extend([(source, False) for source in sources[::-1] if source not in seen])
    return order


def find_faults(root: Node, stage: Stage, nodes: Sequence[Node] | None = None) -> list[Fault]:
    """Every fault of the graph, sources first."""
    if nodes is None:
        nodes = nodes_of(root, stage)
    found: list[Fault] = []
    counts = _COUNTS
    illegal = {op for op in {node.op for node in nodes} if not op.stages & stage}
    for node in nodes:
        op = node.op
        if op in illegal:
            found.append(Fault("op-in-stage", node, f"{op.name} is not legal in this stage"))
        least, most = counts.get(op) or _count_operands(op)
        if not least <= len(node.src) <= most:
            names = ", ".join(op.operands)
            found.append(
                Fault("operands", node, f"{op.name} has {len(node.src)} sources, takes ({names})")
            )
            continue
        if node.attrs is None:
            is_other = op.attrs is not None and op not in _MAY_LACK
        else:
            is_other = type(node.attrs) is not op.attrs
        if is_other:
            found.append(Fault("attributes", node, f"{op.name} has {type(node.attrs).__name__}"))
            continue
        rule = _RULES.get(op)
        if rule is not None and (message := rule(node, stage)):
            found.append(Fault(f"{op.name}-rule", node, message))
    _check_whole(root, stage, nodes, found)
    return found


_COUNTS: dict[OpDef, tuple[int, int]] = {}
MANY = 1 << 60


def _count_operands(op: OpDef) -> tuple[int, int]:
    """Least and greatest number of sources that an op takes."""
    least = sum(1 for name in op.operands if not name.startswith("*") and not name.endswith("?"))
    most = MANY if any(name.startswith("*") for name in op.operands) else len(op.operands)
    _COUNTS[op] = (least, most)
    return least, most


#: Ops whose attributes may be left out.
_MAY_LACK = frozenset((memory.LOAD, memory.STORE))


# --- rules of ops --------------------------------------------------------------------------------


def _check_const(node: Node, stage: Stage) -> str | None:
    if not 0 <= node.attrs.bits < 1 << node.attrs.dtype.bits:
        return f"the bits do not fit {node.attrs.dtype.name}"
    if len(node.attrs.shape) > 2 and stage is not Stage.TENSOR and stage & IN_KERNEL:
        return "a literal in a kernel is a scalar, a vector or a matrix register"
    return None


def _check_axis(node: Node, stage: Stage) -> str | None:
    if stage is not Stage.TENSOR:
        return None
    shape = node.type.shape if node.op is tensor.IOTA else node.src[0].type.shape
    if not 0 <= node.attrs.axis < len(shape):
        return f"axis {node.attrs.axis} of shape {shape}"
    return None


def _check_sort(node: Node, stage: Stage) -> str | None:
    found = _check_axis(node, stage)
    if found is not None or node.attrs.count < 0:
        return found
    first, count, size = node.attrs.first, node.attrs.count, node.src[0].type.shape[node.attrs.axis]
    if first < 0 or not isinstance(size, int) or first + count > size:
        return f"ranks {first} to {first + count} of {size}"
    return None


def _check_flip(node: Node, stage: Stage) -> str | None:
    return _ascending(node.attrs.axes, len(node.src[0].type.shape))


def _ascending(axes: tuple[int, ...], ndim: int) -> str | None:
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < ndim for axis in axes):
        return f"axes {axes} are not ascending, unique and below {ndim}"
    return None


def _check_reduce(node: Node, stage: Stage) -> str | None:
    if stage is Stage.TENSOR:
        if len(node.src) > 1:
            return "ranges in the TENSOR stage"
        return _ascending(node.attrs.axes, len(node.src[0].type.shape))
    if node.attrs.axes:
        return "axes after the TENSOR stage"
    return _only_ranges(node)


def _only_ranges(node: Node) -> str | None:
    for source in node.src[1:]:
        if source.op is not index_ops.RANGE:
            return f"{source.op.name} where a RANGE must be"
    if len(set(node.src[1:])) != len(node.src) - 1:
        return "a range is bound twice"
    return None


def _check_stage(node: Node, stage: Stage) -> str | None:
    return None if stage is Stage.TENSOR else _only_ranges(node)


def _check_load(node: Node, stage: Stage) -> str | None:
    if node.src[0].type.memory is None:
        return "loads from what is no address"
    return None


def _check_store(node: Node, stage: Stage) -> str | None:
    if stage is not Stage.TENSOR and node.src[0].type.memory is None:
        return "stores to what is no address"
    return None


def _check_range(node: Node, stage: Stage) -> str | None:
    unit = node.attrs.unit
    if stage is Stage.KERNEL and unit is not Unit.LOOP:
        return f"unit {unit.value} before a plan is applied"
    late = stage & (Stage.LOWERED | Stage.LINEAR)
    # LINEAR may have loops that the target's compiler unrolls: they index registers.
    spread = (Unit.LANE, Unit.MATRIX)
    if late and (unit in spread or (unit is Unit.UNROLL and stage is Stage.LOWERED)):
        return f"unit {unit.value} after lanes are expanded"
    return None


def _check_variable(node: Node, stage: Stage) -> str | None:
    if node.attrs.minimum > node.attrs.maximum:
        return f"bounds {node.attrs.minimum} .. {node.attrs.maximum} hold nothing"
    return None


def _check_bind(node: Node, stage: Stage) -> str | None:
    variable, value = node.src
    if variable.op is not index_ops.VARIABLE:
        return "binds what is no VARIABLE"
    if value.op is not math.CONST:
        return "the value is no CONST"
    return None


def _check_extract(node: Node, stage: Stage) -> str | None:
    shape = node.src[0].type.shape
    if len(shape) != 1 or not 0 <= node.attrs.lane < shape[0]:
        return f"lane {node.attrs.lane} of shape {shape}"
    return None


def _check_condition(node: Node, stage: Stage) -> str | None:
    if node.src[0].type.dtype is not bool_:
        return "the condition is no bool"
    return None


def _check_if(node: Node, stage: Stage) -> str | None:
    if node.src[0].type.shape:
        return "the condition is no scalar"
    return _check_condition(node, stage)


def _check_end(node: Node, stage: Stage) -> str | None:
    effect = node.src[0].op
    if stage is Stage.LINEAR:
        return None if effect is index_ops.RANGE else "ends what is no RANGE"
    if effect not in (memory.STORE, memory.SINK, matrix_registers.STORE_MATRIX):
        return f"closes {effect.name}, not a STORE or a SINK"
    return _only_ranges(node)


def _check_shuffle(node: Node, stage: Stage) -> str | None:
    size: Any = node.src[0].type.shape[0]
    lanes = 2 * size
    outside = [lane for lane in node.attrs.lanes if not 0 <= lane < lanes]
    return f"picks lane {outside[0]} of {lanes}" if outside else None


def _check_endif(node: Node, stage: Stage) -> str | None:
    return None if node.src[0].op is control.IF else "ends what is no IF"


def _check_accumulator(node: Node, stage: Stage) -> str | None:
    if len(node.src) > 1 and node.src[1].op is not index_ops.RANGE:
        return "is carried around what is no RANGE"
    return None


def _check_accumulate(node: Node, stage: Stage) -> str | None:
    accumulator, value = node.src
    if accumulator.op is not control.ACCUMULATOR:
        return "gives a value to what is no ACCUMULATOR"
    if accumulator.type is not value.type:
        return f"gives {value.type} to an accumulator of {accumulator.type}"
    return None


_RULES: dict[OpDef, Callable[[Any, Stage], str | None]] = {
    math.CONST: _check_const,
    tensor.IOTA: _check_axis,
    tensor.WINDOW: _check_axis,
    tensor.UNWINDOW: _check_axis,
    tensor.SORT: _check_sort,
    tensor.SCAN: _check_axis,
    tensor.FLIP: _check_flip,
    tensor.REDUCE: _check_reduce,
    control.STAGE: _check_stage,
    control.EXTRACT: _check_extract,
    control.SHUFFLE: _check_shuffle,
    control.IF: _check_if,
    control.END: _check_end,
    control.ENDIF: _check_endif,
    control.ACCUMULATOR: _check_accumulator,
    control.ACCUMULATE: _check_accumulate,
    memory.LOAD: _check_load,
    memory.STORE: _check_store,
    matrix_registers.LOAD_MATRIX: _check_load,
    matrix_registers.STORE_MATRIX: _check_store,
    index_ops.RANGE: _check_range,
    index_ops.VARIABLE: _check_variable,
    index_ops.BIND: _check_bind,
    program.FAULT_IF: _check_condition,
}


# --- rules of stages -----------------------------------------------------------------------------


def _check_whole(root: Node, stage: Stage, nodes: Sequence[Node], found: list[Fault]) -> None:
    _check_names(nodes, found)
    if stage is Stage.LINEAR:
        _check_statements(root, nodes, found)
    elif stage & IN_KERNEL:
        _check_kernel(root, nodes, found)
    elif stage is Stage.SCHEDULE and root.op is not program.LINEAR:
        found.append(Fault("schedule-root", root, "a schedule is a LINEAR of calls"))


def _check_names(nodes: Sequence[Node], found: list[Fault]) -> None:
    """A number or name stands for one thing in a graph."""
    seen: dict[tuple[OpDef, Any], Node] = {}
    for node in nodes:
        named = _NAMES.get(node.op)
        if named is None:
            continue
        other = seen.setdefault((node.op, getattr(node.attrs, named)), node)
        if other is not node:
            message = f"{named} {getattr(node.attrs, named)!r} is taken by {other!r}"
            found.append(Fault("unique-names", node, message))


_NAMES: dict[OpDef, str] = {
    index_ops.RANGE: "number",
    index_ops.VARIABLE: "name",
    control.ACCUMULATOR: "number",
    memory.PARAM: "slot",
}


_BINDERS = frozenset([tensor.REDUCE, control.STAGE, control.END])


def _check_kernel(root: Node, nodes: Sequence[Node], found: list[Fault]) -> None:
    if root.op is not memory.SINK:
        found.append(Fault("kernel-root", root, "a kernel is a SINK of its effects"))
    found.extend(
        Fault("kernel-effects", effect, "the SINK holds what has no effect")
        for effect in root.src
        if effect.op.pure
    )
    try:
        free = free_ranges(nodes)
    except KeyError:
        return  # a broken node that has been reported
    outside = free[root]
    for node in nodes:
        if node.op in _BINDERS:
            for loop in node.src[1:]:
                if loop in outside:
                    message = f"range {loop.attrs} is bound here and used outside"
                    found.append(Fault("bound-ranges", node, message))


def _check_statements(root: Node, nodes: Sequence[Node], found: list[Fault]) -> None:
    """Loops and IFs nest; what a statement uses stands before it, in a block around it."""
    if root.op is not program.LINEAR:
        found.append(Fault("linear-root", root, "ordered statements are a LINEAR"))
        return
    blocks: list[Node | None] = [None]
    opened: set[Node | None] = {None}
    #: The block in which each statement stands, by what opened it.
    home: dict[Node, Node | None] = {}
    for node in root.src:
        closes = _closed_by(node)
        if closes is not None:
            innermost = blocks[-1]
            if innermost is not closes:
                found.append(Fault("nesting", node, "ends what is not the innermost open block"))
                return
            opened.discard(blocks.pop())
            home[node] = blocks[-1]
            continue
        messages = [_unreachable(source, home, opened) for source in node.src]
        found.extend([Fault("order", node, message) for message in messages if message])
        home[node] = blocks[-1]
        if node.op is index_ops.RANGE or node.op is control.IF:
            blocks.append(node)
            opened.add(node)
    if len(blocks) > 1:
        found.append(Fault("nesting", blocks[-1] or root, "is never ended"))
        return
    found.extend(Fault("uniform", *row) for row in divergent_barriers(root.src))


def _closed_by(node: Node) -> Node | None:
    """The RANGE or IF whose block this statement ends."""
    return node.src[0] if node.op is control.END or node.op is control.ENDIF else None


def _unreachable(
    source: Node, home: dict[Node, Node | None], opened: set[Node | None]
) -> str | None:
    """What is wrong with the use of `source` at this point."""
    if source.op is index_ops.RANGE:
        return None if source in opened else f"range {source.attrs} is not open here"
    if not source.src:
        return None  # literals, arguments and memory need no statement
    if source not in home:
        return f"{source.op.name} is used before it stands"
    if home[source] not in opened and source.op.pure and source.op is not memory.AFTER:
        return f"{source.op.name} is used outside of its block"
    return None
