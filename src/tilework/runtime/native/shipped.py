"""The pool's object code that comes with the package, so that a first process need not compile it.

There is one object for each instruction set, for its baseline, by the digest of its source and of
the compiler that made it; `scripts/make_pool_objects.py` makes them, and writes down which compiler
that was.  With another version of it nothing is found, and the pool is compiled as kernels are.
"""

from __future__ import annotations

import json
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import Any, Final

#: A part of the package, as the modules beside it are.
FILE: Final = Path(__file__).parent / "pool_objects.json"


def shipped_object(key: str) -> bytes | None:
    """The object code that was made for `key`; None if the package has none."""
    found = _content(FILE)["objects"].get(key)
    return None if found is None else b64decode(found)


def shipped_compiler() -> str:
    """The version of the compiler that made what the package has; "" if it has nothing."""
    found: str = _content(FILE)["compiler"]
    return found


@cache
def _content(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {"compiler": "", "objects": {}}
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
