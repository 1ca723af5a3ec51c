"""What back ends share whose kernels have plans that `tilework tune` may replace."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tilework.base import settings

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec


def tuned_key(kernel: Node, target: TargetSpec) -> str:
    """What tuning adds to the key of a kernel's code; empty where nothing was ever tuned."""
    if not _may_be_tuned():
        return ""
    from tilework.codegen.plan.database import record_key

    return record_key(kernel, target)


def _may_be_tuned() -> bool:
    """Are there tuned plans, on disk or in this process?  Asked without loading what reads them."""
    folder = settings.current().cache_dir
    is_loaded = "tilework.codegen.plan.database" in sys.modules
    return is_loaded or (folder is not None and (folder / "plans").is_dir())
