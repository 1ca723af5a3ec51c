"""What the devices of several processes do together by a library: all must say the same of it.

    shared = agree(links, "WORLD+CUDA", Device["CUDA"].driver)      # every rank comes to this

Each rank tells rank 0 what its device has; rank 0 decides, and tells all.  Ranks take part if their
libraries are of one version, and no two of them have the same device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import ProtocolError
from tilework.runtime.links import NOTHING, Shared

if TYPE_CHECKING:
    from tilework.runtime.links import Transport

_LENGTH_BYTES: Final = 4
_MOST_BYTES: Final = 1 << 20


def agree(links: Transport, kind: str, driver: Any) -> Shared:
    """Find out what the devices of all ranks do together.

    Args:
        links: to the others, which do the same; their devices are of the same kind.
        kind: what the names of the devices of all ranks begin with.
        driver: of this rank's device.

    Raises: what `Transport.send` and `receive` raise.
    """
    ask = getattr(getattr(driver, "peers", None), "about", None)
    if ask is None or links.size == 1:
        return NOTHING
    own = ask()
    if links.rank:
        _say(links, 0, own)
        said = _hear(links, 0)
        folds = tuple([(str(fold), str(dtype)) for fold, dtype in said["folds"]])
        return Shared(kind, tuple(said["ranks"]), folds, str(said["reason"]))
    rows = [own, *[_hear(links, rank) for rank in links.others()]]
    found = decide(kind, rows)
    said = {"ranks": found.ranks, "folds": found.folds, "reason": found.reason}
    for rank in links.others():
        _say(links, rank, said)
    return found


def decide(kind: str, rows: Sequence[Mapping[str, Any]]) -> Shared:
    """What devices do together of which these things are known.

    Args:
        kind: what their names begin with.
        rows: by rank, `library` (a version, 0 without one), `folds`, and `card` (which it is).

    Example:
        >>> one, other = ({"library": 1, "folds": [("add", "int32")], "card": c} for c in "ab")
        >>> decide("WORLD+CUDA", [one, other]).ranks
        (0, 1)
    """
    version = next((row["library"] for row in rows if row["library"]), 0)
    ranks: list[int] = []
    owners: dict[str, int] = {}
    reasons = []
    for rank, row in enumerate(rows):
        if not row["library"]:
            reasons.append(f"rank {rank} has no library")
        elif row["library"] != version:
            first = ranks[0]
            reasons.append(f"rank {rank} has version {row['library']}, rank {first} {version}")
        elif row["card"] in owners:
            reasons.append(f"ranks {owners[row['card']]} and {rank} have the same card")
        else:
            owners[row["card"]] = rank
            ranks.append(rank)
    reason = reasons[0] if reasons else ""
    if len(ranks) < 2:
        return Shared(kind, (), (), reason)
    common: set[tuple[str, str]] = set()
    if not reasons:
        common = set.intersection(
            *[{(fold, dtype) for fold, dtype in row["folds"]} for row in rows]
        )
    return Shared(kind, tuple(ranks), tuple(sorted(common)), reason)


def _say(links: Transport, rank: int, what: Mapping[str, Any]) -> None:
    text = json.dumps(what).encode()
    links.send(rank, memoryview(len(text).to_bytes(_LENGTH_BYTES, "little")))
    links.send(rank, memoryview(text))


def _hear(links: Transport, rank: int) -> Any:
    head = bytearray(_LENGTH_BYTES)
    links.receive(rank, memoryview(head))
    count = int.from_bytes(head, "little")
    if count > _MOST_BYTES:
        raise ProtocolError("distributed: a message is too long", field="length", got=count)
    text = bytearray(count)
    links.receive(rank, memoryview(text))
    return json.loads(bytes(text))
