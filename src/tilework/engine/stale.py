"""Memory of a result that is no longer what it says: every access raises."""

from __future__ import annotations

from typing import Any

from tilework.base.errors import StaleOutputError
from tilework.runtime.buffer import Buffer


class StaleBuffer(Buffer):
    """Takes the place of a buffer whose contents were superseded.

    Args:
        device: where it was.
        size_bytes: how large it was.
        reason: the first line of the error.
        advice: what to do instead.
    """

    __slots__ = ("_advice", "_reason")

    def __init__(self, device: str, size_bytes: int, reason: str, advice: str) -> None:
        self._memory = None
        self.device = device
        self.size_bytes = size_bytes
        self.offset_bytes = 0
        self.base = None
        self._reason = reason
        self._advice = advice

    @property
    def memory(self) -> Any:
        """Raises: StaleOutputError."""
        raise StaleOutputError(self._reason, try_=self._advice)

    @property
    def address(self) -> int:
        """Raises: StaleOutputError."""
        raise StaleOutputError(self._reason, try_=self._advice)

    @property
    def lease(self) -> Any:
        """Raises: StaleOutputError."""
        raise StaleOutputError(self._reason, try_=self._advice)


def ruined(buffer: Buffer) -> StaleBuffer:
    """Return what takes the place of a buffer that a failed run may have written a part of."""
    return StaleBuffer(
        buffer.device,
        buffer.size_bytes,
        "tensor: a run that was writing to it in place has failed, so its contents are undefined",
        "make it anew from data that is known; reads before the failed run are not affected",
    )
