"""Make the plans that come with the package, for the machine that this runs on.

    python scripts/make_plans.py [--device CUDA] [--seconds 600] [--only TEXT] [--confirm | --check]

Tunes the kernels of common programs in a database of its own (below build/plans, so that it can be
stopped and goes on), then compares each plan found with the default again, in turns, and writes
those that are faster by the margin both times.  Run it on a quiet machine, again and again until it
says that nothing is left.  `--check` tells how many of the shipped plans' kernels still exist.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tilework.base import settings
from tilework.base.errors import TileworkError
from tilework.codegen.alternatives import alternatives
from tilework.codegen.plan import shipped
from tilework.codegen.plan.database import database
from tilework.engine import tune
from tilework.engine.device import Device
from tilework.engine.kernel_bench import KernelBench
from tilework.ir.digest import digest
from tilework.tools.card_programs import card_programs
from tilework.tools.common import programs
from tilework.tools.models import models

if TYPE_CHECKING:
    from tilework.engine.steps import KernelCall
    from tilework.target.spec import TargetSpec

#: A plan must be faster by this much, in each of so many comparisons.
MARGIN, TIMES = 1.08, 2
ROOT = Path(__file__).parent.parent


def collect(only: str, device: str) -> dict[KernelCall, int]:
    """The kernels of all programs of a device, each once, with how often a program launches it."""
    found: dict[object, tuple[KernelCall, int]] = {}
    named = card_programs() if device.startswith("CUDA") else (*models(), *programs())
    for name, program in named:
        if only not in name:
            continue
        for call, count in tune.collect(program).items():
            known = found.get(call.kernel)
            if known is None or known[1] < count:
                found[call.kernel] = (call, count)
    return dict(found.values())


def confirm(
    calls: dict[KernelCall, int], until: float
) -> tuple[dict[str, shipped.Shipped], list[str]]:
    """The plans that are faster than the default again, and what could not be looked at in time."""
    kept: dict[str, shipped.Shipped] = {}
    left: list[str] = []
    for call in calls:
        device = Device[call.device]
        plans = None if call.kernel is None else alternatives(call.kernel, device.spec)
        record = None if plans is None else database().find(plans.sink, device.spec)
        if plans is None or record is None or record.plan is None:
            continue
        if time.perf_counter() > until:
            left.append(plans.name)
            continue
        bench = KernelBench(call, plans.sink, device)
        gains = []
        try:
            for _ in range(TIMES):
                default, tuned = bench.compared(plans.default, record.plan)
                gains.append(default / tuned)
        except TileworkError:
            continue
        finally:
            bench.close()
        key = digest(plans.sink).hex()
        kept[key] = shipped.Shipped(plans.name, record.plan, min(gains))
        print(f"{min(gains):6.2f}  {plans.kind:12} {plans.name}")
    return {key: row for key, row in kept.items() if row.gain >= MARGIN}, left


def check(calls: dict[KernelCall, int], target: TargetSpec) -> int:
    """How many shipped plans belong to kernels that still exist."""
    keys = {digest(call.kernel).hex() for call in calls if call.kernel is not None}
    path = shipped.FOLDER / f"{shipped.machine_class(target)}.json"
    if not path.is_file():
        print(f"there are no plans for {shipped.machine_class(target)}")
        return 1
    plans = json.loads(path.read_text(encoding="utf-8"))["plans"]
    known = sum(key in keys for key in plans)
    print(f"{known} of {len(plans)} plans belong to kernels of today")
    return int(known * 2 < len(plans))


def main() -> int:
    """Search, confirm, or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="CPU", help="whose kernels are tuned")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to measure")
    parser.add_argument("--only", default="", help="only programs whose name contains this")
    parser.add_argument("--confirm", action="store_true", help="do not search any further")
    parser.add_argument("--check", action="store_true", help="only look whether they are current")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "plans")
    options = parser.parse_args()
    start = time.perf_counter()
    with settings.override(cache_dir=options.folder, dev=options.device):
        target = Device[options.device].spec
        calls = collect(options.only, options.device)
        if options.check:
            return check(calls, target)
        if not options.confirm:
            spent = time.perf_counter() - start
            tuner = tune.Tuner(max(options.seconds - spent, 1.0))
            rows = tuner.run(calls)
            for row in rows:
                gain = row.default_seconds / row.seconds
                print(f"{gain:6.2f}  {row.kind:12} {row.name}, {row.tried} plans")
            for name, error in tuner.failed:
                print(f"{name} was not tuned: {error}")
            print(f"{len(calls)} kernels collected in {spent:.0f} s")
            print(f"{sum(row.is_done for row in rows)} of {len(calls)} kernels are through")
            return 0
        kept, left = confirm(calls, start + options.seconds)
    if left:
        print(f"{len(left)} plans were not looked at: more --seconds")
        return 1
    document = shipped.plans_to_json(kept, target, MARGIN)
    shipped.FOLDER.mkdir(exist_ok=True)
    path = shipped.FOLDER / f"{shipped.machine_class(target)}.json"
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{len(kept)} plans in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
