"""Two networks against each other, each with its optimizer; one sees what the other makes."""

import numpy as np
from tinygrad import Tensor, nn
from tinygrad.helpers import Context
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import get_parameters, get_state_dict

rng = np.random.default_rng(1)


class LinearGen:
    def __init__(self):
        self.l1, self.l2, self.bn = (
            Tensor.scaled_uniform(6, 16),
            Tensor.scaled_uniform(16, 12),
            nn.BatchNorm2d(16),
        )

    def forward(self, x):
        x = self.bn(x.dot(self.l1).reshape(-1, 16, 1, 1)).flatten(1).leaky_relu(0.2)
        return x.dot(self.l2).tanh()


class LinearDisc:
    def __init__(self):
        self.l1, self.l2 = Tensor.scaled_uniform(12, 16), Tensor.scaled_uniform(16, 2)

    def forward(self, x):
        return x.dot(self.l1).leaky_relu(0.2).dot(self.l2).log_softmax()


def make_labels(bs, col, val=-2.0):
    y = np.zeros((bs, 2), np.float32)
    y[range(bs), [col] * bs] = val
    return Tensor(y)


generator, discriminator = LinearGen(), LinearDisc()
for model in (generator, discriminator):
    for name, weight in sorted(get_state_dict(model).items()):
        if "bn" not in name:
            weight.assign(Tensor(rng.normal(0, 0.4, weight.shape).astype(np.float32))).realize()
optim_g = Adam(
    [generator.l1, generator.l2, generator.bn.weight, generator.bn.bias], lr=0.02, b1=0.5
)
optim_d = Adam(get_parameters(discriminator), lr=0.02, b1=0.5)


def train_discriminator(real, fake):
    optim_d.zero_grad()
    loss_real = (discriminator.forward(real) * make_labels(len(real.numpy()), 1)).mean()
    loss_fake = (discriminator.forward(fake) * make_labels(len(fake.numpy()), 0)).mean()
    loss_real.backward()
    loss_fake.backward()
    total = round(loss_real.item() + loss_fake.item(), 3)
    optim_d.step()
    return total


def train_generator(fake):
    optim_g.zero_grad()
    loss = (discriminator.forward(fake) * make_labels(fake.shape[0], 1)).mean()
    loss.backward()
    found = round(loss.item(), 3)
    optim_g.step()
    return found


with Context(TRAINING=1):
    for _ in range(4):
        real = Tensor(rng.normal(0.5, 0.2, (8, 12)).astype(np.float32))
        noise = Tensor(rng.normal(0, 1, (8, 6)).astype(np.float32))
        loss_d = train_discriminator(real, generator.forward(noise).detach())
        loss_g = train_generator(
            generator.forward(Tensor(rng.normal(0, 1, (8, 6)).astype(np.float32)))
        )
        print("generator", loss_g, "discriminator", loss_d)
print(np.round(generator.forward(Tensor.ones(1, 6)).numpy()[0, :5], 2).tolist())
