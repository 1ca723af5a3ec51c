"""The head of every C source: types, exact bit copies, saturating casts, binary16."""

from __future__ import annotations

from typing import Final

_TYPES: Final = {
    "u8": "unsigned char",
    "i8": "signed char",
    "b8": "signed char",
    "u16": "unsigned short",
    "i16": "short",
    "u32": "unsigned int",
    "i32": "int",
    "u64": "unsigned long",
    "i64": "long",
    "f32": "float",
    "f64": "double",
}


def _types() -> str:
    lines = [
        "#define HELPER static inline __attribute__((always_inline, unused))\n",
        "#define HAS_ELEMENTWISE_FMA 0\n#ifdef __has_builtin\n"
        "#if __has_builtin(__builtin_elementwise_fma)\n#undef HAS_ELEMENTWISE_FMA\n"
        "#define HAS_ELEMENTWISE_FMA 1\n#endif\n#endif\n",
        "typedef long int64_t;\ntypedef unsigned long uintptr_t;\ntypedef _Bool bool_;\n",
    ]
    for name, text in _TYPES.items():
        lines.append(f"typedef {text} {name};\n")
        lines.append(f"typedef {text} {name}m __attribute__((may_alias, aligned(1)));\n")
    return "".join(lines)


def _bitcasts() -> str:
    pairs = [(f"{kind}{bits}", f"f{bits}") for bits in (32, 64) for kind in "iu"]
    pairs += [(target, source) for source, target in pairs]
    return "".join(
        f"HELPER {target} bitcast_{source}_{target}({source} x)"
        f" {{ {target} r; __builtin_memcpy(&r, &x, sizeof r); return r; }}\n"
        for source, target in pairs
    )


def _extremes() -> str:
    """NaN wins; of equal operands (zeros of either sign) the bits are joined."""
    lines = []
    for bits in (32, 64):
        for name, symbol, joined in (("maximum", "<", "&"), ("minimum", ">", "|")):
            cast = f"bitcast_f{bits}_u{bits}"
            lines.append(
                f"HELPER f{bits} {name}_f{bits}(f{bits} x, f{bits} y) {{\n"
                "  if (x != x) return x;\n  if (y != y) return y;\n"
                f"  if (x == y) return bitcast_u{bits}_f{bits}({cast}(x) {joined} {cast}(y));\n"
                f"  return x {symbol} y ? y : x;\n}}\n"
            )
    return "".join(lines)


def saturations() -> str:
    """Floats to integers: out of range saturates, NaN gives 0."""
    lines = []
    for source in ("f32", "f64"):
        for bits in (8, 16, 32, 64):
            for kind in "iu":
                target = f"{kind}{bits}"
                signed = kind == "i"
                low = f"-0x1p{bits - 1}" if signed else "0.0"
                suffix = "f" if source == "f32" else ""
                most = f"(({target})((1ull << {bits - 1}) - 1))" if signed else f"(({target})~0ull)"
                least = f"(({target})(1ull << {bits - 1}))" if signed else f"(({target})0)"
                lines.append(
                    f"HELPER {target} saturate_{source}_{target}({source} x) {{\n"
                    f"  if (x != x) return 0;\n"
                    f"  if (x >= 0x1p{bits - signed}{suffix}) return {most};\n"
                    f"  if (x < {low}{suffix}) return {least};\n  return ({target})x;\n}}\n"
                )
    return "".join(lines)


# GCC turns comparisons of a widened _Float16 into calls of its library, so it gets instructions.
_HALF: Final = """\
#if defined(__F16C__) && !defined(__clang__)
typedef short half_lanes __attribute__((vector_size(16)));
typedef float float_lanes __attribute__((vector_size(16)));
HELPER f32 half_to_float(u16 x) {
  return __builtin_ia32_vcvtph2ps((half_lanes){(short)x})[0];
}
HELPER u16 float_to_half(f32 x) {
  return (u16)__builtin_ia32_vcvtps2ph((float_lanes){x}, 0)[0];
}
#elif (defined(__F16C__) || defined(__aarch64__)) && defined(__FLT16_MANT_DIG__)
HELPER f32 half_to_float(u16 x) {
  _Float16 h;
  __builtin_memcpy(&h, &x, 2);
  return (f32)h;
}
HELPER u16 float_to_half(f32 x) {
  _Float16 h = (_Float16)x;
  u16 r;
  __builtin_memcpy(&r, &h, 2);
  return r;
}
#else
HELPER f32 half_to_float(u16 x) {
  u32 sign = (u32)(x & 0x8000u) << 16, magnitude = x & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return bitcast_u32_f32(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13
                           | (magnitude > 0x7c00u ? 0x400000u : 0));
  f32 scaled = bitcast_u32_f32(magnitude << 13) * 0x1p112f;
  return bitcast_u32_f32(bitcast_f32_u32(scaled) | sign);
}
HELPER u16 float_to_half(f32 x) {
  u32 raw = bitcast_f32_u32(x), sign = raw >> 16 & 0x8000u, magnitude = raw & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return (u16)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x47800000u)
    return (u16)(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    f32 aligned = bitcast_u32_f32(magnitude) + 0.5f;
    return (u16)(sign | (bitcast_f32_u32(aligned) - 0x3f000000u));
  }
  u32 odd = magnitude >> 13 & 1u;
  return (u16)(sign | (magnitude + 0xc8000fffu + odd) >> 13);
}
#endif
"""

PRELUDE: Final = _types() + _bitcasts() + _extremes() + saturations() + _HALF


def half_vectors(name: str, lanes: int) -> str:
    """The definition of a conversion between vectors of binary16 and of float32."""
    source, target = ("u16", "f32") if name == "half_to_float" else ("f32", "u16")
    return (
        f"HELPER {target}x{lanes} {name}_x{lanes}({source}x{lanes} x) {{\n"
        f"  {target}x{lanes} r;\n"
        f"  for (int i = 0; i < {lanes}; i++) r[i] = {name}(x[i]);\n  return r;\n}}\n"
    )
