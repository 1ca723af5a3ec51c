#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define PUN(name, from, to) \
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
PUN(i32_u32, uint32_t, int32_t)
PUN(u32_i32, int32_t, uint32_t)
PUN(i64_u64, uint64_t, int64_t)
PUN(u64_i64, int64_t, uint64_t)

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
  if (exponent > 127) exponent = 127;
  double scale = f64((uint64_t)(1023 + 23 - exponent) << 52);
  return fabs(value - exact) * scale;
}
