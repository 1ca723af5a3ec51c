"""Short ways to write TENSOR graphs of well-known functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tilework.dtypes import float32, int64
from tilework.ir.build import const
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.tensor import Fold
from tilework.schedule.pipeline import build_schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Dim, Shape
    from tilework.schedule.schedule import Limits, Schedule


def sizes_of(x: Node) -> tuple[int, ...]:
    """The shape of a node whose extents are numbers."""
    assert all(isinstance(size, int) for size in x.type.shape)
    return cast("tuple[int, ...]", x.type.shape)


def param(slot: int, shape: Shape, dtype: DType = float32, device: str = "CPU") -> Node:
    return memory.PARAM(attrs=memory.ParamAttrs(slot, shape, dtype, device))


def like(value: float, x: Node) -> Node:
    return const(value, x.type.dtype, x.type.shape)


def reshape(x: Node, *shape: Dim) -> Node:
    return tensor.RESHAPE(x, attrs=tensor.ShapeAttrs(shape))


def expand(x: Node, shape: Shape) -> Node:
    return x if x.type.shape == shape else tensor.EXPAND(x, attrs=tensor.ShapeAttrs(shape))


def permute(x: Node, *axes: int) -> Node:
    return tensor.PERMUTE(x, attrs=tensor.AxesAttrs(axes))


def flip(x: Node, *axes: int) -> Node:
    return tensor.FLIP(x, attrs=tensor.AxesAttrs(axes))


def shrink(x: Node, *bounds: tuple[int, int]) -> Node:
    return tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(tuple((a, b, 1) for a, b in bounds)))


def pad(x: Node, *pads: tuple[int, int]) -> Node:
    return tensor.PAD(x, attrs=tensor.PadAttrs(pads))


def reduce(x: Node, *axes: int, fold: Fold = Fold.ADD, keep: bool = False) -> Node:
    made = tensor.REDUCE(x, attrs=tensor.ReduceAttrs(fold, axes))
    if not keep:
        return made
    return reshape(made, *[1 if a in axes else s for a, s in enumerate(x.type.shape)])


def assign(target: Node, value: Node, view: Node | None = None) -> Node:
    return memory.AFTER(target, memory.STORE(target if view is None else view, value))


def gather(x: Node, *indices: Node, axis: int = 0) -> Node:
    return tensor.GATHER(x, *indices, attrs=tensor.GatherAttrs(axis))


def iota(shape: Shape, axis: int, dtype: DType = int64) -> Node:
    return tensor.IOTA(attrs=tensor.IotaAttrs(shape, axis, dtype))


def relu(x: Node) -> Node:
    return math.MAXIMUM(x, like(0.0, x))


def softmax(x: Node) -> Node:
    last, shape = len(x.type.shape) - 1, x.type.shape
    most = expand(reduce(x, last, fold=Fold.MAX, keep=True), shape)
    raised = math.EXP(math.SUB(x, most))
    return math.FDIV(raised, expand(reduce(raised, last, keep=True), shape))


def layer_norm(x: Node, weight: Node, bias: Node, *, center: bool = True) -> Node:
    last, shape = len(x.type.shape) - 1, sizes_of(x)
    count = shape[-1]
    if center:
        total = reduce(x, last, keep=True)
        x = math.SUB(x, expand(math.MUL(total, like(1 / count, total)), shape))
    squares = reduce(math.MUL(x, x), last, keep=True)
    variance = math.ADD(math.MUL(squares, like(1 / count, squares)), like(1e-5, squares))
    normal = math.MUL(x, expand(math.RECIPROCAL(math.SQRT(variance)), shape))
    row = (1,) * last + (count,)
    scaled = math.MUL(normal, expand(reshape(weight, *row), shape))
    return math.ADD(scaled, expand(reshape(bias, *row), shape))


def cross_entropy(x: Node, labels: Node) -> Node:
    shape = sizes_of(x)
    shifted = math.SUB(x, expand(reduce(x, 1, fold=Fold.MAX, keep=True), shape))
    total = math.LOG(reduce(math.EXP(shifted), 1, keep=True))
    log_probabilities = math.SUB(shifted, expand(total, shape))
    picked = gather(log_probabilities, iota(shape[:1], 0), labels)
    loss = reduce(picked, 0)
    return math.MUL(loss, like(-1 / shape[0], loss))


def matmul(x: Node, w: Node) -> Node:
    (m, k), n = x.type.shape, w.type.shape[1]
    left = expand(reshape(x, m, 1, k), (m, n, k))
    right = expand(reshape(permute(w, 1, 0), 1, n, k), (m, n, k))
    return reduce(math.MUL(left, right), 2)


def linear(x: Node, w: Node, b: Node) -> Node:
    product = matmul(x, w)
    return math.ADD(product, expand(reshape(b, 1, b.type.shape[0]), product.type.shape))


def conv2d(x: Node, w: Node, padding: int = 1, stride: int = 1) -> Node:
    n, c, h, width = sizes_of(x)
    out, _, kh, kw = sizes_of(w)
    x = pad(x, (0, 0), (0, 0), (padding, padding), (padding, padding))
    oh, ow = (h + 2 * padding - kh) // stride + 1, (width + 2 * padding - kw) // stride + 1
    x = tensor.WINDOW(x, attrs=tensor.WindowAttrs(2, oh, kh, stride, 1))
    x = tensor.WINDOW(x, attrs=tensor.WindowAttrs(4, ow, kw, stride, 1))
    x = permute(x, 0, 2, 4, 1, 3, 5)
    whole = (n, out, oh, ow, c, kh, kw)
    left = expand(reshape(x, n, 1, oh, ow, c, kh, kw), whole)
    right = expand(reshape(w, 1, out, 1, 1, c, kh, kw), whole)
    return reduce(math.MUL(left, right), 4, 5, 6)


def batch_norm(x: Node, weight: Node, bias: Node, mean: Node, variance: Node) -> Node:
    def spread(y: Node) -> Node:
        return expand(reshape(y, 1, y.type.shape[0], 1, 1), x.type.shape)

    root = math.RECIPROCAL(math.SQRT(math.ADD(variance, like(1e-5, variance))))
    scaled = math.MUL(math.SUB(x, spread(mean)), spread(math.MUL(weight, root)))
    return math.ADD(scaled, spread(bias))


def attention(q: Node, k: Node, v: Node) -> Node:
    b, h, t, d = sizes_of(q)
    left = expand(reshape(q, b, h, t, 1, d), (b, h, t, t, d))
    right = expand(reshape(k, b, h, 1, t, d), (b, h, t, t, d))
    scores = reduce(math.MUL(left, right), 4)
    scores = math.MUL(scores, like(d**-0.5, scores))
    shape = scores.type.shape
    hidden = math.LT(iota(shape, 2), iota(shape, 3))
    weights = softmax(math.WHERE(hidden, like(float("-inf"), scores), scores))
    left = expand(reshape(weights, b, h, t, 1, t), (b, h, t, d, t))
    right = expand(reshape(permute(v, 0, 1, 3, 2), b, h, 1, d, t), (b, h, t, d, t))
    return reduce(math.MUL(left, right), 4)


def adam_step(first: int, shape: Shape) -> list[Node]:
    p, g, m, v = (param(first + number, shape) for number in range(4))
    m = assign(m, math.ADD(math.MUL(m, like(0.9, m)), math.MUL(g, like(0.1, g))))
    squares = math.MUL(math.MUL(g, g), like(0.01, g))
    v = assign(v, math.ADD(math.MUL(v, like(0.99, v)), squares))
    step = math.FDIV(math.MUL(m, like(1e-3, m)), math.ADD(math.SQRT(v), like(1e-8, v)))
    return [assign(p, math.SUB(p, step)), m, v]


def resnet(blocks: int, width: int = 16, size: int = 28) -> Node:
    slots = iter(range(1 << 20))

    def layer(x: Node, out: int, residual: Node | None = None) -> Node:
        w = param(next(slots), (out, x.type.shape[1], 3, 3))
        y = batch_norm(conv2d(x, w), *[param(next(slots), (out,)) for _ in range(4)])
        return relu(y if residual is None else math.ADD(y, residual))

    x = layer(param(next(slots), (1, 3, size, size)), width)
    for _ in range(blocks):
        x = layer(layer(x, width), width, x)
    return x


def schedule(*outputs: Node, limits: Limits | None = None) -> Schedule:
    function = memory.SINK(*outputs)
    return build_schedule(function) if limits is None else build_schedule(function, limits)


def kernels(*outputs: Node) -> int:
    return len(schedule(*outputs).linear.src)


def reasons(made: Schedule) -> Sequence[str]:
    return [reason for report in made.reports for reason in report.reasons]
