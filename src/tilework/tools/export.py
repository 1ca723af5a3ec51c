"""`tilework export MODEL.onnx FILE`: a compiled model in one file that runs without LLVM.

With `--portable` the file holds graphs, to be compiled by the processor that loads it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tilework.base.text import format_bytes
from tilework.onnx import OnnxRunner
from tilework.tools.console import Console
from tilework.tools.inputs import open_sizes, read_input, seeded_inputs
from tilework.tools.run import parse_sizes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework export`."""
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("file", help="where to write")
    parser.add_argument("--device", help="for which device; the default device if left out")
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=N",
        help="a size that the model leaves open",
    )
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument(
        "--portable", action="store_true", help="for any processor, which compiles on loading"
    )
    parser.add_argument(
        "--key", metavar="FILE", help="sign the file with the bytes of FILE, at least 16"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Capture the model for one set of shapes and write it."""
    console = Console(is_json=arguments.json)
    with console.progress("loading") as progress:
        runner = OnnxRunner(arguments.model, arguments.device)
        given = dict(read_input(pair, runner.inputs) for pair in arguments.input)
        sizes = parse_sizes(arguments.dim)
        inputs = seeded_inputs(runner, given, sizes, 0)
        progress.describe("compiling")
        key = None if arguments.key is None else Path(arguments.key).read_bytes()
        runner.export(inputs, arguments.file, portable=arguments.portable, key=key)
    size = Path(arguments.file).stat().st_size
    shapes = {name: list(array.shape) for name, array in inputs.items()}
    console.result({"file": arguments.file, "size_bytes": size, "inputs": shapes})
    console.text(f"wrote {arguments.file}, {format_bytes(size)}")
    for name, shape in shapes.items():
        console.text(f"  {name}: {shape}")
    for name, (source, axis) in open_sizes(runner.inputs).items():
        if source not in given and name not in sizes and f"{source}.{axis}" not in sizes:
            size = inputs[source].shape[axis]
            console.text(f"  {name} was left open and is {size} in the file; --dim {name}=N")
    return 0
