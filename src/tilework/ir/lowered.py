"""What code generation hands to a renderer and to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass

if TYPE_CHECKING:
    from tilework.ir.node import Node


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """One kernel ready to be rendered.

    Attributes:
        name: The entry point's name: the kind of kernel and a digest, so equal kernels share it.
        linear: The LINEAR statements.
        tasks: Trip count of the THREAD range, an index expression over VARIABLEs.
        scratch_bytes: TILE memory that one worker needs.
        parameters: How many buffers the kernel takes.
        variables: Names of the VARIABLEs it reads, sorted.
        task_cost: Estimated cycles of one task, for choosing threads and chunk sizes.
        plan: The plan it was lowered by, as text.
        threads: How many threads run each task together, on machines with blocks of them.
        resident: How many of its blocks are to share a multiprocessor's registers; 0 where the
            compiler may choose.
        has_fma: Does the machine multiply and add with one rounding?
    """

    name: str
    linear: Node
    tasks: Node
    scratch_bytes: int
    parameters: int
    variables: tuple[str, ...]
    task_cost: int
    plan: str
    threads: int = 1
    resident: int = 0
    has_fma: bool = True
