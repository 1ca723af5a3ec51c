"""Layers under PyTorch's names give what PyTorch's give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, nn
from tilework.base.errors import TileworkWarning, UserError
from tilework.nn.layers.functions import LAYERS
from tilework.nn.state import get_state_dict, load_state_dict

RANDOM = np.random.default_rng(4)
X = RANDOM.standard_normal((2, 4, 6)).astype(np.float32)
IMAGES = RANDOM.standard_normal((2, 4, 6, 6)).astype(np.float32)
VOLUMES = RANDOM.standard_normal((1, 2, 4, 5, 6)).astype(np.float32)
LOGITS = RANDOM.standard_normal((5, 3)).astype(np.float32)
CHANCES = (1 / (1 + np.exp(-LOGITS))).astype(np.float32)
SIGNS = np.where(LOGITS > 0, 1, -1).astype(np.float32)
CLASSES = np.array([0, 2, 1, 1, 0])
BY_AXES = {1: X, 2: IMAGES, 3: VOLUMES}

Row = tuple[tuple[Any, ...], dict[str, Any], tuple[np.ndarray[Any, Any], ...]]


def of(*inputs: Any, given: tuple[Any, ...] = (), **named: Any) -> Row:
    return given, named, inputs


ROWS: dict[str, Row] = {
    **{
        name: of(X)
        for name in ("ReLU", "ReLU6", "GELU", "SiLU", "Mish", "Sigmoid", "Tanh", "LogSigmoid",
                     "SELU", "Hardswish", "Hardsigmoid", "Softsign", "Tanhshrink")
    },
    "Softplus": of(X, beta=2.0),
    "ELU": of(X, alpha=0.5),
    "CELU": of(X, alpha=0.5),
    "LeakyReLU": of(X, given=(0.2,)),
    "Hardtanh": of(X, given=(-0.5, 0.5)),
    "Hardshrink": of(X, lambd=0.3),
    "Softshrink": of(X, lambd=0.3),
    "Threshold": of(X, given=(0.1, 20)),
    "Softmax": of(X, dim=1),
    "LogSoftmax": of(X, dim=-1),
    "Softmin": of(X, dim=1),
    "GLU": of(X, dim=1),
    "Flatten": of(IMAGES),
    "Unflatten": of(X, given=(1, (2, 2))),
    **{f"MaxPool{n}d": of(x, given=(2,), padding=1) for n, x in BY_AXES.items()},
    **{f"AvgPool{n}d": of(x, given=(2,), ceil_mode=True) for n, x in BY_AXES.items()},
    **{f"AdaptiveAvgPool{n}d": of(x, given=(3,)) for n, x in BY_AXES.items()},
    **{f"AdaptiveMaxPool{n}d": of(x, given=(3,)) for n, x in BY_AXES.items()},
    **{f"LPPool{n}d": of(np.abs(x), given=(2, 2)) for n, x in BY_AXES.items()},
    **{f"{kind}Pad{n}d": of(x, given=(1,) if kind != "Constant" else (1, 2.5))
       for n, x in BY_AXES.items()
       for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular")},
    "Upsample": of(IMAGES, scale_factor=2, mode="bilinear"),
    "UpsamplingNearest2d": of(IMAGES, size=(9, 12)),
    "UpsamplingBilinear2d": of(IMAGES, size=9),
    "Softmax2d": of(IMAGES),
    "PixelShuffle": of(IMAGES, given=(2,)),
    "PixelUnshuffle": of(IMAGES, given=(2,)),
    "ChannelShuffle": of(IMAGES, given=(2,)),
    "Unfold": of(IMAGES, given=((2, 3),)),
    "Fold": of(X, given=((3, 4), (2, 2))),
    "LocalResponseNorm": of(IMAGES, given=(3,)),
    "CosineSimilarity": of(X, X[:, ::-1].copy()),
    "PairwiseDistance": of(LOGITS, CHANCES),
    "L1Loss": of(LOGITS, CHANCES),
    "MSELoss": of(LOGITS, CHANCES, reduction="sum"),
    "CrossEntropyLoss": of(LOGITS, CLASSES, label_smoothing=0.1),
    "NLLLoss": of(LOGITS, CLASSES, ignore_index=1),
    "BCELoss": of(CHANCES, CHANCES[::-1].copy()),
    "BCEWithLogitsLoss": of(LOGITS, CHANCES),
    "KLDivLoss": of(LOGITS, CHANCES, reduction="batchmean"),
    "SmoothL1Loss": of(LOGITS, CHANCES, beta=0.5),
    "HuberLoss": of(LOGITS, CHANCES, delta=0.5),
    "SoftMarginLoss": of(LOGITS, SIGNS),
    "HingeEmbeddingLoss": of(LOGITS, SIGNS),
    "CosineEmbeddingLoss": of(LOGITS, CHANCES, SIGNS[:, 0].copy()),
    "MarginRankingLoss": of(LOGITS, CHANCES, SIGNS, margin=0.3),
    "TripletMarginLoss": of(LOGITS, CHANCES, SIGNS),
    "TripletMarginWithDistanceLoss": of(LOGITS, CHANCES, SIGNS),
    "MultiMarginLoss": of(LOGITS, CLASSES),
    "MultiLabelMarginLoss": of(LOGITS, np.array([[0, -1, 1]] * 5)),
    "MultiLabelSoftMarginLoss": of(LOGITS, (SIGNS > 0).astype(np.float32)),
    "PoissonNLLLoss": of(LOGITS, CHANCES, full=True),
    "GaussianNLLLoss": of(LOGITS, CHANCES, CHANCES + 0.1),
}  # fmt: skip
#: Layers that draw numbers, or take what another layer gives: their methods have tests.
OTHERS = {
    "RReLU", "AlphaDropout", "FeatureAlphaDropout",
    "Dropout1d", "Dropout2d", "Dropout3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d", "CTCLoss", "FractionalMaxPool2d", "FractionalMaxPool3d",
}  # fmt: skip


def tensors(make: Callable[..., Any], inputs: tuple[Any, ...]) -> list[Any]:
    return [make(np.ascontiguousarray(each)) for each in inputs]


@pytest.mark.parametrize("name", ROWS)
def test_a_layer_gives_what_pytorchs_gives(name: str) -> None:
    given, named, inputs = ROWS[name]
    ours = getattr(nn, name)(*given, **named)
    if name.endswith(("Pad1d", "Pad2d", "Pad3d")):
        ours.arguments["padding"] = (1,) * 2 * int(name[-2])
    want = getattr(torch.nn, name)(*given, **named)(*tensors(torch.tensor, inputs))
    found = ours(*tensors(Tensor, inputs))
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=2e-5, atol=2e-5)


def test_each_layer_without_parameters_is_compared() -> None:
    assert set(LAYERS) - set(ROWS) == OTHERS


def test_a_sequence_of_layers_has_pytorchs_names_of_weights() -> None:
    theirs = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.PReLU(4), torch.nn.Linear(4, 2)
    )
    ours = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.PReLU(4), nn.Linear(4, 2))
    state = {name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    assert set(get_state_dict(ours)) == set(state)
    load_state_dict(ours, state)
    want = theirs(torch.tensor(LOGITS)).detach().numpy()
    np.testing.assert_allclose(ours(Tensor(LOGITS)).numpy(), want, rtol=1e-5, atol=1e-6)


PARAMETRIC: dict[str, tuple[Callable[[Any], Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "Bilinear": (lambda kinds: kinds.Bilinear(3, 3, 2), (LOGITS, CHANCES)),
    "EmbeddingBag": (lambda kinds: kinds.EmbeddingBag(6, 3, mode="sum"), (CLASSES[None],)),
    "RNNCell": (lambda kinds: kinds.RNNCell(3, 3, nonlinearity="relu"), (LOGITS, CHANCES)),
    "encoder": (
        lambda kinds: kinds.TransformerEncoder(
            kinds.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), 2
        ),
        (X,),
    ),
    "decoder": (
        lambda kinds: kinds.TransformerDecoderLayer(6, 2, 8, dropout=0.0, batch_first=True),
        (X, X[:, 1:]),
    ),
    "decoder, norm first": (
        lambda kinds: kinds.TransformerDecoderLayer(
            6, 2, 8, dropout=0.0, batch_first=True, norm_first=True
        ),
        (X, X[:, 1:]),
    ),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", PARAMETRIC)
def test_a_layer_with_pytorchs_weights_gives_what_it_gives(name: str) -> None:
    make, inputs = PARAMETRIC[name]
    theirs, ours = make(torch.nn), make(nn)
    state = {key: Tensor(value.numpy()) for key, value in theirs.state_dict().items()}
    load_state_dict(ours, state)
    want = theirs(*tensors(torch.tensor, inputs)).detach().numpy()
    found = ours(*tensors(Tensor, inputs)).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: nn.ReLU(True, 1), "too many"),
        (lambda: nn.LeakyReLU(slope=1), "unknown"),
        (lambda: nn.LeakyReLU(1, negative_slope=1), "twice"),
        (lambda: nn.MaxPool2d(), "kernel_size is missing"),
        (lambda: nn.RNNCell(1, 1, nonlinearity="sin"), "nonlinearity"),
    ],
)
def test_wrong_options_are_named(call: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()


def test_a_layer_shows_its_options() -> None:
    assert repr(nn.LeakyReLU(0.5)) == "LeakyReLU(neg_slope=0.5)"
    x = Tensor([3])
    assert nn.Identity(5, a=1)(x) is x


def test_a_name_that_is_no_layer_is_refused() -> None:
    with pytest.raises(AttributeError, match="Relu"):
        _ = nn.Relu


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Softmin"])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 3, 4, 5)])
def test_a_softmax_without_an_axis_takes_pytorchs_and_says_so(
    name: str, shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    with pytest.warns(TileworkWarning, match="give dim"):
        found = getattr(nn, name)()(Tensor(x)).numpy()
    with pytest.warns(UserWarning, match="Implicit dimension"):
        wanted = getattr(torch.nn, name)()(torch.tensor(x)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
