"""One program in several processes, over the devices of all of them.

    with distributed.init() as group:                    # torchrun, mpirun or srun has started us
        net.shard_(group.devices)                        # as over devices of one process
        loss = step(x.shard(group.devices, axis=0), y.shard(group.devices, axis=0))
        if group.rank == 0:
            ...
    # every process has done the same operations in the same order, each on its own device

All processes run the same program; each does the work of its own device, and copies between devices
of two processes go over a connection between them.  What is on a process's other devices is its
own, so data may differ there: of `x.shard(group.devices, axis=0)` each process puts its own share
on its own device, and sends nothing.  Processes that have drawn no random numbers before `init`,
and have asked for no seed, draw the same ones: so weights that each of them makes are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tilework import __version__
from tilework.backends import registry
from tilework.backends.world import WorldDevices
from tilework.base import settings
from tilework.base.errors import SettingsError, UserError
from tilework.base.hashing import digest
from tilework.base.records import dataclass
from tilework.distributed.agreement import agree
from tilework.distributed.launch import World, world
from tilework.engine.device import Device
from tilework.engine.folds import abort_collectives
from tilework.engine.world import PREFIX, family_of
from tilework.runtime.links import NOTHING, set_links, set_shared
from tilework.runtime.processes import MEET_SECONDS, WAIT_SECONDS, Links, meet
from tilework.tensor.random import begin_with, first_seed

if TYPE_CHECKING:
    from types import TracebackType

#: Settings that decide which copies a program makes.
_SAME_FOR_ALL: Final = ("allreduce", "deterministic")


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes that work together, of which this is one.

    Args:
        world: which one this is.
        devices: of all, by rank.
    """

    world: World
    devices: tuple[str, ...]
    _links: Links
    _finish: Callable[[], None]

    @property
    def rank(self) -> int:
        """The number of this process."""
        return self.world.rank

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self.world.size

    @property
    def device(self) -> str:
        """This process's own device among `devices`."""
        return self.devices[self.rank]

    @property
    def sent_bytes(self) -> int:
        """What this process has sent to others."""
        return self._links.sent_bytes

    def barrier(self) -> None:
        """Wait until all processes are here.  Raises: DeviceLostError, DeviceTimeoutError."""
        self._links.barrier()

    def finish(self) -> None:
        """Leave the group: its devices are closed, and so are the connections.  Idempotent."""
        self._finish()

    def __enter__(self) -> Processes:
        """The group itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the others, unless this process has failed, and leave the group."""
        try:
            if error is None:
                # Nobody leaves whose work some other device still waits for.
                opened = Device.opened_as(self.device)
                if opened is not None:
                    opened.synchronize()
                self.barrier()
        finally:
            self.finish()


def init(
    kind: str = "CPU",
    *,
    here: World | None = None,
    address: str = "",
    secret: str | bytes = b"",
    meet_seconds: float = MEET_SECONDS,
    wait_seconds: float = WAIT_SECONDS,
) -> Processes:
    """Make one group of the processes that a launcher has started.

    Args:
        kind: of the devices; on a host with several, a process takes the one of its local rank
            (of CPU there is one, which all share).
        here: which process this is; as the launcher says unless given.
        address: host:port where rank 0 listens; as the launcher says unless given.
        secret: the same for all; needed where other hosts can reach the address.
        meet_seconds: how long to wait for the others.
        wait_seconds: how long one transfer may take, and the others to come to it; where devices
            fold and copy by a library, also how long this process's own may be at work.

    Raises:
        SettingsError: nobody says where to meet, or a secret is missing.
        UserError: there is a group already, or the processes do not fit each other.
        DeviceTimeoutError: somebody did not come.

    Example:
        >>> from tilework import Tensor
        >>> with init() as group:
        ...     Tensor([1, 2]).shard(group.devices).tolist()
        [1, 2]
    """
    found = world() if here is None else here
    name = Device.canonicalize(kind)
    if registry.WORLD in registry.interfaces():
        raise UserError("distributed: this process belongs to a group already")
    index = 0 if name.startswith("CPU") else found.local_rank
    own = Device[name if not index else f"{name}:{index}"]
    key = secret.encode() if isinstance(secret, str) else secret
    about = {
        "version": __version__,
        "run": found.run,
        "kind": name,
        "target": digest(own.spec),
        "settings": str({each: getattr(settings.current(), each) for each in _SAME_FOR_ALL}),
    }
    links = meet(
        found.rank, found.size, _address(address or found.address, found.size), about,
        key=key, meet_seconds=meet_seconds, wait_seconds=wait_seconds,
    )  # fmt: skip
    try:
        _share_seed(links)
        agreed = agree(links, family_of(f"{PREFIX}{name}"), own.driver)
    except BaseException:
        links.close()
        raise
    opener = WorldDevices(index, own.spec)
    set_links(links)
    set_shared(agreed)
    registry.set_interface(registry.WORLD, opener.find)
    devices = tuple([Device.canonicalize(f"{PREFIX}{name}:{rank}") for rank in range(found.size)])

    def finish() -> None:
        if links.is_closed:
            return
        try:
            for device in Device.opened():
                if device.startswith(PREFIX):
                    if links.spoiled:  # its device may wait for what no other will do
                        abort_collectives(Device[device], links.spoiled)
                    Device[device].close()
        finally:
            registry.set_interface(registry.WORLD, None)
            set_shared(NOTHING)
            links.close()

    if links.rank in agreed.ranks:
        try:  # its queues wait for the other ranks, as transfers do
            Device[devices[links.rank]].wait_seconds = wait_seconds
        except BaseException:
            finish()
            raise
    return Processes(found, devices, links, finish)


def _share_seed(links: Links) -> None:
    """Let processes that have drawn nothing yet draw what rank 0 does: each makes all weights."""
    if links.rank:
        data = bytearray(8)
        links.receive(0, memoryview(data))
        begin_with(int.from_bytes(data, "little"))
        return
    seed = first_seed() % (1 << 64)  # of which a generator takes no more
    for rank in links.others():
        links.send(rank, memoryview(seed.to_bytes(8, "little")))


def _address(text: str, size: int) -> tuple[str, int]:
    if size == 1 and not text:
        return "127.0.0.1", 0
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingsError(
            "distributed: nobody says where the processes meet",
            got=repr(text),
            expected="host:port",
            try_="set MASTER_ADDR and MASTER_PORT, or distributed.init(address='127.0.0.1:29500')",
        )
    return host.strip("[]"), int(port)
