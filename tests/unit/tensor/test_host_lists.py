"""Elements as Python numbers, without NumPy."""

import subprocess
import sys

import numpy as np
import pytest

from tilework import Tensor, Variable, dtypes
from tilework.tensor.host_lists import nested, unpack

EXACT = [row for row in dtypes.ALL if not row.is_packed]


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_every_bit_pattern_is_the_number_that_it_decodes_to(dtype: dtypes.DType) -> None:
    patterns = [(i * 40503) % (1 << dtype.bits) for i in range(1 << min(dtype.bits, 16))]
    patterns = [i & 1 for i in patterns] if dtype.is_bool else patterns
    data = bytearray(b"".join(bits.to_bytes(dtype.itemsize, sys.byteorder) for bits in patterns))
    found = unpack(data, len(patterns), dtype)
    wanted = [dtypes.decode(bits, dtype) for bits in patterns]
    assert list(map(repr, found)) == list(map(repr, wanted))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 4), (0,), (0, 3), (2, 0), (2, 0, 3)])
def test_elements_are_nested_as_numpy_nests_them(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    assert nested(array.reshape(-1).tolist(), shape) == array.tolist()
    assert Tensor(array).tolist() == array.tolist()


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_lists_of_a_computed_tensor_are_those_of_its_array(dtype: dtypes.DType) -> None:
    made = (Tensor([[1, 0, 1], [0, 1, 1]]).cast(dtype) + 0).realize()
    assert made.tolist() == made.numpy().tolist()
    assert made.T.tolist() == made.numpy().T.tolist()
    assert made.reshape(3, 2).tolist() == made.numpy().reshape(3, 2).tolist()
    assert type(made.reshape(6)[:1].item()) is type(made.numpy().reshape(6)[0].item())


def test_memory_for_more_elements_is_read_as_far_as_it_is_filled() -> None:
    size = Variable("size", 1, 8).bind(3)
    assert (Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])[:size] + 1).tolist() == [2, 3, 4]


def test_constants_and_views_of_them_are_lists_too() -> None:
    assert Tensor.full((2, 2), -0.0, dtype=dtypes.bfloat16).tolist() == [[-0.0, -0.0]] * 2
    assert str(Tensor(-0.0).item()) == "-0.0"
    assert Tensor.full((2, 0), 1).tolist() == [[], []]


def test_a_process_that_prints_a_sum_imports_neither_numpy_nor_dataclasses() -> None:
    text = (
        "import sys; from tilework import Tensor; print((Tensor([1.0]) + Tensor([2.0])).tolist());"
        "print([name for name in ('numpy', 'dataclasses', 'inspect') if name in sys.modules])"
    )
    for _ in range(2):  # what the first one compiles the second one finds
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == ["[3.0]", "[]"]
