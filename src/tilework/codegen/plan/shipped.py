"""Plans that come with the package, for kernels of common programs on machines that were measured.

There is one file for each class of machines (`machine_class`), made by `scripts/make_plans.py`.  It
holds only plans that were measured to be faster than the cost model's choice by the margin that it
states, each by the digest of its kernel.  On a machine of another class, and under other settings
of code, nothing is found.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilework.base import settings
from tilework.base.errors import PlanError
from tilework.base.records import dataclass
from tilework.codegen.gpu.plan import has_blocks
from tilework.codegen.plan.serialise import FORMAT, plan_from_json, plan_to_json
from tilework.ir.digest import digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Where the files are.  They are part of the compiler: its stamp in all keys covers them.
FOLDER: Final = Path(__file__).parent / "shipped_plans"


@dataclass(frozen=True, slots=True)
class Shipped:
    """One plan: the kernel's name, and how many times faster than the default it was."""

    name: str
    plan: AnyPlan
    gain: float


def machine_class(target: TargetSpec) -> str:
    """What machines must share for one's plans to be used on the other; a file's name."""
    if has_blocks(target):
        cache = f"l2-{target.l2_bytes >> 20}m"
        return f"{target.name}-{cache}-multiprocessors-{target.unit('grid').count}"
    caches = f"l1-{target.l1_bytes >> 10}k-l2-{target.l2_bytes >> 10}k"
    return f"{target.name}-{target.vector_bits}-{caches}-cores-{target.cores}"


def shipped_plan(kernel: Node, target: TargetSpec) -> AnyPlan | None:
    """The plan that comes with the package for a kernel; None to take the cost model's choice."""
    plans = _load(FOLDER, machine_class(target), _settings_key())
    if not plans:
        return None
    found = plans.get(digest(kernel).hex())
    return None if found is None else found.plan


def _settings_key() -> str:
    return repr(settings.current().key(settings.Affects.CODE))


@lru_cache(maxsize=8)
def _load(folder: Path, name: str, settings_key: str) -> Mapping[str, Shipped]:
    path = folder / f"{name}.json"
    if not path.is_file():
        return {}
    try:
        return plans_from_json(json.loads(path.read_text(encoding="utf-8")), name, settings_key)
    except (PlanError, ValueError):
        return {}  # of another version: the default does


def plans_from_json(document: Any, name: str, settings_key: str) -> dict[str, Shipped]:
    """The plans of a file by the digests of their kernels; none for other machines or settings.

    Raises:
        PlanError: The document has another form or another format.
    """
    try:
        if document["format"] != FORMAT:
            raise PlanError(
                "plan: another format", got=repr(document["format"]), expected=str(FORMAT)
            )
        if document["machine"] != name or document["settings"] != settings_key:
            return {}
        return {
            str(key): Shipped(str(row["name"]), plan_from_json(row["plan"]), float(row["gain"]))
            for key, row in document["plans"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError("plan: the file is malformed", got=f"{document!r:.200}") from error


def plans_to_json(
    plans: Mapping[str, Shipped], target: TargetSpec, margin: float
) -> dict[str, Any]:
    """The document that `plans_from_json` reads, for the settings in force.

    Args:
        plans: By the digests of their kernels.
        target: The machine that they were measured on.
        margin: By how much each was faster at least.
    """
    rows = {
        key: {
            "name": plans[key].name,
            "gain": round(plans[key].gain, 3),
            "plan": plan_to_json(plans[key].plan),
        }
        for key in sorted(plans)
    }
    return {
        "format": FORMAT,
        "machine": machine_class(target),
        "settings": _settings_key(),
        "margin": margin,
        "plans": rows,
    }
