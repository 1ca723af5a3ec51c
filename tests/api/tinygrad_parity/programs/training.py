"""Loops of training: optimizers, captured steps, batches by index, counters, schedules."""

import os

import numpy as np
from tinygrad import Context, Device, GlobalCounters, Tensor, TinyJit, nn
from tinygrad.helpers import temp
from tinygrad.nn.optim import LAMB, LARS, SGD, Adam, AdamW, OptimizerGroup
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save

rng = np.random.default_rng(4)
ones = Tensor(np.ones((16, 16), np.float32)).realize()
X = Tensor(rng.standard_normal((64, 6)).astype(np.float32)).realize()
Y = Tensor((rng.standard_normal((64,)) > 0).astype(np.int32)).realize()


class Net:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(6, 8), nn.Linear(8, 2)

    def __call__(self, x):
        return self.l2(self.l1(x).relu())


start = {
    k: rng.standard_normal(v.shape).astype(np.float32) * 0.5
    for k, v in get_state_dict(Net()).items()
}
MAKERS = {
    "sgd": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: Adam(p, lr=0.01),
    "adamw": lambda p: AdamW(p, lr=0.01, weight_decay=0.1),
    "lamb": lambda p: LAMB(p, lr=0.01, weight_decay=0.01),
    "lars": lambda p: LARS(p, lr=0.1, weight_decay=0.01),
    "group": lambda p: OptimizerGroup(SGD(p[:2], lr=0.05), Adam(p[2:], lr=0.02)),
}


def trained(name, make):
    net = Net()
    load_state_dict(net, {k: Tensor(v) for k, v in start.items()}, verbose=False)
    opt = make(get_parameters(net))

    @TinyJit
    @Context(TRAINING=1)
    def step(idx):
        opt.zero_grad()
        loss = net(X[idx]).sparse_categorical_crossentropy(Y[idx], label_smoothing=0.1).backward()
        return loss.realize(*opt.schedule_step())

    losses = [
        step(Tensor(rng.permutation(64)[:16].astype(np.int32)).realize()).item() for _ in range(12)
    ]
    acc = (net(X).argmax(1) == Y).mean().item()
    print(
        name,
        " ".join("%.3f" % v for v in losses[::3]),
        "%.3f" % acc,
        "%.4f" % net.l1.weight.abs().sum().item(),
    )


for name, make in MAKERS.items():
    trained(name, make)
net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in start.items()}, verbose=False)
path = temp(f"training.{os.getpid()}.safetensors")
safe_save(get_state_dict(net), path)
loaded = safe_load(path)
print(sorted(loaded), "%.5f" % loaded["l1.weight"].to(Device.DEFAULT).sum().item())
GlobalCounters.reset()
(ones + 1).realize()
print(GlobalCounters.kernel_count >= 1)
os.remove(path)
