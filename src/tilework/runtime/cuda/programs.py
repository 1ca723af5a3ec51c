"""The code that is on one card: modules, their kernels, and what launching one takes.

    program = programs.load([KernelCode(name="k", data=code, num_buffers=2, writes=(0,))])
    loaded, function, blocks, arguments = programs.launch_words(launch)
    program.close()

Each kernel has a module of its own, with two functions: for buffers that start at a multiple of
`ALIGNMENT_BYTES`, and for any others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base import faults
from tilework.base.errors import StaleHandleError, UnsupportedError
from tilework.runtime.bus.cuda import LOST, CudaCallError
from tilework.runtime.cuda.recording import Arguments
from tilework.runtime.driver import Command, Kernel, Launch
from tilework.target.cuda_code import ALIGNMENT_BYTES, ANY_SUFFIX, unpack_code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.runtime.buffer import Buffer
    from tilework.runtime.driver import KernelCode
    from tilework.runtime.drivers.cuda import CudaDriver
    from tilework.target.cuda_code import Box, CudaHead

#: Descriptions of arrays that are kept.
_MOST_BOXES: Final = 4096


class _Loaded:
    """A kernel that is on the card."""

    __slots__ = ("aligned", "any_", "head", "widths")

    def __init__(self, head: CudaHead, aligned: int, any_: int) -> None:
        self.head = head
        self.aligned = aligned
        self.any_ = any_
        self.widths = tuple([int(width) for width in head.widths.split(",") if width.isdecimal()])


class CudaProgram:
    """Kernels of one `load`; each has a module of its own."""

    def __init__(
        self, programs: CudaPrograms, kernels: tuple[Kernel, ...], modules: list[int]
    ) -> None:
        self.kernels = kernels
        self._programs = programs
        self._modules = modules

    def close(self) -> None:
        """Unload, once queued work is done."""
        modules, self._modules = self._modules, []
        self._programs.unload(self.kernels, modules)


class CudaPrograms:
    """The code on one card.  Thread-safe, by the guard of its driver.

    Args:
        driver: of the card.
        scratch_for: gives memory of so many bytes that the blocks of one launch share out.
        drain: waits for all work that was queued.
        count: tells the ledger of modules that came, or, below 0, went.
    """

    def __init__(
        self,
        driver: CudaDriver,
        scratch_for: Callable[[int], Buffer],
        drain: Callable[[], None],
        count: Callable[[int], None],
    ) -> None:
        self._driver = driver
        self._scratch_for = scratch_for
        self._drain = drain
        self._count = count
        self._handles: dict[int, _Loaded] = {}
        self._next_handle = 1
        self._modules: set[int] = set()
        self._boxes: dict[tuple[int, Box], tuple[int, ...]] = {}

    # ---- code

    def load(self, kernels: Sequence[KernelCode]) -> CudaProgram:
        """Load the cubin of each kernel."""
        unpacked = [unpack_code(code.data) for code in kernels]
        for head, _ in unpacked:
            self._check_head(head)
        modules: list[int] = []
        loaded: list[Kernel] = []
        with self._driver.guard("load"):
            try:
                for code, (head, cubin) in zip(kernels, unpacked, strict=True):
                    faults.hit("cuda.load.module")
                    modules.append(self._module(cubin, head))
                    loaded.append(self._kernel(code, head, modules[-1]))
            except BaseException:
                self._unload(modules)
                raise
        return CudaProgram(self, tuple(loaded), modules)

    def unload(self, kernels: Sequence[Kernel], modules: Sequence[int]) -> None:
        """Give the code of a program back."""
        for kernel in kernels:
            self._handles.pop(kernel.handle, None)
        driver = self._driver
        if not modules or driver.is_closed or driver.lost:
            return
        with driver.guard("unload"):
            self._drain()
            self._unload(modules)

    def close(self) -> None:
        """Give all back; called with the context current."""
        self._unload(sorted(self._modules))

    def forget(self) -> None:
        """They went with the context."""
        if self._modules:
            self._count(-len(self._modules))
        self._modules.clear()
        self._handles.clear()

    def _unload(self, modules: Sequence[int]) -> None:
        for module in modules:
            self._modules.discard(module)
            self._driver.library.module_unload(module)
            self._count(-1)

    def _module(self, cubin: bytes, head: CudaHead) -> int:
        try:
            module = self._driver.library.module_load(cubin)
        except CudaCallError as error:
            if error.code in LOST:
                raise
            raise UnsupportedError(
                f"{self._driver.name}: the driver refuses the code of {head.name}", got=str(error)
            ) from error
        self._modules.add(module)
        self._count(1)
        return module

    def _kernel(self, code: KernelCode, head: CudaHead, module: int) -> Kernel:
        library = self._driver.library
        aligned = library.function(module, head.name)
        any_ = library.function(module, head.name + ANY_SUFFIX) if head.has_any else aligned
        if head.shared:
            for function in {aligned, any_}:
                library.allow_shared(function, head.shared)
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = _Loaded(head, aligned, any_)
        return Kernel(
            name=code.name,
            handle=handle,
            num_buffers=code.num_buffers,
            num_variables=code.num_variables,
            writes=code.writes,
            scratch_bytes=code.scratch_bytes,
        )

    def _check_head(self, head: CudaHead) -> None:
        name, target = self._driver.name, self._driver.target
        if head.arch != target.cpu_name:
            raise UnsupportedError(
                f"{name}: the code of {head.name} is for another card",
                got=head.arch,
                expected=target.cpu_name,
            )
        if head.shared > target.limits.shared_memory_bytes:
            raise UnsupportedError(
                f"{name}: {head.name} needs more shared memory than a block has",
                got=head.shared,
                expected=f"at most {target.limits.shared_memory_bytes}",
            )

    # ---- launches

    def launch_words(self, launch: Launch) -> tuple[_Loaded, int, int, Arguments]:
        """A kernel, its function for these buffers, its blocks, and its arguments."""
        driver = self._driver
        loaded = self._handles.get(launch.kernel.handle)
        if loaded is None:
            raise StaleHandleError(
                f"{driver.name}: the code of {launch.kernel.name} is not on this device"
            )
        (blocks,) = launch.grid
        if loaded.head.is_persistent:
            blocks = min(blocks, driver.target.unit("grid").count)
        count = len(launch.buffers) + len(launch.variables)
        boxes = [self._described(box, launch) for box in loaded.head.boxes]
        arguments = Arguments(count + 2, boxes)
        words = arguments.words
        together = 0
        for position, buffer in enumerate(launch.buffers):
            address = driver.address_of(buffer)
            words[position] = address
            together |= address
        for position, value in enumerate(launch.variables, len(launch.buffers)):
            words[position] = value & 0xFFFF_FFFF_FFFF_FFFF
        words[count] = driver.fault_address
        if loaded.head.scratch:
            arguments.keep = self._scratch_for(loaded.head.scratch * blocks)
            words[count + 1] = arguments.keep.address
        is_aligned = together % ALIGNMENT_BYTES == 0
        return loaded, loaded.aligned if is_aligned else loaded.any_, blocks, arguments

    def misplaced(self, command: Command) -> tuple[int, ...]:
        """The buffers of a launch that the card cannot take where they start."""
        if not isinstance(command, Launch):
            return ()
        loaded = self._handles.get(command.kernel.handle)
        if loaded is None:
            return ()
        addresses = [buffer.address for buffer in command.buffers]
        found = {
            box.slot
            for box in loaded.head.boxes
            if (addresses[box.slot] + box.start_bytes) % ALIGNMENT_BYTES
        }
        if any(address & 7 for address in addresses):
            pairs = zip(addresses, loaded.widths, strict=False)
            found |= {slot for slot, (address, width) in enumerate(pairs) if address % width}
        return tuple(sorted(found))

    def _described(self, box: Box, launch: Launch) -> tuple[int, ...]:
        """The copy engine's description of an array; made once for each place."""
        address = launch.buffers[box.slot].address
        key = (address, box)
        found = self._boxes.get(key)
        if found is None:
            if len(self._boxes) >= _MOST_BOXES:
                self._boxes.clear()
            found = self._boxes[key] = self._driver.library.describe_box(address, box)
        return found
