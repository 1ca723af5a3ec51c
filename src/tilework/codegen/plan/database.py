"""Tuned plans, kept by the structure of kernels and by target; who finds one here need not search.

    record = find_record(kernel, target)       # None, or what `tune` has found so far
    put_record(kernel, target, record)

Plans refer to ranges by number, so a record belongs to exactly one kernel; a plan that is not legal
(any more) is refused by `check`, and the cost model's choice takes its place.  Under
`Settings.deterministic` no tuned plan is used: it may add in another order.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tilework.base import settings
from tilework.base.diskcache import DiskCache
from tilework.base.errors import PlanError
from tilework.base.hashing import digest as digest_text
from tilework.base.records import dataclass, field
from tilework.codegen.plan.serialise import FORMAT, plan_from_json, plan_to_json
from tilework.codegen.plan.shipped import shipped_plan
from tilework.ir.digest import digest

if TYPE_CHECKING:
    from pathlib import Path

    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

_SHARE_OF_CACHE: Final = (1, 16)  # of the disk caches together


@dataclass(slots=True)
class Record:
    """What is known of the plans of one kernel.

    Attributes:
        plan: The best plan; None where that is the cost model's choice.
        seconds: What it takes.
        default_seconds: What the cost model's choice takes.
        tried: Digests of all plans that were measured.
        is_done: Whether no neighbour of the best plan is left to be measured.
    """

    plan: AnyPlan | None
    seconds: float
    default_seconds: float
    tried: set[str] = field(default_factory=set)
    is_done: bool = False


def plan_digest(plan: AnyPlan) -> str:
    """A short name for a plan, the same in every process."""
    return digest_text(json.dumps(plan_to_json(plan), sort_keys=True))[:16]


def record_to_bytes(record: Record) -> bytes:
    """A record as it is kept on disk."""
    plain = {
        "plan": None if record.plan is None else plan_to_json(record.plan),
        "seconds": record.seconds,
        "default_seconds": record.default_seconds,
        "tried": sorted(record.tried),
        "is_done": record.is_done,
    }
    return json.dumps(plain, sort_keys=True).encode()


def record_from_bytes(raw: bytes) -> Record:
    """The record that `record_to_bytes` wrote.

    Raises:
        PlanError: The data has another form, or its plan another format.
    """
    try:
        plain: Any = json.loads(raw)
        plan = plain["plan"]
        return Record(
            None if plan is None else plan_from_json(plan),
            float(plain["seconds"]),
            float(plain["default_seconds"]),
            {str(name) for name in plain["tried"]},
            plain["is_done"] is True,
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError("plan: the record is malformed", got=f"{raw!r:.200}") from error


class PlanDatabase:
    """The records below one folder.  What was read once is kept in memory."""

    def __init__(self, folder: Path | None, size_limit_bytes: int) -> None:
        self._disk = DiskCache(folder, size_limit_bytes, "plan")
        self._known: dict[str, Record | None] = {}
        #: Most users never tune: then nothing is looked for.
        self._is_empty = folder is None or not folder.is_dir()

    def find(self, kernel: Node, target: TargetSpec) -> Record | None:
        """Return what is known of a kernel's plans, or None."""
        if self._is_empty:
            return None
        key = _key(kernel, target)
        if key not in self._known:
            raw = self._disk.get(key)
            self._known[key] = None if raw is None else _read(raw)
        return self._known[key]

    def put(self, kernel: Node, target: TargetSpec, record: Record) -> None:
        """Keep a record, instead of what was known before."""
        self._is_empty = False
        key = _key(kernel, target)
        self._known[key] = record
        self._disk.put(key, record_to_bytes(record))


def _read(raw: bytes) -> Record | None:
    try:
        return record_from_bytes(raw)
    except PlanError:
        return None  # of another version


def _key(kernel: Node, target: TargetSpec) -> str:
    changes = settings.current().key(settings.Affects.CODE)
    return f"plan {FORMAT};{target.key()};{changes!r};{digest(kernel).hex()}"


@lru_cache(maxsize=8)
def _database(folder: Path | None, size_limit_bytes: int) -> PlanDatabase:
    return PlanDatabase(folder and folder / "plans", size_limit_bytes)


def database() -> PlanDatabase:
    """The database below the cache folder of the settings in force."""
    current = settings.current()
    share, whole = _SHARE_OF_CACHE
    return _database(current.cache_dir, current.cache_size_bytes * share // whole)


def tuned_plan(kernel: Node, target: TargetSpec) -> AnyPlan | None:
    """The plan to take instead of the cost model's choice: what tuning found, or what is shipped.

    None under `deterministic`, since such a plan may add in another order.
    """
    if settings.current().deterministic:
        return None
    record = database().find(kernel, target)
    return shipped_plan(kernel, target) if record is None else record.plan


def record_key(kernel: Node, target: TargetSpec) -> str:
    """What a record adds to the key of a kernel's code; empty where there is none.

    Shipped plans add nothing: they are part of the compiler, which all keys name.
    """
    if settings.current().deterministic:
        return ""
    record = database().find(kernel, target)
    if record is None:
        return ""
    return f"plan {'default' if record.plan is None else plan_digest(record.plan)};"
