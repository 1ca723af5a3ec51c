"""Layers, functions, optimizers and files, called with what they cannot take.

The tables are made from the packages themselves, so none is left out: each parameter in turn gets
things of other kinds and numbers out of range.  What is refused is refused by a typed error whose
traceback ends here; and what a constructor takes, the layer can be called with, or says why not.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilework
from tilework import Tensor, dtypes, nn
from tilework.base.errors import (
    FileAccessError,
    InternalError,
    MissingFileError,
    ShapeError,
    TileworkError,
)
from tilework.nn import functional

HUGE = 2**70
WRONG: tuple[Any, ...] = (
    None, "text", object(), -3, 0, 1.5, HUGE, float("nan"), [1, [2]], Tensor([1.0] * 7), b"bytes",
)  # fmt: skip

#: How often something is done: a huge number is no mistake, and not tried.
COUNTS = {
    "num_layers",
    "num_encoder_layers",
    "num_decoder_layers",
    "ns_steps",
    "n_power_iterations",
}


def wrong_values(name: str) -> tuple[Any, ...]:
    return tuple(value for value in WRONG if name not in COUNTS or value is not HUGE)


#: What a parameter of a name gets while another one is wrong.
SIZES: dict[str, Any] = {
    "num_groups": 2, "num_channels": 4, "num_features": 4, "in_channels": 4, "out_channels": 4,
    "in_features": 4, "out_features": 4, "in1_features": 4, "in2_features": 4, "embed_dim": 4,
    "num_heads": 2, "kernel_size": 2, "output_size": 2, "normalized_shape": 4, "input_size": 4,
    "hidden_size": 4, "d_model": 4, "nhead": 2, "num_embeddings": 4, "embedding_dim": 4,
    "vocab_size": 4, "embed_size": 4, "upscale_factor": 2, "downscale_factor": 2, "groups": 2,
    "size": 2, "padding": 1, "threshold": 0.5, "value": 1.0, "num_parameters": 1, "num_layers": 1,
    "unflattened_size": (2, 2), "dim": 1, "scale_factor": 2, "n_classes": 4, "cutoffs": [2],
}  # fmt: skip


def a_tensor() -> Tensor:
    return Tensor(np.arange(1, 33, dtype=np.float32).reshape(2, 4, 4) / 8)


def layer_names() -> list[str]:
    others = (nn.FunctionLayer, dict, list)  # `ModuleDict` and `ModuleList` are Python's own
    kinds = {name: getattr(nn, name) for name in nn.__all__}
    return [name for name, kind in kinds.items() if isinstance(kind, type) and kind not in others]


def parameters_of(function: Any) -> list[inspect.Parameter]:
    found = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each for each in found if each.kind not in kinds and each.name != "self"]


def options_of(kind: Any) -> dict[str, bool]:
    """The arguments of a layer, and whether they are needed."""
    if issubclass(kind, nn.FunctionLayer):
        needed = inspect.unwrap(nn.FunctionLayer.__init__).__globals__["_NEEDED"]
        return {name: default is needed for name, (_, default) in kind.options.items()}
    return {each.name: each.default is each.empty for each in parameters_of(kind)}


def error_of(call: Callable[[], Any]) -> TileworkError | None:
    """The typed error of a call; any other fails the test."""
    try:
        call()
    except TileworkError as error:
        found = error
    else:
        return None
    assert not isinstance(found, InternalError)
    assert found.got is not None or found.expected is not None or found.try_ is not None
    assert traceback.extract_tb(found.__traceback__)[-1].filename == __file__
    return found


def used(layer: Any) -> Any:
    """A layer called with tensors, as many as it needs."""
    call = type(layer).__call__
    count = sum(each.default is each.empty for each in parameters_of(call))
    return layer(*[a_tensor() for _ in range(count)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", layer_names())
def test_a_layer_refuses_what_it_cannot_take_by_a_typed_error(name: str) -> None:
    kind = getattr(nn, name)
    options = options_of(kind)
    usual = {key: SIZES.get(key, 2) for key, needed in options.items() if needed}
    for key in options:
        for value in wrong_values(key):
            made: list[Any] = []
            error_of(lambda made=made, key=key, value=value: made.append(  # type: ignore[misc]
                kind(**{**usual, key: value})
            ))  # fmt: skip
            if made and callable(made[0]):
                error_of(lambda made=made: used(made[0]))  # type: ignore[misc]


#: Arguments that layers know by another name too, which they tell.
TOLD_AS = {
    "negative_slope": "neg_slope", "dim": "axis", "unflattened_size": "sizes",
    "params": "parameters",
}  # fmt: skip


def check_refused(call: Callable[[], Any], key: str) -> None:
    """What no argument can be is refused, in words that name the argument."""
    error = error_of(call)
    assert error is not None, key
    assert key in str(error) or TOLD_AS.get(key, key) in str(error), (key, str(error))


@pytest.mark.parametrize("name", layer_names())
def test_a_layer_names_each_argument_that_it_cannot_take(name: str) -> None:
    kind = getattr(nn, name)
    options = options_of(kind)
    usual = {key: SIZES.get(key, 2) for key, needed in options.items() if needed}
    for key in usual.keys() & {"encoder_layer", "decoder_layer"}:
        usual[key] = getattr(nn, f"{name}Layer")(4, 2, 4)
    for key in options:
        check_refused(lambda key=key: kind(**{**usual, key: object()}), key)  # type: ignore[misc]


# --- functions -----------------------------------------------------------------------------------

TABLE = Tensor(np.arange(16, dtype=np.float32).reshape(4, 4))
PLACES = Tensor([[0, 1, 2, 3], [1, 1, 0, 0]])
GIVEN: dict[str, Any] = {
    "kernel_size": 2, "normalized_shape": (4,), "num_groups": 2, "output_size": 2, "p": 0.5,
    "weight": TABLE, "offsets": Tensor([0]), "running_mean": Tensor([0.0] * 4), "dim": 1,
    "running_var": Tensor([1.0] * 4), "threshold": 0.5, "value": 1.0, "dtype": dtypes.float32,
    "upscale_factor": 2, "downscale_factor": 2, "num_classes": 4, "norm_type": 2.0, "size": 2,
    "lower": 0.1, "upper": 0.3, "mode": "fan_in", "nonlinearity": "relu", "sparsity": 0.5,
    "val": 1.0, "max_norm": 1.0, "clip_value": 1.0, "groups": 2, "pad": (1, 1),
}  # fmt: skip
#: Functions that need more than a table can say; their own tests call them.
LEFT_OUT = {"one_hot"}


def public_functions() -> Iterator[tuple[str, Any]]:
    modules = {"functional": functional, "init": nn.init, "utils": nn.utils, "optim": nn.optim}
    modules |= {"utils.rnn": nn.utils.rnn}
    for place, module in modules.items():
        for name, member in sorted(vars(module).items()):
            is_own = getattr(member, "__module__", "").startswith("tilework.nn")
            if is_own and inspect.isfunction(member) and name[0] != "_" and name not in LEFT_OUT:
                yield f"{place}.{name}", member


FUNCTIONS = dict(public_functions())


def usual_value(parameter: inspect.Parameter) -> Any:
    if parameter.name in GIVEN:
        return GIVEN[parameter.name]
    if "int" in str(parameter.annotation) and "Tensor" not in str(parameter.annotation):
        return 2
    if parameter.name in ("indices", "target", "targets", "lengths"):
        return PLACES
    return a_tensor()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_refuses_what_it_cannot_take_by_a_typed_error(name: str) -> None:
    function = FUNCTIONS[name]
    parameters = parameters_of(function)
    for wrong in parameters:
        for value in wrong_values(wrong.name):
            given = {
                each.name: value if each is wrong else usual_value(each)
                for each in parameters
                if each is wrong or each.default is each.empty
            }
            error_of(lambda given=given: function(**given))  # type: ignore[misc]


#: Functions that a table with one value for each name cannot call.
NEED_MORE = {
    "functional.affine_grid", "functional.bilinear", "functional.conv1d", "functional.conv2d",
    "functional.conv3d", "functional.conv_transpose1d", "functional.conv_transpose2d",
    "functional.conv_transpose3d", "functional.cosine_embedding_loss", "functional.ctc_loss",
    "functional.dropout3d", "functional.embedding", "functional.embedding_bag", "functional.fold",
    "functional.fractional_max_pool2d", "functional.fractional_max_pool3d",
    "functional.grid_sample", "functional.interpolate", "functional.max_unpool1d",
    "functional.max_unpool2d", "functional.max_unpool3d", "functional.multi_margin_loss",
    "functional.multilabel_margin_loss", "functional.pdist", "functional.pixel_shuffle",
    "functional.scaled_dot_product_attention", "functional.upsample",
    "functional.upsample_bilinear", "functional.upsample_nearest", "init.eye_", "init.sparse_",
    "utils.fuse_conv_bn_eval", "utils.fuse_conv_bn_weights", "utils.fuse_linear_bn_eval",
    "utils.fuse_linear_bn_weights", "utils.remove_spectral_norm", "utils.remove_weight_norm",
    "utils.rnn.pack_padded_sequence", "utils.rnn.pad_packed_sequence", "utils.rnn.unpack_sequence",
    "utils.rnn.unpad_sequence", "utils.spectral_norm", "utils.vector_to_parameters",
    "utils.weight_norm",
}  # fmt: skip


def arguments_that_fit(name: str) -> dict[str, Any] | None:
    """What a function of a table can be called with; None where the tables do not have it."""
    needed = [each for each in parameters_of(FUNCTIONS[name]) if each.default is each.empty]
    for targets in (PLACES, a_tensor(), TABLE):
        given = {each.name: usual_value(each) for each in needed}
        given |= dict.fromkeys(given.keys() & {"target", "targets", "input2"}, targets)
        if error_of(lambda given=given: FUNCTIONS[name](**given)) is None:  # type: ignore[misc]
            return given
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_cannot_take(name: str) -> None:
    function, usual = FUNCTIONS[name], arguments_that_fit(name)
    assert (usual is None) == (name in NEED_MORE)
    for wrong in parameters_of(function) if usual is not None else ():
        given = {**(usual or {}), wrong.name: object()}
        error = error_of(lambda given=given: function(**given))  # type: ignore[misc]
        if error is None:  # an option that plays no part in this call
            assert wrong.default is not wrong.empty
            continue
        said = str(error)
        assert any(word in said for word in (name.split(".")[-1], wrong.name, "object")), said


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_without_arguments_says_what_it_takes(name: str) -> None:
    error = error_of(FUNCTIONS[name])
    assert error is not None
    assert "missing a required argument" in error.message


# --- optimizers and schedules --------------------------------------------------------------------

OPTIMIZERS = [
    name
    for name in nn.optim.__all__
    if isinstance(getattr(nn.optim, name), type)
    and issubclass(getattr(nn.optim, name), nn.optim.Optimizer)
    and name != "Optimizer"
]
SCHEDULES: dict[str, dict[str, Any]] = {
    "ConstantLR": {}, "CosineAnnealingLR": {"T_max": 4}, "LinearLR": {}, "PolynomialLR": {},
    "CosineAnnealingWarmRestarts": {"T_0": 4}, "CosineWarmupLR": {"warmup": 2, "total": 4},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 0.2, "cycle_momentum": False},
    "ExponentialLR": {"gamma": 0.5}, "LambdaLR": {"lr_lambda": lambda step: 0.5},
    "MultiplicativeLR": {"lr_lambda": lambda step: 0.5},
    "MultiStepLR": {"milestones": [2]}, "OneCycleLR": {"max_lr": 0.1, "total_steps": 9},
    "ReduceLROnPlateau": {}, "StepLR": {"step_size": 2},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_refuses_what_it_cannot_take_by_a_typed_error(name: str) -> None:
    kind = getattr(nn.optim, name)
    for parameter in parameters_of(kind):
        for value in wrong_values(parameter.name):
            weight = Tensor([1.0, 2.0], requires_grad=True)
            made: list[Any] = []
            given = {"params": [weight], parameter.name: value}
            error_of(lambda given=given, made=made: made.append(kind(**given)))  # type: ignore[misc]
            if made and name != "LBFGS":
                weight.grad = Tensor([0.5, -0.5])
                error_of(lambda made=made: made[0].schedule_step())  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_refuses_what_it_cannot_take_by_a_typed_error(name: str) -> None:
    kind = getattr(nn.optim, name)
    for parameter in parameters_of(kind):
        for value in WRONG:
            optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
            made: list[Any] = []
            given = {"optimizer": optimizer, **SCHEDULES[name], parameter.name: value}
            error_of(lambda given=given, made=made: made.append(kind(**given)))  # type: ignore[misc]
            if made:
                rest = [1.0] if name == "ReduceLROnPlateau" else []
                error_of(lambda made=made, rest=rest: made[0].step(*rest))  # type: ignore[misc]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_names_each_argument_that_it_cannot_take(name: str) -> None:
    kind = getattr(nn.optim, name)
    for key in [each.name for each in parameters_of(kind)]:
        given = {"params": [Tensor([1.0], requires_grad=True)], key: object()}
        check_refused(lambda given=given: kind(**given), key)  # type: ignore[misc]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_names_each_argument_that_it_cannot_take(name: str) -> None:
    kind = getattr(nn.optim, name)
    for key in [each.name for each in parameters_of(kind)]:
        optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
        given = {"optimizer": optimizer, **SCHEDULES[name], key: object()}
        check_refused(lambda given=given: kind(**given), key)  # type: ignore[misc]


def test_an_unknown_argument_is_told_with_those_that_there_are() -> None:
    error = error_of(lambda: nn.optim.SGD([Tensor([1.0])], speed=3))  # type: ignore[call-arg]
    assert error is not None
    assert "speed" in error.message
    assert "momentum" in str(error.expected)


# --- files ---------------------------------------------------------------------------------------

READERS: dict[str, Callable[[Path], Any]] = {
    "safe_load": nn.state.safe_load,
    "torch_load": nn.state.torch_load,
    "gguf_load": nn.state.gguf_load,
    "load": tilework.load,
    "read_image": nn.media.read_image,
    "read_audio": nn.media.read_audio,
}


@pytest.mark.parametrize("name", READERS)
def test_a_folder_is_no_file(name: str, tmp_path: Path) -> None:
    error = error_of(lambda: READERS[name](tmp_path))
    assert isinstance(error, TileworkError)
    assert isinstance(error, FileAccessError) or name.startswith("read_")


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_not_there_is_told_by_its_path(name: str, tmp_path: Path) -> None:
    error = error_of(lambda: READERS[name](tmp_path / "none.bin"))
    assert isinstance(error, MissingFileError)
    assert str(tmp_path / "none.bin") in str(error)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content", [b"", b"abc", bytes(64), b"\xff" * 64])
def test_a_file_of_something_else_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    assert error_of(lambda: READERS[name](path)) is not None


@pytest.mark.parametrize(
    "given", [{"a": 3}, {3: Tensor([1.0])}, "text", None, [Tensor([1.0])], {"a": None}]
)
def test_what_is_no_dictionary_of_tensors_is_not_saved(given: Any, tmp_path: Path) -> None:
    assert error_of(lambda: nn.state.safe_save(given, tmp_path / "x.safetensors")) is not None
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    error = error_of(lambda: nn.state.safe_save({"a": Tensor([1.0])}, tmp_path / "folder"))
    assert isinstance(error, FileAccessError)
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


# --- single rules --------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_padding_of_more_than_half_a_window_is_refused(pool: str, axes: int) -> None:
    x = Tensor.ones(1, 2, *[6] * axes)
    function = getattr(functional, f"{pool}{axes}d")
    assert function(x, 3, padding=1).shape == (1, 2, *[2] * axes)
    assert isinstance(error_of(lambda: function(x, 3, padding=2)), ShapeError)
    layer = getattr(nn, f"{'Max' if pool[0] == 'm' else 'Avg'}Pool{axes}d")
    assert isinstance(error_of(lambda: layer(3, padding=2)), ShapeError)


def test_an_error_inside_of_a_users_layer_ends_at_that_layers_line() -> None:
    def own(x: Tensor) -> Tensor:
        return x.reshape(5, 5)

    with pytest.raises(ShapeError) as caught:
        nn.Sequential(nn.ReLU(), own)(a_tensor())
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "own"


def test_an_argument_by_its_further_name_is_checked_too() -> None:
    error = error_of(lambda: nn.Embedding(num_embeddings="many", embedding_dim=2))
    assert error is not None
    assert "vocab_size" in error.message
