"""Calls whose arguments are of the wrong kind, told by the annotations after something went wrong.

Methods do not check the types of what they get, which would cost each call.  When Python itself
refuses what a method does with an argument, the arguments are compared with the annotations, and
the first that does not fit is named.  Where it refuses the call, the arguments may have the names
of another library.

Constructors keep what they get, and what they keep fails later, elsewhere: `told_class` lets them
check it first.
"""

from __future__ import annotations

import builtins
import functools
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from types import FunctionType, GenericAlias, UnionType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from tilework.base.errors import (
    DTypeError,
    FileAccessError,
    InternalError,
    MissingFileError,
    TileworkError,
    UserError,
)
from tilework.base.frames import PACKAGE, shows_internal_frames, trim
from tilework.base.late import late_module
from tilework.dtypes import DType
from tilework.tensor.core import TensorBase
from tilework.tensor.other_names import refused, title_of, translated, where_to_read
from tilework.tensor.variable import Variable, format_shape

if TYPE_CHECKING:
    import inspect
else:
    inspect = late_module("inspect")

P = ParamSpec("P")
R = TypeVar("R")

#: What Python raises when it is asked for what an object cannot do.
REFUSALS: Final = (
    AssertionError, AttributeError, IndexError, KeyError, OSError, OverflowError, RuntimeError,
    TypeError, ValueError, ZeroDivisionError,
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
    "output_ratio": "float | Sequence[float] | None",
    "indices_or_sections": "int | Sequence[int]", "atol": "float | Self | None",
    "rtol": "float | Self | None", "device": "str | Sequence[str] | None",
}  # fmt: skip
_WORDS: Final = {
    "Self": "a tensor", "TensorBase": "a tensor", "Tensor": "a tensor", "int": "an integer",
    "float": "a number", "bool": "True or False", "str": "text", "DType": "a dtype",
    "None": "None",
}  # fmt: skip
_MOST_SHOWN: Final = 60


def told(function: Callable[P, R], *, checks: bool = False) -> Callable[P, R]:
    """`function`, whose errors end at the user's line and name the argument that is wrong.

    Args:
        function: of the public API.
        checks: compare what a user gives with the annotations before the call.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if checks and _is_called_by_user():
                _check(function, args, kwargs)
            return function(*args, **kwargs)
        except TileworkError as error:
            if not isinstance(error, InternalError) and not shows_internal_frames():
                trim(error)
                if _is_called_by_user():
                    _complete(error, function, args, kwargs)
            raise
        except REFUSALS as error:
            is_entered = error.__traceback__ is None or error.__traceback__.tb_next is not None
            others = None if is_entered else translated(function, args, kwargs)
            if others is not None:
                return call(*others[0], **others[1])
            found = None
            if _is_called_by_user():
                found = _blamed(error, function, args, kwargs, is_entered)
            if found is None:
                raise
            try:
                raise found from (error if shows_internal_frames() else None)
            except UserError:
                found.__traceback__ = None  # this frame is not of interest either
                raise

    call._is_told = True  # type: ignore[attr-defined]  # so that no function is wrapped twice
    return call


def told_class(kind: type) -> None:
    """Let the constructor of a class check its arguments, and its methods tell what is wrong."""
    for name, member in list(vars(kind).items()):
        is_public = not name.startswith("_") or name in ("__init__", "__call__")
        if is_public and isinstance(member, classmethod | staticmethod):
            setattr(kind, name, type(member)(told(member.__func__)))
        elif is_public and isinstance(member, FunctionType):
            setattr(kind, name, told(member, checks=name == "__init__"))


def tell(module: str, names: Iterable[str]) -> None:
    """Let the classes and functions of a module of the public API tell what is wrong.

    Args:
        module: its name; what comes from elsewhere is left alone.
        names: of its members.
    """
    package = sys.modules[module]
    for name in names:
        member = package.__dict__.get(name)
        if not getattr(member, "__module__", "").startswith("tilework."):
            continue
        if isinstance(member, type):
            for each in member.__mro__:
                if each.__module__.startswith("tilework.") and "_is_told" not in vars(each):
                    told_class(each)
                    setattr(each, "_is_told", True)  # noqa: B010
        elif isinstance(member, FunctionType) and not hasattr(member, "_is_told"):
            setattr(package, name, told(member))


def _check(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    found = wrong_argument(function, args, kwargs, is_certain=True)
    if found is not None:
        raise found


def check_values(function: Callable[..., Any], title: str, values: Mapping[str, Any]) -> None:
    """Compare arguments that are kept for later with the annotations of what they are for.

    Args:
        function: what will get them.
        title: what they are given to now.
        values: by the names of the function's parameters; defaults and None are not asked.

    Raises:
        DTypeError: one is of the wrong kind.
    """
    scope = inspect.unwrap(function).__globals__
    for name, parameter in inspect.signature(function).parameters.items():
        value = values.get(name)
        if name not in values or value is parameter.default:
            continue
        if value is None and parameter.default is not parameter.empty:
            continue
        kinds = _kinds(str(parameter.annotation))
        if not any(_fits(value, kind, scope) for kind in kinds):
            raise DTypeError(
                f"{title}: the argument {name} is of the wrong kind",
                got=describe(value),
                expected=_expected(kinds),
                try_=f"help({title}) says what it takes",
            )


def blamed(
    error: Exception, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> DTypeError | None:
    """The error that says what is wrong with a call which led to `error`; None if nothing is."""
    found = wrong_argument(function, args, kwargs, error=error)
    return found or refused(function, args, kwargs)


def _blamed(
    error: Exception,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Any,
    is_entered: bool,
) -> UserError | None:
    if isinstance(error, OSError):
        return None if error.filename is None else _about_file(error, function, args)
    if is_entered:
        return blamed(error, function, args, kwargs)
    return refused(function, args, kwargs)


def _about_file(error: OSError, function: Callable[..., Any], args: tuple[Any, ...]) -> UserError:
    """The error of a file that the system does not give."""
    is_missing = isinstance(error, FileNotFoundError)
    kind = MissingFileError if is_missing else FileAccessError
    words = "there is no such file" if is_missing else f"the file cannot be used: {error.strerror}"
    found = kind(
        f"{title_of(function, args)}: {words}",
        got=error.filename2 or error.filename,
        try_=where_to_read(function, args),
    )
    found.errno, found.strerror, found.filename = error.errno, error.strerror, error.filename
    return found


def _is_called_by_user() -> bool:
    return not sys._getframe(2).f_code.co_filename.startswith(PACKAGE)


def _complete(
    error: TileworkError, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
) -> None:
    """Say what was got, and where to read on, where the error does not."""
    if error.got is None:
        is_of_class = function.__name__ in ("__init__", "__call__")
        given = [describe(value) for value in args[is_of_class:]]
        given += [f"{name}={describe(value)}" for name, value in kwargs.items()]
        error.got = f"{title_of(function, args)} of {', '.join(given)}"
    if error.expected is None and error.try_ is None:
        error.try_ = where_to_read(function, args)


def wrong_argument(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_certain: bool = False,
    error: Exception | None = None,
) -> DTypeError | None:
    """The error that names the first argument that does not fit its annotation, or None.

    Where all fit, the first is named that is odd: of mixed kinds, beyond 64 bits, or such as
    explains `error`; unless only what is wrong for certain is asked for.
    """
    further = getattr(function, "further_names", {})
    kwargs = {further.get(name, name): value for name, value in kwargs.items()}
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None  # Python's own words say which argument is missing or too many
    odd: DTypeError | None = None
    scope = inspect.unwrap(function).__globals__
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
            is_wrong = not any(_fits(each, kind, scope) for kind in kinds)
            is_odd = _is_odd(each) or _explains(error, each, parameter)
            if is_wrong or (odd is None and not is_certain and is_odd):
                odd = DTypeError(
                    f"{title_of(function, args)}: the argument {own} "
                    + ("is of the wrong kind" if is_wrong else "cannot be used here"),
                    got=describe(each),
                    expected=_expected(kinds),
                    try_=where_to_read(function, args),
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


def _fits(value: Any, kind: str, scope: dict[str, Any]) -> bool:
    head = kind.partition("[")[0].rpartition(".")[2]
    plain = _PLAIN.get(head)
    if plain is not None:
        return plain(value)
    if head in _SEQUENCES:
        return _is_sequence(value, kind, head, scope)
    found = scope.get(head, getattr(builtins, head, None))
    if isinstance(found, type) and not getattr(found, "_is_protocol", False):
        return isinstance(value, found)
    if isinstance(found, UnionType | GenericAlias):  # a name for several kinds
        return any(_fits(value, own, scope) for own in _kinds(str(found)))
    return True  # a kind that is not known here


def _is_sequence(value: Any, kind: str, head: str, scope: dict[str, Any]) -> bool:
    inner = kind.partition("[")[2].rpartition("]")[0].partition(", ...")[0]
    if not isinstance(value, Iterable) or isinstance(value, str | TensorBase):
        return False
    if isinstance(value, Iterator):
        return True  # what it gives is for the call
    if head == "tuple" and "," in inner and ", ..." not in kind and isinstance(value, Sized):
        own = [each.strip() for each in inner.split(",")]
        is_fitting = len(value) == len(own)
        return is_fitting and all(map(_fits, value, own, [scope] * len(own)))
    is_plain = head in ("Sequence", "list", "tuple", "Iterable") and "," not in inner
    return not is_plain or all(
        any(_fits(each, own, scope) for own in _kinds(inner)) for each in value
    )


def _is_truth(value: Any) -> bool:
    """True or False, or what programs say for them: 0, 1 and None."""
    is_known = value is None or (isinstance(value, int) and value in (0, 1))
    return is_known or type(value).__name__ == "bool_"


def _is_tensor(value: Any) -> bool:
    return isinstance(value, TensorBase)


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
    """Whether a value is of a kind that fits, and yet such as few methods take.

    That is one of mixed kinds, a number beyond 64 bits, NaN or infinity.
    """
    if isinstance(value, list | tuple):
        kinds = {_family(each) for each in value}
        return len(kinds) > 1 or "other" in kinds or any(_is_odd(each) for each in value)
    if isinstance(value, int):
        return not -(2**63) <= value < 2**64
    if isinstance(value, float):
        return not math.isfinite(value)
    return _family(value) == "other"


def _explains(error: Exception | None, value: Any, parameter: Any) -> bool:
    """Whether a value that fits may have led to an error."""
    if isinstance(error, ZeroDivisionError):
        return isinstance(value, int | float) and value == 0
    is_anything = parameter.default is parameter.empty and str(parameter.annotation) == "Any"
    return is_anything and isinstance(error, AttributeError)


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


#: Kinds by name, and whether a value is of them.
_PLAIN: Final[dict[str, Callable[[Any], bool]]] = {
    "Any": _is_known,
    "Self": _is_tensor,
    "Tensor": _is_tensor,
    "TensorBase": _is_tensor,
    "None": lambda value: value is None,
    "str": lambda value: isinstance(value, str),
    "bool": _is_truth,
    "int": lambda value: _is_number(value, "__index__"),
    "float": lambda value: _is_number(value, "__float__"),
    "DType": lambda value: isinstance(value, DType | type) or hasattr(value, "itemsize"),
    "Callable": callable,
    "PathLike": lambda value: isinstance(value, os.PathLike),
}


def _expected(kinds: list[str]) -> str:
    found = []
    for kind in kinds:
        head = kind.partition("[")[0].rpartition(".")[2]
        items = kind.partition("[")[2].rpartition("]")[0].split(", ")
        inner = _WORDS.get(items[0], "")
        word = _WORDS.get(head)
        if head in _SEQUENCES:
            is_counted = head == "tuple" and items[-1] != "..."
            count = f"{len(items)}" if is_counted else "a sequence of"
            word = f"{count} {inner.partition(' ')[2] or inner}s" if inner else "a sequence"
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
