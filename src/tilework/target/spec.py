"""`TargetSpec`: a machine as data, the only thing that code generation may read of a device.

A spec is a tree of parallel units, memories, matrix instructions, copy engines and limits, with
the dtypes and operations that the machine has natively.  It is frozen, comparable, printable and
has a digest (`key`) that goes into every cache key of code made for it.  Nothing here probes:
`runtime.host` and the drivers build specs, `target.known` holds those of known machines.

Every kind of machine is said in these words; plans and lowering ask for them, never for a name:

- *CPU*: units `threads` > `lanes`; memories RAM > L3 > L2 > L1.
- *NVIDIA H200*: `grid` > `cluster` > `block` > `warp_group` > `warp` > `lane`; 227 KiB of shared
  memory a block; `wgmma` shapes that read operands from shared memory in a swizzled
  fragment layout; TMA as a copy engine.
- *AMD RDNA and CDNA*: `grid` > `block` > `warp` (32 or 64) > `lane`; LDS; WMMA or MFMA shapes.
- *Adreno*: `grid` > `block` > `warp` > `lane`; small local memory.
- *Hexagon*: `threads` > `lanes` (1024-bit vectors); VTCM as an addressable memory; DMA as a copy
  engine.
- *Apple GPUs*: `grid` > `block` > `warp` > `lane`; threadgroup memory; simdgroup matrices of 8 x 8.

A field comes with its first reader (limits of images with the first renderer that has some).  That
a kernel takes a part of a buffer is no field: memory is planned so, and each driver must do it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from tilework.base.errors import UnsupportedError
from tilework.base.hashing import blake2b
from tilework.base.records import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelUnit:
    """One level of parallelism: `count` of these inside one unit of the level above.

    CPU: `threads` > `lanes`.  GPU: `grid` > `cluster` > `block` > `warp_group` > `warp` > `lane`.
    A count of 0 means that the program chooses it, within the limits.
    """

    name: str
    count: int
    inner: tuple[ParallelUnit, ...] = ()

    def walk(self) -> Iterator[ParallelUnit]:
        """Yield this unit and all inside it, outermost first."""
        yield self
        for unit in self.inner:
            yield from unit.walk()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A memory and the parallel unit that owns one copy of it.

    `size_bytes` is per owner; 0 for a width, latency or bandwidth that is not known.
    """

    name: str
    owner: str
    size_bytes: int
    width_bits: int = 0
    latency_cycles: int = 0
    bandwidth_bytes_per_cycle: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixInstruction:
    """D[m, n] = A[m, k] x B[k, n] + C as one instruction of unit `unit`.

    With `registers` the operands lie in so many registers, each of which holds a matrix of at most
    the sizes given; smaller ones may be asked for.  The layout `words` puts consecutive elements
    along k into words of 32 bits: rows of A are words side by side, and so are columns of B.  The
    layout `quad` spreads operands over the lanes of a warp as `ir.ops.warp_matrix` says: four lanes
    share a row of A, a column of B, and a row of the sums.  `swizzle-128` is that of rows of 128
    bytes in TILE memory whose chunks of 16 bytes are permuted.  (AMD's WMMA has a row of A in a
    lane, Apple's 8 x 8 two sums a lane, Hexagon's unit its own order of a tile in VTCM: each would
    be another word here, with its own meaning in the op that loads fragments.)
    `cycles` is how often one may start (on a GPU: on one multiprocessor); 0 where it is not known.
    Without `keeps_subnormals` it takes subnormal numbers for zeros, and gives no such.
    """

    name: str
    unit: str
    m: int
    n: int
    k: int
    a_dtype: str
    b_dtype: str
    accumulator_dtype: str
    b_memory: str = "register"
    fragment_layout: str = "row"
    registers: int = 0
    cycles: int = 0
    keeps_subnormals: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEngine:
    """A way to move data that runs beside the arithmetic (bulk tensor copies, async copies)."""

    name: str
    source_memory: str
    target_memory: str
    granularity_bytes: int
    alignment_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a program on this machine may not exceed; 0 means no limit of that kind."""

    max_kernel_buffers: int
    max_variables: int
    max_grid: tuple[int, ...] = ()
    max_workgroup: tuple[int, ...] = ()
    max_workgroup_threads: int = 0
    shared_memory_bytes: int = 0
    #: Registers that the threads of one block share, and the most that one thread may have.
    registers: int = 0
    max_thread_registers: int = 0
    #: Memory of one thread beside its registers.
    private_bytes: int = 0
    max_scratch_bytes: int = 0
    buffer_alignment_bytes: int = 64


@dataclass(frozen=True, kw_only=True)
class TargetSpec:
    """One machine as the compiler sees it; see the module's docstring."""

    name: str  # "cpu-x86-64-v4", "cuda-sm_90a"
    isa: str  # "x86-64", "aarch64", "ptx", "none"
    cpu_name: str = ""  # the processor that LLVM's feature defaults are taken from
    features: frozenset[str] = frozenset()
    object_format: str = ""  # "elf-x86-64", "elf-aarch64"; empty when nothing is compiled
    vector_bits: int = 0
    num_vector_registers: int = 0
    units: ParallelUnit
    memories: tuple[Memory, ...]
    matrix_instructions: tuple[MatrixInstruction, ...] = ()
    copy_engines: tuple[CopyEngine, ...] = ()
    limits: Limits
    storage_dtypes: frozenset[str]  # may be loaded and stored
    native_dtypes: frozenset[str]  # arithmetic is native; the rest is decomposed
    native_ops: frozenset[str]
    has_fma: bool = False
    keeps_subnormals: bool = True
    has_copy_queue: bool = False  # copies from other devices run beside its kernels
    runs_code: bool = True  # False: compiles, checks contracts, runs nothing
    peer_group: str = ""

    @cached_property
    def _memory_by_name(self) -> dict[str, Memory]:
        return {memory.name: memory for memory in self.memories}

    @cached_property
    def _digest(self) -> str:
        return blake2b(_canonical(self).encode(), digest_size=16).hexdigest()

    def key(self) -> str:
        """Return a digest of all fields, the same in every process."""
        return self._digest

    def memory(self, name: str) -> Memory:
        """Return the memory called `name`.

        Raises: UnsupportedError when the target has none of that name.
        """
        found = self._memory_by_name.get(name)
        if found is None:
            raise UnsupportedError(
                f"target: {self.name} has no memory {name!r}",
                expected=f"one of {sorted(self._memory_by_name)}",
            )
        return found

    def memory_bytes(self, name: str) -> int:
        """Return the size of memory `name` per owner, 0 when the target has none."""
        found = self._memory_by_name.get(name)
        return 0 if found is None else found.size_bytes

    def unit(self, name: str) -> ParallelUnit:
        """Return the parallel unit called `name`.

        Raises: UnsupportedError when the target has none of that name.
        """
        for found in self.units.walk():
            if found.name == name:
                return found
        raise UnsupportedError(
            f"target: {self.name} has no parallel unit {name!r}",
            expected=f"one of {[unit.name for unit in self.units.walk()]}",
        )

    @property
    def cores(self) -> int:
        """How many threads run at once; 1 where the target has no threads."""
        return next((unit.count for unit in self.units.walk() if unit.name == "threads"), 1)

    @property
    def vector_bytes(self) -> int:
        """The bytes of one vector register."""
        return self.vector_bits // 8

    @property
    def l1_bytes(self) -> int:
        """The L1 data cache of one core; 0 when unknown."""
        return self.memory_bytes("L1")

    @property
    def l2_bytes(self) -> int:
        """The L2 cache of one core; 0 when unknown."""
        return self.memory_bytes("L2")

    @property
    def l3_bytes(self) -> int:
        """The last-level cache that all cores share; 0 when unknown."""
        return self.memory_bytes("L3")

    @property
    def line_bytes(self) -> int:
        """A line of the L2 cache; 0 when unknown."""
        found = self._memory_by_name.get("L2")
        return 0 if found is None else found.width_bits // 8

    def feature_string(self) -> str:
        """Return `features` in the form that LLVM and clang read: `+avx2,+fma`."""
        return ",".join(f"+{name}" for name in sorted(self.features))


def _canonical(value: Any) -> str:
    """Return a text that is equal exactly for equal specs."""
    if isinstance(value, frozenset):
        return "{" + ",".join(sorted(_canonical(item) for item in value)) + "}"
    if isinstance(value, tuple):
        return "(" + ",".join(_canonical(item) for item in value) + ")"
    if isinstance(value, (str, int, bool)):
        return repr(value)
    inside = ",".join(f"{f.name}={_canonical(getattr(value, f.name))}" for f in fields(value))
    return f"{type(value).__name__}({inside})"
