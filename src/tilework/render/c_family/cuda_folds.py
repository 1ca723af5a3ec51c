"""Helpers that fold a value of each thread of a block: shuffles, then shared memory.

Neighbours are combined by halves, first inside of 32 threads, then what these have.  Both sides of
each exchange combine the same two values, so all threads get the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import index
from tilework.ir.build import const_index
from tilework.ir.fold import fold_op
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, ParamAttrs
from tilework.render.c_family.dialect import type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.ir.node import Node, OpDef
    from tilework.render.c_family.dialect import Emit

WARP_THREADS = 32


def fold_helper(
    emitters: Mapping[OpDef, Emit], node: Node, unit: Unit, local: int, warps: int
) -> tuple[str, str]:
    """The name and the text of the function that folds along one unit of the block.

    Args:
        emitters: The texts of ops.
        node: The FOLD_THREADS.
        unit: LOCAL or WARP.
        local: Threads along LOCAL, a power of two.
        warps: Units along WARP, a power of two.
    """
    dtype = node.type.dtype
    op = fold_op(node.attrs.fold, dtype)
    kind = type_name(dtype)
    name = f"fold_{unit.value}_{op.name}_{kind}"
    combined = _combined(emitters, op, node)
    lines = [
        f"HELPER {kind} combine_{op.name}_{kind}_{unit.value}({kind} a, {kind} b)"
        f" {{ return {combined}; }}\n",
        f"HELPER {kind} {name}({kind} x) {{\n",
    ]
    combine = f"combine_{op.name}_{kind}_{unit.value}"
    lines += (
        _along_local(kind, combine, local, warps)
        if unit is Unit.LOCAL
        else _along_warps(kind, combine, local, warps)
    )
    return name, "".join([*lines, "  return x;\n}\n"])


def _combined(emitters: Mapping[OpDef, Emit], op: OpDef, node: Node) -> str:
    dtype = node.type.dtype
    a, b = (
        LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (1,), dtype)), const_index(0))) for slot in (0, 1)
    )
    text = emitters[op](op(a, b), {a: "a", b: "b"})
    return f"({text})" if dtype is not index else f"(i64)({text})"


def _shuffles(kind: str, combine: str, distance: int) -> list[str]:
    lines = []
    while distance:
        lines.append(f"  x = {combine}(x, shuffled<{kind}>(x, {distance}));\n")
        distance //= 2
    return lines


def _along_local(kind: str, combine: str, local: int, warps: int) -> list[str]:
    if local <= WARP_THREADS:
        return _shuffles(kind, combine, local // 2)
    groups = local // WARP_THREADS
    return [
        *_shuffles(kind, combine, WARP_THREADS // 2),
        f"  __shared__ {kind} exchange[{groups * warps}];\n",
        "  __syncthreads();\n",
        f"  if (threadIdx.x % {WARP_THREADS}u == 0) exchange[threadIdx.x / {WARP_THREADS}u] = x;\n",
        "  __syncthreads();\n",
        f"  x = exchange[threadIdx.x / {local}u * {groups}u + threadIdx.x % {groups}u];\n",
        *_shuffles(kind, combine, groups // 2),
    ]


def _along_warps(kind: str, combine: str, local: int, warps: int) -> list[str]:
    lines = [
        f"  __shared__ {kind} exchange[{warps * local}];\n",
        "  __syncthreads();\n",
        "  exchange[threadIdx.x] = x;\n",
        "  __syncthreads();\n",
        f"  {kind} r[{warps}];\n",
        "#pragma unroll\n",
        f"  for (int i = 0; i < {warps}; i++)"
        f" r[i] = exchange[i * {local} + threadIdx.x % {local}u];\n",
    ]
    half = warps // 2
    while half:
        lines.append("#pragma unroll\n")
        lines.append(f"  for (int i = 0; i < {half}; i++) r[i] = {combine}(r[i], r[i + {half}]);\n")
        half //= 2
    return [*lines, "  x = r[0];\n"]
