"""A speech transducer: stacked LSTMs, a prediction network, a joint, and greedy decoding."""

import numpy as np
from tinygrad import Tensor, nn
from tinygrad.nn import Embedding, Linear
from tinygrad.nn.state import get_state_dict, load_state_dict

VOCAB = 6
BLANK = VOCAB - 1


class LSTM:
    def __init__(self, input_size, hidden_size, layers):
        self.hidden_size = hidden_size
        self.cells = [
            nn.LSTMCell(input_size if i == 0 else hidden_size, hidden_size) for i in range(layers)
        ]

    def step(self, x, hc):
        states = []
        for i, cell in enumerate(self.cells):
            h, c = cell(x, None if hc is None else (hc[0][i], hc[1][i]))
            states.append((h, c))
            x = h
        return x, (Tensor.stack(*[h for h, _ in states]), Tensor.stack(*[c for _, c in states]))

    def __call__(self, x, hc=None):
        outputs = []
        for t in range(x.shape[0]):
            y, hc = self.step(x[t], hc)
            outputs.append(y.unsqueeze(0))
        return outputs[0].cat(*outputs[1:], dim=0), hc


class StackTime:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x, lens):
        x = x.pad(((0, (-x.shape[0]) % self.factor), (0, 0), (0, 0)))
        x = x.reshape(x.shape[0] // self.factor, x.shape[1], x.shape[2] * self.factor)
        return x, (lens + self.factor - 1) // self.factor


class Encoder:
    def __init__(self):
        self.pre_rnn = LSTM(5, 8, 2)
        self.stack_time = StackTime(2)
        self.post_rnn = LSTM(16, 8, 1)

    def __call__(self, x, lens):
        x, _ = self.pre_rnn(x)
        x, lens = self.stack_time(x, lens)
        x, _ = self.post_rnn(x)
        return x.transpose(0, 1), lens


class Prediction:
    def __init__(self):
        self.emb = Embedding(VOCAB - 1, 7)
        self.rnn = LSTM(7, 7, 1)

    def __call__(self, x, hc, mask):
        emb = self.emb(x) * mask
        x, hc = self.rnn(emb.transpose(0, 1), hc)
        return x.transpose(0, 1), hc


class Joint:
    def __init__(self):
        self.l1, self.l2 = Linear(15, 9), Linear(9, VOCAB)

    def __call__(self, f, g):
        (_, T, H), (B, U, H2) = f.shape, g.shape
        f = f.unsqueeze(2).expand(B, T, U, H)
        g = g.unsqueeze(1).expand(B, T, U, H2)
        return self.l2(self.l1(f.cat(g, dim=3)).relu())


class RNNT:
    def __init__(self):
        self.encoder, self.prediction, self.joint = Encoder(), Prediction(), Joint()

    def decode(self, x, lens):
        logits, lens = self.encoder(x, lens)
        found = []
        for b in range(logits.shape[0]):
            labels, hc, label, mask = [], None, Tensor([[0]]), Tensor([[[0.0]]])
            for t in range(int(lens[b].item())):
                added = 0
                while added < 3:
                    g, hc_next = self.prediction(label, hc, mask)
                    scores = self.joint(logits[b : b + 1, t : t + 1], g)[0, 0, 0]
                    k = scores.argmax().item()
                    if k == BLANK:
                        break
                    labels.append(k)
                    hc, label, mask, added = hc_next, Tensor([[k]]), Tensor([[[1.0]]]), added + 1
            found.append(labels)
        return found


rng = np.random.default_rng(4)
model = RNNT()
state = get_state_dict(model)
load_state_dict(
    model,
    {k: Tensor(rng.normal(0, 0.7, state[k].shape).astype(np.float32)) for k in sorted(state)},
    verbose=False,
)
x = Tensor(rng.normal(0, 1, (7, 2, 5)).astype(np.float32))
lens = Tensor([7, 5])
enc, enc_lens = model.encoder(x, lens)
print(enc.shape, enc_lens.tolist())
print(np.round(enc.numpy()[1, -1, :4], 3).tolist())
print(model.decode(x, lens))
g, _ = model.prediction(Tensor([[1, 2, 0], [3, 3, 4]]), None, Tensor.ones(2, 3, 1))
joint = model.joint(enc, g).log_softmax()
print(joint.shape, np.round(joint.numpy()[0, 1, 2], 3).tolist())
