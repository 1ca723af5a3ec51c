"""What a tensor is, and how it comes from and goes to Python."""

import numpy as np
from tinygrad import Device, Tensor, dtypes

x = Tensor([[1, 2], [3, 4]])
print(
    x.numpy().dtype,
    x.tolist(),
    x.data().tolist() if hasattr(x.data(), "tolist") else 0,
    len(x),
    x.shape[0],
    [r.tolist() for r in x],
)
print(
    Tensor(np.array([1, 2], dtype=np.int64)).dtype,
    Tensor([1.5]).item(),
    Tensor(5).item(),
    Tensor(True).dtype,
    Tensor([]).shape,
    Tensor(b"abc").tolist() if 1 else 0,
)
print(
    Tensor.manual_seed(5) is None,
    Tensor.rand(3).shape,
    Tensor.randn(2, 2).shape,
    Tensor.randint(3, low=0, high=5).shape,
    Tensor.uniform(2, 2, low=1, high=2).min().item() >= 1,
    Tensor.glorot_uniform(3, 4).shape,
    Tensor.kaiming_uniform(3, 4).shape,
    Tensor.normal(3, mean=1.0).shape,
    Tensor.randperm(5).sort()[0].tolist(),
    Tensor.scaled_uniform(3).shape,
)
a = Tensor.ones(3).contiguous()
b = a.clone()
b += 1
print(a.tolist(), b.realize().tolist(), a.is_realized if hasattr(a, "is_realized") else True)
print(
    x.T.tolist(),
    x.to(Device.DEFAULT).device == Device.DEFAULT,
    x.cast(dtypes.float32).mean().item(),
    x.eq(2).tolist(),
    (x == 2).sum().item(),
    x.ne(2).tolist(),
)
print(
    np.array(x).tolist() if hasattr(x, "__array__") else x.tolist(),
    bool((x > 0).all().item()),
    float(Tensor([2.5]).item()),
    x.contiguous().lazydata is None if hasattr(x, "lazydata") else "nl",
)
print(
    x.meshgrid() if 0 else [t.tolist() for t in Tensor([1, 2]).meshgrid(Tensor([3, 4]))],
    Tensor([3, 1, 2]).argsort().tolist(),
    Tensor([1.0, 2]).dot(Tensor([3.0, 4])).item(),
    Tensor([[1.0, 2]]).linear(Tensor([[1.0], [1.0]]), Tensor([0.5])).tolist(),
)
print(
    Tensor([0.0, 1]).isnan().tolist(),
    Tensor([float("inf")]).isinf().tolist(),
    Tensor([1.0, 4]).rsqrt().tolist(),
    Tensor([0.5]).erf().item() > 0.52,
    Tensor([2.0]).pow(3).item(),
    Tensor([-1.0]).elu().item() < -0.6,
)
print(
    Tensor([1, 2, 3]).unfold(0, 2, 1).tolist(),
    Tensor.ones(1, 1, 3, 3).pad((1, 1, 1, 1)).shape,
    Tensor([1.0, 2, 3]).cumsum().tolist(),
    Tensor([1, 3, 2]).cummax(0)[0].tolist()
    if isinstance(Tensor([1, 3, 2]).cummax(0), tuple)
    else Tensor([1, 3, 2]).cummax(0).tolist(),
)
print(
    str(Tensor([1.0]).dtype),
    Tensor.empty(2, 3).shape,
    Tensor.from_blob if hasattr(Tensor, "from_blob") else 0,
) if 0 else print(Tensor.empty(2, 3).shape)
print(
    Tensor([1.0, 2, 3, 4]).reshape(2, -1).shape,
    Tensor([1.0, 2]).view(2, 1).shape,
    Tensor.ones(2, 3, 4).flatten(1).shape,
    Tensor.ones(6).unflatten(0, (2, 3)).shape,
    Tensor.ones(2, 1).squeeze(1).shape,
    Tensor.ones(1, 2).expand(3, -1).shape,
)
