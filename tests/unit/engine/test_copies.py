"""Plans of copies: the route, what it costs, and that a copy does what its plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tilework.base.errors import ShapeError
from tilework.engine.copies import Route, copy_between, explain_copy, plan_copy
from tilework.engine.device import Device
from tilework.runtime.driver import Copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.runtime.buffer import Buffer

DATA = bytes(range(64))


class Card:
    """A device whose memory the host cannot see; it counts each movement of bytes."""

    is_host_memory = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.driver = self
        self.last_ticket = 0
        self.moved: list[int] = []

    def buffer(self, data: bytes) -> Buffer:
        made = Device["CPU"].allocate(len(data))
        made.as_memoryview()[:] = data
        return made

    def copy_in(self, target: Buffer, source: memoryview) -> None:
        self.moved.append(source.nbytes)
        target.as_memoryview()[:] = source.cast("B")

    def copy_out(self, source: Buffer, target: memoryview) -> None:
        self.moved.append(target.nbytes)
        target.cast("B")[:] = source.as_memoryview()

    def submit(self, commands: Sequence[Any]) -> int:
        for command in commands:
            assert isinstance(command, Copy)
            assert not command.target.overlaps(command.source)
            self.moved.append(command.source.size_bytes)
            command.target.as_memoryview()[:] = bytes(command.source.as_memoryview())
        return 1


def host(data: bytes) -> Buffer:
    made = Device["CPU"].allocate(len(data))
    made.as_memoryview()[:] = data
    return made


A, B = Card("A"), Card("B")
ROUTES = {
    "upload": (A, "CPU", Route.UPLOAD, 1, 0),
    "download": ("CPU", A, Route.DOWNLOAD, 1, 0),
    "one device": (A, A, Route.DEVICE, 1, 0),
    "two devices": (A, B, Route.STAGED, 2, 64),
    "host": ("CPU", "PYTHON", Route.HOST, 1, 0),
}


def opened(which: Any) -> Any:
    return Device[which] if isinstance(which, str) else which


@pytest.mark.parametrize("name", ROUTES)
def test_EXE_11_a_copy_moves_what_its_plan_says(name: str) -> None:
    to, of, route, transfers, staging = ROUTES[name]
    target_device, source_device = opened(to), opened(of)
    target, source = host(bytes(64)), host(DATA)
    plan = plan_copy(target_device, target, source_device, source)
    assert (plan.route, plan.transfers, plan.staging_bytes) == (route, transfers, staging)
    assert not plan.overlaps
    for card in (A, B):
        card.moved.clear()
    copy_between(target_device, target, source_device, source)
    assert bytes(target.as_memoryview()) == DATA
    counted = A.moved + B.moved
    assert counted == [] if route is Route.HOST else counted == [64] * transfers


@pytest.mark.parametrize("name", ROUTES)
def test_EXE_11_the_plan_is_one_line_of_text(name: str) -> None:
    to, of, route, transfers, _ = ROUTES[name]
    text = str(plan_copy(opened(to), host(bytes(64)), opened(of), host(DATA)))
    assert "\n" not in text
    assert str(route) in text
    assert f"{transfers} transfer" in text
    assert opened(to).name in text


def test_EXE_11_explain_copy_moves_nothing() -> None:
    target, source = host(bytes(64)), host(DATA)
    text = explain_copy(target, source)
    assert text.startswith("64 B, CPU to CPU: within the memory of the host; 1 transfer")
    assert bytes(target.as_memoryview()) == bytes(64)


@pytest.mark.parametrize("device", ["CPU", "A"])
@pytest.mark.parametrize(("to", "of"), [(0, 8), (8, 0), (0, 0), (5, 6), (40, 1)])
def test_EXE_11_parts_of_one_memory_that_overlap_are_copied_as_they_were(
    device: str, to: int, of: int
) -> None:
    where = A if device == "A" else Device["CPU"]
    base = host(DATA)
    target, source = base.view(to, 24), base.view(of, 24)
    plan = plan_copy(where, target, where, source)  # type: ignore[arg-type]
    assert plan.overlaps == (abs(to - of) < 24)
    copy_between(where, target, where, source)  # type: ignore[arg-type]
    expected = bytearray(DATA)
    expected[to : to + 24] = DATA[of : of + 24]
    assert bytes(base.as_memoryview()) == bytes(expected)


def test_EXE_11_nothing_takes_no_transfer() -> None:
    plan = plan_copy(A, host(b""), B, host(b""))  # type: ignore[arg-type]
    assert (plan.route, plan.transfers, plan.sync_points) == (Route.NOTHING, 0, ())


def test_buffers_of_two_sizes_are_refused() -> None:
    with pytest.raises(ShapeError, match="differ in size"):
        explain_copy(host(bytes(8)), host(bytes(9)))
