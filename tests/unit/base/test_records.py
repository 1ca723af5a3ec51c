"""Records behave as the standard library's dataclasses do, and compile their methods late."""

import copy
import dataclasses
import inspect
import pickle
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from tilework.base import record_classes, records
from tilework.base.hashing import digest

KINDS = {
    "plain": {},
    "slots": {"slots": True},
    "frozen": {"frozen": True},
    "frozen slots": {"frozen": True, "slots": True},
    "by identity": {"eq": False, "slots": True},
    "by keyword": {"kw_only": True, "slots": True},
}


def pair(**how: Any) -> tuple[Any, Any]:
    """The same class made by both."""

    def build(make: Any, field: Any) -> Any:
        class Point:
            count: ClassVar[int] = 7
            x: int
            y: float = 2.5
            names: list[str] = field(default_factory=list, compare=False)
            secret: str = field(default="s", repr=False)
            area: float = field(init=False, default=0.0)

        return make(**how)(Point)

    return build(records.dataclass, records.field), build(dataclasses.dataclass, dataclasses.field)


@pytest.fixture(params=[*KINDS.values()], ids=[*KINDS])
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return pair(**request.param)


def test_what_is_shown_and_given_back_is_the_same(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    for kwargs in ({"x": 1}, {"x": 1, "y": -0.0, "names": ["a"], "secret": "t"}):
        one, other = ours(**kwargs), theirs(**kwargs)
        assert repr(one) == repr(other)
        assert records.asdict(one) == dataclasses.asdict(one) == dataclasses.asdict(other)
        assert [row.name for row in records.fields(one)] == [
            row.name for row in dataclasses.fields(other)
        ]
        assert repr(records.replace(one, x=5)) == repr(dataclasses.replace(other, x=5))
        assert repr(dataclasses.replace(one, x=5)) == repr(records.replace(one, x=5))


def test_equality_and_hashes_agree(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    for kind in (ours, theirs):
        same = kind(x=1) == kind(x=1, names=["not compared"])
        assert same == (ours(x=1) == ours(x=1))
        assert (kind(x=1) == kind(x=2)) is False
        assert (kind(x=1) == 1) is False
        assert (kind.__hash__ is None) == (theirs.__hash__ is None)
    if theirs.__hash__ is not None and "__eq__" in vars(theirs):
        assert hash(ours(x=1)) == hash(ours(x=1, names=["not hashed"])) == hash(theirs(x=1))


def test_fields_of_frozen_records_can_neither_be_set_nor_deleted(both: tuple[Any, Any]) -> None:
    for kind in both:
        made = kind(x=1)
        if kind.__dataclass_params__.frozen:
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
                made.x = 3
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
                del made.x
        else:
            made.x = 3
        assert made.x == (1 if kind.__dataclass_params__.frozen else 3)


@pytest.mark.parametrize("how", [{"slots": True}, {"frozen": True}])
def test_names_that_are_no_fields_are_refused_by_frozen_records_and_slots(
    how: dict[str, bool],
) -> None:
    made = pair(**how)[0](x=1)
    with pytest.raises(AttributeError):
        made.other = 3


def test_the_signature_is_the_same(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    with pytest.raises(TypeError, match="missing 1 required"):
        ours()
    with pytest.raises(TypeError, match="unexpected keyword"):
        ours(x=1, z=2)


def test_matching_slots_and_parameters_are_the_same(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    assert ours.__match_args__ == theirs.__match_args__
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
    assert ours.__dataclass_params__.frozen == theirs.__dataclass_params__.frozen
    assert ours.count == 7
    assert dataclasses.is_dataclass(ours)
    assert records.is_dataclass(theirs)


@records.dataclass(frozen=True, slots=True, weakref_slot=True)
class Base:
    a: int
    b: tuple[int, ...] = ()


@records.dataclass(frozen=True, slots=True)
class Derived(Base):
    c: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "b", (*self.b, self.c))


def test_fields_are_inherited_and_what_follows_the_making_runs() -> None:
    made = Derived(1)
    assert (made.a, made.b, made.c) == (1, (3,), 3)
    assert vars(Derived)["__slots__"] == ("c",)
    assert weakref.ref(made)() is made
    assert made != Base(1, (3,))


def test_copies_are_equal() -> None:
    made = Derived(1, (2,))
    for twin in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert twin == made
        assert hash(twin) == hash(made)


def test_a_record_that_holds_itself_is_shown() -> None:
    @records.dataclass
    class Ring:
        inside: Any = None

    ring = Ring()
    ring.inside = ring
    assert repr(ring).endswith("Ring(inside=...)")


def test_frozen_records_and_others_do_not_inherit() -> None:
    with pytest.raises(TypeError, match="frozen"):
        records.dataclass(type("Open", (Base,), {}))


@pytest.mark.parametrize("default", [[], records.field(default=[])], ids=["bare", "in a field"])
def test_defaults_that_can_change_are_refused(default: Any) -> None:
    with pytest.raises(ValueError, match="default_factory"):
        records.dataclass(type("Bad", (), {"__annotations__": {"x": list}, "x": default}))


@dataclasses.dataclass(frozen=True)
class Extended(Base):
    """One of the standard library's, that adds a field to a record."""

    d: int = 4


def test_dataclasses_of_the_standard_library_add_fields_to_records() -> None:
    made = Extended(1, (2,), 5)
    assert [row.name for row in records.fields(made)] == ["a", "b", "d"]
    assert records.replace(made, a=3) == Extended(3, (2,), 5)
    assert records.asdict(made) == {"a": 1, "b": (2,), "d": 5}
    assert digest(made) != digest(Extended(1, (2,), 6))
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == made


def test_records_do_not_inherit_from_dataclasses_of_the_standard_library() -> None:
    class Under(Extended):
        e: int = 5

    with pytest.raises(TypeError, match="of the standard library"):
        records.dataclass(frozen=True)(Under)


def test_threads_may_be_the_first_to_call_together() -> None:
    def use(kind: Any, start: threading.Barrier) -> tuple[bool, int]:
        start.wait()
        one, other = kind(x=1), kind(x=1)
        return one == other and hash(one) == hash(other), len(dataclasses.fields(one))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(50):
                kind, start = pair(frozen=True, slots=True)[0], threading.Barrier(4)
                calls = [pool.submit(use, kind, start) for _ in range(4)]
                assert [call.result() for call in calls] == [(True, 5)] * 4
    finally:
        sys.setswitchinterval(interval)


def test_methods_are_compiled_when_they_are_first_called(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = record_classes._compile

    def counted(name: str, lines: list[str], names: dict[str, Any]) -> Any:
        compiled.append(name)
        return real(name, lines, names)

    monkeypatch.setattr(record_classes, "_compile", counted)
    ours, _ = pair(frozen=True, slots=True)
    assert compiled == []
    made = [ours(x) for x in range(3)]
    assert compiled == ["__init__"]
    assert made[0] != made[1]
    assert len({*made}) == 3
    assert sorted(compiled) == ["__eq__", "__hash__", "__init__"]
    assert not hasattr(vars(ours)["__init__"], "settle")  # no detour is left
