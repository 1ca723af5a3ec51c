"""First steps: tensors, operations, a layer by hand, a few steps of training."""

import numpy as np
from tinygrad import Context, Device, Tensor, dtypes
from tinygrad.helpers import Timing
from tinygrad.nn.optim import SGD

print("device", Device.DEFAULT.split(":")[0])

t1 = Tensor([1, 2, 3, 4, 5])
t2 = Tensor(np.array([[1, 2], [3, 4]], dtype=np.float32))
print("sum", t1.sum().item(), "mean", t2.mean(axis=1).tolist())
print("full", Tensor.full(shape=(2, 3), fill_value=5).tolist(), Tensor.eye(3).tolist())
print("arange", Tensor.arange(start=0, stop=10, step=3).tolist())
print("dtypes", Tensor([1, 2], dtype=dtypes.float16).dtype == dtypes.half, t1.dtype == dtypes.int)
t6 = Tensor([-1.0, 2.0, 3.0])
print("chain", ((t6 + 1) * 2).relu().log_softmax().numpy().round(5).tolist())
print("cast", Tensor([1.7, -2.3]).cast(dtypes.int32).tolist(), Tensor([0, 3]).bool().tolist())


class Linear:
    def __init__(self, weight):
        self.weight = Tensor(weight)
        self.bias = Tensor.zeros(weight.shape[0]).contiguous()

    def __call__(self, x):
        return x.linear(self.weight.transpose(), self.bias)


class TinyNet:
    def __init__(self):
        rng = np.random.default_rng(0)
        self.l1 = Linear(rng.normal(0, 0.1, (16, 8)).astype(np.float32))
        self.l2 = Linear(rng.normal(0, 0.1, (4, 16)).astype(np.float32))

    def __call__(self, x):
        return self.l2(self.l1(x).leaky_relu())


net = TinyNet()
opt = SGD([net.l1.weight, net.l2.weight], lr=0.5)
rng = np.random.default_rng(1)
inputs = rng.normal(0, 1, (32, 8)).astype(np.float32)
labels = (np.abs(inputs[:, :4]).argmax(axis=1)).astype(np.int32)

with Context(TRAINING=1), Timing("trained in ", enabled=False):
    for step in range(8):
        x, y = Tensor(inputs), Tensor(labels)
        out = net(x)
        loss = out.sparse_categorical_crossentropy(y)
        acc = (out.argmax(axis=-1) == y).mean()
        opt.zero_grad()
        loss.backward()
        Tensor.realize(loss, acc, *opt.schedule_step())
        print("step", step, round(loss.item(), 4), round(acc.item(), 4))
