import pytest

from tilework import dtypes
from tilework.dtypes import DType, decode
from tilework.ir.build import const, const_bits
from tilework.ir.digest import digest
from tilework.ir.fold import combine, fold_op, identity_bits
from tilework.ir.interpret import evaluate
from tilework.ir.node import make
from tilework.ir.ops import math
from tilework.ir.ops.tensor import Fold


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("fold", Fold)
def test_the_identity_changes_nothing(fold: Fold, dtype: DType) -> None:
    """Every value of small dtypes, the extremes of others; -0.0 + 0.0 is the one exception."""
    identity = const_bits(identity_bits(fold, dtype), dtype)
    count = 1 << dtype.bits
    top = count >> 1
    numbers = range(count) if dtype.bits <= 8 else [0, 1, top - 1, top, top + 1, count - 1]
    for bits in numbers:
        value = decode(bits, dtype)
        if value != value:
            continue
        found = evaluate(combine(fold, identity, const_bits(bits, dtype)), {}).item()
        assert found == value


def test_bools_fold_by_logic() -> None:
    assert fold_op(Fold.ADD, dtypes.bool_) is math.OR
    assert fold_op(Fold.MAX, dtypes.bool_) is math.OR
    assert fold_op(Fold.MUL, dtypes.bool_) is math.AND
    assert fold_op(Fold.MIN, dtypes.bool_) is math.AND


def test_a_float_without_infinity_starts_from_its_extremes() -> None:
    low = decode(identity_bits(Fold.MAX, dtypes.fp8e4m3), dtypes.fp8e4m3)
    high = decode(identity_bits(Fold.MIN, dtypes.fp8e4m3), dtypes.fp8e4m3)
    assert (low, high) == (-448.0, 448.0)


def test_an_attribute_that_has_no_digest_is_named() -> None:
    node = make(math.NEG, (const(1, dtypes.int8),), frozenset())
    with pytest.raises(TypeError, match="frozenset has no digest"):
        digest(node)
