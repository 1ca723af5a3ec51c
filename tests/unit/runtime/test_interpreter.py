"""Launch tables that the interpreter calls as functions of its own."""

import gc
import weakref
from collections.abc import Callable

import pytest

from tilework.runtime import interpreter
from tilework.runtime.launch import KernelLaunch, LaunchTable
from tilework.runtime.loader import LoadedCode
from tilework.runtime.pool import ThreadPool

from .conftest import MakeNumbers, Numbers


def table_of(
    kernels: LoadedCode, name: str, cells: Numbers, fault: Numbers, *, serial: bool = True
) -> LaunchTable:
    launch = KernelLaunch(
        kernels.address_of(name), (cells.address, cells.address), (1,), tasks=4, serial=serial
    )
    return LaunchTable([launch] * 2, fault.address)


def function_of(pool: ThreadPool, table: LaunchTable) -> Callable[[], int]:
    made = pool.runtime.function_of(table)
    assert made is not None
    return made


def test_a_function_runs_the_whole_table(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    cells, fault = numbers(0, 1, 2, 3), numbers(0)
    assert function_of(pool, table_of(kernels, "copy_scaled", cells, fault))() == 0
    assert cells.values == [4, 13, 22, 31]
    assert not pool.is_started


def test_a_function_sees_the_words_of_its_table_change(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    cells, others, fault = numbers(0, 0, 0, 0), numbers(0, 0, 0, 0), numbers(0)
    table = table_of(kernels, "copy_scaled", cells, fault)
    function = function_of(pool, table)
    table.words[table.buffer_word(1, 1)] = others.address
    function()
    assert (cells.values, others.values) == ([1] * 4, [4] * 4)


def test_a_function_returns_the_fault_word(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    fault = numbers(0)
    assert function_of(pool, table_of(kernels, "report", numbers(0), fault))() == 7


def test_a_function_keeps_its_table(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    cells, fault = numbers(0, 1, 2, 3), numbers(0)
    table = table_of(kernels, "copy_scaled", cells, fault)
    memory = weakref.ref(table)
    function = function_of(pool, table)
    del table
    gc.collect()
    assert memory() is not None
    function()
    assert cells.values == [4, 13, 22, 31]
    del function
    gc.collect()
    assert memory() is None


def test_parallel_work_is_no_function(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    table = table_of(kernels, "copy_scaled", numbers(0, 0, 0, 0), numbers(0), serial=False)
    assert pool.runtime.function_of(table) is None


def test_an_interpreter_without_the_interface_has_no_functions(
    pool: ThreadPool,
    kernels: LoadedCode,
    numbers: MakeNumbers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interpreter, "is_supported", lambda: False)
    table = table_of(kernels, "copy_scaled", numbers(0, 0, 0, 0), numbers(0))
    assert pool.runtime.function_of(table) is None
    assert interpreter.called_addresses() == {}
