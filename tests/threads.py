"""Threads that do something at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable


def run_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(number)` in threads that start together; the first failure is raised."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001  (raised below)
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
