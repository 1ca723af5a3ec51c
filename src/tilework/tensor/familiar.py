"""Names and forms that programs written for other libraries use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError
from tilework.base.integers import product
from tilework.engine.device import Device
from tilework.ir.symbolic import dims
from tilework.tensor import foreign
from tilework.tensor.core import TensorBase
from tilework.tensor.creation import as_dtype
from tilework.tensor.download import fetch
from tilework.tensor.rearrange import Pattern
from tilework.tensor.sharding import Sharding
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.dtypes import DType
    from tilework.tensor.promotion import Number


class Familiar(Sharding):
    """Methods that are short for something else, or that say what holds here anyway."""

    __slots__ = ()

    # --- parameters --------------------------------------------------------------------------

    @property
    def is_param(self) -> bool:
        """Whether optimizers may change it: everything whose `requires_grad` is not False."""
        return self._wants_gradient is not False

    @is_param.setter
    def is_param(self, is_param: bool) -> None:
        self.is_param_(is_param)

    def is_param_(self, is_param: bool = True) -> Self:
        """Say whether optimizers may change it; returns this tensor."""
        return self.requires_grad_(None if is_param and not self.dtype.is_float else is_param)

    def contiguous_backward(self) -> Self:
        """This tensor; its gradient is computed into memory of its own on the way back."""
        return self._with_gradient(lambda _, g: [g.contiguous()], self)

    # --- constants ---------------------------------------------------------------------------

    @classmethod
    def invalids(
        cls, *shape: Any, device: str | None = None, dtype: DType | str | None = None
    ) -> Self:
        """Memory whose content nobody may rely on; the same as `empty`."""
        return cls.empty(*shape, device=device, dtype=dtype)

    def const_like(self, b: Number, dtype: DType | str | None = None) -> Self:
        """A constant of this tensor's shape, and of its dtype unless given."""
        return self.full_like(b) if dtype is None else self.full_like(b, dtype=dtype)

    @classmethod
    def from_blob(
        cls,
        ptr: int,
        shape: Sequence[int],
        dtype: DType | str | None = None,
        device: str | None = None,
        *,
        keeper: object = None,
        is_readonly: bool = False,
        on_release: Callable[[], object] | None = None,
    ) -> Self:
        """A tensor over memory that somebody else owns; nothing is copied.

        The memory must stay as long as the tensor, or whatever was made of it without a copy, is
        used: `keeper` is an object that keeps it, `on_release` is called when it is used no more.

        Args:
            ptr: the address of the first byte.
            shape: sizes; elements lie row-major without gaps.
            dtype: of the elements, float32 by default.
            device: where the memory is.
            keeper: kept alive as long as the memory is used.
            is_readonly: a write goes to a copy then.
            on_release: called once, when the memory is used no more.

        Raises:
            UnsupportedError: the device cannot use memory of the host.

        Example:
            >>> import array
            >>> numbers = array.array("f", [1.0, 2.0])
            >>> x = Tensor.from_blob(numbers.buffer_info()[0], (2,), keeper=numbers)
            >>> x += 1
            >>> _ = x.realize()
            >>> numbers.tolist()
            [2.0, 3.0]
        """
        kind = dtypes.default_float if dtype is None else as_dtype(dtype)
        name = Device.canonicalize(device)
        version = foreign.borrowed(ptr, shape, kind, name, keeper, is_readonly, on_release)
        return cls._over(version)._owned(None)

    @classmethod
    def from_dlpack(cls, x: Any, device: str | None = None) -> Self:
        """A tensor over the memory of an array of another library, or a copy where it must be.

        Args:
            x: has `__dlpack__`: an array of NumPy, PyTorch, JAX...
            device: where to use it.

        Raises:
            DTypeError: there is no dtype for its elements.
        """
        return cls._over(foreign.borrowed_array(x, Device.canonicalize(device)))._owned(None)

    @classmethod
    def from_url(cls, url: str, gunzip: bool = False, **kwargs: Any) -> Self:
        """The bytes of what is at `url` (kept in the cache folder), as a vector of uint8.

        Args:
            url: where it is; a local path too.
            gunzip: unpack it.
            kwargs: arguments of `Tensor`.

        Raises:
            ModelFileError: it cannot be had.
        """
        return cls(fetch(url, gunzip=gunzip), **kwargs)  # type: ignore[call-arg]  # Tensor takes it

    # --- sizes -------------------------------------------------------------------------------

    @property
    def max_shape(self) -> tuple[int, ...]:
        """The shape with the greatest value of each size that is given at run time."""
        return tuple([dims.greatest(size) for size in self._dims])

    def max_numel(self) -> int:
        """The number of elements of `max_shape`."""
        return product(self.max_shape)

    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Axes split, exchanged and joined as a formula says.

        Args:
            formula: names of axes before and after `->`; names in brackets are one axis, a 1 is an
                axis of size 1, `...` stands for all axes that are not named.
            sizes: sizes of names that stand in brackets before the arrow, all but one of each.

        Raises:
            ShapeError: the formula does not fit the tensor.
            UserError: the formula contradicts itself.

        Example:
            >>> Tensor.arange(6).rearrange("(a b) -> b a", a=2).tolist()
            [[0, 3], [1, 4], [2, 5]]
        """
        plan = Pattern(formula).plan(self.shape, sizes)
        return self.reshape(plan.apart).permute(plan.order).reshape(plan.joined)

    # --- arithmetic --------------------------------------------------------------------------

    def ufix(self, x: Any) -> Self:
        """`x` as a tensor to compute with: itself, or a number of this tensor's kind."""
        if isinstance(x, TensorBase):
            return x  # type: ignore[return-value]  # one class of tensors is in use
        found = self.full_like(x) if self.dtype.is_float else type(self).full(self.shape, x)
        return found.to(self.device)

    def usum(self, *uops: Any) -> Self:
        """This tensor plus all the others, in order; of bool whether any is true."""
        return self._folded(uops, "__or__" if self.dtype.is_bool else "__add__")

    def uprod(self, *uops: Any) -> Self:
        """This tensor times all the others, in order; of bool whether all are true."""
        return self._folded(uops, "__and__" if self.dtype.is_bool else "__mul__")

    def _folded(self, others: Sequence[Any], method: str) -> Self:
        rest = others[0] if len(others) == 1 and isinstance(others[0], list | tuple) else others
        found = self
        for other in rest:
            found = getattr(found, method)(other)
        return found

    def newton_schulz(self, steps: int, params: Sequence[float], eps: float = 1.0e-7) -> Self:
        """A matrix near the orthogonal one nearest to this one, by an odd polynomial of it.

        Args:
            steps: how often the polynomial is applied.
            params: its coefficients, that of the first power first.
            eps: added to the norm that the matrix is divided by at first.

        Shape: (..., m, n) -> (..., m, n)

        Raises:
            ShapeError: it is no matrix.
        """
        if self.ndim < 2:
            raise ShapeError("newton_schulz: needs a matrix", got=format_shape(self._dims))
        if dims.least(self._dims[-2]) > dims.least(self._dims[-1]):
            return self.mT.newton_schulz(steps, params, eps).mT
        x = self / (self.square().sum(axis=(-2, -1), keepdim=True).sqrt() + eps)
        for _ in range(steps):
            square = x @ x.mT
            power, total = x, x * params[0]
            for coefficient in params[1:]:
                power = square @ power
                total = total + power * coefficient
            x = total
        return x
