"""Which of several processes this one is, by the conventions of launchers.

    world = distributed.world()            # torchrun, mpirun or srun has started us; or nobody
    device = f"CUDA:{world.local_rank}"

tilework starts no processes and invents no scheduler.  This is what a program needs to take its
share of the data and its own device.  Tensors over the devices of several hosts are not there yet;
they will be over the same layouts, with copies that a network makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base import settings
from tilework.base.errors import SettingsError
from tilework.base.records import dataclass

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
        address: where process 0 can be met ("host:port"), if the launcher says so.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    launcher: str = "none"
    address: str = ""


#: Variables of rank, size and rank on the host, by launcher; the first one that is there counts.
_CONVENTIONS: Final = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


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
        host, port = given.get("MASTER_ADDR", ""), given.get("MASTER_PORT", "")
        address = f"{host}:{port}" if host and port else ""
        return World(rank, size, local, launcher, address)
    return World()


def _number(given: Mapping[str, str], name: str) -> int:
    try:
        return int(given[name])
    except ValueError:
        raise SettingsError(
            f"world: {name} is not a number", got=repr(given[name]), expected="an integer"
        ) from None
