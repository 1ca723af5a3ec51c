"""Helpers that fold a value of each thread of a block: shuffles, then shared memory.

Neighbours are combined by halves, first inside of 32 threads, then what these have.  Both sides of
each exchange combine the same two values, so all threads get the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import index
from tilework.ir.build import const_index
from tilework.ir.fold import fold_op, identity_bits
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, ParamAttrs
from tilework.render.c_family.cuda_literals import literal
from tilework.render.c_family.dialect import type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.dtypes import DType
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
    both = combined(emitters, op, node.type.dtype)
    lines = [
        f"HELPER {kind} combine_{op.name}_{kind}_{unit.value}({kind} a, {kind} b)"
        f" {{ return {both}; }}\n",
        f"HELPER {kind} {name}({kind} x) {{\n",
    ]
    combine = f"combine_{op.name}_{kind}_{unit.value}"
    lines += (
        _along_local(kind, combine, local, warps)
        if unit is Unit.LOCAL
        else _along_warps(kind, combine, local, warps)
    )
    return name, "".join([*lines, "  return x;\n}\n"])


def scan_helper(emitters: Mapping[OpDef, Emit], node: Node, local: int) -> tuple[str, str, str]:
    """The functions that fold what all threads before have: name, name of the fold of two, text.

    Args:
        emitters: The texts of ops.
        node: The SCAN_THREADS.
        local: Threads along LOCAL, a multiple of 32.
    """
    dtype, fold = node.type.dtype, node.attrs.fold
    op, kind = fold_op(fold, dtype), type_name(dtype)
    name, combine = f"scan_local_{op.name}_{kind}", f"combine_{op.name}_{kind}_scan"
    start = literal(identity_bits(fold, dtype), dtype)
    groups = local // WARP_THREADS
    lines = [
        f"HELPER {kind} {combine}({kind} a, {kind} b)"
        f" {{ return {combined(emitters, op, dtype)}; }}\n",
        f"HELPER {kind} {name}({kind} x) {{\n",
        f"  const u32 lane = threadIdx.x % {WARP_THREADS}u;\n",
        f"  const u32 group = threadIdx.x / {WARP_THREADS}u;\n",
        *_doublings(kind, combine, "x", WARP_THREADS),
        f"  {kind} before = __shfl_up_sync(~0u, x, 1);\n",
        f"  if (lane == 0) before = {start};\n",
    ]
    if groups > 1:
        lines += [
            f"  __shared__ {kind} exchange[{groups}];\n",
            "  __syncthreads();\n",
            f"  if (lane == {WARP_THREADS - 1}) exchange[group] = x;\n",
            "  __syncthreads();\n",
            f"  {kind} t = lane < {groups}u ? exchange[lane] : {start};\n",
            *_doublings(kind, combine, "t", groups),
            "  t = __shfl_sync(~0u, t, group ? group - 1 : 0);\n",
            f"  if (group) before = {combine}(t, before);\n",
        ]
    return name, combine, "".join([*lines, "  return before;\n}\n"])


def _doublings(kind: str, combine: str, name: str, count: int) -> list[str]:
    """Lines that fold a variable of neighbours at doubling distances."""
    lines = [f"  {kind} {name}_before;\n"]
    distance = 1
    while distance < count:
        lines.append(
            f"  {name}_before = __shfl_up_sync(~0u, {name}, {distance});\n"
            f"  if (lane >= {distance}u) {name} = {combine}({name}_before, {name});\n"
        )
        distance *= 2
    return lines


def combined(emitters: Mapping[OpDef, Emit], op: OpDef, dtype: DType) -> str:
    """The text that combines a and b."""
    a, b = (
        LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (1,), dtype)), const_index(0))) for slot in (0, 1)
    )
    text = emitters[op](op(a, b), {a: "a", b: "b"})
    return f"({text})" if dtype is not index else f"(i64)({text})"


def _shuffles(kind: str, combine: str, distance: int) -> list[str]:
    """Lines that fold x of neighbours by halves."""
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


def rank_helper(bits: int) -> tuple[str, str]:
    """The name and the text of the function that ranks a thread among those with its value.

    One ballot for each bit says which threads have the same value.
    """
    name = f"rank_in_warp_{bits}"
    return name, (
        f"HELPER i32 {name}(i32 *counter, u32 value) {{\n"
        "  u32 peers = ~0u, below;\n"
        "#pragma unroll\n"
        f"  for (int bit = 0; bit < {bits}; bit++) {{\n"
        "    const bool is_set = (value >> bit) & 1u;\n"
        "    const u32 others = __ballot_sync(~0u, is_set);\n"
        "    peers &= is_set ? others : ~others;\n"
        "  }\n"
        '  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));\n'
        "  const i32 before = __popc(peers & below), known = *(volatile i32 *)counter;\n"
        "  __syncwarp();\n"
        "  if (!before) *(volatile i32 *)counter = known + __popc(peers);\n"
        "  __syncwarp();\n"
        "  return known + before;\n"
        "}\n"
    )
