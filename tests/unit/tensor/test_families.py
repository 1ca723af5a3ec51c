"""The families of Tensor's methods share one object: no two may mean other things by a name."""

from __future__ import annotations

import dis
from collections import defaultdict
from types import FunctionType

from tilework import Tensor


def _only_declares(method: object) -> bool:
    """Does a method say that another family has it, and do nothing else?"""
    return isinstance(method, FunctionType) and any(
        step.argval == "NotImplementedError" for step in dis.get_instructions(method)
    )


def test_no_two_families_define_one_private_name() -> None:
    """A family may declare what it needs of another one, which then comes before it."""
    owners: dict[str, list[type]] = defaultdict(list)
    for family in Tensor.__mro__[:-1]:
        for name, value in vars(family).items():
            if name.startswith("_") and not name.endswith("__") and isinstance(value, FunctionType):
                owners[name].append(family)
    shared = {name: families for name, families in owners.items() if len(families) > 1}
    clashes = [
        f"{name}: {first.__name__} and {later.__name__}"
        for name, (first, *others) in shared.items()
        for later in others
        if _only_declares(vars(first)[name]) or not _only_declares(vars(later)[name])
    ]
    assert clashes == []
    assert shared  # what is declared in one family and defined in another
