"""Threads and processes that turn kernel text into object code, while kernels are still lowered.

llvmlite holds one lock for the whole process: besides one thread of this process, other processes
help with many kernels.  What such a process does stands in `toolchain.worker`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tilework.backends.contract import KernelSource, WorkerToolchain
from tilework.base import faults, trace
from tilework.base.errors import CompileError, TileworkError, ToolchainError
from tilework.toolchain.worker import DONE, FRAME, MAX_FRAME, READY, send

JOB_SECONDS: Final = 300.0
CLOSE_SECONDS: Final = 5.0
_BOOT: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    " from tilework.toolchain.worker import main; main(sys.argv[2])"
)


_Answer = queue.SimpleQueue[bytes | BaseException | None]


@dataclass(slots=True)
class _Job:
    """One kernel to build, and where the result goes: code, an error, None for "not here"."""

    source: KernelSource
    answer: _Answer = field(default_factory=queue.SimpleQueue)
    deaths: int = 0


class _Died(Exception):
    """The worker ended, hung, or is of another version."""


class _Worker:
    """One process; used by one thread."""

    def __init__(self, how: WorkerToolchain) -> None:
        plain = {"kind": how.kind, "isa": how.isa, "features": list(how.features)}
        path = [entry for entry in sys.path if entry]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        faults.hit("workers.start")
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, json.dumps(path), json.dumps(plain)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._is_end_told = False
        self._key = how.key

    def wait(self) -> None:
        """Wait until it can compile.  Raises: _Died."""
        kind, payload = self._read(time.monotonic() + JOB_SECONDS)
        if kind != READY or payload.decode() != self._key:
            raise _Died("it is of another version")

    def stop(self) -> None:
        """End it at once; any thread may ask for that."""
        self._is_end_told = True
        self.process.kill()

    def compile(self, text: bytes) -> tuple[int, bytes]:
        """Send a job and return the kind and the payload of the answer.  Raises: _Died."""
        deadline = time.monotonic() + JOB_SECONDS
        if self.process.stdin is None:
            raise _Died("it has no input")
        try:
            send(self.process.stdin, 0, text)
        except OSError as error:
            raise _Died(str(error)) from error
        return self._read(deadline)

    def _read(self, deadline: float) -> tuple[int, bytes]:
        length, kind = FRAME.unpack(self._read_bytes(FRAME.size, deadline))
        if length >= MAX_FRAME:
            raise _Died("its answer is malformed")
        return kind, self._read_bytes(length, deadline)

    def _read_bytes(self, size: int, deadline: float) -> bytes:
        stream = self.process.stdout
        if stream is None:
            raise _Died("it has no output")
        parts: list[bytes] = []
        while size:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                self.process.kill()
                self._is_end_told = True
                raise _Died(f"no answer within {JOB_SECONDS:.0f} seconds")
            part = os.read(stream.fileno(), min(size, 1 << 20))
            if not part:
                raise _Died(self._last_words())
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _last_words(self) -> str:
        self._is_end_told = True
        status = self.process.wait()
        self._errors.seek(0)
        text = self._errors.read()[-4000:].decode("utf-8", "replace")
        return f"it ended with status {status}\n{text}".strip()

    def close(self) -> None:
        """End the process: kindly, then not."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # what was buffered for a process that is gone
                    continue
        try:
            self.process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode != 0 and not self._is_end_told:
            trace.warn("workers", f"a compile worker was closed: {self._last_words()}")
        self._errors.close()


class BuildThreads:
    """Builds kernels in threads of this process, for compilers that release Python's lock.

    One thread submits and asks for results; `close` ends the threads.  All that threads share are
    simple queues: an interrupt (Ctrl-C) of the one that waits can leave no lock of theirs taken.
    """

    def __init__(self, build: Callable[[KernelSource], bytes], width: int) -> None:
        self._build = build
        self._width = width
        self._jobs: queue.SimpleQueue[tuple[KernelSource, _Answer] | None] = queue.SimpleQueue()
        self._answers: list[_Answer] = []
        self._threads: list[threading.Thread] = []

    def submit(self, source: KernelSource) -> int:
        """Queue a kernel and return the ticket of its result."""
        answer: _Answer = queue.SimpleQueue()
        self._answers.append(answer)
        self._jobs.put((source, answer))
        if len(self._threads) < self._width:
            thread = threading.Thread(target=self._work, name="tilework-build", daemon=True)
            self._threads.append(thread)
            thread.start()
        return len(self._answers) - 1

    def result(self, ticket: int) -> bytes:
        """Wait for a kernel, once.  Raises: what building it raises."""
        return _outcome(self._answers[ticket].get()) or b""

    def close(self) -> None:
        """End the threads; what they have not begun is dropped."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            if thread.ident is not None:  # an interrupt may have come before its start
                thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            source, answer = job
            try:
                answer.put(self._build(source))
            except BaseException as error:  # noqa: BLE001  (raised where the result is asked for)
                answer.put(error)


def _outcome(found: bytes | BaseException | None) -> bytes | None:
    if isinstance(found, BaseException):
        raise found
    return found


class WorkerPool:
    """Builds kernels in up to `width` processes, and in a thread of this one.

    One thread submits and asks for results; `close` ends the processes.

    Args:
        how: the toolchain for a process.
        width: how many processes.
        build: builds a kernel here meanwhile; None leaves all to the processes.
        patience: the processes are started with this submission.
        start: makes a process; for tests.
    """

    def __init__(
        self,
        how: WorkerToolchain,
        width: int,
        *,
        build: Callable[[KernelSource], bytes] | None = None,
        patience: int = 1,
        start: Callable[[WorkerToolchain], _Worker] = _Worker,
    ) -> None:
        self._how = how
        self._width = max(width, 1)
        self._build = build
        self._patience = patience
        self._start = start
        self._jobs: list[_Job] = []
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.pids: set[int] = set()
        self._beginning: set[_Worker] = set()
        self._is_closing = False
        self._threads: list[threading.Thread] = []

    def submit(self, source: KernelSource) -> int:
        """Queue a kernel and return the ticket of its result."""
        job = _Job(source)
        self._jobs.append(job)
        self._queue.put(job)
        if len(self._jobs) == 1 and self._build is not None:
            self._start_thread(self._serve_here)
        if len(self._jobs) == self._patience:
            for _ in range(self._width):
                self._start_thread(self._serve)
        return len(self._jobs) - 1

    def _start_thread(self, target: Callable[[], None]) -> None:
        name = f"tilework-compile-{len(self._threads)}"
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def result(self, ticket: int) -> bytes | None:
        """Wait for a kernel, once; None when no worker can be started: the caller must build it.

        Raises: CompileError as the compiler gave it; ToolchainError with the kernel's name when
        two workers in turn died of it.
        """
        return _outcome(self._jobs[ticket].answer.get())

    def close(self) -> None:
        """End all workers and wait for them; what they have not begun is dropped."""
        self._is_closing = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()
        for _ in self._threads:
            self._queue.put(None)
        for worker in list(self._beginning):
            worker.stop()
        for thread in self._threads:
            if thread.ident is not None:  # an interrupt may have come before its start
                thread.join()

    def _serve_here(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                job.answer.put(None if self._build is None else self._build(job.source))
            except BaseException as error:  # noqa: BLE001  (raised where the result is asked for)
                job.answer.put(error)

    def _serve(self) -> None:
        worker = self._begin()
        if worker is None and self._build is not None:
            return  # all is built here
        while (job := self._queue.get()) is not None:
            worker = worker or self._begin()
            if worker is None:
                job.answer.put(None)  # the caller compiles by itself
                continue
            try:
                kind, payload = worker.compile(job.source.text.encode())
            except _Died as died:
                self._bury(worker)
                worker = None
                self._retry(job, str(died))
                continue
            job.answer.put(payload if kind == DONE else _refusal(job.source.name, payload))
        self._bury(worker)

    def _begin(self) -> _Worker | None:
        """A process that is ready; None where there can be none."""
        worker: _Worker | None = None
        try:
            worker = self._start(self._how)
            self.pids.add(worker.process.pid)
            self._beginning.add(worker)
            if self._is_closing:
                worker.stop()
            worker.wait()
        except (_Died, OSError, TileworkError) as error:
            # No process, no memory, an injected fault; or it is not needed any more.
            if not self._is_closing:
                trace.warn("workers", f"a compile worker could not be started: {error}")
            if worker is not None:
                self._beginning.discard(worker)
            self._bury(worker)
            return None
        self._beginning.discard(worker)
        return worker

    def _retry(self, job: _Job, reason: str) -> None:
        name = job.source.name
        job.deaths += 1
        trace.warn("workers", f"a compile worker died at the kernel {name}: {reason}")
        if job.deaths < 2:
            self._queue.put(job)
            return
        job.answer.put(
            ToolchainError(
                f"compile: two workers in turn died at the kernel {name}",
                got=reason.splitlines()[0],
                log=reason,
                try_="set compile_workers to 1 to compile inside this process",
            )
        )

    def _bury(self, worker: _Worker | None) -> None:
        if worker is not None:
            self.pids.discard(worker.process.pid)
            worker.close()


def _refusal(name: str, payload: bytes) -> CompileError:
    plain = json.loads(payload)
    return CompileError(
        plain["message"], got=plain["got"], log=plain["log"], try_=f"this is the kernel {name}"
    )
