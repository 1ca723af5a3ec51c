"""Write docs/conformance.md: what each back end does of the behaviour suite.

Usage: `python scripts/write_conformance.py`.  The card is one in software.  The tests of
tests/conformance fail where a case comes out otherwise than the page says.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tilework.backends import cuda
from tilework.engine.device import Device
from tilework.testing.conformance import run_suite
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.cuda_device import emulated_backend

PAGE = Path(__file__).resolve().parents[1] / "docs" / "conformance.md"
DEVICES = ("CPU", "CPU:CLANG", "PYTHON", "CUDA", "NULL")
HEAD = """# What each back end does

Made by `python scripts/write_conformance.py`; do not edit. One suite asks every back end for the
same behaviour: each op with all dtypes that it takes, over numbers that include zeros of both
signs, extremes, infinities and NaN, against the interpreter; then copies, views, order, variables,
leases, faults and limits of the driver. `tilework conformance DEVICE` runs it on a device of yours.

`CUDA` is the card in software that tests use: NVIDIA's compiler and driver are left out, the rest
is real. `NULL` runs nothing, so that it is asked for its contract alone. *Unsupported* is a typed
error that says so. No back end has images.

"""


def main() -> int:
    """Run the suite on each device and write the page; the exit status is 1 where a case fails."""
    vars(cuda)["BACKEND"] = emulated_backend(EmulatedCuda(cards=8))
    found = {device: {row.name: row for row in run_suite(device)} for device in DEVICES}
    for device in Device.opened():
        Device[device].close()
    lines = [f"| case | {' | '.join(DEVICES)} |", f"| --- |{' --- |' * len(DEVICES)}"]
    for name in found[DEVICES[0]]:
        cells = " | ".join(found[device][name].status for device in DEVICES)
        lines.append(f"| {name} | {cells} |")
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    failed = [row for rows in found.values() for row in rows.values() if row.status == "failed"]
    for row in failed:
        print(f"{row.name}: {row.detail}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
