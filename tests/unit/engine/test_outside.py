"""What a captured function reads besides tensors, and that changes: names, modules, the outside."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import dataclasses
import datetime
import functools
import io
import json
import logging
import math
import mmap
import os
import queue
import random  # noqa: F401  # whatever is loaded while a function runs counts as drawn from
import socket
import sqlite3
import sys
import threading
import time
import types
import uuid
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes, jit
from tilework.base import trace
from tilework.base.errors import CaptureError
from tilework.engine.contents import bytes_of
from tilework.engine.watcher import Watcher
from tilework.ir.ops.index import VariableAttrs

X = [1.0, 2.0, 3.0]
METHOD: Any = Tensor.relu
ROUND: Any = math.floor
KIND: Any = int
MODULE: Any = math
BUILTINS: dict[str, Any] = vars(__import__("builtins"))
DTYPE: Any = dtypes.float32


class Other:
    """Stands for the module `math`."""

    @staticmethod
    def sqrt(value: float) -> float:
        return value + 100.0


class Meta(type):
    """A metaclass with data."""

    factor = 2.0


class Chosen(metaclass=Meta):
    """A class that has what its metaclass has."""

    @staticmethod
    def scale() -> float:
        return 2.0


class Doubled:
    """Multiplies by 2."""

    factor = 2.0


class Tripled:
    """Multiplies by 3."""

    factor = 3.0


class Asked:
    """Asks a dictionary for each attribute."""

    def __init__(self) -> None:
        self.__dict__["store"] = {"factor": 2.0}

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["store"][name]


def names() -> dict[str, Any]:
    """The globals of this module, which a program may set."""
    return globals()


def check(function: Callable[[Tensor], Tensor], change: Callable[[], object]) -> None:
    """The captured function gives what the plain one gives, before and after the change."""
    step, x = jit(function), Tensor(X).realize()
    wanted = function(x).tolist()
    assert [step(x).tolist() for _ in range(3)] == [wanted] * 3
    change()
    changed = function(x).tolist()
    assert changed != wanted
    assert [step(x).tolist() for _ in range(3)] == [changed] * 3


# --- names ---------------------------------------------------------------------------------------

GLOBALS: dict[str, tuple[Callable[[Tensor], Tensor], Any]] = {
    "METHOD": (lambda x: METHOD(x - 2), Tensor.exp),
    "ROUND": (lambda x: x * ROUND(2.5), math.ceil),
    "KIND": (lambda x: x * KIND(2.5), float),
    "MODULE": (lambda x: x * MODULE.sqrt(4.0), Other),
    "DTYPE": (lambda x: (x * 1.3).cast(DTYPE), dtypes.int32),
    "abs": (lambda x: x * abs(-2), lambda value: 9),
}


@pytest.mark.parametrize("name", GLOBALS)
def test_a_global_of_any_kind_may_come_to_mean_something_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, value = GLOBALS[name]
    check(function, lambda: monkeypatch.setitem(names(), name, value))


def test_a_global_that_is_not_there_yet_is_seen_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(x: Tensor) -> Tensor:
        try:
            return x * LATER  # type: ignore[name-defined,no-any-return]
        except NameError:
            return x

    check(function, lambda: monkeypatch.setitem(names(), "LATER", 3.0))


def test_an_attribute_that_is_not_there_yet_is_seen_when_it_comes() -> None:
    space = types.SimpleNamespace()

    def function(x: Tensor) -> Tensor:
        try:
            factor: float = space.factor
            return x * factor
        except AttributeError:
            return x

    check(function, lambda: setattr(space, "factor", 3.0))


@pytest.mark.parametrize("module", [math, np], ids=["math", "numpy"])
def test_functions_of_modules_may_be_replaced(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check(
        lambda x: x * float(module.sqrt(4.0)),
        lambda: monkeypatch.setattr(module, "sqrt", lambda value: 7.0),
    )


def test_the_arguments_of_the_program_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["program", "2"])
    check(lambda x: x * float(sys.argv[1]), lambda: sys.argv.__setitem__(1, "3"))


def test_code_that_is_exchanged_inside_a_function_is_seen() -> None:
    def helper(x: Tensor) -> Tensor:
        return x * 2

    def other(x: Tensor) -> Tensor:
        return x * 3

    check(lambda x: helper(x), lambda: setattr(helper, "__code__", other.__code__))


def test_objects_may_change_their_class() -> None:
    thing = Doubled()
    check(lambda x: x * thing.factor, lambda: setattr(thing, "__class__", Tripled))


def test_static_methods_and_data_of_metaclasses_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def change() -> None:
        monkeypatch.setattr(Chosen, "scale", staticmethod(lambda: 3.0))

    check(lambda x: x * Chosen.scale(), change)
    check(lambda x: x * Chosen.factor, lambda: monkeypatch.setattr(Meta, "factor", 3.0))


def test_classes_whose_attributes_are_computed_run_none_of_their_code_unasked() -> None:
    asked = Asked()
    check(lambda x: x * asked.factor, lambda: asked.store.__setitem__("factor", 3.0))


@pytest.mark.parametrize("is_from", [False, True], ids=["import", "from import"])
def test_modules_that_the_function_imports_are_watched(
    is_from: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("somebodys_numbers")
    module.factor = 2.0
    monkeypatch.setitem(sys.modules, "somebodys_numbers", module)
    text = "from somebodys_numbers import factor" if is_from else "import somebodys_numbers as n"
    space: dict[str, Any] = {}
    what = "factor" if is_from else "n.factor"
    exec(f"def function(x):\n    {text}\n    return x * {what}", space)
    check(space["function"], lambda: setattr(module, "factor", 3.0))


def test_a_module_that_may_not_be_imported_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "somebodys_numbers", None)

    def function(x: Tensor) -> Tensor:
        try:
            import somebodys_numbers  # type: ignore[import-not-found]
        except ImportError:
            return x + 1
        factor: float = somebodys_numbers.factor
        return x + factor

    step, x = jit(function), Tensor([0.0]).realize()
    assert [step(x).item() for _ in range(3)] == [1.0, 1.0, 1.0]
    assert step.num_captures == 1


# --- objects that calls give out ------------------------------------------------------------------


@dataclasses.dataclass
class Options:
    """What a program is told."""

    factor: float = 2.0


class Number(int):
    """A number that knows more."""

    factor = 2.0


def test_what_a_function_gives_out_is_looked_into_by_the_names_of_its_caller() -> None:
    options, kept = Options(), {"a": Options()}

    def chosen() -> Options:
        return options

    def looked_up(name: str) -> Options:
        return kept[name]

    check(lambda x: x * chosen().factor, lambda: setattr(options, "factor", 3.0))
    check(lambda x: x * looked_up("a").factor, lambda: setattr(kept["a"], "factor", 3.0))


def test_what_a_cache_gives_out_is_looked_into() -> None:
    @functools.lru_cache
    def loaded() -> Options:
        return Options()

    loaded()  # from now on no code of it runs
    check(lambda x: x * loaded().factor, lambda: setattr(loaded(), "factor", 3.0))

    def replaced() -> None:
        loaded.cache_clear()
        loaded().factor = 4.0

    check(lambda x: x * loaded().factor, replaced)


def test_objects_of_the_call_itself_may_change_after_it() -> None:
    def made(factor: float) -> Options:
        return Options(factor)

    step, x = jit(lambda x: [x * made(2.0).factor, made(3.0)]), Tensor([1.0]).realize()
    for _ in range(3):
        row, options = step(x)
        assert (row.item(), options.factor) == (2.0, 3.0)
        options.factor = 5.0


def test_fields_that_python_reads_for_the_function_are_watched() -> None:
    options, other, number = Options(), Options(), Number(3)
    check(
        lambda x: x * dataclasses.asdict(options)["factor"], lambda: setattr(options, "factor", 4.0)
    )
    check(lambda x: x * (2 if options == other else 1), lambda: setattr(other, "factor", 4.0))
    check(lambda x: x * number.factor, lambda: setattr(number, "factor", 3.0))


def test_how_our_own_records_compare_is_not_watched() -> None:
    first, second = VariableAttrs("n", 1, 8), VariableAttrs("n", 1, 9)
    watcher = Watcher(lambda value: False)
    with watcher.watching():
        assert first != second
    assert not [entry.name for entry in watcher.guards().entries if "minimum" in entry.name]


def test_functions_by_the_types_of_their_arguments_may_come_later() -> None:
    @functools.singledispatch
    def factor(value: object) -> float:
        return 2.0

    check(lambda x: x * factor(1), lambda: factor.register(int, lambda value: 3.0))


def test_a_name_beside_pythons_own_functions_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILTINS, "INSTALLED", 2.0)
    check(
        lambda x: x * INSTALLED,  # type: ignore[name-defined]  # noqa: F821
        lambda: monkeypatch.setitem(BUILTINS, "INSTALLED", 3.0),
    )


def test_a_weak_reference_keeps_nothing() -> None:
    held = [Options()]
    reference = weakref.ref(held[0])

    def function(x: Tensor) -> Tensor:
        options = reference()
        return x * (9.0 if options is None else options.factor)

    check(function, lambda: setattr(held[0], "factor", 3.0))
    check(function, held.clear)


def test_each_thread_has_attributes_of_its_own() -> None:
    own = threading.local()
    step, x = jit(lambda x: x * own.factor), Tensor([1.0]).realize()

    def run(factor: float) -> list[float]:
        own.factor = factor
        return [step(x).item() for _ in range(3)]

    assert run(2.0) == [2.0] * 3
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(run, 3.0).result() == [3.0] * 3
    assert step(x).item() == 2.0


def test_attributes_of_a_thread_are_seen_by_computed_names_and_where_there_were_none() -> None:
    own, name = threading.local(), "scale"
    captured = jit(lambda x: x * getattr(own, name, 1.0))
    x = Tensor([2.0])
    assert [captured(x).item() for _ in range(3)] == [2.0] * 3
    for scale in (3.0, 5.0):
        own.scale = scale
        assert [captured(x).item() for _ in range(3)] == [2 * scale] * 3


# --- the environment, and what the standard library keeps -----------------------------------------

READS: dict[str, Callable[[], str | None]] = {
    "item": lambda: os.environ["TILEWORK_TEST_FACTOR"],
    "get": lambda: os.environ.get("TILEWORK_TEST_FACTOR"),
    "getenv": lambda: os.getenv("TILEWORK_TEST_FACTOR"),
    "computed": lambda: os.environ["_".join(("TILEWORK", "TEST", "FACTOR"))],
}


@pytest.mark.parametrize("read", READS)
def test_the_environment_is_watched(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWORK_TEST_FACTOR", "2")
    look = READS[read]
    check(lambda x: x * float(look() or 1), lambda: monkeypatch.setenv("TILEWORK_TEST_FACTOR", "3"))


def test_a_variable_of_the_environment_may_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "TILEWORK_TEST_FLAG"
    monkeypatch.delenv(name, raising=False)
    check(lambda x: x * (2 if name in os.environ else 1), lambda: monkeypatch.setenv(name, "1"))


def test_objects_of_the_standard_library_are_looked_into() -> None:
    event, waiting = threading.Event(), queue.Queue[int]()
    check(lambda x: x * (2 if event.is_set() else 1), event.set)
    for number in range(1, 99):
        waiting.put(number)
    step, x = jit(lambda x: x * waiting.get()), Tensor([1.0]).realize()
    assert [step(x).item() for _ in range(6)] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_objects_of_c_code_that_do_not_show_their_state_are_asked_anew() -> None:
    table, waiting = sqlite3.connect(":memory:"), queue.SimpleQueue[float]()
    table.execute("create table numbers (factor real)")
    table.execute("insert into numbers values (2)")
    select = "select factor from numbers"
    check(
        lambda x: x * table.execute(select).fetchone()[0],
        lambda: table.execute("update numbers set factor = 3"),
    )
    for number in range(1, 5):
        waiting.put(float(number))
    step, x = jit(lambda x: x * waiting.get()), Tensor([1.0]).realize()
    assert [step(x).item() for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]


def test_objects_of_further_kinds_of_the_library_are_looked_into() -> None:
    future, later = concurrent.futures.Future[None](), asyncio.Event()
    by_name = weakref.WeakValueDictionary[str, Options](a=(options := Options()))
    check(lambda x: x * (2 if future.done() else 1), lambda: future.set_result(None))
    check(lambda x: x * (2 if later.is_set() else 1), later.set)
    check(lambda x: x * by_name["a"].factor, lambda: setattr(options, "factor", 3.0))
    with mmap.mmap(-1, 16) as memory:
        check(lambda x: x * (memory[0] + 1), lambda: memory.__setitem__(0, 2))


def test_a_clock_that_another_function_calls_is_read_anew() -> None:
    read = functools.partial(time.perf_counter_ns)
    step, x = jit(lambda x: x + read() % 1000003), Tensor([0.0]).realize()
    assert len({step(x).item() for _ in range(5)}) == 5


def test_a_child_has_a_number_of_its_own() -> None:
    step, x = jit(captures=1)(lambda x: x + os.getpid()), Tensor([0.0]).realize()
    step(x)
    with pytest.raises(CaptureError, match="getpid"):
        step(x)


def test_numbers_of_c_and_arrays_of_pytorch_are_compared_by_their_bytes() -> None:
    number, row = ctypes.c_double(2.0), torch.tensor([2.0, 2.0, 2.0])
    check(lambda x: x * number.value, lambda: setattr(number, "value", 3.0))
    check(lambda x: x * Tensor(row.numpy()), lambda: row.__setitem__(0, 5.0))


def test_objects_in_arrays_of_numpy_are_looked_into() -> None:
    rows = np.array([[2.0], None], object)
    check(lambda x: x * rows[0][0], lambda: rows[0].__setitem__(0, 3.0))


def test_arrays_of_pytorch_that_are_conjugate_views_have_bytes() -> None:
    row = torch.tensor([1 + 2j, 3 - 4j])
    wanted = np.array([1 - 2j, 3 + 4j], np.complex64)
    assert bytes_of(row.conj()) == wanted.tobytes()
    assert bytes_of(row.conj().imag) == wanted.imag.tobytes()


# --- what is new each time ------------------------------------------------------------------------

SOURCES: dict[str, Callable[[], float]] = {
    "perf_counter_ns": lambda: float(time.perf_counter_ns() % 1000003),
    "time_ns": lambda: float(time.time_ns() // 1000 % 1000003),
    "now": lambda: float(datetime.datetime.now().microsecond),
    "urandom": lambda: float(int.from_bytes(os.urandom(3), "big")),
    "uuid4": lambda: float(uuid.uuid4().int % 1000003),
}


@pytest.mark.parametrize("name", SOURCES)
def test_clocks_and_the_systems_random_numbers_are_read_anew(name: str) -> None:
    read = SOURCES[name]
    step, x = jit(lambda x: x + read()), Tensor([0.0]).realize()
    found = set()
    for _ in range(5):
        found.add(step(x).item())
        time.sleep(0.001)
    assert len(found) == 5


def test_a_frozen_capture_refuses_to_repeat_a_clock() -> None:
    step = jit(captures=1)(lambda x: x + time.time())
    x = Tensor([0.0]).realize()
    step(x)
    with pytest.raises(CaptureError, match="clock"):
        step(x)


def test_what_the_library_does_with_the_time_is_no_reading_of_a_clock() -> None:
    logger = logging.Logger("of this test")
    logger.addHandler(logging.StreamHandler(io.StringIO()))

    def function(x: Tensor) -> Tensor:
        logger.warning("a line with a time")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("one with the text of its line", stacklevel=1)
        return x + 1

    step, x = jit(function), Tensor([0.0]).realize()
    assert [step(x).item() for _ in range(3)] == [1.0, 1.0, 1.0]
    assert step.num_captures == 1


def _opened(path: Path) -> float:
    with path.open() as file:
        return float(file.read())


FILES: dict[str, Callable[[Path], float]] = {
    "open": lambda path: _opened(path),
    "read_text": lambda path: float(path.read_text()),
    "json": lambda path: float(json.loads(path.read_bytes())),
    "exists": lambda path: float(Path(f"{path}.more").exists()),
    "size": lambda path: float(path.stat().st_size),
    "fromfile": lambda path: float(np.fromfile(path, np.uint8)[0]),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_at_each_call(name: str, tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("2")

    def change() -> None:
        path.write_text("30")
        Path(f"{path}.more").touch()

    check(lambda x: x * FILES[name](path), change)


def test_arrays_that_are_loaded_from_files_are_read_at_each_call(tmp_path: Path) -> None:
    path = tmp_path / "row.npy"
    row = np.array([1, 2, 3], np.float32)
    np.save(path, row)
    check(lambda x: x * Tensor(np.load(path)), lambda: np.save(path, row + 3))


def test_a_stream_that_is_open_goes_on_from_call_to_call() -> None:
    stream = io.StringIO("1\n2\n3\n4\n5\n6\n")
    step, x = jit(lambda x: x * float(stream.readline())), Tensor([1.0]).realize()
    assert [step(x).item() for _ in range(6)] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_printing_is_no_reading_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)

        def function(x: Tensor) -> Tensor:
            print("a line", file=stream)
            return x + 1

        step, x = jit(function), Tensor([0.0]).realize()
        assert [step(x).item() for _ in range(3)] == [1.0, 1.0, 1.0]
        assert step.num_captures == 1


def test_what_comes_by_a_connection_or_is_typed_is_new_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n2\n3\n4\n"))
    here, there = socket.socketpair()
    with here, there:
        there.sendall(bytes([10, 20, 30, 40]))
        step = jit(lambda x: x + float(input()) + here.recv(1)[0])
        x = Tensor([0.0]).realize()
        assert [step(x).item() for _ in range(4)] == [11.0, 22.0, 33.0, 44.0]


def test_random_numbers_of_pytorch_are_new_each_time() -> None:
    own = torch.Generator().manual_seed(5)
    step = jit(lambda x: x + torch.rand(()).item() + torch.rand((), generator=own).item())
    x = Tensor([0.0]).realize()
    assert len({step(x).item() for _ in range(5)}) == 5


def test_a_warning_says_that_a_function_reads_a_clock() -> None:
    step, x = jit(lambda x: x + time.time()), Tensor([0.0]).realize()
    trace.clear_warnings()
    for _ in range(4):
        step(x)
    assert any("the clock (time.time)" in one.message for one in trace.recent_warnings())
