"""The operator rules, one file per family.  Importing this package fills the table."""

from tilework.frontends.onnx.ops import (
    activation,
    control,
    convolution,
    generator,
    index,
    logic,
    math,
    microsoft,
    microsoft_attention,
    microsoft_norm,
    microsoft_quantised,
    microsoft_weights,
    norm,
    pool,
    quantise,
    recurrent,
    reduce,
    resize,
    sequence,
    shape,
    signal,
    vision,
)

__all__ = [
    "activation", "control", "convolution", "generator", "index", "logic", "math", "microsoft",
    "microsoft_attention", "microsoft_norm", "microsoft_quantised", "microsoft_weights", "norm",
    "pool", "quantise", "recurrent", "reduce", "resize", "sequence", "shape", "signal", "vision",
]  # fmt: skip
