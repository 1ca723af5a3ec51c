"""Saving and loading models, archives, helpers of the state module."""

import io
import pathlib
import sys
import tarfile
import tempfile

import numpy as np
from tinygrad import Tensor, dtypes, nn
from tinygrad.helpers import argfix, dedup, fetch, flatten, make_tuple, prod, round_up, temp
from tinygrad.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
    tar_extract,
)


class Net:
    def __init__(self):
        self.l1 = nn.Linear(4, 5)
        self.blocks = [nn.LayerNorm(5), {"last": nn.Linear(5, 6, bias=False)}]


folder = pathlib.Path(tempfile.mkdtemp())
net = Net()
print("names", sorted(get_state_dict(net)))
print("count", sum(prod(p.shape) for p in get_parameters(net)))
for number, (_, weight) in enumerate(sorted(get_state_dict(net).items())):
    values = np.arange(prod(weight.shape), dtype=np.float32).reshape(weight.shape)
    weight.assign(Tensor(values + number)).realize()
file = str(folder / "test.safetensors")
safe_save(get_state_dict(net), file, {"kind": "test"})
_, _, header = safe_load_metadata(file)
print("header", header["__metadata__"], header["l1.bias"]["shape"], header["l1.bias"]["dtype"])
other = Net()
load_state_dict(other, safe_load(file), verbose=False)
for name, weight in sorted(get_state_dict(other).items()):
    print(name, weight.shape, float(weight.sum().item()))

archive = folder / "files.tar"
with tarfile.open(archive, "w") as tar:
    for name, content in (("a.txt", b"alpha"), ("b/c.bin", bytes(range(7)))):
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
files = tar_extract(Tensor(archive))
print("tar", sorted(files), bytes(files["a.txt"].data()), files["b/c.bin"].tolist())
print("bytes", Tensor(b"abc").dtype == dtypes.uint8, Tensor(archive).shape)
print("helpers", argfix(1, 2), dedup([2, 1, 2]), flatten([[1], [2, 3]]), make_tuple(3, 2))
print("helpers", round_up(10, 8), pathlib.Path(temp("x")).name, fetch(file) == pathlib.Path(file))
print("arguments", sys.argv[1:])
