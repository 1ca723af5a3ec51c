"""Write docs/promotion.md: the dtype of each pair of dtypes, and where others have another one.

Usage: `python scripts/write_promotion.py`.  Every entry is compared with NumPy (with ml_dtypes) and
with PyTorch as they are installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilework import dtypes
from tilework.dtypes import DType, promote

PAGE = Path(__file__).resolve().parents[1] / "docs" / "promotion.md"
HEAD = """# Promotion of dtypes

Made by `python scripts/write_promotion.py`; do not edit. The dtype of an operation on two tensors,
by the dtypes of its operands. Python numbers are weak: they take the dtype of the tensor if it can
hold them. Each entry is compared with NumPy (and ml_dtypes) and with PyTorch.

"""
_NAMES = {"fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2"}
KINDS = tuple(dtype for dtype in dtypes.ALL if not dtype.is_packed)


def theirs(library: str) -> tuple[dict[DType, Any], Callable[[Any, Any], Any]]:
    """The dtypes of a library by ours, and its promotion."""
    if library == "torch":
        import torch

        return {d: getattr(torch, _NAMES.get(d.name, d.name)) for d in KINDS}, torch.promote_types
    import ml_dtypes
    import numpy as np

    found = {}
    for dtype in KINDS:
        name = _NAMES.get(dtype.name, dtype.name)
        found[dtype] = np.dtype(getattr(ml_dtypes, name, name))
    return found, np.promote_types


def their_answer(library: str, a: DType, b: DType) -> Any:
    """The dtype that a library gives, or None where it refuses the pair."""
    table, function = theirs(library)
    try:
        return function(table[a], table[b])
    except (TypeError, RuntimeError):
        return None


def reason(library: str, a: DType, b: DType) -> str | None:
    """Why the entry is not that of a library; None where it is, or where no reason is known."""
    table, _ = theirs(library)
    found = their_answer(library, a, b)
    if found == table[promote(a, b)]:
        return None
    kinds = {a, b}
    small = {d for d in kinds if d.name in _NAMES}
    if found is None:
        if small:
            return "it promotes no such pair with floats of 8 bits"
        if library == "torch":
            return "it promotes no unsigned integers of more than 8 bits"
        return "ml_dtypes promotes no such pair with bfloat16"
    if a.is_float and b.is_float:
        return "float16 holds all values of e5m2; no float32 is needed"
    if a.is_float or b.is_float:
        return "an integer takes the dtype of the float, as in PyTorch, whatever their widths"
    if dtypes.uint64 in kinds and any(d.is_signed for d in kinds):
        return "no integer holds both; the default float stands for numbers everywhere"
    return None


def differences(library: str) -> list[tuple[str, DType, DType, Any]]:
    """(reason, a, b, their dtype) of each pair that differs; a difference without reason raises."""
    table, _ = theirs(library)
    found = []
    for place, a in enumerate(KINDS):
        for b in KINDS[place:]:
            answer = their_answer(library, a, b)
            if answer != table[promote(a, b)]:
                why = reason(library, a, b)
                if why is None:
                    raise ValueError(f"{a.name} with {b.name} is {answer} in {library}")
                found.append((why, a, b, answer))
    return found


def page() -> str:
    """Return the page."""
    names = [dtype.name for dtype in KINDS]
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    lines += [
        f"| **{a.name}** | " + " | ".join(promote(a, b).name for b in KINDS) + " |" for a in KINDS
    ]
    narrow = f"NumPy and ml_dtypes {version('ml_dtypes')}"
    for library, title in (("numpy", narrow), ("torch", "PyTorch")):
        rows = differences(library)
        pairs = len(KINDS) * (len(KINDS) + 1) // 2
        lines += ["", f"## Against {title}", ""]
        lines += [f"{pairs - len(rows)} of {pairs} pairs are the same.", ""]
        lines += ["| reason | pairs, with our dtype and theirs |", "| --- | --- |"]
        for why in dict.fromkeys(row[0] for row in rows):
            cells = [
                f"{a.name} with {b.name}: {promote(a, b).name}"
                + ("" if answer is None else f", {str(answer).removeprefix('torch.')}")
                for text, a, b, answer in rows
                if text == why
            ]
            lines.append(f"| {why} | {'; '.join(cells)} |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
