"""Operations of every family on small tensors."""

import numpy as np
from tinygrad import Tensor

np.set_printoptions(precision=3, suppress=True)
x = Tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4))


def p(*a):
    print(
        *[
            np.round(np.asarray(t.numpy(), dtype=np.float64), 3).tolist()
            if isinstance(t, Tensor)
            else t
            for t in a
        ]
    )


p(x.sum(0), x.mean((1, 2)), x.max(-1), x.var(2), x.std(0), x.argmax(1), x.prod(0))
p(
    x.reshape(6, 4)[1:3, ::2],
    x.permute(2, 0, 1).shape,
    x.flip(1)[0],
    x.pad((1, 1))[0, 0],
    x.shrink(((0, 1), (1, 3), None)),
    x.expand(2, 3, 4).shape,
)
p(x[0].softmax(-1), x[0].log_softmax(0), x[0].logsumexp(1), x[0].cumsum(1), x[0].cumprod(0))
p(
    Tensor.cat(x[0], x[1], dim=1).shape,
    Tensor.stack(x[0], x[1], dim=2).shape,
    x.chunk(2, 0)[1].shape,
    [t.shape for t in x.split(2, 1)],
)
p(
    x.gather(2, Tensor([[[0], [1], [2]], [[3], [0], [1]]])),
    x[0].scatter(1, Tensor([[0], [1], [2]]), -1.0),
    x[0].one_hot(3).shape if 0 else Tensor([0, 2]).one_hot(3),
)
p(
    x[0].tril(),
    x[0].triu(1),
    Tensor.eye(3, 2),
    Tensor.arange(5, 0, -2),
    Tensor.linspace(0, 1, 5),
    Tensor.full((2,), 7),
)
p(
    x[0].transpose(),
    x.squeeze().shape,
    x.unsqueeze(1).shape,
    x.repeat(1, 2, 1).shape,
    x.roll(1, 2)[0],
    x[0].diagonal(),
)
p(
    x[0].sort(1, descending=True)[0],
    x[0].topk(2)[0],
    x[0].topk(2)[1],
    x.where(x, -x).shape if 0 else (x[0] > 5).where(x[0], 0),
)
p(
    x[0].dot(x[1].T),
    x[0].matmul(x[1].transpose()),
    Tensor.einsum("ij,kj->ik", x[0], x[1]),
    x[0].clip(2, 5),
    x[0].sign(),
    x[0].abs().sqrt(),
)
p(
    x[0].interpolate((2, 2), mode="linear") if 0 else x.unsqueeze(0).interpolate((2, 2)),
    x.unsqueeze(0).avg_pool2d((3, 2)),
    x.unsqueeze(0).max_pool2d((2, 2), stride=1),
)
p(
    x[0].masked_fill(x[0] > 6, 0),
    x[0].lerp(x[1], 0.5),
    x[0].minimum(5),
    x[0].maximum(x[1] - 10),
    x[0].isclose(x[0] + 1e-9),
    x[0].idiv(3) if hasattr(x, "idiv") else x[0] // 3,
)
p(
    x[0].round(),
    (x[0] / 3).floor(),
    (x[0] / 3).ceil(),
    (x[0] / 3).trunc(),
    x[0] % 3,
    -x[0],
    x[0] ** 2,
    2 ** Tensor([1.0, 2]),
    1 / Tensor([2.0, 4]),
    3 - Tensor([1.0]),
)
p(
    Tensor([True, False]).logical_not(),
    ~Tensor([1, 2]),
    Tensor([5]) & 3,
    Tensor([5]) | 2,
    Tensor([5]) ^ 1,
    Tensor([4]) << 1,
    Tensor([4]) >> 1,
    Tensor([1, 2, 3]).any(),
    Tensor([1, 0]).all(),
)
p(
    x[0].masked_select(x[0] > 8),
    x.nelement() if hasattr(x, "nelement") else 24,
    x.numel(),
    x.element_size(),
    x.nbytes(),
    x.size(0),
    x.ndim,
    x.is_floating_point(),
)
p(
    x[0, 1, 2],
    x[-1],
    x[..., 0],
    x[:, None].shape,
    x[[0, 1], [1, 2]],
    x[Tensor([1, 0])][:, 0, 0],
    x[0][:, [0, 2]],
)
p(
    x[0].layernorm(),
    x[0].binary_crossentropy_logits(x[0] * 0 + 1).shape,
    Tensor([0.2, 0.8]).binary_crossentropy(Tensor([0.0, 1])),
    Tensor([[1.0, 2, 3]]).cross_entropy(Tensor([2])),
    Tensor([[1.0, 2, 3]]).sparse_categorical_crossentropy(Tensor([1]), label_smoothing=0.1),
    Tensor([[0.1, 0.9]]).log().nll_loss(Tensor([1])),
)
