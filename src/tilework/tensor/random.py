"""Random numbers: Threefry-2x32 over a counter that each draw advances.

Which numbers a draw gives is settled at the line where it is written, not when it is computed: it
reads the counter of that moment.  The counter lives on the device and is advanced by a write, so a
captured function carries it on.
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.base.forks import new_outer_lock
from tilework.base.integers import product
from tilework.base.late import late_module
from tilework.dtypes import DType
from tilework.engine.device import Device
from tilework.ir.ops import math as ops
from tilework.ir.ops import tensor
from tilework.runtime.group import is_group, split_name
from tilework.tensor import host, realize
from tilework.tensor.creation import as_dtype
from tilework.tensor.hashing import Hashing
from tilework.tensor.movement import as_sizes
from tilework.tensor.threefry import threefry, threefry_numbers
from tilework.tensor.version import Storage, from_buffer

if TYPE_CHECKING:
    import secrets
    from collections.abc import Sequence
else:
    secrets = late_module("secrets")

#: What draws words for functions of one row of many (see `batching.drawing`), if anything does:
#: it takes the class, how many numbers there are and the device.
row_draws: Final[ContextVar[Any]] = ContextVar("tilework_row_draws", default=None)


class _Source:
    """Key and counter of one device."""

    def __init__(self, device: str, seed: int) -> None:
        self.device = device
        key = key_of_seed(seed)
        data = host.pack(list(key), dtypes.uint32)
        self.key = Storage(host.upload(data, (2,), dtypes.uint32, device))
        self.counter = Storage(host.upload(bytes(8), (1,), dtypes.uint64, device))
        realize.add_state(self.counter)

    def reseed(self, seed: int) -> None:
        """Start over with another key."""
        self.load((*key_of_seed(seed), 0))

    def state(self) -> tuple[int, int, int]:
        """The two words of the key, and the counter."""
        found: list[bytes] = []
        for storage in (self.key, self.counter):
            realize.realize([storage.version])
            buffer = storage.version.buffer
            assert buffer is not None
            found.append(bytes(host.read_bytes(buffer, self.device)))
        words = [int.from_bytes(found[0][at : at + 4], "little") for at in (0, 4)]
        return words[0], words[1], int.from_bytes(found[1], "little")

    def load(self, state: Sequence[int]) -> None:
        """Take key and counter, in the same memory, which captured functions read."""
        data = host.pack(list(state[:2]), dtypes.uint32)
        count = host.pack([state[2]], dtypes.uint64)
        for storage, content in ((self.key, data), (self.counter, count)):
            realize.realize([storage.version])
            old = storage.version
            buffer = old.buffer
            assert buffer is not None
            # Draws that are not computed yet keep what they have read.
            kept = Device[self.device].allocate(len(content))
            Device[self.device].copy_in(kept, memoryview(host.read_bytes(buffer, self.device)))
            new = from_buffer(buffer, self.device, old.node.shape, old.node.dtype)
            new.is_state = old.is_state
            old.move_to(kept)
            Device[self.device].copy_in(buffer, memoryview(content))
            storage.hold(new)


def key_of_seed(seed: int) -> tuple[int, int]:
    """The two key words of a seed: its low and its high half, mixed once."""
    return threefry_numbers((seed & 0xFFFF_FFFF, (seed >> 32) & 0xFFFF_FFFF), (0, 0x7469_6C65))


class _Sources:
    lock = new_outer_lock(0)
    by_device: dict[str, _Source]
    seed: int | None = None


_Sources.by_device = {}


def _source(device: str) -> _Source:
    with _Sources.lock:
        found = _Sources.by_device.get(device)
        if found is None:
            found = _Sources.by_device[device] = _Source(device, _seed())
        return found


def _seed() -> int:
    if _Sources.seed is None:
        _Sources.seed = secrets.randbits(64)
    return _Sources.seed


def first_seed() -> int:
    """The seed that was asked for last, or else one by chance, which stays."""
    with _Sources.lock:
        return _seed()


def begin_with(seed: int) -> None:
    """Draw from this seed on, if none was asked for and nothing was drawn yet."""
    with _Sources.lock:
        if _Sources.seed is None:
            _Sources.seed = seed


class Random(Hashing):
    """Draws; each takes `dtype`, `device` and `requires_grad`."""

    __slots__ = ()

    @staticmethod
    def manual_seed(seed: SupportsIndex = 0) -> None:
        """Start all random numbers over: the same seed gives the same numbers."""
        if not hasattr(type(seed), "__index__"):
            raise DTypeError("manual_seed: the seed must be an integer", got=repr(seed))
        number = seed.__index__()
        with _Sources.lock:
            _Sources.seed = number
            for source in _Sources.by_device.values():
                source.reseed(number)

    @staticmethod
    def random_state(device: str | None = None) -> tuple[int, int, int]:
        """Where the random numbers of a device are: two words of the key, and the counter.

        Example:
            >>> Tensor.manual_seed(7)
            >>> state = Tensor.random_state()
            >>> first = Tensor.rand(2).tolist()
            >>> Tensor.set_random_state(state)
            >>> Tensor.rand(2).tolist() == first
            True
        """
        source = _source(split_name(Device.canonicalize(device))[0])
        with _Sources.lock:
            return source.state()

    @staticmethod
    def set_random_state(state: Sequence[int], device: str | None = None) -> None:
        """Go on with the random numbers from a state that `random_state` gave.

        Raises:
            UserError: that is no key and counter.
        """
        most = (1 << 32, 1 << 32, 1 << 64)
        words = [int(word) for word in state]
        if len(words) != 3 or not all(0 <= a < b for a, b in zip(words, most, strict=True)):
            raise UserError(
                "set_random_state: that is no state of random numbers",
                got=repr(state),
                expected="two words of 32 bits and a counter of 64",
            )
        source = _source(split_name(Device.canonicalize(device))[0])
        with _Sources.lock:
            source.load(words)

    @classmethod
    def _words(cls, count: int, device: str) -> tuple[Self, Self]:
        """Two random words (uint32) for each of `count` numbers."""
        rule = row_draws.get()
        if rule is not None:
            words: tuple[Self, Self] = rule(cls, count, device)
            return words
        source = _source(split_name(device)[0])
        with _Sources.lock:
            counter = cls.__new__(cls)
            version = source.counter.version
            counter._set(source.counter, (), version.node.type)
            fixed = cls._over(version)  # what the counter holds now, whatever is written later
            key = cls._over(source.key.version)
            counter._write((fixed + count).cast(dtypes.uint64))
        if is_group(device):
            # All devices draw what the first one would draw alone, each its part.
            fixed, key = fixed.to(device), key.to(device)
        position = fixed.expand(count) + cls.arange(count, dtype=dtypes.uint64, device=device)
        keys = (key[0:1].expand(count), key[1:2].expand(count))
        return _mixed(keys, _halves(position))

    def threefry(self, seed: Self) -> Self:
        """Threefry-2x32 of counters under keys, both in 64 bits: the low word is the first one.

        Shape: uint64 (...) and uint64, broadcast -> uint64 (...)

        Raises:
            DTypeError: one of them is not uint64.

        Example:
            >>> zero = Tensor([0], dtype="uint64")
            >>> hex(zero.threefry(zero).item())
            '0x99ba4efe6b200159'
        """
        if self.dtype is not dtypes.uint64 or seed.dtype is not dtypes.uint64:
            raise DTypeError(
                "threefry: needs counters and keys of 64 bits",
                got=f"{self.dtype.name} and {seed.dtype.name}",
                expected="uint64",
            )
        counters, keys = self._together(seed, "threefry")
        first, second = _mixed(_halves(keys), _halves(counters))
        found: Self = (second.cast(dtypes.uint64) << 32) | first.cast(dtypes.uint64)
        return found

    @classmethod
    def random_bits(cls, *shape: Any, device: str | None = None) -> Self:
        """Random 32-bit words as uint32."""
        sizes = _numbers(as_sizes(shape))
        name = Device.canonicalize(device)
        return cls._words(product(sizes), name)[0].reshape(sizes)

    @classmethod
    def rand(
        cls,
        *shape: Any,
        dtype: DType | str | None = None,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Numbers from [0, 1), equally likely.

        Example:
            >>> Tensor.manual_seed(1)
            >>> Tensor.rand(2, 3).shape
            (2, 3)
        """
        kind = dtypes.default_float if dtype is None else as_dtype(dtype)
        sizes = _numbers(as_sizes(shape))
        words = cls._words(product(sizes), Device.canonicalize(device))
        return cls._drawn(_unit(words, kind).reshape(sizes), requires_grad)

    @classmethod
    def _drawn(cls, made: Self, requires_grad: bool | None) -> Self:
        """A draw as a value of its own."""
        return made._apply(tensor.CONTIGUOUS)._owned(requires_grad)

    def rand_like(self, **options: Any) -> Self:
        """`rand` with this tensor's shape, and its dtype and device unless given."""
        options.setdefault("dtype", self.dtype)
        options.setdefault("device", self.device)
        return type(self).rand(*self.shape, **options)

    @classmethod
    def randn(
        cls,
        *shape: Any,
        dtype: DType | str | None = None,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Numbers from the normal distribution with mean 0 and variance 1 (Box and Muller)."""
        kind = dtypes.default_float if dtype is None else as_dtype(dtype)
        sizes = _numbers(as_sizes(shape))
        first, second = cls._words(product(sizes), Device.canonicalize(device))
        wide = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
        # (0, 1], whose logarithm is finite; 24 bits are all that float32 holds.
        radius = (((first >> 8).cast(wide) + 1) * 2.0**-24).log() * -2.0
        angle = (second >> 8).cast(wide) * (2 * math.pi * 2.0**-24)
        found = radius.sqrt() * angle.cos()
        return cls._drawn(found.cast(kind).reshape(sizes), requires_grad)

    def randn_like(self, **options: Any) -> Self:
        """`randn` with this tensor's shape, and its dtype and device unless given."""
        options.setdefault("dtype", self.dtype)
        options.setdefault("device", self.device)
        return type(self).randn(*self.shape, **options)

    @classmethod
    def randint(
        cls,
        *shape: Any,
        low: int = 0,
        high: int = 10,
        dtype: DType | str = dtypes.int32,
        device: str | Sequence[str] | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Integers from `low` up to `high` (not included), equally likely.

        Raises:
            DTypeError: the bounds don't fit the dtype.
        """
        kind = as_dtype(dtype)
        fits = kind.is_integer and kind.minimum <= low < high <= kind.maximum + 1
        if not fits:
            raise DTypeError("randint: the bounds don't fit", got=f"{low} to {high} as {kind.name}")
        sizes = _numbers(as_sizes(shape))
        words = cls._words(product(sizes), Device.canonicalize(device))
        first, second = [word.cast(dtypes.uint64) for word in words]
        scaled = _scaled(first, second, high - low)
        found = (scaled + low % (1 << 64)).cast(kind).reshape(sizes)
        return cls._drawn(found, requires_grad)

    @classmethod
    def uniform(cls, *shape: Any, low: float = 0.0, high: float = 1.0, **options: Any) -> Self:
        """Numbers from [low, high), equally likely."""
        kind = as_dtype(options.pop("dtype", dtypes.default_float) or dtypes.default_float)
        requires_grad = options.pop("requires_grad", None)
        if not kind.is_float:
            drawn = cls.rand(*shape, **options) * (high - low) + low
            return cls._drawn(drawn.floor().cast(kind), requires_grad)
        drawn = cls.rand(*shape, dtype=kind, **options) * (high - low) + low
        return cls._drawn(drawn, requires_grad)

    @classmethod
    def normal(cls, *shape: Any, mean: float = 0.0, std: float = 1.0, **options: Any) -> Self:
        """Numbers from the normal distribution."""
        requires_grad = options.pop("requires_grad", None)
        return cls._drawn(cls.randn(*shape, **options) * std + mean, requires_grad)

    @classmethod
    def scaled_uniform(cls, *shape: Any, **options: Any) -> Self:
        """Numbers from [-1, 1), divided by the square root of their number."""
        sizes = _numbers(as_sizes(shape))
        bound = max(product(sizes), 1) ** -0.5
        return cls.uniform(*sizes, low=-bound, high=bound, **options)

    @classmethod
    def glorot_uniform(cls, *shape: Any, **options: Any) -> Self:
        """Weights by Glorot and Bengio (2010): the bound is sqrt(6 / (inputs + outputs))."""
        sizes = _numbers(as_sizes(shape))
        if not sizes:
            raise ShapeError("glorot_uniform: needs an axis", got="shape ()", expected="from 1 on")
        bound = math.sqrt(6 / max(sizes[0] + product(sizes[1:]), 1))
        return cls.uniform(*sizes, low=-bound, high=bound, **options)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **options: Any) -> Self:
        """Weights by He and others (2015), for leaky relu of slope `a`."""
        sizes = _numbers(as_sizes(shape))
        bound = math.sqrt(6 / ((1 + a * a) * max(product(sizes[1:]), 1)))
        return cls.uniform(*sizes, low=-bound, high=bound, **options)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **options: Any) -> Self:
        """Weights by He and others (2015), normally distributed, for leaky relu of slope `a`."""
        sizes = _numbers(as_sizes(shape))
        std = math.sqrt(2 / ((1 + a * a) * max(product(sizes[1:]), 1)))
        return cls.normal(*sizes, std=std, **options)

    @classmethod
    def randperm(
        cls, n: int, device: str | Sequence[str] | None = None, dtype: DType | str = dtypes.int32
    ) -> Self:
        """The numbers below `n` in random order."""
        words = cls._words(n, Device.canonicalize(device))
        wide = dtypes.uint64
        return ((words[0].cast(wide) << 32) | words[1].cast(wide)).argsort().cast(dtype)

    def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
        """Positions drawn with the probabilities (or weights) of each row.

        Shape: (n,) or (rows, n) -> (num_samples,) or (rows, num_samples), int64
        """
        if self.ndim not in (1, 2) or num_samples < 1:
            raise ShapeError("multinomial: needs a vector or a matrix", got=f"{self.shape}")
        rows = self.unsqueeze(0) if self.ndim == 1 else self
        height, length = rows._fixed_size(0, "multinomial"), rows._fixed_size(1, "multinomial")
        if replacement or num_samples == 1:
            edges = rows._as_float().cumsum(1)
            draw = type(self).rand(height, num_samples, 1, device=self.device)
            limit = draw * edges[:, length - 1 :].unsqueeze(1)
            found = (edges.unsqueeze(1) <= limit).cast(dtypes.int64).sum(2)
            found = found.clamp(0, length - 1)
        else:
            if num_samples > length:
                raise UserError(
                    "multinomial: more samples than there are positions",
                    got=f"{num_samples} of {length}",
                    try_="replacement=True",
                )
            # The greatest of log(u) / w are a draw without replacement (Efraimidis, Spirakis 2006).
            noise = type(self).rand(height, length, device=self.device).log()
            found = (noise / rows).topk(num_samples, 1)[1]
        return found.squeeze(0) if self.ndim == 1 else found

    def dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Each element 0 with probability `p`, else divided by 1 - p; nothing when not training."""
        is_on = getattr(type(self), "training", False) if training is None else training
        if not 0 <= p <= 1:
            raise UserError("dropout: p is no probability", got=p)
        if not is_on or p == 0:
            return self
        if p == 1:
            return self.zeros_like()
        kept = type(self).rand(*self.shape, device=self.device) >= p
        return kept.where(self, 0) / (1 - p)


def _halves(words: Any) -> tuple[Any, Any]:
    """The low and the high half of words of 64 bits."""
    return words.cast(dtypes.uint32), (words >> 32).cast(dtypes.uint32)


def _mixed(keys: tuple[Any, Any], counters: tuple[Any, Any]) -> tuple[Any, Any]:
    """Threefry of tensors of words."""
    return threefry(
        keys,
        counters,
        lambda a, b: a._apply(ops.ADD, b),
        lambda a, b: a._apply(ops.XOR, b),
        lambda a, n: (a << n) | (a >> (32 - n)),
        lambda n: counters[0]._number(n, dtypes.uint32),
    )


def _scaled(high: Any, low: Any, span: int) -> Any:
    """The upper half of a 64-bit number (two words) times `span`, up to 2**64.

    No part of the range is favoured by more than the share 2**-64 times `span`.
    """
    if span == 1 << 64:
        return (high << 32) | low
    span_high, span_low = span >> 32, span & 0xFFFF_FFFF
    inner = high * span_low + ((low * span_low) >> 32)
    if not span_high:
        return inner >> 32
    outer = low * span_high + (inner & 0xFFFF_FFFF)
    return high * span_high + (inner >> 32) + (outer >> 32)


def _unit(words: tuple[Any, Any], kind: DType) -> Any:
    """Random words as a float in [0, 1), as many bits as the dtype's significand holds."""
    if not kind.is_float:
        raise DTypeError("rand: needs a float dtype", got=kind.name, try_="Tensor.randint")
    bits = kind.mantissa_bits + 1
    if kind is dtypes.float64:
        wide = dtypes.uint64
        word = ((words[0].cast(wide) << 32) | words[1].cast(wide)) >> (64 - bits)
        return word.cast(dtypes.float64) * 2.0**-bits
    exact = dtypes.float32 if kind.bits < 32 else kind
    return ((words[0] >> (32 - bits)).cast(exact) * 2.0**-bits).cast(kind)


def _numbers(sizes: Sequence[Any]) -> tuple[int, ...]:
    """A shape in plain numbers."""
    found = []
    for size in sizes:
        if not hasattr(type(size), "__index__"):
            raise DTypeError(
                "a size must be an integer", got=f"{size!r} of type {type(size).__name__}"
            )
        number = size.__index__()
        if number < 0:
            raise ShapeError("a size is negative", got=f"{tuple(sizes)}")
        found.append(number)
    return tuple(found)
