"""An ONNX model run by name of its inputs."""

import sys

import numpy as np
from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner

runner = OnnxRunner(sys.argv[1])
name = next(iter(runner.graph_inputs))
shape = tuple(int(size) for size in runner.graph_inputs[name].shape)
print("input", name, shape, "outputs", list(runner.graph_outputs))
picture = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
outputs = runner({name: Tensor(picture)})
for key in runner.graph_outputs:
    print(key, outputs[key].shape, [round(float(x), 3) for x in outputs[key].numpy().ravel()[:10]])
