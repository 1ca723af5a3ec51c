"""Tilings of contractions are compared once for each kernel."""

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.base import settings
from tilework.codegen.analysis import Kernel
from tilework.codegen.plan import tilings
from tilework.engine.compile import clear_memory
from tilework.ir.node import Node
from tilework.target.spec import TargetSpec


def test_a_kernel_with_packed_weights_is_tiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Node] = []
    compare = tilings.tilings

    def note(kernel: Kernel, target: TargetSpec) -> object:
        asked.append(kernel.sink)
        return compare(kernel, target)

    monkeypatch.setattr(tilings, "tilings", note)
    monkeypatch.setattr(tilings, "_known", {})
    weights = Tensor(np.ones((192, 224), np.float32)).realize()
    given = Tensor(np.ones((96, 192), np.float32)).realize()
    clear_memory()
    with settings.override(cache_dir=None):
        found = jit(lambda x: (x @ weights).realize())(given).numpy()
    assert found.tolist() == np.full((96, 224), 192.0).tolist()
    # As it is, and with packed weights, which is what is lowered then.
    assert len(asked) >= 2
    assert len(asked) == len(set(asked))
