"""Work of several cards in order: copies between them, and marks that their queues wait for.

    driver.peers.copy(other, target, source)     # in a queue of its own, beside the kernels
    mark = driver.peers.mark(is_copying=True)    # passed when all before it is done
    other.peers.after(mark, is_copying=False)    # what `other` is given from now on comes later
    driver.peers.give_back([mark])

Nothing here waits on the host.  Whoever queues a copy says by marks what it comes after, and what
comes after it; memory is handed out again in the order of the queue of kernels, so a copy must be
before some mark that this queue waits for.
"""

from __future__ import annotations

from itertools import permutations
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from tilework.base import faults
from tilework.runtime.cuda.nccl_group import MEANT_ALIKE, Move, group_of, library_of
from tilework.runtime.cuda.nccl_ranks import about, group_of_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tilework.runtime.buffer import Buffer
    from tilework.runtime.cuda.nccl_group import NcclGroup
    from tilework.runtime.drivers.cuda import CudaDriver


class Collectives(Protocol):
    """What cards do together, as far as those who wait for it must know."""

    is_closed: bool

    def check(self) -> None:
        """Raise what has failed."""
        ...

    def abort(self, why: str) -> None:
        """End it at once."""
        ...

    def end(self) -> None:
        """A card is being closed: give everything back."""
        ...


class CudaPeers:
    """One card among others.  Thread-safe, by the lock of its driver."""

    def __init__(self, driver: CudaDriver, count_queue: Callable[[int], None]) -> None:
        self._driver = driver
        self._count_queue = count_queue
        self.stream = 0
        self._ordered: set[int] = set()
        #: By the home of their memory, the cards that this one can reach.
        self._seen: dict[object, CudaDriver] = {}
        #: Cards whose work came before bytes that this one got and nobody has waited for yet.
        self.unsettled: set[CudaDriver] = set()
        #: Groups of cards whose collectives this card may be waiting for.
        self._groups: list[Collectives] = []
        #: Of those the ones in which this card is the first.
        self._own: list[NcclGroup] = []
        #: By ranks, groups with cards of other processes.
        self._shared: dict[tuple[int, ...], NcclGroup] = {}
        self._folds: frozenset[tuple[str, str]] | None = None

    def watch(self, group: Collectives) -> None:
        """Ask a group for failures while this card is waited for, and end it when that fails."""
        self._groups = [each for each in self._groups if not each.is_closed]
        self._groups.append(group)

    def folds(self) -> frozenset[tuple[str, str]]:
        """Folds and dtypes that a library does between this card and others."""
        if self._folds is None:
            found = library_of(self._driver)
            self._folds = frozenset() if found is None else MEANT_ALIKE
        return self._folds

    def fold(
        self,
        others: Sequence[CudaDriver],
        fold: str,
        dtype: str,
        pairs: Sequence[tuple[Buffer, Buffer]],
    ) -> None:
        """Queue a fold of this card and others, in the queues of copies of all.

        Args:
            others: the other cards.
            fold: add, mul, max or min.
            dtype: of the elements.
            pairs: (target, source) of each card, of this one first.
        """
        drivers = (self._driver, *others)
        group = next((each for each in self._own if each.drivers == drivers), None)
        if group is None:
            self._own = [each for each in self._own if not each.is_closed]
            group = group_of(drivers)
            self._own.append(group)
        for one, other in permutations(drivers, 2):
            one.peers.depends_on(other)
        group.all_reduce(fold, dtype, pairs)

    def about(self) -> Mapping[str, Any]:
        """What other processes must know of this card, as plain data: `nccl_ranks.about`."""
        with self._driver.guard("ask"):
            return about(self._driver)

    def _meet(self, ranks: tuple[int, ...]) -> NcclGroup:
        """The group of this card and those of other ranks, all of which come to this call."""
        found = self._shared.get(ranks)
        if found is None or found.is_closed:
            found = self._shared[ranks] = group_of_ranks(self._driver, ranks)
        return found

    def fold_with(
        self, ranks: tuple[int, ...], fold: str, dtype: str, target: Buffer, source: Buffer
    ) -> None:
        """Queue this card's part of a fold of several processes, in its queue of copies.

        Args:
            ranks: in ascending order, all that take part.
            fold: add, mul, max or min.
            dtype: of the elements.
            target: where the fold goes.
            source: what this card has.
        """
        self._meet(ranks).all_reduce(fold, dtype, [(target, source)])

    def exchange(self, ranks: tuple[int, ...], moves: Sequence[tuple[int, Buffer, bool]]) -> None:
        """Queue what this card sends to others and gets from them, all at once.

        Args:
            ranks: in ascending order, all that copy in this way.
            moves: of each the other rank, the bytes here, and whether they are sent.
        """
        rows = [Move(ranks.index(rank), buffer, is_sent) for rank, buffer, is_sent in moves]
        self._meet(ranks).exchange(rows)

    def check_groups(self) -> None:
        """Raise what groups have found out about cards that do not come."""
        for group in self._groups:
            group.check()

    def abort_groups(self, why: str) -> None:
        """End collectives that cards still wait for each other in."""
        for group in self._groups:
            if not group.is_closed:
                group.abort(why)

    def can_reach(self, other: CudaDriver) -> bool:
        """Whether this card sees the memory of another one; from now on it does."""
        driver, library = self._driver, self._driver.library
        if other.library is not library:
            return False
        with driver.guard("reach"):
            if not library.can_reach(driver.ordinal, other.ordinal):
                return False
            library.context_reach(other.context)
            self._seen = {home: card for home, card in self._seen.items() if not card.is_closed}
            self._seen[other.home] = other
        return True

    def sees(self, home: object) -> bool:
        """Whether kernels may be given memory with this home: that of an open card in reach.

        Only while this thread sees to the order of both cards' queues.
        """
        card = self._seen.get(home)
        return card is not None and not card.is_closed and get_ident() in self._ordered

    def set_ordered(self, is_ordered: bool) -> None:
        """Whether this thread sees to the order of kernels that read other cards' memory."""
        if is_ordered:
            self._ordered.add(get_ident())
        else:
            self._ordered.discard(get_ident())

    def depends_on(self, other: CudaDriver) -> None:
        """What is waited for here depends from now on on what another card has been given."""
        with self._driver.guard("queue"):
            self.unsettled |= {other} | other.peers.unsettled
            self.unsettled.discard(self._driver)

    def copy(self, other: CudaDriver, target: Buffer, source: Buffer) -> None:
        """Queue a copy of `source` on another card to `target` here."""
        driver = self._driver
        place = other.address_of(source)
        self.depends_on(other)
        with driver.guard("copy from another card"):
            faults.hit("cuda.copy")
            driver.library.copy_between_cards(
                driver.address_of(target), driver.context, place, other.context,
                source.size_bytes, self.queue(is_copying=True),
            )  # fmt: skip

    def mark(self, *, is_copying: bool) -> int:
        """Put a mark behind what the queue of copies, or that of kernels, was given."""
        driver = self._driver
        with driver.guard("mark"):
            event = driver.marks.take()
            driver.library.event_record(event, self.queue(is_copying=is_copying))
        return event

    def after(self, mark: int, *, is_copying: bool) -> None:
        """Let what a queue is given from now on wait for a mark of any card."""
        with self._driver.guard("wait"):
            self._driver.library.stream_wait(self.queue(is_copying=is_copying), mark)

    def give_back(self, marks: Iterable[int]) -> None:
        """Use marks again; waits that were queued for them stay as they are."""
        self._driver.marks.give_back(marks)

    def settle(self) -> None:
        """Raise what cards have reported on whose work depends what was waited for here."""
        while self.unsettled:
            self.unsettled.pop().report()

    def close(self) -> None:
        """Give the queue up; all in it is done."""
        for group in reversed(self._groups):
            group.end()
        if self.stream:
            self._driver.library.stream_destroy(self.stream)
        self.forget()

    def forget(self) -> None:
        """The queue went with its context."""
        if self.stream:
            self._count_queue(-1)
        self.stream = 0
        self.unsettled.clear()
        self._seen.clear()
        for group in reversed(self._groups):
            group.end()
        self._groups.clear()
        self._own.clear()
        self._shared.clear()

    def queue(self, *, is_copying: bool) -> int:
        """The queue of copies, made and tried when it is first asked for, or that of kernels."""
        if not is_copying:
            return self._driver.stream
        if not self.stream:
            self.stream = self._driver.library.stream_create()
            self._count_queue(1)
            self._driver.prove(self.stream)
        return self.stream
