"""The head of every CUDA C source: types, exact bit copies, saturating casts, vectors in memory."""

from __future__ import annotations

from typing import Final

from tilework.render.c_family.prelude import saturations

_TYPES: Final = {
    "u8": "unsigned char",
    "i8": "signed char",
    "u16": "unsigned short",
    "i16": "short",
    "u32": "unsigned int",
    "i32": "int",
    "u64": "unsigned long long",
    "i64": "long long",
    "f32": "float",
    "f64": "double",
    "bool_": "bool",
}

# Conversions of pairs run four times as fast as those of single values.
_BITS: Final = """\
HELPER u32 bitcast_f32_u32(f32 x) { return __float_as_uint(x); }
HELPER i32 bitcast_f32_i32(f32 x) { return __float_as_int(x); }
HELPER f32 bitcast_u32_f32(u32 x) { return __uint_as_float(x); }
HELPER f32 bitcast_i32_f32(i32 x) { return __int_as_float(x); }
HELPER u64 bitcast_f64_u64(f64 x) { return (u64)__double_as_longlong(x); }
HELPER i64 bitcast_f64_i64(f64 x) { return __double_as_longlong(x); }
HELPER f64 bitcast_u64_f64(u64 x) { return __longlong_as_double((i64)x); }
HELPER f64 bitcast_i64_f64(i64 x) { return __longlong_as_double(x); }
HELPER f32 half_to_float(u16 x) {
  f32 r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
#if __CUDA_ARCH__ >= 800
HELPER u16 float_to_half(f32 x) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(0.0f), "f"(x));
  return (u16)r;
}
HELPER u16 float_to_bfloat(f32 x) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(0.0f), "f"(x));
  return (u16)r;
}
#else
HELPER u16 float_to_half(f32 x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
#endif
"""

# A kernel may be started while the last blocks of the one before it run: it waits for their writes
# before it touches memory, and may let the one behind it start likewise.
_FOLLOWING: Final = """\
#if __CUDA_ARCH__ >= 900
HELPER void follow() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
HELPER void let_follow() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
HELPER void follow() {}
HELPER void let_follow() {}
#endif
"""

# Where the processor has an instruction that keeps NaN, it orders zeros by sign too.
_EXTREMES: Final = """\
#if __CUDA_ARCH__ >= 800
HELPER f32 maximum_f32(f32 x, f32 y) {
  f32 r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
HELPER f32 minimum_f32(f32 x, f32 y) {
  f32 r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
#else
HELPER f32 maximum_f32(f32 x, f32 y) {
  if (x != x) return x;
  if (y != y) return y;
  if (x == y) return bitcast_u32_f32(bitcast_f32_u32(x) & bitcast_f32_u32(y));
  return x < y ? y : x;
}
HELPER f32 minimum_f32(f32 x, f32 y) {
  if (x != x) return x;
  if (y != y) return y;
  if (x == y) return bitcast_u32_f32(bitcast_f32_u32(x) | bitcast_f32_u32(y));
  return x > y ? y : x;
}
#endif
HELPER f64 maximum_f64(f64 x, f64 y) {
  if (x != x) return x;
  if (y != y) return y;
  if (x == y) return bitcast_u64_f64(bitcast_f64_u64(x) & bitcast_f64_u64(y));
  return x < y ? y : x;
}
HELPER f64 minimum_f64(f64 x, f64 y) {
  if (x != x) return x;
  if (y != y) return y;
  if (x == y) return bitcast_u64_f64(bitcast_f64_u64(x) | bitcast_f64_u64(y));
  return x > y ? y : x;
}
"""

# A quotient from the reciprocal of the divisor, which equal divisors share, and one correction: it
# is rounded correctly where no side is extreme.  `fine` tells where one is.
_QUOTIENTS: Final = """\
static __device__ __noinline__ f32 divided(f32 x, f32 y) { return x / y; }
HELPER f32 quotient(f32 x, f32 y, bool &fine) {
  f32 r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  r = __fmaf_rn(r, __fmaf_rn(-y, r, 1.0f), r);
  f32 q = x * r;
  fine &= fabsf(y) >= 0x1p-24f & fabsf(y) <= 0x1p24f
        & ((fabsf(x) >= 0x1p-100f & fabsf(x) <= 0x1p100f) | __float_as_uint(x) == 0u);
  return __fmaf_rn(r, __fmaf_rn(-y, q, x), q);
}
"""

_SHUFFLES: Final = """\
template <class T> HELPER T shuffled(T x, int distance) {
  if constexpr (sizeof(T) < 4) return (T)__shfl_xor_sync(~0u, (int)x, distance);
  else return __shfl_xor_sync(~0u, x, distance);
}
"""

# A vector in memory.  Accesses through it are whole where the kernel was started with aligned
# buffers, else one element at a time.
_PACKS: Final = """\
template <class T, int N> struct __align__(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) pack {
  T e[N];
};
template <bool ALIGNED, class T, int N> HELPER pack<T, N> load_pack(const T *p) {
  if constexpr (ALIGNED) return *(const pack<T, N> *)p;
  pack<T, N> r;
#pragma unroll
  for (int i = 0; i < N; i++) r.e[i] = p[i];
  return r;
}
template <bool ALIGNED, class T, int N> HELPER void store_pack(T *p, const pack<T, N> &x) {
  if constexpr (ALIGNED) {
    *(pack<T, N> *)p = x;
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++) p[i] = x.e[i];
}
"""


def _types() -> str:
    lines = ["#define HELPER static __device__ __forceinline__\n"]
    lines += [f"typedef {text} {name};\n" for name, text in _TYPES.items()]
    return "".join(lines)


PRELUDE: Final = "".join(
    (_types(), _BITS, _FOLLOWING, _EXTREMES, saturations(), _QUOTIENTS, _SHUFFLES, _PACKS)
)
