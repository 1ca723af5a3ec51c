"""Training over several devices: batches are split, weights are on each of them."""

import numpy as np
from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.helpers import Context, getenv
from tinygrad.nn.optim import SGD
from tinygrad.nn.state import get_parameters, get_state_dict

GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(getenv("GPUS", 2)))
rng = np.random.default_rng(0)


class Model:
    def __init__(self):
        self.layers = [
            nn.Conv2d(1, 4, 3), Tensor.relu, Tensor.max_pool2d, nn.BatchNorm(4),
            lambda x: x.flatten(1), nn.Linear(4 * 3 * 3, 5),
        ]  # fmt: skip

    def __call__(self, x):
        return x.sequential(self.layers)


model = Model()
for name, weight in sorted(get_state_dict(model).items()):
    if "running" not in name and "num_batches" not in name:
        weight.assign(Tensor(rng.normal(0, 0.3, weight.shape).astype(np.float32))).realize()
for weight in get_parameters(model):
    weight.shard_(GPUS)
optimizer = SGD(get_parameters(model), lr=0.05, momentum=0.9)


@TinyJit
def step(x, y):
    optimizer.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y).backward()
    return loss.realize(*optimizer.schedule_step())


images = rng.normal(0, 1, (8, 1, 8, 8)).astype(np.float32)
labels = rng.integers(0, 5, 8).astype(np.int32)
with Context(TRAINING=1):
    for _ in range(4):
        x = Tensor(images).shard(GPUS, axis=0).realize()
        y = Tensor(labels).shard(GPUS, axis=0).realize()
        print("loss", round(float(step(x, y).numpy()), 4))

print(len(GPUS), isinstance(x.device, tuple), x.shape)
out = model(Tensor(images).shard(GPUS, axis=0))
print([round(float(v), 3) for v in out.numpy()[0]])
a = Tensor(rng.normal(0, 1, (4, 6)).astype(np.float32)).shard(GPUS, axis=1)
b = Tensor(rng.normal(0, 1, (6, 4)).astype(np.float32)).shard(GPUS, axis=0)
print([round(float(v), 3) for v in (a @ b).numpy()[1]])
print([round(float(v), 3) for v in a.softmax(1).to(Device.DEFAULT).numpy()[2]])
print(round(float(a.sum().numpy()), 3), round(float((a + 1).max().numpy()), 3))
