"""The spec of the processor that this process runs on, found without any compiler."""

from __future__ import annotations

from functools import lru_cache

from tilework.base.errors import UnsupportedError
from tilework.runtime.hostos import HostOs, host_os
from tilework.target.features import AARCH64, X86_64
from tilework.target.known.cpu import Caches, aarch64_spec, x86_spec
from tilework.target.spec import TargetSpec


def detect(host: HostOs, *, cores: int = 0) -> TargetSpec:
    """Return the spec of `host`'s processor.

    Args:
        host: the operating system to ask.
        cores: threads that programs may use; 0 takes all that the process may run on.

    Raises: UnsupportedError on an instruction set that is neither x86-64 nor aarch64.
    """
    width = cores or host.usable_cores()
    known = Caches()
    found = host.cache_bytes()
    caches = Caches(
        l1_bytes=found.get("L1", known.l1_bytes),
        l2_bytes=found.get("L2", known.l2_bytes),
        l3_bytes=found.get("L3", 0 if found else known.l3_bytes),
    )
    if host.isa() == X86_64:
        return x86_spec(host.cpu_features(), cores=width, caches=caches)
    if host.isa() == AARCH64:
        return aarch64_spec(host.cpu_features(), cores=width, caches=caches)
    raise UnsupportedError(
        "cpu: no code generation for this processor",
        got=host.isa(),
        expected=f"{X86_64} or {AARCH64}",
    )


@lru_cache(maxsize=64)
def host_spec(cores: int = 0) -> TargetSpec:
    """Return `detect` for the running machine, read once per process and width."""
    return detect(host_os(), cores=cores)
