"""`tilework run`: a model's signature, kernels, time per stage, latency, memory and agreement."""

from __future__ import annotations

import argparse
import importlib
import math
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilework.base.errors import UnsupportedError, UserError
from tilework.base.records import asdict, dataclass
from tilework.base.text import format_bytes, format_seconds, plural
from tilework.engine.device import Device
from tilework.onnx import OnnxRunner
from tilework.tools.console import Console
from tilework.tools.inputs import read_input, seeded_inputs, split_pair
from tilework.tools.measure import Latency, Recorder, Stages, recording, time_calls

Array = np.ndarray[Any, Any]
#: Largest difference that counts as agreement, as a share of the reference's range.
TOLERANCE = {"float16": 5e-3, "bfloat16": 2e-2, "float32": 1e-4, "float64": 1e-4}
_SHOWN_KERNELS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework run`."""
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="an .npy, .png or .wav file, or a number; other inputs are made up from --seed",
    )
    parser.add_argument("--device", help="where to run; the default device if left out")
    parser.add_argument("--check", choices=["ort"], help="compare with ONNX Runtime")
    parser.add_argument("--tolerance", type=float, help="largest difference, as share of the range")
    parser.add_argument("--repeat", type=int, default=20, metavar="N", help="calls to time")
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=N",
        help="a size that the model leaves open",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the made-up inputs")
    parser.add_argument("--output", metavar="FILE.npz", help="save the results")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


@dataclass(slots=True)
class Session:
    """A model with its inputs, run once."""

    runner: OnnxRunner
    inputs: dict[str, Array]
    results: dict[str, Array]
    stages: Stages
    events: Recorder


def parse_sizes(pairs: Sequence[str]) -> dict[str, int]:
    """Return the sizes that `--dim` gives.

    Raises:
        UserError: a size is not a whole number above 0.
    """
    found = {}
    for pair in pairs:
        name, value = split_pair(pair, "--dim")
        if not value.isdecimal() or int(value) < 1:
            raise UserError("--dim: a size is a whole number above 0", got=pair)
        found[name] = int(value)
    return found


def arrays_of(results: Mapping[str, Any]) -> dict[str, Array]:
    """Bring results to the host; a sequence becomes one entry per item."""
    arrays: dict[str, Array] = {}
    for name, value in results.items():
        if isinstance(value, list):
            arrays.update({f"{name}[{place}]": item.numpy() for place, item in enumerate(value)})
        elif value is not None:
            arrays[name] = value.numpy()
    return arrays


def open_session(arguments: argparse.Namespace, console: Console) -> Session:
    """Load a model, make its inputs and run it once, timing each stage."""
    stages = Stages()
    with recording() as events, console.progress("opening the device") as progress:
        with stages.measure("open device"):
            Device[Device.canonicalize(arguments.device)]
        progress.describe(f"loading {arguments.model}")
        with stages.measure("load"):
            runner = OnnxRunner(arguments.model, arguments.device)
        progress.describe("preparing weights")
        with stages.measure("weights"):
            runner.prepare()
        given = dict(read_input(pair, runner.inputs) for pair in arguments.input)
        with stages.measure("make inputs"):
            sizes = parse_sizes(arguments.dim)
            inputs = seeded_inputs(runner, given, sizes, arguments.seed)
        progress.describe("compiling and running")
        with stages.measure("first run"):
            results = arrays_of(runner(inputs))
        with stages.measure("second run"):
            results = arrays_of(runner(inputs))
    return Session(runner, inputs, results, stages, events)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; the exit status is 1 where `--check` finds a difference."""
    console = Console(is_json=arguments.json)
    if arguments.repeat < 0:
        raise UserError("--repeat: a count is not negative", got=arguments.repeat)
    if arguments.device is not None:
        Device.canonicalize(arguments.device)
    session = open_session(arguments, console)
    latency = _timed(session, arguments.repeat, console)
    differences = None
    if arguments.check:
        with console.progress("running ONNX Runtime"):
            expected = run_onnx_runtime(arguments.model, session.inputs)
        differences = compare(session.results, expected, arguments.tolerance)
    if arguments.output:
        _save(session.results, arguments.output)
    _report(arguments, session, latency, differences, console)
    return 1 if differences is not None and not all(row["agrees"] for row in differences) else 0


def _save(arrays: Mapping[str, Array], path: str) -> None:
    """Write an .npz file; `numpy.savez` cannot take an output that is called `file`."""
    with zipfile.ZipFile(path, "w") as packed:
        for name, array in arrays.items():
            with packed.open(f"{name.replace('/', '_')}.npy", "w") as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def _timed(session: Session, repeat: int, console: Console) -> Latency | None:
    if repeat == 0:
        return None
    # Inputs stay on the device, so that the figure is that of the model alone.
    tensors = session.runner.place(session.inputs)
    with console.progress("timing", total=repeat) as progress:
        return time_calls(lambda: _call(session.runner, tensors), repeat, progress.advance)


def _call(runner: OnnxRunner, tensors: Mapping[str, Any]) -> None:
    results = runner(tensors)
    runner.wait()
    del results


# --- agreement ----------------------------------------------------------------------------------


def run_onnx_runtime(path: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run a model with ONNX Runtime on the CPU, in the mode that is exact for 8-bit products.

    Raises:
        UnsupportedError: the package `onnxruntime` is not installed.
    """
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UnsupportedError(
            "--check: comparing needs the package `onnxruntime`",
            got=str(error),
            try_="pip install onnxruntime",
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Without it, u8 x s8 products saturate on CPUs that lack VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = {entry.name for entry in session.get_inputs()}
    results = session.run(names, {name: a for name, a in inputs.items() if name in wanted})
    arrays: dict[str, Array] = {}
    for name, value in zip(names, results, strict=True):
        if isinstance(value, list):
            arrays.update({f"{name}[{place}]": item for place, item in enumerate(value)})
        elif value is not None:
            arrays[name] = np.asarray(value)
    return arrays


def compare(
    results: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float | None = None
) -> list[dict[str, Any]]:
    """Return one row per output: the largest difference, the reference's range, the verdict.

    Floats agree within `tolerance` times the range (at least 1); other dtypes must be equal.
    """
    rows = []
    for name, wanted in expected.items():
        got = results.get(name)
        row: dict[str, Any] = {
            "output": name,
            "shape": list(wanted.shape),
            "dtype": str(wanted.dtype),
        }
        if got is None or got.shape != wanted.shape or got.dtype != wanted.dtype:
            found = "nothing" if got is None else f"{got.dtype}{list(got.shape)}"
            rows.append(
                {**row, "difference": math.inf, "range": math.nan, "agrees": False, "got": found}
            )
            continue
        difference, spread = _largest_difference(got, wanted)
        share = TOLERANCE.get(str(wanted.dtype), 0.0) if tolerance is None else tolerance
        limit = share * max(1.0, spread) if wanted.dtype.kind == "f" else share
        rows.append(
            {**row, "difference": difference, "range": spread, "agrees": difference <= limit}
        )
    return rows


def _largest_difference(got: Array, wanted: Array) -> tuple[float, float]:
    if not wanted.size:
        return 0.0, 0.0
    if wanted.dtype.kind != "f":
        both = got.astype(np.float64), wanted.astype(np.float64)
        return float(np.abs(both[0] - both[1]).max()), float(np.ptp(both[1]))
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = b[np.isfinite(b)]
    spread = float(np.ptp(finite)) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
    return float(np.where(np.isnan(difference), np.inf, difference).max()), spread


# --- the report -----------------------------------------------------------------------------------


def _report(
    arguments: argparse.Namespace,
    session: Session,
    latency: Latency | None,
    differences: list[dict[str, Any]] | None,
    console: Console,
) -> None:
    runner, events = session.runner, session.events
    device = Device.canonicalize(arguments.device)
    memory = dict(Device[device].memory_used())
    peaks = runner.peaks(session.inputs)
    kernels = [
        {"name": name, "seconds": seconds} for name, seconds in runner.step_times(session.inputs)
    ]
    document: dict[str, Any] = {
        "model": arguments.model,
        "device": device,
        "opsets": dict(runner.model.opsets),
        "nodes": len(runner.model.graph.nodes),
        "inputs": _signature(session.inputs),
        "outputs": _signature(session.results),
        "kernels": kernels,
        "compiled": sum(not event.cached for event in events.compiled),
        "found_in_cache": sum(event.cached for event in events.compiled),
        "stages_s": {name: round(value, 6) for name, value in session.stages.seconds.items()},
        "compiler_s": {name: round(value, 6) for name, value in _compiler_seconds(events).items()},
        "latency": None if latency is None else latency.to_milliseconds(),
        "memory": memory,
        "peaks": [asdict(peak) for peak in peaks],
        "check": differences,
    }
    console.result(document)
    console.title(f"{arguments.model} on {device}")
    console.text(
        f"{plural(document['nodes'], 'node')}, opset {runner.model.opsets['']}"
        + (f", made by {runner.model.producer}" if runner.model.producer else "")
    )
    _signature_tables(session, console)
    _kernel_table(kernels, console)
    console.text(
        f"{plural(document['compiled'], 'kernel')} compiled in"
        f" {format_seconds(events.compile_seconds)}, {document['found_in_cache']} found in caches"
    )
    rows = [[name, format_seconds(value)] for name, value in session.stages.seconds.items()]
    inner = _compiler_seconds(events).items()
    rows += [[f"  of all that, {name}", format_seconds(value)] for name, value in inner]
    console.table("time per stage", ["stage", "time"], rows)
    if latency is not None:
        figures = [latency.p50, latency.p99, latency.least, latency.most]
        cells = [str(latency.count), *[format_seconds(value) for value in figures]]
        console.table("latency", ["calls", "p50", "p99", "least", "most"], [cells])
    console.table(
        "memory of the device", ["pool", "size"], [[k, format_bytes(v)] for k, v in memory.items()]
    )
    console.table(
        "intermediates and results of a call",
        ["device", "predicted peak", "measured peak"],
        [[row.device, format_bytes(row.predicted), format_bytes(row.measured)] for row in peaks],
    )
    _check_table(differences, console)


def _compiler_seconds(events: Recorder) -> dict[str, float]:
    """The time of the parts of the compiler; toolchains run side by side, and add up."""
    return {**events.pass_seconds(), "toolchain": events.compile_seconds}


def _signature(arrays: Mapping[str, Array]) -> dict[str, dict[str, Any]]:
    return {
        name: {"dtype": str(array.dtype), "shape": list(array.shape)}
        for name, array in arrays.items()
    }


def _signature_tables(session: Session, console: Console) -> None:
    for title, infos, arrays in (
        ("inputs", session.runner.inputs, session.inputs),
        ("outputs", session.runner.outputs, session.results),
    ):
        rows = []
        for info in infos:
            array = arrays.get(info.name)
            used = "" if array is None else f"{array.dtype}{list(array.shape)}"
            rows.append([info.name, str(info).removeprefix(f"{info.name}: "), used])
        console.table(title, ["name", "declared", "here"], rows)


def _kernel_table(kernels: Sequence[Mapping[str, Any]], console: Console) -> None:
    total = sum(row["seconds"] or 0.0 for row in kernels)
    slowest = sorted(kernels, key=lambda row: -(row["seconds"] or 0.0))[:_SHOWN_KERNELS]
    rows = []
    for row in slowest:
        seconds = row["seconds"]
        share = "" if not seconds else f"{100 * seconds / total:.1f} %"
        rows.append([row["name"], "" if seconds is None else format_seconds(seconds), share])
    title = plural(len(kernels), "kernel")
    more = len(kernels) - len(slowest)
    console.table(
        f"{title}, the slowest first" if more else title, ["kernel", "time", "share"], rows
    )


def _check_table(differences: list[dict[str, Any]] | None, console: Console) -> None:
    if differences is None:
        return
    rows = [
        [
            row["output"],
            f"{row['dtype']}{row['shape']}",
            f"{row['difference']:.3g}",
            f"{row['range']:.3g}",
            "agrees" if row["agrees"] else f"differs {row.get('got', '')}".rstrip(),
        ]
        for row in differences
    ]
    console.table(
        "compared with ONNX Runtime",
        ["output", "type", "largest difference", "range", "verdict"],
        rows,
    )


__all__ = ["add_arguments", "compare", "run", "run_onnx_runtime"]
