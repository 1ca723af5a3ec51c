"""Specs of NVIDIA GPUs by compute capability, from 7.5 (Turing) to 12.0 (Blackwell).

What differs between cards of one capability (multiprocessors, caches, memory) is taken from the
driver where one is open; the defaults are those of a card of that generation.
"""

from __future__ import annotations

from typing import Final

from tilework.base.errors import UnsupportedError
from tilework.base.records import dataclass, replace
from tilework.target.spec import (
    CopyEngine,
    Limits,
    MatrixInstruction,
    Memory,
    ParallelUnit,
    TargetSpec,
)

ISA: Final = "ptx"
#: Parameters of a kernel are 8 bytes each; there is room for the fault word and the scratch.
_PARAMETER_WORDS = {True: 32764 // 8, False: 4096 // 8}
MAX_VARIABLES: Final = 64
#: Registers of 32 bits of a multiprocessor, all of which one block may have, and of a thread.
_REGISTERS: Final = 1 << 16
_THREAD_REGISTERS: Final = 255
#: Local memory that a thread may have.
_PRIVATE_BYTES: Final = 512 << 10
#: Memory of the device that one block may ask for where shared memory is too small.
MAX_SCRATCH_BYTES: Final = 1 << 30

_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_ARITHMETIC = frozenset({"bool", "float32", "float64"}) | _INTEGERS
_STORAGE = _ARITHMETIC | {"float16", "bfloat16", "fp8e4m3", "fp8e5m2"}
_OPS = frozenset(
    {
        *("add", "sub", "mul", "neg", "abs", "maximum", "minimum", "cdiv", "cmod", "mulacc"),
        *("fdiv", "sqrt", "copysign", "and", "or", "xor", "shl", "shr"),
        *("lt", "le", "eq", "ne", "where", "cast", "bitcast", "load", "store"),
        *("floor", "ceil", "trunc", "round", "fmod"),
        # NVIDIA's own: at most 1.94 units in the last place over all inputs (measured on an H200),
        # in a third of the instructions.
        "exp_float32",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What cards of one capability may differ in."""

    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    bandwidth_bytes_per_cycle: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capability:
    """What a compute capability fixes."""

    features: str  # "sm_90a" where instructions exist for this very capability alone
    shared_block_bytes: int  # what one block may have
    shared_bytes: int  # what a multiprocessor has
    threads: int  # that a multiprocessor holds
    near_bytes: int  # that the cache which all share gives in a cycle
    card: Card
    matrix: tuple[MatrixInstruction, ...] = ()
    copies: tuple[CopyEngine, ...] = ()
    has_bfloat16: bool = True


def _mma(
    m: int, n: int, k: int, dtype: str, accumulator: str = "float32", *, rate: int = 0
) -> MatrixInstruction:
    """A product of one warp, whose operands and results are spread over the warp's registers.

    `rate` is how many multiply-adds of this dtype a multiprocessor does in one cycle.
    """
    return MatrixInstruction(
        name=f"mma_m{m}n{n}k{k}_{dtype}",
        unit="warp",
        m=m,
        n=n,
        k=k,
        a_dtype=dtype,
        b_dtype=dtype,
        accumulator_dtype=accumulator,
        fragment_layout="quad",
        cycles=m * n * k // rate if rate else 0,
    )


def _mma_bytes(m: int, n: int, k: int, rate: int) -> tuple[MatrixInstruction, ...]:
    """Those of bytes, each operand signed or not."""
    signed = _mma(m, n, k, "int8", "int32", rate=rate)
    others = [
        (a, b) for a in ("int8", "uint8") for b in ("int8", "uint8") if (a, b) != ("int8",) * 2
    ]
    mixed = [
        replace(signed, name=f"mma_m{m}n{n}k{k}_{a}_{b}", a_dtype=a, b_dtype=b) for a, b in others
    ]
    return (signed, *mixed)


def _wgmma(n: int, k: int, dtype: str, accumulator: str = "float32") -> MatrixInstruction:
    """A product of four warps, whose operands are read from swizzled shared memory."""
    return MatrixInstruction(
        name=f"wgmma_m64n{n}k{k}_{dtype}",
        unit="warp_group",
        m=64,
        n=n,
        k=k,
        a_dtype=dtype,
        b_dtype=dtype,
        accumulator_dtype=accumulator,
        b_memory="shared",
        fragment_layout="swizzle-128",
    )


def _ampere(rate: int, double_rate: int) -> tuple[MatrixInstruction, ...]:
    """Those from Ampere on, by the multiply-adds of 16-bit operands and of float64 in a cycle."""
    return (
        _mma(16, 8, 16, "float16", rate=rate),
        _mma(16, 8, 16, "bfloat16", rate=rate),
        _mma(16, 8, 8, "tf32", rate=rate // 2),
        *_mma_bytes(16, 8, 32, 2 * rate),
        _mma(8, 8, 4, "float64", "float64", rate=double_rate),
    )


def _ada(rate: int, double_rate: int) -> tuple[MatrixInstruction, ...]:
    """The same with 8-bit floats."""
    narrow = [_mma(16, 8, 32, dtype, rate=2 * rate) for dtype in ("fp8e4m3", "fp8e5m2")]
    return (*_ampere(rate, double_rate), *narrow)


_TURING = (_mma(16, 8, 8, "float16", rate=512), *_mma_bytes(8, 8, 16, 1024))
_AMPERE, _SMALL_AMPERE = _ampere(1024, 64), _ampere(512, 2)
_ADA, _BLACKWELL = _ada(512, 2), _ada(1024, 64)
_HOPPER = (
    *_ada(1024, 64),
    *(
        _wgmma(n, 16, dtype)
        for dtype in ("bfloat16", "float16")
        for n in (*range(8, 128, 8), 128, 192, 256)
    ),
    *(_wgmma(n, 8, "tf32") for n in (64, 128, 256)),
    *(_wgmma(n, 32, dtype) for dtype in ("fp8e4m3", "fp8e5m2") for n in (64, 128, 256)),
    *(_wgmma(n, 32, "int8", "int32") for n in (64, 128, 256)),
)
_ASYNC = CopyEngine(
    name="cp.async",
    source_memory="global",
    target_memory="shared",
    granularity_bytes=4,
    alignment_bytes=4,
)
_BULK = CopyEngine(
    name="bulk tensor copy",
    source_memory="global",
    target_memory="shared",
    granularity_bytes=16,
    alignment_bytes=128,
)

_KIB: Final = 1 << 10
_GIB: Final = 1 << 30
_CAPABILITIES: Final[dict[int, _Capability]] = {
    75: _Capability(
        features="sm_75",
        shared_block_bytes=64 * _KIB,
        shared_bytes=64 * _KIB,
        threads=1024,
        near_bytes=800,
        card=Card(
            multiprocessors=40,
            memory_bytes=16 * _GIB,
            l2_bytes=4 << 20,
            bandwidth_bytes_per_cycle=200,
        ),
        matrix=_TURING,
        has_bfloat16=False,
    ),
    80: _Capability(
        features="sm_80",
        shared_block_bytes=163 * _KIB,
        shared_bytes=164 * _KIB,
        threads=2048,
        near_bytes=3200,
        card=Card(
            multiprocessors=108,
            memory_bytes=40 * _GIB,
            l2_bytes=40 << 20,
            bandwidth_bytes_per_cycle=1100,
        ),
        matrix=_AMPERE,
        copies=(_ASYNC,),
    ),
    86: _Capability(
        features="sm_86",
        shared_block_bytes=99 * _KIB,
        shared_bytes=100 * _KIB,
        threads=1536,
        near_bytes=1500,
        card=Card(
            multiprocessors=84,
            memory_bytes=24 * _GIB,
            l2_bytes=6 << 20,
            bandwidth_bytes_per_cycle=550,
        ),
        matrix=_SMALL_AMPERE,
        copies=(_ASYNC,),
    ),
    89: _Capability(
        features="sm_89",
        shared_block_bytes=99 * _KIB,
        shared_bytes=100 * _KIB,
        threads=1536,
        near_bytes=2200,
        card=Card(
            multiprocessors=128,
            memory_bytes=24 * _GIB,
            l2_bytes=72 << 20,
            bandwidth_bytes_per_cycle=400,
        ),
        matrix=_ADA,
        copies=(_ASYNC,),
    ),
    90: _Capability(
        features="sm_90a",
        shared_block_bytes=227 * _KIB,
        shared_bytes=228 * _KIB,
        threads=2048,
        near_bytes=5120,
        card=Card(
            multiprocessors=132,
            memory_bytes=141 * 10**9,
            l2_bytes=60 << 20,
            bandwidth_bytes_per_cycle=2400,
        ),
        matrix=_HOPPER,
        copies=(_ASYNC, _BULK),
    ),
    100: _Capability(
        features="sm_100a",
        shared_block_bytes=227 * _KIB,
        shared_bytes=228 * _KIB,
        threads=2048,
        near_bytes=8192,
        card=Card(
            multiprocessors=148,
            memory_bytes=180 * 10**9,
            l2_bytes=126 << 20,
            bandwidth_bytes_per_cycle=4200,
        ),
        matrix=_BLACKWELL,
        copies=(_ASYNC, _BULK),
    ),
    120: _Capability(
        features="sm_120a",
        shared_block_bytes=99 * _KIB,
        shared_bytes=100 * _KIB,
        threads=1536,
        near_bytes=3500,
        card=Card(
            multiprocessors=170,
            memory_bytes=32 * _GIB,
            l2_bytes=96 << 20,
            bandwidth_bytes_per_cycle=740,
        ),
        matrix=_ADA,
        copies=(_ASYNC, _BULK),
    ),
}
CAPABILITIES: Final = tuple(sorted(_CAPABILITIES))


def cuda_spec(capability: int, card: Card | None = None, *, is_recent: bool = True) -> TargetSpec:
    """Return the spec of a card of a compute capability, times ten (90 for 9.0).

    Args:
        capability: One that is not in the table takes the code of the nearest one below of the
            same major version.
        card: What the driver knows of the card.
        is_recent: Whether the driver takes kernels with 32 KiB of parameters (from CUDA 12.1 on).

    Raises: UnsupportedError for a capability that no code can be made for.
    """
    known = [c for c in CAPABILITIES if c <= capability and c // 10 == capability // 10]
    if not known:
        raise UnsupportedError(
            "CUDA: no code is made for cards of this compute capability",
            got=f"{capability / 10:.1f}",
            expected=f"one of {', '.join(f'{c / 10:.1f}' for c in CAPABILITIES)}",
        )
    base = known[-1]
    found = _CAPABILITIES[base]
    # Code for one capability alone does not run on its neighbours.
    arch = found.features if base == capability else f"sm_{capability}"
    has_extra = arch.endswith("a")
    return TargetSpec(
        name=f"cuda-{arch}",
        isa=ISA,
        cpu_name=arch,
        features=frozenset({arch}),
        object_format="cubin",
        vector_bits=128,
        num_vector_registers=_THREAD_REGISTERS,
        units=_units(card or found.card, found.threads),
        memories=_memories(card or found.card, found),
        matrix_instructions=found.matrix if has_extra or base < 90 else _ADA,
        copy_engines=found.copies,
        limits=_limits(found, is_recent),
        storage_dtypes=_STORAGE,
        native_dtypes=_ARITHMETIC,
        native_ops=_OPS | ({"cast_bfloat16"} if found.has_bfloat16 else set()),
        has_fma=True,
        has_copy_queue=True,
        peer_group="cuda",
    )


def _units(card: Card, threads: int) -> ParallelUnit:
    lane = ParallelUnit(name="lane", count=32)
    warp = ParallelUnit(name="warp", count=4, inner=(lane,))
    group = ParallelUnit(name="warp_group", count=0, inner=(warp,))
    block = ParallelUnit(name="block", count=threads // 1024 or 1, inner=(group,))
    cluster = ParallelUnit(name="cluster", count=0, inner=(block,))
    return ParallelUnit(name="grid", count=card.multiprocessors, inner=(cluster,))


def _memories(card: Card, found: _Capability) -> tuple[Memory, ...]:
    return (
        Memory(name="register", owner="lane", size_bytes=_THREAD_REGISTERS * 4, width_bits=32),
        Memory(
            name="shared",
            owner="block",
            size_bytes=found.shared_bytes,
            width_bits=32,
            latency_cycles=30,
            bandwidth_bytes_per_cycle=128,
        ),
        Memory(
            name="L2",
            owner="machine",
            size_bytes=card.l2_bytes,
            width_bits=256,
            latency_cycles=270,
            bandwidth_bytes_per_cycle=found.near_bytes,
        ),
        Memory(
            name="global",
            owner="machine",
            size_bytes=card.memory_bytes,
            width_bits=256,
            latency_cycles=600,
            bandwidth_bytes_per_cycle=card.bandwidth_bytes_per_cycle,
        ),
    )


def _limits(found: _Capability, is_recent: bool) -> Limits:
    words = _PARAMETER_WORDS[is_recent]
    return Limits(
        max_kernel_buffers=words - MAX_VARIABLES - 2,
        max_variables=MAX_VARIABLES,
        max_grid=((1 << 31) - 1, 65535, 65535),
        max_workgroup=(1024, 1024, 64),
        max_workgroup_threads=1024,
        shared_memory_bytes=found.shared_block_bytes,
        registers=_REGISTERS,
        max_thread_registers=_THREAD_REGISTERS,
        private_bytes=_PRIVATE_BYTES,
        max_scratch_bytes=MAX_SCRATCH_BYTES,
        buffer_alignment_bytes=256,
    )
