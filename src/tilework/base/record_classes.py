"""The classes of records (`tilework.base.records`): slots, and methods that are compiled late."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Mapping
from typing import Any, Final

from tilework.base.record_fields import FIELDS, MISSING, SLOTS, Field, collect, fields

_Maker = Callable[[type], Callable[..., Any]]
_TOLD: Final = ("init", "repr", "hash", "compare", "metadata")
_IS_FROZEN: Final = "__record_is_frozen__"


def dataclass(
    cls: Any = None,
    /,
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
    weakref_slot: bool = False,
) -> Any:
    """Make a class a record, as `dataclasses.dataclass` does."""

    def wrap(cls: Any) -> Any:
        rows = collect(cls, kw_only)
        _check_bases(cls, frozen)
        own: dict[str, Any] = {FIELDS: rows, _IS_FROZEN: frozen}
        own["__dataclass_fields__"] = _Standard("__dataclass_fields__")
        own["__dataclass_params__"] = _Standard("__dataclass_params__")
        own["__match_args__"] = tuple(
            [name for name, row in rows.items() if row.init and not row.kw_only]
        )
        if init:
            own["__init__"] = _late("__init__", _make_init)
            own["__signature__"] = _Signature()
        if repr:
            own["__repr__"] = _repr
        own.update(_comparison(cls, eq, frozen))
        if frozen:
            own.update(__setattr__=_refuse_to_set, __delattr__=_refuse_to_delete)
            if slots:
                own.update(__getstate__=_get_state, __setstate__=_set_state)
        for name, value in own.items():
            if name not in cls.__dict__ or name.startswith(("__record", "__dataclass")):
                setattr(cls, name, value)
        if cls.__hash__ is None and own.get("__hash__") is not None:
            cls.__hash__ = own["__hash__"]  # None since the class has an `__eq__` of its own
        return _with_slots(cls, rows, weakref_slot) if slots else cls

    return wrap if cls is None else wrap(cls)


def _check_bases(cls: type, frozen: bool) -> None:
    """Raises: TypeError where a frozen record and one that can change inherit.

    The fields of the standard library's dataclasses would not be seen here.
    """
    for base in cls.__mro__[1:]:
        if "__dataclass_fields__" in base.__dict__ and FIELDS not in base.__dict__:
            raise TypeError(f"{cls.__name__}: a record inherits from one of the standard library")
        if base.__dict__.get(_IS_FROZEN, frozen) is not frozen:
            raise TypeError(f"{cls.__name__}: a frozen record and one that can change inherit")


def _comparison(cls: type, eq: bool, frozen: bool) -> dict[str, Any]:
    if not eq:
        return {}
    if not frozen:
        return {"__eq__": _late("__eq__", _make_eq), "__hash__": None}
    return {"__eq__": _late("__eq__", _make_eq), "__hash__": _late("__hash__", _make_hash)}


def _with_slots(cls: type, rows: Mapping[str, Field], weakref_slot: bool) -> type:
    """The class again, with slots for its fields: they cannot be added to one that exists."""
    body = dict(cls.__dict__)
    if "__slots__" in body:
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    inherited: set[str] = set()
    for base in cls.__mro__[1:-1]:
        given = base.__dict__.get("__slots__", ())
        inherited.update((given,) if isinstance(given, str) else given)
    names = [*rows, "__weakref__"] if weakref_slot else [*rows]
    body["__slots__"] = tuple([name for name in names if name not in inherited])
    for name in (*rows, "__dict__", "__weakref__"):
        body.pop(name, None)
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _late(name: str, make: _Maker) -> Callable[..., Any]:
    """A method that compiles itself when it is first called, and leaves its place to the result."""
    compiled: Callable[..., Any] | None = None

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return settle(type(self))(self, *args, **kwargs)

    def settle(kind: type) -> Callable[..., Any]:
        nonlocal compiled
        # The class is found late as well: adding slots makes another one of it.
        owner = next((base for base in kind.__mro__ if base.__dict__.get(name) is method), None)
        if compiled is None:
            compiled = make(owner or kind)
            compiled.__qualname__ = f"{(owner or kind).__qualname__}.{name}"
            compiled.__module__ = (owner or kind).__module__
        if owner is not None:
            type.__setattr__(owner, name, compiled)
        return compiled

    method.settle = settle  # type: ignore[attr-defined]
    method.__name__ = name
    return method


class _Signature:
    """The attribute that `inspect.signature` looks for first: by then `__init__` is compiled."""

    def __get__(self, instance: object, owner: type) -> None:
        settle = getattr(owner.__init__, "settle", None)  # type: ignore[misc]
        if settle is not None:
            settle(owner)


class _Standard:
    """What `dataclasses` knows a class by, made when somebody asks: its import is not cheap."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        import dataclasses  # here: a program that asks for nothing of it does not import it

        def standard(row: Field) -> Any:
            given = {name: getattr(row, name) for name in _TOLD}
            if row.default is not MISSING:
                given["default"] = row.default
            if row.default_factory is not MISSING:
                given["default_factory"] = row.default_factory
            return dataclasses.field(kw_only=bool(row.kw_only), **given)

        home = next((base for base in owner.__mro__ if base.__dict__.get(self.name) is self), None)
        if home is None:  # another thread was faster
            return getattr(owner, self.name)
        rows = home.__dict__[FIELDS]
        twin = dataclasses.make_dataclass(
            home.__name__,
            [(name, row.type, standard(row)) for name, row in rows.items()],
            init=False,
            repr=False,
            eq="__eq__" in home.__dict__,
            frozen=home.__dict__[_IS_FROZEN],
        )
        found = getattr(twin, self.name)
        type.__setattr__(home, self.name, found)
        return found


def _compile(name: str, lines: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    exec("\n".join(lines), names)  # text of this module and names of fields alone
    function: Callable[..., Any] = names[name]
    return function


def _make_init(cls: type) -> Callable[..., Any]:
    rows: dict[str, Field] = cls.__dict__[FIELDS]
    names: dict[str, Any] = {"_missing": MISSING, "_set": object.__setattr__}
    body: list[str] = []
    places = ["self"]
    keywords: list[str] = []
    for name, row in rows.items():
        value = name
        if row.default_factory is not MISSING:
            names[f"_make_{name}"] = row.default_factory
            made = f"_make_{name}()"
            value = f"{made} if {name} is _missing else {name}" if row.init else made
            text = f"{name}=_missing"
        elif row.default is not MISSING:
            names[f"_default_{name}"] = row.default
            text = f"{name}=_default_{name}"
            value = name if row.init else f"_default_{name}"
        else:
            text = name
        if row.init:
            (keywords if row.kw_only else places).append(text)
        elif row.default is MISSING and row.default_factory is MISSING:
            continue
        body.append("    " + _assignment(cls, name, value, names))
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()")
    given = [*places, "*", *keywords] if keywords else places
    lines = [f"def __init__({', '.join(given)}):", *body, "    return None"]
    made_init = _compile("__init__", lines, names)
    made_init.__annotations__ = {row.name: row.type for row in rows.values() if row.init}
    made_init.__annotations__["return"] = None
    return made_init


def _assignment(cls: type, name: str, value: str, names: dict[str, Any]) -> str:
    if not cls.__dict__[_IS_FROZEN]:
        return f"self.{name} = {value}"
    slot = getattr(cls, name, None)
    if isinstance(slot, SLOTS):
        names[f"_set_{name}"] = slot.__set__  # two fifths faster than by name
        return f"_set_{name}(self, {value})"
    return f"_set(self, {name!r}, {value})"


def _tuple_of(owner: str, names: list[str]) -> str:
    return "(" + "".join([f"{owner}.{name}, " for name in names]) + ")"


def _make_eq(cls: type) -> Callable[..., Any]:
    compared = [name for name, row in cls.__dict__[FIELDS].items() if row.compare]
    lines = [
        "def __eq__(self, other):",
        "    if other.__class__ is self.__class__:",
        f"        return {_tuple_of('self', compared)} == {_tuple_of('other', compared)}",
        "    return NotImplemented",
    ]
    return _compile("__eq__", lines, {})


def _make_hash(cls: type) -> Callable[..., Any]:
    hashed = [name for name, row in cls.__dict__[FIELDS].items() if row.is_hashed]
    lines = ["def __hash__(self):", f"    return hash({_tuple_of('self', hashed)})"]
    return _compile("__hash__", lines, {})


#: Records whose text is being made, and by which thread: one may hold itself.
_shown: set[tuple[int, int]] = set()


def _repr(self: Any) -> str:
    place = id(self), get_ident()
    if place in _shown:
        return "..."
    _shown.add(place)
    try:
        rows = getattr(type(self), FIELDS).values()
        texts = [f"{row.name}={getattr(self, row.name)!r}" for row in rows if row.repr]
    finally:
        _shown.discard(place)
    return f"{self.__class__.__qualname__}({', '.join(texts)})"


_repr.__name__ = "__repr__"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    if name in getattr(type(self), FIELDS) or FIELDS in type(self).__dict__:
        _refuse("assign to", name)
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if name in getattr(type(self), FIELDS) or FIELDS in type(self).__dict__:
        _refuse("delete", name)
    object.__delattr__(self, name)


def _refuse(what: str, name: str) -> None:
    import dataclasses  # here: a program that asks for nothing of it does not import it

    raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, row.name) for row in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for row, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, row.name, value)
