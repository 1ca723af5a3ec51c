"""Keccak over the last axis: SHA-3 and SHAKE-128 (FIPS 202), of many messages at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, UserError
from tilework.base.integers import ceil_div, product
from tilework.tensor.familiar import Familiar
from tilework.tensor.iteration import settled
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

_LANES: Final = 25
_ROUNDS: Final = 24
_STATE_BYTES: Final = 200

#: Name -> bytes of a block, and the byte that marks the end of a message.
_KINDS: Final = {
    "sha3_224": (144, 0x06), "sha3_256": (136, 0x06), "sha3_384": (104, 0x06),
    "sha3_512": (72, 0x06), "shake_128": (168, 0x1F),
}  # fmt: skip
#: Bytes that `hash` makes one hash of, and those that it makes the hashes of first.
_CHUNK: Final = 1 << 20
_LEAF: Final = 1 << 12


def _round_constants() -> tuple[int, ...]:
    """The constant of each round, from the shift register of the standard."""
    register = 1
    found = []
    for _ in range(_ROUNDS):
        constant = 0
        for power in range(7):
            if register & 1:
                constant |= 1 << ((1 << power) - 1)
            register = (register << 1) ^ (0x171 if register & 0x80 else 0)
        found.append(constant)
    return tuple(found)


def _walk() -> tuple[tuple[int, int, int], ...]:
    """Where the lanes go and by how much they turn: (from, to, bits), the first lane left out."""
    x, y = 1, 0
    found = []
    for step in range(_LANES - 1):
        following = (y, (2 * x + 3 * y) % 5)
        turn = (step + 1) * (step + 2) // 2 % 64
        found.append((x + 5 * y, following[0] + 5 * following[1], turn))
        x, y = following
    return tuple(found)


_CONSTANTS: Final = _round_constants()
_WALK: Final = _walk()


class Hashing(Familiar):
    """Cryptographic hashes of bytes."""

    __slots__ = ()

    def keccak(self, cfg: str | tuple[int, int] = "sha3_256") -> Self:
        """The hash of each row of bytes along the last axis.

        Args:
            cfg: "sha3_224", "sha3_256", "sha3_384", "sha3_512" or "shake_128"; or the bytes
                of a block and the byte that marks the end of a message.

        Shape: uint8 (..., n) -> uint8 (..., bytes of the hash)

        Raises:
            DTypeError: it holds no bytes.
            UserError: the kind is unknown.

        Example:
            >>> bytes(Tensor(b"abc").keccak().data()).hex()[:16]
            '3a985da74fe225b2'
        """
        if self.dtype is not dtypes.uint8 or not self.ndim:
            raise DTypeError(
                "keccak: needs bytes along the last axis",
                got=f"{self.dtype.name}{format_shape(self._dims)}",
                expected="uint8(..., n)",
            )
        if isinstance(cfg, str) and cfg not in _KINDS:
            raise UserError("keccak: unknown kind", got=cfg, expected=", ".join(_KINDS))
        rate, end = _KINDS[cfg] if isinstance(cfg, str) else cfg
        if not 0 < rate < _STATE_BYTES or rate % 8:
            raise UserError(
                "keccak: a block has no such size", got=rate,
                expected=f"a multiple of 8 below {_STATE_BYTES}",
            )  # fmt: skip
        size = (_STATE_BYTES - rate) // 2
        shape = self._sizes()
        blocks = self._padded_blocks(rate, end)
        count, _, rows = blocks._sizes()
        rounds = _Rounds(self)
        state = self._like_lanes(rows)
        for number in range(count):
            # Each block is one run of the same kernels, whatever the length of the messages.
            state = rounds.permuted(settled(state ^ blocks[number])[0])
        found = state.T.contiguous().bitcast(dtypes.uint8)
        return found[:, :size].reshape(*shape[:-1], size)

    def _like_lanes(self, count: int) -> Self:
        """The state before the first block: zeros."""
        return type(self).zeros(_LANES, count, dtype=dtypes.uint64, device=self.device)

    def _padded_blocks(self, rate: int, end: int) -> Self:
        """The messages with their end marked, as (blocks, lanes of the state, messages).

        They are stored so that a block is a part of memory: kernels do not say which one they read.
        """
        length = self._sizes()[-1]
        count = length // rate + 1
        rows = self.reshape(product(self._sizes()[:-1]), length)
        padded = rows.pad(((0, 0), (0, count * rate - length)))
        marks = [0] * (count * rate)
        marks[length] ^= end
        marks[-1] ^= 0x80
        tail = type(self)._from_numbers(marks, dtypes.uint8, self.device)
        marked = (padded ^ tail.unsqueeze(0)).contiguous()
        words = marked.bitcast(dtypes.uint64).reshape(rows.shape[0], count, rate // 8)
        lanes = words.pad(((0, 0), (0, 0), (0, _LANES - rate // 8)))
        (found,) = settled(lanes.permute(1, 2, 0))
        return found

    def hash(self) -> Self:
        """16 bytes that tell this tensor's bytes from others (a tree of SHAKE-128 hashes).

        Shape: (...) -> uint8 (16,)
        """
        data = self.flatten().contiguous()
        data = data if data.dtype is dtypes.uint8 else data.bitcast(dtypes.uint8)
        while True:
            size = data._sizes()[0]
            chunks = max(ceil_div(size, _CHUNK), 1)
            padded = data.pad(((0, chunks * _CHUNK - size),))
            leaves = padded.reshape(chunks * _CHUNK // _LEAF, _LEAF).keccak("shake_128")
            data = leaves.reshape(chunks, -1).keccak("shake_128").flatten().contiguous()
            if chunks == 1:
                return data


class _Rounds:
    """The permutation of the state, with what its rounds read on the device."""

    def __init__(self, like: Any) -> None:
        kind, device = type(like), like.device
        sources, turns = [0] * _LANES, [0] * _LANES
        for source, target, bits in _WALK:
            sources[target], turns[target] = source, bits
        back = [-bits % 64 for bits in turns]

        def column(numbers: Sequence[int]) -> Any:
            made = kind._from_numbers(numbers, dtypes.uint64, device)
            return made.reshape(_LANES, 1)

        self._sources = kind._from_numbers(sources, dtypes.index, device)
        self._turns, self._back = column(turns), column(back)
        self._constants = [column([each] + [0] * (_LANES - 1)) for each in _CONSTANTS]

    def permuted(self, state: Any) -> Any:
        """The state, (25 lanes, messages), after all rounds."""
        for constant in self._constants:
            (state,) = settled(self._after_round(state, constant))
        return state

    def _after_round(self, state: Any, constant: Any) -> Any:
        lanes = state.reshape(5, 5, -1)
        parity = lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ lanes[4]
        following = parity.roll(-1, 0)
        mixed = parity.roll(1, 0) ^ (following << 1) ^ (following >> 63)
        flat = (lanes ^ mixed.unsqueeze(0)).reshape(_LANES, -1)
        moved = flat._gathered(0, [self._sources])
        turned = ((moved << self._turns) | (moved >> self._back)).reshape(5, 5, -1)
        ahead, beyond = turned.roll(-1, 1), turned.roll(-2, 1)
        return (turned ^ (ahead.bitwise_not() & beyond)).reshape(_LANES, -1) ^ constant
