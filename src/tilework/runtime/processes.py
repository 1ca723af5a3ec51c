"""Processes that work on one program: how they find each other, and bytes between them.

    links = meet(rank=0, size=2, address=("127.0.0.1", 29500), about={"version": "1"})
    links.send(1, view)                  # rank 1 calls links.receive(0, view) with as many bytes
    links.close()

Rank 0 listens at the address; the others come to it, and then to each other, so that any two have
a connection of their own.  Who connects proves that it knows the group's key, and is proven to;
what is sent afterwards is neither signed nor hidden, so the network must be one that is trusted.

All ranks make the same transfers in one order.  A transfer that is another one than the peer
expects, a peer that goes away, and one that does not answer within the deadline each end the group:
all its connections are closed, so that the others notice at once, and every call says why.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import select
import socket
import struct
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from tilework.base import faults
from tilework.base.clock import SYSTEM_CLOCK, Deadline
from tilework.base.errors import (
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    ProtocolError,
    SettingsError,
    StaleHandleError,
    TileworkError,
    UserError,
)
from tilework.base.forks import new_rlock

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Waiting for other processes to start, and for one transfer.
MEET_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 600.0
_NONCE_BYTES: Final = 32
_MOST_TEXT: Final = 1 << 20
_LENGTH: Final = struct.Struct("<I")
#: What comes before the bytes of a transfer: mark, number among those of the pair, bytes.
_HEAD: Final = struct.Struct("<4sQQ")
_MARK: Final = b"TWT1"
_RETRY_SECONDS: Final = 0.02
#: What a connection says once the other side has closed it; not all systems know the first.
_ENDS: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
_LOOPBACK: Final = re.compile(r"127(\.[0-9]{1,3}){3}")

Address = tuple[str, int]


class Links:
    """The connections of one process to all others of its group.  Thread-safe.

    Args:
        rank: of this process.
        size: how many there are.
        sockets: by rank.
        wait_seconds: how long one transfer may take.
    """

    def __init__(
        self, rank: int, size: int, sockets: Mapping[int, socket.socket], wait_seconds: float
    ) -> None:
        self.rank = rank
        self.size = size
        self.wait_seconds = wait_seconds
        self.spoiled = ""
        self.is_closed = False
        self.sent_bytes = self.received_bytes = 0
        self._sockets = dict(sockets)
        self._sent = dict.fromkeys(sockets, 0)
        self._received = dict.fromkeys(sockets, 0)
        self._lock = new_rlock()
        self._process = os.getpid()

    def others(self) -> tuple[int, ...]:
        """The other ranks."""
        return tuple(rank for rank in range(self.size) if rank != self.rank)

    def send(self, rank: int, data: memoryview) -> None:
        """Send bytes to a rank, which receives as many.

        Raises: DeviceLostError, DeviceTimeoutError; StaleHandleError after `close`.
        """
        with self._lock:
            self._check_open()
            faults.hit("processes.send")
            view = data.cast("B")
            deadline = Deadline.after(self.wait_seconds, SYSTEM_CLOCK)
            head = _HEAD.pack(_MARK, self._sent[rank], view.nbytes)
            try:
                _send_all(self._sockets[rank], memoryview(head), deadline)
                _send_all(self._sockets[rank], view, deadline)
            except OSError as error:
                raise self._failed(rank, "send to", error) from error
            except BaseException:
                self.spoil("a transfer was broken off")  # the rest of it would be taken for another
                raise
            self._sent[rank] += 1
            self.sent_bytes += view.nbytes

    def receive(self, rank: int, target: memoryview) -> None:
        """Receive as many bytes as `target` has from a rank.

        Raises: DeviceLostError, DeviceTimeoutError; ProtocolError when it sends something else;
            StaleHandleError after `close`.
        """
        with self._lock:
            self._check_open()
            faults.hit("processes.receive")
            view = target.cast("B")
            deadline = Deadline.after(self.wait_seconds, SYSTEM_CLOCK)
            head = bytearray(_HEAD.size)
            try:
                _receive_all(self._sockets[rank], memoryview(head), deadline)
                wanted = (_MARK, self._received[rank], view.nbytes)
                found = _HEAD.unpack(head)
                if found != wanted:
                    raise self._differs(rank, found, wanted)
                _receive_all(self._sockets[rank], view, deadline)
            except OSError as error:
                raise self._failed(rank, "receive from", error) from error
            except BaseException:
                self.spoil("a transfer was broken off")
                raise
            self._received[rank] += 1
            self.received_bytes += view.nbytes

    def barrier(self) -> None:
        """Wait until all ranks are here.  Raises: as `send` and `receive`."""
        with self._lock:
            self._check_open()
        token = bytearray(1)
        if self.rank:
            self.send(0, memoryview(b"b"))
            self.receive(0, memoryview(token))
            return
        for rank in self.others():
            self.receive(rank, memoryview(token))
        for rank in self.others():
            self.send(rank, memoryview(b"b"))

    def gone(self) -> str:
        """Which rank is gone, or why this one cannot go on; empty while all are there."""
        if self.spoiled or self.is_closed:
            return self.spoiled or "the group was ended"
        # Also behind bytes that nobody has received yet.
        ends = select.poll()
        ranks: dict[int, int] = {}
        for rank, plain in tuple(self._sockets.items()):
            if plain.fileno() >= 0:
                ranks[plain.fileno()] = rank
                ends.register(plain, _ENDS)
        found = [ranks[number] for number, _ in ends.poll(0)]
        return f"rank {found[0]} is gone" if found else ""

    def spoil(self, why: str) -> None:
        """End the group: all others find their connections closed."""
        self.spoiled = self.spoiled or why
        self._close_sockets()

    def close(self) -> None:
        """Give the connections up.  Idempotent."""
        self.is_closed = True
        self._close_sockets()

    def _close_sockets(self) -> None:
        sockets, self._sockets = self._sockets, {}
        for each in sockets.values():
            # By closing alone a thread that waits there would go on, and the peer not notice.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise DeviceError(
                "processes: a forked child has no place in its parent's group",
                try_="start each process by the launcher",
            )
        if self.is_closed:
            raise StaleHandleError("processes: the group was ended")
        if self.spoiled:
            raise DeviceLostError(
                "processes: the group has failed before", got=self.spoiled,
                try_="start all ranks again",
            )  # fmt: skip

    def _failed(self, rank: int, what: str, error: OSError) -> TileworkError:
        is_late = isinstance(error, TimeoutError)
        reason = f"no answer after {self.wait_seconds:g} s" if is_late else f"it is gone ({error})"
        self.spoil(f"rank {rank}: {reason}")
        if is_late:
            return DeviceTimeoutError(
                f"processes: could not {what} rank {rank}", got=reason,
                expected="all ranks run the same program", waited=self.wait_seconds,
            )  # fmt: skip
        return DeviceLostError(
            f"processes: could not {what} rank {rank}", got=reason, try_="start all ranks again"
        )

    def _differs(self, rank: int, found: Any, wanted: Any) -> TileworkError:
        self.spoil(f"rank {rank} runs another program")
        return ProtocolError(
            f"processes: rank {rank} sends something else than this rank expects",
            got=f"transfer {found[1]} of {found[2]} bytes",
            expected=f"transfer {wanted[1]} of {wanted[2]} bytes",
            try_="all ranks run the same operations in the same order",
        )


def meet(
    rank: int,
    size: int,
    address: Address,
    about: Mapping[str, str],
    *,
    key: bytes = b"",
    meet_seconds: float = MEET_SECONDS,
    wait_seconds: float = WAIT_SECONDS,
) -> Links:
    """Find the other processes of a group.

    Args:
        rank: of this process.
        size: how many there are.
        address: where rank 0 listens; a port of this host, or of one that all can reach.
        about: what must be the same for all, by name.
        key: what all know, and nobody else; must be given where others can reach the address.
        meet_seconds: how long to wait for the others.
        wait_seconds: how long one transfer may take.

    Raises:
        SettingsError: there is no key for an address that is not of this host alone.
        DeviceTimeoutError: somebody did not come.
        UserError: the ranks do not fit each other.
        ProtocolError: somebody who came does not belong to the group.
    """
    if not 0 <= rank < size:
        raise UserError("processes: a rank is out of range", got=f"{rank} of {size}")
    if size == 1:
        return Links(0, 1, {}, wait_seconds)
    if not key and not _is_own(address[0]):
        raise SettingsError(
            "processes: an address that other hosts can reach needs a key",
            got=address[0],
            try_="give all ranks the same secret: distributed.init(secret=...)",
        )
    group = _Meeting(rank, size, address, about, key, Deadline.after(meet_seconds, SYSTEM_CLOCK))
    try:
        sockets = group.gather() if rank == 0 else group.join()
    except TimeoutError as error:
        group.give_up()
        raise DeviceTimeoutError(
            "processes: somebody did not come",
            got=f"rank {rank} waited for ranks {group.missing()} at {address[0]}:{address[1]}",
            expected=f"{size} processes within {meet_seconds:g} s",
            waited=meet_seconds,
        ) from error
    except OSError as error:
        group.give_up()
        raise DeviceLostError(
            "processes: the others cannot be met",
            got=f"{address[0]}:{address[1]}: {error}",
        ) from error
    except BaseException:
        group.give_up()
        raise
    return Links(rank, size, sockets, wait_seconds)


class _Meeting:
    """The first talk of the processes of a group."""

    def __init__(
        self, rank: int, size: int, address: Address, about: Mapping[str, str], key: bytes,
        deadline: Deadline,
    ) -> None:  # fmt: skip
        self.rank = rank
        self.size = size
        self.address = address
        self.about = dict(sorted(about.items()))
        self.key = sha256(b"group " + key).digest()
        self.deadline = deadline
        self.found: dict[int, socket.socket] = {}

    def missing(self) -> str:
        """The ranks that have not come."""
        rows = [str(each) for each in range(self.size) if each not in self.found]
        return ", ".join(row for row in rows if row != str(self.rank))

    def give_up(self) -> None:
        """Close what was opened."""
        for each in self.found.values():
            each.close()

    def gather(self) -> dict[int, socket.socket]:
        """Rank 0: take all others in, and tell them where the others are."""
        listening: dict[int, Address] = {}
        with _listen(self.address) as door:
            while len(self.found) < self.size - 1:
                came = self._accept(door)
                if came is None:
                    continue
                plain, said = came
                fault = self._fault_of(said)
                if fault:
                    _say(plain, {"fault": fault}, self.deadline)
                    plain.close()
                    raise UserError("processes: a rank does not fit the others", got=fault)
                rank = int(said["rank"])
                self.found[rank] = plain
                listening[rank] = (str(said["host"]), int(said["port"]))
            for plain in self.found.values():
                _say(plain, {"fault": "", "places": listening}, self.deadline)
        return self.found

    def join(self) -> dict[int, socket.socket]:
        """Another rank: come to rank 0, then to those before this one; take in those after."""
        first = self._connect(self.address)
        self.found[0] = first
        with _listen((first.getsockname()[0], 0)) as door:
            host, port = door.getsockname()[:2]
            _say(first, {**self._card(), "host": host, "port": port}, self.deadline)
            told = _hear(first, self.deadline)
            if told.get("fault"):
                raise UserError("processes: this rank does not fit the others", got=told["fault"])
            places = told["places"]
            for other in range(1, self.rank):
                place = places[str(other)]
                plain = self.found[other] = self._connect((str(place[0]), int(place[1])))
                _say(plain, self._card(), self.deadline)
            while len(self.found) < self.size - 1:
                came = self._accept(door)
                if came is not None:
                    self.found[int(came[1]["rank"])] = came[0]
        return self.found

    def _card(self) -> dict[str, Any]:
        return {"rank": self.rank, "size": self.size, "about": self.about}

    def _fault_of(self, said: Mapping[str, Any]) -> str:
        rank = said.get("rank")
        if not isinstance(rank, int) or not 0 < rank < self.size:
            return f"rank {rank} of {self.size}"
        if rank in self.found:
            return f"rank {rank} has come twice"
        if said.get("size") != self.size:
            return f"rank {rank} knows of {said.get('size')} ranks, and rank 0 of {self.size}"
        theirs = said.get("about")
        if theirs != self.about:
            return f"rank {rank} has {theirs}, and rank 0 {self.about}"
        return ""

    def _connect(self, address: Address) -> socket.socket:
        """Connect, as soon as somebody listens, and prove to each other who we are."""
        while True:
            try:
                plain = socket.create_connection(address, timeout=_left(self.deadline))
            except ConnectionRefusedError:
                _left(self.deadline)
                SYSTEM_CLOCK.sleep(_RETRY_SECONDS)
                continue
            try:
                _prepare(plain)
                nonce = secrets.token_bytes(_NONCE_BYTES)
                theirs = _receive_some(plain, _NONCE_BYTES, self.deadline)
                proof = _proof(self.key, b"comes", theirs, nonce)
                _send_all(plain, memoryview(nonce + proof), self.deadline)
                answer = _receive_some(plain, len(proof), self.deadline)
                if not hmac.compare_digest(answer, _proof(self.key, b"waits", theirs, nonce)):
                    raise _stranger(address)
            except (ConnectionError, TileworkError) as error:
                plain.close()
                raise _stranger(address) from error
            except BaseException:
                plain.close()
                raise
            return plain

    def _accept(self, door: socket.socket) -> tuple[socket.socket, dict[str, Any]] | None:
        """Somebody who belongs to the group, and what it says; None for anybody else."""
        door.settimeout(_left(self.deadline))
        plain, _ = door.accept()
        try:
            _prepare(plain)
            nonce = secrets.token_bytes(_NONCE_BYTES)
            # A stranger that says nothing must not keep the others waiting.
            soon = self.deadline.sooner(Deadline.after(5.0, SYSTEM_CLOCK))
            _send_all(plain, memoryview(nonce), soon)
            theirs = _receive_some(plain, _NONCE_BYTES, soon)
            proof = _receive_some(plain, sha256().digest_size, soon)
            if not hmac.compare_digest(proof, _proof(self.key, b"comes", nonce, theirs)):
                plain.close()
                return None
            _send_all(plain, memoryview(_proof(self.key, b"waits", nonce, theirs)), soon)
            return plain, _hear(plain, self.deadline)
        except (OSError, ProtocolError):
            plain.close()
            return None


def _stranger(address: Address) -> ProtocolError:
    return ProtocolError(
        "processes: who listens does not belong to this group",
        got=f"{address[0]}:{address[1]}",
        expected="a process with the same secret",
        try_="another port, where several groups run on one host",
    )


def _proof(key: bytes, role: bytes, one: bytes, other: bytes) -> bytes:
    return hmac.new(key, role + one + other, sha256).digest()


def _is_own(host: str) -> bool:
    """Whether only this host can reach an address."""
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
        door.listen(128)
    except BaseException:
        door.close()
        raise
    return door


def _prepare(plain: socket.socket) -> None:
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _left(deadline: Deadline) -> float:
    """Seconds that are left.  Raises: TimeoutError."""
    left = deadline.remaining()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left


def _send_all(plain: socket.socket, view: memoryview, deadline: Deadline) -> None:
    at = 0
    while at < view.nbytes:
        plain.settimeout(_left(deadline))
        at += plain.send(view[at:])


def _receive_all(plain: socket.socket, view: memoryview, deadline: Deadline) -> None:
    at = 0
    while at < view.nbytes:
        plain.settimeout(_left(deadline))
        count = plain.recv_into(view[at:])
        if not count:
            raise ConnectionResetError("the connection was closed")
        at += count


def _receive_some(plain: socket.socket, count: int, deadline: Deadline) -> bytes:
    found = bytearray(count)
    _receive_all(plain, memoryview(found), deadline)
    return bytes(found)


def _say(plain: socket.socket, what: Mapping[str, Any], deadline: Deadline) -> None:
    text = json.dumps(what).encode()
    _send_all(plain, memoryview(_LENGTH.pack(len(text)) + text), deadline)


def _hear(plain: socket.socket, deadline: Deadline) -> dict[str, Any]:
    (count,) = _LENGTH.unpack(_receive_some(plain, _LENGTH.size, deadline))
    if count > _MOST_TEXT:
        raise ProtocolError("processes: a message is too long", field="length", got=count)
    try:
        found = json.loads(_receive_some(plain, count, deadline))
    except ValueError as error:
        raise ProtocolError("processes: a message is malformed", got=str(error)) from error
    if not isinstance(found, dict):
        raise ProtocolError("processes: a message is malformed", got=type(found).__name__)
    return found
