"""Which names code reads, by its instructions: of globals, of attributes, and those it asks for.

`getattr(layer, "bias", None)` and `hasattr(layer, "bias")` ask for one name, that may not be there.
Code that asks for a name that it computes, or that looks at all attributes, may read any:
`reads_any` says so.
"""

from __future__ import annotations

import dis
import functools
import operator
import types
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

_ANY: Final = frozenset({
    "getattr", "hasattr", "vars", "__dict__", "attrgetter", "asdict", "astuple",
    "__getattribute__", "getattr_static", "getmembers",
})  # fmt: skip
_ASKING: Final = frozenset({"getattr", "hasattr"})
#: Code that catches these may read what is not there yet.
_CATCHING: Final = frozenset({"AttributeError", "Exception", "BaseException"})
#: Instructions that push one value and do nothing else.
_VALUES: Final = frozenset({"LOAD_FAST", "LOAD_DEREF", "LOAD_CONST"})
_PREPARATION: Final = "PRECALL"  # of Python 3.11, before each call


@functools.lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> frozenset[str]:
    """Names of globals and attributes that `code` and functions defined inside it use."""
    steps = list(dis.get_instructions(code))
    asked = _questions(steps)
    names = asked_by(code) | {
        str(step.argval)
        for at, step in enumerate(steps)
        if _uses_a_name(step) and step.argval in code.co_names and at not in asked
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_of(constant)
    return names


def _uses_a_name(step: dis.Instruction) -> bool:
    """Whether it reads a global or an attribute, or sets an attribute: a replay would not."""
    return step.opname.startswith("LOAD_") or step.opname in ("STORE_ATTR", "IMPORT_FROM")


@functools.lru_cache(maxsize=4096)
def asked_by(code: types.CodeType) -> frozenset[str]:
    """The names among `names_of` that may not be there.

    These are the text that `getattr` or `hasattr` gets, and all attributes where somebody catches
    that one is not there.
    """
    steps = list(dis.get_instructions(code))
    names = frozenset(_questions(steps).values())
    if not _CATCHING.isdisjoint(code.co_names):
        names |= {str(step.argval) for step in steps if step.opname in ("LOAD_ATTR", "LOAD_METHOD")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= asked_by(constant)
    return names


def reads_any(names: AbstractSet[str]) -> bool:
    """Whether code with these names may read attributes of other names too."""
    return not _ANY.isdisjoint(names)


def read_through(value: object) -> frozenset[str]:
    """Names of attributes that code reads by calling a value; functions that read any, by theirs.

    Such are `operator.attrgetter("bias")`, and `getattr` under another name.
    """
    if type(value) is operator.attrgetter:
        paths = value.__reduce__()[1]
        return frozenset(part for path in paths for part in str(path).split("."))
    for function in (getattr, hasattr, vars):
        if value is function:
            return frozenset({function.__name__})
    return frozenset()


def _questions(steps: Sequence[dis.Instruction]) -> dict[int, str]:
    """The instructions that begin a question for one name, and that name.

    Only the plainest form is known, a variable or attributes of one, and text: each instruction in
    between pushes one value or replaces it, so that the text is the second argument.
    """
    found: dict[int, str] = {}
    for start, step in enumerate(steps):
        if step.opname != "LOAD_GLOBAL" or step.argval not in _ASKING:
            continue
        rest = [after for after in steps[start + 1 : start + 16] if after.opname != _PREPARATION]
        if not rest or rest[0].opname not in _VALUES:
            continue
        at = 1
        while at < len(rest) and rest[at].opname == "LOAD_ATTR":
            at += 1
        num_arguments = 2
        if at + 1 < len(rest) and rest[at + 1].opname in _VALUES:  # what is taken if it is missing
            num_arguments = 3
        end = at + num_arguments - 1
        if end >= len(rest) or rest[at].opname != "LOAD_CONST":
            continue
        is_call = rest[end].opname == "CALL" and rest[end].arg == num_arguments
        if is_call and isinstance(rest[at].argval, str):
            found[start] = rest[at].argval
    return found


@functools.lru_cache(maxsize=4096)
def globals_of(code: types.CodeType) -> frozenset[str]:
    """Names that `code` itself looks for among globals, and then among Python's own functions."""
    return frozenset(
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    )


@functools.lru_cache(maxsize=4096)
def imports_of(code: types.CodeType) -> tuple[tuple[int, str], ...]:
    """Modules that `code` imports while it runs: how many packages up, and the name."""
    found: list[tuple[int, str]] = []
    level = 0
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_CONST" and isinstance(step.argval, int):
            level = step.argval
        elif step.opname == "IMPORT_NAME":
            found.append((level, str(step.argval)))
    return tuple(found)
