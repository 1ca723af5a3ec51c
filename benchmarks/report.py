"""The table of docs/performance.md that has every row of a comparison on a CPU.

    python -m benchmarks.report results.json             # prints it
    python -m benchmarks.report results.json --write     # puts it into docs/performance.md

`results.json` has `runs`: for each peer, row and round the median seconds, whether the numbers were
right, and how many cores other processes took meanwhile (`disturbed`); and `limits` by number of
threads, where they were measured: `fma` in GFLOP/s, `triad` and `read` in GB/s.  A figure is the
median over rounds that nobody disturbed; without such rounds it is the least one, marked `~`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

OURS: Final = "tilework"
#: From so many cores taken by others on, a round does not count.
DISTURBED: Final = 0.2
PAGE: Final = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN: Final = "<!-- rows: made by python -m benchmarks.report -->"
END: Final = "<!-- rows end -->"


@dataclass(frozen=True)
class Least:
    """The least work of a row: operations, bytes moved, or why neither says anything."""

    flops: float = 0.0
    bytes: float = 0.0
    reason: str = ""


_MODEL = 12 * (4 * 768 * 768 + 8 * 768 * 768)
LEAST: Final[Mapping[str, Least]] = {
    **{f"gemm_{n}": Least(flops=2 * n**3) for n in (256, 512, 1024, 2048)},
    "gemm_batched_16x256": Least(flops=16 * 2 * 256**3),
    "gemv_4096": Least(bytes=4 * 4096**2),
    "gemm_int8_1024": Least(reason="integers: no limit measured"),
    "conv3x3_64_bs1": Least(flops=2 * 64 * 64 * 9 * 56**2),
    "conv3x3_64_bs8": Least(flops=8 * 2 * 64 * 64 * 9 * 56**2),
    "conv_dw3x3_144": Least(bytes=2 * 4 * 144 * 56**2),
    "conv1x1_256_64": Least(flops=2 * 256 * 64 * 56**2),
    "conv7x7_s2_stem": Least(flops=2 * 3 * 64 * 49 * 112**2),
    "elementwise_16m": Least(bytes=2 * 4 * 4096**2),
    "softmax_4096x1024": Least(bytes=2 * 4 * 4096 * 1024),
    "layernorm_4096x1024": Least(bytes=2 * 4 * 4096 * 1024),
    "sum_axis1_64m": Least(bytes=4 * 8192**2),
    "sum_axis0_64m": Least(bytes=4 * 8192**2),
    "cumsum_1m": Least(bytes=2 * 4 << 20),
    "embedding_4096": Least(bytes=2 * 4 * 4096 * 768),
    "sort_1m": Least(reason="passes over words in cache"),
    "transpose_4096": Least(bytes=2 * 4 * 4096**2),
    "attention_causal": Least(flops=2 * 12 * 512 * 512 * 64),
    "resnet18": Least(flops=3.63e9),
    "mobilenet_v2": Least(flops=0.60e9),
    "bert_base_128": Least(flops=2 * 128 * _MODEL + 12 * 4 * 128 * 128 * 768),
    "gpt2_decode_256": Least(bytes=4 * (_MODEL + 50257 * 768 + 2 * 12 * 256 * 768)),
    "mlp_64_latency": Least(reason="the call"),
    "chain_200_kernels": Least(reason="200 launches"),
    "train_convnet_128": Least(flops=1.01e10),
}


@dataclass(frozen=True)
class Figure:
    """One peer's seconds for a row."""

    seconds: float
    is_disturbed: bool


def figures(runs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], dict[str, Figure]]:
    """The figure of each peer for each row and number of threads; wrong results have none."""
    found: dict[tuple[str, int], dict[str, list[Mapping[str, Any]]]] = {}
    for run in runs:
        row = found.setdefault((run["workload"], run["threads"]), {})
        row.setdefault(run["peer"], []).append(run)
    table: dict[tuple[str, int], dict[str, Figure]] = {}
    for key, peers in found.items():
        for peer, rounds in peers.items():
            timed = [run for run in rounds if "median" in run]
            if not timed or not all(run["ok"] for run in timed):
                continue
            quiet = [run["median"] for run in timed if run["disturbed"] <= DISTURBED]
            least = min(run["median"] for run in timed)
            seconds = statistics.median(quiet) if quiet else least
            table.setdefault(key, {})[peer] = Figure(seconds, not quiet)
    return table


def limit_of(least: Least, limits: Mapping[str, float]) -> tuple[str, float | None]:
    """The limit as text, and the seconds that it allows for."""
    if least.reason or not limits:
        return least.reason, None
    if least.flops:
        seconds = least.flops / limits["fma"] / 1e9
        return f"{least.flops / 1e9:.3g} GFLOP", seconds
    rate = max(limits["triad"], limits["read"])
    return f"{least.bytes / 1e6:.3g} MB", least.bytes / rate / 1e9


def render(results: Mapping[str, Any]) -> str:
    """The table as Markdown."""
    limits: Mapping[str, Mapping[str, float]] = results.get("limits", {})
    lines = [
        "| row | tilework | best peer | times faster | fewest | at the limit | share |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (name, threads), peers in figures(results["runs"]).items():
        ours = peers.get(OURS)
        others = {peer: figure for peer, figure in peers.items() if peer != OURS}
        if ours is None or not others:
            continue
        best = min(others, key=lambda peer: others[peer].seconds)
        text, seconds = limit_of(LEAST.get(name, Least()), limits.get(str(threads), {}))
        cells = [
            name + (", one core" if threads == 1 else ""),
            _milliseconds(ours),
            f"{_milliseconds(others[best])}, {best}",
            f"{others[best].seconds / ours.seconds:.2f}",
            text,
            "" if seconds is None else f"{seconds * 1e3:.3g}",
            "" if seconds is None else f"{seconds / ours.seconds:.0%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _milliseconds(figure: Figure) -> str:
    return f"{figure.seconds * 1e3:.3g}" + "~" * figure.is_disturbed


def put(page: str, table: str) -> str:
    """A page with the table between its two marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.report")
    parser.add_argument("results", type=Path)
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.name}")
    options = parser.parse_args()
    table = render(json.loads(options.results.read_text()))
    print(table)
    if options.write:
        PAGE.write_text(put(PAGE.read_text(), table))


if __name__ == "__main__":
    main()
