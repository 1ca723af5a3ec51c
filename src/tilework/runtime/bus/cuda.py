"""The door to NVIDIA's driver: plain numbers in and out, an exception for a status that is not 0.

`open_library` gives the real one, through NVIDIA's own bindings; tests hand the CUDA driver another
object with the same methods.  Handles are integers.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, Protocol

from tilework.base.errors import DeviceUnavailableError
from tilework.target.cuda_code import Box

MISSING_BINDINGS: Final = "cuda-bindings is not installed"
EXTRA: Final = "pip install tilework[cuda]"
#: Statuses after which nothing more can be done in this context.
LOST: Final = frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
OUT_OF_MEMORY: Final = 2
#: Statuses of calls in a context that is there no more.
CONTEXT_GONE: Final = frozenset({201, 709})
_REACHED_ALREADY: Final = 704
#: Numbers of dtypes and of swizzles (by their bytes) in CUDA's header.
BOX_DTYPES: Final = {
    "uint8": 0, "int8": 0, "fp8e4m3": 0, "fp8e5m2": 0, "uint16": 1, "int16": 1, "uint32": 2,
    "int32": 3, "float16": 6, "float32": 7, "bfloat16": 9,
}  # fmt: skip
#: The port and the kind of an edge between kernels of which the second may start before the first
#: has ended, by their numbers in CUDA's header.
_EARLY_PORT, _EARLY_EDGE = 1, 1
_SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}


class CudaCallError(Exception):
    """A call of the driver gave a status that is not 0; `code` is the number, `name` its name."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call = call
        self.code = code
        self.name = name


class CudaCards(Protocol):
    """Cards, and the contexts in which a process uses them."""

    def version(self) -> int:
        """The version of CUDA that the driver knows, 13000 for 13.0."""
        ...

    def device_count(self) -> int:
        """How many cards there are."""
        ...

    def device_name(self, ordinal: int) -> str:
        """The name of a card."""
        ...

    def attribute(self, ordinal: int, number: int) -> int:
        """An attribute of a card by its number in CUDA's header."""
        ...

    def memory_bytes(self, ordinal: int) -> int:
        """The memory of a card."""
        ...

    def context_retain(self, ordinal: int) -> int:
        """Take a share of the context that a process has on a card."""
        ...

    def context_release(self, ordinal: int) -> None:
        """Give the share back."""
        ...

    def context_use(self, context: int) -> None:
        """Let the calls of this thread go to a context."""
        ...

    def can_reach(self, ordinal: int, other: int) -> bool:
        """Whether a card can see the memory of another one."""
        ...

    def context_reach(self, context: int) -> None:
        """Let the context that is in use see the memory of another one's card."""
        ...


class CudaQueues(Protocol):
    """Queues, and marks in them."""

    def stream_create(self) -> int:
        """A new queue."""
        ...

    def stream_destroy(self, stream: int) -> None:
        """Give a queue up."""
        ...

    def stream_synchronize(self, stream: int) -> None:
        """Wait for a queue, however long it takes."""
        ...

    def event_create(self, *, timing: bool) -> int:
        """A new mark."""
        ...

    def event_destroy(self, event: int) -> None:
        """Give a mark up."""
        ...

    def event_record(self, event: int, stream: int) -> None:
        """Put a mark into a queue."""
        ...

    def stream_begin_capture(self, stream: int) -> None:
        """Put what this thread gives a queue from now on into a graph, and do none of it."""
        ...

    def stream_end_capture(self, stream: int) -> int:
        """The graph of what the queue was given since."""
        ...

    def stream_wait(self, stream: int, event: int) -> None:
        """Let what is queued from now on wait for a mark as it was put last, of any card."""
        ...

    def event_is_done(self, event: int) -> bool:
        """Whether the queue has passed the mark."""
        ...

    def event_seconds(self, start: int, end: int) -> float:
        """The time between two marks that were passed."""
        ...


class CudaMemories(Protocol):
    """Memory of the card and of the host, and copies between them."""

    def memory_allocate(self, size_bytes: int) -> int:
        """Memory of the card."""
        ...

    def memory_free(self, address: int) -> None:
        """Give memory of the card back."""
        ...

    def memory_info(self) -> tuple[int, int]:
        """Bytes that are free and that there are, of the card whose context is in use."""
        ...

    def host_allocate(self, size_bytes: int) -> int:
        """Pinned memory of the host, which the card sees at the same address."""
        ...

    def host_free(self, address: int) -> None:
        """Give pinned memory back."""
        ...

    def host_register(self, address: int, size_bytes: int) -> int:
        """Pin memory of the host; returns the address at which the card sees it."""
        ...

    def host_unregister(self, address: int) -> None:
        """Unpin it."""
        ...

    def copy_to_device(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Queue a copy from the host."""
        ...

    def copy_to_host(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Queue a copy to the host."""
        ...

    def copy_on_device(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Queue a copy between places of the card."""
        ...

    def copy_between_cards(
        self,
        target: int,
        target_context: int,
        source: int,
        source_context: int,
        size_bytes: int,
        stream: int,
    ) -> None:
        """Queue a copy from one card to another."""
        ...

    def fill(self, target: int, byte: int, size_bytes: int, stream: int) -> None:
        """Queue a fill."""
        ...


class CudaCode(Protocol):
    """Code, and launches of it."""

    def module_load(self, cubin: bytes) -> int:
        """Load code."""
        ...

    def module_unload(self, module: int) -> None:
        """Unload it."""
        ...

    def function(self, module: int, name: str) -> int:
        """A kernel of a module by its name."""
        ...

    def allow_shared(self, function: int, size_bytes: int) -> None:
        """Let a kernel have so much shared memory beside what its code declares."""
        ...

    def describe_box(self, address: int, box: Box) -> tuple[int, ...]:
        """The sixteen words by which a copy engine knows an array that starts at an address."""
        ...

    def launch(
        self,
        function: int,
        blocks: int,
        threads: int,
        shared_bytes: int,
        stream: int,
        pointers: int,
    ) -> None:
        """Queue a kernel; `pointers` is the address of a list of pointers to its arguments."""
        ...


class CudaGraphs(Protocol):
    """Graphs: lists of launches and copies that are queued at once."""

    def graph_create(self) -> int:
        """A new graph."""
        ...

    def graph_destroy(self, graph: int) -> None:
        """Give a graph up."""
        ...

    def graph_add_kernel(
        self,
        graph: int,
        after: int,
        function: int,
        blocks: int,
        threads: int,
        shared_bytes: int,
        pointers: int,
        *,
        is_early: bool,
    ) -> int:
        """Add a kernel that runs after a node (0: at once); returns its node.

        With `is_early` the node is a kernel too, and the new one may start as soon as all blocks of
        it have ended or say so; the new one must wait by itself for what the other has written.
        """
        ...

    def graph_add_copy(
        self, graph: int, after: int, target: int, source: int, size_bytes: int, context: int
    ) -> int:
        """Add a copy on the card; returns its node."""
        ...

    def graph_instantiate(self, graph: int) -> int:
        """Make a graph ready to run."""
        ...

    def graph_set_kernel(
        self,
        instance: int,
        node: int,
        function: int,
        blocks: int,
        threads: int,
        shared_bytes: int,
        pointers: int,
    ) -> None:
        """Change a kernel of a graph that is ready."""
        ...

    def graph_set_copy(
        self, instance: int, node: int, target: int, source: int, size_bytes: int, context: int
    ) -> None:
        """Change a copy of a graph that is ready."""
        ...

    def graph_launch(self, instance: int, stream: int) -> None:
        """Queue a whole graph."""
        ...

    def graph_release(self, instance: int) -> None:
        """Give a ready graph up."""
        ...


class CudaLibrary(CudaCards, CudaQueues, CudaMemories, CudaCode, CudaGraphs, Protocol):
    """What the CUDA driver of this package calls."""


@cache
def _module() -> Any:
    if find_spec("cuda") is None:
        return None
    try:
        from cuda.bindings import driver  # heavy, and only there with the extra
    except ImportError:
        return None
    return driver


@cache
def open_library() -> CudaLibrary:
    """Return NVIDIA's driver.

    Raises: DeviceUnavailableError with what is missing: the bindings, the driver or a card.
    """
    module = _module()
    if module is None:
        raise DeviceUnavailableError(
            "CUDA: this device cannot be opened", reason=MISSING_BINDINGS, try_=EXTRA
        )
    try:
        library = _Bindings(module)
    except CudaCallError as error:
        raise DeviceUnavailableError(
            "CUDA: this device cannot be opened", reason=f"the driver does not start: {error}"
        ) from error
    except RuntimeError as error:
        raise DeviceUnavailableError(
            "CUDA: this device cannot be opened", reason="NVIDIA's driver is not installed"
        ) from error
    return library


class _Calls:
    """`cuda.bindings.driver`, with statuses checked."""

    #: Other libraries of NVIDIA see the cards that this one opens.
    is_real: Final = True

    def __init__(self, module: Any) -> None:
        self._module = module
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *results = getattr(self._module, name)(*arguments)
        if int(status):
            raise CudaCallError(name, int(status), status.name)
        return results[0] if len(results) == 1 else results


class _Cards(_Calls):
    """Cards and contexts."""

    def version(self) -> int:
        return int(self._call("cuDriverGetVersion"))

    def device_count(self) -> int:
        return int(self._call("cuDeviceGetCount"))

    def device_name(self, ordinal: int) -> str:
        raw: bytes = self._call("cuDeviceGetName", 128, self._device(ordinal))
        return raw.split(b"\0")[0].decode("ascii", "replace")

    def _device(self, ordinal: int) -> Any:
        return self._call("cuDeviceGet", ordinal)

    def attribute(self, ordinal: int, number: int) -> int:
        kind = self._module.CUdevice_attribute(number)
        return int(self._call("cuDeviceGetAttribute", kind, self._device(ordinal)))

    def memory_bytes(self, ordinal: int) -> int:
        return int(self._call("cuDeviceTotalMem", self._device(ordinal)))

    def context_retain(self, ordinal: int) -> int:
        return int(self._call("cuDevicePrimaryCtxRetain", self._device(ordinal)))

    def context_release(self, ordinal: int) -> None:
        self._call("cuDevicePrimaryCtxRelease", self._device(ordinal))

    def context_use(self, context: int) -> None:
        self._call("cuCtxSetCurrent", context)

    def can_reach(self, ordinal: int, other: int) -> bool:
        return bool(self._call("cuDeviceCanAccessPeer", self._device(ordinal), self._device(other)))

    def context_reach(self, context: int) -> None:
        (status,) = self._module.cuCtxEnablePeerAccess(context, 0)
        if int(status) not in (0, _REACHED_ALREADY):
            raise CudaCallError("cuCtxEnablePeerAccess", int(status), status.name)


class _Queues(_Cards):
    """Queues and marks."""

    def stream_create(self) -> int:
        return int(self._call("cuStreamCreate", 1))  # does not wait for the default stream

    def stream_destroy(self, stream: int) -> None:
        self._call("cuStreamDestroy", stream)

    def stream_synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", stream)

    def event_create(self, *, timing: bool) -> int:
        return int(self._call("cuEventCreate", 0 if timing else 2))

    def event_destroy(self, event: int) -> None:
        self._call("cuEventDestroy", event)

    def event_record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", event, stream)

    def stream_begin_capture(self, stream: int) -> None:
        mode = self._module.CUstreamCaptureMode(1)  # other threads may do what they like
        self._call("cuStreamBeginCapture", stream, mode)

    def stream_end_capture(self, stream: int) -> int:
        return int(self._call("cuStreamEndCapture", stream))

    def stream_wait(self, stream: int, event: int) -> None:
        self._call("cuStreamWaitEvent", stream, event, 0)

    def event_is_done(self, event: int) -> bool:
        (status,) = self._module.cuEventQuery(event)
        if int(status) == 600:  # CUDA_ERROR_NOT_READY
            return False
        if int(status):
            raise CudaCallError("cuEventQuery", int(status), status.name)
        return True

    def event_seconds(self, start: int, end: int) -> float:
        return float(self._call("cuEventElapsedTime", start, end)) * 1e-3


class _Memories(_Queues):
    """Memory and copies."""

    def memory_allocate(self, size_bytes: int) -> int:
        return int(self._call("cuMemAlloc", size_bytes))

    def memory_free(self, address: int) -> None:
        self._call("cuMemFree", address)

    def memory_info(self) -> tuple[int, int]:
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def host_allocate(self, size_bytes: int) -> int:
        return int(self._call("cuMemHostAlloc", size_bytes, 3))  # portable, mapped

    def host_free(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def host_register(self, address: int, size_bytes: int) -> int:
        self._call("cuMemHostRegister", address, size_bytes, 3)
        return int(self._call("cuMemHostGetDevicePointer", address, 0))

    def host_unregister(self, address: int) -> None:
        self._call("cuMemHostUnregister", address)

    def copy_to_device(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        self._call("cuMemcpyHtoDAsync", target, source, size_bytes, stream)

    def copy_to_host(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        self._call("cuMemcpyDtoHAsync", target, source, size_bytes, stream)

    def copy_on_device(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        self._call("cuMemcpyAsync", target, source, size_bytes, stream)

    def copy_between_cards(
        self,
        target: int,
        target_context: int,
        source: int,
        source_context: int,
        size_bytes: int,
        stream: int,
    ) -> None:
        self._call(
            "cuMemcpyPeerAsync", target, target_context, source, source_context, size_bytes, stream
        )

    def fill(self, target: int, byte: int, size_bytes: int, stream: int) -> None:
        self._call("cuMemsetD8Async", target, byte, size_bytes, stream)


class _Code(_Memories):
    """Code and launches."""

    def module_load(self, cubin: bytes) -> int:
        return int(self._call("cuModuleLoadData", cubin))

    def module_unload(self, module: int) -> None:
        self._call("cuModuleUnload", module)

    def function(self, module: int, name: str) -> int:
        return int(self._call("cuModuleGetFunction", module, name.encode()))

    def allow_shared(self, function: int, size_bytes: int) -> None:
        kind = self._module.CUfunction_attribute(8)  # MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._call("cuFuncSetAttribute", function, kind, size_bytes)

    def describe_box(self, address: int, box: Box) -> tuple[int, ...]:
        module = self._module
        word, wide = module.cuuint32_t, module.cuuint64_t
        steps = box.steps or (1,) * len(box.box)
        found = self._call(
            "cuTensorMapEncodeTiled",
            module.CUtensorMapDataType(BOX_DTYPES[box.dtype]),
            len(box.sizes),
            address + box.start_bytes,
            [wide(size) for size in box.sizes],
            [wide(stride) for stride in box.strides_bytes[1:]],
            [word(size * step) for size, step in zip(box.box, steps, strict=True)],
            [word(step) for step in steps],
            module.CUtensorMapInterleave(0),
            module.CUtensorMapSwizzle(_SWIZZLES[box.swizzle_bytes]),
            module.CUtensorMapL2promotion(3),  # 256 bytes
            module.CUtensorMapFloatOOBfill(0),  # zeros
        )
        return struct.unpack("<16Q", ctypes.string_at(int(found.getPtr()), 128))

    def launch(
        self,
        function: int,
        blocks: int,
        threads: int,
        shared_bytes: int,
        stream: int,
        pointers: int,
    ) -> None:
        self._call(
            "cuLaunchKernel",
            function,
            *(blocks, 1, 1),
            *(threads, 1, 1),
            shared_bytes,
            stream,
            pointers,
            0,
        )


class _Bindings(_Code):
    """Graphs, and with them all of the door."""

    def graph_create(self) -> int:
        return int(self._call("cuGraphCreate", 0))

    def graph_destroy(self, graph: int) -> None:
        self._call("cuGraphDestroy", graph)

    def _kernel(self, function: int, blocks: int, threads: int, shared: int, pointers: int) -> Any:
        made = self._module.CUDA_KERNEL_NODE_PARAMS()
        made.func = function
        made.gridDimX, made.gridDimY, made.gridDimZ = blocks, 1, 1
        made.blockDimX, made.blockDimY, made.blockDimZ = threads, 1, 1
        made.sharedMemBytes = shared
        made.kernelParams = pointers
        made.extra = 0
        return made

    def graph_add_kernel(
        self,
        graph: int,
        after: int,
        function: int,
        blocks: int,
        threads: int,
        shared_bytes: int,
        pointers: int,
        *,
        is_early: bool,
    ) -> int:
        made = self._kernel(function, blocks, threads, shared_bytes, pointers)
        before = [] if is_early else self._nodes(after)
        node = self._call("cuGraphAddKernelNode", graph, before, len(before), made)
        if is_early and after:
            edge = self._module.CUgraphEdgeData()
            edge.from_port = _EARLY_PORT
            edge.type = _EARLY_EDGE
            self._call(self._edges, graph, self._nodes(after), [node], [edge], 1)
        return int(node)

    @property
    def _edges(self) -> str:
        """What adds edges of a kind; from version 13 of the bindings on there is one call alone."""
        known = "cuGraphAddDependencies_v2"
        return known if hasattr(self._module, known) else "cuGraphAddDependencies"

    def _nodes(self, after: int) -> list[Any]:
        return [self._module.CUgraphNode(init_value=after)] if after else []

    def _copy(self, target: int, source: int, size_bytes: int) -> Any:
        made = self._module.CUDA_MEMCPY3D()
        device = self._module.CUmemorytype.CU_MEMORYTYPE_DEVICE
        made.srcMemoryType = made.dstMemoryType = device
        made.srcDevice, made.dstDevice = source, target
        made.WidthInBytes, made.Height, made.Depth = size_bytes, 1, 1
        return made

    def graph_add_copy(
        self, graph: int, after: int, target: int, source: int, size_bytes: int, context: int
    ) -> int:
        made = self._copy(target, source, size_bytes)
        before = self._nodes(after)
        return int(self._call("cuGraphAddMemcpyNode", graph, before, len(before), made, context))

    def graph_instantiate(self, graph: int) -> int:
        return int(self._call("cuGraphInstantiate", graph, 0))

    def graph_set_kernel(
        self,
        instance: int,
        node: int,
        function: int,
        blocks: int,
        threads: int,
        shared_bytes: int,
        pointers: int,
    ) -> None:
        made = self._kernel(function, blocks, threads, shared_bytes, pointers)
        self._call("cuGraphExecKernelNodeSetParams", instance, node, made)

    def graph_set_copy(
        self, instance: int, node: int, target: int, source: int, size_bytes: int, context: int
    ) -> None:
        made = self._copy(target, source, size_bytes)
        self._call("cuGraphExecMemcpyNodeSetParams", instance, node, made, context)

    def graph_launch(self, instance: int, stream: int) -> None:
        self._call("cuGraphLaunch", instance, stream)

    def graph_release(self, instance: int) -> None:
        self._call("cuGraphExecDestroy", instance)
