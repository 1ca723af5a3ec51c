"""What `from tinygrad.nn.datasets import ...` gives."""

from __future__ import annotations

from tilework import Tensor
from tilework.compat.tinygrad.state import tar_extract
from tilework.tensor.download import fetch

_DIGITS = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_PICTURES = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"


def mnist(
    device: str | None = None, fashion: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images (n, 1, 28, 28) and labels (n,) for training, then those for tests; uint8."""
    root = _FASHION if fashion else _DIGITS

    def read(name: str, skipped: int) -> Tensor:
        data = fetch(f"{root}{name}", gunzip=True).read_bytes()
        return Tensor(data[skipped:]).to(device)

    return (
        read("train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28),
        read("train-labels-idx1-ubyte.gz", 8),
        read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28),
        read("t10k-labels-idx1-ubyte.gz", 8),
    )


def cifar(device: str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images (n, 3, 32, 32) and labels (n,) for training, then those for tests; uint8."""
    files = tar_extract(fetch(_PICTURES, gunzip=True))
    folder = "cifar-10-batches-bin"
    parts = [files[f"{folder}/data_batch_{number}.bin"] for number in range(1, 6)]
    train = parts[0].cat(*parts[1:]).reshape(-1, 3073).to(device)
    test = files[f"{folder}/test_batch.bin"].reshape(-1, 3073).to(device)
    return (
        train[:, 1:].reshape(-1, 3, 32, 32), train[:, 0],
        test[:, 1:].reshape(-1, 3, 32, 32), test[:, 0],
    )  # fmt: skip


__all__ = ["cifar", "mnist"]
