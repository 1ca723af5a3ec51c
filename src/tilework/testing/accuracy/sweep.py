"""Measure constructions over all inputs or many samples; needs a C compiler.

Usage: `python -m tilework.testing.accuracy.sweep [NAME ...] [--step N] [--count N] [--float64]`,
or `NAME ... --zone` for the sines of angles from 30 to 39800.
float32 functions of one operand run over all 2**32 inputs (`--step N`: every N-th) against the C
library's float64 functions; pow over `--count` pairs; float64 functions over `--count` samples
against the compiler's 113-bit library. Each finished chunk of 2**26 inputs is kept in a file named
by a digest of the program, so a stopped sweep goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilework.codegen.decompose import transcendental
from tilework.codegen.decompose.builder import Dtype, Value
from tilework.testing.accuracy import c_sources
from tilework.testing.accuracy.c_builder import CBuilder

CHUNK = 2**26
COMPILE = (
    *("gcc", "-O3", "-march=native", "-ffp-contract=off", "-fno-trapping-math", "-fwrapv"),
    "-fno-math-errno",
)
#: Oracles whose C name differs from the function's, with {q} for the suffix of the library.
ORACLES = {
    "acos": "acos{q}(x)",
    "cos_limited": "cos{q}(x)",
    "reciprocal": "1 / x",
    "sigmoid": "1 / (1 + exp{q}(-x))",
    "sin_limited": "sin{q}(x)",
    "exp2": "exp2{q}(x)",
}
LIMITS = {"sin_limited": "0x1p16f", "cos_limited": "0x1p16f"}
#: Where the samples of a float64 function concentrate.
DOMAINS = {
    "acos": (-1, 1),
    "acosh": (1, 10),
    "asin": (-1, 1),
    "atanh": (-1, 1),
    "cosh": (-710, 710),
    "erf": (-6, 6),
    "exp": (-745, 710),
    "exp2": (-1075, 1024),
    "expm1": (-40, 710),
    "sinh": (-710, 710),
    "tanh": (-20, 20),
}
#: Angles at which reductions of other libraries change, and so many inputs of them in a chunk.
ZONE = (30.0, 39800.0)
ZONE_CHUNK = 2**22
BINARY = ("pow", "atan2", "fmod")
SKIPPED = ("mulacc", "fmod")


@dataclass(frozen=True)
class Report:
    """What a sweep found; `worst` is in units in the last place of the exact value."""

    name: str
    dtype: Dtype
    operations: int
    counts: dict[str, int]
    found: dict[str, Any] = field(default_factory=dict)


def operation_counts(name: str, dtype: Dtype = "float32") -> tuple[CBuilder, str]:
    """Return the builder that holds the construction's operations, and its result."""
    table = transcendental.FLOAT64 if dtype == "float64" else _float32_table()
    builder = CBuilder()
    operands = ("x", "y") if name in BINARY else ("x",)
    values: list[Value[str]] = [Value(builder, operand, dtype) for operand in operands]
    return builder, table[name](*values).raw


def _float32_table() -> dict[str, transcendental.Construction]:
    return transcendental.FLOAT32 | transcendental.MORE_FLOAT32


def function_names(dtype: Dtype) -> list[str]:
    """Return the names of all functions of a dtype."""
    return sorted(transcendental.FLOAT64 if dtype == "float64" else _float32_table())


def build(name: str, dtype: Dtype, folder: Path) -> tuple[Path, Report]:
    """Compile the sweep of one function in `folder`."""
    builder, result = operation_counts(name, dtype)
    wide = dtype == "float64"
    binary = name in BINARY
    template = c_sources.PAIRS_FLOAT32 if binary else c_sources.UNARY_FLOAT32
    oracle = ORACLES.get(name, f"{name}{{q}}(x{', y' if binary else ''})")
    text = c_sources.PRELUDE + (c_sources.SAMPLED_FLOAT64 if wide else template)
    replacements = {
        "oracle": oracle.format(q="q" if wide else ""),
        "limit": LIMITS.get(name, "INFINITY"),
        "body": "\n    ".join(builder.lines),
        "result": result,
        "binary": str(int(binary)),
    }
    for mark, replacement in replacements.items():
        text = text.replace(f"@{mark}@", replacement)
    source, program = folder / f"{name}.c", folder / name
    source.write_text(text)
    libraries = ["-lquadmath", "-lm"] if wide else ["-lm"]
    subprocess.run([*COMPILE, str(source), "-o", str(program), *libraries], check=True)
    return program, Report(name, dtype, builder.operations, builder.counts)


def _run(program: Path, *arguments: float) -> dict[str, Any]:
    command = [str(program), *(str(argument) for argument in arguments)]
    done = subprocess.run(command, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _merge(parts: list[dict[str, Any]]) -> dict[str, Any]:
    worst = max(parts, key=lambda part: part["worst"])
    sums = {key: sum(part[key] for part in parts) for key in parts[0]}
    return sums | {"worst": worst["worst"], "at": worst["at"]}


def _all_inputs(program: Path, name: str, step: int, kept_in: Path) -> dict[str, Any]:
    digest = hashlib.sha256(program.with_suffix(".c").read_bytes()).hexdigest()[:16]
    kept = kept_in / f"{name}-{step}-{digest}.json"
    parts: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    chunk = CHUNK * step
    for start in range(len(parts) * chunk, 2**32, chunk):
        parts.append(_run(program, start, min(2**32, start + chunk), step))
        kept.write_text(json.dumps(parts))
    return _merge(parts)


def sweep(
    name: str, dtype: Dtype, kept_in: Path, *, step: int = 1, count: int = 10**6, seed: int = 1
) -> Report:
    """Return the report of one function.

    Args:
        name: a name in the tables of `transcendental`.
        dtype: "float32" or "float64".
        kept_in: folder of finished chunks.
        step: distance of the float32 inputs, 1 for all.
        count: number of samples where not all inputs are taken.
        seed: of the samples.
    """
    with tempfile.TemporaryDirectory() as folder:
        program, report = build(name, dtype, Path(folder))
        if dtype == "float64":
            found = _run(program, count, seed, *DOMAINS.get(name, (-100, 100)))
        elif name in BINARY:
            found = _run(program, count, seed)
        else:
            kept_in.mkdir(parents=True, exist_ok=True)
            found = _all_inputs(program, name, step, kept_in)
    report.found.update(found)
    return report


def sweep_zone(name: str, kept_in: Path, chunks: int | None = None) -> Report:
    """Return the report of a function of angles over all floats of `ZONE`, of both signs.

    Args:
        name: "sin", "cos" or one of them with "_limited".
        kept_in: folder of finished chunks.
        chunks: how many of the chunks of 2**22 inputs to run, evenly spread; None for all.
    """
    with tempfile.TemporaryDirectory() as folder:
        program, report = build(name, "float32", Path(folder))
        digest = hashlib.sha256(program.with_suffix(".c").read_bytes()).hexdigest()[:16]
        kept_in.mkdir(parents=True, exist_ok=True)
        kept = kept_in / f"{name}-zone-{digest}.json"
        parts: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
        low, high = [struct.unpack("<I", struct.pack("<f", end))[0] for end in ZONE]
        starts = [sign + at for sign in (0, 1 << 31) for at in range(low, high, ZONE_CHUNK)]
        step = 1 if chunks is None else -(-len(starts) // chunks)
        for start in starts[::step]:
            if str(start) not in parts:
                last = (start & (1 << 31)) + high
                parts[str(start)] = _run(program, start, min(start + ZONE_CHUNK, last), 1)
                kept.write_text(json.dumps(parts))
    report.found.update(_merge([parts[str(start)] for start in starts[::step]]))
    return report


def main() -> None:
    """Sweep the functions named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--count", type=int, default=10**6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--zone", action="store_true", help="angles from 30 to 39800 alone")
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir(), "sweeps"))
    parser.add_argument("--save", type=Path, help="JSON file that collects the reports")
    arguments = parser.parse_args()
    dtype: Dtype = "float64" if arguments.float64 else "float32"
    table = transcendental.FLOAT64 if arguments.float64 else _float32_table()
    for name in arguments.names or [name for name in table if name not in SKIPPED]:
        if arguments.zone:
            report = replace(sweep_zone(name, arguments.state), name=f"{name} from 30 to 39800")
        else:
            report = sweep(
                name,
                dtype,
                arguments.state,
                step=arguments.step,
                count=arguments.count,
                seed=arguments.seed,
            )
        line = json.dumps({"operations": report.operations, **report.found})
        sys.stdout.write(f"{name} {dtype} {line}\n")
        sys.stdout.flush()
        if arguments.save:
            known = json.loads(arguments.save.read_text()) if arguments.save.exists() else {}
            known[f"{report.name} {dtype}"] = vars(report) | {"step": arguments.step}
            arguments.save.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
