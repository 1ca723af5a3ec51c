"""Dataclasses that cost little to define: their methods are compiled when they are first called.

A process that adds two numbers loads some 140 classes of plain data, creates objects of a third of
them, and compares few.  `dataclasses.dataclass` compiles five functions for each; here a class
gets small stand-ins, and the first call of one compiles what it stands for and takes its place.
Objects of frozen classes are also made faster: their fields are set through the descriptors of
their slots (ADR 0034 has what that costs and brings).

The names are those of the standard library and mean the same (type checkers see the library's
own), but for `order`, `unsafe_hash`, `match_args`, `InitVar` and `KW_ONLY`, which nothing needs,
and `asdict`, which shares what it has no need to rebuild.  The functions of `dataclasses` take
these classes too.

Example:
    >>> @dataclass(frozen=True, slots=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> replace(Point(1), y=2)
    Point(x=1, y=2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import Field as Field
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
    from dataclasses import is_dataclass as is_dataclass
    from dataclasses import replace as replace
else:
    from tilework.base.record_classes import dataclass
    from tilework.base.record_fields import Field, asdict, field, fields, is_dataclass, replace

__all__ = ["Field", "asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]
