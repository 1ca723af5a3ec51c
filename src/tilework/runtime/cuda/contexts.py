"""Taking and giving back a card's context, where the card may not let go of it.

    context = take_context(library, ordinal, "CUDA")
    give_context_back(library, ordinal, "CUDA", is_lost=True)

NVIDIA's driver gives a context back only when the kernels in it have ended, also one that is lost,
and gives a process none again after a kernel of it has failed (an illegal address, say): both were
seen on an H200.  So who closes a card that hangs waits for a while only, and whoever opens it
meanwhile, or after a failure, hears that the process must be started again.
"""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Final

from tilework.base.errors import DeviceLostError
from tilework.runtime.bus.cuda import LOST, CudaCallError

if TYPE_CHECKING:
    from tilework.runtime.bus.cuda import CudaLibrary

#: How long whoever closes a lost card waits for a kernel to end.
RELEASE_SECONDS: Final = 30.0
START_AGAIN: Final = "start the process again"
#: Statuses after which NVIDIA's driver does nothing more for the process.
ENDS_PROCESS: Final = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719})
#: By library and card, who still waits for a card that hangs; one for each card at most.
_waiting: Final[dict[tuple[int, int], Thread]] = {}


def take_context(library: CudaLibrary, ordinal: int, name: str) -> int:
    """Return the context of this process on a card.

    Raises: DeviceLostError where it is still being given back, or there will be none.
    """
    waiting = _waiting.get((id(library), ordinal))
    if waiting is not None and waiting.is_alive():
        raise DeviceLostError(
            f"{name}: the card is still busy with a kernel that does not end",
            try_=f"wait, or {START_AGAIN}",
        )
    try:
        return library.context_retain(ordinal)
    except CudaCallError as error:
        if error.code not in LOST:
            raise
        raise DeviceLostError(
            f"{name}: this process can use the card no more, since a kernel has failed",
            got=str(error),
            try_=START_AGAIN,
        ) from error


def give_context_back(library: CudaLibrary, ordinal: int, name: str, *, is_lost: bool) -> None:
    """Give the context back; one that is lost may take its time.

    Raises: DeviceLostError when it is not back in `RELEASE_SECONDS`; it goes when the kernel ends.
    """
    if not is_lost:
        library.context_release(ordinal)
        return

    def release() -> None:
        try:
            library.context_release(ordinal)
        except CudaCallError:  # it failed: there is nothing more to give back
            return

    thread = Thread(target=release, name=f"release of {name}", daemon=True)
    _waiting[id(library), ordinal] = thread
    thread.start()
    thread.join(RELEASE_SECONDS)
    if thread.is_alive():
        raise DeviceLostError(
            f"{name}: the card is still busy with a kernel that does not end",
            got=f"{RELEASE_SECONDS:g} s waited",
            try_=f"wait until it ends, or {START_AGAIN}",
        )
    del _waiting[id(library), ordinal]
