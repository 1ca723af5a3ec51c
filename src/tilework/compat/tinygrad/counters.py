"""`GlobalCounters`: what has been run in this process."""

from __future__ import annotations

import math
from typing import Any

from tilework import Device, counters


class _Counters(type):
    """Attributes of the class itself that are computed when they are read."""

    _kernels_before = 0
    #: Numbers of operations and bytes of memory moved are not counted here, so they are NaN.
    global_ops: float = math.nan
    global_mem: float = math.nan
    #: Kernels are not timed one by one unless they are measured.
    time_sum_s: float = 0.0

    @property
    def kernel_count(cls) -> int:
        """Kernels started since the last `reset`."""
        return counters()["kernels"] - cls._kernels_before

    @property
    def mem_used(cls) -> int:
        """Bytes in use on all open devices."""
        return sum(cls.mem_used_per_device.values())

    @property
    def mem_used_per_device(cls) -> dict[str, int]:
        """Bytes in use by device."""
        return {name: int(Device[name].memory_used()["used"]) for name in Device.opened()}


class GlobalCounters(metaclass=_Counters):
    """Counts since the last `reset`, read as attributes of the class."""

    @staticmethod
    def reset() -> None:
        """Start counting over; memory in use is what it is."""
        kind: Any = type(GlobalCounters)
        kind._kernels_before = counters()["kernels"]


__all__ = ["GlobalCounters"]
