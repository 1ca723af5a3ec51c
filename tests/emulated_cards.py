"""Cards in software as the back end CUDA, for tests of what runs on cards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tilework.backends import cuda
from tilework.engine.device import Device
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.cuda_device import emulated_backend


@contextmanager
def emulated_cards(
    monkeypatch: pytest.MonkeyPatch, cards: int = 1, *, capability: int = 90
) -> Iterator[EmulatedCuda]:
    """Open `CUDA` on so many cards in software while the block runs; then close what is open."""
    library = EmulatedCuda(cards=cards, capability=capability)
    monkeypatch.setattr(cuda, "BACKEND", emulated_backend(library))
    yield library
    for name in Device.opened():
        if name.startswith("CUDA"):
            Device[name].close()
