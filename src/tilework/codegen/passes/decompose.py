"""LOWERED -> LOWERED: replace what the target lacks by what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.decompose import booleans, extremes, integers, lanes, rounding, storage
from tilework.codegen.decompose.elementary import decompose_elementary
from tilework.dtypes import DType, bool_, float16, float32, float64
from tilework.ir.build import cast
from tilework.ir.node import Node, make, toposort
from tilework.ir.ops import control, math
from tilework.target.features import X86_64

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.node import OpDef
    from tilework.target.spec import TargetSpec

_SMALL_NATIVE = frozenset({math.WHERE, math.WHERE_RARE, math.CONST, math.BITCAST, math.CAST})
_COMPARISONS = frozenset({math.LT, math.LE, math.EQ, math.NE})


def decompose(sink: Node, target: TargetSpec) -> Node:
    """Rewrite every op or dtype that `target` has no instruction for.

    Ensures: arithmetic only on dtypes that the target computes with; no IDIV or MOD; elementary
    functions only where they are native.
    """
    done: dict[Node, Node] = {}
    _rewrite(sink, done, _Rules(target))
    return done[sink]


def decompose_node(node: Node, target: TargetSpec) -> Node:
    """The same for one node whose sources have been decomposed."""
    rules = _Rules(target)
    replaced = rules.apply(node)
    if replaced is node:
        return node
    return _settle(replaced, {source: source for source in node.src}, rules)


def _rewrite(root: Node, done: dict[Node, Node], rules: _Rules) -> None:
    """Bottom up; what a rule made is rewritten too, until nothing applies."""
    for node in toposort(root):
        if node in done:
            continue
        src = tuple([done[source] for source in node.src])
        current = node if src == node.src else make(node.op, src, node.attrs)
        replaced = rules.apply(current)
        if replaced is current:
            done[node] = done[current] = current
            continue
        done[node] = _settle(replaced, done, rules)


def _settle(root: Node, done: dict[Node, Node], rules: _Rules) -> Node:
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        waiting = [source for source in node.src if source not in done]
        if waiting:
            stack.extend(waiting)
            continue
        src = tuple([done[source] for source in node.src])
        current = node if src == node.src else make(node.op, src, node.attrs)
        replaced = rules.apply(current)
        if replaced is current:
            done[node] = done[current] = current
            stack.pop()
        elif replaced in done:
            done[node] = done[replaced]
            stack.pop()
        else:
            stack.append(replaced)
    return done[root]


class _Rules:
    def __init__(self, target: TargetSpec) -> None:
        self.target = target
        self.by_op: dict[OpDef, Callable[[Node], Node]] = {
            math.IDIV: integers.floor_divide,
            math.MOD: integers.floor_modulo,
            math.SHL: integers.shift_left,
            math.SHR: integers.shift_right,
            control.FOLD_LANES: self._fold_lanes,
            control.FOLD_THREADS: self._fold_threads,
            **dict.fromkeys(math.DOTS, self._dot),
        }
        self.rounds = {
            math.FLOOR: rounding.floor,
            math.CEIL: rounding.ceiling,
            math.TRUNC: rounding.truncate,
            math.ROUND: rounding.round_even,
        }
        # Without F16C a conversion of float16 would be a call of the compiler's own library.
        self.converts_half = target.isa != X86_64 or "f16c" in target.features
        # LLVM and every C compiler compute float16 through float32 themselves, but not always
        # with one rounding per operation, so it is spelled out here.
        self.computes = {float32, float64}

    def apply(self, node: Node) -> Node:
        if node.op in booleans.RULES and node.src[0].dtype is bool_:
            return booleans.RULES[node.op](node)
        rule = self.by_op.get(node.op)
        if rule is not None:
            return rule(node)
        if not node.op.elementwise:
            return node
        small = self._small_float(node)
        if small is not None:
            return self._through_float32(node, small)
        if node.op is math.CAST:
            return self._cast(node)
        if node.op in self.rounds and node.op.name not in self.target.native_ops:
            return self.rounds[node.op](node)
        if node.op in extremes.OPS:
            return extremes.by_numbers(node, self.target)
        if node.dtype.is_float:
            return decompose_elementary(node, self.target)
        return node

    def _small_float(self, node: Node) -> DType | None:
        """The storage-only float that an op computes with, if it does."""
        if node.op in _SMALL_NATIVE:
            return None
        dtype = node.src[0].dtype if node.op in _COMPARISONS else node.dtype
        return dtype if dtype.is_float and dtype not in self.computes else None

    def _dot(self, node: Node) -> Node:
        if node.op.name in self.target.native_ops:
            return node
        if node.op is math.DOT_BFLOAT16_PAIRS:
            return storage.dot_of_bfloat16(node)
        return integers.dot_of_words(node)

    def _fold_lanes(self, node: Node) -> Node:
        is_small = node.dtype.is_float and node.dtype not in self.computes
        if is_small:
            return lanes.fold_one_by_one(node)
        return extremes.fold_by_numbers(node, self.target)

    def _fold_threads(self, node: Node) -> Node:
        """Small floats are folded in float32 and rounded once."""
        dtype = node.dtype
        if not dtype.is_float or dtype in self.computes:
            return node
        wide = control.FOLD_THREADS(cast(node.src[0], float32), *node.src[1:], attrs=node.attrs)
        return cast(wide, dtype)

    def _through_float32(self, node: Node, dtype: DType) -> Node:
        if node.op is math.MULACC:
            return storage.float64_to_small(storage.multiply_add_to_odd(node), dtype)
        if node.op is math.COPYSIGN:
            return storage.copysign_bits(node)
        wide = [cast(source, float32) if source.dtype is dtype else source for source in node.src]
        result = make(node.op, tuple(wide), node.attrs)
        return result if node.op in _COMPARISONS else cast(result, dtype)

    def _cast(self, node: Node) -> Node:
        x, target = node.src[0], node.dtype
        if x.dtype is target:
            return x
        small = x.dtype.is_float and x.dtype not in self.computes
        if small and not (x.dtype is float16 and self.converts_half):
            wide = storage.to_float32(x)
            return cast(wide, target)
        if x.dtype is float16 and target is not float32:
            return cast(cast(x, float32), target)
        if not target.is_float or target in self.computes:
            return node
        if x.dtype is float64:
            return storage.float64_to_small(x, target)
        if x.dtype is float32:
            if target is float16 and self.converts_half:
                return node
            if f"cast_{target.name}" in self.target.native_ops:
                return node
            return storage.from_float32(x, target)
        if x.dtype.is_bool or x.dtype.bits <= 16:
            return cast(cast(x, float32), target)
        # Wider integers: through float64, which holds 53 bits, then one rounding.
        return cast(cast(storage.to_53_bits(x), float64), target)
