"""Measure a float32 function over all 2^32 inputs against a double-precision oracle.

Usage: `python tests/sweeps/unary.py NAME ... [--step N]`; needs a C compiler.  Each finished chunk
of 2^26 inputs is kept in a file, so a stopped sweep goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import subprocess
import tempfile

from c_builder import CBuilder

from tilework.codegen.decompose import transcendental
from tilework.codegen.decompose.builder import Value

HERE = pathlib.Path(__file__).parent
COMPILE = ["gcc", "-O3", "-march=native", "-ffp-contract=off", "-fno-trapping-math", "-fwrapv",
           "-fno-math-errno"]
MAIN = """
static double oracle(double x) { return @oracle@; }
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
  double worst = 0; uint32_t at = 0; uint64_t count = 0, over_one = 0, inexact = 0, signs = 0;
  uint64_t descents = 0; float previous = NAN, before = NAN;
  for (uint64_t base = start; base < stop; base += 4096 * step) {
    for (int i = 0; i < 4096; i++) in[i] = f32_u32((uint32_t)(base + (uint64_t)i * step));
    kernel(in, out);
    for (int i = 0; i < 4096; i++) {
      if (fabsf(in[i]) > @limit@) continue;
      double exact = oracle((double)in[i]);
      double error = ulp_error(out[i], exact);
      if (error > worst || (error == worst && !count)) { worst = error; at = u32_f32(in[i]); }
      over_one += error > 1.0;
      inexact += error > 0.5001;
      signs += !isnan(exact) && !signbit(out[i]) != !signbit(exact);
      if (in[i] != before) {
        descents += in[i] < 0 ? out[i] > previous : out[i] < previous;
      }
      previous = out[i]; before = in[i];
      count++;
    }
  }
  printf("{\\"worst\\": %.6g, \\"at\\": %u, \\"count\\": %llu, \\"over_one\\": %llu, "
         "\\"misrounded\\": %llu, \\"signs\\": %llu, \\"descents\\": %llu}\\n", isinf(worst) ? 1e300 : worst, at,
         (unsigned long long)count, (unsigned long long)over_one, (unsigned long long)inexact,
         (unsigned long long)signs, (unsigned long long)descents);
  return 0;
}
"""
ORACLES = {
    "sin_limited": "sin(x)",
    "cos_limited": "cos(x)",
    "sigmoid": "1 / (1 + exp(-x))",
}
LIMITS = {"sin_limited": "0x1p16f", "cos_limited": "0x1p16f"}


def build(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Compile the sweep of one function."""
    builder = CBuilder()
    x: Value[str] = Value(builder, "x", "float32")
    result = transcendental.FLOAT32[name](x)
    text = '#include "prelude.h"\n' + MAIN.replace("@oracle@", ORACLES.get(name, f"{name}(x)"))
    text = text.replace("@limit@", LIMITS.get(name, "INFINITY"))
    text = text.replace("@body@", "\n    ".join(builder.lines)).replace("@result@", result.raw)
    source, program = folder / f"{name}.c", folder / name
    source.write_text(text)
    subprocess.run(
        [*COMPILE, f"-I{HERE}", str(source), "-o", str(program), "-lm"], check=True
    )
    total = sum(n for kind, n in builder.counts.items() if not kind.startswith("bitcast"))
    print(f"{name}: {total} operations {builder.counts}", flush=True)
    return program


def merge(parts: list[dict[str, float]]) -> dict[str, float]:
    """Add up the chunks' reports."""
    worst = max(parts, key=lambda part: part["worst"])
    total = {"worst": worst["worst"], "at": worst["at"]}
    for key in ("count", "over_one", "misrounded", "signs", "descents"):
        total[key] = sum(part[key] for part in parts)
    return total


def sweep(name: str, step: int, state: pathlib.Path) -> dict[str, float]:
    """Return the report of one function, over every `step`-th input."""
    with tempfile.TemporaryDirectory() as folder:
        program = build(name, pathlib.Path(folder))
        digest = hashlib.sha256(program.with_suffix(".c").read_bytes()).hexdigest()[:16]
        kept = state / f"{name}-{step}-{digest}.json"
        parts = json.loads(kept.read_text()) if kept.exists() else []
        chunk = 2**26 if step == 1 else 2**32
        for start in range(len(parts) * chunk, 2**32, chunk):
            stop = min(2**32, start + chunk)
            command = [str(program), str(start), str(stop), str(step)]
            parts.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
            if step == 1:
                kept.write_text(json.dumps(parts))
        return merge(parts)


def main() -> None:
    """Sweep the functions named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--state", type=pathlib.Path, default=pathlib.Path("/tmp/tilework-sweeps"))
    arguments = parser.parse_args()
    arguments.state.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or transcendental.FLOAT32:
        report = sweep(name, arguments.step, arguments.state)
        print(name, json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
