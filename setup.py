"""The build of wheels: pure Python, or with TILEWORK_COMPILED=1 with the hot modules as C.

Which modules are compiled stands in pyproject.toml, below [tool.tilework].  The rest of the build
is setuptools' own.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup

#: Optimising more takes the C compiler twice as long and gains nothing that can be measured.
_LEVEL = "1"
_CACHE = "build/mypy"


def extensions() -> list[Any]:
    """The compiled modules; none unless they are asked for."""
    if os.environ.get("TILEWORK_COMPILED") != "1":
        return []
    from mypyc.build import mypycify

    table = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["tilework"]
    paths = [f"src/tilework/{name}.py" for name in table["compiled"]]
    # All packages are read, so that types do not depend on the order in which modules come.
    packages = ["src/tilework/ir", "src/tilework/codegen", "src/tilework/render"]
    found: list[Any] = mypycify(
        [*packages, "--follow-imports=silent", f"--cache-dir={_CACHE}"],
        only_compile_paths=paths,
        opt_level=_LEVEL,
        debug_level="0",
        multi_file=True,
        group_name="tilework_compiled",
    )
    return found


if __name__ == "__main__":
    setup(ext_modules=extensions())
