"""Proofs that every access of a finished kernel lies inside of its buffer.

`unproven(lowered)` looks at a kernel after its plan was applied and its lanes were made, and gives
each LOAD and STORE of a buffer whose place is not proven.  A proof may use the gate of the access,
the extents of loops and the bounds of variables; so a gate that a pass has lost, and an index that
is off by one, are found here whatever made them.  The passes after it rewrite expressions into what
the target has and put statements in order; `check_gates` sees that they lose no gate.

The prover is small and does not share code with what builds index arithmetic: offsets are sums of
atoms, facts are sums that are at most 0, and a goal is proven when positive multiples of facts
taken from it leave a sum whose largest value is at most 0.  It is sound and not complete: what it
does not prove need not be wrong, above all where symbolic sizes are multiplied.
"""

from __future__ import annotations

from collections import Counter
from math import gcd
from typing import TYPE_CHECKING, Final

from tilework.base import settings
from tilework.base.errors import VerifyError
from tilework.base.records import dataclass, field
from tilework.dtypes import bool_
from tilework.ir.build import const_bits, const_index
from tilework.ir.node import make, toposort
from tilework.ir.ops import control, math
from tilework.ir.ops import index as index_ops
from tilework.ir.ops.matrix_registers import LOAD_MATRIX, STORE_MATRIX
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE
from tilework.ir.symbolic import dims
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node

Atoms = dict["Node", int]
#: How many facts a proof may use: few are tried first.
_DEPTHS: Final = (1, 2, 3, 4, 6)
_FUEL: Final = 300
#: Of how many atoms facts are collected: products of symbolic sizes speak of ever more.
_ATOMS: Final = 48


@dataclass(frozen=True, slots=True)
class Sum:
    """constant + sum of coefficient * atom, over integers without a width."""

    constant: int
    atoms: Atoms = field(default_factory=dict)

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """This and `factor` times the other."""
        atoms = dict(self.atoms)
        for atom, times in other.atoms.items():
            total = atoms.get(atom, 0) + factor * times
            if total:
                atoms[atom] = total
            else:
                atoms.pop(atom, None)
        return Sum(self.constant + factor * other.constant, atoms)

    def scaled(self, factor: int) -> Sum:
        """`factor` times this."""
        if not factor:
            return Sum(0)
        atoms = {atom: factor * times for atom, times in self.atoms.items()}
        return Sum(factor * self.constant, atoms)


def sum_of(node: Node, lane: int | None = None) -> Sum:
    """An integer expression as a sum of atoms.

    Args:
        node: The expression; a vector stands for one of its lanes.
        lane: Which lane; None leaves it open, as the atom LANES.
    """
    op = node.op
    if op is math.CONST:
        return Sum(bounds(node)[0])
    if op is index_ops.LANES and lane is not None:
        return Sum(lane)
    if op is control.BROADCAST:
        return sum_of(node.src[0])
    if op is control.EXTRACT:
        return sum_of(node.src[0], node.attrs.lane)
    if op is control.STACK and lane is not None:
        return sum_of(node.src[lane])
    found = _arithmetic(node, lane) if op in _ARITHMETIC and node.dtype.is_integer else None
    # A narrow result may have wrapped; what has 64 bits counts elements.
    if found is not None and (node.dtype.bits >= 64 or _fits(found, node.dtype)):
        return found
    low, high = bounds(node)
    return Sum(low) if low == high else Sum(0, {_lane_of(node, lane): 1})


_ARITHMETIC: Final = (math.ADD, math.SUB, math.NEG, math.MUL, math.SHL, math.CAST)


def _arithmetic(node: Node, lane: int | None) -> Sum | None:
    """Sums, products and the like as a sum; None where that is not known to keep the value."""
    op, parts = node.op, [sum_of(source, lane) for source in node.src]
    if op is math.ADD:
        return parts[0].plus(parts[1])
    if op is math.SUB:
        return parts[0].plus(parts[1], -1)
    if op is math.NEG:
        return parts[0].scaled(-1)
    if op is math.CAST:
        are_integers = node.src[0].dtype.is_integer and node.dtype.is_integer
        return parts[0] if are_integers and _fits(parts[0], node.dtype) else None
    first, second = parts
    if op is math.SHL:
        return None if second.atoms else first.scaled(1 << second.constant)
    if node.type.shape and first.atoms and second.atoms:
        return None
    return _product(first, second)


def _product(x: Sum, y: Sum) -> Sum:
    """The product of two sums; products of two atoms are atoms, whichever comes first."""
    found = Sum(x.constant * y.constant)
    found = found.plus(Sum(0, x.atoms), y.constant).plus(Sum(0, y.atoms), x.constant)
    for first, times in x.atoms.items():
        for second, more in y.atoms.items():
            pair = sorted((first, second), key=id)
            found = found.plus(Sum(0, {math.MUL(*pair): times * more}))
    return found


def _lane_of(node: Node, lane: int | None) -> Node:
    """The scalar that a vector expression has in one lane, as far as it can be written."""
    if lane is None or not node.type.shape:
        return node
    if node.op.elementwise and node.op is not math.CONST:
        return make(node.op, tuple([_scalar(source, lane) for source in node.src]), node.attrs)
    return control.EXTRACT(node, attrs=control.LaneAttrs(lane))


def _scalar(node: Node, lane: int) -> Node:
    if not node.type.shape:
        return node
    if node.op is control.BROADCAST:
        return node.src[0]
    if node.op is index_ops.LANES:
        return const_index(lane)
    if node.op is math.CONST:
        return const_bits(node.attrs.bits, node.dtype)
    if node.op is control.STACK:
        return node.src[lane]
    return _lane_of(node, lane)


def _fits(total: Sum, dtype: DType) -> bool:
    """Does a dtype have all values of a sum, so that nothing wraps?"""
    least, most = dtype.minimum, dtype.maximum
    return bool(-_greatest(total.scaled(-1)) >= least and _greatest(total) <= most)


def _greatest(total: Sum) -> int:
    """The largest value that the bounds of the atoms allow."""
    return _Prover(()).greatest(total)


def facts_of_condition(condition: Node, lane: int | None = None) -> list[Sum]:
    """Sums that are at most 0 where a condition holds; what is not understood gives none."""
    op = condition.op
    if bounds(condition)[1] == 0:
        return [Sum(1)]  # it never holds
    if op is control.BROADCAST:
        return facts_of_condition(condition.src[0])
    if op is control.EXTRACT:
        return facts_of_condition(condition.src[0], condition.attrs.lane)
    if op is math.AND and condition.dtype is bool_:
        return [fact for part in condition.src for fact in facts_of_condition(part, lane)]
    if op is math.XOR and condition.src[1].op is math.CONST and bounds(condition.src[1])[0]:
        return _facts_of_order(condition.src[0], lane, is_negated=True)
    return _facts_of_order(condition, lane)


def _facts_of_order(condition: Node, lane: int | None, *, is_negated: bool = False) -> list[Sum]:
    op = condition.op
    if op not in (math.LT, math.LE, math.EQ) or not condition.src[0].dtype.is_integer:
        return []
    x, y = (sum_of(source, lane) for source in condition.src)
    difference = x.plus(y, -1)
    if op is math.EQ:
        return [] if is_negated else [difference, difference.scaled(-1)]
    if is_negated:  # not x < y is y <= x, not x <= y is y < x
        return [difference.scaled(-1).plus(Sum(0 if op is math.LT else 1))]
    return [difference.plus(Sum(1)) if op is math.LT else difference]


def _facts_of_atom(atom: Node) -> list[Sum]:
    """What is known of an atom besides its bounds."""
    op, own = atom.op, Sum(0, {atom: 1})
    if op is index_ops.RANGE:
        return [own.plus(sum_of(atom.src[0]), -1).plus(Sum(1))]
    if op is math.MINIMUM:
        return [own.plus(sum_of(source), -1) for source in atom.src]
    if op is math.MAXIMUM:
        return [sum_of(source).plus(own, -1) for source in atom.src]
    if op in _QUOTIENTS or op in _RESTS:
        return _facts_of_quotient(atom, own)
    if op is math.MUL:
        # What is at most 0 stays so when it is multiplied by what is not negative.
        return [
            _product(fact, Sum(0, {other: 1}))
            for factor, other in (atom.src, atom.src[::-1])
            if bounds(other)[0] >= 0 and factor.op is not math.MUL
            for fact in _facts_of_atom(factor)
        ]
    return []


_QUOTIENTS: Final = (math.IDIV, math.CDIV, math.SHR)
_RESTS: Final = {math.MOD: math.IDIV, math.CMOD: math.CDIV, math.AND: math.SHR}


def _facts_of_quotient(atom: Node, own: Sum) -> list[Sum]:
    """x // size and x % size, however written: by shift and mask too."""
    op = atom.op
    divided = sum_of(atom.src[0])
    size = _divisor(atom)
    if size is None or (op in (math.CDIV, math.CMOD) and bounds(atom.src[0])[0] < 0):
        return []
    if op in _QUOTIENTS:
        over = _product(own, size).plus(divided, -1)
        return [over, over.scaled(-1).plus(size, -1).plus(Sum(1))]
    facts = [own.plus(size, -1).plus(Sum(1))]
    if bounds(atom.src[0])[0] >= 0:
        facts.append(own.plus(divided, -1))
    by = const_index(size.constant.bit_length() - 1) if op is math.AND else atom.src[1]
    quotient = Sum(0, {_RESTS[op](atom.src[0], by): 1})
    whole = _product(quotient, size).plus(own).plus(divided, -1)
    return [*facts, whole, whole.scaled(-1)]


def _divisor(atom: Node) -> Sum | None:
    """What a quotient or a rest divides by, if that is known to be positive."""
    by = sum_of(atom.src[1])
    if atom.op is math.SHR or atom.op is math.AND:
        if by.atoms:
            return None
        size = 1 << by.constant if atom.op is math.SHR else by.constant + 1
        return Sum(size) if size > 0 and not size & (size - 1) else None
    return by if bounds(atom.src[1])[0] > 0 else None


class _Prover:
    """Proves sums to be at most 0 from facts."""

    def __init__(self, facts: Iterable[Sum]) -> None:
        self._by_atom: dict[Node, list[Sum]] = {}
        self._bounds: dict[Node, tuple[int, int]] = {}
        self._known: set[Node] = set()
        self._fuel = 0
        self._never = False  # whether the facts contradict each other: the access never happens
        for fact in facts:
            self._add(fact)

    def greatest(self, total: Sum) -> int:
        """The largest value that the bounds of the atoms allow."""
        found = total.constant
        for atom, factor in total.atoms.items():
            low, high = self._bounds.get(atom) or bounds(atom)
            found += factor * (high if factor > 0 else low)
        return found

    def most(self, total: Sum) -> int:
        """The largest value that the bounds of the atoms allow, or a fact of the same sum."""
        found = self.greatest(total)
        for atom in total.atoms:
            for fact in self._by_atom.get(atom, ()):
                if fact.atoms == total.atoms:
                    found = min(found, total.constant - fact.constant)
            break  # a fact of the same sum is known by each of its atoms
        return found

    def proves(self, goal: Sum) -> bool:
        """Whether `goal` <= 0 follows."""
        if self._never or self.greatest(goal) <= 0:
            return True
        self._learn(goal)
        return any(self._search_afresh(goal, depth) for depth in _DEPTHS)

    def _search_afresh(self, goal: Sum, depth: int) -> bool:
        self._fuel = _FUEL
        return self._search(goal, depth)

    def _add(self, fact: Sum) -> None:
        if not fact.atoms:
            self._never = self._never or fact.constant > 0
            return
        if len(fact.atoms) != 1:
            for atom in fact.atoms:
                self._by_atom.setdefault(atom, []).append(fact)
            return
        ((atom, factor),) = fact.atoms.items()
        low, high = self._bounds.get(atom) or bounds(atom)
        if factor > 0:
            high = min(high, -fact.constant // factor)
        else:
            low = max(low, -(fact.constant // factor))
        self._bounds[atom] = low, high

    def _learn(self, goal: Sum) -> None:
        """Collect what is known of the atoms of a goal, and of those that this speaks of."""
        waiting = [*goal.atoms, *self._by_atom]
        while waiting:
            atom = waiting.pop()
            if atom in self._known or len(self._known) >= _ATOMS:
                continue
            self._known.add(atom)
            for fact in _facts_of_atom(atom):
                self._add(fact)
                waiting.extend(fact.atoms)
            if atom.op in _QUOTIENTS:
                self._learn_quotient(atom)
            elif atom.op is math.MINIMUM or atom.op is math.MAXIMUM:
                self._learn_extreme(atom)
            elif atom.op is math.WHERE:
                self._learn_choice(atom)

    def _learn_quotient(self, atom: Node) -> None:
        """A quotient is rounded down, which says more than the same sum over real numbers."""
        divided, by = sum_of(atom.src[0]), _divisor(atom)
        if by is None or by.atoms:
            return
        size = by.constant
        self._learn(divided)
        low, high = -self.most(divided.scaled(-1)), self.most(divided)
        if low < 0 and self._search_afresh(divided.scaled(-1), 2):
            low = 0
        if low >= 0 or atom.op is not math.CDIV:
            self._add(Sum(low // size, {atom: -1}))
            self._add(Sum(-(high // size), {atom: 1}))

    def _learn_extreme(self, atom: Node) -> None:
        """The smaller of two is at least what both are; the greater at most what both are."""
        sign = -1 if atom.op is math.MINIMUM else 1
        sides = [sum_of(source).scaled(sign) for source in atom.src]
        for side in sides:
            self._learn(side)
        most = max(self.greatest(side) for side in sides)
        if most > 0 and all(self._search_afresh(side, 2) for side in sides):
            most = 0
        self._add(Sum(-most, {atom: sign}))

    def _learn_choice(self, atom: Node) -> None:
        """One of two values, of which the first may be what its condition limits."""
        condition, *sources = atom.src
        sides = [sum_of(source) for source in sources]
        for side in sides:
            self._learn(side)
        most = [self.greatest(side) for side in sides]
        if condition.op is math.LT and condition.src[0] is sources[0]:
            most[0] = min(most[0], self.greatest(sum_of(condition.src[1])) - 1)
        self._add(Sum(-max(most), {atom: 1}))
        low = min(-self.greatest(side.scaled(-1)) for side in sides)
        if low < 0 and all(self._search_afresh(side.scaled(-1), 2) for side in sides):
            low = 0
        self._add(Sum(low, {atom: -1}))

    def _search(self, goal: Sum, depth: int) -> bool:
        if self.greatest(goal) <= 0:
            return True
        if not depth or self._fuel <= 0:
            return False
        self._fuel -= 1
        # What is innermost first: its facts speak of what is around it.
        for atom in sorted(goal.atoms, key=_rank, reverse=True):
            times = goal.atoms[atom]
            for fact in self._by_atom.get(atom, ()):
                other = fact.atoms[atom]
                if (times > 0) != (other > 0):
                    continue
                shared = gcd(times, other)
                rest = goal.scaled(abs(other) // shared).plus(fact, -(abs(times) // shared))
                if self._search(rest, depth - 1):
                    return True
        return False


def _rank(atom: Node) -> tuple[int, int]:
    if atom.op is index_ops.RANGE:
        return 1, atom.attrs.number
    return (0, 0) if atom.op is index_ops.VARIABLE else (2, 0)


@dataclass(frozen=True, slots=True)
class Unproven:
    """An access, and what could not be shown of it.

    `from_data` says that the place is read from memory: the scheduler leaves the gate of an index
    out where it proves the index's range from how another kernel computes it.
    """

    node: Node
    what: str
    from_data: bool


def unproven(lowered: Node) -> list[Unproven]:
    """The accesses of buffers in a LOWERED kernel that are not proven to lie inside."""
    found: list[Unproven] = []
    for node in toposort(lowered):
        if node.op is LOAD or node.op is STORE:
            found.extend(unproven_parts(node))
        elif node.op is LOAD_MATRIX or node.op is STORE_MATRIX:
            found.extend(unproven_rows(node, node.src[0], ()))
    return found


def unproven_parts(node: Node, known: Sequence[Sum] = ()) -> list[Unproven]:
    """What is not proven of one LOAD or STORE; nothing for memory of the kernel's own.

    Args:
        node: The access.
        known: What holds where it stands, besides its gate.
    """
    is_load = node.op is LOAD
    address = node.src[0]
    if address.op is not INDEX or address.src[0].op is not PARAM:
        return []  # memory of the kernel's own, which the plan lays out
    gates = node.src[1 if is_load else 2 :]
    kind = node.type if is_load else node.src[1].type
    lanes = kind.lanes if kind.shape else 1
    facts = [*known, *(fact for gate in gates for fact in facts_of_condition(gate))]
    offset = sum_of(address.src[1])
    last = offset
    if lanes > 1 and not address.src[1].type.shape:  # else each lane has a place of its own
        lane_gates = [gate for gate in gates if gate.type.shape]
        if lane_gates:
            lane = index_ops.LANES(attrs=index_ops.LanesAttrs(lanes))
            offset = last = offset.plus(Sum(0, {lane: 1}))
        else:
            last = offset.plus(Sum(lanes - 1))
    size = sum_of(dims.as_node(dims.product(address.src[0].attrs.shape)))
    from_data = any(part.op is LOAD for part in toposort(address.src[1]))
    faults = []
    if not _Prover(facts).proves(offset.scaled(-1)):
        faults.append(Unproven(node, "it may begin before the buffer", from_data))
    if not _Prover(facts).proves(last.plus(size, -1).plus(Sum(1))):
        faults.append(Unproven(node, "it may reach beyond the buffer", from_data))
    return faults


def unproven_span(address: Node, counts: Sequence[Sum], facts: Sequence[Sum]) -> list[str]:
    """What is not proven of an access of several elements from an INDEX on.

    Args:
        address: Of the first element.
        counts: Of how many elements it is at most; each of these is true.
        facts: What holds where it stands.
    """
    offset = sum_of(address.src[1])
    size = sum_of(dims.as_node(dims.product(address.src[0].attrs.shape)))
    found = []
    if not proves(offset.scaled(-1), facts):
        found.append("it may begin before the buffer")
    if not any(proves(offset.plus(count).plus(size, -1), facts) for count in counts):
        found.append("it may reach beyond the buffer")
    return found


def unproven_rows(node: Node, address: Node, facts: Sequence[Sum]) -> list[Unproven]:
    """What is not proven of a LOAD_MATRIX or STORE_MATRIX, whose rows lie some elements apart."""
    if address.op is not INDEX or address.src[0].op is not PARAM:
        return []
    attrs = node.attrs
    reach = (attrs.rows - 1) * attrs.stride + attrs.columns
    from_data = any(part.op is LOAD for part in toposort(address.src[1]))
    found = unproven_span(address, (Sum(reach),), facts)
    return [Unproven(node, what, from_data) for what in found]


def proves(goal: Sum, facts: Sequence[Sum]) -> bool:
    """Whether `goal` <= 0 follows from facts, which are sums that are at most 0."""
    return _Prover(facts).proves(goal)


def check_accesses(lowered: Node, *, trusts_data: bool = True) -> None:
    """Refuse a LOWERED kernel with an access that is not proven to lie inside of its buffer.

    Args:
        lowered: The kernel.
        trusts_data: Take indexes that come from memory without a gate on trust.

    Raises:
        VerifyError: Names the first such access.
    """
    refuse([fault for fault in unproven(lowered) if not (trusts_data and fault.from_data)])


def refuse(faults: Sequence[Unproven]) -> None:
    """Raise VerifyError for the first of some accesses that are not proven, if there is one."""
    if faults:
        first = faults[0]
        raise VerifyError(
            "audit: an access is not proven to lie inside of its buffer",
            node=first.node,
            got=f"{len(faults)} unproven; of the first: {first.what}",
        )


def check_as_settings_say(lowered: Node) -> None:
    """`check_accesses`, if the settings in force ask for proofs or for checks of the rest.

    Raises:
        VerifyError: Names the first access that is not proven.
    """
    current = settings.current()
    if current.prove_accesses or current.check_accesses:
        check_accesses(lowered, trusts_data=not current.check_accesses)


def check_gates(lowered: Node, linear: Node) -> None:
    """Refuse statements that access a buffer without a gate more often than the kernel did.

    Raises:
        VerifyError: A pass after `expand` has lost a gate; names the buffer.
    """
    before = _ungated(toposort(lowered))
    for key, count in _ungated(linear.src).items():
        if count > before[key]:
            name, slot = key
            raise VerifyError(
                "audit: a gate was lost",
                node=linear,
                got=f"{count} {name}s of buffer {slot} without a gate",
                expected=f"at most {before[key]}",
            )


def _ungated(nodes: Iterable[Node]) -> Counter[tuple[str, int]]:
    """How often each buffer is loaded from and stored to without a gate."""
    found: Counter[tuple[str, int]] = Counter()
    for node in dict.fromkeys(nodes):
        if (node.op is LOAD and len(node.src) == 1) or (node.op is STORE and len(node.src) == 2):
            address = node.src[0]
            if address.op is INDEX and address.src[0].op is PARAM:
                found[node.op.name, address.src[0].attrs.slot] += 1
    return found
