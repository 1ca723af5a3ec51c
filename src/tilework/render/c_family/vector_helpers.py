"""C functions of vectors: each is written in front of a text that has a call of it.

What GCC and Clang both make one instruction of stays an expression (`vectors`); these are loops
over lanes, or intrinsics that not both compilers have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tilework.dtypes import float32, float64
from tilework.render.c_family.vectors import integer_vector

_ELEMENTS: Final = {"f32": float32, "f64": float64}
_WIDE_FMA: Final = {
    "f32x16": ("__AVX512F__", "__builtin_ia32_vfmaddps512_mask", ", -1, 4"),
    "f64x8": ("__AVX512F__", "__builtin_ia32_vfmaddpd512_mask", ", -1, 4"),
    "f32x8": ("__FMA__", "__builtin_ia32_vfmaddps256", ""),
    "f64x4": ("__FMA__", "__builtin_ia32_vfmaddpd256", ""),
    "f32x4": ("__FMA__", "__builtin_ia32_vfmaddps", ""),
    "f64x2": ("__FMA__", "__builtin_ia32_vfmaddpd", ""),
}


def _by_lane(name: str, element: str, lanes: int) -> str:
    """A function of floats applied lane by lane."""
    kind, suffix = f"{element}x{lanes}", "f" if element == "f32" else ""
    return (
        f"HELPER {kind} {name}_{kind}({kind} x) {{\n  {kind} r;\n"
        f"  for (int i = 0; i < {lanes}; i++) r[i] = __builtin_{name}{suffix}(x[i]);\n"
        "  return r;\n}\n"
    )


def _fma(name: str, element: str, lanes: int) -> str:
    kind, suffix = f"{element}x{lanes}", "f" if element == "f32" else ""
    loop = (
        f"  {kind} r;\n  for (int i = 0; i < {lanes}; i++)"
        f" r[i] = __builtin_fma{suffix}(x[i], y[i], z[i]);\n  return r;\n"
    )
    head = f"HELPER {kind} fma_{kind}({kind} x, {kind} y, {kind} z) {{\n"
    clang = "#if HAS_ELEMENTWISE_FMA\n  return __builtin_elementwise_fma(x, y, z);\n"
    wide = _WIDE_FMA.get(kind)
    if wide is not None:
        macro, function, more = wide
        clang += f"#elif defined({macro}) && !defined(__clang__)\n"
        clang += f"  return ({kind}){function}(x, y, z{more});\n"
    return f"{head}{clang}#else\n{loop}#endif\n}}\n"


def _extreme(name: str, element: str, lanes: int) -> str:
    """NaN wins; of equal operands (zeros of either sign) the bits are joined."""
    dtype = _ELEMENTS[element]
    kind, bits = f"{element}x{lanes}", integer_vector("i", dtype, lanes)
    symbol, joined = ("<", "&") if name == "maximum" else (">", "|")
    return (
        f"HELPER {kind} {name}_{kind}({kind} x, {kind} y) {{\n"
        f"  {bits} p = ({bits})x, q = ({bits})y;\n"
        f"  {bits} m = ({bits})(x {symbol} y), e = ({bits})(x == y);\n"
        f"  {bits} r = (m & q) | (~m & p);\n  r = (e & (p {joined} q)) | (~e & r);\n"
        f"  m = ({bits})(y != y); r = (m & q) | (~m & r);\n"
        f"  m = ({bits})(x != x); r = (m & p) | (~m & r);\n  return ({kind})r;\n}}\n"
    )


_SCALAR_FOLDS: Final = {"add": "+", "mul": "*", "and": "&", "or": "|"}


def _fold(name: str, element: str, lanes: int) -> str:
    """Lane i with lane i + n/2, then on with n/2 lanes."""
    op = name.removeprefix("fold_")
    kind = f"{element}x{lanes}"
    if op in _SCALAR_FOLDS and element[0] == "f":
        pair = f"x[i] {_SCALAR_FOLDS[op]} x[i + n]"
    elif op in _SCALAR_FOLDS:
        unsigned = "u64" if element.endswith("64") else "u32"
        pair = f"({unsigned})x[i] {_SCALAR_FOLDS[op]} ({unsigned})x[i + n]"
    elif element[0] == "f":
        pair = f"{op}_{element}(x[i], x[i + n])"
    else:
        symbol = ">" if op == "maximum" else "<"
        pair = f"x[i] {symbol} x[i + n] ? x[i] : x[i + n]"
    return (
        f"HELPER {element} {name}_{kind}({kind} x) {{\n"
        f"  for (int n = {lanes // 2}; n > 0; n /= 2)\n"
        f"    for (int i = 0; i < n; i++) x[i] = {pair};\n  return x[0];\n}}\n"
    )


def _load(name: str, element: str, lanes: int) -> str:
    """Lanes whose mask is 0 do not touch memory."""
    kind, (offsets, place) = f"{element}x{lanes}", _place(name, lanes)
    return (
        f"HELPER {kind} {name}_{kind}(const {element}m *p, {offsets}b8x{lanes} m) {{\n"
        f"  {kind} r = {{0}};\n"
        f"  for (int i = 0; i < {lanes}; i++) if (m[i]) r[i] = p[{place}];\n  return r;\n}}\n"
    )


def _store(name: str, element: str, lanes: int) -> str:
    kind, (offsets, place) = f"{element}x{lanes}", _place(name, lanes)
    return (
        f"HELPER void {name}_{kind}({element}m *p, {kind} x, {offsets}b8x{lanes} m) {{\n"
        f"  for (int i = 0; i < {lanes}; i++) if (m[i]) p[{place}] = x[i];\n}}\n"
    )


def _place(name: str, lanes: int) -> tuple[str, str]:
    """The parameter for offsets, if an access takes some, and where lane i is."""
    return (f"i64x{lanes} at, ", "at[i]") if name in ("gather", "scatter") else ("", "i")


#: name of a helper -> (name, element, lanes) -> its definition
HELPERS: Final[Mapping[str, Callable[[str, str, int], str]]] = {
    **dict.fromkeys(("sqrt", "floor", "ceil", "trunc", "rint"), _by_lane),
    **dict.fromkeys(("maximum", "minimum"), _extreme),
    **dict.fromkeys(
        [f"fold_{op}" for op in ("add", "mul", "and", "or", "maximum", "minimum")], _fold
    ),
    "fma": _fma,
    "masked_load": _load,
    "masked_store": _store,
    "gather": _load,
    "scatter": _store,
}


def saturate(source: str, target: str, lanes: int) -> str:
    """A vector of floats to integers: out of range saturates, NaN gives 0."""
    bits = int(target[1:])
    width = int(source[1:])
    signed = target[0] == "i"
    kind, floats, wide = f"{target}x{lanes}", f"{source}x{lanes}", f"i{width}x{lanes}"
    high = f"0x1p{bits - signed}"
    low = f"-0x1p{bits - 1}" if signed else "0.0"
    suffix = "f" if source == "f32" else ""
    most = f"(({target})~({target})0)" if not signed else f"({target})((1ull << {bits - 1}) - 1)"
    least = f"({target})(1ull << {bits - 1})" if signed else f"({target})0"
    narrow = f"i{bits}x{lanes}"
    return (
        f"HELPER {kind} saturate_{source}_{target}_x{lanes}({floats} x) {{\n"
        f"  {wide} above = ({wide})(x >= {high}{suffix}), below = ({wide})(x < {low}{suffix});\n"
        f"  {wide} fine = ({wide})(x == x) & ~above & ~below;\n"
        f"  {kind} r = __builtin_convertvector(({floats})(fine & ({wide})x), {kind});\n"
        f"  {narrow} a = __builtin_convertvector(above, {narrow});\n"
        f"  {narrow} b = __builtin_convertvector(below, {narrow});\n"
        f"  r |= ({kind})a & {most};\n  r |= ({kind})b & {least};\n  return r;\n}}\n"
    )
