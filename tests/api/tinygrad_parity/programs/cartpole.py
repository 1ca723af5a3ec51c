"""Actor and critic learn to balance a pole, from a replay of what was played."""

import numpy as np
from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.helpers import Context
from tinygrad.nn.state import get_state_dict

rng = np.random.default_rng(7)


class Pole:
    def reset(self):
        self.state = rng.uniform(-0.05, 0.05, 4)
        return self.state.astype(np.float32)

    def step(self, action):
        _, v, angle, spin = self.state
        force, cos, sin = (10.0 if action == 1 else -10.0), np.cos(angle), np.sin(angle)
        temp = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        push = temp - 0.05 * turn * cos / 1.1
        self.state = self.state + 0.02 * np.array([v, push, spin, turn])
        fell = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state.astype(np.float32), 1.0, bool(fell)


class ActorCritic:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(4, 16), nn.Linear(16, 2)
        self.c1, self.c2 = nn.Linear(4, 16), nn.Linear(16, 1)

    def __call__(self, obs):
        return self.l2(self.l1(obs).tanh()).log_softmax(), self.c2(self.c1(obs).relu())


model = ActorCritic()
for _, weight in sorted(get_state_dict(model).items()):
    weight.assign(Tensor(rng.normal(0, 0.3, weight.shape).astype(np.float32))).realize()
opt = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-2)


@TinyJit
@Context(TRAINING=1)
def train_step(x, selected_action, reward, old_log_dist):
    log_dist, value = model(x)
    advantage = reward.reshape(-1, 1) - value
    mask = selected_action.reshape(-1, 1) == Tensor.arange(log_dist.shape[1]).reshape(1, -1)
    mask = mask.expand(log_dist.shape[0], -1)
    ratios = (log_dist - old_log_dist).exp()
    masked = ratios * mask.where(advantage.detach(), 0)
    clipped = ratios.clip(0.8, 1.2) * mask.where(advantage.detach(), 0)
    action_loss = -masked.minimum(clipped).sum(-1).mean()
    entropy = (log_dist.exp() * log_dist).sum(-1).mean()
    critic_loss = advantage.square().mean()
    opt.zero_grad()
    (action_loss + entropy * 0.0005 + critic_loss).backward()
    Tensor.realize(action_loss, entropy, critic_loss, *opt.schedule_step())
    return action_loss, entropy, critic_loss


@TinyJit
def get_log_dist(obs):
    return model(obs)[0].realize()


env = Pole()
for episode in range(3):
    obs, rewards, seen, actions, fell = env.reset(), [], [], [], False
    while not fell and len(rewards) < 30:
        chances = np.exp(get_log_dist(Tensor(obs)).numpy())
        action = int(rng.random() > chances[0])
        seen.append(obs)
        actions.append(action)
        obs, reward, fell = env.step(action)
        rewards.append(reward)
    discounted = [sum(0.98 ** (j - i) * r for j, r in enumerate(rewards) if j >= i)
                  for i in range(len(rewards))]  # fmt: skip
    X = Tensor(np.array(seen))
    A = Tensor(np.array(actions), dtype=dtypes.int32)
    R = Tensor(np.array(discounted, np.float32))
    old = model(X)[0].detach().realize()
    picks = Tensor(rng.integers(0, len(rewards), 8).astype(np.int32))
    batch = [each[picks].contiguous().realize() for each in (X, A, R, old)]
    for _ in range(3):
        loss = train_step(*batch)
    print(episode, len(rewards), [round(float(x.numpy()), 2) for x in loss])
print(np.round(get_log_dist(Tensor(np.ones(4, np.float32))).numpy(), 2).tolist())
