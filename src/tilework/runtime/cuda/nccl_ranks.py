"""A card's groups with cards of other processes: their names go round over the connections.

    group = group_of_ranks(driver, (0, 2, 3))      # ranks 0, 2 and 3 all come to this call
    group.all_reduce("add", "float32", [(target, source)])

The first rank of a group makes its name and sends it to the others, so all ranks of it must come to
this at the same place of their program.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import UnsupportedError
from tilework.runtime.cuda.nccl import EXTRA, ID_BYTES
from tilework.runtime.cuda.nccl_group import MEANT_ALIKE, NcclGroup, Place, library_of
from tilework.runtime.links import current_links

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.runtime.drivers.cuda import CudaDriver
    from tilework.runtime.links import Transport

#: What makes a card itself among those of a host: domain, bus and device, as CUDA's header has it.
_PCI: Final = (50, 33, 34)
#: The same for all that runs on one host until it starts again.
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def group_of_ranks(driver: CudaDriver, ranks: Sequence[int]) -> NcclGroup:
    """Make a group of this process's card and those of other ranks, which do so too.

    Args:
        driver: the card of this process.
        ranks: all that take part, this one among them.

    Raises: UnsupportedError without a library; what making a group raises.
    """
    library = library_of(driver)
    if library is None:
        raise UnsupportedError("nccl: there is no library for this card", try_=EXTRA)
    links = current_links()

    def hand_round(make: Callable[[], bytes]) -> bytes:
        return _hand_round(links, ranks, make)

    place = Place(ranks.index(links.rank), len(ranks), hand_round, links.gone)
    group = NcclGroup(library, [driver], place=place, wait_seconds=links.wait_seconds)
    driver.peers.watch(group)
    return group


def _hand_round(links: Transport, ranks: Sequence[int], make: Callable[[], bytes]) -> bytes:
    """What the first rank makes, for all."""
    first, *others = ranks
    if links.rank != first:
        found = bytearray(ID_BYTES)
        links.receive(first, memoryview(found))
        return bytes(found)
    made = make()
    for rank in others:
        links.send(rank, memoryview(made))
    return made


def about(driver: CudaDriver) -> dict[str, Any]:
    """What other processes must know of a card to fold and copy with it, as plain data.

    `library` is its version, 0 without one; `card` is the same for two that are one card.
    """
    library = library_of(driver)
    place = [driver.library.attribute(driver.ordinal, number) for number in _PCI]
    try:
        host = _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        host = ""
    return {
        "library": 0 if library is None else library.version(),
        "folds": [] if library is None else sorted(MEANT_ALIKE),
        "card": f"{host}/{place}",
    }
