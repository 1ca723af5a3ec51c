"""Names of instruction-set features, what each implies, and the levels built from them.

The names are LLVM's, because a spec's features go into its feature string; a name that is not in
these tables is refused before it reaches LLVM, which aborts the process or ignores it in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tilework.base.errors import UnsupportedError

X86_64: Final = "x86-64"
AARCH64: Final = "aarch64"

# Each feature with what it needs; `normalize` drops a feature whose needs are missing, as happens
# in virtual machines that hide some bits of a processor.
_X86_IMPLIES: Final[Mapping[str, tuple[str, ...]]] = {
    "sse": (),
    "sse2": ("sse",),
    "cx8": (),
    "fxsr": (),
    "cmov": (),
    "sse3": ("sse2",),
    "ssse3": ("sse3",),
    "sse4.1": ("ssse3",),
    "sse4.2": ("sse4.1",),
    "popcnt": (),
    "cx16": ("cx8",),
    "sahf": (),
    "movbe": (),
    "lzcnt": (),
    "bmi": (),
    "bmi2": (),
    "xsave": (),
    "avx": ("sse4.2", "xsave"),
    "f16c": ("avx",),
    "fma": ("avx",),
    "avx2": ("avx",),
    "avxvnni": ("avx2",),
    "avxvnniint8": ("avx2",),
    "avxifma": ("avx2",),
    "avxneconvert": ("avx2",),
    "gfni": ("sse2",),
    "avx512f": ("avx2", "f16c", "fma"),
    "avx512cd": ("avx512f",),
    "avx512bw": ("avx512f",),
    "avx512dq": ("avx512f",),
    "avx512vl": ("avx512f",),
    "avx512ifma": ("avx512f",),
    "avx512vbmi": ("avx512bw",),
    "avx512vbmi2": ("avx512bw",),
    "avx512bitalg": ("avx512bw",),
    "avx512vnni": ("avx512f",),
    "avx512vpopcntdq": ("avx512f",),
    "avx512bf16": ("avx512bw",),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"),
    "amx-tile": (),
    "amx-int8": ("amx-tile",),
    "amx-bf16": ("amx-tile",),
}

_AARCH64_IMPLIES: Final[Mapping[str, tuple[str, ...]]] = {
    "fp-armv8": (),
    "neon": ("fp-armv8",),
    "crc": (),
    "lse": (),
    "rdm": ("neon",),
    "fullfp16": ("fp-armv8",),
    "fp16fml": ("fullfp16", "neon"),
    "dotprod": ("neon",),
    "bf16": ("neon",),
    "i8mm": ("neon",),
    "sve": ("fullfp16", "neon"),
    "sve2": ("sve",),
}

IMPLIES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    X86_64: _X86_IMPLIES,
    AARCH64: _AARCH64_IMPLIES,
}

_X86_V1: Final = frozenset({"sse", "sse2", "cx8", "fxsr", "cmov"})
_X86_V2: Final = _X86_V1 | {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf"}
_X86_V3: Final = _X86_V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_X86_V4: Final = _X86_V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

# LLVM processor names with the features that each switches on, best first.
CPU_LEVELS: Final[Mapping[str, tuple[tuple[str, frozenset[str]], ...]]] = {
    X86_64: (
        ("x86-64-v4", _X86_V4),
        ("x86-64-v3", _X86_V3),
        ("x86-64-v2", _X86_V2),
        ("x86-64", _X86_V1),
    ),
    AARCH64: (("generic", frozenset({"fp-armv8", "neon"})),),
}


def check_names(isa: str, features: Iterable[str]) -> None:
    """Refuse an instruction set or a feature that has no row here.

    Raises: UnsupportedError with the unknown names.
    """
    table = IMPLIES.get(isa)
    if table is None:
        raise UnsupportedError(
            "target: unknown instruction set", got=isa, expected=f"one of {sorted(IMPLIES)}"
        )
    if unknown := sorted(set(features) - set(table)):
        raise UnsupportedError(f"target: unknown {isa} features", got=", ".join(unknown))


def normalize(isa: str, features: Iterable[str]) -> frozenset[str]:
    """Return the largest subset of `features` in which each one's needs are met."""
    kept = set(features)
    check_names(isa, kept)
    table = IMPLIES[isa]
    while lacking := {name for name in kept if not kept.issuperset(table[name])}:
        kept -= lacking
    return frozenset(kept)


def level_of(isa: str, features: Iterable[str]) -> str:
    """Return the best LLVM processor name that switches on nothing outside `features`.

    Raises: UnsupportedError when even the baseline of the instruction set is not met.
    """
    have = set(features)
    check_names(isa, have)
    for name, needed in CPU_LEVELS[isa]:
        if needed <= have:
            return name
    baseline, needed = CPU_LEVELS[isa][-1]
    raise UnsupportedError(
        f"target: features are below the {isa} baseline",
        got=", ".join(sorted(have)) or "none",
        expected=f"{baseline}: {', '.join(sorted(needed))}",
    )


def missing_features(needed: Iterable[str], available: Iterable[str]) -> tuple[str, ...]:
    """Return what `needed` has and `available` lacks, sorted."""
    return tuple(sorted(set(needed) - set(available)))
