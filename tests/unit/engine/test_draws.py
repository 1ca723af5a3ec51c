"""Functions that draw from generators of NumPy and Python: never frozen in silence."""

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.base.errors import CaptureError

OWN = np.random.default_rng(5)
OLD = np.random.RandomState(5)
PLAIN = random.Random(5)

SOURCES: dict[str, Callable[[], float]] = {
    "numpy global": lambda: np.random.rand(),
    "numpy normal": lambda: float(np.random.standard_normal(1)[0]),
    "python global": lambda: random.random(),
    "a generator": lambda: OWN.random(),
    "a RandomState": lambda: OLD.rand(),
    "a Random": lambda: PLAIN.random(),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_function_that_draws_gives_new_numbers_at_each_call(name: str) -> None:
    draw = SOURCES[name]
    step = jit(lambda x: x + draw())
    x = Tensor([0.0]).realize()
    found = {step(x).item() for _ in range(5)}
    assert len(found) == 5


@pytest.mark.parametrize("name", SOURCES)
def test_a_frozen_capture_refuses_to_repeat_draws(name: str) -> None:
    draw = SOURCES[name]
    step = jit(captures=1)(lambda x: x + draw())
    x = Tensor([0.0]).realize()
    step(x)
    with pytest.raises(CaptureError) as info:
        step(x)
    assert "draws from it" in str(info.value)


def test_generators_that_are_only_reached_do_not_matter() -> None:
    class Model:
        def __init__(self) -> None:
            self.generator = np.random.default_rng(1)
            self.weight = Tensor([2.0]).realize()

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.weight if self.generator is not None else x

    model = Model()
    step: Any = jit(lambda x: model(x))
    x = Tensor([3.0]).realize()
    for _ in range(4):
        model.generator.random()  # by somebody else, between the calls
        assert step(x).item() == 6.0
    assert step.num_captures == 1


def test_a_generator_that_the_function_loads_itself_is_noticed() -> None:
    code = """
import numpy as np
from tilework import Tensor, jit
step = jit(lambda x: x + np.random.rand())
x = Tensor([0.0]).realize()
print(len({step(x).item() for _ in range(4)}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.stdout.split() == ["4"]
