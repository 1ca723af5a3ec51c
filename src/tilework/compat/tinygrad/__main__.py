"""`python -m tilework.compat.tinygrad SCRIPT [arguments]`; `-m MODULE` and `-c TEXT` too."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Final

from tilework.compat.tinygrad.hook import install

USAGE: Final = "usage: python -m tilework.compat.tinygrad (SCRIPT | -m MODULE) [arguments ...]\n"


def main(arguments: list[str]) -> int:
    """Run a program as `python` would, with `tinygrad` served by tilework.

    Args:
        arguments: the script, or -m and a module; then what the program gets.

    Returns:
        2 if there is nothing to run; the program's own exit ends the process else.
    """
    is_module = arguments[:1] == ["-m"]
    rest = arguments[1:] if is_module else arguments
    if not rest or (rest[0].startswith("-") and not is_module):
        wants_help = rest[:1] in (["-h"], ["--help"])
        (sys.stdout if wants_help else sys.stderr).write(USAGE)
        return 0 if wants_help else 2
    install()
    sys.argv = list(rest)
    if is_module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return 0
    script = Path(rest[0])
    if not script.exists():
        sys.stderr.write(f"{script}: there is no such file\n")
        return 2
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
