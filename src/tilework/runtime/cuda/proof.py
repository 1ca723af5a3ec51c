"""Whether a queue of a card does what it is given, before anybody relies on it.

    prove_queue(driver, stream, place)      # a byte is written, read back, and looked at

A card that was lost comes back as a new context with new queues.  It counts as well only when each
of them has done something that can be seen: a context that another library of this process still
holds is as broken as before, and says so here and not at the first result.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Final

from tilework.base.clock import WaitLimit
from tilework.base.errors import DeviceLostError, DeviceTimeoutError
from tilework.runtime.bus.cuda import CudaCallError

if TYPE_CHECKING:
    from tilework.runtime.drivers.cuda import CudaDriver

#: How long a queue may take; other processes may keep the card busy.
PROOF_SECONDS: Final = 60.0
#: Where in a page of pinned memory the bytes come back; a fault's number is before them.
PLACE_BYTES: Final = 32
_SIZE_BYTES: Final = 16
_PATTERN: Final = 0x5A
_NAP_SECONDS: Final = 20e-6


def prove_queue(driver: CudaDriver, stream: int, place: int) -> None:
    """Let a queue fill memory of the card and copy it to the host, and compare.

    Args:
        driver: of the card; its context is current.
        stream: the queue.
        place: the address of 16 bytes of pinned memory of the host.

    Raises: DeviceLostError where nothing comes back in time, or something else.

    Example:
        >>> prove_queue(driver, driver.stream, page.address + PLACE_BYTES)  # doctest: +SKIP
    """
    try:
        _check(driver, stream, place)
    except CudaCallError as error:
        raise _lost(driver, str(error)) from error
    except DeviceTimeoutError as error:
        raise _lost(driver, str(error).splitlines()[0]) from error


def _check(driver: CudaDriver, stream: int, place: int) -> None:
    library = driver.library
    found = (ctypes.c_ubyte * _SIZE_BYTES).from_address(place)
    ctypes.memset(place, 0, _SIZE_BYTES)
    memory = driver.allocate(_SIZE_BYTES)
    mark = driver.marks.take()
    library.fill(memory.address, _PATTERN, _SIZE_BYTES, stream)
    library.copy_to_host(place, memory.address, _SIZE_BYTES, stream)
    library.event_record(mark, stream)
    limit = WaitLimit.of(min(PROOF_SECONDS, driver.wait_seconds))
    turn = limit.start(f"{driver.name}: waiting for the first work of a queue")
    while not library.event_is_done(mark):
        turn.check()
        time.sleep(turn.pause_seconds(_NAP_SECONDS))
    driver.marks.give_back((mark,))
    if bytes(found) != bytes((_PATTERN,)) * _SIZE_BYTES:
        raise _lost(driver, f"the bytes {bytes(found).hex()} came back")


def _lost(driver: CudaDriver, what: str) -> DeviceLostError:
    return DeviceLostError(
        f"{driver.name}: a queue of the card does not do what it is given",
        got=what,
        try_="start the process again; another library of it may hold a context that has failed",
    )
