"""The fields of records (`tilework.base.records`): what they are, and what is done by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GenericAlias, GetSetDescriptorType, MappingProxyType, MemberDescriptorType
from typing import Any, ClassVar, Final, get_origin

FIELDS: Final = "__record_fields__"  # the attribute of a class: name -> field


class _Missing:
    """What a field has for a default that it has not."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
#: What slots are; those of classes that are compiled ahead are of the second type.
SLOTS: Final = (MemberDescriptorType, GetSetDescriptorType)
_NO_METADATA: Final[Mapping[str, Any]] = MappingProxyType({})


class Field:
    """One field of a record."""

    __slots__ = (
        "compare", "default", "default_factory", "hash", "init", "kw_only", "metadata", "name",
        "repr", "type",
    )  # fmt: skip

    __class_getitem__: Any = classmethod(GenericAlias)  # types are written `Field[T]`

    def __init__(self, default: Any = MISSING, default_factory: Any = MISSING) -> None:
        self.name = ""
        self.type: Any = None
        self.default = default
        self.default_factory: Callable[[], Any] | Any = default_factory
        self.init = self.repr = self.compare = True
        self.hash: bool | None = None
        self.kw_only: bool | None = None
        self.metadata = _NO_METADATA

    @property
    def is_hashed(self) -> bool:
        """Whether the hash of a record looks at it."""
        return self.compare if self.hash is None else self.hash


def field(
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    init: bool = True,
    repr: bool = True,
    hash: bool | None = None,
    compare: bool = True,
    metadata: Mapping[str, Any] | None = None,
    kw_only: bool | None = None,
) -> Any:
    """Say more of a field than its type and its default, as `dataclasses.field` does."""
    if default is not MISSING and default_factory is not MISSING:
        raise ValueError("field: either a default or what makes it, not both")
    row = Field(default, default_factory)
    row.init, row.repr, row.hash, row.compare = init, repr, hash, compare
    row.kw_only = kw_only
    if metadata is not None:
        row.metadata = MappingProxyType(dict(metadata))
    return row


def collect(cls: type, kw_only: bool) -> dict[str, Field]:
    """The fields of a class that is being made a record: those of its bases come first."""
    found: dict[str, Field] = {}
    for base in cls.__mro__[-1:0:-1]:
        found.update(base.__dict__.get(FIELDS, ()))
    for name, kind in cls.__annotations__.items():
        if not _is_class_variable(kind):
            row = found[name] = _field_of(cls, name)
            row.name, row.type = name, kind
            if row.kw_only is None:
                row.kw_only = kw_only
    return found


def _is_class_variable(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind.startswith(("ClassVar", "typing.ClassVar"))
    return kind is ClassVar or get_origin(kind) is ClassVar


def _field_of(cls: type, name: str) -> Field:
    given = getattr(cls, name, MISSING)
    if isinstance(given, Field):
        row = given
        if row.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, row.default)
    else:
        row = Field(MISSING if isinstance(given, SLOTS) else given)  # slots are those of a base
    if row.default.__class__.__hash__ is None:
        raise ValueError(f"{cls.__name__}.{name}: a default that can change; use default_factory")
    return row


def is_dataclass(value: object) -> bool:
    """Whether `value` is a record or a class of them, also of the standard library's."""
    return hasattr(value, FIELDS) or hasattr(value, "__dataclass_fields__")


def fields(value: Any) -> tuple[Any, ...]:
    """The fields of a record, or of a class of them.  Raises: TypeError."""
    rows = _rows(value if isinstance(value, type) else type(value))
    if rows is None:
        import dataclasses  # here: a program that asks for nothing of it does not import it

        return dataclasses.fields(value)
    return tuple(rows.values())


def _rows(kind: type) -> Mapping[str, Field] | None:
    """The fields of a class of records; None where they are the standard library's to tell.

    Its dataclasses may inherit from records: their own fields count as well.
    """
    for base in kind.__mro__:
        if "__dataclass_fields__" in base.__dict__:
            rows: Mapping[str, Field] | None = base.__dict__.get(FIELDS)
            return rows
    return None


def replace(value: Any, /, **changes: Any) -> Any:
    """A record like `value`, with other contents in some fields."""
    for row in fields(value):
        if not row.init:
            if row.name in changes:
                raise ValueError(f"field {row.name} is declared with init=False")
        elif row.name not in changes:
            changes[row.name] = getattr(value, row.name)
    return value.__class__(**changes)


def asdict(value: Any) -> dict[str, Any]:
    """The fields of a record by name; records, lists, tuples and dictionaries in it as well."""
    return {row.name: _plain(getattr(value, row.name)) for row in fields(value)}


def _plain(value: Any) -> Any:
    kind = type(value)
    if hasattr(kind, FIELDS):
        return asdict(value)
    if kind is list or kind is tuple:
        return kind([_plain(item) for item in value])
    if kind is dict:
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value
