"""What PyTorch's users look for in `torch.nn.utils`: a door to modules that are named by topic."""

from __future__ import annotations

from tilework.nn.optim.clipping import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from tilework.nn.utils import parametrizations, parametrize, rnn
from tilework.nn.utils.fusing import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from tilework.nn.utils.parametrizations import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)
from tilework.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from tilework.tensor.wrong_calls import tell

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
    "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm",
    "parameters_to_vector", "parametrizations", "parametrize", "remove_spectral_norm",
    "remove_weight_norm", "rnn", "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip

tell(__name__, __all__)
