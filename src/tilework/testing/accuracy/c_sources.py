"""The C parts of a sweep: bit casts, error measures and the three main programs.

`@body@` is the construction, `@result@` the name of its value, `@oracle@` the exact function.
"""

PRELUDE = """
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define PUN(name, from, to) \\
  static inline to name(from x) { to y; memcpy(&y, &x, sizeof y); return y; }
PUN(f32, uint32_t, float)
PUN(f64, uint64_t, double)
PUN(f32_i32, int32_t, float)
PUN(f32_u32, uint32_t, float)
PUN(i32_f32, float, int32_t)
PUN(u32_f32, float, uint32_t)
PUN(f64_i64, int64_t, double)
PUN(f64_u64, uint64_t, double)
PUN(i64_f64, double, int64_t)
PUN(u64_f64, double, uint64_t)
typedef unsigned long long u64;

/* The distance of a float32 to the exact value, in units in the last place of the exact value. */
static inline double ulp_error(float got, double exact) {
  if (isnan(exact)) return isnan(got) ? 0.0 : INFINITY;
  if (isnan(got)) return INFINITY;
  if (fabs(exact) >= 0x1.ffffffp127) { /* rounds to infinity */
    if (isinf(got)) return (got > 0) == (exact > 0) ? 0.0 : INFINITY;
    return isinf(exact) ? INFINITY : fabs((double)got - copysign(0x1p128, exact)) * 0x1p-104;
  }
  double value = isinf(got) ? (got > 0 ? 0x1p128 : -0x1p128) : (double)got;
  int exponent = (int)((u64_f64(exact) >> 52) & 0x7ff) - 1023;
  if (exponent < -126) exponent = -126;
  double scale = f64((uint64_t)(1023 + 23 - exponent) << 52);
  return fabs(value - exact) * scale;
}

static uint64_t state;
static uint64_t draw(void) { /* splitmix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
"""

UNARY_FLOAT32 = """
static double oracle(double x) { return @oracle@; }
/* The same for many at once: to some units in the last place of a double, so whatever is about to
   be recorded is asked again one by one. */
static void oracles(const float *restrict in, double *restrict out) {
  #pragma omp simd
  for (int i = 0; i < 4096; i++) { double x = in[i]; out[i] = @oracle@; }
}
static void kernel(const float *restrict in, float *restrict out) {
  for (int i = 0; i < 4096; i++) {
    float x = in[i];
    @body@
    out[i] = @result@;
  }
}
int main(int argc, char **argv) {
  uint64_t start = strtoull(argv[1], 0, 10), stop = strtoull(argv[2], 0, 10);
  uint64_t step = strtoull(argv[3], 0, 10);
  static float in[4096], out[4096];
  static double exacts[4096];
  double worst = -1; uint32_t at = 0;
  u64 count = 0, over_one = 0, misrounded = 0, signs = 0, descents = 0;
  float previous = NAN, before = NAN;
  for (uint64_t base = start; base < stop; base += 4096 * step) {
    for (int i = 0; i < 4096; i++) in[i] = f32_u32((uint32_t)(base + (uint64_t)i * step));
    kernel(in, out);
    oracles(in, exacts);
    for (int i = 0; i < 4096; i++) {
      if (fabsf(in[i]) > @limit@) continue;
      double exact = exacts[i];
      double error = ulp_error(out[i], exact);
      int is_sure = error <= worst && (isnan(exact) || !signbit(out[i]) == !signbit(exact));
      if (!is_sure) { exact = oracle((double)in[i]); error = ulp_error(out[i], exact); }
      if (error > worst) { worst = error; at = u32_f32(in[i]); }
      over_one += error > 1.0;
      misrounded += error > 0.5001;
      signs += !isnan(exact) && !signbit(out[i]) != !signbit(exact);
      /* Negative floats are passed from zero down. */
      if (in[i] != before) descents += in[i] < 0 ? out[i] > previous : out[i] < previous;
      previous = out[i]; before = in[i];
      count++;
    }
  }
  printf("{\\"worst\\": %.6g, \\"at\\": %u, \\"count\\": %llu, \\"over_one\\": %llu, "
         "\\"misrounded\\": %llu, \\"signs\\": %llu, \\"descents\\": %llu}\\n",
         isinf(worst) ? 1e300 : worst, at, count, over_one, misrounded, signs, descents);
  return 0;
}
"""

#: The construction alone, where what it returns is known and the sanitizer looks at each operation.
CHECKED_FLOAT32 = """
static void kernel(const float *restrict in, float *restrict out) {
  for (int i = 0; i < 4096; i++) {
    float x = in[i];
    @body@
    out[i] = @result@;
  }
}
int main(int argc, char **argv) {
  uint64_t start = strtoull(argv[1], 0, 10), stop = strtoull(argv[2], 0, 10);
  uint64_t step = strtoull(argv[3], 0, 10);
  static float in[4096], out[4096];
  u64 count = 0, defined = 0;
  for (uint64_t base = start; base < stop; base += 4096 * step) {
    for (int i = 0; i < 4096; i++) in[i] = f32_u32((uint32_t)(base + (uint64_t)i * step));
    kernel(in, out);
    for (int i = 0; i < 4096; i++) defined += !isnan(out[i]);
    count += 4096;
  }
  printf("{\\"count\\": %llu, \\"defined\\": %llu}\\n", count, defined);
  return 0;
}
"""

PAIRS_FLOAT32 = """
static void kernel(const float *restrict a, const float *restrict b, float *restrict out) {
  for (int i = 0; i < 4096; i++) {
    float x = a[i], y = b[i];
    @body@
    out[i] = @result@;
  }
}
static double oracle(double x, double y) { return @oracle@; }
static void oracles(const float *restrict a, const float *restrict b, double *restrict out) {
  #pragma omp simd
  for (int i = 0; i < 4096; i++) { double x = a[i], y = b[i]; out[i] = @oracle@; }
}
int main(int argc, char **argv) {
  uint64_t count = strtoull(argv[1], 0, 10);
  state = strtoull(argv[2], 0, 10);
  static float a[4096], b[4096], out[4096];
  static double exacts[4096];
  double worst = -1; float at_x = 0, at_y = 0; u64 over_one = 0, signs = 0;
  for (uint64_t base = 0; base < count; base += 4096) {
    for (int i = 0; i < 4096; i++) {
      uint64_t both = draw();
      uint32_t p = (uint32_t)both, q = (uint32_t)(both >> 32);
      float x = f32_u32(p), y = f32_u32(q);
      switch (i & 3) {
        case 0: break; /* any two floats */
        case 1: /* powers within the range, spread evenly over their logarithm */
          x = fabsf(x);
          y = (float)(((double)q * 0x1p-32 * 300 - 160) / log2((double)x));
          break;
        case 2: x = 1 + (float)((int32_t)p) * 0x1p-40f; y = (float)(int32_t)q * 0x1p-9f; break;
        default: y = (float)((int32_t)(q & 127) - 64); break; /* whole second operands */
      }
      a[i] = x; b[i] = y;
    }
    kernel(a, b, out);
    oracles(a, b, exacts);
    for (int i = 0; i < 4096; i++) {
      double exact = exacts[i], error = ulp_error(out[i], exact);
      int is_sure = error <= worst && (isnan(exact) || !signbit(out[i]) == !signbit(exact));
      if (!is_sure) {
        exact = oracle((double)a[i], (double)b[i]);
        error = ulp_error(out[i], exact);
      }
      if (error > worst) { worst = error; at_x = a[i]; at_y = b[i]; }
      over_one += error > 1;
      signs += !isnan(exact) && !signbit(out[i]) != !signbit(exact);
    }
  }
  printf("{\\"worst\\": %.6g, \\"at\\": \\"%a, %a\\", \\"count\\": %llu, \\"over_one\\": %llu, "
         "\\"signs\\": %llu}\\n", isinf(worst) ? 1e300 : worst, at_x, at_y, (u64)count, over_one,
         signs);
  return 0;
}
"""
