"""An encoder of sentences with padding, trained to fill masked words."""

import math

import numpy as np
from tinygrad import Tensor, dtypes, nn
from tinygrad.helpers import Context
from tinygrad.nn.optim import AdamW
from tinygrad.nn.state import get_parameters, get_state_dict

rng = np.random.default_rng(2)
V, D, H, L, MASK, PAD = 20, 16, 4, 10, 1, 0


class Embeddings:
    def __init__(self):
        self.word, self.position, self.kind = (
            nn.Embedding(V, D),
            nn.Embedding(L, D),
            nn.Embedding(2, D),
        )
        self.norm = nn.LayerNorm(D, eps=1e-12)

    def __call__(self, ids, kinds):
        place = Tensor.arange(ids.shape[1]).unsqueeze(0).expand(*ids.shape)
        return self.norm(self.word(ids) + self.position(place) + self.kind(kinds)).dropout(0.1)


class Layer:
    def __init__(self):
        self.query, self.key, self.value = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.out, self.up, self.down = nn.Linear(D, D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def heads(self, x):
        return x.reshape(x.shape[0], -1, H, D // H).transpose(1, 2)

    def __call__(self, x, mask):
        q, k, v = (self.heads(layer(x)) for layer in (self.query, self.key, self.value))
        scores = q @ k.transpose(2, 3) / math.sqrt(D // H) + mask
        context = (scores.softmax(-1).dropout(0.1) @ v).transpose(1, 2).reshape(*x.shape)
        x = self.ln1(x + self.out(context).dropout(0.1))
        return self.ln2(x + self.down(self.up(x).gelu()).dropout(0.1))


class Bert:
    def __init__(self):
        self.embeddings, self.layers = Embeddings(), [Layer() for _ in range(2)]
        self.transform, self.norm = nn.Linear(D, D), nn.LayerNorm(D)
        self.bias = Tensor.zeros(V)
        self.pooler, self.next = nn.Linear(D, D), nn.Linear(D, 2)

    def __call__(self, ids, kinds, attention):
        mask = (1.0 - attention.reshape(ids.shape[0], 1, 1, -1).cast(dtypes.float32)) * -10000.0
        x = self.embeddings(ids, kinds)
        for layer in self.layers:
            x = layer(x, mask)
        words = self.norm(self.transform(x).gelu()) @ self.embeddings.word.weight.T + self.bias
        return words, self.next(self.pooler(x[:, 0]).tanh())


model = Bert()
for name, weight in sorted(get_state_dict(model).items()):
    if "norm" not in name and "ln" not in name:
        weight.assign(Tensor(rng.normal(0, 0.2, weight.shape).astype(np.float32))).realize()
ids = rng.integers(2, V, (4, L)).astype(np.int32)
ids[1, 7:] = PAD
ids[3, 4:] = PAD
targets = np.where((rng.random((4, L)) < 0.3) & (ids != PAD), ids, -100)
masked = np.where(targets >= 0, MASK, ids)
kinds = (np.arange(L) >= 5).astype(np.int32) * np.ones((4, 1), np.int32)
attention = Tensor((ids != PAD).astype(np.int32))
nxt = Tensor(np.array([0, 1, 1, 0], np.int32))
optimizer = AdamW(get_parameters(model), lr=1e-2, weight_decay=0.01)
words, _ = model(Tensor(masked), Tensor(kinds), attention)
print(words.shape, np.round(words.numpy()[1, 2, :4], 3).tolist())
for _ in range(4):
    with Context(TRAINING=0):
        words, other = model(Tensor(masked), Tensor(kinds), attention)
        loss = words.sparse_categorical_crossentropy(Tensor(targets), ignore_index=-100)
        loss = loss + other.sparse_categorical_crossentropy(nxt)
        optimizer.zero_grad()
        loss.backward()
        norm = Tensor.stack(*[p.grad.square().sum() for p in optimizer.params]).sum().sqrt()
        print(round(loss.item(), 3), round(norm.item(), 2))
    with Context(TRAINING=1):
        optimizer.step()
