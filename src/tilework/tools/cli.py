"""The command `tilework` (also `python -m tilework`).

Exit status: 0 all is well; 1 the work failed, or a check found a difference; 2 the command line
or the environment is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tilework.base import log, settings
from tilework.base.errors import SettingsError, TileworkError, UserError
from tilework.base.text import nearest
from tilework.tools.console import print_error

OK, FAILED, USAGE = 0, 1, 2

# name -> (module with `add_arguments` and `run`, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("tilework.tools.run", "run an ONNX model, time it, and compare it with ONNX Runtime"),
    "devices": ("tilework.tools.devices", "list every device, and why one cannot be opened"),
    "doctor": ("tilework.tools.doctor", "check this installation; attach the result to reports"),
    "conformance": ("tilework.tools.conformance", "run the behaviour suite against a device"),
    "explain": ("tilework.tools.explain", "print every compiler stage of a script's kernels"),
    "export": ("tilework.tools.export", "compile a model into one file that runs without LLVM"),
    "bench": ("tilework.tools.bench", "time a model, or built-in kernels, over many calls"),
    "tune": ("tilework.tools.tune", "measure other plans for a script's kernels; keep the best"),
    "demo": ("tilework.tools.demo.command", "read text from a page and train a small network"),
}


class _Parser(argparse.ArgumentParser):
    """Names the closest command where one is misspelt."""

    def error(self, message: str) -> Any:
        hint = ""
        if "invalid choice" in message and "argument command" in message:
            close = nearest(message.split("'")[1], COMMANDS)
            hint = "" if close is None else f"; did you mean `{close}`?"
            message = message.split(" (choose")[0]
        self.exit(USAGE, f"error: {message}{hint}\n  try: {self.prog} --help\n")


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser.  Only the module of `command` is imported, for its arguments."""
    from tilework import __version__

    parser = _Parser(
        prog="tilework", description="Tensor programs and ONNX models to machine code."
    )
    parser.add_argument("--version", action="version", version=f"tilework {__version__}")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a setting for this run, for example --set num_threads=1",
    )
    parser.add_argument("--log", type=int, metavar="LEVEL", help="0 silent to 4 graphs")
    commands = parser.add_subparsers(dest="command", metavar="command", parser_class=_Parser)
    for name, (module, text) in COMMANDS.items():
        child = commands.add_parser(name, help=text, description=text)
        if name == command:
            import_module(module).add_arguments(child)
    return parser


def _changes(arguments: argparse.Namespace) -> dict[str, object]:
    changes: dict[str, object] = {}
    for pair in arguments.set:
        name, sign, value = pair.partition("=")
        if not sign:
            raise UserError("--set: this is not NAME=VALUE", got=pair)
        changes[name.strip()] = value
    if arguments.log is not None:
        changes["log_level"] = arguments.log
    return changes


def _refuse_unknown_variables() -> None:
    unknown = settings.unknown_variables()
    if unknown:
        raise SettingsError(
            f"settings: the environment sets {unknown[0]}, which is not a setting of tilework",
            try_="unset the variable; `tilework doctor` lists the settings",
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    Args:
        argv: the arguments without the program's name; None takes those of the process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in words if word in COMMANDS), None)
    parser = build_parser(command)
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return USAGE
    try:
        if arguments.command != "doctor":  # which lists them among the problems
            _refuse_unknown_variables()
        with settings.override(**_changes(arguments)):
            log.attach()
            return int(import_module(COMMANDS[arguments.command][0]).run(arguments))
    except UserError as error:
        print_error(error)
        return USAGE
    except TileworkError as error:
        print_error(error)
        return FAILED
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; what is still buffered has nowhere to go.
        sys.stderr.close()
        return FAILED
    finally:
        log.detach()


if __name__ == "__main__":
    sys.exit(main())
