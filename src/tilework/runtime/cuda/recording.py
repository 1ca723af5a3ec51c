"""Arguments of launches, and lists of commands as graphs that the card runs by itself."""

from __future__ import annotations

import ctypes
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from tilework.base.errors import StaleHandleError, UnsupportedError
from tilework.base.records import dataclass, replace
from tilework.runtime import reclaim
from tilework.runtime.driver import Command, Copy, Launch, check_commands

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import RLock

    from tilework.runtime.buffer import Buffer
    from tilework.runtime.drivers.cuda import CudaDriver


class Arguments:
    """The arguments of one launch, and the list of pointers to them that CUDA asks for.

    The list ends with a null pointer.  `words` are the arguments of 8 bytes, which come first;
    descriptions of arrays follow, 128 bytes each.
    """

    __slots__ = ("_boxes", "_pointers", "address", "keep", "words")

    def __init__(self, count: int, boxes: Sequence[tuple[int, ...]] = ()) -> None:
        #: Memory beside the buffers that must live as long as the launch may be repeated.
        self.keep: Buffer | None = None
        self.words = (ctypes.c_uint64 * max(count, 1))()
        self._boxes = [(ctypes.c_uint64 * 16)(*box) for box in boxes]
        first = ctypes.addressof(self.words)
        places = [first + 8 * number for number in range(count)]
        places += [ctypes.addressof(box) for box in self._boxes]
        self._pointers = (ctypes.c_void_p * (len(places) + 1))(*places)
        self.address = ctypes.addressof(self._pointers)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer was, without keeping its memory alive."""

    address: int
    size_bytes: int
    is_readonly: bool
    home: object

    @property
    def memory(self) -> Place:
        """What says whether it may be written, and whose it is."""
        return self

    def overlaps(self, other: Place) -> bool:
        """Whether two places share a byte."""
        return (
            self.address < other.address + other.size_bytes
            and other.address < self.address + self.size_bytes
        )


class CudaGraphs:
    """The graphs of one card that are ready to run.  Thread-safe, by the lock of its driver.

    Recordings own them, and may outlive the card: what one drops has then gone already.
    """

    def __init__(self, driver: CudaDriver, lock: RLock) -> None:
        self._driver = driver
        self._lock = lock
        self._instances: dict[int, int] = {}

    def add(self, graph: int, instance: int) -> None:
        """Keep a graph and what runs it; called within the driver's guard."""
        self._instances[graph] = instance

    def drop(self, graph: int) -> None:
        """Give a graph back, unless the device has done so already."""
        with self._lock:
            instance = self._instances.pop(graph, None)
            if instance is not None and not self._driver.lost:
                # Not by the guard: a device that is closing drops what is left of its graphs.
                self._driver.library.context_use(self._driver.context)
                self._release(graph, instance)

    def close(self) -> None:
        """Give all back; called with the context current."""
        for graph, instance in self._instances.items():
            self._release(graph, instance)
        self.forget()

    def forget(self) -> None:
        """They went with the context."""
        self._instances.clear()

    def _release(self, graph: int, instance: int) -> None:
        self._driver.library.graph_release(instance)
        self._driver.library.graph_destroy(graph)


class CudaRecording:
    """Commands as a graph of the card, one after the other.  Not thread-safe."""

    def __init__(self, driver: CudaDriver, commands: Sequence[Command]) -> None:
        self._driver = driver
        self._commands = list(commands)
        self._what = tuple(map(describe, commands))
        self._changed: set[int] = set()
        #: The commands that hold buffers, and whether one runs no blocks, which graphs cannot say.
        self._holding = set(range(len(commands)))
        self._has_empty = self._find_empty()
        self._nodes: dict[int, int] = {}
        self._kept: dict[int, Arguments] = {}
        #: Some buffer must be copied first: then the commands are queued one by one.
        self._is_plain = any(driver.programs.misplaced(command) for command in commands)
        self._graph = driver.library.graph_create()
        self._instance = 0
        try:
            self._build()
            self._instance = driver.library.graph_instantiate(self._graph)
        except BaseException:
            driver.library.graph_destroy(self._graph)
            raise
        driver.graphs.add(self._graph, self._instance)
        drop = partial(driver.graphs.drop, self._graph)
        self._undo = weakref.finalize(self, reclaim.later, drop)

    def _build(self) -> None:
        driver, library, before = self._driver, self._driver.library, 0
        follows_kernel = False
        for number, command in enumerate(self._commands if not self._is_plain else ()):
            if isinstance(command, Launch):
                loaded, function, blocks, arguments = driver.programs.launch_words(command)
                head = loaded.head
                self._kept[number] = arguments
                before = library.graph_add_kernel(
                    self._graph, before, function, max(blocks, 1), head.threads, head.shared,
                    arguments.address, is_early=follows_kernel and head.waits,
                )  # fmt: skip
                follows_kernel = driver.starts_early
            elif isinstance(command, Copy):
                before = library.graph_add_copy(
                    self._graph, before,
                    driver.address_of(command.target), driver.address_of(command.source),
                    command.target.size_bytes, driver.context,
                )  # fmt: skip
                follows_kernel = False
            else:
                raise UnsupportedError(f"{driver.name}: no timelines", got=repr(command))
            self._nodes[number] = before

    def set_buffer(self, command: int, slot: int, buffer: Buffer) -> None:
        """Give launch number `command` another buffer (a copy: slot 0 target, 1 source)."""
        old = self._commands[command]
        if isinstance(old, Launch):
            buffers = (*old.buffers[:slot], buffer, *old.buffers[slot + 1 :])
            self._replace(command, Launch(old.kernel, buffers, old.variables, old.grid))
        elif isinstance(old, Copy):
            pair = (buffer, old.source) if slot == 0 else (old.target, buffer)
            self._replace(command, Copy(*pair))

    def set_variable(self, command: int, slot: int, value: int) -> None:
        """Give launch number `command` another value of a variable."""
        old = self._commands[command]
        if isinstance(old, Launch):
            values = (*old.variables[:slot], value, *old.variables[slot + 1 :])
            self._replace(command, Launch(old.kernel, old.buffers, values, old.grid))

    def set_grid(self, command: int, grid: tuple[int, ...]) -> None:
        """Give launch number `command` another number of blocks."""
        old = self._commands[command]
        if isinstance(old, Launch):
            self._replace(command, Launch(old.kernel, old.buffers, old.variables, grid))

    def submit(self) -> int:
        """Start it and return a ticket."""
        self._check_open()
        if self._has_empty or self._is_plain:
            return self._driver.submit(self._commands)
        with self._driver.guard("submit"):
            self._apply()
        return self._driver.submitted_graph(self._instance, self._what)

    def forget_buffers(self) -> None:
        """Keep the places of the buffers alone, so that their memory may be given back."""
        for number in self._holding:
            self._commands[number] = _placed(self._commands[number])
        self._holding.clear()

    def time(self) -> tuple[float, ...]:
        """Run it to its end and return the seconds of each command."""
        self._check_open()
        return self._driver.time(self._commands)

    def close(self) -> None:
        """Release it; it must not be running."""
        if not self._graph:
            return
        self._undo.detach()
        self._driver.graphs.drop(self._graph)
        self._graph = self._instance = 0
        self._commands.clear()
        self._kept.clear()

    def _check_open(self) -> None:
        if not self._graph:
            raise StaleHandleError(f"{self._driver.name}: the recording was closed")

    def _replace(self, number: int, command: Command) -> None:
        check_commands(self._driver.target, self._driver.name, [command])
        self._is_plain = self._is_plain or bool(self._driver.programs.misplaced(command))
        self._commands[number] = command
        self._changed.add(number)
        self._holding.add(number)
        self._has_empty = self._find_empty() if self._has_empty else _is_empty(command)

    def _find_empty(self) -> bool:
        return any(map(_is_empty, self._commands))

    def _apply(self) -> None:
        driver = self._driver
        for number in sorted(self._changed):
            command, node = self._commands[number], self._nodes[number]
            if isinstance(command, Launch):
                loaded, function, blocks, arguments = driver.programs.launch_words(command)
                head = loaded.head
                self._kept[number] = arguments
                driver.library.graph_set_kernel(
                    self._instance, node, function, blocks, head.threads, head.shared,
                    arguments.address,
                )  # fmt: skip
            elif isinstance(command, Copy):
                driver.library.graph_set_copy(
                    self._instance, node,
                    driver.address_of(command.target), driver.address_of(command.source),
                    command.target.size_bytes, driver.context,
                )  # fmt: skip
        self._changed.clear()


def _placed(command: Command) -> Command:
    """A command whose buffers are places."""

    def place(buffer: Any) -> Any:
        memory = buffer.memory
        return Place(buffer.address, buffer.size_bytes, memory.is_readonly, memory.home)

    if isinstance(command, Launch):
        return replace(command, buffers=tuple(map(place, command.buffers)))
    if isinstance(command, Copy):
        return Copy(place(command.target), place(command.source))
    return command


def _is_empty(command: Command) -> bool:
    return isinstance(command, Launch) and not command.grid[0]


def describe(command: Command) -> str:
    """One command for an error text."""
    if isinstance(command, Launch):
        return f"{command.kernel.name} on {command.grid[0]} blocks"
    if isinstance(command, Copy):
        return f"a copy of {command.target.size_bytes} bytes"
    return type(command).__name__
