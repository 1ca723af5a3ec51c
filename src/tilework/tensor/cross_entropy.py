"""Losses of probabilities: cross entropies, divergences, and alignments of sequences (CTC)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.tensor.losses import Losses
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A logarithm of "impossible" that sums and differences of float32 keep finite.
_NEVER = -1e30


class CrossEntropy(Losses):
    """cross_entropy, nll_loss, kl_div, ctc_loss and their kin."""

    __slots__ = ()

    def binary_crossentropy(
        self, Y: Self, reduction: str = "mean", weight: Self | None = None
    ) -> Self:
        """Of probabilities and targets in [0, 1]; logarithms stop at -100, as in PyTorch."""

        def compute(x: Self) -> Self:
            yes = x.log().clamp(min_=-100.0)
            no = (-x).log1p().clamp(min_=-100.0)
            losses = -(yes * Y + no * (1 - Y))
            return (losses if weight is None else losses * weight)._reduced(reduction)

        return self._loss(compute)

    def binary_crossentropy_logits(
        self,
        Y: Self,
        reduction: str = "mean",
        pos_weight: Self | None = None,
        weight: Self | None = None,
    ) -> Self:
        """Of logits and targets in [0, 1], without overflow."""

        def compute(x: Self) -> Self:
            yes = Y * (-x).softplus()
            yes = yes if pos_weight is None else yes * pos_weight
            losses = yes + (1 - Y) * x.softplus()
            return (losses if weight is None else losses * weight)._reduced(reduction)

        return self._loss(compute)

    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Cross entropy of logits (classes last) and class numbers.

        Args:
            Y: class numbers; those equal to `ignore_index` don't count.
            ignore_index: see `Y`.
            label_smoothing: share of the target that is spread over all classes.
            reduction: "mean" (over what counts), "sum" or "none".

        Shape: self (..., classes), Y (...) -> () or (...)
        """
        if self._dims[:-1] != Y._dims:
            raise ShapeError(
                "sparse_categorical_crossentropy: the targets don't fit",
                got=f"{format_shape(self._dims)} and {format_shape(Y._dims)}",
                expected="logits of the shape of the targets, with the classes last",
            )

        def compute(x: Self) -> Self:
            logs = x.log_softmax(-1)
            counts = Y.ne(ignore_index)
            target = counts.where(Y, 0).cast(dtypes.index)
            picked = -logs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
            if label_smoothing:
                spread = -logs.mean(-1)
                picked = picked * (1 - label_smoothing) + spread * label_smoothing
            losses = counts.where(picked, 0.0)
            if reduction != "mean":
                return losses._reduced(reduction)
            return losses.sum() / counts.cast(dtypes.int64).sum().cast(losses.dtype)

        return self._loss(compute)

    def cross_entropy(
        self,
        Y: Self,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        weight: Self | None = None,
    ) -> Self:
        """Cross entropy of logits with classes on axis 1, as PyTorch's.

        Args:
            Y: class numbers, or probabilities in the shape of the logits.
            reduction: "mean", "sum" or "none".
            label_smoothing: share of the target that is spread over all classes.
            ignore_index: class number that doesn't count.
            weight: of each class.

        Shape: self (n, classes, ...), Y (n, ...) or (n, classes, ...) -> () or (n, ...)
        """
        axis = 1 if self.ndim > 1 else 0
        if Y.ndim == self.ndim:
            return self._soft_cross_entropy(Y, axis, reduction, label_smoothing, weight)

        def compute(x: Self) -> Self:
            logs = x.log_softmax(axis)
            sharp = logs.nll_loss(Y, weight, ignore_index, reduction)
            if not label_smoothing:
                return sharp
            smooth = logs._spread_loss(Y, weight, ignore_index, reduction, axis)
            return sharp * (1 - label_smoothing) + smooth * label_smoothing

        return self._loss(compute)

    def _spread_loss(
        self, target: Self, weight: Self | None, ignore_index: int, reduction: str, axis: int
    ) -> Self:
        """Cross entropy with a target that is the same for all classes."""
        counts = target.ne(ignore_index)
        scaled = self if weight is None else self * self._along(weight, axis)
        size = self._size_as(self._dims[axis], self.dtype)
        losses = counts.where(-(scaled / size).sum(axis), 0.0)
        if reduction != "mean":
            return losses._reduced(reduction)
        if weight is None:
            return losses.sum() / counts.cast(dtypes.int64).sum().cast(losses.dtype)
        place = counts.where(target, 0).cast(dtypes.index)
        return losses.sum() / counts.where(weight.cast(losses.dtype)[place], 0.0).sum()

    def _along(self, values: Self, axis: int) -> Self:
        """A vector along `axis` of this tensor."""
        shape = [1] * self.ndim
        shape[axis] = -1
        return values.cast(self.dtype).reshape(shape)

    def _soft_cross_entropy(
        self, target: Self, axis: int, reduction: str, smoothing: float, weight: Self | None
    ) -> Self:
        if target._dims != self._dims:
            raise ShapeError(
                "cross_entropy: the probabilities don't fit",
                got=f"{format_shape(self._dims)} and {format_shape(target._dims)}",
                expected="equal shapes",
            )

        def compute(x: Self) -> Self:
            wanted = target.cast(x.dtype)
            if smoothing:
                wanted = wanted * (1 - smoothing) + smoothing / self.shape[axis]
            logs = x.log_softmax(axis)
            if weight is not None:
                logs = logs * x._along(weight, axis)
            losses = -(logs * wanted).sum(axis)
            return losses._reduced(reduction)

        return self._loss(compute)

    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """The negative of the log-probability (axis 1) at each class number.

        Shape: self (n, classes, ...), Y (n, ...) -> () or (n, ...)

        Example:
            >>> Tensor([[0.5, 0.5]]).log().nll_loss(Tensor([1])).numpy().round(4).item()
            0.6930999755859375
        """
        axis = 1 if self.ndim > 1 else 0
        if Y._dims != (*self._dims[:axis], *self._dims[axis + 1 :]):
            raise ShapeError(
                "nll_loss: the targets don't fit",
                got=f"{format_shape(self._dims)} and {format_shape(Y._dims)}",
                expected="the shape of the logits without the classes",
            )

        def compute(x: Self) -> Self:
            counts = Y.eq(Y) if ignore_index is None else Y.ne(ignore_index)
            target = counts.where(Y, 0).cast(dtypes.index)
            picked = -x.gather(axis, target.unsqueeze(axis)).squeeze(axis)
            shares = counts.cast(x.dtype)
            if weight is not None:
                shares = counts.where(weight.cast(x.dtype)[target], 0.0)
            losses = counts.where(picked * shares, 0.0)
            if reduction != "mean":
                return losses._reduced(reduction)
            if weight is None:
                return losses.sum() / counts.cast(dtypes.int64).sum().cast(x.dtype)
            return losses.sum() / shares.sum()

        return self._loss(compute)

    def kl_div(self, target: Self, reduction: str = "mean", log_target: bool = False) -> Self:
        """target * (log(target) - self), of logarithms and probabilities; 0 * log(0) is 0.

        Args:
            target: probabilities.
            reduction: "mean", "batchmean" (the sum divided by the first axis), "sum" or "none".
            log_target: `target` holds logarithms of probabilities.
        """

        def compute(x: Self) -> Self:
            p = target.cast(x.dtype)
            if log_target:
                losses = p.exp() * (p - x)
            else:
                logs = (p > 0).where(p, 1.0).log()
                losses = (p > 0).where(p * logs, p * 0) - p * x
            if reduction != "batchmean":
                return losses._reduced(reduction)
            return losses.sum() / (x._fixed_size(0, "kl_div") if x.ndim else 1)

        return self._loss(compute)

    # --- sequences ---------------------------------------------------------------------------

    def ctc_loss(
        self,
        targets: Self,
        input_lengths: Self | Sequence[int],
        target_lengths: Self | Sequence[int],
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> Self:
        """The negative log-probability of all alignments of a target (Graves and others, 2006).

        Args:
            targets: class numbers without blanks, (n, s), or all in one vector.
            input_lengths: how many steps of each sequence count.
            target_lengths: how many classes of each target count.
            blank: class number of "nothing here".
            reduction: "mean" (each loss divided by its target's length first), "sum" or "none".
            zero_infinity: make the loss 0 where the target can't be aligned, instead of infinite.

        Shape: self (t, n, classes) or (t, classes), log-probabilities -> () or (n,)
        """
        logs = self if self.ndim == 3 else self.unsqueeze(1)
        batch = logs._fixed_size(1, "ctc_loss")
        wanted = _lengths(target_lengths, batch, "ctc_loss")
        steps = _lengths(input_lengths, batch, "ctc_loss")
        rows = _padded_targets(targets, wanted)
        found = self._loss(lambda x: logs.cast(x.dtype)._aligned(rows, steps, wanted, blank))
        is_never = found > -_NEVER / 2
        found = is_never.where(0.0 if zero_infinity else math.inf, found)
        if reduction == "mean":
            sizes = [max(size, 1) for size in wanted]
            return (found / self._from_numbers(sizes, found.dtype, self.device)).mean()
        return (found if self.ndim == 3 else found.squeeze(0))._reduced(reduction)

    def _aligned(self, rows: Self, steps: list[int], wanted: list[int], blank: int) -> Self:
        """The forward pass of CTC: one vector of log-probabilities, step by step."""
        batch, size = rows._fixed_size(0, "ctc_loss"), rows._fixed_size(1, "ctc_loss")
        device = self.device
        # Blanks around and between the classes: blank, a, blank, b, blank.
        spaced = rows.unsqueeze(-1).pad(((0, 0), (0, 0), (1, 0)), value=blank).reshape(batch, -1)
        spaced = spaced.pad(((0, 0), (0, 1)), value=blank)
        count = 2 * size + 1
        before = spaced.pad(((0, 0), (2, 0)), value=blank)[:, :count]
        can_jump = spaced.ne(blank) & spaced.ne(before)
        place = spaced._positions(1)
        state = (place < 2).where(self[0].gather(1, spaced), _NEVER)
        lengths = self._from_numbers(steps, dtypes.index, device).unsqueeze(1)
        for step in range(1, self._fixed_size(0, "ctc_loss")):
            one = state.pad(((0, 0), (1, 0)), value=_NEVER)[:, :count]
            two = state.pad(((0, 0), (2, 0)), value=_NEVER)[:, :count]
            options = state.stack(one, can_jump.where(two, _NEVER), dim=-1)
            grown = options.logsumexp(-1) + self[step].gather(1, spaced)
            state = (lengths > step).where(grown, state).contiguous()
        ends = self._from_numbers(wanted, dtypes.index, device).unsqueeze(1) * 2
        last = state.gather(1, ends)
        has_class = ends > 0
        other = has_class.where(state.gather(1, has_class.where(ends - 1, 0)), _NEVER)
        return -(last.cat(other, dim=1).logsumexp(1))


def _lengths(given: Any, batch: int, what: str) -> list[int]:
    values = given.reshape(-1).tolist() if hasattr(given, "reshape") else list(given)
    if len(values) != batch:
        raise ShapeError(
            f"{what}: needs a length for each sequence", got=len(values), expected=f"{batch}"
        )
    return [int(value) for value in values]


def _padded_targets(targets: Any, wanted: list[int]) -> Any:
    """The targets in rows."""
    if targets.ndim == 2:
        return targets
    if sum(wanted) > targets.numel():
        raise UserError(
            "ctc_loss: the lengths add up to more than there are targets",
            got=f"{sum(wanted)} of {targets.numel()}",
        )
    most, start, rows = max(wanted, default=0), 0, []
    for size in wanted:
        rows.append(targets[start : start + size].pad(((0, most - size),)))
        start += size
    return rows[0].stack(*rows[1:])
