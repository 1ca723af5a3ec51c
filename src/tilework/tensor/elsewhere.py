"""Names that PyTorch has in another place: what an error says of them.

`Tensor`, layers and the modules of the public API have few attributes of their own that PyTorch's
programs ask for in vain; each such error names what does the same here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

_MEMORY: Final = "a tensor says nothing of where its elements lie; x.numpy() gives them"
_PAIRS: Final = "x.max(dim) gives values alone, x.argmax(dim) places; sort and topk give pairs"
_HOOKS: Final = "loss.gradient(x) gives the gradient of any value on the way to the loss"
_SHAPE: Final = "a tensor keeps its shape; x.reshape(...) gives another one"

#: Of tensors.
OF_TENSORS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("data_ptr", "stride", "is_contiguous", "storage", "untyped_storage", "storage_offset",
         "pin_memory", "is_pinned", "share_memory_", "is_shared"), _MEMORY),
    **dict.fromkeys(("values", "indices"), _PAIRS),
    **dict.fromkeys(("register_hook", "retain_grad"), _HOOKS),
    **dict.fromkeys(("resize_", "as_strided_"), _SHAPE),
    "is_cuda": "x.device is the name of the device",
    "get_device": "x.device is the name of the device",
    "detach_": "x = x.detach()",
    "apply_": "tensor methods, which work on all elements at once",
}  # fmt: skip

_PARAMETERS: Final = "nn.state.get_parameters(layer)"
_NAMED: Final = "nn.state.get_state_dict(layer), a dictionary of names and tensors"
_MODE: Final = "Tensor.train() as a context, or Tensor.training = True: one switch for all layers"
_MOVE: Final = "for x in nn.state.get_parameters(layer): x.to_(device)"

#: Of layers, which are plain objects.
OF_LAYERS: Final[Mapping[str, str]] = {
    "parameters": _PARAMETERS,
    **dict.fromkeys(("named_parameters", "state_dict", "named_buffers", "buffers"), _NAMED),
    "load_state_dict": "nn.state.load_state_dict(layer, state)",
    **dict.fromkeys(("train", "eval"), _MODE),
    **dict.fromkeys(("to", "cuda", "cpu"), _MOVE),
    **dict.fromkeys(("half", "bfloat16", "double"), "x.replace(x.cast(dtype)) of each parameter"),
    "zero_grad": "the optimizer's zero_grad()",
    "forward": "layer(x)",
    **dict.fromkeys(
        ("children", "modules", "named_modules", "named_children", "apply"),
        "the attributes of the layer, which is a plain object: vars(layer)"),
    **dict.fromkeys(
        ("register_buffer", "register_parameter", "add_module"),
        "an attribute: layer.name = tensor"),
    **dict.fromkeys(
        ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"),
        "a function that calls the layer and looks at what it gives"),
}  # fmt: skip

_LAYER: Final = "a class with tensors in its attributes and __call__: layers are plain objects"

#: Of `tilework.nn`.
OF_NN: Final[Mapping[str, str]] = {
    "Module": _LAYER,
    "Parameter": "Tensor(..., requires_grad=True); optimizers ask for the gradients they need",
    "ParameterList": "a list of tensors",
    "ParameterDict": "a dictionary of tensors",
    "DataParallel": "x.shard_(devices, axis=0)",
    "SyncBatchNorm": "BatchNorm of a sharded batch",
}


def missing(what: str, name: str, known: Mapping[str, str]) -> AttributeError:
    """The error of an attribute that is not there, with what to write instead if that is known.

    Args:
        what: has no such attribute, in words such as "module 'tilework'".
        name: of the attribute.
        known: what to write, by name.
    """
    text = f"{what} has no attribute {name!r}"
    return AttributeError(f"{text}\n  try: {known[name]}" if name in known else text)


def explain_missing(kinds: Iterable[type], known: Mapping[str, str]) -> None:
    """Let objects of these classes say what to write for attributes that they do not have.

    Args:
        kinds: the classes; those of Python, and one with a `__getattr__`, are left alone.
        known: what to write, by name.
    """

    def absent(self: Any, name: str) -> Any:
        raise missing(f"{type(self).__name__!r} object", name, known)

    for kind in kinds:
        is_own = kind.__module__.startswith("tilework.")
        if is_own and not hasattr(kind, "__getattr__"):
            setattr(kind, "__getattr__", absent)  # noqa: B010  # not known to type checkers
