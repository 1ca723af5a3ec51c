"""`tilework tune --report`: the cost model's predictions beside measurements, as table and plot."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilework.base.records import asdict
from tilework.base.text import plural
from tilework.engine import tune, tune_report
from tilework.tools.common import programs

if TYPE_CHECKING:
    from tilework.engine.steps import KernelCall
    from tilework.engine.tune_report import ClassReport, Sample
    from tilework.tools.console import Console

_COLUMNS = 3


def run(folder: Path, program: Callable[[], None] | None, seconds: float, console: Console) -> int:
    """Measure plans of a program's kernels, or of built-in ones, and write what was found."""
    with console.progress("linking") as progress:
        calls = dict.fromkeys(_calls(program, progress.describe))
    with console.progress("measuring", total=len(calls)) as progress:
        samples = tune_report.sample(
            _spread(list(calls)), seconds, lambda name: progress.advance(1, name)
        )
    reports = tune_report.by_class(samples)
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "classes": {kind: asdict(report) for kind, report in reports.items()},
        "samples": [asdict(sample) for sample in samples],
    }
    (folder / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    picture = _plot(folder / "cost-model.png", samples, reports)
    console.result(document)
    console.table(
        f"{plural(len(samples), 'plan')} of {plural(len(calls), 'kernel')}",
        [
            "class",
            "kernels",
            "plans",
            "rank, all",
            "rank, one kernel",
            "rank, choice",
            "ordered",
            "lost",
        ],
        [_cells(kind, report) for kind, report in reports.items()],
    )
    if picture is None:
        console.text("no plot: matplotlib is not installed (`pip install tilework[viz]`)")
    return 0


def _calls(
    program: Callable[[], None] | None, describe: Callable[[str], object]
) -> list[KernelCall]:
    if program is not None:
        return list(tune.collect(program))
    found: dict[Any, KernelCall] = {}
    for name, run_it in programs():
        describe(name)
        for call in tune.collect(run_it):
            found.setdefault(call.kernel, call)
    return list(found.values())


def _spread(calls: list[KernelCall]) -> list[KernelCall]:
    """All kernels in an order in which every class comes early, however short the time is."""
    order = sorted(range(len(calls)), key=lambda at: (at * 7919) % 1009)
    return [calls[at] for at in order]


def _cells(kind: str, report: ClassReport) -> list[str]:
    ranks = (report.over_all, report.within, report.chosen_by)
    return [
        kind,
        str(report.kernels),
        str(report.samples),
        *["-" if rank is None else f"{rank:.2f}" for rank in ranks],
        "-" if report.ordered is None else f"{report.ordered:.0%}",
        f"{report.lost:.2f} ({report.worst:.2f})",
    ]


def _plot(path: Path, samples: Sequence[Sample], reports: dict[str, ClassReport]) -> Path | None:
    """A scatter plot for each class, in one picture."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return None
    rows = max(-(-len(reports) // _COLUMNS), 1)
    figure, axes = pyplot.subplots(rows, _COLUMNS, figsize=(11, 3.2 * rows), squeeze=False)
    for place, axis in enumerate(axes.flat):
        if place >= len(reports):
            axis.axis("off")
            continue
        kind = list(reports)[place]
        own = [sample for sample in samples if sample.kind == kind]
        for is_default, colour in ((False, "tab:blue"), (True, "tab:red")):
            some = [sample for sample in own if sample.is_default is is_default]
            x, y = [s.predicted for s in some], [s.seconds * 1e6 for s in some]
            axis.scatter(x, y, s=6, color=colour, label="chosen" if is_default else "other plans")
        axis.set(xscale="log", yscale="log", xlabel="predicted, cycles", ylabel="measured, µs")
        rank = reports[kind].over_all
        axis.set_title(f"{kind}: {'-' if rank is None else f'{rank:.2f}'}", fontsize=10)
    if reports:
        axes.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return path
