"""Functions that a model brings itself: their calls fit them, and none is part of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import ModelFileError

if TYPE_CHECKING:
    from tilework.frontends.onnx.graph import Function, FunctionKey, Model, Node


def check_functions(model: Model) -> None:
    """Refuse functions that lack an output or call themselves, and calls that do not fit theirs.

    Raises:
        ModelFileError: names the output, the call and what its function takes, or the circle.
    """
    for node in model.all_nodes():
        function = model.functions.get(node.key)
        if function is not None:
            _check_call(node, function)
    done: set[FunctionKey] = set()
    for key, function in model.functions.items():
        _check_outputs(function)
        _check_circle(model, key, (), done)


def _check_outputs(function: Function) -> None:
    produced = set(function.inputs).union(*(node.outputs for node in function.nodes))
    lost = [name for name in function.outputs if name not in produced]
    if lost:
        raise ModelFileError(
            f"onnx: function {function.name!r} lists an output that nothing computes", got=lost[0]
        )


def _check_call(node: Node, function: Function) -> None:
    for what, given, taken in (
        ("inputs", node.inputs, function.inputs),
        ("outputs", node.outputs, function.outputs),
    ):
        if len(given) > len(taken):
            raise ModelFileError(
                f"onnx: {node} has too many {what}",
                got=len(given),
                expected=f"at most {len(taken)}, as function {function} has",
            )


def _check_circle(
    model: Model, key: FunctionKey, callers: tuple[FunctionKey, ...], done: set[FunctionKey]
) -> None:
    if key in callers:
        circle = (*callers[callers.index(key) :], key)
        raise ModelFileError(
            "onnx: a function is part of itself",
            got=" calls ".join(str(model.functions[each]) for each in circle),
        )
    if key in done:
        return
    for node in model.functions[key].all_nodes():
        if node.key in model.functions:
            _check_circle(model, node.key, (*callers, key), done)
    done.add(key)
