"""Processes that turn kernel text into object code.

llvmlite holds one lock for the whole process, so that many kernels need several processes.  A
worker is a fresh interpreter that imports this module and a toolchain, and nothing of the user's;
it reads frames from its standard input and answers on its standard output until the input ends,
which it also does when the parent dies.

A frame is a length, a kind, and that many bytes: text in one direction, object code or an error
in the other.  Nothing that is received is executed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, Final

from tilework.backends.contract import KernelSource, WorkerToolchain
from tilework.base import faults, trace
from tilework.base.errors import CompileError, TileworkError, ToolchainError

JOB_SECONDS: Final = 300.0
CLOSE_SECONDS: Final = 5.0
_FRAME: Final = struct.Struct("<QB")
_MAX_FRAME: Final = 1 << 32
_DONE, _FAILED, _READY = 0, 1, 2
_BOOT: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    " from tilework.engine.workers import main; main(sys.argv[2])"
)


# --- in the worker --------------------------------------------------------------------------------


def _make_toolchain(how: dict[str, Any]) -> Any:
    from tilework.target.known.cpu import aarch64_spec, x86_spec
    from tilework.toolchain.llvm import LlvmToolchain

    make_spec = x86_spec if how["isa"] == "x86-64" else aarch64_spec
    return LlvmToolchain(make_spec(how["features"]))


def main(how: str) -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a compiler prints must not get between the frames
    requests = os.fdopen(0, "rb", closefd=False)
    toolchain = _make_toolchain(json.loads(how))
    _send(answers, _READY, toolchain.key.encode())
    while True:
        frame = _receive(requests)
        if frame is None:
            return
        try:
            _send(answers, _DONE, toolchain.compile(frame[1].decode()))
        except TileworkError as error:
            log = error.log if isinstance(error, ToolchainError) else None
            plain = {"message": error.message, "got": str(error.got), "log": log}
            _send(answers, _FAILED, json.dumps(plain).encode())


def _send(stream: IO[bytes], kind: int, payload: bytes) -> None:
    stream.write(_FRAME.pack(len(payload), kind))
    stream.write(payload)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[int, bytes] | None:
    head = stream.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    length, kind = _FRAME.unpack(head)
    payload = stream.read(length) if length < _MAX_FRAME else b""
    return (kind, payload) if len(payload) == length else None


# --- in the parent --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Job:
    """One kernel to build; `is_done` is set once `data` or `error` is there."""

    name: str
    text: bytes
    is_done: threading.Event = field(default_factory=threading.Event)
    data: bytes | None = None
    error: TileworkError | None = None
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
        self._is_ready = False
        self._is_end_told = False
        self._key = how.key

    def compile(self, text: bytes) -> tuple[int, bytes]:
        """Send a job and return the kind and the payload of the answer.  Raises: _Died."""
        deadline = time.monotonic() + JOB_SECONDS
        if not self._is_ready:
            kind, payload = self._read(deadline)
            if kind != _READY or payload.decode() != self._key:
                raise _Died("it is of another version")
            self._is_ready = True
        if self.process.stdin is None:
            raise _Died("it has no input")
        try:
            _send(self.process.stdin, 0, text)
        except OSError as error:
            raise _Died(str(error)) from error
        return self._read(deadline)

    def _read(self, deadline: float) -> tuple[int, bytes]:
        length, kind = _FRAME.unpack(self._read_bytes(_FRAME.size, deadline))
        if length >= _MAX_FRAME:
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


_Answer = queue.SimpleQueue[bytes | BaseException]


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
        found = self._answers[ticket].get()
        if isinstance(found, BaseException):
            raise found
        return found

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


class WorkerPool:
    """Builds kernels in up to `width` processes.

    One thread submits and asks for results; `close` ends the processes.
    """

    def __init__(
        self,
        how: WorkerToolchain,
        width: int,
        *,
        start: Callable[[WorkerToolchain], _Worker] = _Worker,
    ) -> None:
        self._how = how
        self._start = start
        self._jobs: list[_Job] = []
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.pids: set[int] = set()
        self._threads = [
            threading.Thread(target=self._serve, name=f"tilework-compile-{number}", daemon=True)
            for number in range(max(width, 1))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, source: KernelSource) -> int:
        """Queue a kernel and return the ticket of its result."""
        job = _Job(source.name, source.text.encode())
        self._jobs.append(job)
        self._queue.put(job)
        return len(self._jobs) - 1

    def result(self, ticket: int) -> bytes | None:
        """Wait for a kernel; None when no worker can be started, so the caller must build it.

        Raises: CompileError as the compiler gave it; ToolchainError with the kernel's name when
        two workers in turn died of it.
        """
        job = self._jobs[ticket]
        job.is_done.wait()
        if job.error is not None:
            raise job.error
        return job.data

    def close(self) -> None:
        """End all workers and wait for them; what they have not begun is dropped."""
        while not self._queue.empty():
            job = self._queue.get()
            if job is not None:
                job.is_done.set()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        worker: _Worker | None = None
        while (job := self._queue.get()) is not None:
            try:
                if worker is None:
                    worker = self._start(self._how)
                    self.pids.add(worker.process.pid)
                self._answer(job, *worker.compile(job.text))
            except _Died as died:
                self._bury(worker)
                worker = None
                self._retry(job, str(died))
            except (OSError, TileworkError) as error:
                # No process, no memory, an injected fault: the caller compiles by itself.
                trace.warn("workers", f"a compile worker could not be started: {error}")
                self._bury(worker)
                worker = None
                job.is_done.set()
        self._bury(worker)

    def _answer(self, job: _Job, kind: int, payload: bytes) -> None:
        if kind == _DONE:
            job.data = payload
        else:
            plain = json.loads(payload)
            job.error = CompileError(
                plain["message"], got=plain["got"], log=plain["log"],
                try_=f"this is the kernel {job.name}",
            )  # fmt: skip
        job.is_done.set()

    def _retry(self, job: _Job, reason: str) -> None:
        job.deaths += 1
        trace.warn("workers", f"a compile worker died at the kernel {job.name}: {reason}")
        if job.deaths < 2:
            self._queue.put(job)
            return
        job.error = ToolchainError(
            f"compile: two workers in turn died at the kernel {job.name}",
            got=reason.splitlines()[0],
            log=reason,
            try_="set compile_workers to 1 to compile inside this process",
        )
        job.is_done.set()

    def _bury(self, worker: _Worker | None) -> None:
        if worker is not None:
            self.pids.discard(worker.process.pid)
            worker.close()
