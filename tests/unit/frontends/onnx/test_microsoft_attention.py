"""Attention, embeddings and weights of ONNX Runtime's domain, beside ONNX Runtime itself."""

from typing import Any

import numpy as np
import pytest
from tests.unit.frontends.onnx.models import Array, agrees, model, node, value

from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.onnx import OnnxRunner

GENERATOR = np.random.default_rng(0)
BATCH, TOKENS, HEADS, SIZE = 2, 5, 4, 4
WIDTH = HEADS * SIZE
RAW = np.array([[1, 1, 1, 1, 0], [0, 1, 1, 1, 1]], np.int32)
MASKS: dict[str, Array | None] = {
    "none": None,
    "ends": np.array([3, 5], np.int32),
    "ends and starts": np.array([4, 5, 1, 2], np.int32),
    "by key": RAW,
    "by query": (GENERATOR.random((BATCH, TOKENS, TOKENS)) > 0.4).astype(np.int32),
    "all hidden": RAW * 0,
}


def normal(*shape: int) -> Array:
    return GENERATOR.normal(size=shape).astype(np.float32)


def real(number: float) -> Array:
    return np.array(number, np.float32)


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_takes_masks_of_every_form(mask: str, is_causal: int) -> None:
    operands = [normal(BATCH, TOKENS, 12), normal(12, 3 * WIDTH), normal(3 * WIDTH), MASKS[mask]]
    agrees("Attention", operands, num_heads=HEADS, unidirectional=is_causal)


def test_attention_keeps_its_past_and_adds_what_it_is_given() -> None:
    x, weights, bias = normal(BATCH, TOKENS, 12), normal(12, 3 * WIDTH), normal(3 * WIDTH)
    past = normal(2, BATCH, HEADS, 3, SIZE)
    agrees("Attention", [x, weights, bias, None, past], outputs=2, num_heads=HEADS)
    every = np.ones((BATCH, TOKENS + 3), np.int32)
    agrees(
        "Attention", [x, weights, bias, every, past], outputs=2, num_heads=HEADS, unidirectional=1
    )
    added = normal(1, HEADS, TOKENS, TOKENS)
    agrees("Attention", [x, weights, bias, RAW, None, added], num_heads=HEADS)
    sizes = [8, 8, 24]
    operands = [x, normal(12, 40), normal(40), RAW]
    agrees("Attention", operands, num_heads=HEADS, qkv_hidden_sizes=sizes, scale=0.3)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("is_causal", [0, 1])
def test_attention_of_bytes(kind: type[np.integer], is_causal: int) -> None:
    # ONNX Runtime adds pairs of larger products in 16 bits where a processor has no VNNI.
    x = GENERATOR.integers(0, 128, (BATCH, TOKENS, 8)).astype(np.uint8)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    weights = GENERATOR.integers(low, high, (8, 3 * WIDTH)).astype(kind)
    mask = None if is_causal else MASKS["ends"]
    operands = [
        x, weights, normal(3 * WIDTH), real(0.02), real(0.01), mask, np.array(4, np.uint8),
        np.array(3, kind),
    ]  # fmt: skip
    agrees("QAttention", operands, num_heads=HEADS, unidirectional=is_causal)


def test_attention_over_several_heads_takes_keys_in_every_form() -> None:
    keys = 7
    q, k, v = (normal(BATCH, count, WIDTH) for count in (TOKENS, keys, keys))
    shown = (GENERATOR.random((BATCH, keys)) > 0.3).astype(np.int32)
    agrees("MultiHeadAttention", [q, k, v, normal(3 * WIDTH), shown], num_heads=HEADS)
    ends = np.array([4, 7], np.int32)
    agrees("MultiHeadAttention", [q, k, v, None, ends], num_heads=HEADS, scale=0.2)
    added = normal(1, HEADS, TOKENS, keys)
    agrees("MultiHeadAttention", [q, k, v, None, None, added], num_heads=HEADS)
    by_head = [normal(BATCH, HEADS, keys, SIZE) for _ in range(2)]
    agrees("MultiHeadAttention", [q, *by_head], num_heads=HEADS)
    agrees("MultiHeadAttention", [q, *by_head, normal(3 * WIDTH)], num_heads=HEADS)
    agrees("MultiHeadAttention", [q, k, normal(BATCH, keys, 24)], num_heads=HEADS)


def test_attention_of_no_batch_is_empty() -> None:
    three = [normal(0, TOKENS, WIDTH) for _ in range(3)]
    agrees("MultiHeadAttention", three, num_heads=HEADS)


@pytest.mark.parametrize("is_causal", [0, 1])
def test_attention_over_several_heads_keeps_its_past(is_causal: int) -> None:
    three = [normal(BATCH, TOKENS, WIDTH) for _ in range(3)]
    past = [normal(BATCH, HEADS, 3, SIZE) for _ in range(2)]
    operands = [*three, normal(3 * WIDTH), None, None, *past]
    agrees("MultiHeadAttention", operands, outputs=3, num_heads=HEADS, unidirectional=is_causal)


def test_packed_operands_are_those_that_are_given_apart() -> None:
    packed = normal(BATCH, TOKENS, HEADS, 3, SIZE)
    q, k, v = (packed[:, :, :, at].reshape(BATCH, TOKENS, WIDTH) for at in range(3))

    def run(*operands: Array) -> Array:
        names = [f"x{at}" for at in range(len(operands))]
        nodes = [node("MultiHeadAttention", names, ["y"], domain="com.microsoft", num_heads=HEADS)]
        text = model(nodes, [value(name) for name in names], ["y"], domains=["com.microsoft"])
        given = dict(zip(names, operands, strict=True))
        found: Array = OnnxRunner(text)(given)["y"].numpy()  # type: ignore[union-attr]
        return found

    wanted = run(q, k, v)
    np.testing.assert_allclose(run(packed), wanted, rtol=1e-6)
    np.testing.assert_allclose(run(q, packed[:, :, :, 1:]), wanted, rtol=1e-6)


# --- groups of heads ------------------------------------------------------------------------------

GROUPS, ROOMY = 2, 16
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "turned": {"do_rotary": 1},
    "turned in pairs": {"do_rotary": 1, "rotary_interleaved": 1},
    "scaled": {"scale": 0.3},
    "capped": {"softcap": 5.0},
    "in a window": {"local_window_size": 3},
    "in a window of none": {"local_window_size": 0},
    "smooth": {"smooth_softmax": 1},
}


def grouped(
    tokens: int, kept: int, total: int, ends: list[int], *, is_packed: bool, **attributes: Any
) -> list[Array]:
    """Run GroupQueryAttention on heads of 16."""
    size, batch = 16, len(ends)
    three = [normal(batch, tokens, heads * size) for heads in (HEADS, GROUPS, GROUPS)]
    given: list[Array | None] = [*three]
    if is_packed:
        given = [np.concatenate(three, -1), None, None]
    past = [normal(batch, GROUPS, kept, size) for _ in range(2)]
    counts = [np.array(ends, np.int32), np.array([total], np.int32)]
    turns = [normal(32, 8), normal(32, 8)] if "do_rotary" in attributes else []
    operands = [*given, *past, *counts, *turns]
    attributes |= {"num_heads": HEADS, "kv_num_heads": GROUPS}
    return agrees("GroupQueryAttention", operands, outputs=3, **attributes)


@pytest.mark.parametrize("is_packed", [False, True], ids=["apart", "packed"])
@pytest.mark.parametrize("form", FORMS)
def test_groups_of_heads_share_keys(form: str, is_packed: bool) -> None:
    grouped(6, 0, 6, [5, 5], is_packed=is_packed, **FORMS[form])
    grouped(1, 5, 6, [5, 5], is_packed=is_packed, **FORMS[form])


@pytest.mark.parametrize(("tokens", "kept"), [(6, 0), (1, 5)], ids=["prompt", "token"])
def test_groups_of_heads_turn_by_places_that_are_given(tokens: int, kept: int) -> None:
    size = 16
    three = [normal(2, tokens, heads * size) for heads in (HEADS, GROUPS, GROUPS)]
    past = [normal(2, GROUPS, kept, size) for _ in range(2)]
    counts = [np.array([5, 5], np.int32), np.array([6], np.int32)]
    places = GENERATOR.integers(0, 25, (2, tokens))  # of a prompt the first one counts
    operands = [*three, *past, *counts, normal(32, 8), normal(32, 8), places]
    form: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1}
    agrees("GroupQueryAttention", operands, outputs=3, **form)


def test_groups_of_heads_read_several_tokens_behind_a_past() -> None:
    grouped(3, 5, 8, [7], is_packed=False, do_rotary=1)


def test_each_sequence_writes_behind_its_own_past() -> None:
    size = 16
    past = [normal(2, GROUPS, ROOMY, size) for _ in range(2)]
    three = [normal(2, 1, heads * size) for heads in (HEADS, GROUPS, GROUPS)]
    ends = np.array([5, 3], np.int32)
    operands = [*three, *past, ends, np.array([6], np.int32)]
    found = agrees("GroupQueryAttention", operands, outputs=3, num_heads=HEADS, kv_num_heads=GROUPS)
    np.testing.assert_array_equal(found[1][1, :, 3], three[1][1].reshape(GROUPS, size))
    np.testing.assert_array_equal(found[1][1, :, :3], past[0][1, :, :3])


# --- positions, embeddings, normalisation ---------------------------------------------------------


@pytest.mark.parametrize("is_interleaved", [0, 1])
def test_positions_turn_pairs(is_interleaved: int) -> None:
    tables = [normal(20, 4), normal(20, 4)]
    places = GENERATOR.integers(0, 20, (2, 3))
    form: dict[str, Any] = {"interleaved": is_interleaved}
    agrees("RotaryEmbedding", [normal(2, 3, 16), np.array([2], np.int64), *tables], **form)
    agrees("RotaryEmbedding", [normal(2, 2, 3, 8), places, *tables], **form)
    part: dict[str, Any] = {"num_heads": 2, "rotary_embedding_dim": 8, **form}
    agrees("RotaryEmbedding", [normal(2, 3, 24), places, *tables], **part)


def test_sums_are_normalised_with_the_epsilon_of_their_operators() -> None:
    x, skip = normal(2, 3, 8), normal(2, 3, 8)
    small, scale = [x * 1e-5, skip * 1e-5], normal(8)
    agrees("SkipLayerNormalization", [*small, scale, normal(8)])
    agrees("SkipSimplifiedLayerNormalization", [*small, scale])
    agrees("SkipLayerNormalization", [x, skip, scale, normal(8), normal(8)], outputs=4)
    agrees("SkipLayerNormalization", [x, skip[0], scale], epsilon=1e-3)
    agrees("SkipSimplifiedLayerNormalization", [x, skip, scale, normal(8)], epsilon=1e-3)
    agrees("SimplifiedLayerNormalization", [x, normal(3, 8)], domain="", axis=1, epsilon=1e-5)


def test_sums_of_small_floats_do_not_overflow() -> None:
    x, skip, scale = (array.astype(np.float16) for array in (normal(4, 8), normal(4, 8), normal(8)))
    for operator in ("SkipSimplifiedLayerNormalization", "SkipLayerNormalization"):
        # Sums of 1000 are off by 0.5, of which a row's deviation of 400 leaves a thousandth.
        agrees(operator, [(x * 300)[None], (skip * 300)[None], scale], tolerance=1e-2)


def test_embeddings_are_summed_and_counted() -> None:
    words = GENERATOR.integers(0, 10, (2, 4)).astype(np.int32)
    segments = GENERATOR.integers(0, 2, (2, 4)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    tables = [normal(10, 8), normal(6, 8), normal(2, 8), normal(8), normal(8)]
    agrees("EmbedLayerNormalization", [words, segments, *tables, mask], outputs=2)
    places = GENERATOR.integers(0, 6, (2, 4)).astype(np.int32)
    agrees("EmbedLayerNormalization", [words, segments, *tables, mask, places], outputs=3)
    without: list[Array | None] = [words, None, *tables[:2], None, *tables[3:]]
    agrees("EmbedLayerNormalization", without, outputs=2, epsilon=1e-3)
    small: list[Array] = [
        np.array(GENERATOR.integers(0, 256, table.shape), np.uint8) for table in tables
    ]
    scales = [real(scale) for scale in (0.02, 0.03, 0.01, 0.01, 0.02)]
    points = [np.array(point, np.uint8) for point in (120, 130, 128, 0, 100)]
    operands: list[Array | None] = [words, segments, *small, mask, *scales, *points]
    agrees("QEmbedLayerNormalization", operands, outputs=2)


@pytest.mark.parametrize("is_last", [0, 1])
def test_groups_of_channels_are_normalised_as_pytorch_does(is_last: int) -> None:
    import torch

    x, skip, scale, shift = normal(2, 8, 3, 4), normal(2, 8), normal(8), normal(8)
    total = torch.tensor(x + skip[:, :, None, None])
    normed = torch.nn.functional.group_norm(total, 2, torch.tensor(scale), torch.tensor(shift))
    wanted = torch.nn.functional.silu(normed).numpy()
    given = x.transpose(0, 2, 3, 1).copy() if is_last else x
    wanted = wanted.transpose(0, 2, 3, 1) if is_last else wanted
    names = {"x": given, "scale": scale, "shift": shift, "skip": skip}
    nodes = [
        node(
            "SkipGroupNorm", list(names), ["y"], domain="com.microsoft", groups=2, activation=1,
            channels_last=is_last,
        )
    ]  # fmt: skip
    text = model(nodes, [value(name) for name in names], ["y"], domains=["com.microsoft"])
    found = OnnxRunner(text)(names)["y"].numpy()  # type: ignore[union-attr]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# --- weights of a few bits ------------------------------------------------------------------------


BITS = [(bits, points) for bits in (2, 4, 8) for points in ("none", "packed", "float")]


# ONNX Runtime has no kernel for the last pair.
@pytest.mark.parametrize(("bits", "points"), BITS[:-1])
def test_weights_of_a_few_bits_are_widened_block_by_block(bits: int, points: str) -> None:
    rows, inner, block = 9, 80, 32
    blocks = -(-inner // block)
    packed = GENERATOR.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8)
    table: dict[str, Array | None] = {
        "none": None,
        "packed": GENERATOR.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8),
        "float": normal(rows, blocks) + 8,
    }
    scales = np.abs(normal(rows, blocks)) * 0.1
    operands = [normal(2, 3, inner), packed, scales, table[points], None, normal(rows)]
    sizes: dict[str, Any] = {"K": inner, "N": rows, "block_size": block, "bits": bits}
    constants = [1, 2] + ([3] if table[points] is not None else [])
    agrees("MatMulNBits", operands, constants=constants, tolerance=2e-3, **sizes)


@pytest.mark.parametrize("kind", [0, 1], ids=["fp4", "nf4"])
def test_weights_of_small_floats_are_looked_up(kind: int) -> None:
    inner, rows = 33, 5
    codes = GENERATOR.integers(0, 256, (inner * rows + 1) // 2).astype(np.uint8)
    largest = np.abs(normal(-(-inner * rows // 16)))
    sizes: dict[str, Any] = {"K": inner, "N": rows, "block_size": 16, "quant_type": kind}
    operands = [normal(3, inner), codes, largest]
    agrees("MatMulBnb4", operands, constants=[1, 2], tolerance=1e-3, **sizes)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_points", [False, True])
def test_slices_of_weights_are_widened_and_zero_outside(bits: int, has_points: bool) -> None:
    width = 64
    data = GENERATOR.integers(0, 256, (7, width * bits // 8)).astype(np.uint8)
    points = GENERATOR.integers(0, 256, (7, -(-(width // 16) * bits // 8))).astype(np.uint8)
    indices = np.array([[0, -1, 6], [-7, 3, 3]])
    operands = [data, indices, np.abs(normal(7, width // 16)), points if has_points else None]
    constants = [0, 2, 3] if has_points else [0, 2]
    form: dict[str, Any] = {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    agrees("GatherBlockQuantized", operands, constants=constants, **form)


# --- refusals -------------------------------------------------------------------------------------


def test_what_only_cards_have_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="do_rotary"):
        runs("Attention", [normal(1, 2, 4), normal(4, 12)], num_heads=2, do_rotary=1)
    with pytest.raises(ModelFileError, match="heads do not divide"):
        runs("Attention", [normal(1, 2, 4), normal(4, 12)], num_heads=3)
    crossed: list[Array | None] = [normal(1, 2, 4), normal(1, 3, 4), normal(1, 3, 4)]
    with pytest.raises(UnsupportedError, match="which keys are later"):
        runs("MultiHeadAttention", crossed, num_heads=2, unidirectional=1)
    mask = np.zeros((1, 1, 2, 2), np.int32)
    with pytest.raises(UnsupportedError, match="mask of another form"):
        runs("Attention", [normal(1, 2, 4), normal(4, 12), None, mask], num_heads=2)


def runs(operator: str, operands: list[Array | None], **attributes: Any) -> None:
    """Run one node here alone."""
    names = ["" if array is None else f"x{at}" for at, array in enumerate(operands)]
    given = {name: array for name, array in zip(names, operands, strict=True) if array is not None}
    nodes = [node(operator, names, ["y"], domain="com.microsoft", **attributes)]
    infos = [value(name, str(array.dtype), array.shape) for name, array in given.items()]
    OnnxRunner(model(nodes, infos, ["y"], domains=["com.microsoft"]))(given)
