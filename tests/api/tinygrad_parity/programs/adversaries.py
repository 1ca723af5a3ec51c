"""Two networks against each other, transposed convolutions, images by place."""

import numpy as np
from tinygrad import Context, Tensor, dtypes, nn
from tinygrad.nn.state import get_parameters, get_state_dict

rng = np.random.default_rng(5)


class Generator:
    def __init__(self):
        self.l = nn.Linear(4, 8 * 2 * 2)
        self.c1, self.c2 = (
            nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1),
            nn.ConvTranspose2d(6, 1, 3, stride=2, padding=1, output_padding=1),
        )
        self.norm = nn.InstanceNorm(6)

    def __call__(self, z):
        x = self.l(z).reshape(-1, 8, 2, 2).leaky_relu(0.2)
        return self.c2(self.norm(self.c1(x)).leaky_relu()).tanh()


class Critic:
    def __init__(self):
        self.c1, self.l = nn.Conv2d(1, 4, 3, 2, 1), nn.Linear(64, 1)

    def __call__(self, x):
        return self.l(self.c1(x).leaky_relu(0.2).flatten(1))


g, d = Generator(), Critic()
for net in (g, d):
    for _, t in sorted(get_state_dict(net).items()):
        t.assign(Tensor(rng.standard_normal(t.shape).astype(np.float32) * 0.3)).realize()
og, od = (
    nn.optim.Adam(get_parameters(g), lr=0.01, b1=0.5),
    nn.optim.Adam(get_parameters(d), lr=0.01, b1=0.5),
)
real = Tensor(np.clip(rng.standard_normal((8, 1, 8, 8)), -1, 1).astype(np.float32)).realize()


def step_d(z):
    od.zero_grad()
    fake = g(z).detach()
    loss = d(real).binary_crossentropy_logits(Tensor.ones(8, 1)) + d(
        fake
    ).binary_crossentropy_logits(Tensor.zeros(8, 1))
    loss.backward()
    return loss.realize(*od.schedule_step()).item()


def step_g(z):
    og.zero_grad()
    loss = d(g(z)).binary_crossentropy_logits(Tensor.ones(8, 1))
    loss.backward()
    return loss.realize(*og.schedule_step()).item()


for _ in range(3):
    z = Tensor(rng.standard_normal((8, 4)).astype(np.float32)).realize()
    with Context(TRAINING=1):
        print("%.3f %.3f" % (step_d(z), step_g(z)))
img = g(Tensor(rng.standard_normal((1, 4)).astype(np.float32)))
print(img.shape, ["%.3f" % v for v in img.flatten()[:5].tolist()])
grid = ((img * 0.5 + 0.5) * 255).clip(0, 255).cast(dtypes.uint8).repeat((1, 1, 2, 2))[0, 0]
print(grid.shape, grid[0].tolist()[:4] == grid[8].tolist()[:4])
print(
    img.pad((1, 1, 1, 1), mode="reflect").shape,
    img.interpolate((4, 4)).shape,
    img.avg_pool2d(2).flatten()[:2].shape,
)
