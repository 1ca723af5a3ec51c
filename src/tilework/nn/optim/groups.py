"""Groups of parameters: one optimizer with arguments of its own for each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tilework.base.errors import DTypeError, UserError
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.nn.optim.optimizer import Optimizer

#: What a constructor takes: tensors, tensors with names, or groups.
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[Mapping[str, Any]]
#: The key of the rate before schedules changed it.
FIRST_RATE = "initial_lr"
#: Arguments that decide which state there is: they are given once.
_FIXED = frozenset({"adam", "amsgrad", "centered", "device", "fused", "history_size"})
#: Arguments of PyTorch's that say how it computes, and change nothing here.
_IDLE = frozenset({"foreach", "capturable", "fused"})
#: Arguments that are never below 0, by their names in all kinds.
_NEVER_NEGATIVE = frozenset({
    "alpha", "eps", "initial_accumulator_value", "lambd", "lr_decay", "momentum_decay", "rho",
})  # fmt: skip
#: And those that are shares of old means besides.
_SHARES = frozenset({"rho"})
#: What a group may hold besides arguments.
_ALLOWED = frozenset({"name", "param_names", FIRST_RATE})


class Group(NamedTuple):
    """A group as it is given."""

    params: list[Tensor]
    options: dict[str, Any]
    extras: dict[str, Any]


class ParameterGroup(MutableMapping[str, Any]):
    """A view of one group: its parameters, the arguments that serve it, and what programs add.

    Args:
        part: the optimizer that serves the group.
    """

    def __init__(self, part: Optimizer) -> None:
        self._part = part

    def __getitem__(self, key: str) -> Any:
        """An argument as it is now; `lr` as a number."""
        part = self._part
        if key == "params":
            return [*part.params, *part.buffers]
        if key == "lr":
            return part.rate()
        return part._given[key] if key in part._given else part._extras[key]

    def __setitem__(self, key: str, value: Any) -> None:
        """Change an argument for the steps to come, or keep something with the group.

        Raises:
            UserError: the argument decides which state the optimizer has.
        """
        part = self._part
        if key == "params" or key in _FIXED:
            raise UserError(f"optimizer: `{key}` of a group is given once", got=value)
        if key == "lr":
            part.set_rate(float(value.item()) if isinstance(value, Tensor) else float(value))
        elif key not in part._given:
            part._extras[key] = value
        else:
            part._change(key, value)
            part._given[key] = value

    def load(self, key: str, value: Any) -> None:
        """Take an argument of another state over, where it is not the same already.

        Args:
            key: its name.
            value: what it has to be.
        """
        if self.get(key) != value:
            self[key] = value

    def __delitem__(self, key: str) -> None:
        """Forget what was kept with the group."""
        del self._part._extras[key]

    def __iter__(self) -> Iterator[str]:
        """The names: parameters, arguments, and what was added."""
        yield "params"
        yield from self._part._given
        yield from self._part._extras

    def __len__(self) -> int:
        """How many names there are."""
        return 1 + len(self._part._given) + len(self._part._extras)

    def __repr__(self) -> str:
        """Sizes of parameters and the other values."""
        sizes = [param.shape for param in self["params"]]
        return f"ParameterGroup({ {**self, 'params': sizes} })"

    @staticmethod
    def read(group: Mapping[str, Any], known: Mapping[str, Any], kind: str) -> Group:
        """A group as a program wrote it.

        Args:
            group: `params` and arguments.
            known: the arguments that there are.
            kind: the optimizer's name.

        Raises:
            UserError: there are no `params`, or an argument is unknown.
        """
        if "params" not in group:
            raise UserError(f"{kind}: a group has no `params`", got=sorted(group))
        params = group["params"]
        tensors = [params] if isinstance(params, Tensor) else tensors_of(params)
        if not tensors:
            raise UserError(f"{kind}: a group has no parameter")
        others = {key: value for key, value in group.items() if key != "params"}
        unknown = sorted(key for key in others if key not in known and key not in _ALLOWED)
        if unknown:
            raise UserError(
                f"{kind}: a group has unknown arguments",
                got=unknown,
                expected=", ".join(known),
                try_="what is no argument can be set on optimizer.param_groups[i] afterwards",
            )
        options = {key: value for key, value in others.items() if key in known}
        extras = {key: value for key, value in others.items() if key not in known}
        return Group(tensors, options, extras)


def tensors_of(params: Iterable[Any]) -> list[Tensor]:
    """Tensors, whether they are given with names or without.

    Raises:
        UserError: one is something else.
    """
    found = [each[1] if isinstance(each, tuple) and len(each) == 2 else each for each in params]
    for each in found:
        if not isinstance(each, Tensor):
            raise UserError(
                "optimizer: a parameter is no tensor", got=type(each).__name__, expected="Tensor"
            )
    return found


def taking_groups(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor of an optimizer that takes groups where `init` takes tensors.

    The outermost constructor of a class does this; those that it calls get tensors.
    """
    signature = inspect.signature(init)

    @functools.wraps(init)
    def made(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        if "_arguments" in self.__dict__:
            init(self, *args, **kwargs)
            return
        for name in _IDLE - signature.parameters.keys():
            kwargs.pop(name, None)
        if kwargs.pop("differentiable", False):
            raise UserError(
                f"{type(self).__name__}: a step is no part of a gradient",
                got="differentiable=True",
                try_="nn.func.grad of a loss, and arithmetic with parameters",
            )
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        own, params, *_ = bound.arguments
        options = {name: bound.arguments[name] for name in bound.arguments if name != own}
        given = options.pop(params)
        if not isinstance(given, Iterable):
            raise DTypeError(
                "optimizer: these are no parameters",
                got=type(given).__name__,
                expected="tensors, or groups of them",
                try_="nn.state.get_parameters(layer) for those of a layer",
            )
        listed: list[Any] = [given] if isinstance(given, Tensor) else list(given)
        is_grouped = bool(listed) and isinstance(listed[0], Mapping)
        groups: list[Any] = listed[1:] if is_grouped else []
        if isinstance(options.get("lr"), Tensor):
            options["lr"] = float(options["lr"].item())
        self.defaults.update(options)
        self._given.update(options)
        if is_grouped:
            group = ParameterGroup.read(listed[0], options, type(self).__name__)
        else:
            group = Group(tensors_of(listed), {}, {})
        self._given.update(group.options)
        self._extras.update(group.extras)
        _check_ranges(type(self).__name__, self._given)
        init(self, group.params, **self._given)
        for other in groups:
            self.add_param_group(other)
        if not any(part.params for part in self.parts):
            raise UserError("optimizer: there is no parameter to change")

    return made


def _check_ranges(kind: str, given: Mapping[str, Any]) -> None:
    """See that numbers that an optimizer is given can be meant.

    Raises:
        UserError: one is below 0, or a share is above 1.
    """
    for name in _NEVER_NEGATIVE & given.keys():
        parts = given[name] if isinstance(given[name], tuple | list) else (given[name],)
        numbers = [part for part in parts if isinstance(part, int | float)]
        if not all(number >= 0 for number in numbers):  # nor is NaN
            raise UserError(
                f"{kind}: {name} is no number from 0 on", got=given[name], expected="0 or more"
            )
        if name in _SHARES and any(number > 1 for number in numbers):
            raise UserError(
                f"{kind}: {name} is above 1", got=given[name], expected="a number from 0 to 1"
            )
