"""A captured call that differs in one field is refused by its name, before anything happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, TinyJit, Variable
from tilework.base.errors import CaptureError, TileworkError

COUNT = 6


def numbers(shift: int = 0) -> np.ndarray:
    return np.arange(shift, shift + COUNT * 2, dtype=np.float32).reshape(2, COUNT)


class Call:
    """The arguments of one call; a test changes one of them."""

    def __init__(self) -> None:
        self.first: Any = Tensor(numbers()).realize()
        self.second: Any = Tensor(numbers(100)).realize()
        self.number: Any = Variable("n", 1, COUNT).bind(3)
        self.options: Any = {"rows": [Tensor(numbers(50)).realize()], "scale": 2}
        self.state: Any = Tensor(numbers(7)).realize()

    def tensors(self) -> list[Tensor]:
        found = [self.first, self.second, self.state]
        if isinstance(self.options, dict) and isinstance(self.options.get("rows"), list):
            found += self.options["rows"]
        return [each for each in found if isinstance(each, Tensor)]


held = Tensor(np.zeros(1, np.float32))


def step(first: Any, second: Any, number: Any, *, options: Any, state: Any) -> Tensor:
    state.assign(state + 1)
    held.assign(held + 1)
    part = first[:, :number].sum(1, keepdim=True)
    result: Tensor = second * options["scale"] + part + options["rows"][0]
    return result


def run(captured: Any, call: Call) -> Any:
    return captured(call.first, call.second, call.number, options=call.options, state=call.state)


@pytest.fixture
def captured() -> Iterator[Any]:
    held.assign(held * 0).realize()
    made = TinyJit(step)
    for _ in range(3):
        run(made, Call())
    assert held.item() == 3
    yield made
    before = held.item()
    run(made, Call())  # it still runs
    assert held.item() == before + 1


def transposed(call: Call) -> None:
    call.first = Tensor(np.ascontiguousarray(numbers().T)).realize().T


def strided(call: Call) -> None:
    call.first = Tensor(np.repeat(numbers(), 2, axis=1)).realize()[:, ::2]


def widened(call: Call) -> None:
    call.second = Tensor(numbers().astype(np.float64)).realize()


def grown(call: Call) -> None:
    call.second = Tensor(np.ones((3, COUNT), np.float32)).realize()


def elsewhere(call: Call) -> None:
    call.second = Tensor(numbers(), device="PYTHON").realize()


def of_another_variable(call: Call) -> None:
    call.number = Variable("m", 1, COUNT).bind(3)


def of_other_bounds(call: Call) -> None:
    call.number = Variable("n", 1, COUNT - 1).bind(3)


def no_variable(call: Call) -> None:
    call.number = 3


def another_value(call: Call) -> None:
    call.options["scale"] = 3


def another_type(call: Call) -> None:
    call.options["scale"] = 2.0


def more_rows(call: Call) -> None:
    call.options["rows"].append(Tensor(numbers()).realize())


def another_container(call: Call) -> None:
    call.options["rows"] = tuple(call.options["rows"])


def another_key(call: Call) -> None:
    call.options["weight"] = call.options.pop("rows")


def no_tensor(call: Call) -> None:
    call.second = numbers()


def written_twice(call: Call) -> None:
    call.first = call.state


def overlapping(call: Call) -> None:
    base = np.arange(COUNT * 4, dtype=np.float32)
    call.first, call.state = (
        Tensor.from_blob(base[at:].ctypes.data, (2, COUNT), keeper=base) for at in (0, COUNT)
    )


def a_readonly_loan(call: Call) -> None:
    array = numbers(7)
    array.flags.writeable = False
    call.state = Tensor.from_blob(
        array.ctypes.data, array.shape, dtype=call.state.dtype, keeper=array, is_readonly=True
    )


CHANGES: dict[Callable[[Call], None], str] = {
    transposed: "argument 0: view",
    strided: "argument 0",
    widened: "argument 1: dtype",
    grown: "argument 1: shape",
    elsewhere: "argument 1: device",
    of_another_variable: "variable 0",
    of_other_bounds: "variable 0",
    no_variable: "argument 2",
    another_value: "options['scale']",
    another_type: "options['scale']",
    more_rows: "number, names or containers",
    another_container: "number, names or containers",
    another_key: "number, names or containers",
    no_tensor: "argument 1",
    written_twice: "alias pattern",
    overlapping: "alias pattern",
    a_readonly_loan: "read-only memory",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_EXE_03_each_field_alone_is_refused_by_name_and_nothing_has_happened(
    captured: Any, change: Callable[[Call], None]
) -> None:
    call = Call()
    change(call)
    before = [each.numpy().copy() for each in call.tensors()]
    with pytest.raises(CaptureError) as caught:
        run(captured, call)
    assert CHANGES[change] in str(caught.value.field)
    for each, old in zip(call.tensors(), before, strict=True):
        assert np.array_equal(each.numpy(), old)
    assert held.item() == 3


@pytest.mark.parametrize("names", [("optionz", "state"), ("options",), ("options", "state", "x")])
def test_EXE_03_names_of_arguments_are_compared(captured: Any, names: tuple[str, ...]) -> None:
    call = Call()
    given = dict(zip(names, (call.options, call.state, 1), strict=False))
    with pytest.raises((TypeError, TileworkError)):
        captured(call.first, call.second, call.number, **given)
    assert held.item() == 3


@pytest.mark.parametrize("offset", range(0, 64, 4))
def test_EXE_03_no_alignment_is_counted_on_so_none_is_refused(captured: Any, offset: int) -> None:
    """Code for processors takes any address, so an argument may begin at any element."""
    call = Call()
    memory = np.zeros(4 * COUNT + 64, np.float32)
    start = offset // 4 + (-memory.ctypes.data % 64) // 4
    part = memory[start : start + 2 * COUNT]
    part[:] = numbers().ravel()
    assert part.ctypes.data % 64 == offset
    call.first = Tensor.from_blob(
        part.ctypes.data, (2, COUNT), dtype=call.first.dtype, keeper=memory
    )
    expected = numbers(100) * 2 + numbers()[:, :3].sum(1, keepdims=True) + numbers(50)
    assert np.array_equal(run(captured, call).numpy(), expected)
