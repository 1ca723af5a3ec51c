"""`make demo`, or `tilework demo`: read a page, then train."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tilework.base.errors import DeviceError
from tilework.base.text import format_seconds
from tilework.tools.console import Console
from tilework.tools.demo import digits, learn, plot, recognise

#: What the small digits must reach.
LEAST_ACCURACY = {"digits": 0.98, "mnist": 0.95}
_EPOCHS = {"digits": 30, "mnist": 5}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework demo`."""
    parser.add_argument("--data", choices=["digits", "mnist"], default="digits")
    parser.add_argument("--only", choices=["read", "train"], help="one of the two parts")
    parser.add_argument("--epochs", type=int, help="of the training")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    parser.add_argument(
        "--output", type=Path, default=Path("demo_output"), help="where plot and downloads go"
    )
    parser.add_argument(
        "--store-expected", type=Path, metavar="FILE", help="write ONNX Runtime's results and stop"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Run both parts; the exit status is 1 where the network does not learn well enough."""
    console = Console(is_json=arguments.json)
    folder: Path = arguments.output / "downloads"
    if arguments.store_expected:
        recognise.store_expected(folder, arguments.store_expected)
        console.text(f"wrote {arguments.store_expected}")
        return 0
    document: dict[str, Any] = {}
    if arguments.only != "train":
        console.title("1. Reading a photographed page")
        document["read"] = recognise.read_page(folder, console).figures
    if arguments.only != "read":
        console.title("\n2. Learning to read digits")
        document["train"] = _train(arguments, folder, console)
    arguments.output.mkdir(parents=True, exist_ok=True)
    report = arguments.output / "demo.json"
    report.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    console.result(document)
    return 0


def _train(arguments: argparse.Namespace, folder: Path, console: Console) -> dict[str, Any]:
    with console.progress("fetching digits"):
        data = digits.load(arguments.data, folder)
    epochs = arguments.epochs or _EPOCHS[arguments.data]
    recipe = learn.Recipe(seed=arguments.seed, epochs=epochs)
    console.text(
        f"{data.name}: {len(data.train_classes)} to learn from, {len(data.test_classes)} to test"
    )
    with console.progress("compiling", total=epochs) as progress:

        def show(epoch: int, loss: float, accuracy: float) -> None:
            progress.advance(1, f"loss {loss:.4f}, accuracy {100 * accuracy:.2f} %")

        _, history = learn.train(data, recipe, show)
    picture = arguments.output / f"training_{arguments.data}.png"
    plot.save_plot(history, data.name, picture)
    accuracy = history.accuracies[-1]
    console.table(
        "",
        ["epochs", "loss", "test accuracy", "time in all", "time per step"],
        [
            [
                str(epochs),
                f"{history.losses[-1]:.4f}",
                f"{100 * accuracy:.2f} %",
                format_seconds(history.seconds),
                format_seconds(history.step_seconds),
            ]
        ],
    )
    console.text(f"plot: {picture}")
    least = LEAST_ACCURACY[arguments.data]
    if accuracy < least and arguments.epochs is None:
        raise DeviceError(
            "demo: the network did not learn what it should",
            got=f"{100 * accuracy:.2f} %",
            expected=f"at least {100 * least:.0f} %",
        )
    return {
        "data": data.name,
        "losses": history.losses,
        "accuracies": history.accuracies,
        "seconds": history.seconds,
        "step_s": history.step_seconds,
        "plot": str(picture),
    }
