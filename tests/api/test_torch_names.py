"""Every public name of PyTorch's is here, or the table says why not; nothing in it is out of date.

`torch_differences.toml` is the table.
"""

import inspect
import tomllib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import tilework
from tilework import Tensor, nn

TABLE: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "torch_differences.toml").read_text(encoding="utf-8")
)

#: Section -> where PyTorch has its names, and where they may be here.
PLACES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "Tensor": (torch.Tensor, (Tensor,)),
    "torch": (torch, (Tensor, tilework, nn.functional)),
    "nn": (torch.nn, (nn,)),
    "functional": (torch.nn.functional, (nn.functional,)),
    "optim": (torch.optim, (nn.optim,)),
    "lr_scheduler": (torch.optim.lr_scheduler, (nn.optim,)),
    "init": (torch.nn.init, (nn.init,)),
    "utils": (torch.nn.utils, (nn.utils,)),
    "rnn": (torch.nn.utils.rnn, (nn.utils.rnn,)),
    "parametrizations": (torch.nn.utils.parametrizations, (nn.utils.parametrizations,)),
    "linalg": (torch.linalg, (Tensor,)),
    "fft": (torch.fft, (Tensor,)),
    "special": (torch.special, (Tensor,)),
    "distributions": (torch.distributions, (nn.distributions,)),
}


def public_names(place: Any) -> Iterable[str]:
    for name in dir(place):
        item = getattr(place, name, None)
        if name.startswith("_") or not callable(item) or isinstance(item, ModuleType):
            continue
        if place is torch and inspect.isclass(item):
            continue  # kinds of storage, of types and of errors
        yield name


def is_here(name: str, places: tuple[Any, ...]) -> bool:
    return any(hasattr(place, name) for place in places)


@pytest.mark.parametrize("section", list(PLACES))
def test_what_is_missing_has_a_reason(section: str) -> None:
    theirs, ours = PLACES[section]
    missing = {name for name in public_names(theirs) if not is_here(name, ours)}
    assert missing - TABLE[section].keys() == set()


@pytest.mark.parametrize("section", list(PLACES))
def test_no_reason_is_given_for_what_is_here(section: str) -> None:
    theirs, ours = PLACES[section]
    stale = {name for name in TABLE[section] if is_here(name, ours) or not hasattr(theirs, name)}
    assert stale == set()


def test_every_section_is_compared() -> None:
    assert set(TABLE) == {*PLACES, "optimizer_arguments"}  # see test_torch_optimizers.py
