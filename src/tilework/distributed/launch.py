"""Which of several processes this one is, by the conventions of launchers.

    world = distributed.world()            # torchrun, mpirun or srun has started us; or nobody
    device = f"CUDA:{world.local_rank}"

tilework starts no processes and invents no scheduler.  This is what a program needs to take its
share of the data and its own device; `distributed.init` makes one group of the processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from tilework.base import settings
from tilework.base.errors import SettingsError
from tilework.base.records import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class World:
    """This process among those that were started together.

    Args:
        rank: its number, from 0.
        size: how many there are.
        local_rank: its number among those of its host.
        launcher: who started them: torchrun, mpi, slurm, or none.
        address: where process 0 can be met ("host:port"), if the launcher says so, or if all
            processes are on one host.
        run: by which the launcher knows these processes from others, if it does.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    launcher: str = "none"
    address: str = ""
    run: str = field(default="", repr=False)


#: Variables of rank, size and rank on the host, by launcher; the first one that is there counts.
_CONVENTIONS: Final = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
#: How many processes there are on this host.
_LOCAL_SIZES: Final = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE")
#: By launcher, what tells its runs apart.
_RUNS: Final = {
    "torchrun": ("TORCHELASTIC_RUN_ID",),
    "mpi": ("PMIX_NAMESPACE", "PMI_JOBID"),
    "slurm": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
}
#: Ports below those that hosts give to connections.
_FIRST_PORT, _PORTS = 20000, 10000


def world(environment: Mapping[str, str] | None = None) -> World:
    """Return which process this is.

    Args:
        environment: variables to look at; those of this process unless given.

    Raises:
        SettingsError: a launcher's variables contradict each other.

    Example:
        >>> world({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"})
        World(rank=3, size=8, local_rank=1, launcher='torchrun', address='')
    """
    given = settings.environment() if environment is None else environment
    for launcher, rank_name, size_name, local_name in _CONVENTIONS:
        if rank_name not in given or size_name not in given:
            continue
        rank, size = _number(given, rank_name), _number(given, size_name)
        local = _number(given, local_name) if local_name in given else rank
        if not 0 <= rank < size or not 0 <= local < size:
            raise SettingsError(
                f"world: the variables of {launcher} contradict each other",
                got=f"{rank_name}={rank}, {size_name}={size}, {local_name}={local}",
                expected="0 <= rank < size",
            )
        run = "/".join([given[each] for each in _RUNS[launcher] if each in given])
        address = _address(given) or _address_on_host(given, launcher, size, run)
        return World(rank, size, local, launcher, address, run)
    return World()


def _address(given: Mapping[str, str]) -> str:
    if "MASTER_ADDR" not in given or "MASTER_PORT" not in given:
        return ""
    port = _number(given, "MASTER_PORT")
    # Some launchers listen at this port themselves, and say so: the next one is ours.
    port += given.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return f"{given['MASTER_ADDR']}:{port}"


def _address_on_host(given: Mapping[str, str], launcher: str, size: int, run: str) -> str:
    """Where processes of one host meet if nobody says where: a port by the name of the run."""
    is_own = given.get("SLURM_NNODES") == "1" if launcher == "slurm" else False
    is_own = is_own or any(given.get(name) == str(size) for name in _LOCAL_SIZES)
    if not is_own or not run:
        return ""
    return f"127.0.0.1:{_FIRST_PORT + crc32(run.encode()) % _PORTS}"


def _number(given: Mapping[str, str], name: str) -> int:
    try:
        return int(given[name])
    except ValueError:
        raise SettingsError(
            f"world: {name} is not a number", got=repr(given[name]), expected="an integer"
        ) from None
