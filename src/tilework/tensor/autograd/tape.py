"""The walk from a value back to what it was computed from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import DTypeError, InternalError, ShapeError, UserError
from tilework.ir.node import make
from tilework.ir.ops.memory import AFTER
from tilework.tensor.autograd import elementwise_rules, structure_rules
from tilework.tensor.autograd.table import NO_GRADIENT, RULES, Step
from tilework.tensor.realize import add_differentiated
from tilework.tensor.variable import format_shape
from tilework.tensor.version import (
    ANYTHING,
    NO_VIEW,
    Chain,
    CustomGradient,
    Storage,
    Version,
    apply_chain,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node
    from tilework.tensor.tensor import Tensor

__all__ = ["backward", "elementwise_rules", "gradient", "structure_rules"]

Place = tuple[Version, Chain]


def gradient(
    root: Tensor, targets: Sequence[Tensor], seed: Tensor | None, materialize: bool
) -> list[Tensor]:
    """The gradients of `root` (times `seed`) by the targets."""
    places = [(target._storage.version, target._chain) for target in targets]
    for target in targets:
        if not target.dtype.is_float:
            raise DTypeError("gradient: only floats have gradients", got=target.dtype.name)
    walk = _Walk(root, places)
    for number, place in enumerate(places):
        if not walk.reaches(place) and not materialize:
            walk.check_freed([place[0]])
            raise UserError(
                f"gradient: the value doesn't depend on target {number}",
                got=repr(targets[number]),
                try_="leave it out, or pass materialize_grads=True to get zeros",
            )
    walk.check_freed([version for version, _ in places])
    walk.run(_seed(root, seed))
    found: list[Tensor] = []
    for target, place in zip(targets, places, strict=True):
        part = walk.found.get(_key(place))
        found.append(target.zeros_like() if part is None else part)
    return found


def backward(root: Tensor, seed: Tensor | None, retain_graph: bool) -> None:
    """Add the gradients of `root` to `grad` of the leaves that it depends on."""
    order = _order(root._storage.version)
    leaves = _leaves(order)
    if not leaves:
        raise UserError(
            "backward: there is nothing to differentiate by",
            got=repr(root),
            expected="a value computed from tensors with requires_grad=True",
            try_="set requires_grad=True on the tensors before computing with them",
        )
    places = [place for place, _ in leaves]
    walk = _Walk(root, places)
    walk.check_freed([version for version, _ in places])
    walk.run(_seed(root, seed))
    if root.numel() == 1:
        add_differentiated(root._storage.version)
    for place, leaf in leaves:
        found = walk.found.get(_key(place))
        found = leaf.zeros_like() if found is None else found
        if leaf._layout() is not None:
            found = found.shard_like(leaf)  # gradients lie where what they are of does
        leaf.grad = found if leaf.grad is None else leaf.grad + found
    if not retain_graph:
        for version in order:
            if version.sources and version.is_tracked and not version.leaves:
                version.is_consumed = True
                if version.buffer is not None:
                    version.forget()


def _seed(root: Tensor, seed: Tensor | None) -> Tensor:
    if not root.dtype.is_float:
        raise DTypeError("backward: only floats have gradients", got=root.dtype.name)
    if seed is not None:
        if seed._dims != root._dims:
            raise ShapeError(
                "backward: the gradient must have the shape of the value",
                got=format_shape(seed._dims),
                expected=format_shape(root._dims),
            )
        return seed.cast(root.dtype)
    if root.numel() != 1:
        raise ShapeError(
            "backward: the value is not a scalar",
            got=f"shape {format_shape(root._dims)}",
            try_="reduce it with .sum() or .mean(), or give `gradient`",
        )
    return root.ones_like()


def _order(root: Version) -> list[Version]:
    """All versions that floats flowed through to `root`, sources first."""
    order: list[Version] = []
    seen: set[int] = set()
    stack: list[tuple[Version, bool]] = [(root, False)]
    while stack:
        version, is_done = stack.pop()
        if is_done:
            order.append(version)
            continue
        if id(version) in seen:
            continue
        seen.add(id(version))
        stack.append((version, True))
        if version.is_tracked:
            stack.extend(
                [(each, False) for each in version.sources if each.node.type.dtype.is_float]
            )
    return order


def _leaves(order: list[Version]) -> list[tuple[Place, Tensor]]:
    """Places whose gradient is wanted, with their tensors: those with requires_grad, else all."""
    found: list[tuple[Place, Tensor]] = []
    for version in order:
        for chain, reference in version.leaves or ():
            tensor = reference()
            if tensor is not None:
                # References are of Tensors.
                found.append(((version, chain), tensor))  # type: ignore[arg-type]
    if found:
        return found
    for version in order:
        owner = None if version.owner is None else version.owner()
        # Owners are Tensors.
        if owner is not None and owner._wants_gradient is None:  # type: ignore[attr-defined]
            found.append(((version, NO_VIEW), owner))  # type: ignore[arg-type]  # as above
    return found


def _unused() -> Tensor:
    raise InternalError("gradient: the rule of a view asks for its value")


def _key(place: Place) -> tuple[int, Chain]:
    return id(place[0]), place[1]


class _Walk:
    """One reverse pass: `found` holds the gradient of each place that was asked for."""

    def __init__(self, root: Tensor, places: Sequence[Place]) -> None:
        self.root = root
        self.found: dict[tuple[int, Chain], Tensor] = {}
        self._order = _order(root._storage.version)
        self._wanted: dict[int, list[Chain]] = {}
        for version, chain in places:
            self._wanted.setdefault(id(version), []).append(chain)
        self._leads: set[int] = set()
        for version in self._order:
            if id(version) in self._wanted or (
                version.is_tracked and any(id(each) in self._leads for each in version.sources)
            ):
                self._leads.add(id(version))
        self._gradients: dict[int, Tensor] = {}

    def reaches(self, place: Place) -> bool:
        """Whether the root was computed from `place`: a view counts where it was read itself."""
        version, chain = place
        if not chain:
            return any(each is version for each in self._order)
        reads = [(self.root._storage.version, self.root._chain)]
        for reader in self._order:
            chains = reader.chains or (NO_VIEW,) * len(reader.sources)
            if reader.op is AFTER:
                chains = (NO_VIEW, chains[1])
            reads.extend(zip(reader.sources, chains, strict=True))
        return any(source is version and seen[: len(chain)] == chain for source, seen in reads)

    def check_freed(self, targets: Sequence[Version]) -> None:
        """Refuse to give a gradient that lacks what went through a freed history."""
        for version in self._order:
            origins = version.origins
            if not version.is_freed or origins is None:
                continue
            for target in targets:
                is_older = target.serial < version.serial
                if target is not version and (
                    target.serial in origins or (origins is ANYTHING and is_older)
                ):
                    raise UserError(
                        "gradient: a value in between was computed and its history is gone",
                        got=f"a {version.node.type} that depends on the target",
                        try_="set requires_grad=True on the target before computing with it, and "
                        "backward(retain_graph=True) to differentiate twice",
                    )

    def run(self, seed: Tensor) -> None:
        """Send `seed` back from the root."""
        root = self.root
        self._send(root._storage.version, root._chain, seed)
        for version in reversed(self._order):
            g = self._gradients.pop(id(version), None)
            if g is None:
                continue
            if version.sources and version.is_tracked:
                self._step(version, g)

    def _step(self, version: Version, g: Tensor) -> None:
        """Send the gradient of one version to its sources."""
        chains = version.chains or (NO_VIEW,) * len(version.sources)
        if version.op is None:
            self._pass_on(version, chains, g)
            return
        if version.op in NO_GRADIENT:
            return
        rule = RULES.get(version.op)
        if rule is None:
            raise InternalError(f"gradient: {version.op.name} has no rule")
        attrs = version.attrs
        if version.op is AFTER:
            # Of AFTER: the view that is written.
            attrs, chains = chains[0], (NO_VIEW, chains[1])  # type: ignore[assignment]
        sources = tuple(
            [self._seen(each, chain) for each, chain in zip(version.sources, chains, strict=True)]
        )
        wanted = tuple([id(each) in self._leads for each in version.sources])
        parts = rule(Step(attrs, sources, lambda: self._seen(version, NO_VIEW), wanted), g)
        for source, chain, part in zip(version.sources, chains, parts, strict=True):
            if part is not None:
                self._send(source, chain, part)

    def _pass_on(self, version: Version, chains: tuple[Chain, ...], g: Tensor) -> None:
        """Through a version that is its first source, or has a rule of its own for the others."""
        if not isinstance(version.attrs, CustomGradient):
            self._send(version.sources[0], chains[0], g)
            return
        places = list(zip(version.sources, chains, strict=True))[1:]
        sources = tuple([self._seen(each, chain) for each, chain in places])
        parts = version.attrs.rule(sources, g)
        for (source, chain), part in zip(places, parts, strict=True):
            if part is not None:
                self._send(source, chain, part)

    def _seen(self, version: Version, chain: Chain) -> Tensor:
        """A tensor of what a version holds, whatever was written since."""
        return self._seen_as(version, chain, apply_chain(version.node, chain))

    def _seen_as(self, version: Version, chain: Chain, node: Node) -> Tensor:
        """`_seen`, of a version that is `node` through `chain`."""
        kind = type(self.root)
        return kind.__new__(kind)._set(Storage(version), chain, node.type, version.bindings)

    def _send(self, version: Version, chain: Chain, g: Tensor) -> None:
        """Add `g`, the gradient of `version` seen through `chain`."""
        if id(version) not in self._leads:
            return
        wanted = self._wanted.get(id(version), ())
        nodes = [version.node]  # what is seen after each part of the chain
        for op, attrs in chain[:-1]:
            nodes.append(make(op, (nodes[-1],), attrs))
        while chain:
            self._collect(version, chain, wanted, g)
            (op, attrs), chain = chain[-1], chain[:-1]
            if op in NO_GRADIENT:
                return
            inner = self._seen_as(version, chain, nodes[len(chain)])
            (part,) = RULES[op](Step(attrs, (inner,), _unused, (True,)), g)
            assert part is not None
            g = part
        self._collect(version, chain, wanted, g)
        old = self._gradients.get(id(version))
        self._gradients[id(version)] = g if old is None else old + g

    def _collect(self, version: Version, chain: Chain, wanted: Sequence[Chain], g: Tensor) -> None:
        if chain in wanted:
            key = (id(version), chain)
            old = self.found.get(key)
            self.found[key] = g if old is None else old + g
