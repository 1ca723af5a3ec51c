"""The door to NVIDIA's collectives (NCCL): plain numbers in and out, an exception for a failure.

    library = open_nccl()
    name = library.unique_id()                      # one for all ranks of a communicator
    with library.group():
        comms = [library.init_rank(2, name, rank) for rank in (0, 1)]
    with library.group():
        for comm, (target, source), stream in rows:
            library.all_reduce(target, source, count, Dtype.FLOAT32, Reduction.SUM, comm, stream)

Communicators are made so that no call blocks: where the library says that it is still at it,
`status` says when it is done, so whoever waits can stop waiting and `abort`.  NVLink multicast is
switched off for each communicator by its configuration, not by the environment of the process.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tilework.base import settings
from tilework.base.errors import DeviceUnavailableError, InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

EXTRA: Final = "pip install tilework[nccl]"
#: The first version whose communicators can be told to leave NVLink multicast alone.
OLDEST: Final = 23100
#: The first version that is taken at all, where the environment has switched multicast off.  It
#: reads as much of `Config` as it knows: fields are only ever added.
OLDEST_WITHOUT_MULTICAST: Final = 22700
#: NCCL's own variable; "0" keeps multicast off in the whole process.
MULTICAST_VARIABLE: Final = "NCCL_NVLS_ENABLE"
ID_BYTES: Final = 128
_MAGIC: Final = 0xCAFEBEEF
_UNSET: Final = -(1 << 31)
_NO_MULTICAST: Final = (1 << 31) - 1


class Status(IntEnum):
    """What a call says; the numbers are those of NCCL's header."""

    SUCCESS = 0
    CUDA_ERROR = 1
    SYSTEM_ERROR = 2
    INTERNAL_ERROR = 3
    INVALID_ARGUMENT = 4
    INVALID_USAGE = 5
    REMOTE_ERROR = 6
    IN_PROGRESS = 7
    TIMEOUT = 8


#: Statuses after which the other side is gone, or does not answer.
LOST: Final = frozenset({Status.REMOTE_ERROR, Status.TIMEOUT, Status.SYSTEM_ERROR})


class Reduction(IntEnum):
    """How two values become one."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3


class Dtype(IntEnum):
    """What the library knows to fold."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZES[self]


_ITEMSIZES: Final = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2)


class NcclCallError(Exception):
    """A call gave a status that is neither success nor "in progress"."""

    def __init__(self, call: str, status: int, text: str) -> None:
        super().__init__(f"{call}: {text} ({status})")
        self.call = call
        self.status = status
        self.text = text


class NcclLibrary(Protocol):
    """Communicators, folds of what their ranks have, and bytes from one rank to another.

    Addresses, streams and communicators are integers.

    A rank's calls are made with the context of its card current.
    """

    def version(self) -> int:
        """23203 for 2.32.3."""
        ...

    def unique_id(self) -> bytes:
        """A new name by which ranks find each other: `ID_BYTES` bytes."""
        ...

    def init_rank(self, size: int, unique_id: bytes, rank: int) -> int:
        """Begin to make the communicator of a rank on the card whose context is current."""
        ...

    def status(self, comm: int) -> Status:
        """What has become of a communicator: success, in progress, or what failed."""
        ...

    def last_error(self, comm: int) -> str:
        """What the library has to say about the last failure of a communicator."""
        ...

    def finalize(self, comm: int) -> None:
        """Begin to end a communicator whose work is done."""
        ...

    def destroy(self, comm: int) -> None:
        """Give back a communicator that was finalized."""
        ...

    def abort(self, comm: int) -> None:
        """End a communicator at once, with what its card is doing for it."""
        ...

    def group(self) -> AbstractContextManager[None]:
        """Calls within begin together at the end of the block."""
        ...

    def all_reduce(
        self, target: int, source: int, count: int, dtype: Dtype, op: Reduction, comm: int,
        stream: int,
    ) -> None:  # fmt: skip
        """Queue the fold of `count` elements of all ranks to each."""
        ...

    def send(self, source: int, size_bytes: int, to: int, comm: int, stream: int) -> None:
        """Queue bytes for a rank, which receives as many."""
        ...

    def receive(self, target: int, size_bytes: int, rank: int, comm: int, stream: int) -> None:
        """Queue the arrival of bytes that a rank sends."""
        ...


def find_library() -> Path | None:
    """Where NVIDIA's wheel has put the library; None where it is not installed."""
    if find_spec("nvidia") is None:
        return None
    spec = find_spec("nvidia.nccl")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "lib" / "libnccl.so.2"
        if path.is_file():
            return path
    return None


@cache
def open_nccl() -> NcclLibrary:
    """Load the library that NVIDIA's wheel has.

    Raises: DeviceUnavailableError with what is missing, or how old what is there is.
    """
    path = find_library()
    if path is None:
        raise DeviceUnavailableError(
            "nccl: NVIDIA's collectives cannot be used",
            reason="nvidia-nccl-cu13 is not installed", try_=EXTRA,
        )  # fmt: skip
    return load_nccl(path)


def load_nccl(path: Path) -> NcclLibrary:
    """Load a library from a file.  Raises: DeviceUnavailableError."""
    try:
        loaded = ctypes.CDLL(str(path))
        return _Bindings(loaded)
    except (OSError, AttributeError, NcclCallError) as error:
        raise DeviceUnavailableError(
            "nccl: NVIDIA's collectives cannot be used", reason=f"{path.name}: {error}", try_=EXTRA
        ) from error


class UniqueId(ctypes.Structure):
    """The name of a communicator, which is handed over as it is, and not by its address."""

    _fields_ = [("internal", ctypes.c_byte * ID_BYTES)]


class Config(ctypes.Structure):
    """How a communicator is made: the fields as of 2.31, in the order of NCCL's header."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cga_cluster_size", ctypes.c_int),
        ("min_ctas", ctypes.c_int),
        ("max_ctas", ctypes.c_int),
        ("net_name", ctypes.c_char_p),
        ("split_share", ctypes.c_int),
        ("traffic_class", ctypes.c_int),
        ("comm_name", ctypes.c_char_p),
        ("collnet_enable", ctypes.c_int),
        ("cta_policy", ctypes.c_int),
        ("shrink_share", ctypes.c_int),
        ("nvls_ctas", ctypes.c_int),
        ("channels_per_net_peer", ctypes.c_int),
        ("nvlink_centric", ctypes.c_int),
        ("graph_usage_mode", ctypes.c_int),
        ("num_rma_ctx", ctypes.c_int),
        ("max_p2p_peers", ctypes.c_int),
        ("graph_stream_ordering", ctypes.c_int),
        ("launch_order_implicit", ctypes.c_int),
        ("num_rma_sig", ctypes.c_int),
        ("rma_eager_init", ctypes.c_int),
        ("host_cft_mode", ctypes.c_int),
        ("nvls_host_mode", ctypes.c_int),
    ]


def make_config(version: int) -> Config:
    """Calls return at once, collectives are not sent by multicast, the rest is the library's."""
    config = Config()
    for field in Config._fields_:
        if field[1] is ctypes.c_int:
            setattr(config, field[0], _UNSET)
    config.size, config.magic, config.version = ctypes.sizeof(Config), _MAGIC, version
    config.blocking = 0
    config.nvls_host_mode = _NO_MULTICAST
    return config


_INT, _SIZE, _PLACE = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
#: The arguments of each call; all give a status.
_CALLS: Final[dict[str, tuple[Any, ...]]] = {
    "ncclGetVersion": (_PLACE,),
    "ncclGetUniqueId": (_PLACE,),
    "ncclCommInitRankConfig": (_PLACE, _INT, UniqueId, _INT, _PLACE),
    "ncclCommGetAsyncError": (_PLACE, _PLACE),
    "ncclCommFinalize": (_PLACE,),
    "ncclCommDestroy": (_PLACE,),
    "ncclCommAbort": (_PLACE,),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclAllReduce": (_PLACE, _PLACE, _SIZE, _INT, _INT, _PLACE, _PLACE),
    "ncclSend": (_PLACE, _SIZE, _INT, _INT, _PLACE, _PLACE),
    "ncclRecv": (_PLACE, _SIZE, _INT, _INT, _PLACE, _PLACE),
}


class _Bindings:
    """The library behind its C interface, with statuses checked."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._calls: dict[str, Any] = {}
        for name, arguments in _CALLS.items():
            found = getattr(loaded, name)
            found.argtypes, found.restype = list(arguments), _INT
            self._calls[name] = found
        for name, kind in (("ncclGetErrorString", _INT), ("ncclGetLastError", _PLACE)):
            found = getattr(loaded, name)
            found.argtypes, found.restype = [kind], ctypes.c_char_p
            self._calls[name] = found
        #: Where the library wrote a communicator: it may write there again as long as that lives.
        self._places: dict[int, ctypes.c_void_p] = {}
        self._version = self.version()
        is_off = settings.environment().get(MULTICAST_VARIABLE) == "0"
        oldest = OLDEST_WITHOUT_MULTICAST if is_off else OLDEST
        if self._version < oldest:
            raise NcclCallError(
                "ncclGetVersion", self._version,
                f"older than {oldest}" if is_off else f"older than {OLDEST}, so NVLink multicast"
                f" cannot be switched off but by {MULTICAST_VARIABLE}=0",
            )  # fmt: skip

    def _call(self, name: str, *arguments: Any) -> None:
        status = self._calls[name](*arguments)
        if status not in (Status.SUCCESS, Status.IN_PROGRESS):
            raise NcclCallError(name, status, self.describe(status))

    def describe(self, status: int) -> str:
        """The library's words for a status."""
        return _text(self._calls["ncclGetErrorString"](status))

    def version(self) -> int:
        found = ctypes.c_int(0)
        self._call("ncclGetVersion", ctypes.byref(found))
        return found.value

    def unique_id(self) -> bytes:
        found = UniqueId()
        self._call("ncclGetUniqueId", ctypes.byref(found))
        return bytes(found)

    def init_rank(self, size: int, unique_id: bytes, rank: int) -> int:
        comm = ctypes.c_void_p()
        name = UniqueId.from_buffer_copy(unique_id)
        config = make_config(self._version)
        self._call(
            "ncclCommInitRankConfig", ctypes.byref(comm), size, name, rank, ctypes.byref(config)
        )
        if not comm.value:
            raise InternalError("nccl: a communicator was not made, and nothing failed")
        self._places[comm.value] = comm
        return comm.value

    def status(self, comm: int) -> Status:
        found = ctypes.c_int(0)
        self._call("ncclCommGetAsyncError", comm, ctypes.byref(found))
        known = [each for each in Status if each == found.value]
        return known[0] if known else Status.INTERNAL_ERROR

    def last_error(self, comm: int) -> str:
        return _text(self._calls["ncclGetLastError"](comm))

    def finalize(self, comm: int) -> None:
        self._call("ncclCommFinalize", comm)

    def destroy(self, comm: int) -> None:
        self._call("ncclCommDestroy", comm)
        self._places.pop(comm, None)

    def abort(self, comm: int) -> None:
        self._call("ncclCommAbort", comm)
        self._places.pop(comm, None)

    @contextmanager
    def group(self) -> Iterator[None]:
        self._call("ncclGroupStart")
        try:
            yield
        except BaseException:
            # The group must be closed whatever happened; the first failure is the one that counts.
            self._calls["ncclGroupEnd"]()
            raise
        self._call("ncclGroupEnd")

    def all_reduce(
        self, target: int, source: int, count: int, dtype: Dtype, op: Reduction, comm: int,
        stream: int,
    ) -> None:  # fmt: skip
        self._call("ncclAllReduce", source, target, count, dtype, op, comm, stream)

    def send(self, source: int, size_bytes: int, to: int, comm: int, stream: int) -> None:
        self._call("ncclSend", source, size_bytes, Dtype.UINT8, to, comm, stream)

    def receive(self, target: int, size_bytes: int, rank: int, comm: int, stream: int) -> None:
        self._call("ncclRecv", target, size_bytes, Dtype.UINT8, rank, comm, stream)


def _text(found: bytes | None) -> str:
    return (found or b"").decode("ascii", "replace")
