import pytest

from tilework.base import faults
from tilework.base.errors import InternalError, RollbackError
from tilework.base.faults import InjectedFault
from tilework.base.transaction import Txn


class Pool:
    """Resources with a record of what happened to them."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def take(self, name: str) -> str:
        self.log.append(f"take {name}")
        return name

    def free(self, name: str) -> None:
        self.log.append(f"free {name}")

    def refuse(self, name: str) -> None:
        raise OSError(f"cannot free {name}")


def acquire(txn: Txn, pool: Pool, *names: str) -> None:
    for name in names:
        txn.acquire(name, lambda name=name: pool.take(name), pool.free)  # type: ignore[misc]


def test_a_failure_undoes_in_reverse_order() -> None:
    pool = Pool()

    def fail() -> None:
        with Txn("t") as txn:
            acquire(txn, pool, "a", "b")
            raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        fail()
    assert pool.log == ["take a", "take b", "free b", "free a"]


def test_leaving_without_commit_undoes() -> None:
    pool = Pool()
    with Txn("t") as txn:
        acquire(txn, pool, "a")
    assert pool.log == ["take a", "free a"]


def test_commit_keeps_until_close() -> None:
    pool = Pool()
    with Txn("t") as txn:
        acquire(txn, pool, "a", "b")
        release = txn.commit()
    assert (pool.log, release.held) == (["take a", "take b"], ("a", "b"))
    release.close()
    assert pool.log[2:] == ["free b", "free a"]


def test_closing_twice_gives_back_once() -> None:
    pool = Pool()
    with Txn("t") as txn:
        acquire(txn, pool, "a")
        release = txn.commit()
    release.close()
    release.close()
    assert pool.log == ["take a", "free a"]


def test_a_failed_undo_does_not_hide_the_first_error_nor_stop_the_others() -> None:
    pool = Pool()

    def fail() -> None:
        with Txn("t") as txn:
            acquire(txn, pool, "a")
            txn.acquire("bad", lambda: "bad", pool.refuse)
            acquire(txn, pool, "c")
            raise ValueError("first")

    with pytest.raises(RollbackError, match="1 of the undo steps failed") as caught:
        fail()
    assert repr(caught.value.__cause__) == "ValueError('first')"
    assert [name for name, _ in caught.value.failures] == ["bad"]
    assert pool.log == ["take a", "take c", "free c", "free a"]


def test_an_ended_transaction_takes_nothing_more() -> None:
    txn = Txn("t")
    txn.rollback()
    with pytest.raises(InternalError, match="has ended"):
        txn.acquire("a", lambda: 1, lambda value: None)


def test_held_names_what_would_be_undone() -> None:
    with Txn("t") as txn:
        txn.acquire("mark", lambda: None, lambda value: None)
        assert txn.held == ("mark",)


def test_an_injected_fault_at_each_step_leaves_nothing() -> None:
    def work(pool: Pool) -> None:
        with Txn("dev") as txn:
            acquire(txn, pool, "a", "b", "c")
            txn.commit()

    with faults.count() as points:
        work(Pool())
    assert points == ["dev.a", "dev.b", "dev.c"]
    for step in range(len(points)):
        pool = Pool()
        with faults.fail_at(step), pytest.raises(InjectedFault):
            work(pool)
        taken = [line for line in pool.log if line.startswith("take")]
        assert len(pool.log) == 2 * len(taken) == 2 * step
