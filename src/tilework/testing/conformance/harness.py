"""What the cases share: values on a device, results beside those of the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from tilework.base.records import dataclass
from tilework.dtypes import DType
from tilework.engine import execute
from tilework.ir.interpret import Value
from tilework.ir.interpret.scalars import scalar_from_bits
from tilework.ir.interpret.tensors import evaluate_all
from tilework.ir.node import Node
from tilework.ir.ops.memory import BUFFER, BufferAttrs
from tilework.testing.strategies import random_value

if TYPE_CHECKING:
    from tilework.engine.device import OpenDevice
    from tilework.runtime.buffer import Buffer


class Failed(Exception):
    """A case found a difference; the text says which."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one case: "passed", "failed", "unsupported" or "skipped"."""

    name: str
    status: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A behaviour and how to check it; `runs_without_code` if a null device has it too."""

    name: str
    run: Callable[[Bench], str | None]
    runs_without_code: bool = False


def expect(holds: object, what: str) -> None:
    """Fail the case unless `holds`."""
    if not holds:
        raise Failed(what)


def expect_error(
    kind: type[BaseException] | tuple[type[BaseException], ...],
    function: Callable[[], object],
    what: str,
) -> None:
    """Fail the case unless `function` raises `kind`."""
    try:
        function()
    except kind:
        return
    raise Failed(f"{what}: it was not refused")


class Bench:
    """A device with inputs, and what expressions over them must give."""

    def __init__(self, device: OpenDevice, seed: int = 7) -> None:
        self.device = device
        self.random = Random(seed)
        self.values: dict[Node, Value] = {}
        self.buffers: dict[Node, Buffer] = {}

    def stores(self, dtype: DType) -> bool:
        """Whether the device can hold `dtype`."""
        return dtype.name in self.device.spec.storage_dtypes

    def leaf(self, dtype: DType, shape: tuple[int, ...] = (37,)) -> Node:
        """An input of interesting numbers: zeros, extremes, NaNs, infinities among them."""
        return self.put(random_value(self.random, dtype, shape))

    def put(self, value: Value) -> Node:
        """An input of these numbers."""
        number = len(self.values) + 1
        attrs = BufferAttrs(number, value.shape, value.dtype, self.device.name)
        node = BUFFER(attrs=attrs)
        self.values[node] = value
        self.buffers[node] = self.upload(value)
        return node

    def numbers(self, dtype: DType, *numbers: Any) -> Node:
        """A one-dimensional input of given numbers."""
        return self.put(Value.from_list(list(numbers), dtype))

    def upload(self, value: Value) -> Buffer:
        """Copy a value to new memory of the device."""
        raw = pack(value)
        buffer = self.device.allocate(len(raw))
        if raw:
            self.device.copy_in(buffer, memoryview(raw))
        return buffer

    def download(self, buffer: Buffer, shape: tuple[int, ...], dtype: DType) -> Value:
        """Copy a value back."""
        raw = bytearray(buffer.size_bytes)
        if raw:
            self.device.copy_out(buffer, memoryview(raw))
        count = 1
        for size in shape:
            count *= size
        width = dtype.itemsize
        bits = [int.from_bytes(raw[at * width : (at + 1) * width], "little") for at in range(count)]
        return Value(shape, dtype, [scalar_from_bits(item, dtype) for item in bits])

    def compute(
        self, nodes: Sequence[Node], variables: Mapping[str, int] | None = None
    ) -> list[Value]:
        """Run expressions on the device."""
        buffers = execute.run(nodes, self.buffers.__getitem__, variables, self.device.name)
        return [
            self.download(buffer, _fixed(node), node.type.dtype)
            for buffer, node in zip(buffers, nodes, strict=True)
        ]

    def check(self, nodes: Sequence[Node], ulp: int = 0) -> None:
        """Compare the device with the interpreter, bit for bit or to so many last places."""
        wanted = evaluate_all(nodes, self.values)
        for node, got, want in zip(nodes, self.compute(nodes), wanted, strict=True):
            compare(f"{node.op.name} {node.type}", got, want, ulp)


def _fixed(node: Node) -> tuple[int, ...]:
    """The shape in numbers; symbolic results are compared by hand."""
    return tuple([size if isinstance(size, int) else 0 for size in node.type.shape])


def pack(value: Value) -> bytes:
    """The bytes of a value, row-major."""
    width = value.dtype.itemsize
    return b"".join(bits.to_bytes(width, "little") for bits in value.bits())


def compare(what: str, got: Value, want: Value, ulp: int = 0) -> None:
    """Fail unless two values are equal: NaNs alike, zeros by sign, numbers within `ulp`."""
    if got.shape != want.shape or got.dtype is not want.dtype:
        raise Failed(f"{what}: {got.dtype.name}{got.shape}, not {want.dtype.name}{want.shape}")
    for at, (a, b) in enumerate(zip(got.bits(), want.bits(), strict=True)):
        if a == b or _is_close(a, b, got.elements[at], want.elements[at], got.dtype, ulp):
            continue
        raise Failed(f"{what}: element {at} is {got.elements[at]!r}, not {want.elements[at]!r}")


def _is_close(a: int, b: int, x: Any, y: Any, dtype: DType, ulp: int) -> bool:
    if not dtype.is_float:
        return False
    if x != x or y != y:
        return bool(x != x and y != y)
    if not ulp or (x < 0) != (y < 0):
        # Around zero the sign may differ by one rounding of a result that is no zero.
        near: bool = abs(x) + abs(y) <= 4 * _least(dtype)
        return bool(ulp) and near
    return abs(a - b) <= ulp


def _least(dtype: DType) -> float:
    found: float = scalar_from_bits(1, dtype)
    return found
