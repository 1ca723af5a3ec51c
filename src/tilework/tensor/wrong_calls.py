"""Calls whose arguments are of the wrong kind, told by the annotations after something went wrong.

Methods do not check the types of what they get, which would cost each call.  When Python itself
refuses what a method does with an argument, the arguments are compared with the annotations, and
the first that does not fit is named.  Where it refuses the call, the arguments may have the names
of another library.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, ParamSpec, TypeVar

from tilework.base.errors import DTypeError, InternalError, TileworkError
from tilework.base.frames import PACKAGE, shows_internal_frames
from tilework.dtypes import DType
from tilework.tensor.core import TensorBase
from tilework.tensor.other_names import refused, translated
from tilework.tensor.variable import Variable, format_shape

P = ParamSpec("P")
R = TypeVar("R")

#: What Python raises when it is asked for what an object cannot do.
_REFUSALS: Final = (
    AssertionError, AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError,
    ValueError, ZeroDivisionError,
)  # fmt: skip
#: Names that modules of tensors give to kinds of arguments.
_ALIASES: Final = {
    "Ints": "int | Sequence[int]", "Given": "Tensor | float", "Number": "float", "Size": "int",
    "Dim": "int", "Dims": "int | Sequence[int] | None",
}  # fmt: skip
_SEQUENCES: Final = ("Sequence", "list", "tuple", "Iterable", "Mapping", "dict")
#: What stands behind `Any` in the parameters of these names.
_BY_NAME: Final = {
    "others": "Self | Sequence[Self]", "operands": "Self | Sequence[Self] | Sequence[int]",
    "shape": "int | Sequence[int | None] | None", "size": "int | Sequence[int]",
    "sizes": "int | Sequence[int]", "dim": "int | Sequence[int] | None",
    "dims": "int | Sequence[Any]", "s": "Sequence[int] | None", "bounds": "Sequence[Any] | None",
    "repeats": "int | Sequence[int] | Self", "output_size": "int | Sequence[int | None]",
    "indices_or_sections": "int | Sequence[int]", "atol": "float | Self | None",
    "rtol": "float | Self | None", "device": "str | Sequence[str] | None",
}  # fmt: skip
_WORDS: Final = {
    "Self": "a tensor", "TensorBase": "a tensor", "Tensor": "a tensor", "int": "an integer",
    "float": "a number", "bool": "True or False", "str": "text", "DType": "a dtype",
    "None": "None",
}  # fmt: skip
_MOST_SHOWN: Final = 60


def told(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, whose errors end at the user's line and name the argument that is wrong."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TileworkError as error:
            if not isinstance(error, InternalError) and not shows_internal_frames():
                error.__traceback__ = None
                if _is_called_by_user():
                    _complete(error, function, args, kwargs)
            raise
        except _REFUSALS as error:
            is_entered = error.__traceback__ is None or error.__traceback__.tb_next is not None
            others = None if is_entered else translated(function, args, kwargs)
            if others is not None:
                return call(*others[0], **others[1])
            found = _blamed(function, args, kwargs, is_entered) if _is_called_by_user() else None
            if found is None:
                raise
            try:
                raise found from (error if shows_internal_frames() else None)
            except DTypeError:
                found.__traceback__ = None  # this frame is not of interest either
                raise

    return call


def _blamed(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, is_entered: bool
) -> DTypeError | None:
    return (wrong_argument if is_entered else refused)(function, args, kwargs)


def _is_called_by_user() -> bool:
    return not sys._getframe(2).f_code.co_filename.startswith(PACKAGE)


def _complete(
    error: TileworkError, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
) -> None:
    """Say what was got, and where to read on, where the error does not."""
    if error.got is None:
        given = [describe(value) for value in args]
        given += [f"{name}={describe(value)}" for name, value in kwargs.items()]
        error.got = f"{function.__name__} of {', '.join(given)}"
    if error.expected is None and error.try_ is None:
        error.try_ = _where_to_read(function)


def _where_to_read(function: Callable[..., Any]) -> str:
    return f"help(Tensor.{function.__name__}) says what it takes"


def wrong_argument(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> DTypeError | None:
    """The error that names the first argument that does not fit its annotation, or None.

    Where all fit, the first is named that is odd: of mixed kinds, or beyond 64 bits.
    """
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None  # Python's own words say which argument is missing or too many
    odd: DTypeError | None = None
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        if name in ("self", "cls") or parameter.default is value:
            continue
        kinds = _kinds(str(parameter.annotation))
        if "Any" in kinds and name in _BY_NAME:
            kinds = _kinds(_BY_NAME[name])
        given = [(name, value)]
        if parameter.kind is parameter.VAR_POSITIONAL:
            given = [(f"{name}[{place}]", each) for place, each in enumerate(value)]
        elif parameter.kind is parameter.VAR_KEYWORD:
            continue
        for own, each in given:
            is_wrong = not any(_fits(each, kind) for kind in kinds)
            if is_wrong or (odd is None and _is_odd(each)):
                odd = DTypeError(
                    f"{function.__name__}: the argument {own} "
                    + ("is of the wrong kind" if is_wrong else "cannot be used here"),
                    got=describe(each),
                    expected=_expected(kinds),
                    try_=_where_to_read(function),
                )
            if is_wrong:
                return odd
    return odd


def _kinds(annotation: str) -> list[str]:
    """The kinds of arguments that an annotation joins by `|`, outside of brackets."""
    whole = re.sub(
        r"\b(" + "|".join(_ALIASES) + r")\b", lambda found: _ALIASES[found[0]], annotation
    )
    found, depth = [""], 0
    for letter in whole:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [kind.strip() for kind in found]


def _fits(value: Any, kind: str) -> bool:
    head = kind.partition("[")[0].rpartition(".")[2]
    if head == "Any":
        return _is_known(value)
    if head in ("Self", "Tensor", "TensorBase"):
        return isinstance(value, TensorBase)
    if head == "None":
        return value is None
    if head == "str":
        return isinstance(value, str)
    if head == "bool":
        return isinstance(value, bool) or type(value).__name__ == "bool_"
    if head == "int":
        return _is_number(value, "__index__")
    if head == "float":
        return _is_number(value, "__float__")
    if head == "DType":
        return isinstance(value, DType | type) or hasattr(value, "itemsize")
    if head in _SEQUENCES:
        inner = kind.partition("[")[2].rpartition("]")[0].partition(", ...")[0]
        if not isinstance(value, Iterable) or isinstance(value, str | TensorBase):
            return False
        is_plain = head in ("Sequence", "list", "tuple", "Iterable") and "," not in inner
        return not is_plain or all(any(_fits(e, k) for k in _kinds(inner)) for e in value)
    return True  # a kind that is not known here


def _is_number(value: Any, method: str) -> bool:
    if isinstance(value, TensorBase):
        return False
    if hasattr(value, "ndim"):  # of another library: what has one element may be a number
        try:
            return getattr(value, method)() is not None
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return False
    return isinstance(value, Variable) or hasattr(type(value), method)


def _is_odd(value: Any) -> bool:
    """Whether a value is of a kind that fits, and yet such as few methods take."""
    if isinstance(value, list | tuple):
        kinds = {_family(each) for each in value}
        return len(kinds) > 1 or "other" in kinds or any(_is_odd(each) for each in value)
    if isinstance(value, int):
        return not -(2**63) <= value < 2**64
    return _family(value) == "other"


def _family(value: Any) -> str:
    if isinstance(value, TensorBase):
        return "tensor"
    if isinstance(value, list | tuple):
        return "list"
    if isinstance(value, bool | int | float | Variable):
        return "number"
    if value is None or isinstance(value, str | DType | type):
        return "word"
    return "other"


def _is_known(value: Any) -> bool:
    """Whether some method takes such a thing somewhere."""
    if value is None or isinstance(value, str | slice | DType | type | TensorBase | Variable):
        return True
    if callable(value) or isinstance(value, range) or hasattr(value, "__array__"):
        return True
    if isinstance(value, list | tuple):
        return all(_is_known(each) for each in value)
    return _is_number(value, "__float__") or value is Ellipsis


def _expected(kinds: list[str]) -> str:
    found = []
    for kind in kinds:
        head = kind.partition("[")[0].rpartition(".")[2]
        inner = _WORDS.get(kind.partition("[")[2].rpartition("]")[0].partition(",")[0], "")
        word = _WORDS.get(head)
        if head in _SEQUENCES:
            word = f"a sequence of {inner.partition(' ')[2] or 'such'}s" if inner else "a sequence"
        found.append("a tensor or a number" if head == "Any" else word or kind)
    return ", ".join(dict.fromkeys([word for word in found if word != "None"])) or "None"


def describe(value: Any) -> str:
    """A value in a few words: its type, and what it is."""
    if isinstance(value, TensorBase):
        return f"a tensor of {value.dtype.name}{format_shape(value._dims)}"
    text = repr(value)
    if len(text) > _MOST_SHOWN:
        text = text[: _MOST_SHOWN - 3] + "..."
    return f"{text} of type {type(value).__name__}"
