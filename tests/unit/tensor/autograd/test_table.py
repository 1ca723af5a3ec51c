"""The table of gradients is complete."""

from tilework.ir.ops import OPS
from tilework.ir.stage import Stage
from tilework.tensor.autograd import tape
from tilework.tensor.autograd.table import NO_GRADIENT, RULES


def test_every_op_of_the_tensor_stage_has_a_gradient_or_a_reason_for_none() -> None:
    assert tape.backward is not None  # its import registers the rules
    ops = {op for op in OPS.values() if op.stages & Stage.TENSOR}
    registered = set(RULES) | set(NO_GRADIENT)
    kernels = {"stage", "mulacc"}
    assert {op.name for op in ops - registered} - kernels == set()


def test_no_op_has_both_a_gradient_and_a_reason_for_none() -> None:
    assert not set(RULES) & set(NO_GRADIENT)


def test_every_reason_is_a_sentence() -> None:
    assert all(len(reason.split()) > 1 for reason in NO_GRADIENT.values())
