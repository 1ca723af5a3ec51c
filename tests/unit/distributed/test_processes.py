"""One program in several processes: the same bits as in one process, and failures that end all."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.emulated_cards import emulated_cards

from tilework import Tensor, distributed
from tilework.backends.world import WorldDevices
from tilework.base.errors import (
    BoundsError,
    DeviceLostError,
    DeviceUnavailableError,
    SettingsError,
    UserError,
)
from tilework.distributed import World, processes
from tilework.engine.device import Device
from tilework.runtime.links import NOTHING, Shared, shared

_PROGRAM = """
import sys, json
import numpy as np
from tilework import Tensor, distributed, jit, nn
from tilework.nn.state import get_parameters

class Net:
    def __init__(self):
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 3)
    def __call__(self, x):
        return self.down(self.up(x).relu())

def train(devices, place):
    Tensor.manual_seed(1)
    net = Net()
    place(get_parameters(net), devices)
    optimizer = nn.optim.SGD(get_parameters(net), lr=0.1)

    @jit
    def step(x, y):
        optimizer.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y)
        loss.backward()
        optimizer.step()
        return loss

    random, found = np.random.default_rng(0), []
    with Tensor.train():
        for _ in range(4):
            x = Tensor(random.standard_normal((5, 4)).astype(np.float32)).shard(devices, 0)
            y = Tensor(random.integers(0, 3, 5).astype(np.int32)).shard(devices, 0)
            found.append(step(x.realize(), y.realize()).item().hex())
    return found, [part.numpy().tobytes().hex() for part in get_parameters(net)]

def work(devices):
    x = Tensor.arange(15).reshape(5, 3).shard(devices, axis=0).realize()
    return [
        train(devices, distributed.replicate),
        train(devices, distributed.fully_shard),
        x.tolist(), x.flip(0).tolist(), x.sum(0).tolist(), (x + 1).shards()[1].tolist(),
    ]

if sys.argv[1] == "alone":
    print(json.dumps(work(("CPU:0", "CPU:1"))))
else:
    with distributed.init(wait_seconds=300, meet_seconds=300) as group:
        drawn = Tensor.rand(3).tolist()  # before any seed
        print(json.dumps([drawn, work(group.devices)]), flush=True)
"""

_ENDLESS = """
from tilework import Tensor, distributed
from tilework.base.errors import DeviceLostError, DeviceTimeoutError
group = distributed.init(wait_seconds=300, meet_seconds=300)
x = Tensor([1.0, 2.0]).shard(group.devices, axis=0).realize()
try:
    while True:
        (x * 2).sum().item()
        print("a step", flush=True)
except DeviceLostError as error:
    print("lost:", error.message, flush=True)
except DeviceTimeoutError as error:
    print("late:", error.message, flush=True)
group.finish()
"""


#: Before the program: the cards of each process are in software.
_EMULATED = """
from tilework.backends import cuda
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.cuda_device import emulated_backend
CARDS = EmulatedCuda(cards=2)
cuda.BACKEND = emulated_backend(CARDS)
"""

#: After that: and fold and copy by a library, as cards do that it is installed for.
_LIBRARY = """
from tilework.testing.emulators.nccl_processes import NcclOfProcesses
if sys.argv[1] != "alone":
    CARDS.collectives = NcclOfProcesses(CARDS)
"""

_BY_LIBRARY = """
from collections import Counter
import numpy as np
from tilework import Tensor, distributed, jit
from tilework.distributed.explain import plan_transfers
with distributed.init("CUDA", wait_seconds=300, meet_seconds=300) as group:
    rows = np.arange(group.size * 3, dtype=np.float32).reshape(group.size, 3)
    x = Tensor(rows).shard(group.devices, 0).realize()
    turn = jit(lambda x: x.flip(0).shard_like(x).contiguous())
    add = jit(lambda x: x.sum(0))
    sent = group.sent_bytes
    for _ in range(3):
        turned, total = turn(x), add(x)
        pair = x[:2].sum(0).realize()
    sent = group.sent_bytes - sent
    assert turned.numpy().tolist() == rows[::-1].tolist()
    assert total.numpy().tolist() == rows.sum(0).tolist()
    assert pair.numpy().tolist() == rows[:2].sum(0).tolist()
    choice = distributed.choose_allreduce(8, group.size, "processes")
    ways = {str(each).rpartition(", ")[2] for each in plan_transfers(x.shard(group.devices, None))}
    calls = Counter(CARDS.collectives.calls)
    print([sent, choice.algorithm, sorted(ways), calls["init_rank"]])
"""


def _port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _start(path: Path, port: int, rank: int, size: int) -> subprocess.Popen[str]:
    given = {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    return subprocess.Popen(
        ["/usr/bin/env", *[f"{name}={value}" for name, value in given.items()],
         sys.executable, str(path), "rank"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("before", ["", _EMULATED, "import sys" + _EMULATED + _LIBRARY])
def test_MDV_15_two_processes_give_the_bits_of_one_with_two_devices(
    tmp_path: Path, before: str
) -> None:
    path = tmp_path / "program.py"
    kind = "CUDA" if before else "CPU"
    program = _PROGRAM.replace("CPU:", f"{kind}:").replace("init(", f"init({kind!r}, ")
    path.write_text(before + program)
    port = _port()
    ranks = [_start(path, port, rank, 2) for rank in range(2)]
    alone = subprocess.run(
        [sys.executable, str(path), "alone"], check=True, capture_output=True, text=True
    )
    found = [json.loads(each.communicate(timeout=300)[0]) for each in ranks]
    assert [each.returncode for each in ranks] == [0, 0]
    wanted = json.loads(alone.stdout)
    assert [results for _, results in found] == [wanted, wanted]
    assert found[0][0] == found[1][0]


def test_MDV_15_cards_of_processes_fold_and_copy_by_the_library(tmp_path: Path) -> None:
    path = tmp_path / "library.py"
    path.write_text("import sys" + _EMULATED + _LIBRARY + _BY_LIBRARY)
    port = _port()
    ranks = [_start(path, port, rank, 2) for rank in range(2)]
    found = [each.communicate(timeout=300)[0] for each in ranks]
    by_library = "[0, 'library', ['by a library'], 1]\n"
    named = "[128, 'library', ['by a library'], 1]\n"  # the name of the communicator
    assert found == [named, by_library]


@pytest.mark.parametrize(("hangs", "says"), [(0, "lost"), (600, "late")])
def test_MDV_15_a_card_s_wait_for_a_process_that_is_gone_or_hangs_ends(
    tmp_path: Path, hangs: int, says: str
) -> None:
    path = tmp_path / "endless.py"
    program = _ENDLESS.replace("init(wait_seconds=300", 'init("CUDA", wait_seconds=8')
    step = 'print("a step", flush=True)'
    program = program.replace(step, f"{step}; time.sleep({hangs} * group.rank)")
    path.write_text("import sys, time" + _EMULATED + _LIBRARY + program)
    port = _port()
    lives, dies = _start(path, port, 0, 2), _start(path, port, 1, 2)
    assert dies.stdout is not None
    assert dies.stdout.readline() == "a step\n"
    if not hangs:
        dies.kill()
    text, _ = lives.communicate(timeout=300)
    dies.kill()
    dies.communicate(timeout=300)
    assert lives.returncode == 0
    assert text.splitlines()[-1].startswith(f"{says}: ")


def test_MDV_15_a_process_that_is_killed_ends_the_others_with_a_typed_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "endless.py"
    path.write_text(_ENDLESS)
    port = _port()
    lives, dies = _start(path, port, 0, 2), _start(path, port, 1, 2)
    assert dies.stdout is not None
    assert dies.stdout.readline() == "a step\n"
    dies.send_signal(signal.SIGKILL)
    text, _ = lives.communicate(timeout=300)
    dies.communicate(timeout=300)
    assert lives.returncode == 0
    assert text.splitlines()[-1].startswith("lost: processes: could not")


@pytest.fixture
def alone() -> Iterator[distributed.Processes]:
    with distributed.init(here=World()) as group:
        yield group


def test_a_group_of_one_works_as_one_device(alone: distributed.Processes) -> None:
    x = Tensor([1.0, 2.0]).shard(alone.devices).realize()
    assert (x + 1).tolist() == [2.0, 3.0]
    assert (alone.rank, alone.size, alone.device, alone.sent_bytes) == (0, 1, "WORLD+CPU", 0)


def test_a_run_that_fails_ends_the_group_for_the_others_too() -> None:
    group = distributed.init(here=World())
    x = Tensor([1.0, 2.0]).to(group.device).realize()
    index = Tensor([5]).to(group.device).realize()
    with pytest.raises(BoundsError):
        x.gather(0, index).realize()
    with pytest.raises(DeviceLostError, match="failed before"):
        group.barrier()
    group.finish()


def test_a_read_that_fails_ends_the_group_for_the_others_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with emulated_cards(monkeypatch):
        group = distributed.init("CUDA", here=World())
        x = Tensor([1.0, 2.0]).to(group.device).realize()
        index = Tensor([5]).to(group.device).realize()
        found = x.gather(0, index).realize()  # a card says so when it is asked
        with pytest.raises(BoundsError):
            found.numpy()
        with pytest.raises(DeviceLostError, match="failed before"):
            group.barrier()
        group.finish()


def test_a_process_belongs_to_one_group(alone: distributed.Processes) -> None:
    with pytest.raises(UserError, match="already"):
        distributed.init(here=World())


def test_a_device_of_a_rank_that_is_not_there_is_refused(alone: distributed.Processes) -> None:
    with pytest.raises(DeviceUnavailableError, match="no such rank"):
        Device["WORLD+CPU:1"].allocate(4)


def test_devices_of_the_world_are_gone_with_the_group() -> None:
    with distributed.init(here=World()) as group:
        x = Tensor([1.0]).to(group.device).realize()
    with pytest.raises(DeviceUnavailableError, match="WORLD"):
        Device[group.device].allocate(4)
    group.finish()
    del x


def test_a_group_whose_own_device_does_not_open_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise DeviceUnavailableError("the card", reason="no more memory")

    with monkeypatch.context() as patched:
        agreed = Shared("WORLD+CPU", (0,))
        patched.setattr(processes, "agree", lambda *_: agreed)
        patched.setattr(WorldDevices, "_open_own", refuse)
        with pytest.raises(DeviceUnavailableError, match="no more memory"):
            distributed.init(here=World())
    assert shared() is NOTHING
    with distributed.init(here=World()) as group:
        assert Tensor([1, 2], device=group.device).tolist() == [1, 2]


def test_a_launcher_that_names_no_place_to_meet_is_an_error() -> None:
    with pytest.raises(SettingsError, match="nobody says where"):
        distributed.init(here=World(0, 2, 0, "mpi"))


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "5"}, "h:5"),
        (
            {
                "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "5",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            },
            "h:6",
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "a",
            },
            "",
        ),
    ],
)  # fmt: skip
def test_launchers_say_where_to_meet(given: dict[str, str], address: str) -> None:
    assert distributed.world(given).address == address


@pytest.mark.parametrize(
    "given",
    [
        {
            "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "a",
        },
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_NNODES": "1", "SLURM_JOB_ID": "7"},
    ],
)  # fmt: skip
def test_processes_of_one_host_meet_at_a_port_by_the_name_of_their_run(
    given: dict[str, str],
) -> None:
    found = distributed.world(given).address
    other = distributed.world({**given, "PMIX_NAMESPACE": "b", "SLURM_JOB_ID": "8"}).address
    assert found.startswith("127.0.0.1:2")
    assert found == distributed.world(given).address != other
