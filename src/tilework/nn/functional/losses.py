"""Losses: how far an output is from a target.

`reduction` is "mean", "sum" or "none".  PyTorch's old `size_average` and `reduce` are not here, so
what follows them there has to be given by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilework.tensor.tensor import Tensor


def l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """|input - target|; with a weight, the mean is divided by the weights' sum.

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same
    """
    if weight is None:
        return input.l1_loss(target, reduction)
    return _weighed(input.l1_loss(target, "none"), weight, reduction)


def mse_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """(input - target)^2; with a weight, the mean is divided by the weights' sum.

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same

    Example:
        >>> mse_loss(Tensor([1.0, 4.0]), Tensor([1.0, 2.0])).item()
        2.0
    """
    if weight is None:
        return input.mse_loss(target, reduction)
    return _weighed(input.mse_loss(target, "none"), weight, reduction)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """The square up to `delta`, and a line beyond; weights are factors, and the mean is plain.

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same
    """
    if weight is None:
        return input.huber_loss(target, reduction, delta)
    return (input.huber_loss(target, "none", delta) * weight)._reduced(reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """`huber_loss` divided by `beta`; `l1_loss` if that is 0.

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same
    """
    return input.smooth_l1_loss(target, beta, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """How unlikely the target is for logits.

    Args:
        input: logits.
        target: class numbers, or probabilities in the shape of the logits.
        weight: a factor for each class.
        ignore_index: a class number that doesn't count.
        reduction: "mean", "sum" or "none".
        label_smoothing: share of the target that is spread over all classes.

    Shape: (n, classes, ...) or (classes,), target (n, ...) or ()

    Example:
        >>> round(cross_entropy(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
        0.6931
    """
    return input.cross_entropy(target, reduction, label_smoothing, ignore_index, weight)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """How unlikely the target is for logarithms of probabilities.

    Args:
        input: logarithms of probabilities.
        target: class numbers.
        weight: a factor for each class.
        ignore_index: a class number that doesn't count.
        reduction: "mean" (divided by the weights that count), "sum" or "none".

    Shape: (n, classes, ...) or (classes,), target (n, ...) or ()
        -> () or, for "none", as the target
    """
    return input.nll_loss(target, weight, ignore_index, reduction)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """How unlikely yes or no is for probabilities.

    Args:
        input: probabilities, in [0, 1].
        target: likewise; 1 is yes.
        weight: a factor for each element, broadcast.
        reduction: "mean", "sum" or "none".

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same
    """
    return input.binary_cross_entropy(target, weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of the sigmoid of logits, safe for large ones.

    Args:
        input: logits.
        target: in [0, 1]; 1 is yes.
        weight: a factor for each element, broadcast.
        reduction: "mean", "sum" or "none".
        pos_weight: a factor for what a yes costs, broadcast.

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same

    Example:
        >>> round(binary_cross_entropy_with_logits(Tensor([0.0]), Tensor([1.0])).item(), 4)
        0.6931
    """
    return input.binary_cross_entropy_with_logits(target, weight, reduction, pos_weight)


def kl_div(
    input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Divergence of a distribution from the target; "batchmean" divides by the batch.

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same
    """
    return input.kl_div(target, reduction, log_target)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """How unlikely a count is for a Poisson distribution; see the method.

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same
    """
    return input.poisson_nll_loss(target, log_input, full, eps, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """How unlikely a number is for a normal distribution of mean `input` and variance `var`.

    Args:
        input: means.
        target: the numbers.
        var: variances, or one for all; not below `eps`.
        full: add the constant term, half of log(2 pi).
        eps: what variances are at least.
        reduction: "mean", "sum" or "none".

    Shape: target as the input, var the same or with 1 as its last size
        -> () or, for "none", the same
    """
    spread = var if isinstance(var, Tensor) else input.full_like(float(var))
    return input.gaussian_nll_loss(target, spread, full, eps, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)) for targets 1 and -1.

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same
    """
    return input.soft_margin_loss(target, reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, *, reduction: str = "mean"
) -> Tensor:
    """The input for target 1, and what it lacks of the margin for -1.

    Shape: target in the shape of the input (broadcast) -> () or, for "none", the same
    """
    return input.hinge_embedding_loss(target, margin, reduction)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """1 - cosine for target 1, what the cosine exceeds the margin by for -1.

    Shape: (n, d) twice, target (n,); or (d,) twice, target () -> () or, for "none", as the target
    """
    return input1.cosine_embedding_loss(input2, target, margin, reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """What the first lacks of being above the second (target 1), or below it (-1).

    Shape: three tensors of one shape (broadcast) -> () or, for "none", the same
    """
    return input1.margin_ranking_loss(input2, target, margin, reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """What the distance to the negative lacks of that to the positive plus a margin.

    Args:
        anchor: what the others are compared with.
        positive: what should be near.
        negative: what should be far.
        margin: how much farther it should be.
        p: of the norm.
        eps: added to differences.
        swap: take the distance from the positive to the negative where that is less.
        reduction: "mean", "sum" or "none".

    Shape: (n, d) or (d,), three times -> () or, for "none", (n,) or ()
    """
    return anchor.triplet_margin_loss(positive, negative, margin, p, eps, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with a distance of one's own.

    Args:
        anchor: what the others are compared with.
        positive: what should be near.
        negative: what should be far.
        distance_function: of two tensors; the Euclidean distance by default.
        margin: how much farther it should be.
        swap: take the distance from the positive to the negative where that is less.
        reduction: "mean", "sum" or "none".

    Shape: (n, d), three times -> () or, for "none", (n,)
    """
    return anchor.triplet_margin_with_distance_loss(
        positive, negative, distance_function, margin, swap, reduction
    )


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
) -> Tensor:
    """What the target's score lacks of all others plus a margin.

    Shape: (n, classes), target (n,); or (classes,), target () -> () or, for "none", as the target
    """
    return input.multi_margin_loss(target, p, margin, weight, reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """`multi_margin_loss` with several targets, of which -1 ends the list.

    Shape: (n, classes) or (classes,), target the same -> () or, for "none", (n,) or ()
    """
    return input.multilabel_margin_loss(target, reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """The mean over classes of `binary_cross_entropy_with_logits`.

    Shape: (n, classes) or (classes,), target the same -> () or, for "none", (n,) or ()
    """
    return input.multilabel_soft_margin_loss(target, weight, reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """How unlikely a sequence is, however its classes are stretched; see the method.

    Args:
        log_probs: logarithms of the probabilities of classes at each time.
        targets: class numbers, (n, length) or all behind each other.
        input_lengths: how many times of each sequence count.
        target_lengths: how many classes each target has.
        blank: the class that stands for nothing.
        reduction: "mean" (each divided by its target's length first), "sum" or "none".
        zero_infinity: 0 for targets that are too long, and for their gradients.

    Shape: (times, n, classes) or (times, classes) -> () or, for "none", (n,) or ()
    """
    return log_probs.ctc_loss(
        targets, input_lengths, target_lengths, blank, reduction, zero_infinity
    )


def _weighed(losses: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """Losses times weights; their mean is divided by the weights' sum."""
    shaped = weight.broadcast_to(losses.shape)
    found = losses * shaped
    return found.sum() / shaped.sum() if reduction == "mean" else found._reduced(reduction)
