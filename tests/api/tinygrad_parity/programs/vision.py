"""Blocks of image classifiers: squeeze and excitation, depthwise convolution, patches as words."""

import numpy as np
from tinygrad import Tensor, dtypes
from tinygrad.helpers import Context
from tinygrad.nn import BatchNorm2d, LayerNorm, Linear
from tinygrad.nn.state import get_state_dict

rng = np.random.default_rng(3)


class MBConvBlock:
    def __init__(self, kernel_size, strides, expand_ratio, input_filters, output_filters, se_ratio):
        oup = expand_ratio * input_filters
        self._expand_conv = None
        if expand_ratio != 1:
            self._expand_conv = Tensor.glorot_uniform(oup, input_filters, 1, 1)
            self._bn0 = BatchNorm2d(oup)
        self.strides = strides
        self.pad = (
            [(kernel_size - 1) // 2] * 4
            if strides == (1, 1)
            else [(kernel_size - 1) // 2 - 1, (kernel_size - 1) // 2] * 2
        )
        self._depthwise_conv = Tensor.glorot_uniform(oup, 1, kernel_size, kernel_size)
        self._bn1 = BatchNorm2d(oup)
        reduced = max(1, int(input_filters * se_ratio))
        self._se_reduce = Tensor.glorot_uniform(reduced, oup, 1, 1)
        self._se_reduce_bias = Tensor.zeros(reduced)
        self._se_expand = Tensor.glorot_uniform(oup, reduced, 1, 1)
        self._se_expand_bias = Tensor.zeros(oup)
        self._project_conv = Tensor.glorot_uniform(output_filters, oup, 1, 1)
        self._bn2 = BatchNorm2d(output_filters)

    def __call__(self, inputs):
        x = inputs
        if self._expand_conv is not None:
            x = self._bn0(x.conv2d(self._expand_conv)).swish()
        x = x.conv2d(
            self._depthwise_conv,
            padding=self.pad,
            stride=self.strides,
            groups=self._depthwise_conv.shape[0],
        )
        x = self._bn1(x).swish()
        old = x
        x = x.avg_pool2d(kernel_size=x.shape[2:4])
        x = x.conv2d(self._se_reduce, self._se_reduce_bias).swish()
        x = x.conv2d(self._se_expand, self._se_expand_bias)
        x = old.mul(x.sigmoid())
        x = self._bn2(x.conv2d(self._project_conv))
        return x.add(inputs) if x.shape == inputs.shape else x


class ViT:
    def __init__(self):
        self.embedding = (Tensor.uniform(12, 3, 4, 4), Tensor.zeros(12))
        self.cls, self.pos = Tensor.ones(1, 1, 12), Tensor.ones(1, 5, 12)
        self.norm, self.qkv, self.proj = LayerNorm(12), Linear(12, 36), Linear(12, 12)
        self.head = Linear(12, 7)

    def __call__(self, x):
        patches = (
            x.conv2d(*self.embedding, stride=4).permute((0, 2, 3, 1)).reshape(x.shape[0], -1, 12)
        )
        x = self.cls.expand((x.shape[0], 1, 12)).cat(patches, dim=1).add(self.pos)
        q, k, v = (
            self.qkv(self.norm(x)).reshape(x.shape[0], -1, 3, 3, 4).permute(2, 0, 3, 1, 4).chunk(3)
        )
        found = q.squeeze(0).scaled_dot_product_attention(k.squeeze(0), v.squeeze(0))
        x = x + self.proj(found.transpose(1, 2).reshape(x.shape))
        return self.head(x[:, 0])


def fill(model):
    for name, weight in sorted(get_state_dict(model).items()):
        if "running" not in name and "num_batches" not in name and dtypes.is_float(weight.dtype):
            weight.assign(Tensor(rng.normal(0, 0.3, weight.shape).astype(np.float32))).realize()
    return model


image = Tensor(rng.normal(0, 1, (2, 3, 8, 8)).astype(np.float32))
first = fill(MBConvBlock(3, (1, 1), 1, 3, 3, 0.5))
second = fill(MBConvBlock(5, (2, 2), 4, 3, 6, 0.25))
x = second(first(image))
print(x.shape, np.round(x.numpy()[0, 1].ravel()[:5], 3).tolist())
with Context(TRAINING=1):
    y = second(first(image))
    print(np.round(y.numpy()[1, 2].ravel()[:5], 3).tolist())
print(np.round(second._bn1.running_mean.numpy()[:4], 3).tolist())
out = fill(ViT())(image)
print(out.shape, np.round(out.numpy()[1], 3).tolist(), out.argmax(axis=1).tolist())
