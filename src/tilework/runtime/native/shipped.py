"""The pool's object code that comes with the package, so that a first process need not compile it.

There is one object for each instruction set, for its baseline, by the digest of its source and of
the compiler that made it; `scripts/make_pool_objects.py` makes them.  With another version of LLVM
nothing is found, and the pool is compiled as kernels are.
"""

from __future__ import annotations

import json
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import Final

#: A part of the package, as the modules beside it are.
FILE: Final = Path(__file__).parent / "pool_objects.json"


def shipped_object(key: str) -> bytes | None:
    """The object code that was made for `key`; None if the package has none."""
    found = _objects(FILE).get(key)
    return None if found is None else b64decode(found)


@cache
def _objects(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return found
