"""Products of warps and asynchronous copies in CUDA C, by inline PTX.

Instructions and fragments are those of the PTX ISA (sections on `mma`, `ldmatrix` and `cp.async`).
A fragment of 16 rows and 32 bytes takes as many instructions as its shape asks for: Turing's have
half the depth, or half the rows as well.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from tilework.base.errors import RenderError
from tilework.ir.ops import warp_matrix
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.warp_matrix import FRAGMENT_BYTES, FRAGMENT_ROWS, SUMS
from tilework.ir.types import Memory
from tilework.render.c_family.cuda_matrix import PTX_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tilework.ir.node import Node, OpDef
    from tilework.ir.ops.warp_matrix import WarpMatrixAttrs
    from tilework.render.c_family.cuda import _Function

#: The head of a source that uses any of these, after that of shared addresses.
PRELUDE: Final = """\
template <bool ALIGNED, class T, int N> HELPER void copy_chunk(T *to, const T *from, int inside) {
#if __CUDA_ARCH__ >= 800
  if constexpr (ALIGNED) {
    u32 target = shared_address(to), bytes = (u32)inside * (u32)sizeof(T);
    u64 source = __cvta_generic_to_global(from);
    if constexpr (sizeof(T) * N == 16)
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                   ::"r"(target), "l"(source), "r"(bytes) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"
                   ::"r"(target), "l"(source), "r"(bytes), "n"((int)sizeof(T) * N) : "memory");
    return;
  }
#endif
#pragma unroll 1
  for (int i = 0; i < N; i++) {
    T x = 0;
    if (i < inside) x = from[i];
    to[i] = x;
  }
}
template <class T, int N> using words = pack<u32, (int)sizeof(T) * N / 4>;
template <bool ALIGNED, class T, int N> HELPER words<T, N> load_words(const T *p) {
  if constexpr (ALIGNED) return *(const words<T, N> *)p;
  words<T, N> r = {};
  constexpr int each = 4 / (int)sizeof(T), bits = 8 * (int)sizeof(T);
#pragma unroll
  for (int i = 0; i < N; i++) {
    u32 element = (u32)p[i] & ((1u << bits) - 1);
    r.e[i / each] |= element << bits * (i % each);
  }
  return r;
}
#if __CUDA_ARCH__ >= 800
HELPER void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> HELPER void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#else
HELPER void copy_commit() {}
template <int N> HELPER void copy_wait() {}
#endif
"""
_DOUBLE: Final = "float64"
_HALF_BYTES, _EIGHT, _WORD_BYTES = 16, 8, 4


def moved(statements: Sequence[Node]) -> set[Node]:
    """Vectors of elements below 32 bits that are loaded to be stored in TILE memory, no more.

    As words they need not be taken apart and put together; only kernels of warps hold so many.
    """
    if not any(node.op is warp_matrix.MATRIX_WARP for node in statements):
        return set()
    found = {
        node
        for node in statements
        if node.op is LOAD
        and node.type.lanes * node.type.dtype.itemsize >= _WORD_BYTES > node.type.dtype.itemsize
        and not node.type.dtype.is_bool
        and not any(source.type.shape for source in node.src)
    }
    for node in statements:
        into_tile = node.op is STORE and node.src[0].type.memory is Memory.TILE
        is_whole = into_tile and not any(source.type.shape for source in node.src[2:])
        kept = {node.src[1]} if is_whole else set()
        found.difference_update(source for source in node.src if source not in kept)
    return found


def load_words(function: _Function, node: Node, gate: Node | None) -> None:
    """A vector that is only moved, in words."""
    address = node.src[0]
    kind, _, lanes = function.pack(address, node.type.lanes).partition(", ")
    name = function.fresh()
    loaded = f"load_words<{kind}, {lanes}>({function[address]})"
    function.emit(f"words<{lanes}> {name} = {{}};")
    guard = "" if gate is None else f"if ({function[gate]}) "
    function.emit(f"{guard}{name} = {loaded};")
    function.names[node] = name


def store_words(function: _Function, node: Node, gate: Node | None) -> None:
    """Store what `load_words` has loaded."""
    address, value = node.src[:2]
    _, _, lanes = function.pack(address, value.type.lanes).partition(", ")
    guard = "" if gate is None else f"if ({function[gate]}) "
    function.emit(f"{guard}*(words<{lanes}> *){function[address]} = {function[value]};")


def _copy_chunk(function: _Function, node: Node) -> None:
    target, source, inside = node.src
    pack = function.pack(source, node.attrs.count)
    function.emit(
        f"copy_chunk<{pack}>({function[target]}, {function[source]}, (int){function[inside]});"
    )


def _copy_commit(function: _Function, node: Node) -> None:
    function.emit("copy_commit();")


def _copy_wait(function: _Function, node: Node) -> None:
    function.emit(f"copy_wait<{node.attrs.count}>();")


def _load_fragment(function: _Function, node: Node) -> None:
    names = [function.define_later("u32") for _ in range(warp_matrix.FRAGMENT_WORDS)]
    turned = ".trans" if node.attrs.is_turned else ""
    outputs = ", ".join(f'"=r"({name})' for name in names)
    function.emit(
        f'asm volatile("ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{%0, %1, %2, %3}}, [%4];"'
        f' : {outputs} : "r"(shared_address({function[node.src[0]]})) : "memory");'
    )
    function.vectors[node] = names


def _matrix_warp(function: _Function, node: Node) -> None:
    accumulator, attrs = node.src[0], node.attrs
    fragments = [function.lanes(source) for source in node.src[1 : 1 + attrs.rows + attrs.columns]]
    sums = function.arrays[accumulator]
    if attrs.is_first:
        count = len(function.lanes(accumulator))
        function.emit("#pragma unroll")
        function.emit(f"for (int i = 0; i < {count}; i++) {sums}[i] = 0;")
    name = _helper(function, accumulator, attrs)
    width = FRAGMENT_ROWS // _EIGHT * attrs.columns
    for row in range(attrs.rows):
        eighths = range(width) if row % 2 == 0 else reversed(range(width))
        for eighth in eighths:
            a = fragments[row]
            b = fragments[attrs.rows + eighth // 2]
            start = SUMS * (row * width + eighth)
            for first, words_a, words_b in _instructions(attrs, a, b, eighth % 2):
                words = ", ".join((*words_a, *words_b))
                function.emit(f"{name}({sums} + {start + first}, {words});")
    function.vectors[node] = function.lanes(accumulator)


def _instructions(
    attrs: WarpMatrixAttrs, a: list[str], b: list[str], eighth: int
) -> list[tuple[int, list[str], list[str]]]:
    """For each instruction of 16 rows and 8 columns: its first sum, and its words of a and b."""
    rows = attrs.m // _EIGHT
    if attrs.dtype == _DOUBLE:
        return [(2 * low, [a[low]], [b[eighth]]) for low in range(0, 2, rows)]
    halves = max(attrs.k * FRAGMENT_BYTES // (_depth(attrs) * _HALF_BYTES), 1)
    found = []
    for half, low in product(range(0, 2, halves), range(0, 2, rows)):
        words_a = [a[2 * (half + h) + low + r] for h, r in product(range(halves), range(rows))]
        words_b = [b[2 * eighth + half + h] for h in range(halves)]
        found.append((2 * low, words_a, words_b))
    return found


def _depth(attrs: WarpMatrixAttrs) -> int:
    """Elements along k in a fragment."""
    widths = {
        "int8": 1,
        "uint8": 1,
        "fp8e4m3": 1,
        "fp8e5m2": 1,
        "float16": 2,
        "bfloat16": 2,
        "float32": 4,
    }
    width = widths.get(attrs.dtype)
    if width is None:
        raise RenderError("CudaRenderer: no matrix instruction for a dtype", got=attrs.dtype)
    return FRAGMENT_BYTES // width


def _helper(function: _Function, accumulator: Node, attrs: WarpMatrixAttrs) -> str:
    """One instruction that adds to sums, which inlining keeps in registers."""
    is_double = attrs.dtype == _DOUBLE
    other_dtype = attrs.b_dtype or attrs.dtype
    kind = "f64" if is_double else PTX_TYPE.get(attrs.dtype)
    other = "f64" if is_double else PTX_TYPE.get(other_dtype)
    if kind is None or other is None:
        got = f"{attrs.dtype}, {other_dtype}"
        raise RenderError("CudaRenderer: no matrix instruction for dtypes", got=got)
    shape = f"m{attrs.m}n{attrs.n}k{attrs.k}"
    name = f"warp_{shape}_{kind}_{other}"
    if name in function.helpers:
        return name
    is_float = accumulator.type.dtype.is_float
    result, type_, letter = (
        ("f64", "f64", "d")
        if is_double
        else ("f32", "f32", "f")
        if is_float
        else ("s32", "i32", "r")
    )
    sums = 2 * attrs.m // _EIGHT
    (_, a, b), *_ = _instructions(attrs, [""] * 4, [""] * 4, 0)
    word, word_letter = ("f64", "d") if is_double else ("u32", "r")
    names = [f"{side}{i}" for side, words in (("a", a), ("b", b)) for i in range(len(words))]
    places = [f"%{i}" for i in range(sums + len(names))]
    groups = (places[:sums], places[sums : sums + len(a)], places[sums + len(a) :], places[:sums])
    braces = ", ".join("{" + ", ".join(group) + "}" for group in groups)
    outputs = ", ".join(f'"+{letter}"(s[{i}])' for i in range(sums))
    inputs = ", ".join(f'"{word_letter}"({name_})' for name_ in names)
    arguments = ", ".join(f"{word} {name_}" for name_ in names)
    function.helpers[name] = (
        f"HELPER void {name}({type_} *s, {arguments}) {{\n"
        f'  asm("mma.sync.aligned.{shape}.row.col.{result}.{kind}.{other}.{result} {braces};"\n'
        f"      : {outputs} : {inputs});\n}}\n"
    )
    return name


STATEMENTS: Final[Mapping[OpDef, Callable[[_Function, Node], None]]] = {
    warp_matrix.COPY_CHUNK: _copy_chunk,
    warp_matrix.COPY_COMMIT: _copy_commit,
    warp_matrix.COPY_WAIT: _copy_wait,
    warp_matrix.LOAD_FRAGMENT: _load_fragment,
    warp_matrix.MATRIX_WARP: _matrix_warp,
}
