"""Scans of rows that blocks of threads share: the function that scans a tile, and how it is called.

Words are read and written whole, by accesses of 64 bits that all multiprocessors see; they carry
all that a reader needs, so that nothing else has to be ordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.dtypes import int32
from tilework.ir.fold import fold_op, identity_bits
from tilework.ir.ops.index import TASK_IN_ORDER
from tilework.ir.ops.scan import SCAN_BLOCKS, words_of_value
from tilework.ir.symbolic.bounds import bounds
from tilework.render.c_family.cuda_folds import WARP_THREADS, combined
from tilework.render.c_family.cuda_literals import literal
from tilework.render.c_family.dialect import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilework.ir.node import Node, OpDef
    from tilework.render.c_family.cuda import _Function

#: Words that blocks tell each other values by: 32 bits, and a one above them.
_WORDS: Final = """\
template <class T, int COUNT> HELPER void publish(u64 *word, T value) {
  union { T value; u32 parts[COUNT]; } both;
  both.value = value;
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    const u64 found = 1ull << 32 | both.parts[i];
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word + i), "l"(found) : "memory");
  }
}
template <class T, int COUNT> HELPER T await(const u64 *word) {
  union { T value; u32 parts[COUNT]; } both;
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    u64 found;
    while (true) {
      asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(word + i) : "memory");
      if (found >> 32) break;
      __nanosleep(100);
    }
    both.parts[i] = (u32)found;
  }
  return both.value;
}
"""
#: The scan of a tile; F combines two values, and starts from what changes none.
_SCAN: Final = """\
template <class F, class T, int COUNT> HELPER T scanned(T x) {
#pragma unroll
  for (int distance = 1; distance < COUNT; distance *= 2) {
    const T before = __shfl_up_sync(~0u, x, distance);
    if (threadIdx.x % 32u >= distance) x = F::of(before, x);
  }
  return x;
}
template <class F, class T, int COUNT> HELPER T folded(T x) {
#pragma unroll
  for (int distance = COUNT / 2; distance; distance /= 2)
    x = F::of(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}
template <class F, class T, int STEPS, int LANES, int WARPS, int COUNT, int TILES, int GROUP,
          bool EXCLUSIVE>
HELPER void scan_blocks(u64 *totals, u32 tile, T *v) {
  __shared__ T of_warps[WARPS], waited[WARPS], begun;
  const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
  T total = F::start();
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    T *const own = v + step * LANES;
#pragma unroll
    for (int i = 1; i < LANES; i++) own[i] = F::of(own[i - 1], own[i]);
    const T last = scanned<F, T, 32>(own[LANES - 1]);
    T before = __shfl_up_sync(~0u, last, 1);
    if (lane == 0) before = F::start();
    before = F::of(total, before);
    total = F::of(total, __shfl_sync(~0u, last, 31));
#pragma unroll
    for (int i = LANES - 1; i >= 0; i--)
      own[i] = !EXCLUSIVE ? F::of(before, own[i]) : i ? F::of(before, own[i - 1]) : before;
  }
  if (lane == 31) of_warps[warp] = total;
  __syncthreads();
  T below = scanned<F, T, WARPS>(lane < WARPS ? of_warps[lane] : F::start());
  total = __shfl_sync(~0u, below, WARPS - 1);
  below = __shfl_sync(~0u, below, warp ? warp - 1 : 0);
  if (warp == 0) below = F::start();
  const u32 group = tile / GROUP, place = tile % GROUP;
  u64 *const ends = totals + TILES * COUNT;
  if (threadIdx.x == 0) publish<T, COUNT>(totals + tile * COUNT, total);
  T x = F::start();
  if (threadIdx.x < place) x = await<T, COUNT>(totals + (tile - place + threadIdx.x) * COUNT);
  x = folded<F, T, 32>(x);
  if (lane == 0) waited[warp] = x;
  if (threadIdx.x == 0) begun = group ? await<T, COUNT>(ends + (group - 1) * COUNT) : F::start();
  __syncthreads();
  x = F::of(begun, folded<F, T, WARPS>(waited[lane % WARPS]));
  if (threadIdx.x == 0 && place == GROUP - 1)
    publish<T, COUNT>(ends + group * COUNT, F::of(x, total));
  x = F::of(x, below);
#pragma unroll
  for (int i = 0; i < STEPS * LANES; i++) v[i] = F::of(x, v[i]);
}
"""
_TASK: Final = """\
HELPER i64 task_in_order(u64 *words) {
  __shared__ u64 taken;
  if (threadIdx.x == 0) taken = atomicAdd((unsigned long long *)words, 1ull);
  __syncthreads();
  return (i64)taken;
}
"""


def _scan_blocks(function: _Function, node: Node) -> None:
    """All of a thread's values are in one array, which registers hold."""
    words, row, tile, *values = node.src
    attrs, dtype = node.attrs, node.type.dtype
    op, kind = fold_op(attrs.fold, dtype), type_name(dtype)
    fold = f"fold_{op.name}_{kind}"
    start = literal(identity_bits(attrs.fold, dtype), dtype)
    text = combined(function.renderer.emitters, op, dtype)
    function.helpers |= {
        "blocks_1": _WORDS,
        "blocks_2": _SCAN,
        f"blocks_3_{fold}": f"struct {fold} {{\n  HELPER {kind} start() {{ return {start}; }}\n"
        f"  HELPER {kind} of({kind} a, {kind} b) {{ return {text}; }}\n}};\n",
    }
    texts: list[str] = []
    for value in values:
        texts += function.lanes(value) if value.type.shape else [function[value]]
    array = function.fresh()
    function.emit(f"{kind} {array}[{len(texts)}];")
    for number, lane in enumerate(texts):
        function.emit(f"{array}[{number}] = {lane};")
    numbers = (
        len(values), len(texts) // len(values), function.kernel.threads // WARP_THREADS,
        words_of_value(dtype), attrs.tiles, attrs.group,
    )  # fmt: skip
    how = ", ".join([fold, kind, *map(str, numbers), str(attrs.exclusive).lower()])
    place = f"{function[words]} + {function[row]}"
    function.emit(f"scan_blocks<{how}>({place}, {function[tile]}, {array});")
    found = [f"{array}[{number}]" for number in range(len(texts))]
    if node.type.shape:
        function.vectors[node] = found
    else:
        function.names[node] = found[0]


def _task_in_order(function: _Function, node: Node) -> None:
    function.helpers["task_in_order"] = _TASK
    is_narrow = bounds(node)[1] <= int32.maximum
    kind = "int" if is_narrow else "i64"
    text = f"({kind})task_in_order({function[node.src[1]]})"
    function.names[node] = function.define(kind, text)


STATEMENTS: Final[Mapping[OpDef, Callable[[_Function, Node], None]]] = {
    SCAN_BLOCKS: _scan_blocks,
    TASK_IN_ORDER: _task_in_order,
}
