"""Arguments of a jit that are parts of larger tensors: they may lie elsewhere at each call."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, TinyJit, dtypes, export, jit, load
from tilework.base.errors import AliasError, CaptureError, StaleOutputError
from tilework.engine.device import Device
from tilework.engine.stats import COUNTERS, difference
from tilework.runtime.lease import Lease
from tilework.tensor.version import from_buffer


def counted(*shape: int, dtype: Any = np.float32) -> Tensor:
    return Tensor(np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)).realize()


def done_by(work: Callable[[], Any]) -> dict[str, int]:
    before = COUNTERS.snapshot()
    work()
    return difference(before)


@pytest.mark.parametrize("wrap", [jit, TinyJit])
def test_a_training_loop_over_slices_is_captured_once(wrap: Any) -> None:
    data = np.random.default_rng(1).normal(size=(24, 5)).astype(np.float32)

    def train(wrapper: Any) -> tuple[list[float], list[Any], dict[str, int]]:
        x, y = Tensor(data).realize(), Tensor(data.sum(1)).realize()
        weight = Tensor(np.zeros(5, np.float32)).realize()

        def step(rows: Tensor, wanted: Tensor) -> Tensor:
            error = rows @ weight - wanted
            weight.assign(weight - rows.T @ error * 0.01)
            return (error * error).mean()

        run = wrapper(step)
        run(x[0:4], y[0:4])
        run(x[0:4], y[0:4])  # links
        losses: list[Tensor] = []

        def loop() -> None:
            losses.extend(
                run(x[start : start + 4], y[start : start + 4]).realize()
                for start in range(4, 24, 4)
            )

        done = done_by(loop)
        return [loss.item() for loss in losses], weight.tolist(), done

    plain, captured = train(lambda step: step), train(wrap)
    assert captured[:2] == plain[:2]
    done = captured[2]
    assert done["replays"] == done["launches"] == 5
    assert not {"compiles", "links", "schedules", "captures"} & done.keys()


def test_a_slice_is_neither_copied_nor_captured_again() -> None:
    x = counted(8, 3)
    step: Any = TinyJit(lambda part: part * 2)
    for start in range(3):
        assert step(x[start : start + 2]).tolist() == (x[start : start + 2] * 2).tolist()
    done = done_by(lambda: step(x[6:8]))
    assert done == {"replays": 1, "launches": 1, "kernels": 1}


def test_the_next_slice_of_a_plain_call_compiles_nothing() -> None:
    x = counted(9, 7)
    (x[0:2] * 3).realize()
    done = done_by(lambda: (x[5:7] * 3).realize())
    assert not {"compiles", "links"} & done.keys()


@pytest.mark.parametrize(
    "view",
    [
        lambda x, i: x[i : i + 2],
        lambda x, i: x[i],
        lambda x, i: x[i : i + 2].reshape(6, 4),
        lambda x, i: x[i : i + 2].T,
        lambda x, i: x[i, 1:3],
        lambda x, i: x.reshape(-1)[5 * i : 5 * i + 6],
        lambda x, i: x[i : i + 1].expand(4, 3, 4),
    ],
)
def test_a_view_is_replayed_wherever_it_starts(view: Callable[[Tensor, int], Tensor]) -> None:
    x = Tensor(np.arange(60, dtype=np.float32).reshape(5, 3, 4)).realize()
    step: Any = TinyJit(lambda part: part * 2 + 1)
    for start in (1, 3, 0, 2):
        part = view(x, start)
        assert step(part).tolist() == (part.clone() * 2 + 1).tolist()


def test_a_part_may_come_from_a_tensor_of_another_size_or_be_a_whole_one() -> None:
    step: Any = TinyJit(lambda part: part + 1)
    step(counted(6)[2:4])
    assert step(counted(9)[3:5]).tolist() == [4, 5]
    assert step(counted(2)).tolist() == [1, 2]
    assert step(counted(2) + 1).tolist() == [2, 3]


def test_two_parts_of_one_base_may_lie_anywhere() -> None:
    x = counted(10)
    step: Any = TinyJit(lambda a, b: a * 10 - b)
    step(x[0:3], x[3:6])
    for i, j in [(4, 7), (7, 4), (2, 3), (5, 5), (0, 1)]:
        expected = [10.0 * (i + k) - (j + k) for k in range(3)]
        assert step(x[i : i + 3], x[j : j + 3]).tolist() == expected


@pytest.mark.parametrize(("i", "j"), [(0, 0), (0, 2), (2, 1)])
def test_EXE_04_parts_that_overlap_at_the_capture_are_told_apart(i: int, j: int) -> None:
    x = counted(10)
    step = jit(lambda a, b: a * 10 - b + a[1:2])
    for first, second in [(i, j), (i, j), (j, i), (6, 1), (3, 3), (i, j)]:
        a, b = np.arange(first, first + 3), np.arange(second, second + 3)
        expected = (a * 10.0 - b + a[1]).tolist()
        assert step(x[first : first + 3], x[second : second + 3]).tolist() == expected


def test_EXE_04_a_part_that_overlaps_a_written_argument_is_refused() -> None:
    def step(total: Tensor, part: Tensor) -> None:
        total.assign(total + part)

    captured: Any = TinyJit(step)
    x = counted(8)
    captured(counted(4), x[1:5])
    total = counted(4)
    captured(total, x[3:7])
    assert total.tolist() == [3, 5, 7, 9]
    with pytest.raises(CaptureError, match="alias pattern"):
        captured(total, total[0:4])
    assert total.tolist() == [3, 5, 7, 9]


def test_EXE_04_a_part_of_state_that_is_written_is_captured_again_and_right() -> None:
    state = counted(6)

    def step(part: Tensor) -> Tensor:
        result = part * 2
        state.assign(state + 1)
        return result + 0

    captured = jit(step)
    other = counted(6)
    assert captured(other[1:3]).tolist() == [2, 4]
    assert captured(other[2:4]).tolist() == [4, 6]
    assert captured(state[0:2]).tolist() == [4, 6]
    assert captured(state[3:5]).tolist() == [12, 14]
    assert state.tolist() == [4, 5, 6, 7, 8, 9]


def test_EXE_05_a_part_that_is_written_is_written_at_its_place() -> None:
    def step(part: Tensor) -> None:
        part.assign(part + 100)

    captured = jit(step)
    x = counted(6)
    for start in (0, 2, 4, 0):
        captured(x[start : start + 2])
    assert x.tolist() == [200, 201, 102, 103, 104, 105]


def test_a_part_beside_its_base_is_no_part_like_others() -> None:
    x = counted(6)
    step = jit(lambda base, part: base[0:2] + part)
    for start in (0, 3, 1, 4):
        assert step(x, x[start : start + 2]).tolist() == [start, start + 2]


def test_a_part_of_what_the_function_also_holds_is_right() -> None:
    x = counted(6)
    step = jit(lambda part: part + x[0:2])
    for start in (0, 3, 1, 4):
        assert step(x[start : start + 2]).tolist() == [start, start + 2]
    assert step(counted(9)[7:9]).tolist() == [7, 9]


@pytest.mark.parametrize(
    "function",
    [
        lambda part: part,
        lambda part: part[1:],
        lambda part: part.reshape(3, 2),
        lambda part: (part * 2)[1:],
    ],
)
def test_a_returned_view_of_a_part_is_that_of_this_call(
    function: Callable[[Tensor], Tensor],
) -> None:
    x = counted(8, 3)
    step = jit(lambda part: (function(part.reshape(2, 3)), part + 1))
    for start in (0, 2, 5, 6):
        part = x[start : start + 2]
        seen, more = step(part)
        assert seen.tolist() == function(part.reshape(2, 3)).tolist()
        assert more.tolist() == (part + 1).tolist()


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64, np.bool_])
def test_EXE_15_a_part_starts_at_any_element(dtype: Any) -> None:
    x = counted(300, dtype=dtype)
    step: Any = TinyJit(lambda part: part.cast("float32") * 3)
    values = np.arange(300).astype(dtype).astype(np.float32) * 3
    for start in (0, 1, 3, 7, 30, 199):
        assert step(x[start : start + 101]).tolist() == values[start : start + 101].tolist()


def test_a_write_to_the_base_is_seen_and_a_pending_part_is_computed() -> None:
    x = counted(6)
    step: Any = TinyJit(lambda part: part * 2)
    step(x[0:2])
    x.assign(x + 10)
    assert step(x[2:4]).tolist() == [24, 26]
    assert step((x * 1)[2:4]).tolist() == [24, 26]


def test_an_exported_function_takes_parts(tmp_path: Path) -> None:
    x = counted(6, 2)
    step = jit(lambda part: (part * 2, part[0]))
    step(x[0:2])
    export(step, tmp_path / "step.twx")
    run = load(tmp_path / "step.twx")
    doubled, first = run(x[3:5])
    assert doubled.tolist() == [[12, 14], [16, 18]]
    assert first.tolist() == [6, 7]


@pytest.mark.parametrize("seed", range(4))
def test_EXE_04_loans_that_share_a_byte_with_a_writer_are_refused(seed: int) -> None:
    random = Random(seed)
    memory = np.zeros(400, np.uint8)

    def loan(start: int, count: int) -> Tensor:
        lease = Lease(memory.ctypes.data + start, count * 4, owner="test")
        buffer = Device["CPU"].map(lease)
        return Tensor._over(from_buffer(buffer, "CPU", (count,), dtypes.float32))

    def step(total: Tensor, x: Tensor) -> None:
        total.assign(total + x)

    captured: Any = TinyJit(step)
    captured(loan(0, 16), loan(64, 16))
    refused = 0
    for _ in range(60):
        first, second = random.randrange(330), random.randrange(330)
        memory[:] = 0
        memory[:] = np.arange(100, dtype=np.float32).view(np.uint8)
        before = memory.copy()
        shared = set(range(first, first + 64)) & set(range(second, second + 64))
        if shared:
            refused += 1
            with pytest.raises(CaptureError, match="alias pattern"):
                captured(loan(first, 16), loan(second, 16))
            assert memory.tobytes() == before.tobytes()
        else:
            captured(loan(first, 16), loan(second, 16))
            total = before[first : first + 64].copy().view(np.float32)
            with np.errstate(all="ignore"):
                total = total + before[second : second + 64].copy().view(np.float32)
            before[first : first + 64] = total.view(np.uint8)
            assert memory.tobytes() == before.tobytes()
    assert refused


def test_EXE_04_a_loan_of_held_state_is_refused() -> None:
    memory = np.zeros(64, np.uint8)

    def loan(start: int) -> Tensor:
        lease = Lease(memory.ctypes.data + start, 32, owner="test")
        return Tensor._over(from_buffer(Device["CPU"].map(lease), "CPU", (8,), dtypes.float32))

    state = loan(0)

    def step(x: Tensor) -> None:
        state.assign(state + x)

    captured: Any = TinyJit(step)
    captured(loan(32))
    captured(loan(32))
    with pytest.raises(CaptureError, match="alias pattern"):
        captured(loan(28))


def test_EXE_04_a_capture_of_overlapping_loans_is_refused() -> None:
    memory = np.zeros(64, np.uint8)

    def loan(start: int) -> Tensor:
        lease = Lease(memory.ctypes.data + start, 32, owner="test")
        return Tensor._over(from_buffer(Device["CPU"].map(lease), "CPU", (8,), dtypes.float32))

    def step(total: Tensor, x: Tensor) -> None:
        total.assign(total + x)

    with pytest.raises(AliasError):
        jit(step)(loan(0), loan(16))


@pytest.mark.parametrize("seed", range(12))
def test_EXE_04_random_parts_agree_with_numpy(seed: int) -> None:
    random = Random(seed)
    tensors = [counted(12), counted(12) * 1, counted(20)]
    for each in tensors:
        each.realize()
    arrays = [np.array(each.tolist(), np.float32) for each in tensors]
    writes = random.choice([None, 0, 1])

    def step(a: Any, b: Any, c: Any) -> Any:
        result = a * 2 - b + c[1:2]
        if writes == 0:
            a.assign(a + b)
        elif writes == 1:
            c.assign(c * 2 - 1)
        return result + c

    captured = jit(step)
    for _ in range(10):
        places = [(random.randrange(3), random.randrange(9)) for _ in range(3)]
        seen = [tensors[base][start : start + 4] for base, start in places]
        parts = [arrays[base][start : start + 4] for base, start in places]
        a, b, c = parts
        expected = a * 2 - b + c[1:2]
        if writes == 0:
            a[:] = a + b
        elif writes == 1:
            c[:] = c * 2 - 1
        expected = expected + c
        assert captured(*seen).tolist() == expected.tolist()
        for each, array in zip(tensors, arrays, strict=True):
            assert each.tolist() == array.tolist()


def test_a_gradient_left_behind_is_stale_although_it_was_read_after_the_capture() -> None:
    weight = Tensor(np.ones((5, 3), np.float32), requires_grad=True).realize()

    @jit
    def step(x: Tensor) -> Tensor:
        weight.grad = None
        loss = (x @ weight).square().sum()
        loss.backward()
        return loss

    step(counted(4, 5))
    assert weight.grad is not None
    weight.grad.numpy()
    step(counted(4, 5) + 1)
    with pytest.raises(StaleOutputError):
        weight.grad.numpy()
