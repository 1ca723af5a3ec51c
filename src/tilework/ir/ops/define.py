"""How a row of the op table is made, and the type rules that many rows share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import DTypeError, InternalError, ShapeError
from tilework.dtypes import bool_
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.types import Type, make_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.stage import Stage

#: Every op by name: the single source of truth that printer, parser, verifier and docs read.
OPS: Final[dict[str, OpDef]] = {}
#: The type rules made by `infer_same`.
_KEEPING_TYPE: Final[set[Any]] = set()


def define_op(  # noqa: PLR0913 - one argument a column of the op table
    name: str,
    *,
    operands: tuple[str, ...],
    infer: Callable[[tuple[Node, ...], Any], Type],
    stages: Stage,
    doc: str,
    attrs: type[Attrs] | None = None,
    elementwise: bool = False,
    commutative: bool = False,
    pure: bool = True,
) -> OpDef:
    """Add a row to the op table and return it.

    Args:
        name: Lower-case name, unique.
        operands: Names of the sources; a last "*name" takes any number, "name?" may be missing.
        infer: The type rule: (sources, attrs) -> Type; raises ShapeError or DTypeError.
        stages: Where the op is legal.
        doc: What it computes, in one to three sentences.
        attrs: The class of its attributes, or None.
        elementwise: Works element by element on sources of one shape.
        commutative: The first two sources may be swapped without any change of the value.
        pure: No effect: equal nodes may be shared, unused ones dropped.
    """
    if name in OPS:
        raise InternalError(f"op {name} is defined twice")
    keeps_type = infer in _KEEPING_TYPE and len(operands) <= 2
    op = OpDef(
        name, operands, attrs, infer, stages, doc, elementwise, commutative, pure, keeps_type
    )
    OPS[name] = op
    return op


def value_type(type_: Type) -> Type:
    """The type of what a buffer holds: the same without its memory."""
    return type_ if type_.memory is None else make_type(type_.shape, type_.dtype)


def same_type(op: str, src: tuple[Node, ...]) -> Type:
    """The type that the values of all sources share."""
    first = src[0].type
    if first.memory is not None:
        first = value_type(first)
    for other in src:
        if other.type is not first and value_type(other.type) is not first:
            _complain(op, first, other.type)
    return first


def _complain(op: str, first: Type, other: Type) -> None:
    if first.shape != other.shape:
        raise ShapeError(
            f"{op}: operands differ in shape",
            got=f"{first.shape} and {other.shape}",
            expected="equal shapes (broadcasting inserts EXPAND)",
        )
    raise DTypeError(
        f"{op}: operands differ in dtype",
        got=f"{first.dtype.name} and {other.dtype.name}",
        expected="equal dtypes (promotion inserts CAST)",
    )


def infer_same(op: str) -> Callable[[tuple[Node, ...], Any], Type]:
    """Type rule: all sources have one type, and so has the result."""

    def infer(src: tuple[Node, ...], attrs: Any) -> Type:
        first = src[0].type
        if first.memory is None:
            for other in src:
                if other.type is not first:
                    break
            else:
                return first
        return same_type(op, src)

    _KEEPING_TYPE.add(infer)
    return infer


def infer_float(op: str) -> Callable[[tuple[Node, ...], Any], Type]:
    """Type rule: as `infer_same`, for floats only."""

    def infer(src: tuple[Node, ...], attrs: Any) -> Type:
        kind = same_type(op, src)
        if not kind.dtype.is_float:
            raise DTypeError(f"{op}: needs a float", got=kind.dtype.name, expected="a float dtype")
        return kind

    return infer


def infer_integer(op: str) -> Callable[[tuple[Node, ...], Any], Type]:
    """Type rule: as `infer_same`, for integers and bool only."""

    def infer(src: tuple[Node, ...], attrs: Any) -> Type:
        kind = same_type(op, src)
        if kind.dtype.is_float:
            raise DTypeError(
                f"{op}: needs integers", got=kind.dtype.name, expected="an integer dtype or bool"
            )
        return kind

    return infer


def infer_compare(op: str) -> Callable[[tuple[Node, ...], Any], Type]:
    """Type rule: sources of one type, a bool of their shape."""

    def infer(src: tuple[Node, ...], attrs: Any) -> Type:
        return make_type(same_type(op, src).shape, bool_)

    return infer
