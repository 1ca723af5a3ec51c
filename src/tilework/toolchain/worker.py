"""A process that turns kernel text into object code: the far end of `engine.workers`.

It is a fresh interpreter that imports this module and a toolchain, and nothing else: the less it
imports, the sooner it helps.  It reads frames from its standard input and answers on its standard
output until the input ends, which it also does when the parent dies.

A frame is a length, a kind, and that many bytes: text in one direction, object code or an error
in the other.  Nothing that is received is executed.
"""

from __future__ import annotations

import json
import os
import struct
from typing import IO, Any, Final

from tilework.base.errors import TileworkError, ToolchainError

FRAME: Final = struct.Struct("<QB")
MAX_FRAME: Final = 1 << 32
DONE, FAILED, READY = 0, 1, 2


def send(stream: IO[bytes], kind: int, payload: bytes) -> None:
    """Write one frame."""
    stream.write(FRAME.pack(len(payload), kind))
    stream.write(payload)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[int, bytes] | None:
    """Read one frame: its kind and its bytes; None at the end."""
    head = stream.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    length, kind = FRAME.unpack(head)
    payload = stream.read(length) if length < MAX_FRAME else b""
    return (kind, payload) if len(payload) == length else None


def _make_toolchain(how: dict[str, Any]) -> Any:
    """The toolchain that `backends.contract.WorkerToolchain` describes; its kind is imported."""
    if how["kind"] == "nvrtc":
        import site

        from tilework.target.known.cuda import cuda_spec
        from tilework.toolchain.nvrtc import NvrtcToolchain

        site.main()  # NVIDIA's bindings ask it where their libraries are
        (arch,) = how["features"]  # sm_90a, say
        return NvrtcToolchain(cuda_spec(int("".join(filter(str.isdigit, arch)))))
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
    toolchain.warm_up()
    send(answers, READY, toolchain.key.encode())
    while True:
        frame = receive(requests)
        if frame is None:
            # There is nothing to tidy up, and whoever waits for the end should not wait for that.
            os._exit(0)
        try:
            send(answers, DONE, toolchain.compile(frame[1].decode()))
        except TileworkError as error:
            log = error.log if isinstance(error, ToolchainError) else None
            plain = {"message": error.message, "got": str(error.got), "log": log}
            send(answers, FAILED, json.dumps(plain).encode())
