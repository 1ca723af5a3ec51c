"""A softmax over very many classes, of which the rare ones get fewer features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilework.base.errors import ShapeError, UserError
from tilework.nn.layers.functions import ModuleList, Sequential
from tilework.nn.layers.linear import Linear
from tilework.tensor.tensor import Tensor


class AdaptiveOutput(NamedTuple):
    """The logarithm of the probability of each target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss:
    """Classes in clusters by how rare they are (Grave and others, 2017).

    The head tells the first classes and the clusters of the others apart; each cluster, the rarer
    the smaller, its own classes.  All rows go through all clusters, since which of them a target
    is in is not read: the layer saves parameters, and as much work as those say.

    Args:
        in_features: size of the last axis of the input.
        n_classes: how many classes there are, the frequent ones first.
        cutoffs: where clusters begin, ascending, each from 1 to n_classes - 1.
        div_value: each cluster has its predecessor's features divided by it.
        head_bias: whether something is added in the head.

    Shape: input (n, in_features) or (in_features,), target (n,) or () -> output as the target,
        loss ()

    Raises:
        UserError: the cutoffs make no sense.
        ShapeError: input and target don't fit.

    Example:
        >>> layer = AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5])
        >>> found = layer(Tensor.ones(3, 8), Tensor([0, 4, 9]))
        >>> found.output.shape, found.loss.shape
        ((3,), ())
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
    ) -> None:
        given = list(cutoffs)
        is_ascending = all(a < b for a, b in zip([0, *given], [*given, n_classes], strict=True))
        if not given or not is_ascending:
            raise UserError(
                "AdaptiveLogSoftmaxWithLoss: the cutoffs make no sense",
                got=given,
                expected=f"ascending integers from 1 to {n_classes - 1}",
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*given, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = given[0]
        self.n_clusters = len(given)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias)
        self.tail = ModuleList()
        for number in range(self.n_clusters):
            width = int(in_features // div_value ** (number + 1))
            classes = self.cutoffs[number + 1] - self.cutoffs[number]
            parts = (Linear(in_features, width, False), Linear(width, classes, False))
            self.tail.append(Sequential(*parts))

    def __call__(self, x: Tensor, target: Tensor) -> AdaptiveOutput:
        """The logarithm of the probability of each target, and the loss."""
        if target.ndim > 1 or x.ndim != target.ndim + 1 or x.shape[:-1] != target.shape:
            raise ShapeError(
                "AdaptiveLogSoftmaxWithLoss: input and target don't fit",
                got=f"{x.shape} and {target.shape}",
                expected=f"(n, {self.in_features}) and (n,), or without n",
            )
        if not target.ndim:
            one = self(x.unsqueeze(0), target.unsqueeze(0))
            return AdaptiveOutput(one.output.squeeze(0), one.loss)
        head = self.head(x).log_softmax(-1)
        # A target below 0 or from n_classes on is looked up where nothing is, which is an error.
        place, output = (target < 0).where(self.head_size, target), x.zeros_like()[:, 0]
        for number, layer in enumerate(self.tail):
            low, high = self.cutoffs[number], self.cutoffs[number + 1]
            is_last = number == self.n_clusters - 1
            is_here = target >= low if is_last else (target >= low) & (target < high)
            place = is_here.where(self.shortlist_size + number, place)
            own = is_here.where(target - low, 0)
            found = layer(x).log_softmax(-1).gather(1, own.unsqueeze(1)).squeeze(1)
            output = is_here.where(found, output)
        output = output + head.gather(1, place.unsqueeze(1)).squeeze(1)
        return AdaptiveOutput(output, -output.mean())

    def log_prob(self, x: Tensor) -> Tensor:
        """The logarithms of the probabilities of all classes.

        Shape: (n, in_features) -> (n, n_classes)
        """
        head = self.head(x).log_softmax(-1)
        parts = [head[:, : self.shortlist_size]]
        for number, layer in enumerate(self.tail):
            place = self.shortlist_size + number
            parts.append(layer(x).log_softmax(-1) + head[:, place : place + 1])
        return parts[0].cat(*parts[1:], dim=1)

    def predict(self, x: Tensor) -> Tensor:
        """The most probable class of each row.

        Shape: (n, in_features) -> (n,) in int64
        """
        return self.log_prob(x).argmax(1)
