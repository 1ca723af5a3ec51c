"""Captured functions in files: `export` writes one, `load` gives it back as a callable.

    export(step, "step.twx")                      # step: a jit that was called
    run = load("step.twx")                        # in a process without a compiler, too
    y = run(x)

What a file holds and how it is checked is `engine.export`'s affair.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import (
    CaptureError,
    ModelFileError,
    TileworkError,
    UnsupportedError,
    UserError,
)
from tilework.base.settings import Affects
from tilework.engine.device import Device
from tilework.engine.export import access_mode, read_export, write_export
from tilework.ir.node import Node
from tilework.ir.ops.memory import PARAM, ParamAttrs
from tilework.ir.text import format_node, parse
from tilework.tensor.core import TensorBase
from tilework.tensor.jit import Jit
from tilework.tensor.signature import (
    Branch,
    Leaf,
    Tree,
    first_difference,
    flatten_call,
    is_alike,
    joined,
    part_of,
    rebuild,
    value_difference,
)
from tilework.tensor.tensor import Tensor
from tilework.tensor.version import Chain, Storage, apply_chain, from_buffer, merge_bindings
from tilework.tensor.wrong_calls import tell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.engine.captured_program import CapturedProgram
    from tilework.ir.types import Type
    from tilework.runtime.buffer import Buffer

_SCALARS: Final = (bool, int, float, str, type(None))
#: What reading plain data of another form raises.
_MALFORMED: Final = (
    TileworkError, LookupError, TypeError, ValueError, AttributeError, RecursionError,
)  # fmt: skip


def export(
    function: Jit[..., Any],
    path: str | os.PathLike[str],
    *,
    names: Sequence[str] = (),
    portable: bool = False,
    key: bytes | None = None,
) -> None:
    """Write the capture that `function` used last to a file.

    The file holds machine code for this processor, the constants that the function holds, and the
    state that it writes, as it is now.  It runs where no compiler is installed.

    Args:
        function: a `jit` that was called at least once.
        path: the file; one that exists is replaced.
        names: names for the arguments, if all are tensors; the loaded function then takes them by
            keyword too.
        portable: write the graphs of the kernels in place of machine code, to be compiled by
            whichever processor loads the file; it then needs a compiler.
        key: signs the file, so that whoever loads it with the same key knows that it is yours and
            unchanged; at least 16 random bytes.

    Raises:
        CaptureError: nothing was captured, or the capture cannot be written down.
        UnsupportedError: it runs on a device whose programs cannot be exported.
        UserError: the names do not fit the arguments, or the key is too short.
    """
    if not isinstance(function, Jit):
        raise UserError("export: this is not a jit", got=type(function).__name__)
    captured = function.captured
    if captured is None:
        raise CaptureError(
            "export: nothing has been captured", field="captures", try_="call the function once"
        )
    recipe = captured.recipe
    if recipe.gradients:
        raise CaptureError(
            "export: the function gives tensors that it holds a gradient",
            field="gradients",
            got=f"{len(recipe.gradients)} tensors",
            try_="return loss.gradient(...) instead of calling backward()",
        )
    if recipe.pinned:
        raise CaptureError(
            "export: the function looks at the value of a variable",
            field="variables",
            got=recipe.pinned,
        )
    layouts = [spec.layout for spec in recipe.tensors] + [made.layout for made in recipe.made]
    if any(layout is not None for layout in layouts):
        raise UnsupportedError(
            "export: the function has arguments or results over several devices",
            try_="export what runs on one device: tensor.to(device)",
        )
    for held in recipe.held:
        if held.storage.version.buffer is not held.buffer:
            captured.check_surroundings(recipe.ambient)
            break
    if names and (len(names) != len(recipe.tensors) or not _is_flat(recipe.tree)):
        raise UserError(
            "export: names are for functions whose arguments are all tensors, one each",
            got=f"{len(names)} names, {len(recipe.tensors)} tensors",
        )
    labels = list(names) or [spec.name for spec in recipe.tensors]
    signature = {
        "names": list(names),
        "inputs": [
            {
                "name": label,
                "seen": format_node(apply_chain(_param(spec.base, spec.source), spec.chain)),
                "source": spec.source,
                "is_movable": spec.is_movable,
                "variables": list(spec.variables),
            }
            for label, spec in zip(labels, recipe.tensors, strict=True)
        ],
        "tree": _plain_tree(recipe.tree, "an argument"),
        "values": [_plain_value(value, "an argument") for value in recipe.values],
        "frozen": recipe.frozen,
        "made": [
            {"seen": format_node(_param_of(made.shape, made.dtype, number)),
             "variables": list(made.variables)}
            for number, made in enumerate(recipe.made)
        ],
        "outputs": [_plain_output(recipe, output) for output in recipe.outputs],
        "result": _plain_tree(recipe.result, "a result"),
        "result_values": [_plain_value(value, "a result") for value in recipe.result_values],
    }  # fmt: skip
    if recipe.variables:
        raise CaptureError("export: variables as arguments cannot be exported", field="variables")
    current = recipe.ambient[0]
    write_export(
        path,
        recipe.program,
        signature,
        dict(current.key(Affects.CODE)),
        accesses=access_mode(current),
        portable=portable,
        key=key,
    )


def _is_flat(tree: Tree) -> bool:
    """Whether a call has tensors alone, none of them by keyword."""
    return isinstance(tree, Branch) and not tree.keys and all(
        isinstance(item, Leaf) and item.kind == "tensor" for item in tree.items
    )  # fmt: skip


def load(path: str | os.PathLike[str], *, key: bytes | None = None) -> Exported:
    """Read an exported function.

    Args:
        path: a file that `export` has written.
        key: refuse the file unless it was signed with this key and is unchanged since.

    Returns:
        A callable that takes what the captured function took.

    Raises:
        ModelFileError: the file is no export, damaged, or not signed with `key`.
        UnsupportedError: this processor lacks what the code needs, or the code was made for an
            `fp_mode` that promises less than the one in force, or without the proofs that
            `prove_accesses` asks for.
        UserError: the key is too short.
    """
    program, signature = read_export(path, key=key)
    try:
        return Exported(program, signature)
    except ModelFileError:
        raise
    except _MALFORMED as error:
        raise ModelFileError("load: the signature in the file is malformed", got=error) from error


def _param(type_: Type, slot: int) -> Node:
    return _param_of(type_.shape, type_.dtype, slot)


def _param_of(shape: Any, dtype: Any, slot: int) -> Node:
    return PARAM(attrs=ParamAttrs(slot, shape, dtype, ""))


def _plain_tree(tree: Tree, what: str) -> list[Any]:
    if isinstance(tree, Leaf):
        if tree.kind == "variable":
            raise CaptureError(f"export: {what} is a variable", field=tree.name)
        return [tree.kind, tree.number, tree.name]
    if tree.kind not in (list, tuple, dict):
        raise CaptureError(
            f"export: {what} has a container that cannot be exported", got=tree.kind.__name__
        )
    keys = None if tree.keys is None else [_plain_value(key, what) for key in tree.keys]
    return [tree.kind.__name__, keys, [_plain_tree(item, what) for item in tree.items]]


def _plain_value(value: Any, what: str) -> Any:
    if type(value) not in _SCALARS:
        raise CaptureError(
            f"export: {what} is neither a tensor nor a plain value", got=type(value).__name__
        )
    return {"float": value.hex()} if isinstance(value, float) else value


def _plain_output(recipe: Any, output: Any) -> dict[str, Any]:
    chain = output.chain
    if output.kind == "made":
        made = recipe.made[output.number]
        base = _param_of(made.shape, made.dtype, output.number)
    elif output.kind in ("argument", "view"):
        spec = recipe.tensors[output.number]
        chain = spec.chain if output.kind == "argument" else output.chain
        base = _param(spec.base, output.number)
    elif output.kind == "seen":
        base = _param(recipe.tensors[output.number].type, output.number)
    else:
        raise CaptureError(
            "export: the function returns a tensor that it holds",
            field="result",
            try_="return a copy of it: tensor.clone()",
        )
    return {
        "kind": output.kind,
        "number": output.number,
        "seen": format_node(apply_chain(base, chain)),
        "variables": list(output.variables),
    }


def _read_seen(text: str) -> tuple[Type, Chain, Type]:
    """Return the base type, the chain of movement ops, and the type that is seen."""
    node = parse(text)
    chain: list[Any] = []
    top = node
    while top.op is not PARAM:
        chain.append((top.op, top.attrs))
        (top,) = top.src
    return top.type, tuple(reversed(chain)), node.type


def _read_tree(plain: list[Any]) -> Tree:
    if plain[0] in ("tensor", "value"):
        return Leaf(plain[0], int(plain[1]), str(plain[2]))
    kind = {"list": list, "tuple": tuple, "dict": dict}[plain[0]]
    keys = None if plain[1] is None else tuple(plain[1])
    return Branch(kind, keys, tuple(_read_tree(item) for item in plain[2]))


def _read_value(plain: Any) -> Any:
    return float.fromhex(plain["float"]) if isinstance(plain, dict) else plain


def _describe_call(tree: Tree) -> str:
    """How a function is called, for example `(tensor, list of 2, scale=value)`."""
    items = () if isinstance(tree, Leaf) else tree.items
    names = () if isinstance(tree, Leaf) or tree.keys is None else tree.keys
    texts = [
        item.kind if isinstance(item, Leaf) else f"{item.kind.__name__} of {len(item.items)}"
        for item in items
    ]
    first = len(texts) - len(names)
    named = [f"{name}={text}" for name, text in zip(names, texts[first:], strict=True)]
    return f"({', '.join([*texts[:first], *named])})"


def _describe_tensor(type_: Type, chain: Chain) -> str:
    sizes = ", ".join(map(str, type_.shape))
    view = ", a view by " + ", ".join(op.name.lower() for op, _ in chain) if chain else ""
    return f"{type_.dtype.name}[{sizes}]{view}"


class Exported:
    """A function from a file.  Thread-safe; state that it writes is its own."""

    def __init__(self, program: CapturedProgram, signature: Any) -> None:
        self._program = program
        self._tree = _read_tree(signature["tree"])
        self._values = [_read_value(value) for value in signature["values"]]
        self._frozen: dict[str, int] = dict(signature["frozen"])
        self._names = tuple([str(name) for name in signature.get("names", ())])
        self._inputs = [
            (str(row["name"]), int(row["source"]), bool(row["is_movable"]),
             *_read_seen(row["seen"]))
            for row in signature["inputs"]
        ]  # fmt: skip
        self._made = [_read_seen(row["seen"])[0] for row in signature["made"]]
        self._made_variables = [tuple(row["variables"]) for row in signature["made"]]
        self._outputs = [
            (str(row["kind"]), int(row["number"]), *_read_seen(row["seen"])[1:],
             tuple(row["variables"]))
            for row in signature["outputs"]
        ]  # fmt: skip
        self._result = _read_tree(signature["result"])
        self._result_values = [_read_value(value) for value in signature["result_values"]]
        if len(self._made) != len(program.outputs):
            raise ModelFileError("load: the file contradicts itself about its outputs")

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {seen}" for name, seen in self.inputs)
        return f"<Exported {_describe_call(self._tree)}; {inputs}>"

    @property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """Name and type of each tensor argument."""
        return tuple((name, _describe_tensor(seen, ())) for name, *_, seen in self._inputs)

    @property
    def arena_bytes(self) -> int:
        """Bytes of all intermediates together."""
        return self._program.arena_bytes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments like those of the capture, by name too where the file has names.

        Raises: CaptureError with the field that differs.
        """
        if kwargs and self._names:
            args, kwargs = self._in_order(args, kwargs), {}
        flat = flatten_call(args, kwargs)
        where = first_difference(self._tree, flat.tree)
        if where is not None:
            raise CaptureError(
                "load: the call differs from the captured one",
                field=where,
                got=_describe_call(flat.tree),
                expected=_describe_call(self._tree),
            )
        for now, then in zip(flat.values, self._values, strict=True):
            if value_difference(now, then) is not None:
                raise CaptureError(
                    "load: an argument has another value", field="value", got=now, expected=then
                )
        buffers = self._buffers(flat.tensors)
        bindings: list[Mapping[str, int] | None] = [self._frozen]
        for tensor in flat.tensors:
            bindings += (tensor._bindings, tensor._storage.version.bindings)
        values = merge_bindings(bindings, "load") or {}
        outputs = self._program.make_outputs()
        self._program.run(buffers, outputs, values)
        return self._wrap(flat.tensors, outputs, values)

    def _in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments by position."""
        wanted = self._names[len(args) :]
        for name in (*wanted, *kwargs):
            if name not in kwargs or name not in wanted:
                raise CaptureError(
                    "load: the call differs from the captured one",
                    field=name,
                    got=f"{len(args)} by position, {', '.join(kwargs)} by name",
                    expected=", ".join(self._names),
                )
        return (*args, *(kwargs[name] for name in wanted))

    def _buffers(self, tensors: Sequence[TensorBase]) -> list[Buffer]:
        found: dict[int, Buffer] = {}
        for row, tensor in zip(self._inputs, tensors, strict=True):
            name, source, is_movable, base, chain, seen = row
            tensor.realize()
            version = tensor._storage.version
            buffer = version.buffer
            if is_movable and (part := part_of(version.node.type, tensor._chain)) is not None:
                fits = part.rest == chain and is_alike(tensor._type, seen)
                buffer = None if buffer is None else part.within(buffer)
            else:
                fits = version.node.type is base and tensor._chain == chain
            if not fits:
                raise CaptureError(
                    f"load: {name} differs from the captured one",
                    field=name,
                    got=_describe_tensor(tensor._type, tensor._chain),
                    expected=_describe_tensor(seen, chain),
                    try_="give a tensor of this shape and dtype, or .contiguous() of it",
                )
            if not Device[version.device].is_host_memory or buffer is None:
                raise CaptureError(f"load: {name} is on another device", got=version.device)
            if found.setdefault(source, buffer).address != buffer.address:
                raise CaptureError(f"load: {name} was the same tensor as another one", field=name)
            if source in self._program.written and buffer.memory.is_readonly:
                raise CaptureError(f"load: {name} is written and cannot be", field=name)
        return [found[number] for number in range(self._program.num_inputs)]

    def _wrap(
        self, tensors: Sequence[TensorBase], outputs: list[Buffer], values: Mapping[str, int]
    ) -> Any:
        storages: list[Storage] = []
        for buffer, type_, names in zip(outputs, self._made, self._made_variables, strict=True):
            version = from_buffer(buffer, "CPU", type_.shape, type_.dtype)
            version.bindings = {name: values[name] for name in names} or None
            storages.append(Storage(version))

        def tensor_at(number: int) -> Any:
            kind, place, chain, seen, names = self._outputs[number]
            if kind == "argument":
                return tensors[place]
            if kind == "seen":
                chain = joined(tensors[place]._chain, chain)
            storage = storages[place] if kind == "made" else tensors[place]._storage
            bindings = {name: values[name] for name in names} or None
            return Tensor.__new__(Tensor)._set(storage, chain, seen, bindings)

        return rebuild(self._result, tensor_at, self._result_values)


tell(__name__, ("export", "load"))
