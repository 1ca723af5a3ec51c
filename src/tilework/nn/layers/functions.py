"""Layers without parameters under PyTorch's names: a method of tensors with its options.

Each is a row: the method, and for each option its name here, its name there and its default.  A
row makes a class, whose objects keep the options and apply the method.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from tilework.base.errors import DTypeError, UserError
from tilework.nn.functional.activations import chosen_axis
from tilework.nn.functional.pooling import check_padding
from tilework.tensor.tensor import Tensor
from tilework.tensor.wrong_calls import REFUSALS, blamed, check_values, describe

_NEEDED: Final = object()


class FunctionLayer:
    """A method of tensors with options that were given before.

    Example:
        >>> from tilework.nn import LeakyReLU
        >>> LeakyReLU(0.5)(Tensor([-2.0, 1.0])).tolist()
        [-1.0, 1.0]
    """

    method: ClassVar[str]
    #: Name of the option there -> its name as an argument of the method, and its default.
    options: ClassVar[dict[str, tuple[str, Any]]]
    #: Arguments that are always the same.
    fixed: ClassVar[dict[str, Any]]
    #: Whether `inplace=True` makes the layer write into its input.
    may_be_in_place: ClassVar[bool] = False

    def __init__(self, *given: Any, **named: Any) -> None:
        kind = type(self).__name__
        names = [*self.options, *(["inplace"] if self.may_be_in_place else [])]
        if len(given) > len(names):
            raise UserError(
                f"{kind}: there are too many arguments",
                got=given,
                expected=", ".join(names) or "none",
            )
        found = dict(zip(names, given, strict=False))
        if wrong := (named.keys() - set(names)) | (named.keys() & found.keys()):
            raise UserError(
                f"{kind}: an argument is unknown, or given twice",
                got=", ".join(sorted(wrong)),
                expected=", ".join(names) or "none",
            )
        found |= named
        self.inplace = bool(found.pop("inplace", False))
        self.arguments: dict[str, Any] = {}
        for name, (own, default) in self.options.items():
            value = found.get(name, default)
            if value is _NEEDED:
                raise UserError(f"{kind}: {name} is missing", got=found, expected=name)
            self.arguments[own] = value
        kept = dict(self.arguments)
        if self.method == "pad" and isinstance(kept["padding"], int):
            del kept["padding"]  # one number for all sides, which the call makes of it
        check_values(getattr(Tensor, self.method), kind, kept)
        if self.method.startswith(("max_pool", "avg_pool")):
            window = ("kernel_size", "padding", "dilation")
            axes = int(self.method[-2])  # max_pool2d
            check_padding(kind, axes, *[self.arguments.get(each, 1) for each in window])

    def __call__(self, x: Tensor, *others: Any) -> Any:
        """Apply the layer; `others` are what its method takes first, such as a target."""
        arguments = self.arguments
        if arguments.get("axis", 0) is None:
            arguments = arguments | {"axis": chosen_axis(x)}
        if self.method == "interpolate":
            # One number stands for all axes behind the channels; to the method, for the last one.
            each = {name: arguments[name] for name in ("size", "scale_factor")}
            numbers = {
                k: (v,) * (x.ndim - 2) for k, v in each.items() if isinstance(v, int | float)
            }
            arguments = arguments | numbers
        method = getattr(type(x), self.method, None)
        if method is None:
            raise DTypeError(
                f"{type(self).__name__}: this is no tensor", got=describe(x), expected="a tensor"
            )
        try:
            found = method(x, *others, **self.fixed, **arguments)
        except REFUSALS as error:
            wrong = blamed(error, method, (x, *others), {**self.fixed, **arguments})
            if wrong is None:
                raise
            raise wrong from None
        return x.assign(found) if self.inplace else found

    def __repr__(self) -> str:
        """The name and the options."""
        shown = [f"{name}={value!r}" for name, value in self.arguments.items()]
        return f"{type(self).__name__}({', '.join(shown)})"


class Identity:
    """Gives what it gets; all arguments are ignored."""

    def __init__(self, *given: Any, **named: Any) -> None: ...

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x


class Sequential(list[Any]):
    """Layers one after the other; a list of them.

    Example:
        >>> from tilework.nn import ReLU
        >>> Sequential(ReLU(), Tensor.neg)(Tensor([-1.0, 2.0])).tolist()
        [-0.0, -2.0]
    """

    def __init__(self, *layers: Any) -> None:
        is_one = len(layers) == 1 and isinstance(layers[0], Iterable)
        super().__init__(layers[0] if is_one else layers)
        if wrong := [each for each in self if not callable(each)]:
            raise DTypeError(
                "Sequential: this cannot be called", got=describe(wrong[0]), expected="layers"
            )

    def __call__(self, x: Tensor) -> Tensor:
        """Apply all layers."""
        return x.sequential(list(self))


ModuleList = list
ModuleDict = dict


def _layer(name: str, method: str, fixed: dict[str, Any] | None = None, **options: Any) -> Any:
    """The class of a row; an option is its default, or (name of the argument, default)."""
    read = {key: each if isinstance(each, tuple) else (key, each) for key, each in options.items()}
    first = (getattr(Tensor, method).__doc__ or "").strip().split("\n")[0]
    members = {
        "method": method,
        "options": read,
        "fixed": fixed or {},
        "may_be_in_place": name in _IN_PLACE,
        "__doc__": f"`Tensor.{method}` as a layer.  {first}",
        "__module__": __name__,
    }
    return type(name, (FunctionLayer,), members)


_IN_PLACE: Final = {
    "AlphaDropout", "CELU", "Dropout1d", "Dropout2d", "Dropout3d", "ELU", "FeatureAlphaDropout",
    "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "Mish", "RReLU", "ReLU", "ReLU6", "SELU",
    "SiLU", "Threshold",
}  # fmt: skip

_WEIGHED: Final = {"weight": None, "reduction": "mean"}
_POOL: Final = {"kernel_size": _NEEDED, "stride": None, "padding": 0}
_RATE: Final = {"p": 0.5}

_ROWS: Final[tuple[Any, ...]] = (
    ("ReLU", "relu", {}),
    ("ReLU6", "relu6", {}),
    ("GELU", "gelu", {"approximate": "none"}),
    ("SiLU", "silu", {}),
    ("Mish", "mish", {}),
    ("Sigmoid", "sigmoid", {}),
    ("Tanh", "tanh", {}),
    ("LogSigmoid", "logsigmoid", {}),
    ("Softplus", "softplus", {"beta": 1.0, "threshold": 20.0}),
    ("ELU", "elu", {"alpha": 1.0}),
    ("CELU", "celu", {"alpha": 1.0}),
    ("SELU", "selu", {}),
    ("LeakyReLU", "leaky_relu", {"negative_slope": ("neg_slope", 0.01)}),
    ("RReLU", "rrelu", {"lower": 1 / 8, "upper": 1 / 3}),
    ("Hardswish", "hardswish", {}),
    ("Hardsigmoid", "hardsigmoid", {}),
    ("Hardtanh", "hardtanh", {"min_val": -1.0, "max_val": 1.0}),
    ("Softsign", "softsign", {}),
    ("Tanhshrink", "tanhshrink", {}),
    ("Hardshrink", "hardshrink", {"lambd": 0.5}),
    ("Softshrink", "softshrink", {"lambd": 0.5}),
    ("Threshold", "threshold", {"threshold": _NEEDED, "value": _NEEDED}),
    ("Softmax", "softmax", {"dim": ("axis", None)}),
    ("LogSoftmax", "log_softmax", {"dim": ("axis", None)}),
    ("Softmin", "softmin", {"dim": ("axis", None)}),
    ("GLU", "glu", {"dim": -1}),
    ("AlphaDropout", "alpha_dropout", _RATE),
    ("FeatureAlphaDropout", "feature_alpha_dropout", _RATE),
    ("Dropout1d", "dropout1d", _RATE),
    ("Dropout2d", "dropout2d", _RATE),
    ("Dropout3d", "dropout3d", _RATE),
    ("Flatten", "flatten", {"start_dim": 1, "end_dim": -1}),
    ("Unflatten", "unflatten", {"dim": _NEEDED, "unflattened_size": ("sizes", _NEEDED)}),
    *[
        (f"MaxPool{n}d", f"max_pool{n}d",
         {**_POOL, "dilation": 1, "return_indices": False, "ceil_mode": False})
        for n in (1, 2, 3)
    ],
    *[
        (f"AvgPool{n}d", f"avg_pool{n}d",
         {**_POOL, "ceil_mode": False, "count_include_pad": True,
          **({"divisor_override": None} if n > 1 else {})})
        for n in (1, 2, 3)
    ],
    *[
        (f"AdaptiveAvgPool{n}d", f"adaptive_avg_pool{n}d", {"output_size": _NEEDED})
        for n in (1, 2, 3)
    ],
    *[
        (f"AdaptiveMaxPool{n}d", f"adaptive_max_pool{n}d",
         {"output_size": _NEEDED, "return_indices": False})
        for n in (1, 2, 3)
    ],
    *[
        (f"LPPool{n}d", f"lp_pool{n}d",
         {"norm_type": _NEEDED, "kernel_size": _NEEDED, "stride": None, "ceil_mode": False})
        for n in (1, 2, 3)
    ],
    *[
        (f"FractionalMaxPool{n}d", f"fractional_max_pool{n}d",
         {"kernel_size": _NEEDED, "output_size": None, "output_ratio": None,
          "return_indices": False, "_random_samples": None})
        for n in (2, 3)
    ],
    *[(f"MaxUnpool{n}d", f"max_unpool{n}d", _POOL) for n in (1, 2, 3)],
    *[
        (f"{kind}Pad{n}d", "pad", {"padding": _NEEDED} | extra, {"mode": mode})
        for kind, mode, extra in (
            ("Zero", "constant", {}), ("Constant", "constant", {"value": _NEEDED}),
            ("Reflection", "reflect", {}), ("Replication", "replicate", {}),
            ("Circular", "circular", {}),
        )
        for n in (1, 2, 3)
    ],
    ("Upsample", "interpolate",
     {"size": None, "scale_factor": None, "mode": "nearest", "align_corners": None,
      "recompute_scale_factor": None}),
    ("UpsamplingNearest2d", "interpolate", {"size": None, "scale_factor": None},
     {"mode": "nearest"}),
    ("UpsamplingBilinear2d", "interpolate", {"size": None, "scale_factor": None},
     {"mode": "bilinear", "align_corners": True}),
    ("Softmax2d", "softmax", {}, {"axis": -3}),
    ("PixelShuffle", "pixel_shuffle", {"upscale_factor": _NEEDED}),
    ("PixelUnshuffle", "pixel_unshuffle", {"downscale_factor": _NEEDED}),
    ("ChannelShuffle", "channel_shuffle", {"groups": _NEEDED}),
    ("Unfold", "im2col", {"kernel_size": _NEEDED, "dilation": 1, "padding": 0, "stride": 1}),
    ("Fold", "fold",
     {"output_size": _NEEDED, "kernel_size": _NEEDED, "dilation": 1, "padding": 0,
      "stride": 1}),
    ("LocalResponseNorm", "local_response_norm",
     {"size": _NEEDED, "alpha": 1e-4, "beta": 0.75, "k": 1.0}),
    ("CosineSimilarity", "cosine_similarity", {"dim": 1, "eps": 1e-8}),
    ("PairwiseDistance", "pairwise_distance", {"p": 2.0, "eps": 1e-6, "keepdim": False}),
    ("L1Loss", "l1_loss", {"reduction": "mean"}),
    ("MSELoss", "mse_loss", {"reduction": "mean"}),
    ("CrossEntropyLoss", "cross_entropy",
     {"weight": None, "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}),
    ("NLLLoss", "nll_loss", {"weight": None, "ignore_index": -100, "reduction": "mean"}),
    ("BCELoss", "binary_crossentropy", _WEIGHED),
    ("BCEWithLogitsLoss", "binary_crossentropy_logits", {**_WEIGHED, "pos_weight": None}),
    ("KLDivLoss", "kl_div", {"reduction": "mean", "log_target": False}),
    ("SmoothL1Loss", "smooth_l1_loss", {"reduction": "mean", "beta": 1.0}),
    ("HuberLoss", "huber_loss", {"reduction": "mean", "delta": 1.0}),
    ("SoftMarginLoss", "soft_margin_loss", {"reduction": "mean"}),
    ("HingeEmbeddingLoss", "hinge_embedding_loss", {"margin": 1.0, "reduction": "mean"}),
    ("CosineEmbeddingLoss", "cosine_embedding_loss", {"margin": 0.0, "reduction": "mean"}),
    ("MarginRankingLoss", "margin_ranking_loss", {"margin": 0.0, "reduction": "mean"}),
    ("TripletMarginLoss", "triplet_margin_loss",
     {"margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False, "reduction": "mean"}),
    ("TripletMarginWithDistanceLoss", "triplet_margin_with_distance_loss",
     {"distance_function": None, "margin": 1.0, "swap": False, "reduction": "mean"}),
    ("MultiMarginLoss", "multi_margin_loss",
     {"p": 1, "margin": 1.0, "weight": None, "reduction": "mean"}),
    ("MultiLabelMarginLoss", "multilabel_margin_loss", {"reduction": "mean"}),
    ("MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", _WEIGHED),
    ("PoissonNLLLoss", "poisson_nll_loss",
     {"log_input": True, "full": False, "eps": 1e-8, "reduction": "mean"}),
    ("GaussianNLLLoss", "gaussian_nll_loss",
     {"full": False, "eps": 1e-6, "reduction": "mean"}),
    ("CTCLoss", "ctc_loss", {"blank": 0, "reduction": "mean", "zero_infinity": False}),
)  # fmt: skip

#: All classes by name.
LAYERS: Final[dict[str, type[FunctionLayer]]] = {
    row[0]: _layer(row[0], row[1], *row[3:], **row[2]) for row in _ROWS
}
