"""Specs of processors: x86-64 from its baseline to AVX-512, and 64-bit Arm with NEON."""

from __future__ import annotations

from collections.abc import Iterable

from tilework.base.records import dataclass, replace
from tilework.target.features import AARCH64, CPU_LEVELS, X86_64, level_of, normalize
from tilework.target.spec import Limits, MatrixInstruction, Memory, ParallelUnit, TargetSpec

MAX_KERNEL_BUFFERS = 4096
MAX_VARIABLES = 256
MAX_SCRATCH_BYTES = 1 << 30
BUFFER_ALIGNMENT_BYTES = 64

_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_ARITHMETIC = frozenset({"bool", "float32", "float64"}) | _INTEGERS
_STORAGE = _ARITHMETIC | {"float16", "bfloat16", "fp8e4m3", "fp8e5m2"}
_OPS = frozenset(
    {
        *("add", "sub", "mul", "neg", "abs", "maximum", "minimum", "cdiv", "cmod"),
        *("fdiv", "sqrt", "copysign", "and", "or", "xor", "shl", "shr"),
        *("lt", "le", "eq", "ne", "where", "cast", "bitcast", "load", "store"),
    }
)
#: What vectors of AVX-512 have instructions for.
_WIDE_OPS = frozenset({"scale_power", "compress", "maximum_number", "minimum_number", "gather"})
_ROUNDING_OPS = frozenset({"floor", "ceil", "trunc", "round"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """Data cache sizes in bytes: L1 and L2 per core, L3 shared; 0 when there is none."""

    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    line_bytes: int = 64


def _memories(vector_bits: int, num_registers: int, caches: Caches) -> tuple[Memory, ...]:
    line_bits = caches.line_bytes * 8
    register_bytes = vector_bits // 8 * num_registers
    rows = (
        Memory(name="register", owner="threads", size_bytes=register_bytes, width_bits=vector_bits),
        Memory(
            name="L1",
            owner="threads",
            size_bytes=caches.l1_bytes,
            width_bits=vector_bits,
            latency_cycles=5,
            bandwidth_bytes_per_cycle=vector_bits // 4,  # two loads a cycle
        ),
        Memory(
            name="L2",
            owner="threads",
            size_bytes=caches.l2_bytes,
            width_bits=line_bits,
            latency_cycles=14,
            bandwidth_bytes_per_cycle=32,
        ),
        Memory(
            name="L3",
            owner="machine",
            size_bytes=caches.l3_bytes,
            width_bits=line_bits,
            latency_cycles=50,
            bandwidth_bytes_per_cycle=16,
        ),
        Memory(
            name="global",
            owner="machine",
            size_bytes=0,
            width_bits=line_bits,
            latency_cycles=300,
            bandwidth_bytes_per_cycle=8,
        ),
        Memory(name="scratch", owner="threads", size_bytes=MAX_SCRATCH_BYTES),
    )
    return tuple(row for row in rows if row.size_bytes or row.name == "global")


def _amx_instructions(features: frozenset[str]) -> tuple[MatrixInstruction, ...]:
    """Products by AMX, in eight registers of 16 rows of 64 bytes.

    Of bytes 16 x 64 by 64 x 16, of floats of 16 bits half as many; those of floats take subnormal
    numbers for zeros.
    """
    found = []
    if "amx-int8" in features:
        kinds = {"s": "int8", "u": "uint8"}
        found += [
            _amx(f"tdpb{a}{b}d", 64, kinds[a], kinds[b], "int32") for a in kinds for b in kinds
        ]
    if "amx-bf16" in features:
        found.append(_amx("tdpbf16ps", 32, "bfloat16", "bfloat16", "float32"))
    return tuple(found)


def _amx(name: str, k: int, a: str, b: str, accumulator: str) -> MatrixInstruction:
    return MatrixInstruction(
        name=name,
        unit="threads",
        m=16,
        n=16,
        k=k,
        a_dtype=a,
        b_dtype=b,
        accumulator_dtype=accumulator,
        fragment_layout="words",
        registers=8,
        cycles=16,
        keeps_subnormals=accumulator == "int32",
    )


def _cpu_spec(
    isa: str,
    features: frozenset[str],
    vector_bits: int,
    num_registers: int,
    cores: int,
    caches: Caches,
    native_floats: frozenset[str],
    more_ops: frozenset[str],
) -> TargetSpec:
    level = level_of(isa, features)
    lanes = ParallelUnit(name="lanes", count=vector_bits // 32)
    threads = ParallelUnit(name="threads", count=cores, inner=(lanes,))
    return TargetSpec(
        name=f"cpu-{level if isa == X86_64 else isa}",
        isa=isa,
        cpu_name=level,
        features=features,
        object_format=f"elf-{isa}",
        vector_bits=vector_bits,
        num_vector_registers=num_registers,
        units=ParallelUnit(name="machine", count=1, inner=(threads,)),
        memories=_memories(vector_bits, num_registers, caches),
        limits=Limits(
            max_kernel_buffers=MAX_KERNEL_BUFFERS,
            max_variables=MAX_VARIABLES,
            max_scratch_bytes=MAX_SCRATCH_BYTES,
            buffer_alignment_bytes=BUFFER_ALIGNMENT_BYTES,
        ),
        storage_dtypes=_STORAGE,
        native_dtypes=_ARITHMETIC | native_floats,
        native_ops=_OPS | more_ops,
        has_fma="mulacc" in more_ops,
    )


def x86_spec(
    features: Iterable[str], *, cores: int = 1, caches: Caches | None = None
) -> TargetSpec:
    """Return the spec of an x86-64 processor with `features` (LLVM's names).

    Vectors are 512 bits wide only with all of AVX-512 F, DQ, BW and VL; 256 with AVX2.
    """
    kept = normalize(X86_64, features)
    wide = {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= kept
    vector_bits = 512 if wide else 256 if "avx2" in kept else 128
    native = frozenset({"float16"}) if "avx512fp16" in kept else frozenset[str]()
    spec = _cpu_spec(
        X86_64,
        kept,
        vector_bits,
        32 if wide else 16,
        cores,
        caches or Caches(),
        native,
        frozenset({"mulacc"} if "fma" in kept else ())
        | (_ROUNDING_OPS if "sse4.1" in kept else frozenset())
        | (_WIDE_OPS if wide else frozenset())
        | frozenset({"dot_pairs"} if "sse2" in kept else ())
        | frozenset({"dot_quads"} if ("avx512vnni" if wide else "avxvnni") in kept else ()),
    )
    return replace(spec, matrix_instructions=_amx_instructions(kept))


def x86_level_spec(
    level: str, *, cores: int = 1, caches: Caches | None = None, extra: Iterable[str] = ()
) -> TargetSpec:
    """Return the spec of a named level, `x86-64` to `x86-64-v4`, plus `extra` features."""
    levels = dict(CPU_LEVELS[X86_64])
    return x86_spec(levels[level] | set(extra), cores=cores, caches=caches)


def aarch64_spec(
    features: Iterable[str] = ("fp-armv8", "neon"), *, cores: int = 1, caches: Caches | None = None
) -> TargetSpec:
    """Return the spec of a 64-bit Arm processor with NEON and `features` (LLVM's names)."""
    kept = normalize(AARCH64, features)
    native = frozenset({"float16"}) if "fullfp16" in kept else frozenset[str]()
    ops = _ROUNDING_OPS | {"mulacc"}
    if "dotprod" in kept:
        ops |= {"dot_signed_quads"}
    return _cpu_spec(AARCH64, kept, 128, 32, cores, caches or Caches(), native, ops)
