"""A training program written for tinygrad's several devices runs as it is."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from tinygrad import Tensor, TinyJit, Device, GlobalCounters, nn
from tinygrad.nn.state import get_state_dict, get_parameters

GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(2))


class Model:
    def __init__(self):
        self.l1 = nn.Conv2d(1, 4, kernel_size=(3, 3))
        self.l2 = nn.Linear(4 * 4 * 4, 10)

    def __call__(self, x):
        return self.l2(self.l1(x).relu().flatten(1).dropout(0.5))


Tensor.manual_seed(3)
model = Model()
for key, value in get_state_dict(model).items():
    value.to_(GPUS)
optimizer = nn.optim.Adam(get_parameters(model))
X, Y = Tensor.randn(20, 1, 6, 6), Tensor.randint(20, high=10)


@TinyJit
@Tensor.train()
def step():
    optimizer.zero_grad()
    samples = Tensor.randint(16, high=20)
    x, y = X[samples].shard_(GPUS, axis=0), Y[samples].shard_(GPUS, axis=0)
    loss = model(x).sparse_categorical_crossentropy(y).backward()
    optimizer.step()
    return loss


losses = []
for _ in range(5):
    GlobalCounters.reset()
    losses.append(step().item())
print(len(set(losses)), GlobalCounters.kernel_count > 0, model.l2.weight.device)
like = Tensor.ones(16).shard_like(Tensor.arange(16).shard(GPUS, axis=0))
print(like.device, like.sum().item())
"""


def test_a_program_of_several_devices_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tilework.compat.tinygrad", str(script)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "5 True ('CPU', 'CPU:1')",
        "('CPU', 'CPU:1') 16.0",
    ], done.stderr
