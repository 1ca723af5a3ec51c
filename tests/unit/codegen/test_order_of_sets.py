"""The code of a kernel does not depend on the order of sets, which is another one in each process.

Nodes are told apart by where they lie in memory, so a set of them runs in an order of chance.  Here
their hashes are drawn instead, so that two seeds give two orders.
"""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent
from typing import Final

import pytest

PROGRAMS: Final = {
    "scaled rows": """
        a = tensor(7, 5, 4)
        a = a - a.mean(0, keepdim=True)
        a = a.mean(2)
        a = a - a.mean(0, keepdim=True)
        (a.softmax(1) * 5).realize()
    """,
    "attention": """
        a = tensor(2, 33, 16)
        q, k, v = [(a @ tensor(16, 16)).reshape(2, 33, 2, 8).permute(0, 2, 1, 3) for _ in range(3)]
        a = q.scaled_dot_product_attention(k, v, is_causal=True)
        (a.permute(0, 2, 1, 3).reshape(2, 33, 16).layernorm() @ tensor(16, 5)).gelu().realize()
    """,
    "a step of a convolution's training": """
        w, b, c = tensor(17, 5, 3, 3), tensor(17), tensor(8, 17, 1, 1)
        for leaf in (w, b, c):
            leaf.requires_grad = True
        a = tensor(2, 5, 9, 9).conv2d(w, padding=1)
        mean = a.mean((0, 2, 3))
        spread = ((a - mean.reshape(1, -1, 1, 1)) ** 2).mean((0, 2, 3))
        a = a.batchnorm(b, b, mean, (spread + 1e-5).rsqrt()).relu()
        a = a.max_pool2d(3, 2, padding=1, ceil_mode=True).conv2d(c).cat(a[:, :8, :5, :5], dim=1)
        (a.softmax(1) * a).sum().backward()
        Tensor.realize(w.grad, b.grad, c.grad)
    """,
}

HEAD: Final = """
import sys
from tilework.ir.node import Node

numbers = {}

def numbered(node):
    known = numbers.get(id(node))
    if known is None:
        known = numbers[id(node)] = (hash((int(sys.argv[1]), len(numbers))), node)
    return known[0]

Node.__hash__ = numbered

import numpy as np
from tilework import Tensor
from tilework.render.llvm_ir import LlvmRenderer

written = []
render = LlvmRenderer.render

def noted(self, kernel):
    text = render(self, kernel)
    written.append(text)
    return text

LlvmRenderer.render = noted
rng = np.random.default_rng(3)

def tensor(*shape):
    return Tensor(rng.standard_normal(shape).astype(np.float32)).realize()
"""


def code_of(program: str, seed: int) -> str:
    """How many kernels a program has, and their text, with hashes of nodes from a seed."""
    text = f"{HEAD}\n{dedent(program)}\nprint(len(written), *written)"
    environment = os.environ | {"TILEWORK_CACHE_DIR": "", "TILEWORK_COMPILE_WORKERS": "1"}
    command = [sys.executable, "-c", text, str(seed)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_are_the_same_whatever_the_order_of_sets_is(name: str) -> None:
    first = code_of(PROGRAMS[name], 1)
    assert int(first.split(" ", 1)[0]) > 0
    assert code_of(PROGRAMS[name], 2) == first
