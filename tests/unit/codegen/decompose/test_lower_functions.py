"""Constructions as IR: the same bits as on arrays, and only operations that the target has."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilework.base.errors import UnsupportedError
from tilework.base.settings import Settings, override
from tilework.codegen.decompose import native
from tilework.codegen.decompose.builder import Value
from tilework.codegen.decompose.elementary import PLAIN
from tilework.codegen.decompose.multiply_add import emulated_fma
from tilework.codegen.decompose.node_builder import NodeBuilder
from tilework.codegen.decompose.transcendental import (
    FLOAT32,
    FLOAT64,
    choices,
    is_lowered,
    lower_functions,
    lower_node,
)
from tilework.dtypes import by_name, float32
from tilework.ir.build import cast, const
from tilework.ir.interpret import Value as Computed
from tilework.ir.interpret import evaluate as interpret
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.define import OPS
from tilework.target.compile_key import compile_key
from tilework.target.features import CPU_LEVELS, X86_64
from tilework.target.known.cpu import x86_spec
from tilework.target.known.cuda import CAPABILITIES, cuda_spec
from tilework.target.spec import TargetSpec
from tilework.testing.accuracy.numpy_builder import evaluate, fma_float64

ARITY = {"atan2": 2, "fmod": 2, "pow": 2, "mulacc": 3}
LEVELS = dict(CPU_LEVELS[X86_64])
V3 = x86_spec(LEVELS["x86-64-v3"])
V2 = x86_spec(LEVELS["x86-64-v2"])
INPUTS = np.array(
    [
        *(0.0, -0.0, 1e-40, 1e-3, -0.3, 0.5, 0.7, 1.0, -1.0, 1.5, 3.0, -20.0, 88.0, -104.0, 150.0),
        *(2.0**17, -(2.0**50), 1e20, 1e30, 3e38, np.inf, -np.inf, np.nan),
    ],
    dtype=np.float32,
)
SECOND = np.resize(
    np.array([2.0, -1.0, 0.5, 3.0, 0.0, -np.inf, 1e9], dtype=np.float32), INPUTS.size
)


def leaf(size: int, dtype: str = "float32", mark: float = 0.0) -> Node:
    """A node that stands for `size` inputs; the interpreter is told its value."""
    return const(mark, by_name(dtype), (size,))


def run(node: Node, inputs: dict[Node, NDArray[Any]]) -> list[int]:
    bound = {
        key: Computed(key.shape, key.dtype, [float(v) for v in array])
        for key, array in inputs.items()
    }
    return interpret(node, bound).bits()


def bits_without_payload(values: NDArray[Any]) -> list[int]:
    width = f"uint{values.dtype.itemsize * 8}"
    quiet = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    return [int(v) for v in quiet.astype(values.dtype).view(width)]


def canonical(bits: list[int], dtype: str) -> list[int]:
    return bits_without_payload(np.array(bits, dtype=f"uint{dtype[5:]}").view(dtype))


def test_what_every_target_has_needs_no_construction() -> None:
    assert {op.name for op in PLAIN} & (FLOAT32.keys() | FLOAT64.keys()) == set()


@pytest.mark.parametrize("name", sorted(FLOAT32))
def test_TRN_19_the_nodes_compute_the_same_bits_as_the_arrays(name: str) -> None:
    count = ARITY.get(name, 1)
    leaves = [leaf(INPUTS.size, mark=7.25 + at) for at in range(count)]
    arrays = [INPUTS, SECOND, INPUTS[::-1]][:count]
    lowered = lower_node(OPS[name](*leaves), V3)
    wanted = bits_without_payload(evaluate(FLOAT32[name], *arrays))
    found = run(lowered, dict(zip(leaves, arrays, strict=True)))
    assert canonical(found, "float32") == wanted


#: Literals, and the choice that linearisation turns into a branch or a WHERE on every target.
LEFT_TO_LATER_PASSES = {"const", "where_rare"}


@pytest.mark.parametrize("target", [V3, V2], ids=["with fma", "without fma"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_TRN_01_after_the_pass_only_native_operations_are_left(
    dtype: str, target: TargetSpec
) -> None:
    x = leaf(4, dtype)
    table = FLOAT64 if dtype == "float64" else FLOAT32
    for name in table:
        count = ARITY.get(name, 1)
        lowered = lower_functions(OPS[name](*[x] * count), target)
        missing = {
            node.op.name
            for node in toposort(lowered)
            if node.op.name not in target.native_ops | LEFT_TO_LATER_PASSES
        }
        assert not missing, name


def test_an_operation_that_the_target_has_stays() -> None:
    x = leaf(4)
    for node in (math.SQRT(x), math.MULACC(x, x, x), math.ADD(x, x)):
        assert lower_node(node, V3) is node
    assert not is_lowered("mulacc", "float32", V3)
    assert is_lowered("mulacc", "float32", V2)
    assert is_lowered("exp2", "float16", V3)


def test_TRN_12_a_bfloat16_function_is_one_rounding_of_the_float32_one() -> None:
    x = leaf(4, "bfloat16")
    wide = lower_node(math.EXP2(cast(x, float32)), V3)
    assert lower_node(math.EXP2(x), V3) is cast(wide, by_name("bfloat16"))


def test_a_target_without_float64_is_told_what_it_misses() -> None:
    class Narrow:
        name = "narrow"
        native_ops = V3.native_ops
        native_dtypes = V3.native_dtypes - {"float64"}

    narrow: Any = Narrow()
    with pytest.raises(UnsupportedError, match="sin: narrow has no float64"):
        lower_node(math.SIN(leaf(4)), narrow)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_emulated_multiply_add_rounds_once(dtype: str) -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(400).astype(dtype) for _ in range(2))
    z = (-(x * y) * (1 + rng.integers(-1, 2, 400) * np.exp2(rng.integers(-60, 0, 400)))).astype(
        dtype
    )
    z[:3], x[:2] = [0.0, np.inf, np.nan], [0.0, 1.0]
    leaves = [leaf(400, dtype, mark=7.0 + at) for at in range(3)]
    builder = NodeBuilder((400,), has_fma=False)
    kind: Any = dtype
    emulated = emulated_fma(*(Value(builder, node, kind) for node in leaves)).raw
    found = run(emulated, dict(zip(leaves, (x, y, z), strict=True)))
    native = run(math.MULACC(*leaves), dict(zip(leaves, (x, y, z), strict=True)))
    assert canonical(found, dtype) == canonical(native, dtype)


def test_the_array_multiply_add_of_float64_rounds_once_far_from_the_addend() -> None:
    rng = np.random.default_rng(6)
    x, y, z = (np.ldexp(rng.standard_normal(300), rng.integers(-300, 300, 300)) for _ in range(3))
    found = fma_float64(x, y, z)
    for a, b, c, r in zip(x, y, z, found, strict=True):
        assert float(Fraction(a) * Fraction(b) + Fraction(c)) == r


def test_TRN_01_the_choice_for_each_function_follows_the_target() -> None:
    with_fma, without = choices(V3), choices(V2)
    assert with_fma["mulacc/float32"] == "native"
    assert without["mulacc/float32"] == "lowered"
    assert {"sqrt/float32", "exp/float16", "sin/float64", "log2/bfloat16"} <= with_fma.keys()
    for name, choice in with_fma.items():
        op, _, dtype = name.partition("/")
        assert (choice == "lowered") == is_lowered(op, dtype, V3)
    own_exp2 = replace(V3, native_ops=V3.native_ops | {"exp2_float32"})
    with override(fp_mode="contract"):
        changed = {name for name, choice in choices(own_exp2).items() if choice != with_fma[name]}
    assert changed == {"exp2/float32"}
    # The choice depends on the target and the mode alone, and both are in every key.
    assert own_exp2.key() != V3.key()
    assert compile_key(Settings(), own_exp2) != compile_key(Settings(), V3)
    assert compile_key(Settings(), V3) != compile_key(Settings(fp_mode="contract"), V3)


@pytest.mark.parametrize(
    ("error", "is_taken"), [(None, False), (1.94, True), (2.0, True), (2.01, False)]
)
def test_TRN_17_strict_arithmetic_takes_a_card_s_own_function_within_its_bound_alone(
    error: float | None, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(native.MEASURED, ("ptx", "exp_float32"))
    if error is not None:
        monkeypatch.setitem(native.MEASURED, ("ptx", "exp_float32"), error)
    card = cuda_spec(90)
    node = math.EXP(const(0.5, float32))
    assert is_lowered("exp", "float32", card) is not is_taken
    assert (lower_node(node, card) is node) is is_taken
    assert choices(card)["exp/float32"] == ("native" if is_taken else "lowered")
    with override(fp_mode="contract"):
        assert lower_node(node, card) is node


def test_TRN_17_every_function_of_a_target_itself_is_measured_and_within_its_bound() -> None:
    for capability in CAPABILITIES:
        card = cuda_spec(capability)
        for op in FLOAT32:
            if f"{op}_float32" in card.native_ops:
                assert native.keeps(op, "float32", card)
                assert native.MEASURED[card.isa, f"{op}_float32"] <= native.BOUNDS[f"{op}_float32"]
