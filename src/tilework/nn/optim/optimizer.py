"""What optimizers share."""

from __future__ import annotations

from collections.abc import Sequence

from tilework import dtypes
from tilework.base.errors import UserError
from tilework.engine.device import Device
from tilework.tensor.tensor import Tensor


class Optimizer:
    """Changes parameters by their gradients.

    Args:
        params: tensors to change; those that nobody has spoken for get requires_grad.
        lr: the learning rate.
        device: where the state lives; by default where the first parameter does.
        fused: accepted for programs that say it: all parameters change in one go anyway.

    Raises:
        UserError: there are no parameters, one is no float, or the rate is negative.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        if lr < 0:
            raise UserError("optimizer: the learning rate is negative", got=lr)
        found = {id(param): param for param in params if param.requires_grad is not False}
        self.params = list(found.values())
        if not self.params:
            raise UserError("optimizer: there is no parameter to change")
        for param in self.params:
            if param.requires_grad is None:
                param.requires_grad_()
        self.buffers = [param for param in params if param.requires_grad is False]
        self.device = self.params[0].device if device is None else Device.canonicalize(device)
        # A tensor, so that a captured step follows a change of the rate.
        self.lr = Tensor([float(lr)], device=self.device, dtype=dtypes.float32, requires_grad=False)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Change all parameters that have a gradient."""
        Tensor.realize(*self.schedule_step())

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
        raise NotImplementedError

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

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for each in self.optimizers:
            each.zero_grad()

    def schedule_step(self) -> list[Tensor]:
        """Write all changes, and return the tensors that have to be realized for them."""
        return [tensor for each in self.optimizers for tensor in each.schedule_step()]

    def step(self) -> None:
        """Change all parameters."""
        Tensor.realize(*self.schedule_step())
