"""Write the pool's object code that comes with the package (`runtime/native/pool_objects.json`).

    python scripts/make_pool_objects.py [--check]

Run it after a change of the pool's source or of the version of llvmlite; a test compares.
"""

from __future__ import annotations

import argparse
import json
import sys
from base64 import b64encode

from tilework.backends.native import compiled_objects
from tilework.runtime.native.shipped import FILE
from tilework.toolchain.llvm import installed_version


def main() -> int:
    """Write the file, or compare it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if the file would change")
    options = parser.parse_args()
    rows = {key: b64encode(data).decode() for key, data in sorted(compiled_objects().items())}
    text = json.dumps({"compiler": installed_version(), "objects": rows}, indent=1) + "\n"
    if options.check:
        return int(not FILE.is_file() or FILE.read_text(encoding="utf-8") != text)
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
