"""Draws of counts: from the Poisson and the binomial distribution."""

from __future__ import annotations

import math
from typing import Any, Final, Self

from tilework import dtypes
from tilework.tensor.aliases import Aliases

#: From here on the logarithm of n (n - 1) ... (n - k + 1) is that of its leading terms.
_MANY_TRIALS: Final = 1e8


class Drawing(Aliases):
    """poisson, binomial."""

    __slots__ = ()

    def poisson(self) -> Self:
        """A draw from the Poisson distribution of each rate; NaN for a rate below 0 or NaN.

        Rates below 10 go through the distribution function, greater ones through 24 proposals, of
        which the first that is accepted counts (Hormann, 1993); in float64.

        Example:
            >>> Tensor.manual_seed(2)
            >>> bool((Tensor.full((100,), 4.0).poisson().mean() - 4.0).abs() < 1.0)
            True
        """
        rate = self._as_float()
        wide = rate.cast(dtypes.float64)
        low, high = wide.clamp(0.0, 10.0), wide.maximum(10.0).unsqueeze(-1)

        def log_chance(k: Self, of: Self) -> Self:
            found: Self = k.xlogy(of) - of - (k + 1).lgamma()
            return found

        few = low._counted_up(log_chance)
        b = high.sqrt() * 2.53 + 0.931
        a = b * 0.02483 - 0.059
        proposal, squeezed, v, size = high._proposed(a, b, high + 0.43, -3.6224 / (b - 2) + 0.9277)
        scale = ((1.1328 / (b - 3.4) + 1.1239) / (a / (size * size) + b)).log()
        is_right = squeezed | (v.log() + scale <= log_chance(proposal.maximum(0.0), high))
        many = proposal._first_of(is_right & (proposal >= 0))
        drawn: Self = (wide < 10).where(few, many)
        return (wide >= 0).where(drawn, math.nan).cast(rate.dtype)

    def binomial(self, prob: Self) -> Self:
        """A draw of how many of so many trials succeed; NaN where that makes no sense.

        Args:
            prob: the chance of each trial; broadcasts with the numbers of trials.

        The methods are those of `poisson`.

        Example:
            >>> Tensor([10.0, 10.0]).binomial(Tensor([0.0, 1.0])).tolist()
            [0.0, 10.0]
        """
        trials, chances = self._as_float()._together(prob, "binomial")
        n, p = trials.cast(dtypes.float64), chances.cast(dtypes.float64)
        is_usual = p <= 0.5
        rare = is_usual.where(p, 1 - p).clamp(0.0, 0.5)
        mean = n * rare
        safe = (mean < 10).where(rare, 0.0)

        def log_chance(k: Self, of: Self) -> Self:
            all_, share = n.unsqueeze(-1), of
            orders = (all_ + 1).lgamma() - (all_ - k + 1).maximum(1.0).lgamma()
            # Of many trials both have no digits left in which they differ.
            safe_all = all_.maximum(1.0)
            of_many = k * safe_all.log() - k * (k - 1) / (safe_all * 2)
            ways = (all_ > _MANY_TRIALS).where(of_many, orders) - (k + 1).lgamma()
            found: Self = ways + k.xlogy(share) + (all_ - k).maximum(0.0).xlog1py(-share)
            return (k <= all_).where(found, -math.inf)

        few = safe._counted_up(log_chance)
        share = (mean < 10).where(0.5, rare).unsqueeze(-1)
        of = (mean < 10).where(100.0, n).unsqueeze(-1)
        spread = (of * share * (1 - share)).sqrt()
        b = spread * 2.53 + 1.15
        a = b * 0.0248 + share * 0.01 - 0.0873
        proposal, squeezed, v, size = of._proposed(a, b, of * share + 0.5, -4.2 / b + 0.92)
        is_inside = (proposal >= 0) & (proposal <= of)
        k, mode = proposal.clamp(0.0).minimum(of), ((of + 1) * share).floor()
        odds = (share / (1 - share)).log()
        chance = (
            (mode + 1).lgamma() + (of - mode + 1).lgamma() - (k + 1).lgamma()
            - (of - k + 1).lgamma() + (k - mode) * odds
        )  # fmt: skip
        height = (v * (5.1 / b + 2.83) * spread / (a / (size * size) + b)).log()
        many = proposal._first_of(is_inside & (squeezed | (height <= chance)))
        drawn: Self = (mean < 10).where(few, many)
        drawn = is_usual.where(drawn, n - drawn)
        is_right = (n >= 0) & n.eq(n.floor()) & (p >= 0) & (p <= 1)
        return is_right.where(drawn, math.nan).cast(trials.dtype)

    def _counted_up(self, log_chance: Any) -> Self:
        """A draw of a count below 64 whose chances are given by a function of count and parameter.

        The parameters are this tensor; a new last axis runs over the counts.
        """
        of = self.unsqueeze(-1)
        counts = type(self).arange(64, dtype=dtypes.float64, device=self.device)
        shape = (*self.shape, 64)
        up_to = log_chance(counts.expand(*shape), of.expand(*shape)).exp().cumsum(-1)
        drawn = type(self).rand(*self.shape, 1, dtype=dtypes.float64, device=self.device)
        found: Self = (up_to <= drawn).cast(dtypes.float64).sum(-1)
        return found

    def _proposed(self, a: Self, b: Self, center: Self, limit: Self) -> tuple[Self, ...]:
        """24 proposals by a transformed ratio of draws on the last axis.

        Returns:
            The counts, whether each is accepted at once, the second draws, and how far the first
            ones are from their ends.
        """
        shape = (*self.shape[:-1], 24)
        options = {"dtype": dtypes.float64, "device": self.device}
        u = type(self).rand(*shape, **options) - 0.5
        v = 1.0 - type(self).rand(*shape, **options)
        size = (0.5 - u.abs()).maximum(2.0**-54)
        counts = ((a * 2 / size + b) * u + center).floor()
        squeezed = (size >= 0.07) & (v <= limit)
        return counts, squeezed, v, size

    def _first_of(self, is_right: Self) -> Self:
        """The first element along the last axis where something holds."""
        place = is_right.cast(dtypes.int32).argmax(-1, keepdim=True)
        found: Self = self.gather(-1, place).squeeze(-1)
        return found
