"""C of the sweeps of float64: samples judged by 64-bit mantissas, and by 113 bits where it counts.

The C library's long double functions are right to some 2**-62, which is 0.005 ULP of a float64, at
a tenth of what its 113-bit functions cost. Each result whose error comes near to the largest one is
judged again in 113 bits, and so is every 1024th: `doubt` is the farthest that both judges were
apart. Where long double is no wider than double, everything is judged in 113 bits.
"""

SAMPLED_FLOAT64 = """
#include <float.h>
#include <quadmath.h>
#define MARGIN (LDBL_MANT_DIG >= 64 ? 0.01 : INFINITY)
static void kernel(const double *restrict a, const double *restrict b, double *restrict out) {
  for (int i = 0; i < 1024; i++) {
    double x = a[i], y = b[i];
    @body@
    (void)y;
    out[i] = @result@;
  }
}
static __float128 oracle(__float128 x, __float128 y) { return @oracle@; }
static long double near_oracle(long double x, long double y) { return @near@; }
static double quad_error(double got, __float128 exact) {
  if (isnanq(exact)) return isnan(got) ? 0.0 : INFINITY;
  if (isnan(got)) return INFINITY;
  if (fabsq(exact) >= 0x1.fffffffffffff8p1023Q)
    return isinf(got) && (got > 0) == (exact > 0) ? 0.0 : INFINITY;
  if (isinf(got)) return INFINITY;
  if (exact == 0) return got == 0 ? 0 : INFINITY;
  int exponent = ilogbq(exact);
  if (exponent < -1022) exponent = -1022;
  return (double)(fabsq((__float128)got - exact) * scalbnq(1.0Q, 52 - exponent));
}
/* The same from a long double; infinite where 113 bits must decide. */
static double near_error(double got, long double exact) {
  if (isnan(exact)) return isnan(got) ? 0 : INFINITY;
  if (!signbit(got) != !signbit(exact)) return INFINITY;
  if (fabsl(exact) >= 0x1.fffffffffffff8p1023L) return isinf(got) ? 0 : INFINITY;
  double rounded = (double)exact;
  int exponent = (int)((u64_f64(rounded) >> 52) & 0x7ff) - 1023;
  if (exponent > 1023) return INFINITY;
  if (exponent < -1022) exponent = -1022;
  long double scale = (long double)f64((uint64_t)(1024 - exponent) << 52) * 0x1p51L;
  /* A result that was rounded up to a power of two has half the unit. */
  if (fabsl(exact) < fabs(rounded) && !(u64_f64(rounded) << 12) && exponent > -1022) scale *= 2;
  return (double)(fabsl((long double)got - exact) * scale);
}
static double next(double x, int64_t steps) { return f64(u64_f64(x) + (uint64_t)steps); }
static double sample(int mode, double low, double high) {
  uint64_t bits = draw();
  double unit = (double)(bits >> 11) * 0x1p-53, sign = bits & 1 ? -1 : 1;
  switch (mode) {
    case 0: return f64(bits);
    case 1: return low + (high - low) * unit;
    case 2: return sign * ldexp(1 + unit, (int)(draw() % 70) - 60);
    case 3: return (high - low) * ldexp(unit - 0.5, -(int)(draw() % 12));
    case 4: return 1 + (unit - 0.5) * ldexp(1, -(int)(draw() % 50));
    case 5: { /* around multiples of pi/2, of all sizes */
      double count = rint(ldexp(1 + unit, (int)(draw() % 52)));
      return sign * next((double)((__float128)count * M_PI_2q), (int64_t)(draw() % 9) - 4);
    }
    case 6: /* around powers of two and their doubles' halves */
      return sign * next(ldexp(bits & 2 ? 1.5 : 1, (int)(draw() % 140) - 70),
                         (int64_t)(draw() % 33) - 16);
    default: /* subnormal, and around the ends of the range of normal numbers */
      if (bits & 2) return sign * f64(draw() >> 12);
      return sign * next(bits & 4 ? DBL_MIN : DBL_MAX, -(int64_t)(draw() % 1000));
  }
}
int main(int argc, char **argv) {
  uint64_t count = strtoull(argv[1], 0, 10);
  state = strtoull(argv[2], 0, 10) * 0x9e3779b97f4a7c15ull;
  state = draw();
  double low = atof(argv[3]), high = atof(argv[4]);
  static double a[1024], b[1024], out[1024];
  double worst = -1, at = 0, at_y = 0, doubt = 0;
  u64 done = 0, over_one = 0, signs = 0, misrounded = 0;
  for (; done < count; done += 1024) {
    for (int i = 0; i < 1024; i++) {
      a[i] = sample(i % 8, low, high);
      b[i] = 0;
      if (@binary@) {
@second@      }
    }
    kernel(a, b, out);
    for (int i = 0; i < 1024; i++) {
      double error = near_error(out[i], near_oracle(a[i], b[i]));
      if (error > worst - MARGIN || i == 0 || fabs(error - 1) < MARGIN) {
        __float128 exact = oracle(a[i], b[i]);
        double sure = quad_error(out[i], exact);
        if (error < INFINITY && fabs(error - sure) > doubt) doubt = fabs(error - sure);
        error = sure;
        signs += !isnanq(exact) && !signbit(out[i]) != !signbitq(exact);
        if (error > worst) { worst = error; at = a[i]; at_y = b[i]; }
      }
      over_one += error > 1;
      misrounded += error > 0.5001;
    }
  }
  printf("{\\"worst\\": %.6g, \\"at\\": \\"%a, %a\\", \\"count\\": %llu, \\"over_one\\": %llu, "
         "\\"misrounded\\": %llu, \\"signs\\": %llu, \\"doubt\\": %.3g}\\n",
         isinf(worst) ? 1e300 : worst, at, at_y, done, over_one, misrounded, signs, doubt);
  return 0;
}
"""

#: How the second operand of a function of two is drawn: exponents that keep powers in range, ...
EXPONENTS = """        double t = (double)(draw() >> 11) * 0x1p-53 * 2200 - 1100;
        b[i] = i % 5 == 0 ? f64(draw()) : i % 7 == 0 ? rint(t / 100) : t / log2(fabs(a[i]));
"""
#: ... or divisors of all kinds, and every other time such that the quotient lies within some
#: 2**-11 units of the middle between two floats.
DIVISORS = """        b[i] = sample((i / 8) % 8, low, high);
        if (i & 1) {
          double q = ldexp(1 + (double)(draw() >> 12) * 0x1p-52, (int)(draw() % 100) - 50);
          a[i] = (double)((long double)b[i] * ((long double)q + ldexpl(0x1p-53L, ilogb(q))));
        }
"""
