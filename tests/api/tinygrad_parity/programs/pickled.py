"""A captured function pickled and used again."""

import pickle

from tinygrad import Tensor, TinyJit

weight = Tensor([[1.0, 2.0], [3.0, 4.0]]).contiguous().realize()


@TinyJit
def run(x):
    return ((x @ weight).relu() + 1).realize()


for number in range(4):
    print("call", number, run(Tensor([[number - 1.0, 1.0]]).contiguous().realize()).tolist())
data = pickle.dumps(run)
del run
again = pickle.loads(data)
for number in range(3):
    print("again", number, again(Tensor([[number - 1.0, 1.0]]).contiguous().realize()).tolist())
