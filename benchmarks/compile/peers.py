"""Time to the first result of fixed models beside `torch.compile` and JAX, cold and warm.

    python benchmarks/compile/peers.py [--only TEXT] [--rounds 2] [--peers tilework,torch,jax]

The models are those of `models.py`, written for each peer as its users write them, with random
weights.  Each measurement is a process of its own with cache folders of its own (those of
TorchInductor and JAX, too), in turns; the clock runs from weights in memory to the first result of
a compiled call, so that imports do not count.  Warm means that the process before has filled those
folders; JAX keeps what it compiles there only if it is asked to, which it is.  Figures are the
least of the rounds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import models
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = ("mlp", "resnet18", "train", "encoder")
PEERS = ("tilework", "torch", "jax")
LAYERS = 12


def random(*shape: int) -> Any:
    values = np.random.default_rng(0).standard_normal(shape, dtype=np.float32) * 0.05 + 0.01
    return np.abs(values)


# --- torch.compile -----------------------------------------------------------------------------


def torch_block(nn: Any, inputs: int, out: int, stride: int) -> Any:
    class Block(nn.Module):  # type: ignore[misc]  # the package is imported where it is needed
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(
                nn.Conv2d(inputs, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()
            )
            self.second = nn.Sequential(
                nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
            )
            self.beside = nn.Identity()
            if stride != 1:
                self.beside = nn.Sequential(
                    nn.Conv2d(inputs, out, 1, stride, bias=False), nn.BatchNorm2d(out)
                )

        def forward(self, x: Any) -> Any:
            return (self.second(self.first(x)) + self.beside(x)).relu()

    return Block()


def torch_resnet18(nn: Any) -> Any:
    rows = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    rows.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage in range(4):
        for block in range(2):
            out = 64 << stage
            rows.append(torch_block(nn, inputs, out, 2 if stage and not block else 1))
            inputs = out
    return nn.Sequential(*rows, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def torch_layer(nn: Any) -> Any:
    attend = nn.functional.scaled_dot_product_attention
    width, heads = models.WIDTH, models.HEADS

    class Layer(nn.Module):  # type: ignore[misc]  # the package is imported where it is needed
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(x).chunk(3, -1)
            q, k, v = [p.reshape(1, -1, heads, width // heads).permute(0, 2, 1, 3) for p in parts]
            y = attend(q, k, v).permute(0, 2, 1, 3).reshape(-1, width)
            x = self.first(x + self.out(y))
            y = nn.functional.gelu(self.up(x), approximate="tanh")
            return self.second(x + self.down(y))

    return Layer()


def torch_convnet(nn: Any) -> Any:
    rows: list[Any] = []
    inputs = 1
    for at, channels in enumerate((32, 32, 64, 64)):
        rows += [nn.Conv2d(inputs, channels, 3, bias=False), nn.ReLU()]
        inputs = channels
        if at % 2:
            rows.append(nn.MaxPool2d(2))
    return nn.Sequential(*rows, nn.Flatten(), nn.Linear(1024, 10), nn.LogSoftmax(-1))


def torch_call(model: str) -> Callable[[], Any]:
    """The compiled model as a call: a module without gradients, or a step of training."""
    torch = importlib.import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)
    if model == "train":
        module, x = torch_convnet(nn), torch.from_numpy(random(64, 1, 28, 28))
        optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
        loss_of = torch.compile(lambda given: module(given).square().mean())

        def step() -> Any:
            optimiser.zero_grad()
            loss = loss_of(x)
            loss.backward()
            optimiser.step()
            return loss.item()

        return step
    if model == "mlp":
        sizes = (nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        module, x = nn.Sequential(*sizes), torch.from_numpy(random(64, 784))
    elif model == "resnet18":
        module, x = torch_resnet18(nn), torch.from_numpy(random(1, 3, 224, 224))
    else:
        module = nn.Sequential(*[torch_layer(nn) for _ in range(LAYERS)])
        x = torch.from_numpy(random(128, models.WIDTH))
    run = torch.compile(module.eval())

    def call() -> Any:
        with torch.no_grad():
            return run(x).numpy()

    return call


# --- JAX ---------------------------------------------------------------------------------------


class JaxWeights:
    """Arrays by name, which `jit` gets as an argument."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    def __call__(self, name: str, *shape: int) -> Any:
        if name not in self.made:
            self.made[name] = random(*shape)
        return self.made[name]


def jax_linear(w: Any, name: str, x: Any, out: int) -> Any:
    return x @ w(name, x.shape[-1], out) + w(f"{name}.b", out)


def jax_conv(
    jax: Any, w: Any, name: str, x: Any, out: int, window: int, stride: int, pad: int
) -> Any:
    weight = w(name, out, x.shape[1], window, window)
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), ((pad, pad), (pad, pad)))


def jax_normed(jax: Any, w: Any, name: str, x: Any, out: int, window: int, stride: int = 1) -> Any:
    y = jax_conv(jax, w, name, x, out, window, stride, window // 2)
    parts = [w(f"{name}.{part}", out)[:, None, None] for part in ("s", "o", "m", "v")]
    scale, shift, mean, variance = parts
    return (y - mean) * (scale / jax.numpy.sqrt(variance + 1e-5)) + shift


def jax_pooled(jax: Any, x: Any, window: int, stride: int, pad: int) -> Any:
    windows, strides = (1, 1, window, window), (1, 1, stride, stride)
    pads = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    return jax.lax.reduce_window(x, -jax.numpy.inf, jax.lax.max, windows, strides, pads)


def jax_resnet18(jax: Any, w: Any, x: Any) -> Any:
    relu = jax.nn.relu
    x = jax_pooled(jax, relu(jax_normed(jax, w, "stem", x, 64, 7, 2)), 3, 2, 1)
    for stage in range(4):
        for block in range(2):
            name, out = f"{stage}.{block}", 64 << stage
            stride = 2 if stage and not block else 1
            y = relu(jax_normed(jax, w, f"{name}.1", x, out, 3, stride))
            y = jax_normed(jax, w, f"{name}.2", y, out, 3)
            x = relu(y + (x if stride == 1 else jax_normed(jax, w, f"{name}.d", x, out, 1, 2)))
    return jax_linear(w, "fc", x.mean((2, 3)), 1000)


def jax_encoder(jax: Any, w: Any, x: Any) -> Any:
    width, heads = models.WIDTH, models.HEADS

    def normed(name: str, x: Any) -> Any:
        y = (x - x.mean(-1, keepdims=True)) / jax.numpy.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return y * w(f"{name}.s", width) + w(f"{name}.o", width)

    for at in range(LAYERS):
        parts = jax.numpy.split(jax_linear(w, f"{at}.qkv", x, 3 * width), 3, -1)
        q, k, v = [part.reshape(1, -1, heads, width // heads) for part in parts]
        y = jax.nn.dot_product_attention(q, k, v).reshape(-1, width)
        x = normed(f"{at}.1", x + jax_linear(w, f"{at}.out", y, width))
        y = jax.nn.gelu(jax_linear(w, f"{at}.up", x, 4 * width))
        x = normed(f"{at}.2", x + jax_linear(w, f"{at}.down", y, width))
    return x


def jax_mlp(jax: Any, w: Any, x: Any) -> Any:
    for at in range(2):
        x = jax.nn.relu(jax_linear(w, f"{at}", x, 512))
    return jax_linear(w, "last", x, 10)


def jax_loss(jax: Any, w: Any, x: Any) -> Any:
    for at, channels in enumerate((32, 32, 64, 64)):
        x = jax.nn.relu(jax_conv(jax, w, f"c{at}", x, channels, 3, 1, 0))
        if at % 2:
            x = jax_pooled(jax, x, 2, 2, 0)
    x = jax_linear(w, "fc", x.reshape(x.shape[0], -1), 10)
    return (jax.nn.log_softmax(x) ** 2).mean()


def jax_call(model: str) -> Callable[[], Any]:
    """The compiled model as a call, its weights an argument; training updates by Adam."""
    jax = importlib.import_module("jax")
    w = JaxWeights()
    functions = {
        "mlp": jax_mlp,
        "resnet18": jax_resnet18,
        "encoder": jax_encoder,
        "train": jax_loss,
    }
    shapes = {
        "mlp": (64, 784), "resnet18": (1, 3, 224, 224), "encoder": (128, models.WIDTH),
        "train": (64, 1, 28, 28),
    }  # fmt: skip
    function, x = functions[model], jax.numpy.asarray(random(*shapes[model]))
    jax.eval_shape(lambda given: function(jax, w, given), x)  # makes the weights
    weights = {name: jax.numpy.asarray(value) for name, value in w.made.items()}

    def with_weights(made: Any, given: Any) -> Any:
        return function(jax, lambda name, *shape: made[name], given)

    if model != "train":
        run = jax.jit(with_weights)
        return lambda: np.asarray(run(weights, x))
    zeros = {name: jax.numpy.zeros_like(value) for name, value in weights.items()}
    state = (weights, zeros, zeros, jax.numpy.float32(0))
    step = jax.jit(lambda state: jax_adam(jax, with_weights, state, x))
    return lambda: float(step(state)[0])


def jax_adam(jax: Any, loss_of: Callable[[Any, Any], Any], state: Any, x: Any) -> Any:
    weights, first, second, count = state
    loss, gradients = jax.value_and_grad(loss_of)(weights, x)
    count = count + 1
    new: tuple[dict[str, Any], ...] = ({}, {}, {})
    for name, gradient in gradients.items():
        m = 0.9 * first[name] + 0.1 * gradient
        v = 0.999 * second[name] + 0.001 * gradient * gradient
        move = m / (1 - 0.9**count) / (jax.numpy.sqrt(v / (1 - 0.999**count)) + 1e-8)
        for made, value in zip(new, (weights[name] - 1e-3 * move, m, v), strict=True):
            made[name] = value
    return loss, new, count


# --- measuring ---------------------------------------------------------------------------------


def child(peer: str, model: str) -> None:
    """One measurement, printed as JSON."""
    if peer == "tilework":
        call = models.prepared(importlib.import_module("tilework"), model, LAYERS)
    else:
        call = {"torch": torch_call, "jax": jax_call}[peer](model)
    start = time.perf_counter()
    call()
    print(json.dumps({"first": time.perf_counter() - start}))


def measure(peer: str, model: str, folder: str) -> float:
    environment = models.surroundings(folder)
    environment |= {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
    environment |= {"JAX_COMPILATION_CACHE_DIR": f"{folder}/jax", "JAX_PLATFORMS": "cpu"}
    environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    words = [sys.executable, __file__, "--child", peer, model]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{peer}, {model}: {done.stderr.strip().splitlines()[-1:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["first"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only models whose name contains this")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--child", nargs=2, metavar=("PEER", "MODEL"))
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return 0
    peers = options.peers.split(",")
    rows: dict[str, dict[str, float]] = {}
    for model in MODELS:
        if options.only not in model:
            continue
        row = rows.setdefault(model, {})
        for _ in range(options.rounds):
            for peer in peers:
                with tempfile.TemporaryDirectory() as folder:
                    for state in ("cold", "warm"):
                        key, seconds = f"{peer} {state}", measure(peer, model, folder)
                        row[key] = min(row.get(key, seconds), seconds)
        if not options.json:
            print(f"{model:10}" + "".join(f"  {key} {row[key]:.2f}" for key in row), flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
