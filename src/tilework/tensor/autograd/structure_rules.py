"""Gradients of ops that move, fold, scan, gather and scatter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.base.sequences import inverse_permutation
from tilework.ir.ops import index, memory, multi, program, tensor
from tilework.ir.ops.tensor import Fold, GatherAttrs, ScanAttrs
from tilework.ir.symbolic import dims
from tilework.tensor.autograd.table import Step, gradient_of, no_gradient

if TYPE_CHECKING:
    from tilework.ir.types import Dim
    from tilework.tensor.tensor import Tensor

Gradients = tuple["Tensor | None", ...]

no_gradient("no gradient flows through it by its meaning", tensor.DETACH)
no_gradient("it has no sources", tensor.IOTA, memory.BUFFER, memory.PARAM, index.VARIABLE)
no_gradient("positions are integers", tensor.SORT)
no_gradient("an effect, not a value", memory.STORE, memory.SINK, program.CALL)
no_gradient("an integer", index.BIND)
no_gradient("made of sums over devices when their gradients are known", multi.ALLREDUCE)


# --- movement ------------------------------------------------------------------------------------


@gradient_of(tensor.RESHAPE)
def _reshape(step: Step, g: Tensor) -> Gradients:
    return (g.reshape(step.sources[0].shape),)


@gradient_of(tensor.PERMUTE)
def _permute(step: Step, g: Tensor) -> Gradients:
    return (g.permute(inverse_permutation(step.attrs.axes)),)


@gradient_of(tensor.EXPAND)
def _expand(step: Step, g: Tensor) -> Gradients:
    old, new = step.sources[0]._dims, step.attrs.shape
    grown = tuple(
        [axis for axis, (a, b) in enumerate(zip(old, new, strict=True)) if a == 1 and b != 1]
    )
    return (g._wide()._fold(Fold.ADD, grown, keepdim=True).cast(g.dtype),)


@gradient_of(tensor.PAD)
def _pad(step: Step, g: Tensor) -> Gradients:
    bounds: list[tuple[Dim, Dim, int]] = [
        (low, dims.add(low, size), 1)
        for (low, _), size in zip(step.attrs.pads, step.sources[0]._dims, strict=True)
    ]
    return (g._cut(bounds),)


@gradient_of(tensor.SHRINK)
def _shrink(step: Step, g: Tensor) -> Gradients:
    source = step.sources[0]
    pads: list[tuple[Dim, Dim]] = []
    for axis, (start, stop, stride) in enumerate(step.attrs.bounds):
        size = source._dims[axis]
        if stride > 1:
            count = g._dims[axis]
            g = g._spaced(axis, stride)
            # The last element is followed by stride - 1 zeros, of which some may not fit.
            room = dims.sub(size, start)
            total = dims.mul(count, stride)
            if isinstance(total, int) and isinstance(room, int) and total > room:
                g, total = g._cut_axis(axis, 0, room), room
            pads.append((start, dims.sub(room, total)))
        else:
            pads.append((start, dims.sub(size, stop)))
    return (g._zero_pad(pads),)


@gradient_of(tensor.FLIP)
def _flip(step: Step, g: Tensor) -> Gradients:
    return (g._flipped_view(step.attrs.axes),)


@gradient_of(tensor.WINDOW)
def _window(step: Step, g: Tensor) -> Gradients:
    """Each element gets what all windows that it is in send back."""
    at = step.attrs
    size = step.sources[0]._dims[at.axis]
    attrs = tensor.WindowAttrs(at.axis, size, at.size, at.stride, at.dilation)
    spread = g._wide()._apply(tensor.UNWINDOW, attrs=attrs)
    return (spread._fold(Fold.ADD, (at.axis + 1,), keepdim=False).cast(g.dtype),)


@gradient_of(tensor.UNWINDOW)
def _unwindow(step: Step, g: Tensor) -> Gradients:
    """Tap k at position o went to element o * stride + k * dilation, if that exists."""
    at = step.attrs
    source = step.sources[0]
    count = source._fixed_size(at.axis, "unwindow")
    length = g._fixed_size(at.axis, "unwindow")
    reach = (count - 1) * at.stride + (at.size - 1) * at.dilation + 1 if count else 0
    if count == 0:
        return (source.zeros_like(),)
    if reach > length:
        pads: list[tuple[Dim, Dim]] = [(0, 0)] * g.ndim
        pads[at.axis] = (0, reach - length)
        g = g._zero_pad(pads)
    attrs = tensor.WindowAttrs(at.axis, count, at.size, at.stride, at.dilation)
    # Axes are now (positions, taps of the window, taps): the diagonal of the last two is wanted.
    windows = g._seen(tensor.WINDOW, attrs)
    is_same = windows._positions(at.axis + 1) == windows._positions(at.axis + 2)
    return (is_same.where(windows, 0)._fold(Fold.ADD, (at.axis + 1,), keepdim=False),)


@gradient_of(tensor.CONTIGUOUS)
def _contiguous(step: Step, g: Tensor) -> Gradients:
    return (g,)


@gradient_of(tensor.COPY)
def _copy(step: Step, g: Tensor) -> Gradients:
    return (g.to(step.sources[0].device),)


@gradient_of(multi.RESHARD)
def _reshard(step: Step, g: Tensor) -> Gradients:
    """The gradient lies where the source does."""
    source = step.sources[0]
    layout = source._layout()
    return (g.to(source.device) if layout is None else g._resharded(layout),)


@gradient_of(multi.UNSHARD)
def _unshard(step: Step, g: Tensor) -> Gradients:
    """Each device takes the gradient of its part."""
    found = []
    for source, box in zip(step.sources, step.attrs.boxes, strict=True):
        bounds = [
            (0, size, 1) if cut is None else (*cut, 1)
            for size, cut in zip(g._dims, box, strict=True)
        ]
        found.append(g._cut(bounds).to(source.device))
    return tuple(found)


# --- folds and scans -----------------------------------------------------------------------------


def _grown(step: Step, g: Tensor) -> Tensor:
    """The gradient of a reduction, in the shape of its source."""
    source = step.sources[0]
    return g._kept(step.attrs.axes).expand(source.shape)


@gradient_of(tensor.REDUCE)
def _reduce(step: Step, g: Tensor) -> Gradients:
    fold = step.attrs.fold
    if fold is Fold.ADD:
        return (_grown(step, g),)
    if fold is Fold.MUL:
        return (_grown(step, g) * _product_of_others(step),)
    x = step.sources[0]
    best = _grown(step, step.value)
    is_best = (x == best) | (x.isnan() & best.isnan())
    count = is_best.cast(g.dtype)._fold(Fold.ADD, step.attrs.axes, keepdim=False)
    return (is_best.where(_grown(step, g / count), 0),)


def _product_of_others(step: Step) -> Tensor:
    """For each element the product of all others that it is folded with (no division by 0)."""
    x, axes = step.sources[0], step.attrs.axes
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    order = [*rest, *axes]
    moved = x.permute(order)
    flat = moved.reshape(*moved.shape[: len(rest)], -1) if x.numel() != 0 else moved
    last = flat.ndim - 1
    before = flat._apply(tensor.SCAN, attrs=ScanAttrs(Fold.MUL, last, exclusive=True))
    after = flat._apply(tensor.SCAN, attrs=ScanAttrs(Fold.MUL, last, exclusive=True, reverse=True))
    found = (before * after).reshape(moved.shape)
    return found.permute(inverse_permutation(order))


@gradient_of(tensor.SCAN)
def _scan(step: Step, g: Tensor) -> Gradients:
    at = step.attrs
    if at.fold is Fold.ADD:
        attrs = ScanAttrs(Fold.ADD, at.axis, at.exclusive, not at.reverse)
        return (g._apply(tensor.SCAN, attrs=attrs),)
    if at.fold is Fold.MUL:
        return (_scanned_product(step, g),)
    x = step.sources[0]
    is_best = (x == step.value) | (x.isnan() & step.value.isnan())
    place = x._positions(at.axis)
    nowhere = -1 if not at.reverse else x._fixed_size(at.axis, "cummax")
    last = Fold.MAX if not at.reverse else Fold.MIN
    found = is_best.where(place, nowhere)._apply(
        tensor.SCAN, attrs=ScanAttrs(last, at.axis, False, at.reverse)
    )
    return (x.zeros_like().scatter_add(at.axis, found, g),)


def _scanned_product(step: Step, g: Tensor) -> Tensor:
    """dx[i] = sum over k >= i of g[k] * product of x[j] for j <= k, j != i; n * n elements."""
    at = step.attrs
    x = step.sources[0].movedim(at.axis, -1)
    g = g.movedim(at.axis, -1)
    if at.reverse:
        x, g = x.flip(-1), g.flip(-1)
    size = x._fixed_size(x.ndim - 1, "cumprod")
    pairs = x.unsqueeze(-2).expand(*x.shape[:-1], size, size)
    row, column = pairs._positions(pairs.ndim - 2), pairs._positions(pairs.ndim - 1)
    others = (row == column).where(1, pairs)
    attrs = ScanAttrs(Fold.MUL, pairs.ndim - 1, at.exclusive)
    products = others._apply(tensor.SCAN, attrs=attrs)
    takes_part = column > row if at.exclusive else column >= row
    found = takes_part.where(products * g.unsqueeze(-2), 0)
    found = found._fold(Fold.ADD, (pairs.ndim - 1,), keepdim=False)
    found = found.flip(-1) if at.reverse else found
    return found.movedim(-1, at.axis)


# --- gather and scatter --------------------------------------------------------------------------


@gradient_of(tensor.GATHER)
def _gather(step: Step, g: Tensor) -> Gradients:
    x, *indices = step.sources
    found = x.zeros_like()._wide()._scattered(step.attrs.axis, g._wide(), indices, Fold.ADD)
    return (found.cast(x.dtype), *[None] * len(indices))


@gradient_of(tensor.SCATTER)
def _scatter(step: Step, g: Tensor) -> Gradients:
    at: GatherAttrs = step.attrs
    x, updates, *indices = step.sources
    rest = [None] * len(indices)
    if at.fold is Fold.ADD:
        return (g, g._gathered(at.axis, indices), *rest)
    if at.fold is None:
        kept = g._scattered(at.axis, updates.zeros_like(), indices, None)
        return (kept, _winners(step).where(g._gathered(at.axis, indices), 0), *rest)
    if at.fold is Fold.MUL:
        return (*_scattered_product(step, g), *rest)
    best = step.value
    at_place = best._gathered(at.axis, indices)
    own, new = x == best, updates == at_place
    count = own.cast(g.dtype)._scattered(at.axis, new.cast(g.dtype), indices, Fold.ADD)
    share = g / count
    return (
        own.where(share, 0),
        new.where(share._gathered(at.axis, indices), 0),
        *rest,
    )


def _winners(step: Step) -> Tensor:
    """Which updates were the last at their place."""
    x, updates, *indices = step.sources
    number = updates._positions(0)
    for axis in range(1, updates.ndim):
        size = updates._size_as(updates._dims[axis], dtypes.index)
        number = number * size + updates._positions(axis)
    empty = x._constant(-1, dtypes.index)
    last = empty._scattered(step.attrs.axis, number, indices, None)
    return last._gathered(step.attrs.axis, indices) == number


def _scattered_product(step: Step, g: Tensor) -> tuple[Tensor, Tensor]:
    """Products without the own factor, also where factors are 0."""
    x, updates, *indices = step.sources
    axis = step.attrs.axis
    is_zero = updates == 0
    ones = x.ones_like()
    safe = is_zero.where(1, updates)
    product = ones._scattered(axis, safe, indices, Fold.MUL)
    zeros = x.zeros_like()._scattered(axis, is_zero.cast(x.dtype), indices, Fold.ADD)
    of_x = g * (zeros == 0).where(product, 0)
    whole = (g * x * product)._gathered(axis, indices) / safe
    left = zeros._gathered(axis, indices) - is_zero.cast(x.dtype)
    return of_x, (left == 0).where(whole, 0)


@gradient_of(memory.AFTER)
def _written(step: Step, g: Tensor) -> Gradients:
    """Sources are (old, value); `attrs` is the chain of the place that was written."""
    kept = g.clone()
    place = type(kept)._over(kept._storage.version)
    place._storage = kept._storage
    view = place
    for op, attrs in step.attrs:
        view = view._seen(op, attrs)
    part = g
    for op, attrs in step.attrs:
        part = part._seen(op, attrs)
    view._write(view.zeros_like())
    return kept, part
