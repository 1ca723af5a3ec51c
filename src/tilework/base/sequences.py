"""Sequences: the few operations that the standard library lacks."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from tilework.base.errors import InternalError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def unique(items: Iterable[K]) -> tuple[K, ...]:
    """Return the items without repetitions, in the order of first appearance."""
    return tuple(dict.fromkeys(items))


def partition(items: Iterable[T], is_first: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return the items for which `is_first` holds, and the others."""
    first: list[T] = []
    second: list[T] = []
    for item in items:
        (first if is_first(item) else second).append(item)
    return first, second


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by key; keys and items keep their order of appearance."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive pieces of `size` items; the last may be shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def only(items: Iterable[T]) -> T:
    """Return the single item.

    Raises:
        InternalError: there are none, or several.
    """
    found = list(items)
    if len(found) != 1:
        raise InternalError("only: there must be one item", got=f"{len(found)} items")
    return found[0]


def inverse_permutation(order: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes `order`.

    Example:
        >>> inverse_permutation((2, 0, 1))
        (1, 2, 0)
    """
    inverse = [0] * len(order)
    for position, source in enumerate(order):
        inverse[source] = position
    return tuple(inverse)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense row-major array.

    Example:
        >>> row_major_strides((2, 3, 4))
        (12, 4, 1)
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def topological(
    items: Iterable[K], needs: Callable[[K], Iterable[K]]
) -> tuple[tuple[K, ...], tuple[K, ...]]:
    """Order items after what they need, without recursion.

    Args:
        items: what to order; ties keep this order.
        needs: what must come before an item; names outside `items` are ignored.

    Returns:
        The ordered items, and one circle of needs (empty if there is none; then the order is
        complete).
    """
    nodes = unique(items)
    known = set(nodes)
    waiting = {node: dict.fromkeys(n for n in needs(node) if n in known) for node in nodes}
    users: dict[K, list[K]] = {node: [] for node in nodes}
    for node in nodes:
        for need in waiting[node]:
            users[need].append(node)
    ready = [node for node in nodes if not waiting[node]]
    order: list[K] = []
    for node in ready:  # grows while it is walked
        order.append(node)
        for user in users[node]:
            del waiting[user][node]
            if not waiting[user]:
                ready.append(user)
    if len(order) == len(nodes):
        return tuple(order), ()
    return tuple(order), _circle({node: left for node, left in waiting.items() if left})


def _circle(waiting: dict[K, dict[K, None]]) -> tuple[K, ...]:
    """Follow needs from any stuck node until one repeats."""
    walk: list[K] = []
    seen: dict[K, int] = {}
    node = next(iter(waiting))
    while node not in seen:
        seen[node] = len(walk)
        walk.append(node)
        node = next(iter(waiting[node]))
    return tuple(walk[seen[node] :])
