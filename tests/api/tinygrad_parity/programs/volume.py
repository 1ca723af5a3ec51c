"""A U-net over volumes: convolutions of three axes, instance norms, and the Dice loss."""

import numpy as np
from tinygrad import Tensor, nn
from tinygrad.helpers import Context
from tinygrad.nn.optim import SGD
from tinygrad.nn.state import get_parameters, get_state_dict

rng = np.random.default_rng(5)


class DownsampleBlock:
    def __init__(self, c0, c1, stride=2):
        self.conv1 = [
            nn.Conv2d(c0, c1, (3, 3, 3), stride, padding=(1, 1, 1, 1, 1, 1), bias=False),
            nn.InstanceNorm(c1), Tensor.relu,
        ]  # fmt: skip
        self.conv2 = [
            nn.Conv2d(c1, c1, kernel_size=(3, 3, 3), padding=(1, 1, 1, 1, 1, 1), bias=False),
            nn.InstanceNorm(c1), Tensor.relu,
        ]  # fmt: skip

    def __call__(self, x):
        return x.sequential(self.conv1).sequential(self.conv2)


class UpsampleBlock:
    def __init__(self, c0, c1):
        self.upsample_conv = [nn.ConvTranspose2d(c0, c1, kernel_size=(2, 2, 2), stride=2)]
        self.conv1 = DownsampleBlock(2 * c1, c1, stride=1)

    def __call__(self, x, skip):
        return self.conv1(Tensor.cat(x.sequential(self.upsample_conv), skip, dim=1))


class UNet3D:
    def __init__(self):
        self.input_block = DownsampleBlock(1, 3, stride=1)
        self.down, self.up = DownsampleBlock(3, 5), UpsampleBlock(5, 3)
        self.output = nn.Conv2d(3, 2, kernel_size=(1, 1, 1))

    def __call__(self, x):
        x = self.input_block(x)
        return self.output(self.up(self.down(x), x))


def dice_ce_loss(pred, target):
    ce = pred.transpose(1, -1).cross_entropy(target.transpose(1, -1).squeeze(-1).one_hot(2))
    hot = target.squeeze(1).one_hot(2).permute(0, 4, 1, 2, 3)
    share = pred.softmax(1)
    inter = (share * hot).sum(axis=(2, 3, 4))
    total = share.sum(axis=(2, 3, 4)) + hot.sum(axis=(2, 3, 4))
    return (ce + (1.0 - (2.0 * inter + 1e-6) / (total + 1e-6)).mean()) / 2


model = UNet3D()
for _, weight in sorted(get_state_dict(model).items()):
    weight.assign(Tensor(rng.normal(0, 0.4, weight.shape).astype(np.float32))).realize()
volume = Tensor(rng.normal(0, 1, (1, 1, 4, 4, 6)).astype(np.float32))
target = Tensor((rng.random((1, 1, 4, 4, 6)) < 0.4).astype(np.int32))
optimizer = SGD(get_parameters(model), lr=0.5, momentum=0.9, nesterov=True, weight_decay=1e-3)
out = model(volume)
print(out.shape, np.round(out.numpy()[0, 1, 2, 1], 3).tolist())
with Context(TRAINING=1):
    for _ in range(3):
        optimizer.zero_grad()
        loss = dice_ce_loss(model(volume), target)
        loss.backward()
        print(round(loss.item(), 3))
        optimizer.step()
