"""What optimizers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilework import dtypes
from tilework.base.errors import UserError
from tilework.engine.device import Device
from tilework.nn.optim.groups import FIRST_RATE, ParameterGroup, Params, taking_groups
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.dtypes import DType


class Optimizer:
    """Changes parameters by their gradients.

    A kind of optimizer says how one parameter steps (`_step`), and what it keeps for it (`_state`);
    the walk over the parameters, their gradients, weight decay and the writing are here.  Each
    group of parameters is served by an optimizer of its own: the first group by this one, the
    others by those in `further`.

    Args:
        params: tensors to change, or pairs of a name and a tensor; those that nobody has spoken for
            get requires_grad. Or groups: dictionaries with such `params`, and with arguments of the
            optimizer that are their own.
        lr: the learning rate.
        device: where the state lives; by default where the first parameter does.
        fused: accepted for programs that say it: all parameters change in one go anyway.
        weight_decay: of the parameter, added to its gradient.
        maximize: go along the gradient, not against it.

    Raises:
        UserError: there are no parameters, one is no float, or a number is negative.
    """

    #: Whether weight decay is added to the gradient; else the kind applies it itself.
    _decays_gradient = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor,
        device: str | None = None,
        fused: bool = False,
        *,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        rate = float(lr.item()) if isinstance(lr, Tensor) else float(lr)
        if rate < 0:
            raise UserError("optimizer: the learning rate is negative", got=rate)
        if isinstance(weight_decay, bool):
            raise UserError(
                "optimizer: the weight decay is no number",
                got=weight_decay,
                try_="what follows lr by name: its order differs between libraries",
            )
        if weight_decay < 0:
            raise UserError("optimizer: the weight decay is negative", got=weight_decay)
        given: dict[int, Tensor] = {id(param): param for param in params}  # type: ignore[misc]
        if not given:
            raise UserError("optimizer: there is no parameter to change")
        self.params = [param for param in given.values() if param.requires_grad is not False]
        self.buffers = [param for param in given.values() if param.requires_grad is False]
        for param in self.params:
            if param.requires_grad is None:
                param.requires_grad_()
        first = [*self.params, *self.buffers][0]
        self.device = first.device if device is None else Device.canonicalize(device)
        self.weight_decay = weight_decay
        self.maximize = maximize
        # A tensor, so that a captured step follows a change of the rate.
        self.lr = self._number(rate)
        self._last_rate = rate
        #: What serves the groups after the first.
        self.further: list[Optimizer] = []

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a kind's constructor take groups of parameters."""
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            setattr(cls, "__init__", taking_groups(cls.__dict__["__init__"]))  # noqa: B010

    @property
    def parts(self) -> list[Optimizer]:
        """What serves each group: this optimizer, and the further ones."""
        return [self, *self.further]

    @property
    def param_groups(self) -> list[ParameterGroup]:
        """The groups of parameters with their arguments, which may be changed."""
        return [ParameterGroup(part) for part in self.parts]

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Change more parameters.

        Args:
            param_group: `params`, and arguments of the optimizer that are the group's own.

        Raises:
            UserError: an argument is unknown, or a parameter is in another group.

        Example:
            >>> from tilework.nn.optim import SGD
            >>> optimizer = SGD([Tensor([1.0])], lr=0.5)
            >>> optimizer.add_param_group({"params": Tensor([2.0]), "lr": 0.1})
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.5, 0.1]
        """
        group = ParameterGroup.read(param_group, self.defaults, type(self).__name__)
        taken = {id(param) for part in self.parts for param in [*part.params, *part.buffers]}
        if any(id(param) in taken for param in group.params):
            raise UserError(f"{type(self).__name__}: a parameter is in two groups")
        part = type(self)(group.params, **{**self.defaults, **group.options})
        part._extras.update(group.extras)
        self.further.append(part)

    @property
    def defaults(self) -> dict[str, Any]:
        """The arguments of groups that say nothing else."""
        found: dict[str, Any] = self.__dict__.setdefault("_defaults", {})
        return found

    @property
    def _given(self) -> dict[str, Any]:
        """The arguments that this group was made with, and what they were changed to."""
        found: dict[str, Any] = self.__dict__.setdefault("_arguments", {})
        return found

    @property
    def _extras(self) -> dict[str, Any]:
        """What a program keeps with the group."""
        found: dict[str, Any] = self.__dict__.setdefault("_kept_with_group", {})
        return found

    def first_rate(self) -> float:
        """The rate before the first schedule changed it: what schedules count from."""
        first: float = self._extras.setdefault(FIRST_RATE, self.rate())
        return first

    def rate(self) -> float:
        """The rate of the first group as it is."""
        found = float(self.lr.item())
        # The number that was asked for, if the tensor still holds it: it has fewer digits.
        held = float(Tensor([self._last_rate], dtype=self.lr.dtype, device=self.lr.device).item())
        return self._last_rate if held == found else found

    def set_rate(self, rate: float) -> None:
        """Change the rate of the first group; captured steps follow."""
        lr = self.lr
        self._last_rate = float(rate)
        lr.assign(Tensor([self._last_rate], dtype=lr.dtype, device=lr.device)).realize()

    def set_momentum(self, momentum: float) -> None:
        """Change the momentum of the first group, or the first of its `betas`; captures follow.

        Raises:
            UserError: the kind has neither.
        """
        raise UserError(f"{type(self).__name__}: there is no momentum to change")

    def _change(self, name: str, value: Any) -> None:
        """Change an argument for the steps to come.

        Raises:
            UserError: it cannot be changed.
        """
        if name == "momentum":
            self.set_momentum(float(value))
        elif name == "decoupled_weight_decay":
            self._decays_gradient = not value
        elif hasattr(self, name):
            setattr(self, name, value)
        else:
            raise UserError(f"{type(self).__name__}: `{name}` is given once", got=value)

    def _held_momentum(self, old: float | Tensor, new: float) -> Tensor:
        """A momentum as a tensor: it may change from step to step, and nothing is compiled anew."""
        value = Tensor(new, device=self.device, dtype=dtypes.float64, requires_grad=False)
        if isinstance(old, Tensor):
            return old.assign(value).realize()
        return value.contiguous().realize()

    def state_dict(self) -> dict[str, Any]:
        """What the optimizer has gathered, and its arguments.

        Returns:
            `state`: for each group a dictionary of copies of tensors, or of lists of tensors in the
            order of the group's parameters, and of numbers, by the names of attributes.
            `param_groups`: for each group its arguments, and as `params` the numbers of its
            parameters, counted through all groups.
        """
        state: list[dict[str, Any]] = []
        groups: list[dict[str, Any]] = []
        count = 0
        for part, group in zip(self.parts, self.param_groups, strict=True):
            state.append({name: _copied(getattr(part, name)) for name in part._kept()})
            numbers = list(range(count, count + len(part.params)))
            count += len(numbers)
            groups.append({**group, "params": numbers})
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave.

        Args:
            state_dict: of an optimizer of the same kind and with as many parameters.

        Raises:
            UserError: it is no such state, there are other groups or numbers of parameters, or a
                state is missing.
        """
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
            raise UserError(
                "optimizer: this is no state of an optimizer",
                got=sorted(map(str, state_dict)) if isinstance(state_dict, Mapping)
                else type(state_dict).__name__,
                expected="what state_dict() gives: state and param_groups",
            )  # fmt: skip
        states, groups = state_dict["state"], state_dict["param_groups"]
        sizes = [len(group["params"]) for group in groups]
        own = [len(part.params) for part in self.parts]
        if sizes != own or len(states) != len(own):
            raise UserError("optimizer: a state of other groups", got=sizes, expected=str(own))
        for part, state in zip(self.parts, states, strict=True):
            if missing := [name for name in part._kept() if name not in state]:
                raise UserError("optimizer: a state lacks values", got=missing)
        for part, view, group, state in zip(
            self.parts, self.param_groups, groups, states, strict=True
        ):
            for name, value in group.items():
                if name != "params":
                    view.load(name, value)
            with Tensor.no_grad():
                for name in part._kept():
                    setattr(part, name, _loaded(getattr(part, name), state[name]))

    def _kept(self) -> list[str]:
        """The names of attributes that are state."""
        others = {"params", "buffers", "lr", "further", "b1"}
        return [
            name
            for name, value in self.__dict__.items()
            if name not in others and name not in self._given and _is_state(value)
        ]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to 0."""
        for param in [param for part in self.parts for param in part.params]:
            old = param._grad  # what it was does not count, so that a captured step need not ask
            param.grad = None if set_to_none or old is None else old.zeros_like()

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Change all parameters that have a gradient.

        Args:
            closure: computes the loss and its gradients anew, before the step.

        Returns:
            What the closure gave.
        """
        loss = None if closure is None else closure()
        Tensor.realize(*self.schedule_step())
        return loss

    def schedule_step(self) -> list[Tensor]:
        """Write the changes, and return the tensors that have to be realized for them."""
        changed: list[Tensor] = []
        for part in self.parts:
            ready = [param for param in part.params if param.grad is not None]
            if ready:
                with Tensor.no_grad():
                    changed += [*part._update(ready), *ready]
        if not changed:
            raise UserError(
                "optimizer: no parameter has a gradient",
                try_="call backward() on a loss that depends on them first",
            )
        return [*changed, *(buffer for part in self.parts for buffer in part.buffers)]

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        """Write new values of `params`; returns the other tensors that were written."""
        written = self._begin()
        place = {id(param): number for number, param in enumerate(self.params)}
        for param in params:
            g = self._gradient(param)
            value = param.cast(g.dtype)
            if self.maximize:
                g = -g
            if self.weight_decay and self._decays_gradient:
                g = g + value * self.weight_decay
            step = self._step(place[id(param)], value, g, written)
            param.assign((value - step).cast(param.dtype))
        return [*written, *self._end()]

    def _begin(self) -> list[Tensor]:
        """Write what all parameters share, before they step; returns what was written."""
        return []

    def _end(self) -> list[Tensor]:
        """The same after they have stepped."""
        return []

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        """What one parameter loses.

        Args:
            number: of the parameter among `params`, and of its state.
            value: what it is, in the dtype that sums are made in.
            g: its gradient, in the same dtype.
            written: gets the tensors of the state that were written.
        """
        raise NotImplementedError

    @staticmethod
    def _as(value: float | Tensor, g: Tensor) -> float | Tensor:
        """A momentum in the dtype of a gradient."""
        return value.cast(g.dtype) if isinstance(value, Tensor) else value

    def _rate(self, g: Tensor) -> Tensor:
        """The rate in the dtype of a gradient."""
        return self.lr.cast(g.dtype)

    def _number(self, value: float, dtype: DType = dtypes.float32) -> Tensor:
        """A number that is state: a captured step carries it on."""
        return Tensor([float(value)], device=self.device, dtype=dtype, requires_grad=False)

    @staticmethod
    def _state(params: Sequence[Tensor]) -> list[Tensor]:
        """Zeros for each parameter where it is, in float32 for smaller floats."""
        return [
            param.empty_like(dtype=dtypes.accumulation_dtype(param.dtype), requires_grad=False)
            for param in params
        ]

    @staticmethod
    def _gradient(param: Tensor) -> Tensor:
        assert param.grad is not None
        return param.grad.detach().cast(dtypes.accumulation_dtype(param.dtype))


def _is_state(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(each, Tensor) for each in value)
    return isinstance(value, Tensor)


def _copied(value: Any) -> Any:
    """A value of the state, that later steps don't change."""
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value.detach().clone().realize() if isinstance(value, Tensor) else value


def _loaded(old: Any, new: Any) -> Any:
    """The state `old` with the values of `new`: in place, where captured steps hold it."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [_loaded(a, b) for a, b in zip(old, new, strict=True)]
    if isinstance(old, Tensor) and isinstance(new, Tensor) and old.shape == new.shape:
        return old.assign(new.detach().to(old.device).cast(old.dtype)).realize()
    return _copied(new)


class OptimizerGroup:
    """Several optimizers as one."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers
        parts = [part for each in optimizers for part in each.parts]
        self.params = [param for part in parts for param in part.params]
        self.buffers = [buffer for part in parts for buffer in part.buffers]

    def __getitem__(self, i: int) -> Optimizer:
        """One of them."""
        return self.optimizers[i]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to 0."""
        for each in self.optimizers:
            each.zero_grad(set_to_none)

    def schedule_step(self) -> list[Tensor]:
        """Write all changes, and return the tensors that have to be realized for them."""
        return [tensor for each in self.optimizers for tensor in each.schedule_step()]

    def step(self) -> None:
        """Change all parameters."""
        Tensor.realize(*self.schedule_step())
