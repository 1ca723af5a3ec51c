"""NVIDIA's driver in software: memory, queues, marks and graphs of a card that interprets kernels.

`EmulatedCuda` stands where `runtime.bus.cuda.CudaLibrary` is asked for.  Its "cubin" is the text of
the LINEAR statements, which it runs by `ir.interpret.blocks`.  Work is done when it is queued,
unless `hold` keeps it back; `fail_next` lets a call give a status.  What is taken and not given
back stands in `held`.
"""

from __future__ import annotations

import ctypes
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

from tilework.base.errors import InternalError, TileworkError
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import toposort
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.matrix import BOXED
from tilework.ir.ops.memory import PARAM
from tilework.ir.symbolic.bounds import bounds
from tilework.ir.text import parse
from tilework.runtime.bus.cuda import BOX_DTYPES, CudaCallError
from tilework.runtime.cuda.contexts import ENDS_PROCESS
from tilework.target.cuda_code import Box

_ALIGNMENT = 256
_ATTRIBUTES = {16: 4, 38: 1 << 20, 36: 3_000_000, 37: 5120, 13: 1_700_000, 34: 0, 50: 0}
_MAJOR, _MINOR, _BUS = 75, 76, 33


class _Put:
    """A mark as it was put into a queue; in another queue, a wait for it."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.is_passed = False
        self.at = 0  # when the queue comes to it, as `timeline` counts


class Span(NamedTuple):
    """Work of a queue as it would lie in time if each kernel and each copy took one unit."""

    stream: int
    what: str
    start: int
    end: int


class _Machine:
    """What is taken and not given back, what is queued, and what shall fail."""

    def __init__(
        self, cards: int = 1, memory_bytes: int = 1 << 30, *, capability: int = 90
    ) -> None:
        self.cards = cards
        self.capability = capability
        self.total_bytes = memory_bytes
        self.held: Counter[str] = Counter()
        self.calls: list[str] = []
        self.launches: list[tuple[str, int, int, int]] = []
        self._next = 1
        self._memory: dict[int, Any] = {}
        self._modules: dict[int, Any] = {}
        self._functions: dict[int, tuple[Any, str]] = {}
        self._graphs: dict[int, list[list[Any]]] = {}
        #: By queue what it is given while it is recorded, for a graph.
        self._captured: dict[int, list[list[Any]]] = {}
        self._failures: dict[str, int] = {}
        #: By queue: work, and marks that it waits for.
        self._queued: dict[int, deque[Any]] = {}
        self._is_held = False
        self._is_late = False
        self._choose: Random | None = None
        #: Kernels and copies in the order of their queueing: each begins when its queue is free,
        #: the marks that it waits for are passed, and the host has come to it.
        self.timeline: list[Span] = []
        self._free_at: dict[int, int] = {}
        self._host_at = 0
        #: Where each mark was put last.
        self._marks: dict[int, _Put] = {}
        #: By card, the shares of its context; those that are gone; the one that is in use.
        self._contexts: dict[int, list[int]] = {}
        self._gone: set[int] = set()
        self._current = 0
        #: What folds between the cards, as `runtime.cuda.nccl.NcclLibrary` does, if anything.
        self.collectives: Any = None
        #: Whether a kernel has failed: a process gets no context after that, as on a real card.
        #: Tests set it back where they go on as another process would.
        self.is_ended = False
        #: (card, other): whose memory a card does not see.
        self.missing_links: set[tuple[int, int]] = set()

    def current_card(self) -> int:
        """The card whose context is in use."""
        for ordinal, shares in self._contexts.items():
            if self._current in shares:
                return ordinal
        raise InternalError("emulated card: no context is in use")

    def call_on(self, stream: int, call: Callable[[int], None]) -> None:
        """Let a library queue something: now, or whenever the graph runs that records the queue."""
        captured = self._captured.get(stream)
        if captured is None:
            call(stream)
        else:
            captured.append(["call", call])

    def give(self, stream: int, work: Callable[[], None], what: str) -> None:
        """Queue work of a library, which it does when the queue comes to it."""
        self._do(stream, work, what)

    def meet(
        self, arrived: Sequence[_Put], done: _Put, work: Callable[[], None], what: str
    ) -> None:
        """Do work of several queues, once all have come to it; then `done` is passed."""
        for put in arrived:
            self._queued.setdefault(done.stream, deque()).append(put)
        self._do(done.stream, work, what)
        self._do(done.stream, done)
        if not self._is_late:
            self._run_all()

    def arrive(self, stream: int, *done: _Put) -> _Put:
        """A mark in a queue, which then waits for all of `done`."""
        arrived = _Put(stream)
        for put in (arrived, *done):
            self._do(stream, put)
        return arrived

    def give_up(self, done: _Put) -> None:
        """Let queues go on that wait for what never comes."""
        done.is_passed = True
        self._run_all()

    # ---- what tests ask for

    def fail_next(self, call: str, code: int) -> None:
        """Let the next call of this name give a status."""
        self._failures[call] = code

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep queued work back, as a card that hangs would.

        A wait without a deadline would never end then, so it is an error here.
        """
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self._run_all()

    @contextmanager
    def late(self, choose: Random | None = None) -> Iterator[None]:
        """Do work only when somebody waits for it, and no more of it than the queues' order asks.

        What runs without a wait that it needs then finds what was there before.

        Args:
            choose: now and then picks queues that go on by themselves as far as their waits let
                them, so that what is early meets what is late.
        """
        self._is_late, self._choose = True, choose
        try:
            yield
        finally:
            self._is_late, self._choose = False, None
            self._run_all()

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        code = self._failures.pop(call, 0)
        if code:
            self.is_ended |= code in ENDS_PROCESS
            raise CudaCallError(call, code, f"CUDA_ERROR_{code}")

    def _check_context(self, call: str) -> None:
        """A thread whose context is gone can give nothing back, also not what another one has."""
        if self._current in self._gone:
            raise CudaCallError(call, 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED")

    def _handle(self, kind: str) -> int:
        self.held[kind] += 1
        self._next += 1
        return self._next

    def _place_in_time(self, stream: int, work: Any, what: str) -> None:
        now = max(self._free_at.get(stream, 0), self._host_at)
        if what:
            self.timeline.append(Span(stream, what, now, now + 1))
            now += 1
        elif isinstance(work, _Put) and work.stream == stream:
            work.at = now
        elif isinstance(work, _Put):
            now = max(now, work.at)
        self._free_at[stream] = now

    def _do(self, stream: int, work: Any, what: str = "") -> None:
        self._place_in_time(stream, work, what)
        self._queued.setdefault(stream, deque()).append(work)
        if not self._is_late:
            self._run(stream)
        elif self._choose is not None:
            for _ in range(self._choose.choice((0, 0, 1, 6))):
                self._go_on(self._choose.choice(list(self._queued)))

    def _go_on(self, stream: int) -> None:
        """Do the next thing of a queue, unless it waits for another one."""
        queue = self._queued[stream]
        if not queue or self._is_held:
            return
        work = queue[0]
        if isinstance(work, _Put) and work.stream != stream:
            if work.is_passed:
                queue.popleft()
            return
        queue.popleft()
        if isinstance(work, _Put):
            work.is_passed = True
        else:
            work()

    def _run_all(self) -> None:
        for stream in list(self._queued):
            self._run(stream)

    def _run(self, stream: int, until: _Put | None = None) -> None:
        """Do what is in a queue, or as much of it as comes before a mark."""
        queue = self._queued.get(stream, deque())
        while queue and not self._is_held and not (until is not None and until.is_passed):
            work = queue[0]
            if isinstance(work, _Put) and work.stream != stream:
                self._run(work.stream, work)
                if not work.is_passed:
                    return
                queue.popleft()
            elif isinstance(work, _Put):
                work.is_passed = True
                queue.popleft()
            else:
                queue.popleft()
                work()


class _Cards(_Machine):
    """Cards and contexts."""

    def version(self) -> int:
        return 13000

    def device_count(self) -> int:
        return self.cards

    def device_name(self, ordinal: int) -> str:
        return "Emulated GPU"

    def attribute(self, ordinal: int, number: int) -> int:
        if number == _BUS:
            return ordinal
        if number in (_MAJOR, _MINOR):
            return divmod(self.capability, 10)[number - _MAJOR]
        return _ATTRIBUTES[number]

    def memory_bytes(self, ordinal: int) -> int:
        return self.total_bytes

    def context_retain(self, ordinal: int) -> int:
        self._enter("context_retain")
        if self.is_ended:
            raise CudaCallError("context_retain", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
        context = self._handle("context")
        shares = self._contexts.setdefault(ordinal, [])
        shares.append(shares[0] if shares else context)  # all have the same one
        return shares[0]

    def context_release(self, ordinal: int) -> None:
        self.held["context"] -= 1
        context = self._contexts[ordinal].pop()
        if not self._contexts[ordinal]:
            self._gone.add(context)

    def context_use(self, context: int) -> None:
        self._enter("context_use")
        self._current = context

    def can_reach(self, ordinal: int, other: int) -> bool:
        self._enter("can_reach")
        return (ordinal, other) not in self.missing_links

    def context_reach(self, context: int) -> None:
        self._enter("context_reach")


class _Queues(_Cards):
    """Queues and marks."""

    def stream_create(self) -> int:
        self._enter("stream_create")
        return self._handle("stream")

    def stream_destroy(self, stream: int) -> None:
        self._check_context("stream_destroy")
        self.held["stream"] -= 1

    def stream_synchronize(self, stream: int) -> None:
        self._enter("stream_synchronize")
        self._run(stream)
        self._host_at = max(self._host_at, self._free_at.get(stream, 0))
        if self._queued.get(stream):
            raise InternalError("emulated card: a wait without a deadline, while the card hangs")

    def event_create(self, *, timing: bool) -> int:
        self._enter("event_create")
        return self._handle("event")

    def event_destroy(self, event: int) -> None:
        self._check_context("event_destroy")
        self.held["event"] -= 1

    def event_record(self, event: int, stream: int) -> None:
        self._enter("event_record")
        self._marks[event] = put = _Put(stream)
        self._do(stream, put)

    def stream_begin_capture(self, stream: int) -> None:
        self._enter("stream_begin_capture")
        self._captured[stream] = []

    def stream_end_capture(self, stream: int) -> int:
        self._enter("stream_end_capture")
        graph = self._handle("graph")
        self._graphs[graph] = self._captured.pop(stream)
        return graph

    def stream_wait(self, stream: int, event: int) -> None:
        self._enter("stream_wait")
        if event not in self._marks:
            raise InternalError("emulated card: a wait for a mark that was never put")
        put = self._marks[event]
        if put.stream != stream:
            self._do(stream, put)

    def event_is_done(self, event: int) -> bool:
        self._enter("event_is_done")
        put = self._marks[event]
        if self._is_late:
            self._run(put.stream, put)
        if put.is_passed:
            self._host_at = max(self._host_at, put.at)
        return put.is_passed

    def event_seconds(self, start: int, end: int) -> float:
        return 1e-6


class _Memories(_Queues):
    """Memory and copies."""

    def memory_allocate(self, size_bytes: int) -> int:
        self._enter("memory_allocate")
        used = sum(len(block) for block in self._memory.values())
        if used + size_bytes > self.total_bytes:
            raise CudaCallError("memory_allocate", 2, "CUDA_ERROR_OUT_OF_MEMORY")
        block = ctypes.create_string_buffer(b"\xa5" * (size_bytes + _ALIGNMENT))
        address = -(-ctypes.addressof(block) // _ALIGNMENT) * _ALIGNMENT
        self._memory[address] = block
        self.held["memory"] += 1
        return address

    def memory_free(self, address: int) -> None:
        del self._memory[address]
        self.held["memory"] -= 1

    def memory_info(self) -> tuple[int, int]:
        self._enter("memory_info")
        # Each block ends with a zero that nobody asked for.
        used = sum(len(block) - _ALIGNMENT - 1 for block in self._memory.values())
        return self.total_bytes - used, self.total_bytes

    def host_allocate(self, size_bytes: int) -> int:
        self._enter("host_allocate")
        return self.memory_allocate(size_bytes)

    def host_free(self, address: int) -> None:
        self.memory_free(address)

    def host_register(self, address: int, size_bytes: int) -> int:
        self._enter("host_register")
        self.held["registered"] += 1
        return address

    def host_unregister(self, address: int) -> None:
        self.held["registered"] -= 1

    def _copy(self, call: str, target: int, source: int, size_bytes: int, stream: int) -> None:
        self._enter(call)
        self._do(stream, lambda: ctypes.memmove(target, source, size_bytes), call)

    def copy_to_device(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        self._copy("copy_to_device", target, source, size_bytes, stream)

    def copy_to_host(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        self._copy("copy_to_host", target, source, size_bytes, stream)

    def copy_on_device(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        self._copy("copy_on_device", target, source, size_bytes, stream)

    def copy_between_cards(
        self,
        target: int,
        target_context: int,
        source: int,
        source_context: int,
        size_bytes: int,
        stream: int,
    ) -> None:
        self._copy("copy_between_cards", target, source, size_bytes, stream)

    def fill(self, target: int, byte: int, size_bytes: int, stream: int) -> None:
        self._enter("fill")
        self._do(stream, lambda: ctypes.memset(target, byte, size_bytes))


class _Code(_Memories):
    """Code and launches."""

    def module_load(self, cubin: bytes) -> int:
        self._enter("module_load")
        try:
            linear = parse(cubin.decode())
        except (TileworkError, UnicodeDecodeError) as error:
            raise CudaCallError("module_load", 200, "CUDA_ERROR_INVALID_IMAGE") from error
        module = self._handle("module")
        self._modules[module] = linear
        return module

    def module_unload(self, module: int) -> None:
        del self._modules[module]
        self.held["module"] -= 1

    def function(self, module: int, name: str) -> int:
        self._enter("function")
        self._next += 1
        self._functions[self._next] = (self._modules[module], name)
        return self._next

    def allow_shared(self, function: int, size_bytes: int) -> None:
        self._enter("allow_shared")

    def describe_box(self, address: int, box: Box) -> tuple[int, ...]:
        self._enter("describe_box")
        if not is_describable(address, box):
            raise CudaCallError("cuTensorMapEncodeTiled", 1, "CUDA_ERROR_INVALID_VALUE")
        return (address, *(0,) * 15)

    def launch(
        self,
        function: int,
        blocks: int,
        threads: int,
        shared_bytes: int,
        stream: int,
        pointers: int,
    ) -> None:
        self._enter("launch")
        linear, name = self._functions[function]
        words = _words(pointers)
        self.launches.append((name, blocks, threads, shared_bytes))
        self._do(stream, lambda: self._interpret(linear, words, blocks), "kernel")

    def _interpret(self, linear: Any, words: list[int], blocks: int) -> None:
        from tilework.ir.ops.index import VARIABLE

        nodes = toposort(linear)
        names = sorted({node.attrs.name for node in nodes if node.op is VARIABLE})
        if any(node.op is BOXED for node in nodes):
            # The descriptions of arrays come last, and say nothing that is not in the statements.
            slots = [node.attrs.slot for node in nodes if node.op is PARAM]
            words = words[: max(slots) + 1 + len(names) + 2]
        count = len(words) - 2 - len(names)
        values = {
            name: ctypes.c_int64(word).value
            for name, word in zip(names, words[count:], strict=False)
        }
        sizes = [1] * count
        for node in nodes:
            if node.op is PARAM:
                elements = 1
                for size in node.type.shape:
                    elements *= size if isinstance(size, int) else self._bytes_at(words, node)
                sizes[node.attrs.slot] = elements * node.type.dtype.itemsize
        buffers = [
            memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")
            for address, size in zip(words, sizes, strict=False)
        ]
        loops = [n for n in nodes if n.op is RANGE and n.attrs.unit is Unit.THREAD]
        inner = len({n.attrs.number for n in loops}) > 1
        # A block that goes through many tasks goes through all of them here.
        tasks = max(bounds(n.src[0])[1] for n in loops) if inner else 1
        codes = run_blocks(linear, buffers, values, blocks=1 if inner else blocks, tasks=tasks)
        if codes:
            ctypes.c_int64.from_address(words[-2]).value = codes[0]

    def _bytes_at(self, words: list[int], node: Any) -> int:
        """The most elements that a buffer of unknown size can have."""
        address = words[node.attrs.slot]
        for start, block in self._memory.items():
            if start <= address < start + len(block) - _ALIGNMENT:
                return int(start + len(block) - _ALIGNMENT - address) // int(
                    node.type.dtype.itemsize
                )
        return 0


def is_describable(address: int, box: Box) -> bool:
    """Whether a card's copy engine can move the boxes of an array.

    The limits are those of cuTensorMapEncodeTiled in the documentation of CUDA's driver.
    """
    if box.dtype not in BOX_DTYPES or not 1 <= len(box.sizes) <= 5:
        return False
    steps = box.steps or (1,) * len(box.box)
    inner_bytes = box.box[0] * box.strides_bytes[0]
    return (
        (address + box.start_bytes) % 16 == 0
        and all(1 <= size <= 1 << 32 for size in box.sizes)
        and all(stride % 16 == 0 and stride < 1 << 40 for stride in box.strides_bytes[1:])
        and all(1 <= step <= 8 for step in steps)
        and all(1 <= size * step <= 256 for size, step in zip(box.box, steps, strict=True))
        and inner_bytes % 16 == 0
        and inner_bytes <= (box.swizzle_bytes or inner_bytes)
    )


class EmulatedCuda(_Code):
    """One or more cards of one compute capability, 9.0 unless told otherwise."""

    def graph_create(self) -> int:
        self._enter("graph_create")
        graph = self._handle("graph")
        self._graphs[graph] = []
        return graph

    def graph_destroy(self, graph: int) -> None:
        self.held["graph"] -= 1

    def graph_add_kernel(
        self,
        graph: int,
        after: int,
        function: int,
        blocks: int,
        threads: int,
        shared_bytes: int,
        pointers: int,
        *,
        is_early: bool,
    ) -> int:
        self._enter("graph_add_early_kernel" if is_early else "graph_add_kernel")
        self._graphs[graph].append(["launch", function, blocks, threads, shared_bytes, pointers])
        return len(self._graphs[graph])

    def graph_add_copy(
        self, graph: int, after: int, target: int, source: int, size_bytes: int, context: int
    ) -> int:
        self._enter("graph_add_copy")
        self._graphs[graph].append(["copy", target, source, size_bytes])
        return len(self._graphs[graph])

    def graph_instantiate(self, graph: int) -> int:
        self._enter("graph_instantiate")
        instance = self._handle("instance")
        self._graphs[instance] = list(self._graphs[graph])
        return instance

    def graph_set_kernel(
        self,
        instance: int,
        node: int,
        function: int,
        blocks: int,
        threads: int,
        shared_bytes: int,
        pointers: int,
    ) -> None:
        self._enter("graph_set_kernel")
        row = ["launch", function, blocks, threads, shared_bytes, pointers]
        self._graphs[instance][node - 1] = row

    def graph_set_copy(
        self, instance: int, node: int, target: int, source: int, size_bytes: int, context: int
    ) -> None:
        self._enter("graph_set_copy")
        self._graphs[instance][node - 1] = ["copy", target, source, size_bytes]

    def graph_launch(self, instance: int, stream: int) -> None:
        self._enter("graph_launch")
        for kind, *row in self._graphs[instance]:
            if kind == "call":
                row[0](stream)
            elif kind == "copy":
                self._copy("copy", row[0], row[1], row[2], stream)
            else:
                function, blocks, threads, shared_bytes, pointers = row
                self.launch(function, blocks, threads, shared_bytes, stream, pointers)

    def graph_release(self, instance: int) -> None:
        self.held["instance"] -= 1


def _words(pointers: int) -> list[int]:
    """The first 8 bytes of each argument; the list of pointers to them ends with 0."""
    found: list[int] = []
    while True:
        place = ctypes.c_void_p.from_address(pointers + 8 * len(found)).value
        if not place:
            return found
        found.append(ctypes.c_uint64.from_address(place).value)
