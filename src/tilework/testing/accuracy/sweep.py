"""Measure constructions over all inputs or many samples; needs a C compiler.

Usage: `python -m tilework.testing.accuracy.sweep [NAME ...] [--step N] [--count N] [--float64]`,
or `NAME ... --zone` for the sines of angles from 30 to 39800.
float32 functions of one operand run over all 2**32 inputs (`--step N`: every N-th) against the C
library's float64 functions; pow over `--count` pairs; float64 functions over `--count` samples
against 64-bit mantissas and the compiler's 113-bit library; `--float16` runs pow over all 2**32
pairs of float16. Each finished chunk is kept in a file named by a digest of the program, so a
stopped sweep goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tilework.base.records import dataclass, field, replace
from tilework.codegen.decompose import transcendental
from tilework.codegen.decompose.builder import Dtype, Value
from tilework.testing.accuracy.c_builder import CBuilder
from tilework.testing.accuracy.c_float16 import PAIRS_FLOAT16
from tilework.testing.accuracy.c_float64 import DIVISORS, EXPONENTS, SAMPLED_FLOAT64
from tilework.testing.accuracy.c_sources import (
    CHECKED_FLOAT32,
    PAIRS_FLOAT32,
    PRELUDE,
    UNARY_FLOAT32,
)

CHUNK = 2**26
COMPILE = (
    *("gcc", "-O3", "-march=native", "-ffp-contract=off", "-fno-trapping-math", "-fwrapv"),
    *("-fno-math-errno", "-fopenmp"),
)
#: Inputs of one chunk where samples are drawn, and first operands of one where all pairs are taken.
SAMPLE_CHUNK, FIRST_CHUNK = 10**7, 2**10
#: Oracles whose C name differs from the function's, with {q} for the suffix of the library.
ORACLES = {
    "acos": "acos{q}(x)",
    "cos_limited": "cos{q}(x)",
    "div": "x / y",
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
BINARY = ("pow", "atan2", "fmod", "div")
SKIPPED = ("mulacc", "fmod")
LIBRARIES = ("-lquadmath", "-lm")
#: What ends a program at the first operation that C does not define.
SANITIZE = ("-fsanitize=undefined,float-cast-overflow", "-fsanitize-undefined-trap-on-error")


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
    table = _float64_table() if dtype == "float64" else _float32_table()
    builder = CBuilder()
    operands = ("x", "y") if name in BINARY else ("x",)
    own: Dtype = "float64" if dtype == "float64" else "float32"
    values: list[Value[str]] = [Value(builder, operand, own) for operand in operands]
    return builder, table[name](*values).raw


def _float32_table() -> dict[str, transcendental.Construction]:
    return transcendental.FLOAT32 | transcendental.MORE_FLOAT32


def _float64_table() -> dict[str, transcendental.Construction]:
    """The constructions, and the quotient, which every target computes itself."""
    return transcendental.FLOAT64 | {"div": lambda x, y: x / y}


def function_names(dtype: Dtype) -> list[str]:
    """Return the names of all functions of a dtype."""
    return sorted(_float64_table() if dtype == "float64" else _float32_table())


def build(name: str, dtype: Dtype, folder: Path, *, sanitize: bool = False) -> tuple[Path, Report]:
    """Compile the sweep of one function in `folder`; float16 is for functions of two operands."""
    builder, result = operation_counts(name, dtype)
    binary = name in BINARY
    # What is returned is known from sweeps without a sanitizer, under which the oracle takes ten
    # times as long.
    single = CHECKED_FLOAT32 if sanitize else UNARY_FLOAT32
    narrow = PAIRS_FLOAT32 if binary else single
    template = {"float64": SAMPLED_FLOAT64, "float16": PAIRS_FLOAT16}.get(dtype, narrow)
    oracle = ORACLES.get(name, f"{name}{{q}}(x{', y' if binary else ''})")
    replacements = {
        "oracle": oracle.format(q="" if dtype == "float32" else "q"),
        "near": oracle.format(q="l" if dtype == "float64" else ""),
        "limit": LIMITS.get(name, "INFINITY"),
        "body": "\n    ".join(builder.lines),
        "result": result,
        "binary": str(int(binary)),
        "second": DIVISORS if name == "div" else EXPONENTS,
    }
    text = PRELUDE + template
    for mark, replacement in replacements.items():
        text = text.replace(f"@{mark}@", replacement)
    source, program = folder / f"{name}.c", folder / name
    source.write_text(text)
    options = [*COMPILE, *(SANITIZE if sanitize else ())]
    subprocess.run([*options, str(source), "-o", str(program), *LIBRARIES], check=True)
    return program, Report(name, dtype, builder.operations, builder.counts)


def _run(program: Path, *arguments: float) -> dict[str, Any]:
    command = [str(program), *(str(argument) for argument in arguments)]
    done = subprocess.run(command, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _merge(parts: list[dict[str, Any]]) -> dict[str, Any]:
    worst = max(parts, key=lambda part: part.get("worst", 0.0))
    own: dict[str, Any] = {key: worst[key] for key in ("worst", "at") if key in worst}
    if "doubt" in worst:
        own["doubt"] = max(part["doubt"] for part in parts)
    sums = {key: sum(part[key] for part in parts) for key in worst if key not in own}
    return sums | own


def _in_chunks(program: Path, chunks: list[tuple[float, ...]], kept_in: Path) -> dict[str, Any]:
    """Run a program for each tuple of arguments and join what it finds.

    What is found is kept by program and arguments, so that a stopped sweep goes on where it was,
    and a longer one takes over what a shorter one has found.
    """
    digest = hashlib.sha256(program.with_suffix(".c").read_bytes()).hexdigest()[:16]
    kept_in.mkdir(parents=True, exist_ok=True)
    kept = kept_in / f"{program.name}-{digest}.json"
    parts: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for chunk in chunks:
        key = " ".join(str(argument) for argument in chunk)
        if key not in parts:
            parts[key] = _run(program, *chunk)
            # Replaced at once, since a sweep may be stopped at any time.
            kept.with_suffix(".new").write_text(json.dumps(parts))
            kept.with_suffix(".new").replace(kept)
    return _merge([parts[" ".join(str(argument) for argument in chunk)] for chunk in chunks])


def sweep(
    name: str,
    dtype: Dtype,
    kept_in: Path,
    *,
    step: int = 1,
    count: int = 10**6,
    seed: int = 1,
    sanitize: bool = False,
) -> Report:
    """Return the report of one function.

    Args:
        name: a name in the tables of `transcendental`.
        dtype: "float32", "float64", or "float16" for all pairs of a function of two operands.
        kept_in: folder of finished chunks.
        step: distance of the float32 inputs or of the first float16 operands, 1 for all.
        count: number of samples where not all inputs are taken.
        seed: of the first chunk of samples; each further one takes the next.
        sanitize: end at the first operation that C does not define.
    """
    chunks: list[tuple[float, ...]]
    if dtype == "float16":
        size = FIRST_CHUNK * step
        chunks = [(at, min(2**16, at + size), step) for at in range(0, 2**16, size)]
    elif dtype == "float64" or name in BINARY:
        domain = DOMAINS.get(name, (-100, 100)) if dtype == "float64" else ()
        starts = range(0, count, SAMPLE_CHUNK)
        chunks = [
            (min(SAMPLE_CHUNK, count - at), seed + number, *domain)
            for number, at in enumerate(starts)
        ]
    else:
        size = CHUNK * step
        chunks = [(at, min(2**32, at + size), step) for at in range(0, 2**32, size)]
    with tempfile.TemporaryDirectory() as folder:
        program, report = build(name, dtype, Path(folder), sanitize=sanitize)
        # Of one source, but of other code: what the one has shown the other has not.
        own = kept_in / "sanitized" if sanitize else kept_in
        report.found.update(_in_chunks(program, chunks, own))
    return report


def sweep_zone(name: str, kept_in: Path, chunks: int | None = None) -> Report:
    """Return the report of a function of angles over all floats of `ZONE`, of both signs.

    Args:
        name: "sin", "cos" or one of them with "_limited".
        kept_in: folder of finished chunks.
        chunks: how many of the chunks of 2**22 inputs to run, evenly spread; None for all.
    """
    low, high = [struct.unpack("<I", struct.pack("<f", end))[0] for end in ZONE]
    parts: list[tuple[float, ...]] = [
        (sign + at, min(sign + at + ZONE_CHUNK, sign + high), 1)
        for sign in (0, 1 << 31)
        for at in range(low, high, ZONE_CHUNK)
    ]
    step = 1 if chunks is None else -(-len(parts) // chunks)
    with tempfile.TemporaryDirectory() as folder:
        program, report = build(name, "float32", Path(folder))
        report.found.update(_in_chunks(program, parts[::step], kept_in))
    return report


def _names_of(dtype: Dtype) -> list[str]:
    if dtype == "float16":
        return ["pow"]
    return [name for name in function_names(dtype) if name not in SKIPPED]


def main() -> None:
    """Sweep the functions named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--count", type=int, default=10**6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--float16", action="store_true", help="all pairs of float16")
    parser.add_argument("--zone", action="store_true", help="angles from 30 to 39800 alone")
    parser.add_argument(
        "--sanitize", action="store_true", help="end at the first operation that C does not define"
    )
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir(), "sweeps"))
    parser.add_argument("--save", type=Path, help="JSON file that collects the reports")
    arguments = parser.parse_args()
    dtype: Dtype = "float64" if arguments.float64 else "float32"
    if arguments.float16:
        dtype = "float16"
    for name in arguments.names or _names_of(dtype):
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
                sanitize=arguments.sanitize,
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
