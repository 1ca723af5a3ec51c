"""Fake cards: memory of their own, interpreted kernels, and failures as they are told."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

import pytest

from tilework.backends import registry
from tilework.backends.contract import Backend, Opened
from tilework.backends.python import InterpretedKernels
from tilework.base.clock import WaitLimit
from tilework.base.errors import DeviceError, DeviceLostError, DeviceTimeoutError
from tilework.engine.device import Device
from tilework.runtime.buffer import Buffer
from tilework.runtime.driver import Command, Copy, Probe
from tilework.runtime.drivers.python import PythonDriver
from tilework.runtime.registry import DeviceName, parse_device_name


@dataclass
class Cards:
    """What the cards do; a test changes it before or after they are opened."""

    #: Cards whose copies to the host change a byte.
    lossy: set[int] = field(default_factory=set)
    #: (from, to): links that are there.
    links: set[tuple[int, int]] = field(default_factory=set)
    #: Links whose question fails.
    broken: set[tuple[int, int]] = field(default_factory=set)
    #: (card, number of the command): what fails, and what never ends.
    fails: tuple[int, int] | None = None
    hangs: tuple[int, int] | None = None
    commands: dict[int, int] = field(default_factory=dict)
    peer_copies: list[tuple[str, int]] = field(default_factory=list)

    def names(self, count: int) -> tuple[str, ...]:
        return tuple([f"CARD:{number}" for number in range(count)])

    def start(self) -> None:
        """Count commands from here on."""
        self.commands.clear()


class CardDriver(PythonDriver):
    """One card."""

    def __init__(self, number: int, cards: Cards) -> None:
        super().__init__()
        self.number = number
        self.cards = cards
        self.target = replace(self.target, peer_group="card")
        self.is_stuck = False

    def copy_in(self, target: Buffer, source: memoryview) -> None:
        self._count()
        super().copy_in(target, source)

    def copy_out(self, source: Buffer, target: memoryview) -> None:
        self._count()
        super().copy_out(source, target)
        if self.number in self.cards.lossy and target.nbytes:
            target.cast("B")[0] ^= 1

    def submit(self, commands: Sequence[Command]) -> int:
        for command in commands:
            self._count()
            if isinstance(command, Copy):
                self.cards.peer_copies.append((self.name, command.source.size_bytes))
        return super().submit(commands)

    def wait(self, ticket: int, limit: WaitLimit) -> None:
        if self.is_stuck:
            raise DeviceTimeoutError(f"{self.name}: no progress", got=f"{limit}")
        super().wait(ticket, limit)

    def can_copy_from(self, other: CardDriver) -> bool:
        link = (other.number, self.number)
        if link in self.cards.broken:
            raise DeviceError(f"{self.name}: the link does not answer")
        return link in self.cards.links

    def _count(self) -> None:
        done = self.cards.commands.get(self.number, 0)
        self.cards.commands[self.number] = done + 1
        if self.cards.fails == (self.number, done):
            raise DeviceLostError(f"{self.name}: it fell off the bus")
        if self.cards.hangs == (self.number, done):
            self.is_stuck = True


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cards]:
    """Cards by the names CARD, CARD:1, ..."""
    made = Cards()

    def open_card(name: DeviceName) -> Opened:
        driver = CardDriver(name.index, made)
        driver.name = str(name)
        return Opened(driver, InterpretedKernels(driver.target))

    module = ModuleType("tests_fake_cards")
    backend = Backend(
        driver_api=1,
        kind="CARD",
        renderer="INTERPRETER",
        summary="a fake card",
        is_host_memory=False,
        probe=lambda: Probe(device="CARD", is_present=True, is_openable=True),
        open=open_card,
    )
    vars(module)["BACKEND"] = backend
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry._OWN, ("CARD", "INTERPRETER"), module.__name__)
    yield made
    for name in Device.opened():
        if parse_device_name(name).kind == "CARD":
            Device[name].close()
