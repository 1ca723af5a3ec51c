"""What every renderer for blocks of threads must define, checked when its class is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from tilework.base.errors import RenderError, VerifyError
from tilework.ir.ops.index import Unit
from tilework.ir.uniform import divergent_barriers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.ir.lowered import LoweredKernel

#: The units whose numbers a thread must be able to ask for.
_UNITS: Final = (Unit.THREAD, Unit.WARP, Unit.LOCAL)


class BlockRenderer:
    """A renderer whose kernels are run by blocks of threads.

    A class that lacks a coordinate or a barrier would write kernels in which all threads do the
    same work, or do not wait for each other: it is refused as it is made.

    Attributes:
        coordinates: The text of the number of a block (THREAD), and of a thread's in its block
            along WARP and LOCAL; `{local}` stands for how many threads LOCAL has.
        barrier: The statement at which all threads of a block wait for each other.

    Raises: RenderError when a subclass is made that does not define them.
    """

    coordinates: ClassVar[Mapping[Unit, str]] = {}
    barrier: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Refuse a class without coordinates or without a barrier."""
        super().__init_subclass__()
        missing = [unit.value for unit in _UNITS if not cls.coordinates.get(unit, "").strip()]
        if missing:
            raise RenderError(
                f"{cls.__name__}: a renderer for blocks of threads has a thread's numbers",
                got=f"nothing for {', '.join(missing)}",
                expected="`coordinates` with a text for each of THREAD, WARP and LOCAL",
            )
        if not cls.barrier.strip(" ;"):
            raise RenderError(
                f"{cls.__name__}: a renderer for blocks of threads has a barrier",
                got=repr(cls.barrier),
                expected="`barrier`, the statement at which all threads of a block wait",
            )


def check_barriers(kernel: LoweredKernel) -> None:
    """Check that all threads of a block reach each of its barriers.

    Raises: VerifyError for a barrier inside of a loop or IF that depends on the thread.
    """
    for node, message in divergent_barriers(kernel.linear.src):
        raise VerifyError("verify: a barrier that not all threads reach", node=node, got=message)
