"""Running expressions: failures give nothing away, processes and threads share caches."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.base import faults, settings
from tilework.base.errors import BoundsError, CaptureError
from tilework.engine import compile as engine_compile
from tilework.engine.device import Device
from tilework.engine.stats import COUNTERS, difference
from tilework.runtime.lease import Lease
from tilework.tensor.version import from_buffer

PROGRAM = """
import numpy as np
from tilework import Tensor
x = Tensor(np.arange(24, dtype=np.float32).reshape(4, 6))
print(((x @ x.T).exp().log().sum(1) + x.max(1)).tolist())
"""


def environment(cache: Path | str) -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path), "TILEWORK_CACHE_DIR": str(cache)}


def run_program(cache: Path | str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300,
        env=environment(cache),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_EXE_25_eight_processes_share_one_cache(tmp_path: Path) -> None:
    wanted = run_program("")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True,
            env=environment(tmp_path),
        )
        for _ in range(8)
    ]  # fmt: skip
    assert {process.communicate(timeout=300)[0] for process in running} == {wanted}


@pytest.mark.slow
def test_EXE_24_a_killed_process_leaves_a_usable_cache(tmp_path: Path) -> None:
    wanted = run_program("")
    for delay in (0.2, 0.4, 0.6, 0.8):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=environment(tmp_path)
        )
        try:
            process.communicate(timeout=delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    assert run_program(tmp_path) == wanted


def test_a_read_only_cache_folder_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    engine_compile.clear_memory()
    with settings.override(cache_dir=tmp_path / "file" / "below"):
        assert (Tensor([1.5, 2.5]) * 3.25).tolist() == [4.875, 8.125]


def test_EXE_21_a_failing_run_gives_no_result() -> None:
    with faults.count() as points:
        (Tensor([1.0, 2.0]).contiguous().realize() * 7 + Tensor([3.0, 1.0])).tolist()
    for step in range(len(points)):
        a, b = Tensor([1.0, 2.0]).contiguous().realize(), Tensor([3.0, 1.0])
        total = a * 7 + b
        try:
            with faults.fail_at(step):
                total.realize()
        except faults.InjectedFault:
            assert not total.is_realized
        assert total.tolist() == [10.0, 15.0]


def test_EXE_21_an_index_out_of_range_makes_no_result() -> None:
    table, rows = Tensor([1.0, 2.0, 3.0]), Tensor([0, 1])
    found = table[(rows * 5).realize()]
    with pytest.raises(BoundsError):
        found.tolist()
    assert not found.is_realized
    assert table[rows].tolist() == [1.0, 2.0]


def test_without_the_check_an_index_out_of_range_reads_zero() -> None:
    table, rows = Tensor([1.0, 2.0, 3.0]), Tensor([1, 5]).realize()
    with settings.override(check_index=False):
        assert table[rows].tolist() == [2.0, 0.0]
    with pytest.raises(BoundsError):
        table[rows].tolist()


def test_the_log_level_decides_what_a_run_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(log_level=2):
        assert (Tensor([1.0, 2.0]) * 3).tolist() == [3.0, 6.0]
    assert "tilework: CPU: ran" in capsys.readouterr().err
    assert (Tensor([1.0, 2.0]) * 5).tolist() == [5.0, 10.0]
    assert capsys.readouterr().err == ""


def test_EXE_21_a_fault_in_a_replay_is_raised_by_that_call() -> None:
    table = Tensor([1.0, 2.0, 3.0]).realize()
    pick = jit(lambda rows: table[rows])
    good, bad = Tensor([2, 0]).realize(), Tensor([2, 7]).realize()
    for _ in range(3):
        assert pick(good).tolist() == [3.0, 1.0]
    with pytest.raises(BoundsError):
        pick(bad)
    assert pick(good).tolist() == [3.0, 1.0]


def test_EXE_08_a_failure_at_each_step_of_a_capture_leaves_nothing() -> None:
    def step(x: Tensor) -> Tensor:
        return (x * 2).realize() + 1

    x = Tensor([1.0, 2.0]).realize()
    jit(step)(x)  # compiled, so that each capture passes the same points
    with faults.count() as points:
        jit(step)(x)
    for number in range(len(points)):
        captured = jit(step)
        with faults.fail_at(number), pytest.raises(faults.InjectedFault):
            captured(x)
        assert captured.num_captures == 0
        assert [captured(x).tolist() for _ in range(3)] == [[3.0, 5.0]] * 3


def test_EXE_26_a_write_that_no_result_depends_on_is_replayed() -> None:
    log = Tensor.zeros(1).contiguous().realize()

    def step(x: Tensor) -> Tensor:
        log.assign(log + 1)
        return x * 2

    captured = jit(step)
    for _ in range(5):
        captured(Tensor([1.0]).realize())
    assert log.tolist() == [5.0]


@pytest.mark.parametrize("seed", range(6))
def test_EXE_09_plain_capture_and_replay_give_the_same_bits(seed: int) -> None:
    random = np.random.default_rng(seed)
    first, second = (random.standard_normal((5, 7)).astype(np.float32) for _ in range(2))

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        z = (x @ y.T).softmax()
        return [z, (x * y).exp().sum(0), z.realize().log().mean(), x.max(1) - y.min(1)]

    captured = jit(function)
    runs = []
    for call in (function, captured, captured):
        found = call(Tensor(first), Tensor(second))
        runs.append([tensor.numpy().tobytes() for tensor in found])
    assert runs[0] == runs[1] == runs[2]


def test_GEN_11_a_forked_child_computes() -> None:
    x = Tensor([1.0, 2.0]).realize()
    captured = jit(lambda a: a * 3)
    for _ in range(3):
        captured(x)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = repr([captured(x).tolist(), (x + 10).tolist()])
        except BaseException as error:  # noqa: BLE001  (reported to the parent)
            text = repr(error)
        os.write(writer, text.encode())
        os._exit(0)
    ready, _, _ = select.select([reader], [], [], 60)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert ready
    assert os.read(reader, 4096).decode() == "[[3.0, 6.0], [11.0, 12.0]]"
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "float64", "int64", "bool"])
def test_EXE_15_memory_at_any_offset_is_read_and_written(dtype: str) -> None:
    count = 37
    width = np.dtype(dtype).itemsize
    for offset in range(0, 128, 1 if width < 4 else 3):
        memory = np.zeros(count * width + 256, np.uint8)
        numbers = (np.arange(count) % 2).astype(dtype)
        place = memory[offset : offset + count * width]
        place[:] = numbers.view(np.uint8)
        lease = Lease(memory.ctypes.data + offset, count * width, owner="test")
        buffer = Device["CPU"].map(lease)
        tensor = Tensor._over(from_buffer(buffer, "CPU", (count,), dtypes.by_name(dtype)))
        other = Tensor(numbers)
        assert (tensor == other).all().item()
        tensor.assign(tensor.where(tensor, tensor) if dtype == "bool" else tensor + other)
        tensor.realize()
        wanted = numbers if dtype == "bool" else numbers * 2
        assert place.tobytes() == wanted.tobytes()
        assert not memory[:offset].any()
        assert not memory[offset + count * width :].any()
        del tensor, buffer
        lease.release()


def test_EXE_20_captures_work_again_after_their_device_was_reopened() -> None:
    captured = jit(lambda x: x * 3)
    x = Tensor([1.0, 2.0], device="PYTHON").realize()
    for _ in range(3):
        captured(x)
    Device["PYTHON"].close()
    assert captured(x).tolist() == [3.0, 6.0]


def test_a_replay_on_the_interpreter_is_right_too() -> None:
    captured = jit(lambda x: (x * 2).sum() + 1)
    found = [captured(Tensor([i, 1.0], device="PYTHON")).item() for i in range(4)]
    assert found == [3.0, 5.0, 7.0, 9.0]


def test_EXE_01_memory_stays_flat_over_many_replays() -> None:
    captured = jit(lambda x: (x * 2).exp())
    x = Tensor(np.ones(1000, np.float32)).realize()
    for _ in range(5):
        captured(x)
    used = Device["CPU"].memory_used()["used"]
    before = COUNTERS.snapshot()
    for _ in range(5000):
        captured(x)
    assert Device["CPU"].memory_used()["used"] == used
    assert "allocations" not in difference(before)


def test_a_variable_that_code_looks_at_is_pinned() -> None:
    from tilework import Variable

    base = Tensor(np.arange(8, dtype=np.float32)).realize()
    n = Variable("n", 1, 8)

    def function(x: Tensor) -> Tensor:
        return x.sum() * (2 if int(x.shape[0]) > 3 else 1)

    captured = jit(function)
    found = []
    for count in (2, 5, 3, 6):
        try:
            found.append(captured(base[: n.bind(count)]).item())
        except CaptureError:
            found.append(function(base[: n.bind(count)]).item())
    assert found == [1.0, 20.0, 3.0, 30.0]


def test_an_index_out_of_range_names_the_size_of_its_axis() -> None:
    table, where = Tensor.ones(4, 3), Tensor([1, 7])
    with pytest.raises(BoundsError) as caught:
        table[where].realize().numpy()
    assert caught.value.expected == "0 <= index < 4"
    assert "an axis of 4" in str(caught.value)
