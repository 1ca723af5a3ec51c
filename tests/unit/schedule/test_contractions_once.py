"""Whether a sum is one of products is found once, however many passes ask."""

import numpy as np
import pytest

from tilework import Tensor
from tilework.ir.node import Node, sweep
from tilework.schedule import cache
from tilework.schedule.passes import cost, variation


@pytest.mark.parametrize("layers", [1, 6])
def test_a_contraction_is_looked_into_once(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Node] = []
    look = variation.varying_axes

    def note(node: Node, fuel: int) -> frozenset[int]:
        asked.append(node)
        return look(node, fuel)

    monkeypatch.setattr(cost, "varying_axes", note)
    cache.clear()
    sweep(force=True)
    weight = Tensor(np.eye(24, dtype=np.float32)).realize()
    rows = 40 + layers  # of no other test, whose nodes may be alive
    x = Tensor(np.ones((rows, 24), np.float32)).realize()
    for _ in range(layers):
        x = (x @ weight).relu()
    assert x.tolist() == np.ones((rows, 24)).tolist()
    # Two factors each, in the graph as it came and in the one that is cut into kernels.
    assert 2 * layers <= len(asked) <= 4 * layers + 4
