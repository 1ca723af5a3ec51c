"""A convolutional network trained on images, its step captured by TinyJit."""

from typing import Callable, List

import numpy as np
from tinygrad import Context, GlobalCounters, Tensor, TinyJit, nn
from tinygrad.helpers import colored, getenv, trange

rng = np.random.default_rng(0)


class Model:
    def __init__(self):
        self.layers: List[Callable[[Tensor], Tensor]] = [
            nn.Conv2d(1, 4, 3), Tensor.relu,
            nn.BatchNorm(4), Tensor.max_pool2d,
            nn.Conv2d(4, 8, 3), Tensor.relu,
            nn.BatchNorm(8), Tensor.max_pool2d,
            lambda x: x.flatten(1), nn.Linear(32, 10),
        ]  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


images = rng.integers(0, 256, (64, 1, 14, 14)).astype(np.uint8)
targets = rng.integers(0, 10, (64,)).astype(np.uint8)
X_train, Y_train = Tensor(images), Tensor(targets)

model = Model()
for name, parameter in sorted(nn.state.get_state_dict(model).items()):
    if name.endswith("weight") and len(parameter.shape) > 1:
        parameter.assign(Tensor(rng.normal(0, 0.1, parameter.shape).astype(np.float32))).realize()
    elif name.endswith("bias"):
        parameter.assign(Tensor.zeros(*parameter.shape)).realize()

opt = nn.optim.Adam(nn.state.get_parameters(model), lr=0.01)
batches = Tensor(rng.integers(0, 64, (12, 16)).astype(np.int32))


@TinyJit
def train_step(samples: Tensor) -> Tensor:
    with Context(TRAINING=1):
        opt.zero_grad()
        loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples]).backward()
        return loss.realize(*opt.schedule_step())


@TinyJit
def get_test_acc() -> Tensor:
    return (model(X_train).argmax(axis=1) == Y_train).mean() * 100


test_acc = float("nan")
GlobalCounters.reset()
for i in (t := trange(getenv("STEPS", 12), disable=True)):
    loss = train_step(batches[i].contiguous().realize())
    if i % 3 == 2:
        test_acc = get_test_acc().item()
    t.set_description(f"loss: {loss.item():6.2f} test_accuracy: {test_acc:5.2f}%")
    print("step", i, round(loss.item(), 2))
print("kernels", GlobalCounters.kernel_count > 0, "memory", GlobalCounters.mem_used > 0)
print(colored("done", "green"))
