"""Fail if a configuration or text file cannot be read, or does not end in one newline."""

import sys
import tomllib
from pathlib import Path


def fault_of(path: Path) -> str | None:
    """Return what is wrong with one file."""
    data = path.read_bytes()
    if data and (not data.endswith(b"\n") or data.endswith(b"\n\n")):
        return "it does not end in one newline"
    if path.suffix == ".toml":
        try:
            tomllib.loads(data.decode("utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            return str(error)
    if path.suffix in {".yaml", ".yml"} and b"\t" in data:
        return "YAML takes no tabs"
    return None


def main() -> int:
    """Check the files named on the command line; return the exit status."""
    faults = [(name, fault) for name in sys.argv[1:] if (fault := fault_of(Path(name)))]
    for name, fault in faults:
        print(f"{name}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
