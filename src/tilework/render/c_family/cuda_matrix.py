"""Matrix instructions, rings and copies of boxes in CUDA C, by inline PTX.

Instructions, descriptors and layouts are those of the PTX ISA (sections on `wgmma`, `mbarrier`,
`cp.async.bulk.tensor` and on swizzled shared memory).  An array of a kernel becomes an argument of
128 bytes that the launch fills with the copy engine's description of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.errors import RenderError
from tilework.ir.fold import fold_op
from tilework.ir.ops import matrix
from tilework.ir.symbolic.simplify import terms
from tilework.render.c_family.dialect import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilework.ir.node import Node, OpDef
    from tilework.render.c_family.cuda import _Function

#: The head of a source that names places of shared memory, and that of one that uses any of these.
SHARED_PRELUDE: Final = """\
HELPER u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
"""
PRELUDE: Final = """\
struct alignas(64) boxed_array { u64 words[16]; };
HELPER void signal_init(const void *signal, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(signal)), "r"(count));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
HELPER void signal_expect(const void *signal, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(shared_address(signal)), "r"(bytes) : "memory");
}
HELPER void signal_arrive(const void *signal) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               ::"r"(shared_address(signal)) : "memory");
}
HELPER void signal_wait(const void *signal, u32 parity) {
  asm volatile("{\\n.reg .pred p;\\nagain_%=:\\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n@!p bra again_%=;\\n}"
               ::"r"(shared_address(signal)), "r"(parity) : "memory");
}
HELPER u64 tile_descriptor(u32 start, i32 further_bytes, u32 leading_bytes, u32 stride_bytes) {
  u32 low = (start >> 4) + (leading_bytes >> 4 << 16) + (u32)(further_bytes >> 4);
  return (u64)low | ((u64)(stride_bytes >> 4) << 32) | (1ull << 62);
}
template <int N> HELPER void settle(f32 (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(x[i]) :: "memory");
}
template <int N> HELPER void settle(i32 (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(x[i]) :: "memory");
}
HELPER u64 first_to_leave() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
HELPER u32 pair_of(u16 low, u16 high) { return (u32)low | ((u32)high << 16); }
"""
_POWER_OF_TWO: Final = """\
HELPER f32 power_of_two(f32 x) {
  f32 r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
"""
#: Two numbers at once from Ampere on.
_ROUNDED_PAIR: Final = """\
HELPER u32 rounded_pair_KIND(f32 low, f32 high) {
  u32 r;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.KINDx2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
  u16 a, b;
  asm("cvt.rn.KIND.f32 %0, %1;" : "=h"(a) : "f"(low));
  asm("cvt.rn.KIND.f32 %0, %1;" : "=h"(b) : "f"(high));
  r = (u32)a | ((u32)b << 16);
#endif
  return r;
}
"""
#: From one group of eight rows of 128 bytes to the next.
_GROUP_BYTES: Final = 8 * 128
#: What PTX calls the dtypes of operands.
PTX_TYPE: Final = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "tf32",
    "fp8e4m3": "e4m3",
    "fp8e5m2": "e5m2",
    "int8": "s8",
    "uint8": "u8",
}


def _signal(name: str) -> Callable[[_Function, Node], None]:
    """A call with a signal and the number in the attributes, if there is one."""

    def emit(function: _Function, node: Node) -> None:
        count = "" if node.attrs is None else f", {node.attrs.count}"
        function.emit(f"{name}({function[node.src[0]]}{count});")

    return emit


def _wait(function: _Function, node: Node) -> None:
    function.emit(f"signal_wait({function[node.src[0]]}, {function[node.src[1]]});")


def _coordinates(function: _Function, nodes: tuple[Node, ...]) -> tuple[str, str]:
    """Names of operands %3, %4, ... in braces, and what they are."""
    names = ", ".join(f"%{3 + i}" for i in range(len(nodes)))
    values = ", ".join(f'"r"((i32){function[node]})' for node in nodes)
    return names, values


def _copy_box(function: _Function, node: Node) -> None:
    target, boxed, signal = node.src[:3]
    axes = len(boxed.attrs.sizes)
    names, values = _coordinates(function, node.src[3 : 3 + axes])
    function.emit(
        f'asm volatile("cp.async.bulk.tensor.{axes}d.shared::cluster.global.mbarrier'
        f'::complete_tx::bytes [%0], [%1, {{{names}}}], [%2];"'
        f' ::"r"(shared_address({function[target]})), "l"(&{function[boxed]}),'
        f' "r"(shared_address({function[signal]})), {values} : "memory");'
    )


def _store_box(function: _Function, node: Node) -> None:
    boxed, source = node.src[:2]
    axes = len(boxed.attrs.sizes)
    names, values = _coordinates(function, node.src[2 : 2 + axes])
    past = node.attrs.past_lines
    hint, policy = (".L2::cache_hint", f", %{3 + axes}") if past else ("", "")
    operand = ', "l"(first_to_leave())' if past else ""
    # The second operand stands for nothing: coordinates begin at %3 as in a copy.
    function.emit(
        f'asm volatile("cp.async.bulk.tensor.{axes}d.global.shared::cta.bulk_group{hint}'
        f' [%1, {{{names}}}], [%0]{policy};" ::"r"(shared_address({function[source]})),'
        f' "l"(&{function[boxed]}), "r"(0), {values}{operand} : "memory");'
    )
    function.emit('asm volatile("cp.async.bulk.commit_group;" ::: "memory");')


def _text(line: str) -> Callable[[_Function, Node], None]:
    """One line that may use the number in the attributes."""

    def emit(function: _Function, node: Node) -> None:
        count = 0 if node.attrs is None else node.attrs.count
        function.emit(line.replace("COUNT", str(count)))

    return emit


def _group_barrier(function: _Function, node: Node) -> None:
    function.emit(
        f'asm volatile("bar.sync %0, {node.attrs.count};" ::"r"((u32){function[node.src[0]]})'
        ' : "memory");'
    )


def _registers(function: _Function, node: Node) -> None:
    change = "inc" if node.attrs.grows else "dec"
    function.emit(f'asm volatile("setmaxnreg.{change}.sync.aligned.u32 {node.attrs.count};");')


def _boxed(function: _Function, node: Node) -> None:
    """An argument of the kernel, declared where its head is written."""
    function.names[node] = function.boxes.setdefault(node, f"array{len(function.boxes)}")


def _matrix(function: _Function, node: Node) -> None:
    accumulator, a, b = node.src[:3]
    attrs = node.attrs
    kind = PTX_TYPE.get(a.type.dtype.name)
    if kind is None:
        raise RenderError("CudaRenderer: no matrix instruction for a dtype", got=a.type.dtype.name)
    count = len(function.lanes(accumulator))
    is_float = accumulator.type.dtype.is_float
    layouts = ", 1, 1" if is_float else ""  # neither operand is negated
    if a.type.dtype.itemsize == 2:
        layouts += f", {int(not attrs.a_along_k)}, {int(not attrs.b_along_k)}"
    shape = f"m{attrs.m}n{attrs.n}k{attrs.k}"
    keeps = int(not attrs.is_first)
    name = f"matrix_{shape}_{kind}_{keeps}{layouts.replace(', ', '_')}"
    if name not in function.helpers:
        text = f"{shape}.{'f32' if is_float else 's32'}.{kind}.{kind}"
        function.helpers[name] = _matrix_helper(name, text, count, f"{keeps}{layouts}")
    descriptors = ", ".join(
        _descriptor(function, operand, chunk)
        for operand, chunk in ((a, attrs.a_chunk_bytes), (b, attrs.b_chunk_bytes))
    )
    function.emit(f"{name}({function.arrays[accumulator]}, {descriptors});")
    function.vectors[node] = function.lanes(accumulator)


def _descriptor(function: _Function, operand: Node, chunk_bytes: int) -> str:
    """Where an operand starts: a part that several products share, and a constant."""
    buffer, offset = operand.src
    itemsize = operand.type.dtype.itemsize
    constant, total = terms(offset)
    start = f"shared_address({function[buffer]})"
    for term, factor in total.items():
        start += f" + (u32){function[term]} * {factor * itemsize & 0xFFFFFFFF}u"
    further = constant * itemsize
    return f"tile_descriptor({start}, {further}, {chunk_bytes or 16}, {_GROUP_BYTES})"


def _matrix_helper(name: str, instruction: str, count: int, options: str) -> str:
    """A product that adds to an array of sums, which inlining keeps in registers."""
    registers = ", ".join(f"%{i}" for i in range(count))
    type_, letter = ("f32", "f") if ".f32." in instruction else ("i32", "r")
    # What is not added to need not be kept in registers until then.
    access = "=" if options.startswith("0") else "+"
    bound = ", ".join(f'"{access}{letter}"(s[{i}])' for i in range(count))
    return (
        f"HELPER void {name}({type_} (&s)[{count}], u64 a, u64 b) {{\n"
        f'  asm volatile("wgmma.mma_async.sync.aligned.{instruction} {{{registers}}},'
        f' %{count}, %{count + 1}, {options};"\n    : {bound} : "l"(a), "l"(b));\n}}\n'
    )


def _settle(function: _Function, node: Node) -> None:
    """Arithmetic on the arrays that a statement names stays on its side of it."""
    for source in node.src:
        if source in function.arrays:
            function.emit(f"settle({function.arrays[source]});")


def _matrix_begin(function: _Function, node: Node) -> None:
    _settle(function, node)
    function.emit('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");')


def _matrix_wait(function: _Function, node: Node) -> None:
    function.emit(
        f'asm volatile("wgmma.wait_group.sync.aligned {node.attrs.count};" ::: "memory");'
    )
    _settle(function, node)


def _matrix_held(function: _Function, node: Node) -> None:
    accumulator, b, *pairs = node.src[:6]
    attrs = node.attrs
    kind = PTX_TYPE[b.type.dtype.name]
    count = len(function.lanes(accumulator))
    shape = f"m{attrs.m}n{attrs.n}k{attrs.k}"
    layout = int(not attrs.b_along_k)
    name = f"matrix_held_{shape}_{kind}_{layout}"
    if name not in function.helpers:
        registers = ", ".join(f"%{i}" for i in range(count))
        held = ", ".join(f"%{count + i}" for i in range(4))
        bound = ", ".join(f'"+f"(s[{i}])' for i in range(count))
        function.helpers[name] = (
            f"HELPER void {name}(f32 (&s)[{count}], u32 a, u32 b, u32 c, u32 d, u64 from) {{\n"
            f'  asm volatile("wgmma.mma_async.sync.aligned.{shape}.f32.{kind}.{kind}'
            f' {{{registers}}}, {{{held}}}, %{count + 4}, 1, 1, 1, {layout};"\n    : {bound}'
            ' : "r"(a), "r"(b), "r"(c), "r"(d), "l"(from));\n}\n'
        )
    start = _descriptor(function, b, attrs.b_chunk_bytes)
    held = ", ".join(function[pair] for pair in pairs)
    function.emit(f"{name}({function.arrays[accumulator]}, {held}, {start});")
    function.vectors[node] = function.lanes(accumulator)


def _put(function: _Function, node: Node) -> None:
    variable, position, value = node.src
    function.emit(f"{function.arrays[variable]}[{function[position]}] = {function[value]};")


def _pair(function: _Function, node: Node) -> None:
    low, high = (function[source] for source in node.src)
    kind = PTX_TYPE[node.attrs.dtype.name]
    helper = f"rounded_pair_{kind}"
    function.helpers[helper] = _ROUNDED_PAIR.replace("KIND", kind)
    function.names[node] = function.define("u32", f"{helper}({low}, {high})")


def _fold_quad(function: _Function, node: Node) -> None:
    """By halves: the thread two further, then the next one."""
    source, op = node.src[0], fold_op(node.attrs.fold, node.type.dtype)
    emitter = function.renderer.emitters[op]
    kind = type_name(node.type.dtype)
    text = function[source]
    for step in (2, 1):
        other = function.define(kind, f"__shfl_xor_sync(0xffffffffu, {text}, {step})")
        names = {source: text, node: other}
        text = function.define(kind, emitter(op(source, node), names))
    function.names[node] = text


def _power_of_two(function: _Function, node: Node) -> None:
    function.helpers["power_of_two"] = _POWER_OF_TWO
    function.names[node] = function.define("f32", f"power_of_two({function[node.src[0]]})")


def _same_in_warp(function: _Function, node: Node) -> None:
    """What one lane gives to all is the same in all: the compiler then computes with it once."""
    text = f"__shfl_sync(0xffffffffu, (int){function[node.src[0]]}, 0)"
    function.names[node] = function.define(type_name(node.type.dtype), text)


def _pick(function: _Function, node: Node) -> None:
    vector, position = node.src
    kind = type_name(node.type.dtype)
    # Read where it stands: the array may change later.
    function.names[node] = function.define(kind, f"{function.arrays[vector]}[{function[position]}]")


def _store_fragment(function: _Function, node: Node) -> None:
    address, values = node.src[0], [function[value] for value in node.src[1:]]
    pairs = ", ".join(f'"r"(pair_of({values[i]}, {values[i + 1]}))' for i in range(0, 8, 2))
    function.emit(
        'asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"'
        f' ::"r"(shared_address({function[address]})), {pairs} : "memory");'
    )


STATEMENTS: Final[Mapping[OpDef, Callable[[_Function, Node], None]]] = {
    matrix.BOXED: _boxed,
    matrix.SIGNAL_INIT: _signal("signal_init"),
    matrix.SIGNAL_EXPECT: _signal("signal_expect"),
    matrix.SIGNAL_ARRIVE: _signal("signal_arrive"),
    matrix.SIGNAL_WAIT: _wait,
    matrix.COPY_BOX: _copy_box,
    matrix.STORE_BOX: _store_box,
    matrix.STORE_BOX_WAIT: _text(
        'asm volatile("cp.async.bulk.wait_group.read COUNT;" ::: "memory");'
    ),
    matrix.COPY_FENCE: _text('asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'),
    matrix.GROUP_BARRIER: _group_barrier,
    matrix.REGISTERS: _registers,
    matrix.MATRIX: _matrix,
    matrix.MATRIX_BEGIN: _matrix_begin,
    matrix.MATRIX_COMMIT: _text('asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");'),
    matrix.MATRIX_WAIT: _matrix_wait,
    matrix.PICK: _pick,
    matrix.PUT: _put,
    matrix.PAIR: _pair,
    matrix.MATRIX_HELD: _matrix_held,
    matrix.FOLD_QUAD: _fold_quad,
    matrix.POWER_OF_TWO: _power_of_two,
    matrix.SAME_IN_WARP: _same_in_warp,
    matrix.STORE_FRAGMENT: _store_fragment,
}
