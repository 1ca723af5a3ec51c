"""Layers as functions of their weights: products, norms, tables, attention, distances."""

from __future__ import annotations

from collections.abc import Sequence

from tilework import dtypes
from tilework.base.errors import IndexingError, ShapeError, UserError
from tilework.base.integers import product
from tilework.tensor.tensor import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight^T + bias.

    Shape: (..., in), weight (out, in) or (in,), bias (out,) -> (..., out) or (...)

    Raises:
        ShapeError: the last axis has another size.

    Example:
        >>> linear(Tensor([1.0, 2.0]), Tensor([[3.0, 4.0]]), Tensor([0.5])).tolist()
        [11.5]
    """
    size = weight.shape[-1] if weight.ndim in (1, 2) else None
    if size is None or not input.ndim or input.shape[-1] != size:
        raise ShapeError(
            "linear: the last axis has another size, or the weight is no matrix",
            got=f"{input.shape} and {weight.shape}",
            expected="(..., in) and (out, in)",
        )
    if weight.ndim == 1:
        found = input.matmul(weight)
        return found if bias is None else found + bias
    return input.linear(weight.transpose(), bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1^T @ weight @ input2 + bias for each output."""
    return input1.bilinear(input2, weight, bias)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a table that integers name.

    Args:
        input: row numbers.
        weight: the table.
        padding_idx: a row that gets no gradient.
        max_norm: rows that are named and longer are first made so long, in the table itself.
        norm_type: the p of the norm.
        scale_grad_by_freq: divide a row's gradient by how often it is named.
        sparse: accepted; gradients are whole tensors.

    Shape: (...), weight (rows, features) -> (..., features)

    Raises:
        IndexingError: `padding_idx` is no row.

    Example:
        >>> embedding(Tensor([1, 0]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[3.0, 4.0], [1.0, 2.0]]
    """
    padding = row_of(padding_idx, int(weight.shape[0]), "embedding")
    if max_norm is not None:
        shorten_rows(input, weight, max_norm, norm_type)
    found = weight[input]
    if scale_grad_by_freq:
        counts = _counts(input, int(weight.shape[0]))[input].unsqueeze(-1)
        found = found._with_gradient(lambda _, g: [g / counts.cast(g.dtype)], found)
    if padding is None:
        return found
    is_padding = input.eq(padding).unsqueeze(-1)
    return is_padding.where(found.detach(), found)


def row_of(padding_idx: int | None, rows: int, what: str) -> int | None:
    """The number from 0 on of a table's row; `what` asks for it.

    Raises:
        IndexingError: there is no such row.
    """
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise IndexingError(
            f"{what}: padding_idx is out of range",
            got=padding_idx,
            expected=f"{-rows} to {rows - 1}",
        )
    return padding_idx % rows


def shorten_rows(idx: Tensor, weight: Tensor, max_norm: float, norm_type: float = 2.0) -> None:
    """Write rows of a table that are named and longer than `max_norm` as long as that."""
    with Tensor.no_grad():
        norms = weight.norm(norm_type, -1, keepdim=True)
        is_named = _counts(idx, int(weight.shape[0])).unsqueeze(-1) > 0
        scale = (is_named & (norms > max_norm)).where(max_norm / (norms + 1e-7), 1.0)
        weight.assign((weight * scale).cast(weight.dtype))


def _counts(idx: Tensor, rows: int) -> Tensor:
    """How often each row is named."""
    flat = idx.reshape(-1).cast(dtypes.int64)
    zeros = Tensor.zeros(rows, dtype=dtypes.int64, device=idx.device)
    return zeros.index_add(0, flat, flat.ones_like())


def embedding_bag(  # noqa: PLR0913  # PyTorch's arguments
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Rows of a table, put together bag by bag; see `Tensor.embedding_bag` and `embedding`.

    Args:
        input: row numbers, (n, length), or all behind each other with `offsets`.
        weight: the table, (rows, d).
        offsets: where each bag begins.
        max_norm: rows that are named and longer than this are made as long, in place.
        norm_type: of that norm.
        scale_grad_by_freq: divide gradients by how often a row is named.
        mode: "sum", "mean" or "max".
        sparse: accepted; gradients are dense.
        per_sample_weights: a factor for each number, in mode "sum".
        include_last_offset: `offsets` ends with where the last bag ends.
        padding_idx: a row that counts for nothing.

    Shape: (bags, d)

    Raises:
        UserError: `scale_grad_by_freq` is asked for in mode "max", which has none.
    """
    if scale_grad_by_freq and mode == "max":
        raise UserError("embedding_bag: mode max has no scale_grad_by_freq")
    if max_norm is not None:
        shorten_rows(input, weight, max_norm, norm_type)
    table = weight
    if scale_grad_by_freq:
        counts = _counts(input, int(weight.shape[0])).maximum(1).unsqueeze(-1)
        table = weight._with_gradient(lambda _, g: [g / counts.cast(g.dtype)], weight)
    return input.embedding_bag(
        table, offsets, mode, per_sample_weights, include_last_offset, padding_idx
    )


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A 1 at the place that each integer names, and 0 elsewhere, in int64.

    Args:
        tensor: class numbers; they are read.
        num_classes: -1 for the greatest number plus 1.

    Raises:
        UserError: a number is negative, or not below `num_classes`.

    Example:
        >>> one_hot(Tensor([0, 2])).tolist()
        [[1, 0, 0], [0, 0, 1]]
    """
    is_empty = product(tensor.shape) == 0
    if is_empty and num_classes <= 0:
        raise UserError(
            "one_hot: no number says how many classes there are", try_="num_classes=..."
        )
    if not is_empty:
        least, greatest = int(tensor.min().item()), int(tensor.max().item())
        if least < 0 or 0 <= num_classes <= greatest:
            raise UserError(
                "one_hot: a class number is out of range",
                got=f"{least} to {greatest}",
                expected=f"from 0 on, below {num_classes}",
            )
        num_classes = greatest + 1 if num_classes < 0 else num_classes
    return tensor.one_hot(num_classes).cast(dtypes.int64)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel normalised: by the batch when training, else by running statistics.

    Args:
        input: (n, channels, ...).
        running_mean: of each channel; a training call takes its share of the batch in.
        running_var: likewise.
        weight: a factor for each channel.
        bias: a summand for each channel.
        training: whether the statistics are the batch's.
        momentum: share of the batch in the running statistics.
        eps: added to the variance.

    Raises:
        ShapeError: there are no channels, or a training batch has one element in each.
        UserError: there are no running statistics where they are needed.
    """
    if input.ndim < 2:
        raise ShapeError("batch_norm: needs (n, channels, ...)", got=f"{input.shape}")
    if not training:
        if running_mean is None or running_var is None:
            raise UserError("batch_norm: there are no running statistics", try_="training=True")
        return input.batchnorm(weight, bias, running_mean, (running_var + eps).rsqrt())
    count = elements_of_channel(input)
    mean, variance = batch_statistics(input)
    take_in(running_mean, mean, momentum)
    take_in(running_var, variance * (count / max(count - 1, 1)), momentum)
    return input.batchnorm(weight, bias, mean, (variance + eps).rsqrt())


def batch_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the variance (divided by the count) of each channel, axis 1, in float32.

    Raises: ShapeError where a channel has one element, which is its mean: all results would be 0.
    """
    if elements_of_channel(x) == 1:
        raise ShapeError(
            "batch_norm: a training batch needs several elements in each channel",
            got=f"{x.shape}",
            try_="a larger batch, or call it while not training",
        )
    axes = tuple([axis for axis in range(x.ndim) if axis != 1])
    wide = x if x.dtype is dtypes.float64 else x.float()
    mean = wide.mean(axes)
    return mean, (wide - mean.reshape(1, -1, *[1] * (x.ndim - 2))).square().mean(axes)


def elements_of_channel(x: Tensor) -> int:
    """How many elements each channel, axis 1, has in the whole batch."""
    return product([size for axis, size in enumerate(x.shape) if axis != 1])


def take_in(running: Tensor | None, new: Tensor, share: float | Tensor) -> None:
    """Let a running statistic be a share of a new one, and else what it was."""
    if running is None:
        return
    with Tensor.no_grad():
        found = running * (1 - share) + new.detach() * share
        running.assign(found.cast(running.dtype))


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each element of the batch normalised; arguments as of `batch_norm`.

    Shape: (n, channels, ...) -> the same

    Raises:
        ShapeError: there is one element in each channel.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.ndim < 3 or product(input.shape[2:]) == 1:
        raise ShapeError(
            "instance_norm: needs several elements in each channel", got=f"{input.shape}"
        )
    if running_mean is not None or running_var is not None:
        flat = input.detach().flatten(2)._wide()
        take_in(running_mean, flat.mean((0, 2)), momentum)
        take_in(running_var, flat.var(2).mean(0), momentum)
    return input.instance_norm(weight, bias, eps)


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The last axes normalised.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: the sizes of the last axes.
        weight: a factor for each element of them.
        bias: a summand for each element of them.
        eps: added to the variance.

    Shape: (..., *normalized_shape) -> the same

    Raises:
        ShapeError: the last axes have other sizes.
    """
    return input.layer_norm(normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """The last axes divided by the root of their mean square.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: the sizes of the last axes.
        weight: a factor for each element of them.
        eps: added to the mean square; by default the distance from 1 to the next number.

    Raises:
        ShapeError: the last axes have other sizes.
    """
    sizes = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not sizes or input.shape[-len(sizes) :] != sizes:
        raise ShapeError(
            "rms_norm: the last axes have other sizes",
            got=f"{input.shape}",
            expected=f"(..., {', '.join(map(str, sizes))})",
        )
    least = 2.0**-input.dtype.mantissa_bits if eps is None else eps
    found = input.rms_norm(tuple(range(-len(sizes), 0)), least)
    return found if weight is None else found * weight


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Groups of channels normalised.

    Args:
        input: (n, channels, ...).
        num_groups: divides the channels.
        weight: a factor for each channel.
        bias: a summand for each channel.
        eps: added to the variance.

    Shape: (n, channels, ...) -> the same
    """
    return input.group_norm(num_groups, weight, bias, eps)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Each element divided by a power of the mean square of `size` channels around it.

    Shape: (n, channels, ...) -> the same
    """
    return input.local_response_norm(size, alpha, beta, k)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Vectors along `dim` divided by their p-norm.

    Args:
        input: any tensor.
        p: of the norm.
        dim: the axis of the vectors.
        eps: what norms are at least.

    Shape: (...) -> the same

    Example:
        >>> normalize(Tensor([[3.0, 4.0]])).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """
    return input.normalize(p, dim, eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`."""
    return x1.cosine_similarity(x2, dim, eps)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis."""
    return x1.pairwise_distance(x2, p, eps, keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of rows."""
    return input.pdist(p)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Values mixed by how keys fit queries; see `Tensor.scaled_dot_product_attention`.

    `dropout_p` counts whether training or not, as in PyTorch.
    """
    with Tensor.train(Tensor.training or dropout_p > 0):
        return query.scaled_dot_product_attention(
            key, value, attn_mask, dropout_p, is_causal, enable_gqa, scale
        )
