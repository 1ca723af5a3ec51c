"""A detector: convolutions with batch norms that are fused, boxes, suppression."""

import numpy as np
from tinygrad import Context, Tensor, dtypes, nn
from tinygrad.nn.state import get_state_dict

rng = np.random.default_rng(3)


class Conv:
    def __init__(self, c1, c2, k=1, s=1):
        self.conv, self.bn = (
            nn.Conv2d(c1, c2, k, s, k // 2, bias=False),
            nn.BatchNorm2d(c2, eps=0.001),
        )

    def __call__(self, x):
        return self.bn(self.conv(x)).silu()


class Bottleneck:
    def __init__(self, c):
        self.cv1, self.cv2 = Conv(c, c, 3), Conv(c, c, 3)

    def __call__(self, x):
        return x + self.cv2(self.cv1(x))


class C2f:
    def __init__(self, c1, c2):
        self.c = c2 // 2
        self.cv1, self.cv2, self.m = Conv(c1, c2), Conv(3 * self.c, c2), [Bottleneck(self.c)]

    def __call__(self, x):
        y = list(self.cv1(x).chunk(2, 1))
        y.extend(m(y[-1]) for m in self.m)
        return self.cv2(y[0].cat(*y[1:], dim=1))


class SPPF:
    def __init__(self, c):
        self.cv1, self.cv2 = Conv(c, c // 2), Conv(c * 2, c)

    def __call__(self, x):
        x = self.cv1(x)
        x2 = x.pad(((0, 0), (0, 0), (2, 2), (2, 2))).max_pool2d(5, 1)
        x3 = x2.pad(((0, 0), (0, 0), (2, 2), (2, 2))).max_pool2d(5, 1)
        x4 = x3.pad(((0, 0), (0, 0), (2, 2), (2, 2))).max_pool2d(5, 1)
        return self.cv2(x.cat(x2, x3, x4, dim=1))


class Net:
    def __init__(self):
        self.backbone = [Conv(3, 8, 3, 2), C2f(8, 8), Conv(8, 16, 3, 2), SPPF(16)]
        self.head = nn.Conv2d(16, 4 * 4 + 3, 1)

    def __call__(self, x):
        return self.head(x.sequential(self.backbone))


net = Net()
for name, t in sorted(get_state_dict(net).items()):
    if t.dtype == dtypes.float:
        values = rng.standard_normal(t.shape).astype(np.float32) * 0.3
        t.assign(Tensor(np.abs(values) + 0.5 if "running_var" in name else values)).realize()
x = Tensor(rng.integers(0, 255, (1, 16, 16, 3)).astype(np.uint8))
x = x[..., ::-1].permute(0, 3, 1, 2).cast(dtypes.float32) / 255.0
out = net(x)
print(out.shape, "%.4f" % out.mean().item())
with Context(TRAINING=1):
    trained = net(x).square().mean()
print("%.4f" % trained.item(), ["%.4f" % v for v in net.backbone[0].bn.running_mean[:3].tolist()])
box, cls = out.split((16, 3), 1)
b, c, h, w = box.shape
dist = (box.reshape(b, 4, 4, h * w).softmax(2) * Tensor.arange(4).reshape(1, 1, 4, 1)).sum(2)
sx, sy = Tensor.arange(w) + 0.5, Tensor.arange(h) + 0.5
anchors = (
    Tensor.stack(sx.reshape(1, -1).expand(h, w), sy.reshape(-1, 1).expand(h, w))
    .reshape(2, -1)
    .unsqueeze(0)
)
lt, rb = dist.chunk(2, dim=1)
x1y1, x2y2 = anchors - lt, anchors + rb
boxes = x1y1.cat(x2y2, dim=1)[0].transpose(0, 1)
scores = cls.reshape(b, 3, -1).sigmoid()[0]
best, label = scores.max(0), scores.argmax(0)
order = best.argsort(descending=True)
boxes, best, label = boxes[order], best[order], label[order]
area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
tl, br = (
    boxes[:, None, :2].maximum(boxes[None, :, :2]),
    boxes[:, None, 2:].minimum(boxes[None, :, 2:]),
)
inter = (br - tl).relu().prod(-1)
iou = inter / (area[:, None] + area[None] - inter)
keep = (iou.triu(diagonal=1) > 0.45).sum(0) == 0
print(keep.tolist())
print(label.tolist(), ["%.4f" % v for v in best.tolist()[:5]])
print(["%.3f" % v for v in (boxes * keep.unsqueeze(1)).flatten().tolist()[:8]])
