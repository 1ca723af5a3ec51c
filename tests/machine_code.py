"""Machine code for NVIDIA's cards, taken apart by NVIDIA's disassembler."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from importlib.util import find_spec
from pathlib import Path


def instructions(cubin: bytes, folder: Path, *, first: bool = False) -> Counter[str]:
    """How often each instruction stands in all functions together, or in the first of a pair."""
    spec = find_spec("nvidia")
    assert spec is not None
    roots = [Path(root) for root in spec.submodule_search_locations or ()]
    (tool,) = [path for root in roots for path in root.rglob("bin/nvdisasm")][:1]
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    text = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout
    if first and "_any" in text.partition(".text.")[0]:
        text = text.partition("_any")[0]
    return Counter(
        re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)", text, re.MULTILINE)
    )
