"""Linux: pages by `mmap`, symbols of the C library, processor facts from /proc and /sys."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
from functools import cached_property
from pathlib import Path
from typing import Final

from tilework.base.cores import available_cores
from tilework.base.errors import DeviceError, MapError, OutOfMemoryError
from tilework.target.features import AARCH64, IMPLIES, X86_64, normalize

_PROT_READ: Final = 1
_PROT_WRITE: Final = 2
_PROT_EXEC: Final = 4
_MAP_PRIVATE: Final = 2
_MAP_ANONYMOUS: Final = 0x20
_MADV_HUGEPAGE: Final = 14
_MAP_FAILED: Final = ctypes.c_void_p(-1).value

# Names in /proc/cpuinfo that differ from LLVM's; all others agree after the underscores go.
_X86_FLAG_NAMES: Final = {
    "pni": "sse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "abm": "lzcnt",
    "lahf_lm": "sahf",
    "bmi1": "bmi",
    "avx_vnni": "avxvnni",
    "avx_vnni_int8": "avxvnniint8",
    "avx_ifma": "avxifma",
    "avx_ne_convert": "avxneconvert",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vnni": "avx512vnni",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}
_X86_SAME_NAMES: Final = frozenset(IMPLIES[X86_64]) - frozenset(_X86_FLAG_NAMES.values())
#: The call by which a process asks for state that its threads do not have at first, and the number
#: of the state of matrix registers.
_ARCH_PRCTL: Final = 158
_ASK_FOR_STATE: Final = 0x1023
_MATRIX_STATE: Final = 18
_AARCH64_FLAG_NAMES: Final = {
    "fp": ("fp-armv8",),
    "asimd": ("neon",),
    "crc32": ("crc",),
    "atomics": ("lse",),
    "asimdrdm": ("rdm",),
    "asimdhp": ("fullfp16",),
    "asimdfhm": ("fp16fml",),
    "asimddp": ("dotprod",),
    "bf16": ("bf16",),
    "i8mm": ("i8mm",),
    "sve": ("sve",),
    "sve2": ("sve2",),
}


class LinuxHost:
    """The running Linux process; `proc` and `sys` are replaced by trees of files in tests."""

    name = "linux"

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self.page_bytes = mmap.PAGESIZE
        self._proc = proc
        self._sys = sys
        libc = ctypes.CDLL(None, use_errno=True)
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._libc = libc
        self._mmap = libc.mmap
        self._mmap.restype = pointer
        self._mmap.argtypes = (
            pointer,
            size,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        self._mprotect = libc.mprotect
        self._mprotect.argtypes = (pointer, size, ctypes.c_int)
        self._munmap = libc.munmap
        self._munmap.argtypes = (pointer, size)
        self._aligned_alloc = libc.aligned_alloc
        self._aligned_alloc.restype = pointer
        self._aligned_alloc.argtypes = (size, size)
        self._free = libc.free
        self._free.argtypes = (pointer,)
        self._free.restype = None
        self._madvise = libc.madvise
        self._madvise.argtypes = (pointer, size, ctypes.c_int)

    def map_pages(self, size_bytes: int) -> int:
        """Return the address of new zeroed pages, readable and writable."""
        address: int | None = self._mmap(
            None, size_bytes, _PROT_READ | _PROT_WRITE, _MAP_PRIVATE | _MAP_ANONYMOUS, -1, 0
        )
        if address is None or address == _MAP_FAILED:
            raise OutOfMemoryError(
                "cpu: the operating system has no pages left",
                got=f"{size_bytes} bytes: {_error_text()}",
            )
        return address

    def make_executable(self, address: int, size_bytes: int) -> None:
        """Turn written pages into readable, executable ones."""
        self._flush_instructions(address, size_bytes)
        if self._mprotect(address, size_bytes, _PROT_READ | _PROT_EXEC) != 0:
            raise MapError(
                "cpu: pages cannot be made executable",
                got=_error_text(),
                try_="allow executable anonymous memory for this process (SELinux execmem)",
            )

    def unmap_pages(self, address: int, size_bytes: int) -> None:
        """Give pages back."""
        if self._munmap(address, size_bytes) != 0:
            raise MapError("cpu: pages cannot be unmapped", got=_error_text())

    def allocate_small(self, size_bytes: int, alignment_bytes: int) -> int:
        """Return the address of memory from the C library's heap."""
        address: int | None = self._aligned_alloc(alignment_bytes, size_bytes)
        if not address:
            raise OutOfMemoryError("cpu: the heap is full", got=f"{size_bytes} bytes")
        return address

    def free_small(self, address: int) -> None:
        """Give memory of `allocate_small` back."""
        self._free(address)

    def advise_huge_pages(self, address: int, size_bytes: int) -> None:
        """Ask for huge pages."""
        self._madvise(address, size_bytes, _MADV_HUGEPAGE)

    def symbol_address(self, name: str) -> int:
        """Return the address of a function of the C library; 0 when it has none."""
        try:
            function = getattr(self._libc, name)
        except AttributeError:
            return 0
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def start_thread(self, entry: int, argument: int, name: str) -> int:
        """Start a native thread that no signal interrupts; return its handle."""
        handle = ctypes.c_ulong()
        # A new thread inherits the mask; Python's handlers belong to Python's threads.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            status = self._libc.pthread_create(
                ctypes.byref(handle), None, ctypes.c_void_p(entry), ctypes.c_void_p(argument)
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if status != 0:
            raise DeviceError(
                "cpu: a thread cannot be started",
                got=os.strerror(status),
                try_="set TILEWORK_NUM_THREADS=1, or raise the limit on threads",
            )
        self._libc.pthread_setname_np(handle, name.encode()[:15])
        return handle.value

    def join_thread(self, handle: int) -> None:
        """Wait for a thread that is about to end, and release it."""
        status = self._libc.pthread_join(ctypes.c_ulong(handle), None)
        if status != 0:
            raise DeviceError("cpu: a thread cannot be joined", got=os.strerror(status))

    def usable_cores(self) -> int:
        """How many cores this process may run on."""
        return available_cores()

    def isa(self) -> str:
        """The instruction set of this process."""
        return self._isa

    @cached_property
    def _isa(self) -> str:
        machine = os.uname().machine
        return {"x86_64": X86_64, "AMD64": X86_64, "arm64": AARCH64}.get(machine, machine)

    def cpu_features(self) -> frozenset[str]:
        """The features of the processor, in the names of `target.features`."""
        return self._features

    @cached_property
    def _features(self) -> frozenset[str]:
        flags = self._cpu_flags
        if self.isa() == X86_64:
            names = (flags & _X86_SAME_NAMES) | {
                llvm for linux, llvm in _X86_FLAG_NAMES.items() if linux in flags
            }
            if "amx-tile" in names and not self.take_matrix_registers():
                names -= {"amx-tile"}  # and with it what needs it
            return normalize(X86_64, names)
        if self.isa() == AARCH64:
            found = (_AARCH64_FLAG_NAMES[flag] for flag in flags if flag in _AARCH64_FLAG_NAMES)
            return normalize(AARCH64, (name for names in found for name in names))
        return frozenset()

    def take_matrix_registers(self) -> bool:
        """Ask for the use of matrix registers by all threads of this process.

        The system refuses where its own saves of registers would not fit a signal's stack, or
        where it has been told to.  Children of a fork inherit the permission.
        """
        arguments = map(ctypes.c_long, (_ARCH_PRCTL, _ASK_FOR_STATE, _MATRIX_STATE))
        return int(self._libc.syscall(*arguments)) == 0

    def cache_bytes(self) -> dict[str, int]:
        """Sizes of `L1`, `L2` (of one core) and `L3`, as far as they are known."""
        sizes: dict[str, int] = {}
        folder = self._sys / "devices/system/cpu/cpu0/cache"
        for index in sorted(folder.glob("index*")):
            kind = _read(index / "type")
            if kind != "Instruction":
                sizes[f"L{_read(index / 'level')}"] = _size_in_bytes(_read(index / "size"))
        return {name: size for name, size in sizes.items() if size and name in ("L1", "L2", "L3")}

    @cached_property
    def _cpu_flags(self) -> frozenset[str]:
        for line in _read(self._proc / "cpuinfo").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("flags", "Features"):
                return frozenset(value.split())
        return frozenset()

    @cached_property
    def _clear_cache(self) -> ctypes._NamedFuncPointer | None:
        if self.isa() == X86_64:
            return None  # instruction caches are coherent
        try:
            function = ctypes.CDLL("libgcc_s.so.1").__clear_cache
        except (OSError, AttributeError):
            return None  # the kernel cleans the caches when it makes the pages executable
        function.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        return function

    def _flush_instructions(self, address: int, size_bytes: int) -> None:
        if self._clear_cache is not None:
            self._clear_cache(address, address + size_bytes)


def _read(path: Path) -> str:
    """Return the text of a file of /proc or /sys, empty when this kernel has none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _size_in_bytes(text: str) -> int:
    """Read a size such as `48K` or `2M`; 0 when it is not one."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * scale if digits.isdigit() else 0


def _error_text() -> str:
    number = ctypes.get_errno()
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
