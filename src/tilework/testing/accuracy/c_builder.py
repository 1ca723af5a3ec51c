"""Builds constructions as C, so that a sweep over all 2^32 inputs runs at the machine's speed."""

from __future__ import annotations

import math
import struct

from tilework.codegen.decompose.builder import (
    BinaryName,
    CompareName,
    Dtype,
    Number,
    UnaryName,
)

TYPES = {
    "bool": "int",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float32": "float",
    "float64": "double",
}
OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "less": "<",
    "equal": "==",
    "not_equal": "!=",
}


class CBuilder:
    """Emits one C statement an operation; a raw value is a variable's name or a literal."""

    has_scale = False
    has_branches = False
    checks_domains = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: dict[str, int] = {}
        self._known: dict[str, str] = {}

    def _emit(self, kind: str, expression: str, dtype: Dtype) -> str:
        key = f"{dtype}:{expression}"
        if key not in self._known:
            name = f"v{len(self.lines)}"
            self.lines.append(f"{TYPES[dtype]} {name} = {expression};")
            self._known[key] = name
            self.counts[f"{kind}.{dtype}"] = self.counts.get(f"{kind}.{dtype}", 0) + 1
        return self._known[key]

    @property
    def operations(self) -> int:
        """How many operations were built; bit casts cost nothing and do not count."""
        return sum(n for kind, n in self.counts.items() if not kind.startswith("bitcast"))

    def const(self, value: Number, dtype: Dtype) -> str:
        """Return a literal with exactly these bits."""
        if dtype == "float32":
            (bits,) = struct.unpack("<I", struct.pack("<f", value))
            (back,) = struct.unpack("<f", struct.pack("<f", value))
            if not math.isnan(value) and back != value:
                message = f"{value!r} is no float32"
                raise ValueError(message)
            return f"f32(0x{bits:08x}u)"
        if dtype == "float64":
            (bits,) = struct.unpack("<Q", struct.pack("<d", value))
            return f"f64(0x{bits:016x}ull)"
        if dtype.endswith("64"):
            return f"(({TYPES[dtype]})0x{int(value) & (2**64 - 1):x}ull)"
        return f"(({TYPES[dtype]}){int(value)})"

    def unary(self, name: UnaryName, x: str, dtype: Dtype) -> str:
        """Apply one operation of one operand."""
        if name != "neg":
            stem = {"sqrt": "sqrt", "abs": "fabs"}[name]
            suffix = "f" if dtype == "float32" else ""
            return self._emit(name, f"__builtin_{stem}{suffix}({x})", dtype)
        return self._emit(name, f"-{x}", dtype)

    def binary(self, name: BinaryName, x: str, y: str, dtype: Dtype) -> str:
        """Apply one operation of two operands."""
        return self._emit(name, f"{x} {OPERATORS[name]} {y}", dtype)

    def compare(self, name: CompareName, x: str, y: str, dtype: Dtype) -> str:
        """Return a bool of the comparison."""
        return self._emit(f"compare.{dtype}", f"{x} {OPERATORS[name]} {y}", "bool")

    def fma(self, x: str, y: str, z: str, dtype: Dtype) -> str:
        """Return `x * y + z`, rounded once."""
        suffix = "f" if dtype == "float32" else ""
        return self._emit("fma", f"__builtin_fma{suffix}({x}, {y}, {z})", dtype)

    def scale(self, x: str, n: str, dtype: Dtype) -> str:
        """Return `x * 2**n`, rounded once."""
        suffix = "f" if dtype == "float32" else ""
        return self._emit("scale", f"__builtin_ldexp{suffix}({x}, (int){n})", dtype)

    def where(self, condition: str, x: str, y: str, dtype: Dtype) -> str:
        """Select by `condition`."""
        return self._emit("where", f"{condition} ? {x} : {y}", dtype)

    def where_rare(self, condition: str, rare: str, common: str, dtype: Dtype) -> str:
        """Select, as there are no branches."""
        return self.where(condition, rare, common, dtype)

    def cast(self, x: str, source: Dtype, target: Dtype) -> str:
        """Convert by value."""
        return self._emit(f"cast.{source}", f"({TYPES[target]}){x}", target)

    def bitcast(self, x: str, source: Dtype, target: Dtype) -> str:
        """Reinterpret the bits."""
        names = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}
        names |= {"uint32": "u32", "uint64": "u64"}
        return self._emit("bitcast", f"{names[target]}_{names[source]}({x})", target)

    def check_domain(self, x: str, low: float, high: float, helper: str) -> None:
        """Not called: see `checks_domains`."""
