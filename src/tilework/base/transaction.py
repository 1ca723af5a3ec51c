"""Txn: acquire several things, or none."""

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from tilework.base import faults
from tilework.base.errors import InternalError, RollbackError

T = TypeVar("T")


class Txn:
    """A stack of acquired resources that is unwound unless it is committed.

    Used as a context manager.  If the block raises, or ends without `commit()`, every undo runs
    in reverse order.  Each undo runs even if others fail; failures are collected in a
    `RollbackError` whose cause is the first error.

    Example:
        >>> log = []
        >>> with Txn("demo") as txn:
        ...     page = txn.acquire("page", lambda: 7, lambda page: log.append(f"free {page}"))
        >>> log
        ['free 7']
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._undos: list[tuple[str, Callable[[], object]]] = []
        self._is_done = False

    def acquire(self, name: str, do: Callable[[], T], undo: Callable[[T], object]) -> T:
        """Run `do` and remember `undo`, which gets what `do` returned.

        Args:
            name: the resource, for messages and as the fault point `<transaction>.<name>`.
            do: takes the resource; if it raises, there is nothing to undo for it.
            undo: gives the resource back.

        Returns:
            What `do` returned.
        """
        if self._is_done:
            raise InternalError(f"{self.name}: the transaction has ended", got=f"acquire {name}")
        faults.hit(f"{self.name}.{name}")
        value = do()
        self._undos.append((name, lambda: undo(value)))
        return value

    @property
    def held(self) -> tuple[str, ...]:
        """Names of what would be given back now, in the order of acquisition."""
        return tuple(name for name, _ in self._undos)

    def commit(self) -> "Release":
        """Keep everything; the returned `Release` gives it back later, in reverse order."""
        self._is_done = True
        release = Release(self.name, self._undos)
        self._undos = []
        return release

    def rollback(self, cause: BaseException | None = None) -> None:
        """Undo everything now.

        Raises:
            RollbackError: an undo failed; `cause` is its `__cause__`.
        """
        self._is_done = True
        undos, self._undos = self._undos, []
        _unwind(self.name, undos, cause)

    def __enter__(self) -> Self:
        """Start the transaction."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Undo everything unless committed."""
        if not self._is_done:
            self.rollback(error)


class Release:
    """What a committed transaction holds; `close()` gives it back once."""

    def __init__(self, name: str, undos: list[tuple[str, Callable[[], object]]]) -> None:
        self.name = name
        self._undos = undos

    @property
    def held(self) -> tuple[str, ...]:
        """Names of what is held, in the order of acquisition."""
        return tuple(name for name, _ in self._undos)

    def close(self) -> None:
        """Give everything back, last acquired first; a second call does nothing.

        Raises:
            RollbackError: a step failed; the others ran all the same.
        """
        undos, self._undos = self._undos, []
        _unwind(self.name, undos, None)


def _unwind(
    name: str, undos: list[tuple[str, Callable[[], object]]], cause: BaseException | None
) -> None:
    failures: list[tuple[str, BaseException]] = []
    while undos:
        resource, undo = undos.pop()
        try:
            undo()
        except BaseException as error:  # noqa: BLE001  (collected below, and raised)
            failures.append((resource, error))
    if not failures:
        return
    first = failures[0][1]
    if cause is None and not isinstance(first, Exception):
        raise first  # an interrupt, with no error to report beside it
    listing = "; ".join(
        f"{resource}: {type(error).__name__}: {error}" for resource, error in failures
    )
    raise RollbackError(
        f"{name}: {len(failures)} of the undo steps failed", got=listing, failures=failures
    ) from (first if cause is None else cause)
