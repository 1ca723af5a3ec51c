"""Random plans for a kernel: legal ones, by asking `check`."""

from hypothesis import assume
from hypothesis import strategies as st

from tilework.base.errors import PlanError
from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.plan.check import check
from tilework.codegen.plan.contraction import orientations
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.ir.ops.index import Unit
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.types import Memory
from tilework.testing.kernels import Case, target

LOOP = Part(Unit.LOOP)


@st.composite
def tiles(draw: st.DrawFn) -> tuple[Part, ...]:
    parts = []
    if draw(st.booleans()):
        parts.append(Part(Unit.UNROLL, draw(st.integers(2, 4))))
    if draw(st.booleans()):
        parts.append(Part(Unit.LANE, draw(st.sampled_from([2, 4, 8, 16]))))
    return tuple(parts)


@st.composite
def plans(draw: st.DrawFn, case: Case, level: str) -> Plan:
    """A plan that `check` lets pass, most of them unlike what the cost model would choose."""
    kernel = analyse(normalise_ranges(rewrite(case.sink, SIMPLIFY)))
    outputs = [int(r.attrs.number) for r in kernel.outputs]
    splits = []
    for range_ in kernel.free.ranges:
        n = int(range_.attrs.number)
        tile = draw(tiles())
        outer: tuple[Part, ...] = (LOOP,)
        if n in outputs and draw(st.integers(0, 3)) == 0:
            outer = (LOOP, Part(Unit.LOOP, draw(st.integers(1, 4))))
        splits.append(Split(n, outer, tile))
    splits = _legal_splits(kernel, splits)
    entries = [(s.number, part) for s in splits for part in range(len(s.outer))]
    entries = [entry for entry in entries if entry[0] in outputs]
    nest = draw(st.permutations(entries)) if draw(st.booleans()) else entries
    nest = sorted(nest, key=lambda entry: entry[1]) if draw(st.booleans()) else list(nest)
    found = orientations(kernel)
    swapped = bool(found) and len(found) > 1 and draw(st.booleans())
    tasks = draw(st.integers(0, len(nest)))
    staged = []
    for operand in range(2) if found else ():
        if draw(st.booleans()):
            depth = draw(st.integers(tasks, len(nest)))
            lanes, windows = draw(st.sampled_from([1, 4])), draw(st.booleans())
            staged.append(Staged(operand, Memory.TILE, depth, lanes, windows=windows))
    plan = Plan(
        tuple(splits),
        tuple(nest),
        tasks,
        tuple(staged),
        draw(st.booleans()),
        swapped,
        ahead=draw(st.sampled_from([0, 4096])),
    )
    try:
        check(plan, kernel, target(level))
    except PlanError:
        assume(False)
    return plan


def _legal_splits(kernel: Kernel, splits: list[Split]) -> list[Split]:
    """The splits without the tiles that no plan could have."""
    serial = {int(r.attrs.number) for r in kernel.serial}
    return [Split(s.number, s.outer, () if s.number in serial else s.tile) for s in splits]
