"""Steps by a model of the curvature, made of the last steps (L-BFGS, Liu and Nocedal, 1989).

Each step asks for losses and gradients several times, and its course depends on their values: they
are read by the host, in float64, so a step is not for capturing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tilework.base.errors import UserError
from tilework.nn.optim.groups import Params
from tilework.nn.optim.optimizer import Optimizer
from tilework.nn.utils.vectors import vector_to_parameters
from tilework.tensor.tensor import Tensor

Closure = Callable[[], Tensor]
#: A loss, its gradient, and its slope along the direction, at so many lengths of the direction.
Point = tuple[float, float, Tensor, float]


class LBFGS(Optimizer):
    """L-BFGS over all parameters as one vector.

    Args:
        params: see `Optimizer`.
        lr: the length of a step, where no line is searched.
        max_iter: directions that one step takes at most.
        max_eval: losses that one step computes at most; 5/4 of `max_iter` by default.
        tolerance_grad: stop when no element of the gradient is greater.
        tolerance_change: stop when a step or its loss changes less.
        history_size: steps that are remembered.
        line_search_fn: None, or "strong_wolfe" to look for a good length.

    Raises:
        UserError: the search is unknown.

    Example:
        >>> x = Tensor([3.0, -2.0], requires_grad=True)
        >>> optimizer = LBFGS([x], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = ((x - 1) ** 4).sum()
        ...     _ = loss.backward()
        ...     return loss
        >>> for _ in range(5):
        ...     _ = optimizer.step(closure)
        >>> bool(((x - 1).abs() < 0.05).all())
        True
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise UserError(
                "LBFGS: unknown search", got=line_search_fn, expected="None or strong_wolfe"
            )
        super().__init__(params, lr)
        self.max_iter = max_iter
        self.max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        self.tolerance_grad = tolerance_grad
        self.tolerance_change = tolerance_change
        self.history_size = history_size
        self.line_search_fn = line_search_fn
        # Steps and changes of the gradient, newest last.
        self.steps: list[Tensor] = []
        self.changes: list[Tensor] = []
        self.direction: Tensor | None = None
        self.last_gradient: Tensor | None = None
        self.last_length = 1.0
        self.count = 0

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Refused: there is one vector.

        Raises:
            UserError: always.
        """
        raise UserError(
            "LBFGS: all parameters are one group", got=sorted(param_group), try_="one list of them"
        )

    def _kept(self) -> list[str]:
        return ["steps", "changes", "direction", "last_gradient", "last_length", "count"]

    def step(self, closure: Closure | None = None) -> Tensor:
        """Go to where the loss is lower.

        Args:
            closure: forgets the gradients, computes the loss, calls `backward`, gives the loss.

        Returns:
            The loss before the step.

        Raises:
            UserError: there is no closure.
        """
        if closure is None:
            raise UserError("LBFGS: a step needs a closure that computes the loss")
        first = closure()
        loss, g = float(first.item()), self._gradient_vector()
        if float(g.abs().max().item()) <= self.tolerance_grad:
            return first
        evaluations = 1
        for iteration in range(self.max_iter):
            d = self._next_direction(g)
            self.count += 1
            previous, self.last_gradient = loss, g
            rate = float(self.lr.item())
            is_first = self.count == 1
            length = min(1.0, 1.0 / float(g.abs().sum().item())) * rate if is_first else rate
            slope = float(g.dot(d).item())
            if slope > -self.tolerance_change:
                break
            begin = self._vector()
            if self.line_search_fn is None:
                self._set(begin + _times(d, length))
                used = int(iteration + 1 < self.max_iter)
                if used:
                    loss, g = float(closure().item()), self._gradient_vector()
            else:
                search = _Search(partial(self._at, closure, begin, d))
                length, loss, g, used = search.run(length, (0.0, loss, g, slope), d)
                self._set(begin + _times(d, length))
            self.last_length, evaluations = length, evaluations + used
            moved = abs(length) * float(d.abs().max().item())
            if (
                evaluations >= self.max_eval
                or float(g.abs().max().item()) <= self.tolerance_grad
                or moved <= self.tolerance_change
                or abs(loss - previous) < self.tolerance_change
            ):
                break
        return first

    def _next_direction(self, g: Tensor) -> Tensor:
        """Where the model of the curvature says that the loss falls."""
        self._remember(g)
        q = -g
        if self.steps:
            scale = [1.0 / float(y.dot(s).item()) for s, y in self._pairs()]
            shares = []
            for (s, y), factor in zip(reversed(self._pairs()), reversed(scale), strict=True):
                shares.append(float(s.dot(q).item()) * factor)
                q = (q - _times(y, shares[-1])).realize()
            s, y = self._pairs()[-1]
            q = _times(q, float(s.dot(y).item()) / float(y.dot(y).item()))
            for (s, y), factor, share in zip(self._pairs(), scale, reversed(shares), strict=True):
                q = (q + _times(s, share - float(y.dot(q).item()) * factor)).realize()
        self.direction = q.contiguous().realize()
        return self.direction

    def _remember(self, g: Tensor) -> None:
        """Take the last step into the model, if the gradient grew along it."""
        if self.last_gradient is None or self.direction is None:
            return
        y, s = g - self.last_gradient, _times(self.direction, self.last_length)
        if float(y.dot(s).item()) > 1e-10:
            self.steps.append(s.contiguous().realize())
            self.changes.append(y.contiguous().realize())
            del self.steps[: -self.history_size], self.changes[: -self.history_size]
        self.last_gradient = None

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.steps, self.changes, strict=True))

    def _vector(self) -> Tensor:
        parts = [param.detach().flatten() for param in self.params]
        return Tensor.cat(*parts).clone().realize()

    def _gradient_vector(self) -> Tensor:
        parts = [
            (param.zeros_like() if param.grad is None else param.grad).detach().flatten()
            for param in self.params
        ]
        return Tensor.cat(*parts).clone().realize()

    def _set(self, vector: Tensor) -> None:
        vector_to_parameters(vector, self.params)
        Tensor.realize(*self.params)

    def _at(self, closure: Closure, begin: Tensor, d: Tensor, length: float) -> Point:
        self._set(begin + _times(d, length))
        loss = float(closure().item())
        g = self._gradient_vector()
        return length, loss, g, float(g.dot(d).item())


def _times(vector: Tensor, number: float) -> Tensor:
    """A vector times a number that is data: as a constant each number would have its kernel."""
    factor = Tensor([number], dtype=vector.dtype, device=vector.device, requires_grad=False)
    return vector * factor.realize()


class _Search:
    """Looks for a length at which the loss has fallen and its slope has flattened.

    These are the strong Wolfe conditions, with the constants 1e-4 and 0.9 (Nocedal and Wright,
    chapter 3); between two lengths it tries the minimum of the cubic through both.
    """

    def __init__(self, evaluate: Callable[[float], Point], most: int = 25) -> None:
        self.evaluate = evaluate
        self.most = most

    def run(self, length: float, start: Point, d: Tensor) -> tuple[float, float, Tensor, int]:
        """The length, its loss and gradient, and how many losses it took.

        Args:
            length: what is tried first.
            start: where the line begins.
            d: the direction.
        """
        loss, slope = start[1], start[3]
        reach = float(d.abs().max().item())
        before = start
        point = self.evaluate(length)
        count = 1
        bracket: list[Point] | None = None
        while count <= self.most:
            if point[1] > loss + 1e-4 * point[0] * slope or (count > 1 and point[1] >= before[1]):
                bracket = [before, point]
                break
            if abs(point[3]) <= -0.9 * slope:
                return point[0], point[1], point[2], count
            if point[3] >= 0:
                bracket = [before, point]
                break
            least, greatest = point[0] + 0.01 * (point[0] - before[0]), point[0] * 10
            further = _cubic(before, point, (least, greatest))
            before, point = point, self.evaluate(further)
            count += 1
        if bracket is None:
            bracket = [start, point]
        return self._zoom(bracket, start, reach, count)

    def _zoom(
        self, bracket: list[Point], start: Point, reach: float, count: int
    ) -> tuple[float, float, Tensor, int]:
        """Narrow two lengths down."""
        loss, slope = start[1], start[3]
        low, high = sorted(bracket, key=lambda point: point[1])
        was_short = False
        while count < self.most and abs(high[0] - low[0]) * reach >= 1e-9:
            ends = (min(low[0], high[0]), max(low[0], high[0]))
            length = _cubic(low, high, ends)
            width = 0.1 * (ends[1] - ends[0])
            if min(ends[1] - length, length - ends[0]) < width:
                if was_short or length >= ends[1] or length <= ends[0]:
                    is_high = abs(length - ends[1]) < abs(length - ends[0])
                    length = ends[1] - width if is_high else ends[0] + width
                    was_short = False
                else:
                    was_short = True
            else:
                was_short = False
            point = self.evaluate(length)
            count += 1
            if point[1] > loss + 1e-4 * length * slope or point[1] >= low[1]:
                high = point
                continue
            if abs(point[3]) <= -0.9 * slope:
                low = point
                break
            if point[3] * (high[0] - low[0]) >= 0:
                high = low
            low = point
        return low[0], low[1], low[2], count


def _cubic(first: Point, second: Point, bounds: tuple[float, float]) -> float:
    """Where the cubic through two points with their slopes is least, within bounds."""
    a, b = sorted((first, second), key=lambda point: point[0])
    (at, fa, _, ga), (to, fb, _, gb) = a, b
    middle = (bounds[0] + bounds[1]) / 2
    if at == to:
        return middle
    d1 = ga + gb - 3 * (fa - fb) / (at - to)
    square = d1 * d1 - ga * gb
    if not square >= 0:
        return middle
    d2 = math.sqrt(square)
    found = to - (to - at) * ((gb + d2 - d1) / (gb - ga + 2 * d2)) if gb - ga + 2 * d2 else middle
    return min(max(found, bounds[0]), bounds[1])
