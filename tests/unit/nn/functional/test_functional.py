"""`nn.functional`: PyTorch's names, arguments, numbers and gradients."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as theirs_of

import tilework.nn.functional as own_of
from tilework import Tensor
from tilework.base.errors import ShapeError, TileworkWarning, UserError

RANDOM = np.random.default_rng(7)
X = RANDOM.standard_normal((2, 4, 6))
IMAGES = RANDOM.standard_normal((2, 4, 6, 6))
VOLUMES = RANDOM.standard_normal((1, 2, 4, 5, 6))
LOGITS = RANDOM.standard_normal((5, 3))
OTHERS = RANDOM.standard_normal((5, 3))
CHANCES = 1 / (1 + np.exp(-LOGITS))
SIGNS = np.where(OTHERS > 0, 1.0, -1.0)
CLASSES = np.array([0, 2, 1, 1, 0])
WEIGHTS = np.array([0.5, 2.0, 1.0])
TABLE = RANDOM.standard_normal((7, 3))
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3.0, -3.0, 30.0, -30.0])
BY_AXES = {1: X, 2: IMAGES, 3: VOLUMES}

Row = tuple[str, tuple[Any, ...], dict[str, Any]]


def row(name: str, *given: Any, **named: Any) -> Row:
    return name, given, named


SINGLE = [
    row("relu"), row("relu6"), row("elu", 0.5), row("celu", 0.5), row("selu"), row("silu"),
    row("leaky_relu", 0.2), row("mish"), row("gelu"), row("gelu", approximate="tanh"),
    row("sigmoid"), row("logsigmoid"), row("tanh"), row("tanhshrink"), row("softsign"),
    row("softplus"), row("softplus", 2.0, 5.0), row("hardswish"), row("hardsigmoid"),
    row("hardtanh", -0.5, 0.75), row("hardshrink", 0.3), row("softshrink", 0.3),
    row("threshold", 0.1, 20.0), row("rrelu", 0.1, 0.4),
]  # fmt: skip

ROWS: list[Row] = [
    *[(name, (X, *given), named) for name, given, named in SINGLE],
    row("prelu", X, np.array([0.1, 0.2, 0.3, 0.4])), row("glu", X, 1), row("softmax", X, 1),
    row("softmax", X, dim=-1, dtype="float64"), row("log_softmax", X, dim=0), row("softmin", X, 2),
    row("linear", LOGITS, OTHERS[:2], WEIGHTS[:2]), row("linear", LOGITS, WEIGHTS),
    row("bilinear", LOGITS, OTHERS, RANDOM.standard_normal((4, 3, 3)), np.ones(4)),
    row("embedding", CLASSES, TABLE), row("embedding", CLASSES, TABLE, padding_idx=-6),
    row("embedding", CLASSES, TABLE, scale_grad_by_freq=True),
    row("embedding_bag", CLASSES, TABLE, np.array([0, 2])),
    row("embedding_bag", CLASSES, TABLE, np.array([0, 3, 5]), mode="sum", include_last_offset=True),
    row("embedding_bag", CLASSES[:4].reshape(2, 2), TABLE, mode="max", padding_idx=1),
    row("one_hot", CLASSES), row("one_hot", CLASSES, 5),
    row("batch_norm", X, np.zeros(4), np.ones(4) * 2, WEIGHTS[[0, 1, 2, 0]], np.ones(4)),
    row("batch_norm", IMAGES, None, None, training=True),
    row("instance_norm", X, weight=WEIGHTS[[0, 1, 2, 0]], bias=np.ones(4)),
    row("instance_norm", IMAGES, np.zeros(4), np.ones(4) * 2, use_input_stats=False),
    row("layer_norm", X, (4, 6), np.ones((4, 6)) * 2, np.ones((4, 6))), row("layer_norm", X, (6,)),
    row("rms_norm", X, (6,), np.arange(6.0)), row("rms_norm", X, (4, 6), eps=0.1),
    row("group_norm", X, 2, np.ones(4) * 3, np.ones(4)), row("local_response_norm", X, 3),
    row("normalize", X), row("normalize", X, 1.0, -1), row("cosine_similarity", LOGITS, OTHERS),
    row("pairwise_distance", LOGITS, OTHERS, keepdim=True), row("pdist", LOGITS, 3.0),
    row("scaled_dot_product_attention", X, X * 2, X + 1, is_causal=True),
    row("scaled_dot_product_attention", X, X * 2, X + 1, scale=0.1),
    *[
        row(f"conv{n}d", x, RANDOM.standard_normal((6, x.shape[1] // 2, *[3] * n)), np.ones(6),
            padding="same", dilation=2, groups=2)
        for n, x in BY_AXES.items()
    ],
    row("conv1d", X[0], RANDOM.standard_normal((3, 4, 2)), None, 2),
    row("conv2d", IMAGES, RANDOM.standard_normal((3, 4, 2, 4)), None, (2, 1), "valid"),
    row("conv2d", IMAGES[0], RANDOM.standard_normal((3, 4, 2, 3)), padding="same"),
    *[
        row(f"conv_transpose{n}d", x, RANDOM.standard_normal((x.shape[1], 3, *[3] * n)), None, 2, 1,
            1, 2)
        for n, x in BY_AXES.items()
    ],
    row("conv_transpose1d", X[0], RANDOM.standard_normal((4, 2, 2)), np.ones(2), dilation=2),
    row("unfold", IMAGES, 3, padding=1), row("fold", IMAGES.reshape(2, 16, 9), (4, 4), (2, 2)),
    *[
        each
        for n, x in BY_AXES.items()
        for each in (
            row(f"max_pool{n}d", x, 3, 2, 1, 1, True),
            row(f"avg_pool{n}d", x, 3, 2, 1, True, False),
            row(f"lp_pool{n}d", np.abs(x), 3.0, 2), row(f"adaptive_avg_pool{n}d", x, 2),
            row(f"adaptive_max_pool{n}d", x, 3),
        )
    ],
    row("avg_pool2d", IMAGES, 2, divisor_override=3),
    row("pad", X, (1, 2)),
    row("pad", X, (-1, 2, 0, -1), value=2.5), row("pad", X, (1, 2), "reflect"),
    row("pad", X, (1, 2), "replicate"), row("pad", X, (1, 2), "circular"),
    row("interpolate", IMAGES, 9), row("interpolate", IMAGES, None, (1.5, 2)),
    row("interpolate", IMAGES, scale_factor=2, mode="bilinear", align_corners=True),
    row("interpolate", IMAGES, (4, 9), mode="bicubic"), row("upsample", X, 9, mode="linear"),
    row("upsample_nearest", IMAGES, scale_factor=2), row("upsample_bilinear", IMAGES, (9, 8)),
    row("grid_sample", IMAGES, np.tanh(RANDOM.standard_normal((2, 3, 4, 2))), align_corners=False),
    row("affine_grid", RANDOM.standard_normal((2, 2, 3)), (2, 3, 4, 5), True),
    row("pixel_shuffle", IMAGES, 2), row("pixel_unshuffle", IMAGES, 3),
    row("channel_shuffle", IMAGES, 2), row("native_channel_shuffle", IMAGES, 2),
    row("l1_loss", LOGITS, OTHERS), row("l1_loss", LOGITS, OTHERS, weight=CHANCES),
    row("mse_loss", LOGITS, OTHERS, reduction="sum"),
    row("mse_loss", LOGITS, OTHERS, weight=CHANCES, reduction="none"),
    row("huber_loss", LOGITS, OTHERS, "sum", 0.5),
    row("huber_loss", LOGITS, OTHERS, weight=CHANCES),
    row("smooth_l1_loss", LOGITS, OTHERS, beta=0.5),
    row("smooth_l1_loss", LOGITS, OTHERS, beta=0.0),
    row("cross_entropy", LOGITS, CLASSES, WEIGHTS, label_smoothing=0.1),
    row("cross_entropy", LOGITS, CLASSES, ignore_index=1, reduction="sum"),
    row("cross_entropy", LOGITS, CHANCES), row("cross_entropy", LOGITS[0], CLASSES[1]),
    row("nll_loss", LOGITS, CLASSES, WEIGHTS),
    row("nll_loss", LOGITS, CLASSES - 101 * (CLASSES == 1)),
    row("binary_cross_entropy", CHANCES, (SIGNS + 1) / 2, WEIGHTS),
    row("binary_cross_entropy_with_logits", LOGITS, CHANCES, pos_weight=WEIGHTS),
    row("kl_div", LOGITS, CHANCES, reduction="batchmean"),
    row("kl_div", LOGITS, OTHERS, log_target=True, reduction="sum"),
    row("poisson_nll_loss", LOGITS, CHANCES, full=True),
    row("poisson_nll_loss", CHANCES, CHANCES, False),
    row("gaussian_nll_loss", LOGITS, OTHERS, CHANCES, True),
    row("gaussian_nll_loss", LOGITS, OTHERS, 2.0),
    row("soft_margin_loss", LOGITS, SIGNS), row("hinge_embedding_loss", LOGITS, SIGNS, 0.5),
    row("cosine_embedding_loss", LOGITS, OTHERS, SIGNS[:, 0], 0.1),
    row("margin_ranking_loss", LOGITS, OTHERS, SIGNS, 0.1),
    row("triplet_margin_loss", LOGITS, OTHERS, CHANCES, p=3.0, swap=True),
    row("triplet_margin_with_distance_loss", LOGITS, OTHERS, CHANCES, swap=True),
    row("multi_margin_loss", LOGITS, CLASSES, 2, 0.5, WEIGHTS),
    row("multilabel_margin_loss", LOGITS, np.array([[0, 2, -1]] * 5)),
    row("multilabel_soft_margin_loss", LOGITS, (SIGNS + 1) / 2, WEIGHTS),
    row("ctc_loss", np.log(CHANCES[:, None] / CHANCES[:, None].sum(-1, keepdims=True)),
        np.array([[1, 2]]), [5], [2]),
]  # fmt: skip

#: Names whose numbers are drawn, or are those of another name, written in place.
DRAWN = {
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
    "fractional_max_pool2d", "fractional_max_pool3d", "gumbel_softmax",
}  # fmt: skip
IN_PLACE = {name for name in own_of.__all__ if name.endswith("_")}
UNPOOLED = {f"max_unpool{n}d" for n in (1, 2, 3)}


def test_every_function_is_compared() -> None:
    named = {name for name, _, _ in ROWS} | DRAWN | IN_PLACE | UNPOOLED
    assert named == set(own_of.__all__)


#: Functions whose other operands have gradients too.
ALL_HAVE_GRADIENTS = re.compile(
    "linear|bilinear|embedding|conv|layer_norm|group_norm|prelu|attention|cosine|triplet|rms_norm"
)


def made(value: Any, library: Any, kind: str, has_gradient: bool) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        if value == "float64" and library is torch:
            return torch.float64
        return value
    is_float = value.dtype.kind == "f"
    array = np.asarray(value, kind if is_float else "int64")
    if library is torch:
        return torch.tensor(array, requires_grad=is_float and has_gradient)
    return Tensor(array, requires_grad=is_float and has_gradient)


def results(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.filterwarnings("ignore::UserWarning")  # names that are deprecated there
@pytest.mark.parametrize("kind", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "given", "named"), ROWS, ids=[row[0] for row in ROWS])
def test_values_and_gradients_are_pytorchs(
    name: str, given: tuple[Any, ...], named: dict[str, Any], kind: str
) -> None:
    both = []
    for library, module in ((Tensor, own_of), (torch, theirs_of)):
        has_all = bool(ALL_HAVE_GRADIENTS.search(name))
        has_any = name != "native_channel_shuffle"  # which has none there
        values = [
            made(value, library, kind, has_all or (has_any and not place))
            for place, value in enumerate(given)
        ]
        options = {key: made(value, library, kind, has_all) for key, value in named.items()}
        if library is torch and name == "ctc_loss":
            values[2:] = [torch.tensor(value) for value in values[2:]]
        found = results(getattr(module, name)(*values, **options))
        if "float" in str(found[0].dtype) and not (library is torch and not found[0].requires_grad):
            # Weights, so that a constant sum has gradients too.
            size = int(np.prod(found[0].shape))
            spread = np.sin(np.arange(size)).reshape(found[0].shape).astype(kind)
            factor = Tensor(spread) if library is Tensor else torch.from_numpy(spread)
            (found[0] * factor).sum().backward()
        both.append((values, found))
    (own_values, own), (their_values, theirs) = both
    tolerance = 3e-5 if kind == "float32" else 1e-9
    for a, b in zip(own, theirs, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        assert a.dtype.name == str(b.dtype).removeprefix("torch.")
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), tolerance, tolerance)
    for a, b in zip(own_values, their_values, strict=True):
        if isinstance(b, torch.Tensor) and b.grad is not None:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 2 * tolerance, 2 * tolerance)


@pytest.mark.parametrize(("name", "given", "named"), SINGLE, ids=[row[0] for row in SINGLE])
def test_functions_of_elements_keep_nan_infinity_and_signs(
    name: str, given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    array = EDGES.astype("float32")
    own = getattr(own_of, name)(Tensor(array), *given, **named).numpy()
    exact = getattr(theirs_of, name)(torch.from_numpy(array).double(), *given, **named).numpy()
    np.testing.assert_allclose(own, exact.astype("float32"), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize(("name", "given", "named"), SINGLE, ids=[row[0] for row in SINGLE])
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), ()])
def test_functions_of_elements_take_no_elements_and_one(
    name: str, given: tuple[Any, ...], named: dict[str, Any], shape: tuple[int, ...]
) -> None:
    own = getattr(own_of, name)(Tensor.ones(*shape), *given, **named).numpy()
    theirs = getattr(theirs_of, name)(torch.ones(shape), *given, **named).numpy()
    np.testing.assert_allclose(own, theirs, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling_undoes_pooling_as_pytorch_does(n: int) -> None:
    x = BY_AXES[n].astype("float32")
    pooled, places = getattr(own_of, f"max_pool{n}d")(Tensor(x), 2, return_indices=True)
    theirs, indices = getattr(theirs_of, f"max_pool{n}d")(
        torch.from_numpy(x), 2, return_indices=True
    )
    size = x.shape[2:]
    found = getattr(own_of, f"max_unpool{n}d")(pooled, places, 2, output_size=size)
    expected = getattr(theirs_of, f"max_unpool{n}d")(theirs, indices, 2, output_size=size)
    np.testing.assert_allclose(found.numpy(), expected.numpy())


# --- signatures ----------------------------------------------------------------------------------

#: Parameters of PyTorch's that are not here: deprecated, internal, ...
DROPPED = {"size_average", "reduce", "_stacklevel"}
#: ... ignored there, or for values that are not new.
IGNORED = {"gumbel_softmax": {"eps"}, "normalize": {"out"}}


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    signature = inspect.signature(function)
    return {each.name: each.default for each in signature.parameters.values()}


def parameters_there(name: str) -> dict[str, Any]:
    """From the signature, or from the first line of the text that says it."""
    function = getattr(theirs_of, f"{name}_with_indices", None) or getattr(theirs_of, name)
    try:
        found = parameters_of(function)
    except ValueError:
        text = re.sub(r"\s+", " ", (function.__doc__ or "").strip())
        inside = text[text.index("(") + 1 : text.index(") ->")]
        found = {}
        for part in re.split(r", (?=[a-z_0-9]+(?:=|,|$| =))", inside.replace("*, ", "")):
            key, _, value = part.partition("=")
            default = eval(value.strip(), {}) if value else inspect.Parameter.empty
            found[key.strip()] = default
    dropped = DROPPED | IGNORED.get(name, set())
    return {key: value for key, value in found.items() if key not in dropped}


@pytest.mark.parametrize("name", own_of.__all__)
def test_arguments_are_pytorchs(name: str) -> None:
    own, theirs = parameters_of(getattr(own_of, name)), parameters_there(name)
    assert list(own) == list(theirs)
    assert {key: value for key, value in own.items() if value != theirs[key]} == {}


# --- what is random, in place, or wrong ----------------------------------------------------------


@pytest.mark.parametrize("name", sorted(DRAWN - {"fractional_max_pool2d", "fractional_max_pool3d",
                                                 "gumbel_softmax"}))  # fmt: skip
def test_dropout_is_on_when_it_is_told_so(name: str) -> None:
    x = Tensor.ones(4, 8, 5, 5, 5)
    if name == "dropout1d":
        x = x[:, :, :, 0, 0]
    if name == "dropout2d":
        x = x[:, :, :, :, 0]
    function = getattr(own_of, name)
    assert not function(x, 0.5, training=True).eq(1.0).all().item()
    assert function(x, 0.5, training=False).eq(1.0).all().item()


def test_alpha_dropout_of_features_drops_whole_channels() -> None:
    Tensor.manual_seed(3)
    x = Tensor.randn(64, 32, 4)
    found = own_of.feature_alpha_dropout(x, 0.5, training=True).numpy()
    low = found.min(-1) == found.max(-1)
    assert 0.4 < low.mean() < 0.6
    np.testing.assert_allclose((found.mean(), found.std()), (0.0, 1.0), atol=0.1)


@pytest.mark.parametrize("name", ["relu", "elu", "hardtanh", "leaky_relu", "selu", "silu"])
def test_in_place_writes_into_the_input(name: str) -> None:
    x = Tensor([-2.0, 3.0]).clone()
    expected = getattr(own_of, name)(x).tolist()
    assert getattr(own_of, name)(x, inplace=True) is x
    assert x.tolist() == expected


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_names_that_end_in_an_underscore_write_into_the_input(name: str) -> None:
    given = (0.5, 7.0) if name == "threshold_" else ()
    x, theirs = Tensor([-2.0, 3.0]).clone(), torch.tensor([-2.0, 3.0])
    assert getattr(own_of, name)(x, *given) is x
    np.testing.assert_allclose(x.numpy(), getattr(theirs_of, name)(theirs, *given), rtol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_statistics_run_along_as_in_pytorch(training: bool) -> None:
    stats = [np.zeros(4, "float32"), np.ones(4, "float32")]
    own: Any = [Tensor(each) for each in stats]
    theirs: Any = [torch.tensor(each) for each in stats]
    x = IMAGES.astype("float32")
    own_of.batch_norm(Tensor(x), own[0], own[1], training=training, momentum=0.3)
    theirs_of.batch_norm(torch.tensor(x), theirs[0], theirs[1], training=training, momentum=0.3)
    own_of.instance_norm(Tensor(x), own[0], own[1], momentum=0.2)
    theirs_of.instance_norm(torch.tensor(x), theirs[0], theirs[1], momentum=0.2)
    for a, b in zip(own, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_long_rows_of_a_table_are_shortened_in_the_table() -> None:
    table = TABLE.astype("float32")
    own, theirs = Tensor(table), torch.tensor(table)
    own_of.embedding(Tensor(CLASSES), own, max_norm=0.5)
    theirs_of.embedding(torch.tensor(CLASSES), theirs, max_norm=0.5)
    np.testing.assert_allclose(own.numpy(), theirs.numpy(), rtol=1e-5)


def test_frequent_rows_of_bags_learn_slower() -> None:
    idx = Tensor([[0, 2], [1, 1]])
    tables = [Tensor(TABLE.astype("float32"), requires_grad=True) for _ in range(2)]
    own_of.embedding_bag(idx, tables[0], mode="sum", scale_grad_by_freq=True).sum().backward()
    own_of.embedding(idx, tables[1], scale_grad_by_freq=True).sum().backward()
    found = [each.grad.tolist() for each in tables if each.grad is not None]
    assert found[0] == found[1] == [[1.0] * 3] * 3 + [[0.0] * 3] * 4


def test_attention_drops_whenever_it_is_told_to() -> None:
    x = Tensor.ones(1, 1, 8, 8)
    found = own_of.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    assert not found.eq(1.0).all().item()


def test_a_softmax_without_an_axis_warns() -> None:
    with pytest.warns(TileworkWarning, match="takes axis 1 of 2"):
        own_of.softmax(Tensor([[1.0, 1.0]]))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: own_of.linear(Tensor.ones(3), Tensor.ones(2, 4)), ShapeError, "last axis"),
        (lambda: own_of.conv2d(Tensor.ones(2, 2), Tensor.ones(2, 2, 1, 1)), ShapeError, "axes"),
        (
            lambda: own_of.conv1d(Tensor.ones(1, 1, 4), Tensor.ones(1, 1, 2), None, 2, "same"),
            UserError,
            "needs stride 1",
        ),
        (lambda: own_of.one_hot(Tensor([3]), 2), UserError, "out of range"),
        (lambda: own_of.one_hot(Tensor([-1])), UserError, "out of range"),
        (lambda: own_of.one_hot(Tensor([0])[:0]), UserError, "how many classes"),
        (lambda: own_of.embedding(Tensor([0]), Tensor.ones(2, 2), 2), UserError, "padding_idx"),
        (
            lambda: own_of.batch_norm(Tensor.ones(1, 2), None, None, training=True),
            ShapeError,
            "several elements",
        ),
        (
            lambda: own_of.batch_norm(Tensor.ones(1, 2), None, None),
            UserError,
            "no running statistics",
        ),
        (lambda: own_of.rms_norm(Tensor.ones(2, 3), (2,)), ShapeError, "other sizes"),
        (
            lambda: own_of.mse_loss(Tensor.ones(2), Tensor.ones(2), reduction="most"),
            UserError,
            "unknown reduction",
        ),
        (lambda: own_of.interpolate(Tensor.ones(2), 3), ShapeError, "needs"),
    ],
)
def test_wrong_calls_say_what_is_wrong(
    call: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()
