"""What optimizers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.base.errors import UserError
from tilework.engine.device import Device
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.dtypes import DType


class Optimizer:
    """Changes parameters by their gradients.

    A kind of optimizer says how one parameter steps (`_step`), and what it keeps for it (`_state`);
    the walk over the parameters, their gradients, weight decay and the writing are here.

    Args:
        params: tensors to change; those that nobody has spoken for get requires_grad.
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
        params: Sequence[Tensor],
        lr: float,
        device: str | None = None,
        fused: bool = False,
        *,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        if lr < 0:
            raise UserError("optimizer: the learning rate is negative", got=lr)
        if weight_decay < 0:
            raise UserError("optimizer: the weight decay is negative", got=weight_decay)
        found = {id(param): param for param in params if param.requires_grad is not False}
        self.params = list(found.values())
        if not self.params:
            raise UserError("optimizer: there is no parameter to change")
        for param in self.params:
            if param.requires_grad is None:
                param.requires_grad_()
        self.buffers = [param for param in params if param.requires_grad is False]
        self.device = self.params[0].device if device is None else Device.canonicalize(device)
        self.weight_decay = weight_decay
        self.maximize = maximize
        # A tensor, so that a captured step follows a change of the rate.
        self.lr = self._number(lr)
        self._first_rate: float | None = None

    def first_rate(self) -> float:
        """The rate before the first schedule changed it: what schedules count from."""
        if self._first_rate is None:
            self._first_rate = float(self.lr.item())
        return self._first_rate

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to 0."""
        for param in self.params:
            if set_to_none or param.grad is None:
                param.grad = None
            else:
                param.grad = param.grad.zeros_like()

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
        ready = [param for param in self.params if param.grad is not None]
        if not ready:
            raise UserError(
                "optimizer: no parameter has a gradient",
                try_="call backward() on a loss that depends on them first",
            )
        with Tensor.no_grad():
            written = self._update(ready)
        return [*written, *ready, *self.buffers]

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


class OptimizerGroup:
    """Several optimizers as one."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers
        self.params = [param for each in optimizers for param in each.params]
        self.buffers = [buffer for each in optimizers for buffer in each.buffers]

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
