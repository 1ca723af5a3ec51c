"""Time to the first result of fixed models beside tinygrad, cold and with warm caches; and growth.

    python benchmarks/compile/models.py [--only TEXT] [--rounds 2] [--json]

Each measurement is a process of its own with a cache folder of its own, in turns; the same text
builds the model from either package.  `first` is from weights in memory to the first result of a
captured call.  Growth is the time for ten times the layers by that for one: layers that are equal
are compiled once, different ones each.  Figures are the least of the rounds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = ("hello", "mlp", "resnet18", "train", "encoder", "decoder")
#: What grows: name, layers of the small one and of the large one.
GROWTH = (("equal", 2, 20), ("different", 2, 20))
PACKAGES = ("tilework", "tinygrad")
#: (what, the limit of its ratio to tinygrad, or of seconds or growth)
BUDGETS = {"cold": 3.0, "warm": 5.0, "equal": 4.0, "different": 12.0}
#: A whole program; its time is that of the process.
HELLO = "from {package} import Tensor; print((Tensor([1.0, 2]) + Tensor([3.0, 4])).tolist())"
WIDTH, HEADS = 768, 12
BYTECODE = f"{tempfile.gettempdir()}/compile-benchmark-bytecode"


class Weights:
    """Arrays by name, in memory before the clock starts."""

    def __init__(self, package: Any) -> None:
        self.package = package
        self.made: dict[str, Any] = {}
        self.generator = np.random.default_rng(0)

    def __call__(self, name: str, *shape: int) -> Any:
        if name not in self.made:
            values = self.generator.standard_normal(shape, dtype=np.float32) * 0.05 + 0.01
            self.made[name] = self.package.Tensor(np.abs(values)).contiguous().realize()
        return self.made[name]


def convolved(w: Weights, name: str, x: Any, out: int, window: int, stride: int = 1) -> Any:
    weight = w(name, out, x.shape[1], window, window)
    y = x.conv2d(weight, None, 1, stride, 1, window // 2)
    scale, shift, mean = (w(f"{name}.{part}", out) for part in ("scale", "shift", "mean"))
    return y.batchnorm(scale, shift, mean, (w(f"{name}.variance", out) + 1e-5).rsqrt())


def resnet18(w: Weights, x: Any) -> Any:
    x = convolved(w, "stem", x, 64, 7, 2).relu().max_pool2d((3, 3), 2, padding=1)
    for stage in range(4):
        for block in range(2):
            name, out = f"{stage}.{block}", 64 << stage
            stride = 2 if stage and not block else 1
            y = convolved(w, f"{name}.1", x, out, 3, stride).relu()
            y = convolved(w, f"{name}.2", y, out, 3)
            x = (y + (x if stride == 1 else convolved(w, f"{name}.d", x, out, 1, 2))).relu()
    return x.mean((2, 3)).linear(w("fc", 512, 1000), w("fc.b", 1000))


def mlp(w: Weights, x: Any) -> Any:
    for at, width in enumerate((512, 512)):
        x = linear(w, f"{at}", x, width).relu()
    return linear(w, "last", x, 10)


def linear(w: Weights, name: str, x: Any, out: int) -> Any:
    return x.linear(w(name, x.shape[-1], out), w(f"{name}.b", out))


def normed(w: Weights, name: str, x: Any) -> Any:
    return x.layernorm() * w(f"{name}.s", x.shape[-1]) + w(f"{name}.o", x.shape[-1])


def in_heads(x: Any) -> list[Any]:
    parts = [x[:, at * WIDTH : (at + 1) * WIDTH] for at in range(3)]
    return [p.reshape(1, -1, HEADS, WIDTH // HEADS).permute(0, 2, 1, 3) for p in parts]


def encoder(w: Weights, x: Any, layers: int = 12) -> Any:
    for at in range(layers):
        q, k, v = in_heads(linear(w, f"{at}.qkv", x, 3 * WIDTH))
        y = q.scaled_dot_product_attention(k, v).permute(0, 2, 1, 3).reshape(-1, WIDTH)
        x = normed(w, f"{at}.1", x + linear(w, f"{at}.out", y, WIDTH))
        y = linear(w, f"{at}.up", x, 4 * WIDTH).gelu()
        x = normed(w, f"{at}.2", x + linear(w, f"{at}.down", y, WIDTH))
    return x


def decoder(w: Weights, x: Any, layers: int = 12) -> Any:
    for at in range(layers):
        q, k, v = in_heads(linear(w, f"{at}.qkv", normed(w, f"{at}.1", x), 3 * WIDTH))
        past = (1, HEADS, 256, WIDTH // HEADS)
        k, v = w(f"{at}.keys", *past).cat(k, dim=2), w(f"{at}.values", *past).cat(v, dim=2)
        y = q.scaled_dot_product_attention(k, v).permute(0, 2, 1, 3).reshape(-1, WIDTH)
        x = x + linear(w, f"{at}.out", y, WIDTH)
        y = linear(w, f"{at}.up", normed(w, f"{at}.2", x), 4 * WIDTH).gelu()
        x = x + linear(w, f"{at}.down", y, WIDTH)
    return x


def different(w: Weights, x: Any, layers: int) -> Any:
    """Layers of sizes of their own, so that none is compiled for another."""
    for at in range(layers):
        x = linear(w, f"{at}", x, 64 + 8 * (at + 1)).relu()
    return x


def loss_of(w: Weights, x: Any) -> Any:
    for at, channels in enumerate((32, 32, 64, 64)):
        x = x.conv2d(w(f"c{at}", channels, x.shape[1], 3, 3)).relu()
        if at % 2:
            x = x.max_pool2d((2, 2))
    x = x.flatten(1)
    return x.linear(w("fc", x.shape[1], 10)).log_softmax().square().mean()


def prepared(package: Any, model: str, layers: int) -> Callable[[], Any]:
    """A call that gives the model's result, its weights and inputs in memory."""
    w = Weights(package)
    jit = package.TinyJit

    def captured(function: Callable[[Any], Any], *shape: int) -> Callable[[], Any]:
        x = w("input", *shape)
        function(x)  # makes the weights
        run = jit(lambda given: function(given).realize())
        return lambda: run(x).numpy()

    if model == "train":
        return trained(package, w)
    if model == "resnet18":
        return captured(lambda x: resnet18(w, x), 1, 3, 224, 224)
    if model == "mlp":
        return captured(lambda x: mlp(w, x), 64, 784)
    if model in ("encoder", "equal"):
        return captured(lambda x: encoder(w, x, layers), 128, WIDTH)
    if model == "decoder":
        return captured(lambda x: decoder(w, x, layers), 1, WIDTH)
    return captured(lambda x: different(w, x, layers), 32, 64)


def trained(package: Any, w: Weights) -> Callable[[], Any]:
    x = w("input", 64, 1, 28, 28)
    loss_of(w, x)
    weights = [value for name, value in w.made.items() if name != "input"]
    for value in weights:
        if hasattr(value, "requires_grad"):
            value.requires_grad = True
    optimiser = importlib.import_module(package.__name__ + ".nn").optim.Adam(weights, lr=1e-3)
    tensor = package.Tensor
    mode = tensor.train if hasattr(tensor, "train") else lambda: package.Context(TRAINING=1)

    def step(given: Any) -> Any:
        with mode():
            optimiser.zero_grad()
            loss = loss_of(w, given).backward()
            return loss.realize(*optimiser.schedule_step())

    run = package.TinyJit(step)
    return lambda: run(x).numpy()


def child(name: str, model: str, layers: int) -> None:
    """One measurement, printed as JSON."""
    start = time.perf_counter()
    package = importlib.import_module(name)
    imported = time.perf_counter()
    call = prepared(package, model, layers)
    ready = time.perf_counter()
    call()
    print(json.dumps({"import": imported - start, "first": time.perf_counter() - ready}))


def surroundings(folder: str) -> dict[str, str]:
    """The environment of a measurement whose caches are in `folder`.

    Modules are compiled to bytecode before the clock starts, as they are where a package is
    installed: a checkout that is being edited would compile them in each process.
    """
    environment = {**os.environ, "XDG_CACHE_HOME": folder, "TILEWORK_CACHE_DIR": f"{folder}/t"}
    environment |= {"CACHEDB": f"{folder}/cache.db", "DEV": "CPU", "PYTHONPYCACHEPREFIX": BYTECODE}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def measure(package: str, model: str, folder: str, layers: int = 12) -> dict[str, float]:
    environment = surroundings(folder)
    words = [__file__, "--child", package, model, str(layers)]
    if model == "hello":
        words = ["-c", HELLO.format(package=package)]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{package}, {model}: {done.stderr.strip().splitlines()[-1:]}")
    if model == "hello":
        return {"first": seconds}
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def least(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(row[key] for row in rows) for key in rows[0]}


def compare(model: str, rounds: int, packages: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """The least times of each package, cold and warm."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {name: {} for name in packages}
    for _ in range(rounds):
        for name in packages:
            with tempfile.TemporaryDirectory() as folder:
                for state in ("cold", "warm"):
                    found[name].setdefault(state, []).append(measure(name, model, folder))
    return {
        name: {state: least(rows)["first"] for state, rows in states.items()}
        for name, states in found.items()
    }


def growth(model: str, small: int, large: int, rounds: int) -> float:
    """How much longer the large one takes, cold."""
    seconds: dict[int, list[float]] = {small: [], large: []}
    for _ in range(rounds):
        for layers in (small, large):
            with tempfile.TemporaryDirectory() as folder:
                seconds[layers].append(measure("tilework", model, folder, layers)["first"])
    return min(seconds[large]) / min(seconds[small])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only models whose name contains this")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--packages", default=",".join(PACKAGES))
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--child", nargs=3, metavar=("PACKAGE", "MODEL", "LAYERS"))
    options = parser.parse_args()
    if options.child:
        package, model, layers = options.child
        child(package, model, int(layers))
        return 0
    packages = tuple(options.packages.split(","))
    for name in packages:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, "hello", folder)  # leaves the bytecode behind
    models = {
        model: compare(model, options.rounds, packages) for model in MODELS if options.only in model
    }
    grown = {
        name: growth(name, small, large, options.rounds)
        for name, small, large in GROWTH
        if options.only in name
    }
    if options.json:
        print(json.dumps({"seconds": models, "growth": grown}, indent=2))
        return 0
    columns = [f"{name} {state}" for name in packages for state in ("cold", "warm")]
    print(f"{'':12}" + "".join(f"{column:>16}" for column in columns) + f"{'times faster':>20}")
    for model, rows in models.items():
        cells = [rows[name][state] for name in packages for state in ("cold", "warm")]
        ratios = ""
        if len(packages) == 2:
            ratios = f"{cells[2] / cells[0]:10.1f}{cells[3] / cells[1]:10.1f}"
        print(f"{model:12}" + "".join(f"{seconds:16.2f}" for seconds in cells) + ratios)
    for name, times in grown.items():
        print(f"ten times the layers, {name}: {times:.1f} times as long (at most {BUDGETS[name]})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
