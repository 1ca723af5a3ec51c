"""Greatest common divisors at the edges of every integer dtype."""

import math

import numpy as np
import pytest

from tilework import Tensor

KINDS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("kind", KINDS)
def test_gcd_is_exact_at_the_edges_of_every_integer_dtype(kind: str) -> None:
    limits = np.iinfo(kind)
    edges = [limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 2, 0, 1, 2, 3]
    pairs = [(a, b) for a in edges for b in edges]
    # Neighbours of Fibonacci's take the most steps.
    fibonacci = [1, 1]
    while sum(fibonacci[-2:]) <= limits.max:
        fibonacci.append(sum(fibonacci[-2:]))
    pairs += list(zip(fibonacci[1:], fibonacci[:-1], strict=True))
    # The smaller one first, with a remainder beyond what a signed number of this size holds.
    pairs += [(limits.max // 2 + 1 + at, limits.max - 3 * at) for at in range(64)]
    # Large factors in common.
    generator = np.random.default_rng(0)
    root = math.isqrt(limits.max)
    for shared, first, second in generator.integers(1, root, (1000, 3), endpoint=True).tolist():
        pairs.append((shared * first, shared * second))
    a, b = (np.array(each, kind) for each in zip(*pairs, strict=True))
    found = Tensor(a).gcd(Tensor(b)).numpy()
    # The magnitude of the least number is out of range and comes round to that number.
    wanted = np.array([math.gcd(*pair) for pair in pairs], np.uint64).astype(kind)
    np.testing.assert_array_equal(found, wanted)
