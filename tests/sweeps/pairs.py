"""Measure pow of float32 over random and structured pairs against a double-precision oracle.

Usage: `python tests/sweeps/pairs.py [--count N] [--seed N]`; needs a C compiler.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import tempfile

from c_builder import CBuilder
from unary import COMPILE, HERE

from tilework.codegen.decompose import power
from tilework.codegen.decompose.builder import Value

MAIN = """
static uint64_t state;
static uint32_t draw(void) { /* splitmix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (uint32_t)((z ^ (z >> 31)) >> 16);
}
static void kernel(const float *restrict a, const float *restrict b, float *restrict out) {
  for (int i = 0; i < 4096; i++) {
    float x = a[i], y = b[i];
    @body@
    out[i] = @result@;
  }
}
int main(int argc, char **argv) {
  uint64_t count = strtoull(argv[1], 0, 10);
  state = strtoull(argv[2], 0, 10);
  static float a[4096], b[4096], out[4096];
  double worst = 0; float at_x = 0, at_y = 0; uint64_t wrong = 0, signs = 0;
  for (uint64_t base = 0; base < count; base += 4096) {
    for (int i = 0; i < 4096; i++) {
      uint32_t p = draw(), q = draw();
      float x = f32_u32(p), y = f32_u32(q);
      switch (i & 3) {
        case 0: break;                                             /* any two floats */
        case 1: /* a result within the range, spread evenly over its logarithm */
          x = f32_u32(p & 0x7fffffff);
          y = (float)(((double)q * 0x1p-32 * 300 - 160) / log2((double)x));
          break;
        case 2: x = 1 + (float)((int32_t)p) * 0x1p-40f; y = (float)(int32_t)q * 0x1p-9f; break;
        default: x = f32_u32(p); y = (float)((int32_t)(q & 127) - 64); break; /* whole exponents */
      }
      a[i] = x; b[i] = y;
    }
    kernel(a, b, out);
    for (int i = 0; i < 4096; i++) {
      double exact = pow((double)a[i], (double)b[i]);
      double error = ulp_error(out[i], exact);
      if (error > worst) { worst = error; at_x = a[i]; at_y = b[i]; }
      wrong += error > 1;
      signs += !isnan(exact) && !signbit(out[i]) != !signbit(exact);
    }
  }
  printf("worst %.6g at (%a, %a), over one ulp: %llu, wrong signs: %llu\\n", worst, at_x, at_y,
         (unsigned long long)wrong, (unsigned long long)signs);
  return 0;
}
"""


def main() -> None:
    """Compile the comparison and run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10**8)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    builder = CBuilder()
    x: Value[str] = Value(builder, "x", "float32")
    y: Value[str] = Value(builder, "y", "float32")
    result = power.pow(x, y)
    text = '#include "prelude.h"\n' + MAIN.replace("@result@", result.raw)
    text = text.replace("@body@", "\n    ".join(builder.lines))
    total = sum(n for kind, n in builder.counts.items() if not kind.startswith("bitcast"))
    print(f"pow: {total} operations {builder.counts}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "pow.c"), pathlib.Path(folder, "pow")
        source.write_text(text)
        subprocess.run(
            [*COMPILE, f"-I{HERE}", str(source), "-o", str(program), "-lm"], check=True
        )
        subprocess.run([str(program), str(arguments.count), str(arguments.seed)], check=True)


if __name__ == "__main__":
    main()
