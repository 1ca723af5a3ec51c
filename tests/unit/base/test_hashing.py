import math
import os
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

import pytest

from tilework.base.errors import InternalError
from tilework.base.hashing import digest


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Point:
    x: int
    y: float


class Shape:
    def digest_parts(self) -> tuple[object, ...]:
        return (1, 2)


DISTINCT: list[object] = [
    None, False, True, 0, 1, -1, 0.0, -0.0, 1.0, math.inf, math.nan, 1j, "", "1", b"", b"1",
    (), [], {}, frozenset(), (1,), [1], ((1,),), (1, ()), {1: 2}, {2: 1}, Colour.RED, Point(1, 2.0),
    Point(1, -2.0), Shape(), PurePosixPath("1"), 10**9, 10**30, frozenset({1}), ("ab", "c"),
    ("a", "bc"),
]  # fmt: skip


def test_different_values_have_different_digests() -> None:
    assert len({digest(value) for value in DISTINCT}) == len(DISTINCT)


def test_arguments_are_not_run_together() -> None:
    assert digest("a", "b") != digest("ab") != digest(("a", "b"))


def test_the_order_of_a_mapping_does_not_matter() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


def test_the_digest_does_not_depend_on_the_process() -> None:
    script = "from tilework.base.hashing import digest; print(digest({'a': frozenset('xyz')}, 1.5))"
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {digest({"a": frozenset("xyz")}, 1.5)}


def test_what_is_not_plain_data_is_refused() -> None:
    with pytest.raises(InternalError, match=r"(?s)not plain data.*object"):
        digest(object())
