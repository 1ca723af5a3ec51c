"""Threads and processes that turn kernel text into object code, while kernels are still lowered.

llvmlite holds one lock for the whole process: besides one thread of this process, other processes
help with many kernels.  What such a process does stands in `toolchain.worker`.

A process may end, be stopped, or never answer.  Then its kernel is built in this process, unless
the kernel itself is the cause: two processes that crash at it make an error that names it.  A
process that neither answers nor computes is ended after `STUCK_SECONDS`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Final

from tilework.backends.contract import KernelSource, WorkerToolchain
from tilework.base import faults, trace
from tilework.base.errors import CompileError, ToolchainError
from tilework.base.records import dataclass, field
from tilework.toolchain.worker import DONE, FRAME, MAX_FRAME, READY

#: No kernel takes so long: a compiler that still computes then is in a loop.
JOB_SECONDS: Final = 300.0
#: A process that has not computed for so long will not: it was stopped, or waits for ever.
STUCK_SECONDS: Final = 2.0
CLOSE_SECONDS: Final = 1.0
#: A thread starts no further process after so many losses, if kernels can be built here too.
MAX_LOSSES: Final = 2
_LOOK_SECONDS: Final = 0.25
_CHUNK: Final = 1 << 20
#: Whoever sends these means the process, not the kernel that it happens to compile.
_FROM_OUTSIDE: Final = frozenset(
    (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
)
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


class _Died(Exception):
    """The worker ended, hung, or is of another version.

    Args:
        reason: in words.
        is_kernel: the kernel that it compiled may be the cause.
        is_endless: and would be so again.
    """

    def __init__(self, reason: str, *, is_kernel: bool = False, is_endless: bool = False) -> None:
        super().__init__(reason)
        self.is_kernel = is_kernel
        self.is_endless = is_endless


def _processor_nanoseconds(pid: int) -> int | None:
    """How long a process has computed; None where the system does not tell."""
    try:
        # The number of the clock of another process's processor time, as Linux makes it.
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return None


class _Patience:
    """Says when to give a silent process up.

    Looks at the clock are counted, and not what it says: if both processes were stopped for a
    while (a suspended machine, a debugger), nothing has been waited for.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._computed: int | None = None
        self._idle_looks = 0
        self._looks = 0

    def look(self) -> None:
        """Called each `_LOOK_SECONDS` without an answer.  Raises: _Died."""
        self._looks += 1
        if self._looks * _LOOK_SECONDS >= JOB_SECONDS:
            text = f"no answer within {JOB_SECONDS:.0f} seconds"
            raise _Died(text, is_kernel=True, is_endless=True)
        computed = _processor_nanoseconds(self._pid)
        has_moved = computed is not None and computed != self._computed
        self._computed = computed
        self._idle_looks = 0 if has_moved else self._idle_looks + 1
        # Where nobody can say whether it computes, it gets longer.
        longest = STUCK_SECONDS if computed is not None else 10 * STUCK_SECONDS
        if self._idle_looks * _LOOK_SECONDS >= longest:
            raise _Died(f"it has not answered, nor computed, for {longest:.0f} seconds")


class _Worker:
    """One process; used by one thread.

    Args:
        how: the toolchain for it.
        boot: the program that it runs; another one for tests.
    """

    def __init__(self, how: WorkerToolchain, boot: str = _BOOT) -> None:
        plain = {"kind": how.kind, "isa": how.isa, "features": list(how.features)}
        path = [entry for entry in sys.path if entry]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        faults.hit("workers.start")
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", boot, json.dumps(path), json.dumps(plain)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
            )
        except BaseException:
            self._errors.close()
            raise
        self._is_end_told = False
        self._key = how.key

    def wait(self) -> None:
        """Wait until it can compile.  Raises: _Died."""
        kind, payload = self._read()
        if kind != READY or payload != self._key.encode():
            raise _Died("it is of another version")

    def stop(self) -> None:
        """End it at once; any thread may ask for that."""
        self._is_end_told = True
        self.process.kill()

    def compile(self, text: bytes) -> tuple[int, bytes]:
        """Send a job and return the kind and the payload of the answer.  Raises: _Died."""
        self._write(FRAME.pack(len(text), 0) + text)
        return self._read()

    def _write(self, data: bytes) -> None:
        stream = self.process.stdin
        if stream is None:
            raise _Died("it has no input")
        os.set_blocking(stream.fileno(), False)  # one that does not read would stop us, too
        left = memoryview(data)
        while left:
            self._await(stream.fileno(), select.POLLOUT)
            try:
                left = left[os.write(stream.fileno(), left[:_CHUNK]) :]
            except OSError as error:
                raise self._end() from error

    def _read(self) -> tuple[int, bytes]:
        length, kind = FRAME.unpack(self._read_bytes(FRAME.size))
        if length >= MAX_FRAME:
            raise _Died("its answer is malformed")
        return kind, self._read_bytes(length)

    def _read_bytes(self, size: int) -> bytes:
        stream = self.process.stdout
        if stream is None:
            raise _Died("it has no output")
        parts: list[bytes] = []
        while size:
            self._await(stream.fileno(), select.POLLIN)
            part = os.read(stream.fileno(), min(size, _CHUNK))
            if not part:
                raise self._end()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _await(self, descriptor: int, event: int) -> None:
        """Wait until the pipe can be used, or its far end is gone.  Raises: _Died."""
        poll = select.poll()  # `select.select` takes no descriptors above 1023
        poll.register(descriptor, event)
        patience = _Patience(self.process.pid)
        while not poll.poll(_LOOK_SECONDS * 1000):
            try:
                patience.look()
            except _Died:
                self.stop()
                raise

    def _end(self) -> _Died:
        """What a process says that has closed its pipes."""
        words = self._last_words()
        status = self.process.returncode
        return _Died(words, is_kernel=bool(status) and -status not in _FROM_OUTSIDE)

    def _last_words(self) -> str:
        self._is_end_told = True
        try:
            status = self.process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:  # it closed its pipes, and lives
            self.process.kill()
            status = self.process.wait()
        self._errors.seek(0)
        text = self._errors.read()[-4000:].decode("utf-8", "replace")
        return f"it ended with status {status}\n{text}".strip()

    def close(self) -> None:
        """End the process: kindly, then not."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.stop()
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
        patience: the processes are started once so many kernels are not built: while the thread
            keeps up with the lowering, they would take its core.
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
        self._busy: set[_Worker] = set()
        self._has_begun = False
        self._is_closing = False
        self._threads: list[threading.Thread] = []

    def submit(self, source: KernelSource) -> int:
        """Queue a kernel and return the ticket of its result."""
        job = _Job(source)
        self._jobs.append(job)
        self._queue.put(job)
        if len(self._jobs) == 1 and self._build is not None:
            self._start_thread(self._serve_here)
        unfinished = self._queue.qsize() + (self._build is not None)
        if not self._has_begun and unfinished >= self._patience:
            self._has_begun = True
            for _ in range(self._width):
                self._start_thread(self._serve)
        return len(self._jobs) - 1

    def _start_thread(self, target: Callable[[], None]) -> None:
        name = f"tilework-compile-{len(self._threads)}"
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def result(self, ticket: int) -> bytes | None:
        """Wait for a kernel, once; None where no worker could: the caller must build it.

        Raises: CompileError as the compiler gave it; ToolchainError with the kernel's name when
        two workers in turn crashed at it, or one computed for `JOB_SECONDS`.
        """
        return _outcome(self._jobs[ticket].answer.get())

    def close(self) -> None:
        """End all workers and wait for them; what they have not finished is dropped."""
        self._is_closing = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()
        for _ in self._threads:
            self._queue.put(None)
        for worker in list(self._busy):
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
        losses = 0 if worker is not None else MAX_LOSSES
        while losses < MAX_LOSSES or self._build is None:
            job = self._queue.get()
            if job is None:
                break
            if worker is None and losses < MAX_LOSSES:
                worker = self._begin()
                losses += worker is None
            if worker is None:
                self._leave(job)
                continue
            try:
                job.answer.put(self._compile(worker, job.source))
            except _Died as died:
                self._bury(worker)
                losses += not died.is_kernel
                worker = self._try_again(job, died)
        self._bury(worker)

    def _leave(self, job: _Job) -> None:
        """Leave a kernel to this process: to its thread; where it has none, to the caller."""
        if self._build is None or self._is_closing:
            job.answer.put(None)
        else:
            self._queue.put(job)

    def _try_again(self, job: _Job, died: _Died) -> _Worker | None:
        """What happens to a kernel whose worker died, and the worker to go on with.

        If the kernel is the cause it is not built in this process, which might end it.
        """
        self._warn_of(job, died)
        if self._is_closing or not died.is_kernel:
            self._leave(job)
            return None
        worker = None if died.is_endless else self._begin()
        if worker is not None:
            try:
                job.answer.put(self._compile(worker, job.source))
            except _Died as again:
                died = again
                self._bury(worker)
                self._warn_of(job, died)
            else:
                return worker
        how = "a worker hung" if died.is_endless else "two workers in turn died"
        job.answer.put(
            ToolchainError(
                f"compile: {how} at the kernel {job.source.name}",
                got=str(died).splitlines()[0],
                log=str(died),
                try_="set compile_workers to 1 to compile inside this process",
            )
        )
        return None

    def _warn_of(self, job: _Job, died: _Died) -> None:
        if not self._is_closing:
            name = job.source.name
            trace.warn("workers", f"a compile worker died at the kernel {name}: {died}")

    def _compile(self, worker: _Worker, source: KernelSource) -> bytes | BaseException:
        """What becomes of one kernel.  Raises: _Died."""
        self._busy.add(worker)
        try:
            if self._is_closing:
                worker.stop()
            kind, payload = worker.compile(source.text.encode())
            return payload if kind == DONE else _refusal(source.name, payload)
        except _Died:
            raise
        except BaseException as error:  # noqa: BLE001  (raised where the result is asked for)
            worker.stop()
            return error
        finally:
            self._busy.discard(worker)

    def _begin(self) -> _Worker | None:
        """A process that is ready; None where there can be none."""
        worker: _Worker | None = None
        try:
            worker = self._start(self._how)
            self.pids.add(worker.process.pid)
            self._busy.add(worker)
            if self._is_closing:
                worker.stop()
            worker.wait()
        except BaseException as error:  # noqa: BLE001  (a thread that ended would answer no job)
            # No process, no memory, an interpreter that does not know where it stands, an injected
            # fault; or it is not needed any more.
            if not self._is_closing:
                trace.warn("workers", f"a compile worker could not be started: {error}")
            if worker is not None:
                self._busy.discard(worker)
            self._bury(worker)
            return None
        self._busy.discard(worker)
        return worker

    def _bury(self, worker: _Worker | None) -> None:
        if worker is not None:
            self.pids.discard(worker.process.pid)
            worker.close()


def _refusal(name: str, payload: bytes) -> CompileError:
    plain = json.loads(payload)
    return CompileError(
        plain["message"], got=plain["got"], log=plain["log"], try_=f"this is the kernel {name}"
    )
