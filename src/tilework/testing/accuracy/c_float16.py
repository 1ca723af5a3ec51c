"""C of the sweep over all pairs of two float16: a float32 construction, rounded once to float16."""

PAIRS_FLOAT16 = """
#include <quadmath.h>
static void kernel(float x, const float *restrict b, _Float16 *restrict out) {
  for (int i = 0; i < 4096; i++) {
    float y = b[i];
    @body@
    out[i] = (_Float16)(@result@);
  }
}
static __float128 oracle(__float128 x, __float128 y) { return @oracle@; }
static void oracles(double x, const float *restrict b, double *restrict out) {
  #pragma omp simd
  for (int i = 0; i < 4096; i++) { double y = b[i]; out[i] = @near@; }
}
static float narrow(uint32_t bits) {
  uint16_t low = (uint16_t)bits; _Float16 value; memcpy(&value, &low, sizeof value);
  return (float)value;
}
/* In units in the last place of the exact value; infinities stand for 2**16, as rounding has it. */
static inline double narrow_error(float got, double exact) {
  int exponent = (int)((u64_f64(exact) >> 52) & 0x7ff) - 1023;
  double scale = f64((uint64_t)(1023 + 10 - (exponent < -14 ? -14 : exponent)) << 52);
  double value = isinf(got) ? copysign(0x1p16, got) : got;
  if (fabs(exact) >= 65520) return isinf(got) && (got > 0) == (exact > 0) ? 0 : INFINITY;
  if (isnan(exact)) return isnan(got) ? 0 : INFINITY;
  return isnan(got) ? INFINITY : fabs(value - exact) * scale;
}
int main(int argc, char **argv) {
  uint64_t start = strtoull(argv[1], 0, 10), stop = strtoull(argv[2], 0, 10);
  uint64_t step = strtoull(argv[3], 0, 10);
  static float b[4096]; static _Float16 out[4096]; static double exacts[4096];
  double worst = -1; float at_x = 0, at_y = 0;
  u64 count = 0, over_half = 0, over_one = 0, signs = 0;
  for (uint64_t first = start; first < stop; first += step) {
    float x = narrow((uint32_t)first);
    for (uint32_t base = 0; base < 1 << 16; base += 4096) {
      for (uint32_t i = 0; i < 4096; i++) b[i] = narrow(base + i);
      kernel(x, b, out);
      oracles(x, b, exacts);
      for (int i = 0; i < 4096; i++) {
        float got = (float)out[i];
        double error = narrow_error(got, exacts[i]);
        /* The judge of many is exact to 2**-40 of a unit; ties and signs are judged in 113 bits. */
        if (error > 0.5 - 0x1p-30 || !signbit(got) != !signbit(exacts[i])) {
          __float128 exact = oracle(x, b[i]);
          /* Rounded to odd, so that no tie appears or goes. */
          double closest = (double)exact;
          if (exact != closest && !isnanq(exact) && !(u64_f64(closest) & 1) && closest != 0) {
            int up = (fabsq(exact) > fabs(closest)) ? 1 : -1;
            closest = f64(u64_f64(closest) + (uint64_t)(int64_t)up);
          }
          error = narrow_error(got, closest);
          signs += !isnanq(exact) && !signbit(got) != !signbitq(exact);
        }
        if (error > worst) { worst = error; at_x = x; at_y = b[i]; }
        over_half += error > 0.5;
        over_one += error > 1;
      }
      count += 4096;
    }
  }
  printf("{\\"worst\\": %.9g, \\"at\\": \\"%a, %a\\", \\"count\\": %llu, \\"over_half\\": %llu, "
         "\\"over_one\\": %llu, \\"signs\\": %llu}\\n", isinf(worst) ? 1e300 : worst, at_x, at_y,
         count, over_half, over_one, signs);
  return 0;
}
"""
